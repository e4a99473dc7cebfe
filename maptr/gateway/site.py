"""What the gateway answers from at one moment: its settings, the table, single redirects, probes and drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from maptr import url
from maptr.ark import Ark
from maptr.cache.drift import Drift
from maptr.cache.probe_log import Liveness, place_in
from maptr.discovery import Candidate, Discovery
from maptr.gateway.message import Response
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Table

NO_TABLE = Table()


@dataclass(frozen=True, slots=True)
class DriftReport:
    """The verdicts of the last comparison of table and DNS. ``at`` is its wall-clock time; None before the first."""

    verdicts: Sequence[Drift] = ()
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """The target of a single ARK (draft 3.4)."""

    url: str
    status: int = 302


@dataclass(frozen=True)
class Site:
    """Everything a response is made from. A change makes a new site.

    ``public_url`` is where clients reach the gateway, ``root`` the resolver to which it forwards an ARK that has no
    mapping authority; both without a final slash, and "" for none. ``metadata`` is the target of inflections where it
    differs from that of the object. ``describes``: the gateway answers every inflection itself. ``dns`` answers a DNS
    message of a client; None without zones. ``troubles`` are the reasons why the gateway is not ready.
    """

    public_url: str = ""
    root: str = ""
    metadata: str = ""
    table_state: TableState = field(default_factory=TableState)
    redirects: Mapping[Ark, Redirect] = field(default_factory=dict)
    liveness: Mapping[str, Liveness] = field(default_factory=dict)
    drift: DriftReport = DriftReport()
    describes: bool = False
    dns: Callable[[bytes, str], bytes | None] | None = None
    metrics: Callable[[], Response] | None = None
    troubles: tuple[str, ...] = ()

    @property
    def table(self) -> Table:
        return self.table_state.table or NO_TABLE

    def entry(self, ark: Ark) -> Entry | None:
        """The record that serves an ARK."""
        return self.table.lookup(ark)

    @cached_property
    def _own(self) -> str:
        return _place(self.public_url)

    def is_own(self, where: str) -> bool:
        """True for a URL of the gateway itself."""
        return bool(self.public_url) and _place(where).startswith(self._own)

    def is_circular(self, ark: Ark) -> bool:
        """True if the record of an ARK names this gateway or ``root``, so that forwarding to ``root`` could loop."""
        entry = self.entry(ark)
        urls = entry.urls(ark) if entry is not None else []
        bases = [_place(base) for base in (self.public_url, self.root) if base]
        return any(_place(where).startswith(base) for where in urls for base in bases)

    def ranked(self, found: Discovery, now: float) -> list[Candidate]:
        """The candidates, with those that did not answer their last probes at the end."""
        if not self.liveness or len(found) < 2:
            return list(found)
        return sorted(found, key=lambda candidate: self.is_suspect(candidate, found, now))

    def is_suspect(self, candidate: Candidate, found: Discovery, now: float) -> bool:
        """True if the server of a candidate did not answer its last probes."""
        place = place_in(candidate.url(found.ark, scheme=found.scheme))
        known = self.liveness.get(place) if place is not None else None
        return known is not None and known.is_suspect(now)


def _place(text: str) -> str:
    """A URL in the form that compares with its beginning."""
    return url.same_place(f"{text}/")
