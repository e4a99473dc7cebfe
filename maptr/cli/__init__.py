"""The ``maptr`` command: one file per noun, loaded only when it is asked for, so that ``--help`` is instant.

``main`` is the click command. It loads on first use too, for ``brief`` answers the commonest lines without click.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from typing import Any

    from maptr.cli.group import main

__all__ = ["main"]

# Command -> (module, attribute, short help). The help stands here so that listing commands imports none of them.
COMMANDS = {
    "discover": ("maptr.cli.discover", "discover", "Find the mapping authorities of ARKs, with the reasons."),
    "url": ("maptr.cli.discover", "url", "Print the URL that answers for each ARK, and nothing else."),
    "ark": ("maptr.cli.ark", "ark", "Parse ARKs: normal form, shoulder, qualifier, check character."),
    "bulk": ("maptr.cli.bulk", "bulk", "Discover a file of ARKs, hundreds at a time."),
    "info": ("maptr.cli.info", "info", "Ask the mapping authority of each ARK to describe it."),
    "table": ("maptr.cli.table", "table", "Read, check and convert the NAAN registry."),
    "zone": ("maptr.cli.zone", "zone", "Build the zone from the registry; check, compare and sign any zone."),
    "serve": ("maptr.cli.serve", "serve", "Answer DNS queries from zone files."),
    "up": ("maptr.cli.up", "up", "Pull the registry, serve it on this machine, and point maptr at it."),
    "reload": ("maptr.cli.control", "reload", "Have the running server read its zones again."),
    "completion": ("maptr.cli.completion", "completion", "Print what makes a shell complete maptr's words."),
    "status": ("maptr.cli.control", "status", "Say how the running server is."),
}


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module("maptr.cli.group").main
