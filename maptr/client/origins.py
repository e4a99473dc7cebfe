"""What was said lately of whether an origin exists: its SOA is asked once in a run, however many walks want to know."""

from __future__ import annotations

import time
from _thread import allocate_lock
from collections.abc import Callable, Hashable
from typing import Any

from maptr.protocol.names import Labels
from maptr.protocol.numbers import SOA
from maptr.walk import Answer, Question

SECONDS = 60.0  # an origin that was found to exist, or not to, is not asked for again
MAX_KEPT = 100


class Origins:
    """Answers for the SOA of origins, as one resolver gave them; of any other question it knows nothing. For threads.

    ``trust`` is by what the answers were judged: by nothing, by the resolver's word, or by a ``Validator``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[Labels, Hashable], tuple[float, Answer]] = {}
        self._asking = allocate_lock()
        self.asked: dict[Hashable, Any] = {}  # what ends when a question is answered, by event loop (``asyncclient``)

    def recall(self, question: Question, trust: Hashable) -> Answer | None:
        """What was said in the last SECONDS; None where that is not known."""
        kept = self._kept.get((question.name, trust)) if question.rdtype == SOA else None
        return kept[1] if kept is not None and kept[0] > self._clock() else None

    def remember(self, question: Question, trust: Hashable, answer: Answer) -> Answer:
        """The same answer, kept where ``recall`` gives it."""
        if question.rdtype == SOA and answer.outcome.said:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[question.name, trust] = self._clock() + SECONDS, answer
        return answer

    def once(self, question: Question, trust: Hashable, ask: Callable[[], Answer], seconds: float) -> Answer:
        """What ``recall`` gives, or else ``ask``. While one thread asks for an origin the others wait for what it is
        told, for so many seconds at most."""
        if question.rdtype != SOA:
            return ask()
        alone = self._asking.acquire(timeout=max(0.0, seconds))
        try:
            known = self.recall(question, trust)
            return self.remember(question, trust, ask()) if known is None else known
        finally:
            if alone:
                self._asking.release()
