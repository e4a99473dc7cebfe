"""Compares a table with DNS, record by record, by the URLs that each gives one example ARK of the record."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, product

from maptr import url
from maptr.ark import BETANUMERIC, Ark
from maptr.cache.disk import Disk
from maptr.cache.sources import Sources
from maptr.discovery import Discovery
from maptr.naptr.record import Naptr
from maptr.protocol.names import ARK_ARPA
from maptr.reconcile.verdict import Drift, PastVerdict, Urls, Verdict
from maptr.registry.table import Entry, Table
from maptr.registry.target import unusable
from maptr.zone.lint import unpublishable

MAX_STATES = 50  # of one record

# A u rule for a shoulder as ``zone.rules`` writes it: the part between the NAAN and the final ".*".
_SHOULDER_RULE = re.compile(rb".\^\(?ark:/\?[0-9a-z]+/\(*((?:[A-Za-z0-9=~@_%-]|\[[.*+$]\])+)\(?\.\*")


def verdicts(sources: Sources, kept: VerdictLog | None, naans: Iterable[str] | None = None) -> Iterator[list[Drift]]:
    """Yield the verdicts on each NAAN and its shoulders; None for every NAAN of the table and of the history.

    DNS is queried only for answers that are not cached.
    """
    table = sources.engine.table.current().table or Table()
    histories = kept.changes(sources.view) if kept is not None else {}
    if naans is None:
        naans = sorted({record.partition("/")[0] for record in [*table, *histories]})
    made: list[Drift] = []
    try:
        naans = list(naans)
        probes = [probe_of(naan, "", [entry.shoulder for entry in table.shoulders(naan)]) for naan in naans]
        for naan, asked in zip(naans, sources.fetch(probes), strict=True):
            found = list(reconcile(naan, table, partial(_discover, sources, asked), histories))
            made += found
            yield found
    finally:
        if kept is not None:
            kept.record(sources.view, made)


def _discover(sources: Sources, asked: Discovery | None, ark: Ark) -> Discovery:
    """Return what DNS says about an ARK. ``asked`` is the discovery of the NAAN's probe if this run made it.

    If DNS gave it no complete answer, DNS is not queried for another ARK.
    """
    if asked is not None and (ark.resolution == asked.ark.resolution or not asked.complete):
        return asked.replace(ark=ark)
    return sources.from_dns(ark)


def reconcile(
    naan: str, table: Table, discover: Callable[[Ark], Discovery], histories: Mapping[str, Sequence[PastVerdict]]
) -> Iterator[Drift]:
    """Yield the verdicts on a NAAN and on its shoulders, including shoulders that only DNS has.

    ``discover`` returns a discovery without candidates instead of raising. ``histories`` are by record, the latest
    verdict first.
    """
    shoulders = {entry.shoulder: entry for entry in table.shoulders(naan)}
    whole = table.get(naan)
    probe = probe_of(naan, "", shoulders)
    found = discover(probe)
    in_dns = shoulders_in_dns(found)
    if any(probe.name.startswith(shoulder) for shoulder in in_dns):
        probe = probe_of(naan, "", [*shoulders, *in_dns])
        found = discover(probe)
    for shoulder in in_dns:
        if shoulder not in shoulders and not _equals_naan(naan, shoulder, whole, found, discover):
            shoulders[shoulder] = Entry(naan, shoulder)  # not in the table: extra
    if whole is not None or found.candidates or not found.complete or not shoulders:
        yield compare(naan, whole, probe, found, histories.get(naan, ()))
    for shoulder in sorted(shoulders):
        entry, probe = shoulders[shoulder], probe_of(naan, shoulder, shoulders)
        in_table, history = table.get(entry.key), histories.get(entry.key, ())
        yield compare(entry.key, in_table, probe, discover(probe), history)


def _equals_naan(
    naan: str, shoulder: str, whole: Entry | None, found: Discovery, discover: Callable[[Ark], Discovery]
) -> bool:
    """Return whether the rule of a shoulder that only DNS has gives the URLs of the NAAN's record in the table, or the
    table is a natab, which has no shoulders."""
    if whole is None or not found.complete:
        return False
    if _is_of_natab(whole):
        return True
    probe = probe_of(naan, shoulder, ())
    return _normalized(expected(whole, probe)) == _normalized(urls_of(discover(probe)))


def compare(
    record: str, entry: Entry | None, probe: Ark, found: Discovery, history: Sequence[PastVerdict] = ()
) -> Drift:
    """Return the verdict on one record. ``entry`` is None if the table does not have it."""
    table = expected(entry, probe) if entry is not None else ()
    in_dns = urls_of(found)
    records = tuple(naptr.to_text() for naptr in _rules_of(found))
    verdict, reason = _judge(entry, table, found, in_dns)
    if verdict.is_drift and verdict is not Verdict.UNPUBLISHED:
        if in_dns and any(in_dns == past.table for past in history):
            verdict, reason = Verdict.STALE, "DNS says what the table said earlier"
        elif table and any(table == past.dns for past in history):
            verdict, reason = Verdict.STALE, "the table says what DNS said earlier"
    return Drift(record, verdict, str(probe), table, in_dns, reason, records)


def _judge(entry: Entry | None, table: Urls, found: Discovery, in_dns: Urls) -> tuple[Verdict, str]:
    if not found.complete:
        unanswered = next((step for step in found.trace if not step.outcome.answered), None)
        return Verdict.UNKNOWN, unanswered.ended + unanswered.remark if unanswered else "the walk was cut short"
    if not in_dns and not table:
        if entry is None:
            return Verdict.SAME, "neither side has it"
        return Verdict.LOSSY, "the table's record has no URL that can be published"
    if entry is None:
        return Verdict.EXTRA, f"DNS gives {_text(in_dns)}, the table has no such record"
    if not in_dns:
        return Verdict.MISSING, f"the table gives {_text(table)}, DNS says none"
    if _normalized(table) == _normalized(in_dns):
        return Verdict.SAME, ""
    if entry.shoulder and (why := unpublishable(entry, found.trace[0].name[1:] if found.trace else ARK_ARPA)):
        return Verdict.UNPUBLISHED, f"no zone can hold it ({why[0].reason}), DNS gives {_text(in_dns)}"
    if [url.parse(one).authority for one in table] == [url.parse(one).authority for one in in_dns]:
        if all(candidate.substitution is None for candidate in found.best):
            return Verdict.LOSSY, "DNS says no more than the hosts"
        if _is_of_natab(entry):
            return Verdict.LOSSY, "the table says no more than the hosts"
    if sorted(_normalized(table)) == sorted(_normalized(in_dns)):
        return Verdict.DIFFERS, "the same URLs in another order"
    return Verdict.DIFFERS, f"the table gives {_text(table)}, DNS {_text(in_dns)}"


def _is_of_natab(entry: Entry) -> bool:
    return bool(entry.nmas) and all(nma.where and "/" not in nma.where for nma in entry.nmas)


def probe_of(naan: str, shoulder: str, shoulders: Iterable[str]) -> Ark:
    """Return an ARK of a record that does not belong to a longer shoulder of the same NAAN."""
    taken = {other.removeprefix(shoulder) for other in shoulders if other.startswith(shoulder)} - {""}
    letters = BETANUMERIC[::-1]
    blades = ("".join(part) for length in (3, 4) for part in product(letters, repeat=length))
    free = (blade for blade in blades if taken.isdisjoint(accumulate(blade)))  # the blade's prefixes
    return Ark.parse(f"ark:{naan}/{shoulder}{next(free, 'zzz')}")


def expected(entry: Entry, probe: Ark) -> Urls:
    """Return the URLs that the table gives an ARK, leaving out unusable mapping authorities."""
    made: dict[str, str] = {}
    for nma in entry.nmas:
        if unusable(nma.target) is None:
            text = nma.url(probe, entry.shoulder)
            made.setdefault(url.normalized(text), text)
    return tuple(made.values())


def urls_of(found: Discovery) -> Urls:
    """Return the URLs of the candidates of the lowest order; the others are fallback."""
    return tuple(candidate.url(found.ark, scheme=found.scheme) for candidate in found.best) if found else ()


def shoulders_in_dns(found: Discovery) -> set[str]:
    """Return the shoulders of the u rules at the NAAN, if the rules have the form that maptr writes."""
    rules = (_SHOULDER_RULE.match(naptr.regexp) for naptr in _rules_of(found))
    return {re.sub(r"\[(.)\]", r"\1", rule[1].decode("ascii")) for rule in rules if rule}


def _rules_of(found: Discovery) -> list[Naptr]:
    return [reading.naptr for step in found.trace[:1] for reading in step.readings]


def _normalized(urls: Urls) -> list[str]:
    return [url.normalized(text) for text in urls]


def _text(urls: Urls) -> str:
    return " ".join(urls) if urls else "nothing"


# ---- the history of verdicts, which distinguishes a side that lags behind from two that disagree


@dataclass(frozen=True, slots=True)
class VerdictLog:
    """The verdicts of earlier runs in the cache's SQLite file, which also has the time and reason of each."""

    disk: Disk

    def record(self, view: str, verdicts: list[Drift]) -> bool:
        """Store each verdict that differs from its record's last one. False if the file cannot be written."""

        def write(connection: sqlite3.Connection) -> None:
            for drift in verdicts:
                self._write(connection, view, drift)

        return self.disk.transaction(write)

    def _write(self, connection: sqlite3.Connection, view: str, drift: Drift) -> None:
        state = (str(drift.verdict), json.dumps(drift.table), json.dumps(drift.dns))
        last = connection.execute(
            "SELECT verdict, in_table, in_dns FROM verdict WHERE view = ? AND record = ? ORDER BY id DESC LIMIT 1",
            (view, drift.record),
        ).fetchone()
        if last == state:
            return
        connection.execute(
            "INSERT INTO verdict (view, record, at, verdict, reason, in_table, in_dns) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (view, drift.record, self.disk.wall(), state[0], drift.reason, *state[1:]),
        )
        connection.execute(
            "DELETE FROM verdict WHERE view = ? AND record = ? AND id NOT IN"
            " (SELECT id FROM verdict WHERE view = ? AND record = ? ORDER BY id DESC LIMIT ?)",
            (view, drift.record, view, drift.record, MAX_STATES),
        )

    def changes(self, view: str) -> dict[str, list[PastVerdict]]:
        """Return each record's verdicts, the latest first: one for each change."""
        query = "SELECT record, at, verdict, reason, in_table, in_dns FROM verdict WHERE view = ? ORDER BY id DESC"
        found: dict[str, list[PastVerdict]] = {}
        for record, at, verdict, reason, *urls in (
            self.disk.run_waiting(lambda c: c.execute(query, (view,)).fetchall()) or ()
        ):
            if verdict in frozenset(Verdict):  # another release may have others
                table, dns = (tuple(json.loads(side)) for side in urls)
                found.setdefault(record, []).append(PastVerdict(at, Verdict(verdict), reason, table, dns))
        return found
