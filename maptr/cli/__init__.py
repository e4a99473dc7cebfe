"""The ``maptr`` command: one module for each noun of the command line, imported when its command runs.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

from __future__ import annotations

# Command -> (module, attribute, short help). The help texts are here so that ``maptr --help`` imports no command.
Lazy = tuple[str, str, str]
COMMANDS: dict[str, Lazy] = {
    "discover": ("maptr.cli.discover", "discover", "Find the mapping authorities of ARKs, and show why."),
    "url": ("maptr.cli.discover", "url", "Print the URL of each ARK and nothing else."),
    "ark": ("maptr.cli.ark", "ark", "Parse ARKs: normal form, shoulder, qualifier, check character."),
    "bulk": ("maptr.cli.bulk", "bulk", "Discover a file of ARKs, many at a time."),
    "open": ("maptr.cli.discover", "open_", "Open the URL of an ARK in the browser."),
    "naan": ("maptr.cli.naan", "naan", "Show who has a NAAN, and where its ARKs go."),
    "info": ("maptr.cli.discover", "info", "Ask the mapping authority of each ARK for a description."),
    "table": ("maptr.cli.table", "table", "Show the table in use; pull, check, convert and export the registry."),
    "zone": ("maptr.cli.zone", "zone", "Build the zone from the registry; check, compare and sign zones."),
    "serve": ("maptr.cli.serve", "serve", "Answer DNS queries from zone files."),
    "gateway": ("maptr.cli.gateway", "gateway", "Redirect ARKs to their mapping authorities, over HTTP."),
    "redirects": ("maptr.cli.redirects", "redirects", "Check, import and export the redirects of single ARKs."),
    "stats": ("maptr.cli.stats", "stats", "Show what clients asked a gateway."),
    "config": ("maptr.cli.config", "config", "Print the settings that make a resolver ask your server."),
    "up": ("maptr.cli.up", "up", "Serve the zone of the registry and a gateway on this machine."),
    "reload": ("maptr.cli.control", "reload", "Make the running server read its zones again."),
    "control": ("maptr.cli.control", "control", "Make the running server pull, notify or sign now."),
    "completion": ("maptr.cli.completion", "completion", "Print the completion script for a shell."),
    "status": ("maptr.cli.control", "status", "Show the state of the running server."),
}

SECTIONS = {  # of ``maptr --help``
    "Look up ARKs": ("discover", "url", "open", "naan", "info", "bulk", "ark"),
    "Try everything on this machine": ("up",),
    "Publish a registry in DNS": ("table", "zone", "serve", "status", "control", "reload"),
    "Resolve ARKs for others": ("gateway", "redirects", "stats", "config"),
    "Other commands": ("completion",),
}

# The page of docs/ about a command and its subcommands.
PAGES = {
    "": "quickstart.md",
    **dict.fromkeys(("discover", "url", "open", "naan", "info", "bulk"), "library.md"),
    "ark": "reference.md",
    **dict.fromkeys(("up", "completion"), "quickstart.md"),
    **dict.fromkeys(("zone", "serve", "status", "control", "reload"), "admin.md"),
    **dict.fromkeys(("table", "gateway", "redirects", "stats", "config"), "operator.md"),
}


def is_discover(word: str) -> bool:
    """Return whether a first argument is an ARK or a server, and so means the command ``discover``."""
    if word in COMMANDS:
        return False
    lower = word.lower()
    return "ark:" in lower or "ark%3a" in lower or word.startswith("@") or (word[:1].isdigit() and "/" in word)
