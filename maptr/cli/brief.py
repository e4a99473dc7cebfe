"""The commonest command lines, answered without click, which a fresh process would wait for longer than for DNS.

``maptr url ARK... [@SERVER]...``, ``maptr discover ...`` and ``maptr ARK ...``, without any option. What they do is
``asking``, with its defaults. And ``maptr serve``, with nearly all of its options (``serveoptions``). What is odd about
them is left to click, before anything was asked or said.
"""

from __future__ import annotations

import errno
import os
import sys

from maptr.cli import COMMANDS

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTERRUPTED = 130  # as in ``output``
COMPLETION = "_MAPTR_COMPLETE"  # set by a shell that asks click for completions


def means_discover(word: str) -> bool:
    """True for a first word that is a server or an ARK, if one without its label, and not a command."""
    if word in COMMANDS:
        return False
    lower = word.lower()
    return "ark:" in lower or "ark%3a" in lower or word.startswith("@") or (word[:1].isdigit() and "/" in word)


def answer(words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """The exit code of a line that was answered; None for one that is click's."""
    if not words or COMPLETION in environment:
        return None
    if words[0] == "serve":
        return serve(words[1:])
    if any(word.startswith("-") for word in words):
        return None
    command, *rest = ("discover", *words) if means_discover(words[0]) else words
    if command not in ("discover", "url") or not rest:
        return None
    from maptr.cli import asking, output
    from maptr.errors import MaptrError

    with output.LastResort():
        try:
            arks, servers = asking.parse_words(rest)
            way = asking.whom(servers, asking.DEFAULTS)
        except MaptrError:
            return None  # click says what is wrong, and how the command is used
        show = asking.show_urls if command == "url" else asking.show_discoveries
        return show(arks, way, asking.DEFAULTS)


def serve(words: Sequence[str]) -> int | None:
    """The same for what follows ``maptr serve``, once the server has stopped."""
    import gc

    gc.disable()  # imports leave no garbage, and looking for it takes a twentieth of their time
    from maptr.cli import output, serveoptions

    line = serveoptions.plain(words)
    if line is None:
        gc.enable()
        return None
    with output.LastResort():
        from maptr.cli import serving

        try:
            serving.serve(line)
        except serving.Misuse as error:
            from maptr.cli import main
            from maptr.cli.serve import complain

            return complain(error, main)
    return output.EXIT_OK


def run() -> None:
    """The ``maptr`` command."""
    try:
        _run()
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            os._exit(INTERRUPTED)  # all is said; threads that still wait for something are not waited for
        raise


def _run() -> None:
    try:
        code = answer(sys.argv[1:], os.environ)
        if code is None:
            from maptr.cli import main

            main(prog_name="maptr")
    except KeyboardInterrupt:
        from maptr.cli import output

        output.interrupted()
    except OSError as error:  # of the help, or of a pipe whose reader has read enough
        from maptr.cli import output

        if error.errno != errno.EPIPE:
            output.unwritable(error)
        output.let_go_of_stdout()
        sys.exit(1)
    sys.exit(code)
