"""Bulk lookups: a stream of ARKs in, discoveries out, with hundreds of queries outstanding and each name queried once.

The walks are in ``scheduler``, the sockets in ``multiplexer``. Memory does not grow with the stream.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.resolver.call import Clock, log_answer
from maptr.resolver.multiplexer import Multiplexer
from maptr.resolver.scheduler import Scheduler, SharedQuestion
from maptr.walk import Answer, Settings

WINDOW = 4  # ARKs begun, or held back for order, for each question that may be outstanding
INTAKE = 64  # ARKs taken from the stream before the sockets are read

Token = TypeVar("Token", bound=Hashable)
Item: TypeAlias = Ark | Discovery
"""An ARK, or the discovery of an item that needs none, which is passed on as it is."""


class Run(Generic[Token]):
    """One run: ARKs in, walks in progress, discoveries out, in the order of the stream if ``ordered``."""

    def __init__(
        self, multiplexer: Multiplexer, settings: Settings, lifetime: float, *, ordered: bool, clock: Clock
    ) -> None:
        self.scheduler: Scheduler[tuple[int, Token]] = Scheduler(settings, lifetime=lifetime, clock=clock)
        self.close = multiplexer.close
        self._multiplexer = multiplexer
        self._lifetime = lifetime
        self._ordered = ordered
        self._clock = clock
        self._held: dict[int, tuple[Token, Discovery]] = {}
        self._started = self._given = 0
        self._ended = False

    @property
    def wanted(self) -> int:
        """How many ARKs may be started before the sockets are read."""
        if self._ended or self._multiplexer.waiting >= INTAKE:
            return 0  # more would only wait, and take memory
        return max(0, min(INTAKE, self._multiplexer.concurrency * WINDOW - self.scheduler.open - len(self._held)))

    @property
    def over(self) -> bool:
        return self._ended and not (self.scheduler.open or self.scheduler.done or self._held)

    def start(self, pairs: list[tuple[Token, Item]], ended: bool) -> None:
        """Start a walk for each ARK; ``ended`` says that they are the last of the stream."""
        self._ended = ended
        for token, ark in pairs:
            if isinstance(ark, Discovery):
                self.scheduler.done.append(((self._started, token), ark))
            else:
                self.scheduler.start((self._started, token), ark)
            self._started += 1

    def ready(self) -> list[tuple[Token, Discovery]]:
        """Return the discoveries whose turn it is."""
        done, held = self.scheduler.done, self._held
        if not self._ordered:
            ready = [(token, discovery) for (_, token), discovery in done]
            done.clear()
            return ready
        while done:
            (number, token), discovery = done.popleft()
            held[number] = token, discovery
        ready = []
        while self._given in held:
            ready.append(held.pop(self._given))
            self._given += 1
        return ready

    def _tell(self, question: SharedQuestion[tuple[int, Token]], answer: Answer) -> None:
        log_answer(question.name, question.rdtype, answer)
        self.scheduler.tell(question, answer)

    def tick(self) -> float | None:
        """Send queries and end walks, as limits and time allow.

        Returns the seconds until the next call is due, None for never.
        """
        now = self._clock()
        self._multiplexer.expire()  # first: a question that ends with its walk says why
        over = self.scheduler.tick(now)
        for question in self.scheduler.take():
            done = partial(self._tell, question)
            seconds, deadline = self._lifetime, question.deadline
            self._multiplexer.ask(question.name, done, question.rdtype, seconds=seconds, deadline=deadline)
        pauses = [pause for pause in (over, self._multiplexer.send()) if pause is not None]
        return 0.0 if self.scheduler.has_new else min(pauses, default=None)
