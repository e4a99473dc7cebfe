"""The answers of a table: the candidates of an ARK from its own record and the shorter records of its NAAN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from maptr import url
from maptr.ark import Ark
from maptr.cache.policy import Natab
from maptr.discovery import TABLE, Candidate, Discovery, Limit, Outcome, Step, TableRecord
from maptr.errors import printable
from maptr.naptr.automaton import Budget
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Nma, Table
from maptr.registry.target import example_url, replacement_parts, unusable
from maptr.walk import Settings

TABLE_TTL = 300  # seconds; a zone built from the table gives a NAAN this TTL too
NAAN_ORDER = 10  # of the candidates of a NAAN; those of shoulders precede them, as in a zone built from the table
PREFERENCE_STEP = 10  # between the mapping authorities of one record
MAX_REASON = 300  # characters of the reason why a record is unusable, which may quote a target of any length


class TableReader:
    """Discoveries from a table: the candidates that the ``u`` rules of a zone built from it would give, in their order,
    also where a rule would be longer than DNS can carry.

    A record without a usable mapping authority gives no candidates, and no shorter shoulder of the same NAAN answers in
    its place, because where its ARKs lead is not known.
    """

    def __init__(self) -> None:
        # One tuple, which is replaced as a whole: another thread may read another table at the same time.
        self._kept: tuple[Table | None, dict[tuple[str, bool], NaanRecords]] = None, {}

    def read(self, ark: Ark, settings: Settings, state: TableState, *, too_old: bool) -> tuple[Natab, Discovery | None]:
        """Return the state of the table, and its discovery if it has the ARK.

        If the record is unusable, the discovery has no candidate, is incomplete, and gives the reason.
        """
        if state.table is None:
            return Natab.MISSING, None
        ark = ark.sent(settings.hyphens)
        name = ark.without_hyphens.partition("/")[2]
        serving = self._records(ark.naan, settings.allow_private, state.table).serving(name)
        if state.trouble:
            natab = Natab.BROKEN_HAS if serving else Natab.BROKEN_HAS_NOT
        elif too_old:
            natab = Natab.STALE_HAS if serving else Natab.STALE_HAS_NOT
        else:
            natab = Natab.HAS if serving else Natab.HAS_NOT
        if not serving:
            return natab, None
        found = _discovery(ark, settings, serving, state)
        return natab if found else Natab.UNUSABLE, found

    def _records(self, naan: str, allow_private: bool, table: Table) -> NaanRecords:
        """Return the records of a NAAN. They are kept as long as the table: there may be hundreds of shoulders."""
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
    """The records of a NAAN by their shoulder."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {record.entry.shoulder: record for record in records}
        self.lengths = sorted({len(shoulder) for shoulder in self._records}, reverse=True)

    def serving(self, name: str) -> list[Record]:
        """Return the records whose shoulder the name starts with. The first has the longest, and answers."""
        found = [self._records.get(name[:length]) for length in self.lengths if length <= len(name)]
        return [record for record in found if record is not None]


class Record(NamedTuple):
    """A record of the table and its usable mapping authorities, or the reason why it has none."""

    entry: Entry
    targets: tuple[Target, ...]
    fault: str = ""


class Target(NamedTuple):
    """A usable mapping authority of a record, with the host and port of its URLs."""

    entry: Entry
    nma: Nma
    host: str
    port: int | None

    def expand(self, ark: Ark) -> str:
        """Return the URL for an ARK without its inflection or query string."""
        return self.nma.expanded(ark, self.entry.shoulder)

    @property
    def replacement(self) -> tuple[bytes | int, ...]:
        _, parts = replacement_parts(self.nma.target, self.entry.naan)
        return tuple(part.encode() if isinstance(part, str) else part for part in parts)

    def apply(self, text: bytes, budget: Budget) -> bytes | None:
        ark = Ark.parse(text)
        serves = ark.naan == self.entry.naan and ark.without_hyphens.partition("/")[2].startswith(self.entry.shoulder)
        return self.expand(ark).encode() if serves else None


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
    targets = [Target(entry, nma, where.host.in_url, where.port) for nma, where in urls.items()]
    reasons = dict.fromkeys(fault[1] for fault in faults.values() if fault)
    fault = "" if targets else "; ".join(reasons) or "the record names no mapping authority"
    return Record(entry, tuple(targets), fault)


def _discovery(ark: Ark, settings: Settings, serving: list[Record], state: TableState) -> Discovery:
    """Return the discovery from the records that serve an ARK, the longest shoulder first."""
    entry, fault = serving[0].entry, serving[0].fault
    found: tuple[Candidate, ...] = ()
    limit: Limit | None = None
    if not fault:
        found, limit = _candidates(ark, settings, serving)
        fault = "" if found else f"makes a URL of more than {url.MAX_URL} bytes"
    if fault:
        fault = printable(fault)
        reason = f"record {entry.key}: {fault if len(fault) <= MAX_REASON else fault[:MAX_REASON] + '...'}"
        return Discovery(ark, complete=False, source="natab", reason=reason)
    urls: dict[str, list[str]] = {}
    for candidate in found:
        urls.setdefault(candidate.owner, []).append(candidate.target)
    rows = tuple([TableRecord(key, tuple(made)) for key, made in urls.items()])
    name = (ark.naan.encode(), *settings.origin)
    trace = (Step(name, 0, Outcome.ANSWER, ttl=TABLE_TTL, rdtype=TABLE, table_records=rows, limit=limit),)
    return Discovery(
        ark,
        found,
        trace,
        complete=limit is None,
        source="natab",
        ttl=TABLE_TTL if limit is None else None,
        scheme=settings.scheme,
        reason=f"record {entry.key}",
        fetched=state.fetched,
        table=state.kind,
    )


def _candidates(ark: Ark, settings: Settings, serving: list[Record]) -> tuple[tuple[Candidate, ...], Limit | None]:
    """Return the candidates, best first, and the limit because of which there are no more. A target is for this ARK
    even if its URL is too long, so that no later one replaces it."""
    found: dict[str, Candidate] = {}
    for target, order, preference in _ranked(serving):
        made = target.expand(ark)
        if len(made) > url.MAX_URL:
            return tuple(found.values()), Limit.URL_LENGTH
        if len(found) == settings.max_candidates:
            return tuple(found.values()), Limit.CANDIDATES
        place = target.host, target.port, order, preference, target.entry.key, TABLE_TTL, "natab", made
        path = ((order, preference),)
        candidate = Candidate(*place, path, ark.in_url, target, status=target.nma.status)
        found.setdefault(url.normalized(made) if len(serving) > 1 or found else made, candidate)
    return tuple(found.values()), None


def _ranked(serving: list[Record]) -> Iterator[tuple[Target, int, int]]:
    """Yield the targets of records with their order and preference."""
    usable = [record for record in serving if record.targets]
    for order, record in enumerate(usable, max(0, NAAN_ORDER + 1 - len(usable))):
        for number, target in enumerate(record.targets, 1):
            yield target, order, number * PREFERENCE_STEP
