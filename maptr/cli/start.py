"""The entry point of the ``maptr`` command.

``maptr url ARK... [@SERVER]...``, ``maptr discover ...`` and ``maptr ARK ...`` without options run without click, whose
import would make them 50 % slower. click handles every other command line, and every mistake.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from maptr.cli import is_discover, output

TYPE_CHECKING = False  # importing typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMPLETION = "_MAPTR_COMPLETE"  # set by a shell that asks click for completions


def run() -> None:
    output.prepare_streams()
    try:
        with output.errors_end_the_command():
            code = answer(sys.argv[1:], os.environ)
            if code is None:
                import signal  # late, as click

                from maptr.cli.group import main

                if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # else its parent ignores it
                    # Like Ctrl-C, so that a command leaves no temporary file behind.
                    signal.signal(signal.SIGTERM, signal.default_int_handler)
                if COMPLETION in os.environ:
                    import_module("maptr.cli.completion")  # it registers how bash splits words
                main(prog_name="maptr")
    except SystemExit as leaving:
        if leaving.code == output.EXIT_INTERRUPTED:
            os._exit(output.EXIT_INTERRUPTED)  # do not wait for threads
        raise
    except OSError:  # the reader of stdout closed the pipe
        output.discard_stdout()
        code = output.EXIT_NONE
    sys.exit(code)


def answer(words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Run ``url`` or ``discover`` without options. Returns the exit code; None for any other command line."""
    if not words or COMPLETION in environment or any(word.startswith("-") for word in words):
        return None
    command, *rest = ("discover", *words) if is_discover(words[0]) else words
    if command not in ("discover", "url") or not rest:
        return None
    from maptr.cli import lookup  # late: other commands do not need it
    from maptr.errors import MaptrError

    try:
        prepared = lookup.prepare(rest, lookup.DEFAULTS)
    except MaptrError:
        return None  # click prints the error and the usage
    return lookup.show_urls(prepared) if command == "url" else lookup.show_discoveries(prepared)
