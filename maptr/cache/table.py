"""The answers of a table: the candidates of an ARK from its own record and the shorter records of its NAAN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from maptr import url
from maptr.ark import Ark
from maptr.discovery import TABLE, Candidate, Discovery, Limit, Outcome, Step, TableRecord, age_of
from maptr.errors import printable
from maptr.naptr.automaton import Budget
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Nma, Table
from maptr.registry.target import example_url, replacement_parts, unusable
from maptr.states import Natab, States
from maptr.walk import Settings

TABLE_TTL = 300  # seconds for which an answer from the table may be kept; a newer table shows after them
NAAN_ORDER = 10  # of the candidates of a NAAN; those of shoulders precede them, as in a zone built from the table
PREFERENCE_STEP = 10  # between the mapping authorities of one record
MAX_REASON = 300  # characters of the reason why a record is unusable, which may quote a target of any length


class TableReader:
    """The answers of a table: the candidates that the ``u`` rules of a zone built from it would give, in their order,
    even where a rule would be longer than DNS can carry.

    A record without a usable mapping authority gives no candidates, and no shorter shoulder of the same NAAN answers in
    its place, because it is not known where its ARKs lead.
    """

    def __init__(self) -> None:
        # One tuple, which is replaced as a whole: another thread may read another table at the same time.
        self._kept: tuple[Table | None, dict[tuple[str, bool], NaanRecords]] = None, {}

    def read(
        self, ark: Ark, settings: Settings, state: TableState, *, too_old: bool
    ) -> tuple[Natab, TableAnswer | None]:
        """Return the state of the table, and its answer if it has the ARK."""
        if state.table is None:
            return Natab.MISSING, None
        ark = ark.sent(settings.hyphens)
        name = ark.without_hyphens.partition("/")[2]
        record = self._records(ark.naan, settings.allow_private, state.table).serving(name)
        if state.trouble:
            natab = Natab.BROKEN_HAS if record else Natab.BROKEN_HAS_NOT
        elif too_old:
            natab = Natab.STALE_HAS if record else Natab.STALE_HAS_NOT
        else:
            natab = Natab.HAS if record else Natab.HAS_NOT
        if record is None:
            return natab, None
        fault, limit = record.fault, None
        found: tuple[Candidate, ...] = ()
        if not fault:
            found, limit = _candidates(ark, settings, record.targets)
            fault = "" if found else f"makes a URL of more than {url.MAX_URL} bytes"
        if not found:
            natab = Natab.UNUSABLE if record.denies and natab is Natab.HAS else Natab.UNCLEAR
        return natab, TableAnswer(ark, settings, state, record.entry.key, found, limit, fault)

    def _records(self, naan: str, allow_private: bool, table: Table) -> NaanRecords:
        """Return the records of a NAAN. They are cached as long as the table: there may be hundreds of shoulders."""
        of, kept = self._kept
        if table is not of:
            kept = {}
            self._kept = table, kept
        records = kept.get((naan, allow_private))
        if records is None:
            records = NaanRecords(_records_of(naan, allow_private, table))
            if records.lengths:  # so that the table limits how many are kept
                kept[naan, allow_private] = records
        return records


class NaanRecords:
    """The records of a NAAN by their shoulder. Every shoulder that an ARK starts with is a prefix of the longest one,
    so only the longest is looked up."""

    def __init__(self, records: Iterable[Record]) -> None:
        known = {record.entry.shoulder: record for record in records}
        self.lengths = sorted({len(shoulder) for shoulder in known}, reverse=True)
        self._records = {shoulder: self._with_shorter(record, known) for shoulder, record in known.items()}

    def _with_shorter(self, record: Record, known: dict[str, Record]) -> Record:
        shoulder = record.entry.shoulder
        serving = [known.get(shoulder[:length]) for length in self.lengths if length <= len(shoulder)]
        usable = [each for each in serving if each is not None and each.targets]
        first = max(0, NAAN_ORDER + 1 - len(usable))
        targets = [replace(target, order=order) for order, each in enumerate(usable, first) for target in each.targets]
        return record if record.fault else record._replace(targets=tuple(targets))

    def serving(self, name: str) -> Record | None:
        """Return the record with the longest shoulder that the name starts with."""
        for length in self.lengths:
            if (found := self._records.get(name[:length])) is not None:
                return found
        return None


class TableAnswer(NamedTuple):
    """What a table says about an ARK: the candidates from the record with this key, best first, and the limit that cut
    them off, if any; or the reason why there are none."""

    ark: Ark
    settings: Settings
    state: TableState
    key: str
    candidates: tuple[Candidate, ...]
    limit: Limit | None = None
    fault: str = ""

    @property
    def reason(self) -> str:
        if not self.fault:
            return f"record {self.key}"
        fault = printable(self.fault)
        return f"record {self.key}: {fault if len(fault) <= MAX_REASON else fault[:MAX_REASON] + '...'}"

    def discovery(
        self, now: float, reason: str, states: States, *, stale: bool, before: tuple[Step, ...] = ()
    ) -> Discovery:
        """Return the discovery of these candidates at a wall-clock time. ``before`` are the steps before the table."""
        rows: dict[str, tuple[str, ...]] = {}
        for candidate in self.candidates:
            rows[candidate.owner] = (*rows.get(candidate.owner, ()), candidate.target)
        name = (self.ark.naan.encode(), *self.settings.origin)
        step = Step(
            name,
            0,
            Outcome.ANSWER,
            ttl=TABLE_TTL,
            rdtype=TABLE,
            table_records=tuple([TableRecord(key, urls) for key, urls in rows.items()]),
            limit=self.limit,
        )
        is_whole = bool(self.candidates) and self.limit is None
        return Discovery(
            self.ark,
            self.candidates,
            (*before, step),
            complete=is_whole,
            source="natab",
            ttl=TABLE_TTL if is_whole else None,
            expiration=now + TABLE_TTL if is_whole else None,
            scheme=self.settings.scheme,
            stale=stale,
            reason=reason,
            states=states,
            fetched=self.state.fetched,
            age=age_of(self.state.fetched, now),
            table=self.state.kind,
            table_date=self.state.date,
        )


class Record(NamedTuple):
    """A record of the table and its usable mapping authorities, best first, or the reason why it has none.

    ``denies``: its ARKs have no mapping authority. One that cannot be read may have one.
    """

    entry: Entry
    targets: tuple[Target, ...]
    fault: str = ""
    denies: bool = False


@dataclass(frozen=True)
class Target:
    """A usable mapping authority of a record, with its rank, and the host and port of its URLs."""

    entry: Entry
    nma: Nma
    host: str
    port: int | None
    preference: int
    order: int = NAAN_ORDER

    @cached_property
    def path(self) -> tuple[tuple[int, int], ...]:
        return ((self.order, self.preference),)

    @property
    def replacement(self) -> tuple[bytes | int, ...]:
        _, parts = replacement_parts(self.nma.target, self.entry.naan)
        return tuple(part.encode() if isinstance(part, str) else part for part in parts)

    def apply(self, text: bytes, budget: Budget) -> bytes | None:
        ark = Ark.parse(text)
        serves = ark.naan == self.entry.naan and ark.without_hyphens.partition("/")[2].startswith(self.entry.shoulder)
        return self.nma.expanded(ark, self.entry.shoulder).encode() if serves else None


def _records_of(naan: str, allow_private: bool, table: Table) -> Iterator[Record]:
    for owner, _, shoulder in (record.partition("/") for record in table.unread):
        if owner == naan:
            yield Record(Entry(naan, shoulder), (), "the record cannot be read")
    whole = table.get(naan)
    for entry in [*table.shoulders(naan), *([whole] if whole is not None else ())]:
        yield _record(entry, allow_private)


def _record(entry: Entry, allow_private: bool) -> Record:
    faults = {nma: unusable(nma.target, allow_private=allow_private) for nma in entry.nmas}
    urls = {nma: url.parse(example_url(nma.target)) for nma, fault in faults.items() if fault is None}
    ranks = range(PREFERENCE_STEP, len(urls) * PREFERENCE_STEP + 1, PREFERENCE_STEP)
    targets = [
        Target(entry, nma, where.host.in_url, where.port, rank)
        for rank, (nma, where) in zip(ranks, urls.items(), strict=True)
    ]
    reasons = dict.fromkeys(fault[1] for fault in faults.values() if fault)
    fault = "" if targets else "; ".join(reasons) or "the record names no mapping authority"
    return Record(entry, tuple(targets), fault, denies=bool(fault))


def _candidates(ark: Ark, settings: Settings, targets: Sequence[Target]) -> tuple[tuple[Candidate, ...], Limit | None]:
    """Return the candidates, best first, and the limit that cut them off, if any. A target counts even if its URL is
    too long, so that no later one replaces it."""
    found: dict[str, Candidate] = {}
    for target in targets:
        made = target.nma.expanded(ark, target.entry.shoulder)
        if len(made) > url.MAX_URL:
            return tuple(found.values()), Limit.URL_LENGTH
        if len(found) == settings.max_candidates:
            return tuple(found.values()), Limit.CANDIDATES
        candidate = Candidate(
            target.host,
            target.port,
            target.order,
            target.preference,
            target.entry.key,
            ttl=TABLE_TTL,
            source="natab",
            target=made,
            path=target.path,
            ark=ark,
            substitution=target,
            default_scheme=settings.scheme,
            status=target.nma.status,
        )
        found.setdefault(url.normalized(made) if len(targets) > 1 else made, candidate)
    return tuple(found.values()), None
