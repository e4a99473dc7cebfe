"""The commonest command lines, answered without click, which a fresh process would wait for longer than for DNS.

``maptr url ARK... [@SERVER]...``, ``maptr discover ...`` and ``maptr ARK ...``, without any option. What they do is
``asking``, with its defaults. And ``maptr serve``, with nearly all of its options (``serveoptions``). What is odd about
them is left to click, before anything was asked or said.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Mapping, Sequence

from maptr.cli import COMMANDS

COMPLETION = "_MAPTR_COMPLETE"  # set by a shell that asks click for completions


def means_discover(word: str) -> bool:
    """True for a first word that is an ARK or a server, not a command."""
    return word not in COMMANDS and ("ark:" in word.lower() or word.startswith("@"))


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

    with output.last_resort():
        try:
            arks, servers = asking.parse_words(rest)
            way = asking.whom(servers, asking.DEFAULTS)
        except MaptrError:
            return None  # click says what is wrong, and how the command is used
        show = asking.show_urls if command == "url" else asking.show_discoveries
        return show(arks, way, asking.DEFAULTS)


def serve(words: Sequence[str]) -> int | None:
    """The same for what follows ``maptr serve``, once the server has stopped."""
    gc.disable()  # imports leave no garbage, and looking for it takes a twentieth of their time
    from maptr.cli import output, serveoptions

    line = serveoptions.plain(words)
    if line is None:
        gc.enable()
        return None
    with output.last_resort():
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
        code = answer(sys.argv[1:], os.environ)
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")  # as click says it
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be flushed into the pipe
        sys.exit(1)
    if code is None:
        from maptr.cli import main

        main(prog_name="maptr")
    sys.exit(code)
