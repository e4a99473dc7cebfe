"""maptr finds, by DNS, the server that resolves an ARK, and serves the DNS zone that makes this possible.

    from maptr import discover
    print(discover("ark:12345/x6np1wh8k").url())

The public names are these; help() of each explains its arguments and errors, with an example:

discovery   discover            the mapping authorities of an ARK
            discover_many       a discovery for each ARK of a stream
            discover_async, discover_many_async      the same, awaited
            Client              the object that has all options: servers, trust, table, memory
            Validator           DNSSEC validation from trust anchors
            Settings            limits of a discovery, and the scheme of its URLs
            Policy              which source answers: "dns-first", "natab-first", "dns-only" or "natab-only"
results     Discovery           the candidates that were found, best first, and how
            Candidate           one mapping authority
            Step, Reading       one query of its trace, and one record that it gave
            Naptr, Kind         this record as DNS has it, and what it means
            TableRecord         one record of a table on the trace
            Link                one link of a chain of trust
            ExtendedError       why a server said that it failed
            Outcome, Limit      how a query ended, and the limit that ended it
            States, Dns, Natab  the states of DNS and of the table when the source was chosen
            Drift, Verdict      a record of the table compared with DNS
            PastVerdict         an earlier verdict
            Description         what a mapping authority says about an ARK
            Segment             one record of a description
            Pull                what a pull of the registry changed
choosers    sticky, at_random, weighted     by hash, at random, or at random by preference
            Reachable, Own      the first that answers, or the one that the ARK came with
            Chooser             their type: any function from a Discovery to one of its candidates
ARKs        Ark                 an ARK, from any received text
            find_arks           the ARKs in prose
            Profile             the version of the draft by which text is read: "current", "2019" or "2002"
            Scope, Hyphens      over what a check character is computed; whether hyphens are sent
            SharedNaan          the meaning of a NAAN that all organisations share
tables      Table, Entry, Nma   a registry of NAANs, one record of it, and one mapping authority of a record
errors      MaptrError          the base of all others
            ArkSyntaxError      the text is not an ARK
            ConfigError         a wrong option
            DiscoveryError      no mapping authority, as one of:
                NoMappingAuthority, DiscoveryFailed, DiscoveryTimeout       DNS said none, did not say, not in time
            NoEventLoop         awaited without asyncio
            NmaError, PullFailed                    no mapping authority could be asked, no source had a registry
            Fault               why a mapping authority did not answer
            TableError, UnsafePlan                  a bad table file, a plan that removes too much
types       ClientOptions, CallOptions, StreamOptions      the options of a client, a call and a stream, to pass them on
            SourcePolicy, StepHook, TrustAnchors           of the options ``policy``, ``on_step`` and ``trust_anchors``

Also public: ``maptr.registry`` (tables and their formats), ``maptr.plugins`` (what extensions need) and
``maptr.testing`` (DNS without a network, for your tests).

docs/api.txt has the signatures of all of these, and CHANGELOG.md lists every change to one; docs/promises.md says how
long a name remains. Every other module and folder of the package is internal and may change in any release.

Public names are imported on first use, so that ``import maptr`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maptr.ark import Ark, Hyphens, Profile, Scope, SharedNaan, find_arks
    from maptr.cache import Policy
    from maptr.cache.policy import SourcePolicy
    from maptr.choose import Chooser, at_random, sticky, weighted
    from maptr.client import (
        CallOptions,
        Client,
        ClientOptions,
        StreamOptions,
        discover,
        discover_async,
        discover_many,
        discover_many_async,
    )
    from maptr.discovery import (
        Candidate,
        Discovery,
        DiscoveryError,
        DiscoveryFailed,
        DiscoveryTimeout,
        Limit,
        Link,
        NoMappingAuthority,
        Outcome,
        Reading,
        Step,
        TableRecord,
    )
    from maptr.errors import (
        ArkSyntaxError,
        ConfigError,
        Fault,
        MaptrError,
        NmaError,
        NoEventLoop,
        PullFailed,
        TableError,
        UnsafePlan,
    )
    from maptr.naptr.record import Kind, Naptr
    from maptr.nma.describe import Description, Segment
    from maptr.nma.reachable import Own, Reachable
    from maptr.protocol.extended_error import ExtendedError
    from maptr.reconcile.verdict import Drift, PastVerdict, Verdict
    from maptr.registry.pull import Pull
    from maptr.registry.table import Entry, Nma, Table
    from maptr.resolver.call import StepHook
    from maptr.resolver.validation.validator import TrustAnchors, Validator
    from maptr.states import Dns, Natab, States
    from maptr.walk import Settings

__version__ = "0.1.0"

_HOMES = {
    "maptr.ark": "Ark Hyphens Profile Scope SharedNaan find_arks",
    "maptr.cache": "Policy",
    "maptr.cache.policy": "SourcePolicy",
    "maptr.choose": "Chooser at_random sticky weighted",
    "maptr.client": "CallOptions Client ClientOptions StreamOptions discover discover_async discover_many"
    " discover_many_async",
    "maptr.discovery": "Candidate Discovery DiscoveryError DiscoveryFailed DiscoveryTimeout Limit Link"
    " NoMappingAuthority Outcome Reading Step TableRecord",
    "maptr.errors": "ArkSyntaxError ConfigError Fault MaptrError NmaError NoEventLoop PullFailed TableError UnsafePlan",
    "maptr.naptr.record": "Kind Naptr",
    "maptr.nma.describe": "Description Segment",
    "maptr.nma.reachable": "Own Reachable",
    "maptr.protocol.extended_error": "ExtendedError",
    "maptr.reconcile.verdict": "Drift PastVerdict Verdict",
    "maptr.registry.pull": "Pull",
    "maptr.registry.table": "Entry Nma Table",
    "maptr.resolver.call": "StepHook",
    "maptr.resolver.validation.validator": "TrustAnchors Validator",
    "maptr.states": "Dns Natab States",
    "maptr.walk": "Settings",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Ark",
    "ArkSyntaxError",
    "CallOptions",
    "Candidate",
    "Chooser",
    "Client",
    "ClientOptions",
    "ConfigError",
    "Description",
    "Discovery",
    "DiscoveryError",
    "DiscoveryFailed",
    "DiscoveryTimeout",
    "Dns",
    "Drift",
    "Entry",
    "ExtendedError",
    "Fault",
    "Hyphens",
    "Kind",
    "Limit",
    "Link",
    "MaptrError",
    "Naptr",
    "Natab",
    "Nma",
    "NmaError",
    "NoEventLoop",
    "NoMappingAuthority",
    "Outcome",
    "Own",
    "PastVerdict",
    "Policy",
    "Profile",
    "Pull",
    "PullFailed",
    "Reachable",
    "Reading",
    "Scope",
    "Segment",
    "Settings",
    "SharedNaan",
    "SourcePolicy",
    "States",
    "Step",
    "StepHook",
    "StreamOptions",
    "Table",
    "TableError",
    "TableRecord",
    "TrustAnchors",
    "UnsafePlan",
    "Validator",
    "Verdict",
    "at_random",
    "discover",
    "discover_async",
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
    import logging  # imported late, so that ``import maptr`` is fast

    logger = logging.getLogger("maptr")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
