"""The verdicts of a cache: its table against what DNS says, asked only where no answer is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from maptr.ark import Ark
from maptr.cache import drift
from maptr.cache.disk import Disk
from maptr.cache.drift import Drift, reconcile
from maptr.cache.drivers import Driver
from maptr.cache.engine import Answering
from maptr.cache.policy import DnsOnly
from maptr.cache.request import Defaults
from maptr.discovery import Discovery
from maptr.registry.followed_file import TableState
from maptr.registry.table import Table

AskMany = Callable[[list[Ark]], Iterable[Discovery]]


class Reconciling:
    """``ask_many`` asks for many ARKs at a time; None for one by one. ``history`` keeps the verdicts, if anything."""

    def __init__(
        self,
        answering: Answering,
        driver: Driver,
        defaults: Defaults,
        history: Disk | None,
        ask_many: AskMany | None,
    ) -> None:
        self._answering = answering
        self._driver = driver
        self._defaults = defaults
        self._history = history
        self._ask_many = ask_many

    def verdicts(self, table: Table, naans: Iterable[str] | None) -> Iterator[list[Drift]]:
        """Those of each NAAN and its shoulders; None stands for every NAAN of the table and of the history."""
        view = self._defaults.view
        histories = self._history.histories(view) if self._history is not None else {}
        if naans is None:
            naans = sorted({record.partition("/")[0] for record in [*table, *histories]})
        naans = list(naans)
        verdicts: list[Drift] = []
        try:
            for naan, answer in self._asked(naans, table):
                say = self._say if answer is None else partial(self._say_after, answer)
                found = list(reconcile(naan, table, say, lambda record: histories.get(record, drift.NO_HISTORY)))
                verdicts += found
                yield found
        finally:
            if self._history is not None:
                self._history.record(view, verdicts)

    def _asked(self, naans: list[str], table: Table) -> Iterator[tuple[str, Discovery | None]]:
        """Each NAAN, with the discovery of its probe where that was asked just now; its answers are then kept."""
        view, store, settings = self._defaults.view, self._answering.store, self._defaults.settings
        probes = {naan: drift.probe_of(naan, "", [entry.shoulder for entry in table.shoulders(naan)]) for naan in naans}
        lacking = {naan for naan in naans if store.lacks(view, probes[naan], settings)[0] is None}
        answers: Iterator[Discovery] = iter(())
        if self._ask_many is not None:
            answers = iter(self._ask_many([probes[naan] for naan in naans if naan in lacking]))
        for naan in naans:
            answer = next(answers, None) if naan in lacking else None
            if answer is not None:
                self._answering.learn(view, answer)
            yield naan, answer

    def _say(self, ark: Ark) -> Discovery:
        """What DNS says of an ARK, for the verdict: never the table, never stale, never raised."""
        request = self._defaults.request(ark, {})
        found, _ = self._driver.drive(self._answering.steps(request, DnsOnly(), lambda: TableState()))
        return found.replace(complete=False) if found.stale else found

    def _say_after(self, asked: Discovery, ark: Ark) -> Discovery:
        """The same, one ARK of the NAAN having been asked just now: where that was not said, neither is the other."""
        if ark.resolution == asked.ark.resolution:
            return asked
        return self._say(ark) if asked.complete else asked.replace(ark=ark)
