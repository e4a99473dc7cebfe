"""Lookups in DNS: at most one in flight for a name, circuit breakers, and the driver that runs them in threads.

The engine decides what to do next and yields it as a ``Wait``. A ``Driver`` starts the lookup and waits accordingly;
``aio`` has asyncio's. A lookup continues without its caller.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import threading
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.files import ForkLock
from maptr.protocol.names import Labels
from maptr.resolver.call import Deadline, Lifetime, complete, prefer

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.resolver.resolver import Resolver

MAX_PENDING = 256  # lookups in flight; beyond that, callers get cached answers
LOST_AFTER = 5.0  # seconds past its deadline after which a lookup is considered lost

# Circuit breakers.
OPEN_AFTER = 3  # failures in a row
FIRST_PAUSE = 1.0  # seconds; RFC 9520 section 3.2: a failure is cached for at least a second
LONGEST_PAUSE = 30.0  # seconds; RFC 8767 section 5: the failure recheck timer. RFC 9520 allows five minutes
MAX_BREAKERS = 10_000


@dataclass(slots=True, eq=False)
class PendingLookup:
    """The lookup of an ARK in flight, which also serves other ARKs of the same ``name``.

    ``deadline`` is that of the caller that started it, at the time ``started`` of the monotonic clock. ``done``
    receives the discovery, complete or not, or an exception that is not a DNS error. ``is_lost`` returns whether the
    event loop that runs it was closed.
    """

    ark: Ark
    name: Labels
    deadline: Deadline
    started: float
    done: Future[Discovery] = field(default_factory=Future)
    is_lost: Callable[[], bool] = lambda: False


class PendingLookups:
    """The lookups that a cache has in flight, at most MAX_PENDING. Thread-safe.

    A lookup is lost if its event loop was closed or does not run, or if it runs in a thread of the process that this
    one was forked from. A lost lookup is dropped at once, or at its deadline if its event loop is only stalled.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[Labels, PendingLookup] = {}
        self._process = os.getpid()
        self._lock = ForkLock()

    def join(self, ark: Ark, name: Labels, lifetime: Lifetime) -> tuple[PendingLookup | None, bool]:
        """Return the pending lookup of the same name, and whether it is new, so that the caller must start it.

        (None, False) at the limit.
        """
        with self._lock:
            self._drop_lost(name)
            pending = self._pending.get(name)
            if pending is not None:
                return pending, False
            if len(self._pending) >= MAX_PENDING:
                return None, False
            pending = PendingLookup(ark, name, Deadline.of(lifetime, self._clock), self._clock())
            self._pending[name] = pending
            return pending, True

    def finish(self, pending: PendingLookup, result: Discovery | Exception | None) -> None:
        """Hand the result, or that there is none, to all callers that wait; the next caller starts another lookup."""
        with self._lock:
            if self._pending.get(pending.name) is pending:  # a lost lookup may have been replaced
                del self._pending[pending.name]
        if pending.done.done():
            return
        if result is None:
            pending.done.cancel()
            pending.done.set_running_or_notify_cancel()  # wakes those that wait
        elif isinstance(result, Exception):
            pending.done.set_exception(result)
        else:
            pending.done.set_result(result)

    def _drop_lost(self, name: Labels) -> None:
        if self._process != os.getpid():
            self._process, self._pending = os.getpid(), {}
        for each in [*self._pending] if len(self._pending) >= MAX_PENDING else [name]:
            pending = self._pending.get(each)
            if pending is not None and (pending.deadline.left() < -LOST_AFTER or pending.is_lost()):
                del self._pending[each]


@dataclass(slots=True)
class _Breaker:
    failures: int = 0
    retry_at: float = 0.0
    why: str = ""


