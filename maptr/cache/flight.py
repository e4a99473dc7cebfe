"""Questions under way: one for a name, however many threads and tasks wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from maptr.cache.memory import Key
from maptr.discovery import Discovery

MAX_FLIGHTS = 256  # names asked at a time; beyond, callers get what is kept at once


@dataclass(slots=True, eq=False)
class Flight:
    """One discovery under way since ``started``, a time of the cache's clock.

    ``landed`` gets its result, complete or not, and is never cancelled.
    """

    key: Key
    started: float
    landed: Future[Discovery] = field(default_factory=Future)


class Flights:
    """The flights of one cache. For threads; a flight started by a task can be waited for by a thread."""

    def __init__(self, clock: Callable[[], float], limit: int = MAX_FLIGHTS) -> None:
        self._clock = clock
        self._limit = limit
        self._flights: dict[Key, Flight] = {}
        self._lock = threading.Lock()

    def join(self, key: Key) -> tuple[Flight | None, bool]:
        """The flight for a key, and whether the caller has to fly it; (None, False) where there are too many."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            if len(self._flights) >= self._limit:
                return None, False
            flight = self._flights[key] = Flight(key, self._clock())
            return flight, True

    def land(self, flight: Flight, result: Discovery | BaseException) -> None:
        """The result for all who wait; from now on the next caller flies again."""
        with self._lock:
            self._flights.pop(flight.key, None)
        if flight.landed.done():
            return
        if isinstance(result, BaseException):
            flight.landed.set_exception(result)
        else:
            flight.landed.set_result(result)
