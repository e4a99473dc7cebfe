"""One run of the coverage-guided fuzzer: ``python -m tests.fuzz.run TARGET LIBFUZZER-ARGUMENT...``.

``scripts/fuzz`` calls it; nothing else needs atheris.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Fuzz one target until libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["maptr", "dnslib"]):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