class CircuitBreakers:
    """Circuit breakers by key; ``threshold`` failures in a row open one. Thread-safe.

    While a breaker is open, its server or name is not queried, for growing, jittered pauses. After each pause one
    caller may try; the first success closes the breaker. The same pauses serve a name whose lookup keeps failing (RFC
    9520 section 3.2).

    Beyond MAX_BREAKERS, those whose last failure is oldest are dropped.
    """

    def __init__(self, rng: random.Random, clock: Callable[[], float], *, threshold: int = OPEN_AFTER) -> None:
        self._rng = rng
        self._clock = clock
        self._threshold = threshold
        self._breakers: dict[Hashable, _Breaker] = {}  # in the order of their last failures
        self._lock = ForkLock()

    def admits(self, key: Hashable) -> bool:
        """Return whether the caller may try. While the breaker is open, one caller gets True after each pause."""
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None or breaker.failures < self._threshold:
                return True
            now = self._clock()
            if now < breaker.retry_at:
                return False
            breaker.retry_at = now + self._pause(breaker)
            return True

    def is_open(self, key: Hashable) -> bool:
        """Return whether failures opened the breaker and no success has followed, even if a caller may try now."""
        breaker = self._breakers.get(key)
        return breaker is not None and breaker.failures >= self._threshold

    def why(self, key: Hashable) -> str:
        breaker = self._breakers.get(key)
        return breaker.why if breaker is not None else ""

    def succeeded(self, key: Hashable) -> None:
        with self._lock:
            self._breakers.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._breakers.clear()

    def failed(self, key: Hashable, why: str) -> None:
        with self._lock:
            breaker = self._breakers[key] = self._breakers.pop(key, _Breaker())
            breaker.failures += 1
            breaker.why = why
            if breaker.failures >= self._threshold:
                breaker.retry_at = self._clock() + self._pause(breaker)
            while len(self._breakers) > MAX_BREAKERS:
                del self._breakers[next(iter(self._breakers))]

    def _pause(self, breaker: _Breaker) -> float:
        """Doubles from FIRST_PAUSE to LONGEST_PAUSE. Jittered to between half and all, so that clients spread out."""
        doublings = min(max(breaker.failures - self._threshold, 0), 16)
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**doublings) * self._rng.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Wait:
    """An instruction to a driver: start the lookup if ``start`` is set, then wait up to ``seconds`` for its end."""

    pending: PendingLookup
    start: bool
    seconds: float
    inline: bool = False  # no other source can answer, so a thread may run the lookup itself


Result = TypeVar("Result")
Steps = Generator[Wait, None, Result]
Finish = Callable[[PendingLookup, Discovery | Exception | None], None]
"""Receives the result of a lookup: its discovery, the exception that it raised, or None if it was cancelled."""


class Driver:
    """Runs lookups in threads; ``finish`` takes the result of each. ``aio.TaskDriver`` runs them in tasks.

    Its coroutines block, so that ``complete`` can run them; those of tasks wait.
    """

    def __init__(self, resolver: Resolver, finish: Finish) -> None:
        self._resolver = resolver
        self._finish = finish

    async def run(self, steps: Steps[Result]) -> Result:
        """Run the steps to their end, and return what they return."""
        try:
            while True:
                wait = next(steps)
                if wait.start:
                    self._start(wait)
                if wait.seconds and not wait.pending.done.done():
                    await self._wait(wait.pending.done, wait.seconds)
        except StopIteration as end:
            result: Result = end.value
        return result

    async def prefer(self, found: Discovery, chooser: Chooser | None) -> Discovery:
        """Return the discovery with the chooser's choice first."""
        return prefer(found, chooser)

    async def _look_up(self, pending: PendingLookup) -> None:
        result: Discovery | Exception | None = None
        try:
            result = await self._discover(pending)
        except Exception as error:
            result = error
        finally:  # without a result if it is cancelled, or after Ctrl-C, which ends this caller alone
            self._finish(pending, result)

    def _start(self, wait: Wait) -> None:
        if wait.inline:
            self._run_lookup(wait.pending)
        else:
            threading.Thread(target=self._run_lookup, args=(wait.pending,), name="maptr-ask", daemon=True).start()

    def _run_lookup(self, pending: PendingLookup) -> None:
        complete(self._look_up(pending))

    async def _wait(self, done: Future[Discovery], seconds: float) -> None:
        concurrent.futures.wait([done], timeout=seconds)

    async def _discover(self, pending: PendingLookup) -> Discovery:
        return self._resolver.discover(pending.ark, pending.deadline)
