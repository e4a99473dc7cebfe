"""A question put to plain DNS servers and validated: for whoever drives ``asking.Exchange``, one more of these.

The question first, then those of its chain of trust, one after the other, each an Exchange with rounds and failover of
its own. So the sync, the async and the bulk driver validate without knowing it.
"""

from __future__ import annotations

from collections.abc import Callable

from maptr.client.asking import Exchange
from maptr.client.attempt import Attempt
from maptr.client.validation.chain import Trust
from maptr.client.validation.heard import Heard
from maptr.client.validation.inquiry import Inquiry
from maptr.client.validation.message import parse
from maptr.discovery import Outcome
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR
from maptr.walk import Answer


class ValidatedExchange:
    """One question under way; ``answer`` is None until it is settled. ``start`` makes the Exchange of a name and
    type, with ``dnssec``; ``clock`` tells how long each took, in seconds."""

    def __init__(
        self,
        name: Labels,
        trust: Trust,
        start: Callable[[Labels, int], Exchange],
        clock: Callable[[], float],
        rdtype: int = NAPTR,
    ) -> None:
        self.answer: Answer | None = None
        self._inquiry = Inquiry(trust, name, rdtype)
        self._start = start
        self._clock = clock
        self._current = self._begin()

    def _begin(self) -> Exchange:
        need = self._inquiry.need
        self._begun = self._clock()
        return self._start(need.name.labels[:-1], int(need.rdtype))

    def next(self) -> Attempt | None:
        """The message to send now, None where the question is settled."""
        while self.answer is None:
            attempt = self._current.next()
            if attempt is not None:
                return attempt
            self._inquiry.tell(_heard(self._current, self._clock() - self._begun))
            self.answer = self._inquiry.answer
            if self.answer is None:
                self._current = self._begin()
        return None

    def hear(self, attempt: Attempt, packet: bytes) -> bool:
        """What came back; False where it is no reply to this attempt and the driver is to go on waiting."""
        return self._current.hear(attempt, packet)

    def silent(self, attempt: Attempt) -> None:
        self._current.silent(attempt)

    def unreachable(self, attempt: Attempt, why: object) -> None:
        self._current.unreachable(attempt, why)

    def expire(self) -> None:
        """Settle it without an answer, because the walk's time is over."""
        self.answer = self.unanswered(None)

    def unanswered(self, attempt: Attempt | None) -> Answer:
        """What it comes to for a walk whose time is over now, while ``attempt`` waits for its reply."""
        return Answer(Outcome.TIMEOUT, note=self._current.unanswered(attempt).note)


def _heard(exchange: Exchange, elapsed: float) -> Heard:
    """What an Exchange that is settled has heard."""
    answer = exchange.answer
    assert answer is not None  # noqa: S101 - next() gives None only then
    if not exchange.packet:
        return Heard(answer.outcome, None, answer.note, elapsed=elapsed)
    try:
        message = parse(exchange.packet)
    except ValueError as error:
        return Heard(Outcome.MALFORMED, None, f"the reply cannot be read: {error}", answer.server, elapsed)
    return Heard(answer.outcome, message, "", answer.server, elapsed)
