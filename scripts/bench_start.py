"""``scripts/bench start``: from the command to the first answer, for maptr and the DNS servers of Debian, in turn."""

from __future__ import annotations

import sys

from scripts.benchmark.start import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
