"""The state from which the gateway answers at one moment: settings, the table, own objects, probes and drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from maptr import url
from maptr.answer.context import PLAIN, Context
from maptr.ark import Ark, Hyphens
from maptr.config.model import GatewayConfig
from maptr.discovery import Candidate, Discovery
from maptr.errors import ArkSyntaxError
from maptr.gateway.appearance import Appearance
from maptr.gateway.links.check import LinkReport
from maptr.gateway.message import Request, Response
from maptr.gateway.objects import UNREAD, FoundObjects, OwnObjects, Redirects, match, target_of
from maptr.gateway.statistics import Readings
from maptr.reconcile.probes import Liveness
from maptr.reconcile.verdict import Drift, PastVerdict
from maptr.registry.followed_file import TableState
from maptr.registry.search import NaanIndex
from maptr.registry.table import Entry, Table
from maptr.registry.target import DEFAULT_STATUS
from maptr.zone.snapshot import Snapshot

T = TypeVar("T")

MAX_MADE = 200  # pages and lists per site
MAX_CHAIN = 8  # own objects, each with the URL of the next
NO_TABLE = Table()


@dataclass(frozen=True, slots=True, eq=False)
class DriftReport:
    """The verdicts of the last comparison of table and DNS, made at wall-clock time ``at``; None before the first.

    ``serial`` is the zone's at that time, if known. ``history`` has earlier verdicts by record, latest first.
    """

    verdicts: Sequence[Drift] = ()
    at: float | None = None
    serial: int | None = None
    history: Mapping[str, Sequence[PastVerdict]] = field(default_factory=dict)


class Traffic(NamedTuple):
    """The redirects so far, and the seconds within which half of the responses to ARKs, and 99 % of them, were made;
    None before the first, or beyond the range of the metrics."""

    redirects: int
    half: float | None
    most: float | None


@dataclass(frozen=True)
class Site:
    """Everything a response is made from: one value, the argument of ``route``. A change makes a new site.

    ``has_admin``: metrics and statistics have a separate address. ``hyphens`` is as in ``Settings``. ``zones``, if
    there are any, and ``dns_context`` answer DNS over HTTPS. ``compares``: it compares the table with DNS.
    ``pull_failed``: the last pull of the table failed; None if this gateway pulls none. ``patience``: for that many
    seconds, look-ups of own objects may wait; 0 in the event loop, which must not. ``links`` reports on the links of
    own objects, None if they were never checked. ``sources`` are what the gateway answers from, None until it has
    looked; ``troubles`` say why it is not ready, and are safe to show to clients. ``alarms`` are what the operator must
    fix although it answers, by kind. ``index`` is the table's. ``certificate_expires`` is in seconds since 1970, None
    without HTTPS.
    """

    settings: GatewayConfig = field(default_factory=GatewayConfig)
    has_admin: bool = False
    hyphens: Hyphens = "remove"
    table_state: TableState = field(default_factory=TableState)
    pull_failed: bool | None = None
    appearance: Appearance = field(default_factory=Appearance)
    index: NaanIndex = field(default_factory=lambda: NaanIndex(NO_TABLE))
    redirects: Redirects = UNREAD
    patience: float = 0.0
    links: LinkReport | None = None
    liveness: Mapping[str, Liveness] = field(default_factory=dict)
    drift: DriftReport = DriftReport()
    compares: bool = False
    zones: Snapshot | None = None
    dns_context: Context = PLAIN
    metrics: Callable[[], Response] | None = None
    statistics: Readings | None = None
    traffic: Callable[[], Traffic] | None = None
    troubles: tuple[str, ...] = ()
    alarms: Mapping[str, str] = field(default_factory=dict)
    certificate_expires: float | None = None
    sources: tuple[str, ...] | None = None
    _made: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return the result of ``make``, which is called once for this site. Any thread may call it."""
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            made = self._made[key] = make()
        return cast(T, made)

    @cached_property
    def table(self) -> Table:
        table, naans = self.table_state.table, self.settings.naans
        if table is None:
            return NO_TABLE
        return Table(entry for entry in table.values() if entry.naan in naans) if naans else table

    def answers_for(self, naan: str) -> bool:
        """Return whether the gateway answers for a NAAN: for all of them, or only for its operator's."""
        return not self.settings.naans or naan in self.settings.naans

    def search(self, text: str) -> list[Entry]:
        """Return the records of the NAANs that match a text, best first."""
        return [entry for entry in self.index.search(text) if self.answers_for(entry.naan)]

    def find(self, text: str) -> FoundObjects:
        """Return the own objects that match a text. For threads that may wait."""
        found = self.objects.search(text)
        return found._replace(objects=[one for one in found.objects if self.answers_for(one.naan)])

    @property
    def has_drift(self) -> bool:
        return self.compares or self.drift.at is not None

    @cached_property
    def objects(self) -> OwnObjects:
        return self.redirects.objects.within(self.patience)

    def statistics_for(self, request: Request) -> Readings | None:
        """Return the statistics if the sender of a request may see them: an operator, or any client if they are
        public."""
        return self.statistics if self.settings.public_stats or (self.has_admin and request.is_admin) else None

    def status(self, ark: Ark, target: str) -> int | None:
        """Return the HTTP status that the table's record of an ARK sets for a target, if it is not the default. A NAPTR
        record has no field for it."""
        entry = self.table.lookup(ark)
        if entry is None:
            return None
        unusual = (nma for nma in entry.nmas if nma.status != DEFAULT_STATUS)
        return next((nma.status for nma in unusual if nma.url(ark, entry.shoulder) == target), None)

    def is_own(self, where: str, host: str) -> bool:
        """Return True for a URL of the gateway itself: below its ``public_url`` or, without one, an ARK at the
        request's ``host``."""
        public_url = self.settings.public_url
        at = _without_scheme(public_url).partition("/")[0] if public_url else host.lower()
        if at.partition(":")[0].removesuffix(".") not in where.lower():  # the fast path, nearly always taken
            return False
        if public_url:
            return is_below(where, public_url)
        own = {f"{_without_scheme(f'{scheme}://{host}')}/ark:" for scheme in ("http", "https")}
        return _without_scheme(where).startswith(tuple(own))

    def ends_here(self, where: str, host: str) -> bool:
        """Return True for a URL of the gateway itself, unless it belongs to an own object that is gone, or that leads
        elsewhere, perhaps through other own objects."""
        for _ in range(MAX_CHAIN):
            if not self.is_own(where, host):
                return False
            try:
                ark = Ark.parse(where)
            except ArkSyntaxError:
                return True
            if (own := match(self.objects, ark)) is None or own.object.is_gone:
                return own is None
            try:
                where = target_of(own, ark)
            except ValueError:
                return True
        return True

    @cached_property
    def naan_count(self) -> int:
        return len(self.table.naans())

    @cached_property
    def example(self) -> str:
        """An ARK to try: the registry's first one for tests, else the first NAAN."""
        if self.settings.example:
            return self.settings.example
        ark = next(filter(None, (entry.test_ark for entry in self.table.values())), None)
        return str(ark) if ark else f"ark:{next(iter(self.table), '12345').partition('/')[0]}"

    def is_circular(self, ark: Ark, host: str) -> bool:
        """Return whether an ARK's record names ``root`` or the gateway, so that ``root`` could send it back."""
        entry = self.table.lookup(ark)
        targets = entry.urls(ark) if entry is not None else []
        return any(is_below(where, self.settings.root) or self.is_own(where, host) for where in targets)

    def ranked(self, found: Discovery, now: float) -> tuple[Candidate, ...]:
        """Return the candidates; those that did not answer their last probes come last."""
        if not self.liveness or len(found) < 2:
            return found.candidates
        return tuple(sorted(found, key=lambda candidate: self.is_suspect(candidate, found, now)))

    def is_suspect(self, candidate: Candidate, found: Discovery, now: float) -> bool:
        """Return whether a candidate's server did not answer its last probes."""
        if not self.liveness:
            return False
        known = self.liveness.get(url.server_of(candidate.url(found.ark, scheme=found.scheme)) or "")
        return known is not None and known.is_suspect(now)


def is_below(where: str, base: str) -> bool:
    """Return whether a URL equals a base URL, or is below it, by http or https."""
    return f"{_without_scheme(where)}/".startswith(f"{_without_scheme(base)}/")


@lru_cache(maxsize=1024)
def _without_scheme(text: str) -> str:
    """Return a URL in a form to compare, without its scheme, because a server may be reached by http and https."""
    return url.normalized(text).partition("://")[2]
