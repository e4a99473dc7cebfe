"""The lookups that a cache has in flight, at most one for a name, and the driver that runs them in threads.

The engine decides what to do next and yields it as a ``Wait``. A driver starts the lookup and waits as the ``Wait``
says, so this driver and the one for asyncio (``aio``) differ only in how they wait. A lookup goes on after its caller
has stopped waiting.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field

from maptr.cache.options import ArkLookup, Key
from maptr.discovery import Discovery
from maptr.files import ForkLock

MAX_PENDING = 256  # lookups in flight; beyond that, callers get what is kept
LOST_AFTER = 5.0  # seconds past its lifetime after which a lookup is considered lost


@dataclass(slots=True, eq=False)
class PendingLookup:
    """A lookup in flight. ``started`` and ``ends`` are times of the cache's monotonic clock.

    ``done`` receives the discovery, complete or not, or an exception that is not an error of DNS.
    """

    lookup: ArkLookup
    started: float
    ends: float
    done: Future[Discovery] = field(default_factory=Future)


class PendingLookups:
    """The lookups that a cache has in flight, at most ``limit``. Safe for threads.

    A lookup is lost if its event loop was closed, or if it runs in a thread of the process that this one was forked
    from. A lost lookup is dropped when its time is over, or at once after a fork.
    """

    def __init__(self, clock: Callable[[], float], limit: int = MAX_PENDING) -> None:
        self._clock = clock
        self._limit = limit
        self._pending: dict[Key, PendingLookup] = {}
        self._process = os.getpid()
        self._lock = ForkLock()

    def join(self, lookup: ArkLookup) -> tuple[PendingLookup | None, bool]:
        """The pending lookup of the same name, and whether it is new, so that the caller must start it.

        (None, False) at the limit.
        """
        with self._lock:
            now = self._clock()
            self._drop_lost(lookup.key, now)
            pending = self._pending.get(lookup.key)
            if pending is not None:
                return pending, False
            if len(self._pending) >= self._limit:
                return None, False
            pending = PendingLookup(lookup, now, now + lookup.lifetime + LOST_AFTER)
            self._pending[lookup.key] = pending
            return pending, True

    def finish(self, pending: PendingLookup, result: Discovery | BaseException) -> None:
        """Hand the result to all callers that wait; the next caller starts another lookup."""
        with self._lock:
            if self._pending.get(pending.lookup.key) is pending:  # a lost lookup may have been replaced
                del self._pending[pending.lookup.key]
        if pending.done.done():
            return
        if isinstance(result, BaseException):
            pending.done.set_exception(result)
        else:
            pending.done.set_result(result)

    def _drop_lost(self, key: Key, now: float) -> None:
        if self._process != os.getpid():
            self._process, self._pending = os.getpid(), {}
        pending = self._pending.get(key)
        if pending is not None and pending.ends < now:
            del self._pending[key]
        elif len(self._pending) >= self._limit:
            self._pending = {key: one for key, one in self._pending.items() if one.ends >= now}


@dataclass(frozen=True, slots=True)
class Wait:
    """An instruction to a driver: start the lookup if ``start`` is set, then wait up to ``seconds`` for its end."""

    pending: PendingLookup
    start: bool
    seconds: float
    inline: bool = False  # no other source can answer, so a thread may run the lookup itself


Steps = Generator[Wait, None, tuple[Discovery, float]]
Ask = Callable[..., Discovery]
Finish = Callable[[PendingLookup, Discovery | BaseException | None], None]
"""Receives the result of a lookup: its discovery, the exception that it raised, or None if it was cancelled."""


class ThreadDriver:
    """Runs lookups in threads. ``ask`` takes an ARK and ``ArkLookup.ask`` as options; ``finish`` takes the result."""

    def __init__(self, ask: Ask, finish: Finish) -> None:
        self._ask = ask
        self._finish = finish

    def run(self, steps: Steps) -> tuple[Discovery, float]:
        """Run the steps to their end, and return what they return."""
        try:
            while True:
                wait = next(steps)
                if wait.start and wait.inline:
                    self._look_up(wait.pending)
                elif wait.start:
                    threading.Thread(target=self._look_up, args=(wait.pending,), name="maptr-ask", daemon=True).start()
                if wait.seconds:
                    concurrent.futures.wait([wait.pending.done], timeout=wait.seconds)
        except StopIteration as end:
            result: tuple[Discovery, float] = end.value
        return result

    def _look_up(self, pending: PendingLookup) -> None:
        result: Discovery | BaseException
        try:
            result = self._ask(pending.lookup.ark, **pending.lookup.ask)
        except BaseException as error:
            result = error
        self._finish(pending, result)
