"""What a table says of an ARK: the walk over the rules of its NAAN, so that both sides speak alike.

The rules are those of a zone, but of any length: a record answers whether or not DNS could carry it. One without a
mapping authority that can be used answers nothing, and so do the records around it: where its ARKs lead is not known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from maptr.ark import Ark
from maptr.cache.policy import Natab
from maptr.cache.replay import walk_again
from maptr.discovery import Discovery, Outcome
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Table, unusable
from maptr.text import printable
from maptr.walk import Answer, Reader, Settings
from maptr.zone.rules import records

TTL = 300  # seconds that an answer from a table is good for: what a zone made of it gives a NAAN unknown yet
MAX_RULES = 100_000  # NAANs whose rules are kept ready
MAX_WHY = 300  # characters of the reason why a record cannot be used: it has the target, of any length


class _Rules(NamedTuple):
    """The rules of a NAAN, and its records, longest shoulder first, with the reason where one cannot be used."""

    answer: Answer
    entries: tuple[tuple[Entry, str], ...]

    def around(self, ark: Ark) -> list[tuple[Entry, str]]:
        """The records that an ARK is of; the first one serves it."""
        name = ark.resolution.partition("/")[2]
        return [found for found in self.entries if name.startswith(found[0].shoulder)]


class TableReader:
    """Discoveries from one table after the other; rules once made are kept until the table is another."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: tuple[Table | None, dict[tuple[str, bool], _Rules], dict[str, list[str]]] = None, {}, {}

    def read(self, ark: Ark, settings: Settings, state: TableState, *, too_old: bool) -> tuple[Natab, Discovery | None]:
        """What the table says, and its discovery where it has the ARK. Where its record cannot be used the discovery
        has no candidate, is not complete, and says why."""
        table = state.table
        if table is None:
            return Natab.MISSING, None
        rules = self._rules(ark.naan, settings, table)
        served = rules.around(ark)
        if state.trouble:
            natab = Natab.BROKEN_HAS if served else Natab.BROKEN_HAS_NOT
        elif too_old:
            natab = Natab.STALE_HAS if served else Natab.STALE_HAS_NOT
        else:
            natab = Natab.HAS if served else Natab.HAS_NOT
        if not served:
            return natab, None
        entry, why = served[0]
        found = None if why else self._walk(ark, settings, rules.answer)
        if found is None or not found.candidates:
            why = printable(why or "none of its targets makes a URL of this ARK")
            why = f"record {entry.key}: {why if len(why) <= MAX_WHY else why[:MAX_WHY] + '...'}"
            return Natab.UNUSABLE, Discovery(ark, (), (), complete=False, source="natab", reason=why)
        statuses: dict[str, int] = {}
        for around, _ in served:
            for nma in around.nmas:
                statuses.setdefault(nma.url(ark, around.shoulder), nma.status)
        candidates = tuple(
            candidate._replace(source="natab", status=statuses.get(candidate.target + ark.tail))
            for candidate in found.candidates
        )
        return natab, found.replace(candidates=candidates, source="natab", fetched=state.fetched)

    def _rules(self, naan: str, settings: Settings, table: Table) -> _Rules:
        of, kept, unread = self._kept  # together, for another thread may be at another table
        if table is not of:
            kept, unread = {}, {}
            for record in table.unread:
                unread.setdefault(record.partition("/")[0], []).append(record.partition("/")[2])
            self._kept = table, kept, unread
        key = naan, settings.allow_private
        rules = kept.get(key)
        if rules is None:
            whole = table.get(naan)
            entries = [*table.shoulders(naan), *([whole] if whole is not None else ())]
            judged = [_judged(entry, settings.allow_private) for entry in entries]
            judged += [(Entry(naan, shoulder), "the record cannot be read") for shoulder in unread.get(naan, ())]
            judged.sort(key=lambda one: -len(one[0].shoulder))
            usable = {entry.shoulder: entry for entry, why in judged if not why}
            made = records(usable.pop("", Entry(naan)), tuple(usable.values()))
            rules = _Rules(Answer(Outcome.ANSWER, tuple(made), TTL, server="natab"), tuple(judged))
            if len(kept) >= MAX_RULES:
                kept.clear()
            kept[key] = rules
        return rules

    def _walk(self, ark: Ark, settings: Settings, answer: Answer) -> Discovery | None:
        root = names.fold((ark.naan.encode(), *settings.origin))

        def look_up(name: Labels) -> Answer:
            return answer if name == root else Answer(Outcome.NXDOMAIN, ttl=TTL, server="natab")

        return walk_again(ark, settings, look_up, self._reader)


def _judged(entry: Entry, allow_private: bool) -> tuple[Entry, str]:
    """An entry with the NMAs alone that can be used, and why where there is none."""
    faults = {nma: unusable(nma, allow_private=allow_private) for nma in entry.nmas}
    usable = tuple(nma for nma, fault in faults.items() if fault is None)
    if usable:
        return replace(entry, nmas=usable), ""
    reasons = dict.fromkeys(fault[1] for fault in faults.values() if fault)
    return entry, "; ".join(reasons) or "the record names no mapping authority"
