"""What a table says of an ARK: the walk over the records its zone would have, so that both sides speak alike."""

from __future__ import annotations

from maptr import names
from maptr.ark import Ark
from maptr.cache.policy import Natab
from maptr.cache.watched import TableState
from maptr.discovery import Discovery
from maptr.errors import ZoneError
from maptr.names import Labels
from maptr.question import Answer, Reader, Settings
from maptr.replay import walk_again
from maptr.rules import fitting
from maptr.table import Entry, Table
from maptr.trace import Outcome

TTL = 300  # seconds that an answer from a table is good for: what a zone made of it gives a NAAN unknown yet
MAX_RULES = 100_000  # NAANs whose rules are kept ready


class TableReader:
    """Discoveries from one table after the other; rules once made are kept until the table is another."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: tuple[Table | None, dict[str, Answer]] = None, {}

    def read(self, ark: Ark, settings: Settings, state: TableState, *, too_old: bool) -> tuple[Natab, Discovery | None]:
        """What the table says, and its discovery where it has the ARK."""
        table = state.table
        if table is None:
            return Natab.MISSING, None
        found = self._discover(ark, settings, table, self._reader)
        has = found is not None and bool(found.candidates)
        if state.trouble:
            natab = Natab.BROKEN_HAS if has else Natab.BROKEN_HAS_NOT
        elif too_old:
            natab = Natab.STALE_HAS if has else Natab.STALE_HAS_NOT
        else:
            natab = Natab.HAS if has else Natab.HAS_NOT
        if found is None or not has:
            return natab, None
        candidates = tuple(candidate._replace(source="natab") for candidate in found.candidates)
        return natab, found.replace(candidates=candidates, source="natab", fetched=state.fetched)

    def _discover(self, ark: Ark, settings: Settings, table: Table, reader: Reader) -> Discovery | None:
        of, answers = self._kept  # together, for another thread may be at another table
        if table is not of:
            answers = {}
            self._kept = table, answers
        answer = answers.get(ark.naan)
        if answer is None:
            shoulders = table.shoulders(ark.naan)
            if ark.naan not in table and not shoulders:
                return None
            left_out: list[ZoneError] = []
            made = fitting(table.get(ark.naan) or Entry(ark.naan), shoulders, left_out)
            answer = Answer(Outcome.ANSWER, tuple(made), TTL, "; ".join(map(str, left_out)), "natab")
            if len(answers) >= MAX_RULES:
                answers.clear()
            answers[ark.naan] = answer
        root = names.fold((ark.naan.encode(), *settings.origin))

        def look_up(name: Labels) -> Answer:
            return answer if name == root else Answer(Outcome.NXDOMAIN, ttl=TTL, server="natab")

        return walk_again(ark, settings, look_up, reader)
