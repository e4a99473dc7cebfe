"""Questions under way: one for a name, however many threads and tasks wait for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from maptr.cache.memory import Key
from maptr.discovery import Discovery
from maptr.files import ForkLock

MAX_FLIGHTS = 256  # names asked at a time; beyond, callers get what is kept at once
LOST_AFTER = 5.0  # seconds past its lifetime that a flight is waited for


@dataclass(slots=True, eq=False)
class Flight:
    """One discovery under way since ``started``, a time of the cache's clock, to end ``by`` another.

    ``landed`` gets its result, complete or not, and is never cancelled.
    """

    key: Key
    started: float
    by: float
    landed: Future[Discovery] = field(default_factory=Future)


class Flights:
    """The flights of one cache. For threads; a flight started by a task can be waited for by a thread.

    A flight that can land no more is nobody's to wait for: its loop was closed under it, or its thread is one of the
    process that this one was forked from.
    """

    def __init__(self, clock: Callable[[], float], limit: int = MAX_FLIGHTS) -> None:
        self._clock = clock
        self._limit = limit
        self._flights: dict[Key, Flight] = {}
        self._process = os.getpid()
        self._lock = ForkLock()

    def join(self, key: Key, lifetime: float) -> tuple[Flight | None, bool]:
        """The flight for a key, and whether the caller has to fly it, for ``lifetime`` seconds at most; (None, False)
        where there are too many."""
        with self._lock:
            now = self._clock()
            self._forget_lost(key, now)
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            if len(self._flights) >= self._limit:
                return None, False
            flight = self._flights[key] = Flight(key, now, now + lifetime + LOST_AFTER)
            return flight, True

    def _forget_lost(self, key: Key, now: float) -> None:
        if self._process != os.getpid():
            self._process, self._flights = os.getpid(), {}
        flight = self._flights.get(key)
        if flight is not None and flight.by < now:
            del self._flights[key]
        elif len(self._flights) >= self._limit:
            self._flights = {key: one for key, one in self._flights.items() if one.by >= now}

    def land(self, flight: Flight, result: Discovery | BaseException) -> None:
        """The result for all who wait; from now on the next caller flies again."""
        with self._lock:
            if self._flights.get(flight.key) is flight:  # another one may fly in place of one that was lost
                del self._flights[flight.key]
        if flight.landed.done():
            return
        if isinstance(result, BaseException):
            flight.landed.set_exception(result)
        else:
            flight.landed.set_result(result)
