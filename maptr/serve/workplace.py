"""Who answers where: the places of a server with several workers, and each worker as its owner knows it.

What one of them is told, and what is known of it; what is to be done with all of them is ``workers.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import Any

from maptr.serve.worker import HELLO, Forked

STEADY = 10.0  # seconds that a worker lives to count as sound; one that ends sooner may do so again and again
FIRST_PAUSE = 0.1  # seconds before the second such worker in a row is replaced; doubled each time,
MAX_PAUSE = 5.0  # up to this: who asks meanwhile waits in the socket, or is lost
MAX_UNHEARD = 6  # looks that find no answer to the one before, until a worker hangs


@dataclass(slots=True, eq=False)
class Worker:
    """A process; one without a place is the reserve."""

    forked: Forked
    generation: int
    began: float  # by the event loop's clock
    place: Place | None = None
    told: bool = False  # to give way or to leave: its end is no surprise
    asked: bool = False  # whether it is there, and has not said so yet
    unheard: int = 0  # looks since
    quiet: bool = False

    def tell(self, order: bytes) -> None:
        """Have it give way, or leave."""
        self.told = True
        self.send(order)

    def send(self, octets: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended, which will be heard
            self.forked.channel.send(octets)

    def is_there(self) -> bool:
        """False where it has not said so for long; it is asked again."""
        self.unheard += self.asked
        if not self.asked:
            self.asked = True
            self.send(HELLO)
        return self.unheard < MAX_UNHEARD

    def heard(self) -> None:
        """It said something."""
        self.asked, self.unheard = False, 0

    def lingers(self, generation: int) -> bool:
        """Whether it is of an earlier one, and still takes queries."""
        return self.generation < generation and self.told and self.place is not None and not self.quiet

    def kill(self) -> None:
        os.kill(self.forked.pid, signal.SIGKILL)

    def describe(self, state: str) -> dict[str, Any]:
        """Plain values for one that does not answer."""
        return {"worker": self.place and self.place.number, "pid": self.forked.pid, "state": state}


@dataclass(slots=True, eq=False)
class Place:
    """Who answers at one place, and who is about to."""

    number: int  # from 1, as people count
    answering: Worker | None = None
    starting: Worker | None = None
    since: float = 0.0  # seconds since 1970 that this one answers
    ends: int = 0  # workers that ended without being told to
    in_a_row: int = 0  # of those, how many in a row had not lived long
    pausing: bool = False
    reason: str = ""  # of the last end

    @property
    def generation(self) -> int:
        """Of who answers here; 0 for nobody."""
        return 0 if self.answering is None else self.answering.generation

    def lacks(self, generation: int) -> bool:
        """Whether somebody of the generation is to be sent here."""
        return not self.pausing and self.starting is None and self.generation < generation

    def send(self, worker: Worker, now: float) -> None:
        """Have a worker answer here."""
        worker.place, self.starting, worker.began = self, worker, now
        worker.send(str(self.number - 1).encode())

    def seat(self, since: float) -> Worker | None:
        """Who was starting answers here, since that time; who did before."""
        before, self.answering, self.starting, self.since = self.answering, self.starting, None, since
        return before

    def lose(self, worker: Worker, reason: str, now: float) -> float:
        """Its worker ended, unasked, for this reason; the seconds until another is to take the place."""
        if self.answering is worker:
            self.answering = None
        if self.starting is worker:
            self.starting = None
        self.ends += 1
        self.reason = reason
        self.in_a_row = 0 if now - worker.began >= STEADY else self.in_a_row + 1
        self.pausing = True
        return 0.0 if self.in_a_row < 2 else min(FIRST_PAUSE * 2.0 ** (self.in_a_row - 2), MAX_PAUSE)

    def describe(self) -> dict[str, Any]:
        """Plain values; a place that nobody is at has no process."""
        worker = self.answering or self.starting
        return {
            "worker": self.number,
            "pid": worker and worker.forked.pid,
            "state": "absent" if worker is None else "answering" if self.answering else "starting",
            "since": self.since if self.answering else None,
            "ends": self.ends,
            "last_end": self.reason,
        }

    def alarm(self, expected: int) -> str:
        """What somebody should see to, where a generation should answer by now; "" if nothing."""
        if self.answering is None and self.reason:
            return f"worker {self.number} does not answer, the last one {self.reason}"
        if self.answering is not None and self.generation < expected:
            return f"worker {self.number} answers from before the last reload"
        return ""
