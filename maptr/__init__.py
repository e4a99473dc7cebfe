"""maptr finds the server that resolves an ARK by DNS, and serves the DNS zone that makes this possible.

    from maptr import discover
    print(discover("ark:12345/x6np1wh8k").url())

The public names are these; below, and in help() of each, are its arguments, its errors and an example:

discovery   discover            the mapping authorities of an ARK
            discover_at         the same, asking one server
            discover_many       a discovery for each ARK of a stream
            discover_async, discover_many_async      the same, awaited
            Client              the object that has all options: servers, trust, table, memory
            Validator           DNSSEC validation from trust anchors
            Settings            limits of a discovery, and the scheme of its URLs
            Policy              which source answers: "dns-first", "natab-first", "dns-only" or "natab-only"
results     Discovery           the candidates that were found, best first, and how
            Candidate           one mapping authority
            Step, Reading       one query of its trace, and one record that it gave
            Outcome, Limit      how a query ended, and the limit that ended it
            Drift, Verdict      a record of the table compared with DNS
            Description         what a mapping authority says of an ARK
choosers    sticky, at_random, weighted     by hash, at random, or at random by preference
            Reachable, Own      the first that answers, or the one that the ARK came with
            Chooser             their type: any function from a Discovery to one of its candidates
ARKs        Ark                 an ARK, from any received text
            find_arks           the ARKs in prose
            Profile             the version of the draft by which text is read: "current", "2019" or "2002"
tables      Table, Entry, Nma   a registry of NAANs, one record of it, and one mapping authority of a record
errors      MaptrError          the base of all others
            ArkSyntaxError      the text is not an ARK
            ConfigError         a wrong option
            DiscoveryError      no mapping authority, as one of:
                NoMappingAuthority, DiscoveryFailed, DiscoveryTimeout       DNS said none, did not say, not in time
            NmaError, PullFailed                    no mapping authority could be asked, no source had a registry
            TableError, UnsafePlan, ZoneError       a bad table file, a plan that removes too much, a bad zone

``maptr.testing`` is public, too: DNS without a network, for your tests.

These names are the public API: CHANGELOG.md names every change of them. Every other module and folder of the package is
an inner room, which may change with any release; docs/architecture.md describes them.

Public names are imported on first use, so that ``import maptr`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maptr.ark import Ark, Profile, find_arks
    from maptr.cache import Policy
    from maptr.choose import Chooser, at_random, sticky, weighted
    from maptr.client import Client, discover, discover_async, discover_at, discover_many, discover_many_async
    from maptr.discovery import (
        Candidate,
        Discovery,
        DiscoveryError,
        DiscoveryFailed,
        DiscoveryTimeout,
        Limit,
        NoMappingAuthority,
        Outcome,
        Reading,
        Step,
    )
    from maptr.errors import (
        ArkSyntaxError,
        ConfigError,
        MaptrError,
        NmaError,
        PullFailed,
        TableError,
        UnsafePlan,
        ZoneError,
    )
    from maptr.nma.describe import Description
    from maptr.nma.reachable import Own, Reachable
    from maptr.reconcile.verdict import Drift, Verdict
    from maptr.registry.table import Entry, Nma, Table
    from maptr.resolver.validation.validator import Validator
    from maptr.walk import Settings

__version__ = "0.1.0"

_HOMES = {
    "maptr.ark": "Ark Profile find_arks",
    "maptr.cache": "Policy",
    "maptr.choose": "Chooser at_random sticky weighted",
    "maptr.client": "Client discover discover_async discover_at discover_many discover_many_async",
    "maptr.resolver.validation.validator": "Validator",
    "maptr.discovery": "Candidate Discovery DiscoveryError DiscoveryFailed DiscoveryTimeout Limit NoMappingAuthority"
    " Outcome Reading Step",
    "maptr.errors": "ArkSyntaxError ConfigError MaptrError NmaError PullFailed TableError UnsafePlan ZoneError",
    "maptr.nma.describe": "Description",
    "maptr.nma.reachable": "Own Reachable",
    "maptr.reconcile.verdict": "Drift Verdict",
    "maptr.registry.table": "Entry Nma Table",
    "maptr.walk": "Settings",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Ark",
    "ArkSyntaxError",
    "Candidate",
    "Chooser",
    "Client",
    "ConfigError",
    "Description",
    "Discovery",
    "DiscoveryError",
    "DiscoveryFailed",
    "DiscoveryTimeout",
    "Drift",
    "Entry",
    "Limit",
    "MaptrError",
    "Nma",
    "NmaError",
    "NoMappingAuthority",
    "Outcome",
    "Own",
    "Policy",
    "Profile",
    "PullFailed",
    "Reachable",
    "Reading",
    "Settings",
    "Step",
    "Table",
    "TableError",
    "UnsafePlan",
    "Validator",
    "Verdict",
    "ZoneError",
    "at_random",
    "discover",
    "discover_async",
    "discover_at",
    "discover_many",
    "discover_many_async",
    "find_arks",
    "sticky",
    "weighted",
]


def _imported(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    _be_quiet()
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # type checkers would accept every name then
    __getattr__ = _imported


def _be_quiet() -> None:
    """Give the logger ``maptr`` a handler, so that a program which wants no log gets none, not even warnings."""
    import logging  # late: ``import maptr`` is fast

    logger = logging.getLogger("maptr")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
