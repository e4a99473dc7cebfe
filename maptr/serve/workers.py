"""The owner of several workers: forks them, replaces those that end, and a whole generation at a reload.

Each place has sockets of its own, which the owner keeps open, and a worker that reads from them (``worker.py``). One
more worker is in reserve, so that a place is taken again at once, even while a reload parses in a thread and nobody
may fork. A generation answers from one state. A new one is forked whole or not at all; the workers of the one before
give way when it answers, and both read the same sockets meanwhile, so no query meets a closed door.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Sequence
from typing import Any

from maptr.serve import worker as process
from maptr.serve.background import when_alone
from maptr.serve.bind import Sockets
from maptr.serve.counters import Counters, total
from maptr.serve.front import Front, State
from maptr.serve.worker import ANSWERING, GIVE_WAY, LEAVE, MAX_MESSAGE, QUIET, Forked
from maptr.serve.workplace import Place, Worker

log = logging.getLogger("maptr.serve")

ALONE_TIMEOUT = 300.0  # seconds that a fork waits for other threads of the owner, one that pulls a table for one
START_TIMEOUT = 30.0  # seconds for a generation to answer
QUIET_TIMEOUT = 10.0  # seconds for a worker to give way, before it is killed: it would answer from what is old
STOP_TIMEOUT = 5.0  # seconds for all to leave, before they are killed
HELLO_INTERVAL = 5.0  # seconds between two looks whether each worker still turns
FORK_PAUSE = 1.0  # seconds until a fork that the system refused is tried again
MAX_GENERATIONS = 4  # that may still have connections; those of older ones are closed


class Workers:
    """As many workers as there are places. For the event loop of the main thread, where no other thread stays."""

    def __init__(self, front: Front, places: Sequence[Sockets], *, clock: Callable[[], float]) -> None:
        self._front = front
        self._sockets = list(places)
        self._clock = clock
        self._places = [Place(number) for number in range(1, len(places) + 1)]
        self._all: dict[int, Worker] = {}
        self._reserve: Worker | None = None
        self._restocking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._generation = 0
        self._expected = 0  # the generation that should answer by now
        self._stopping = False
        self._ended = Counters()  # what those counted that are no more
        self._news = asyncio.Event()

    async def replace(self, state: State) -> str:
        """Have this answered by a new generation. Back when nobody answers from anything older by UDP or to new
        connections; what went wrong then, or "".

        Raises OSError where nothing changed, for the system would not fork.
        """
        loop = asyncio.get_running_loop()
        forked = await when_alone(lambda: self._fork_all(state), seconds=ALONE_TIMEOUT)
        if self._watching is None:
            self._watching = loop.create_task(self._watch())
        self._generation += 1
        if self._reserve is not None:
            self._reserve.tell(LEAVE)
        *new, self._reserve = map(self._adopt, forked)
        for place, worker in zip(self._places, new, strict=True):
            if place.starting is not None:
                place.starting.tell(LEAVE)
            place.send(worker, loop.time())
        generation = self._generation
        trouble = await self._all_answer(generation)
        self._expected = generation
        await self._others_give_way(generation)
        return trouble

    async def stop(self) -> None:
        """End them all, and close the sockets."""
        self._stopping = True
        for task in (self._restocking, self._watching):
            if task is not None:
                task.cancel()
        for worker in self._all.values():
            worker.tell(LEAVE)
        with contextlib.suppress(TimeoutError):
            await self._until(lambda: not self._all, STOP_TIMEOUT)
        for worker in self._all.values():
            worker.kill()
        await self._until(lambda: not self._all, None)
        for sockets in self._sockets:
            sockets.close()

    def counted(self) -> Counters:
        """All that they counted, those among them that are no more."""
        return total([self._ended, *(counters for worker in self._all.values() for counters in worker.forked.counters)])

    def describe(self) -> list[dict[str, Any]]:
        """Each process, as plain values; a place that nobody is at has none."""
        found = [place.describe() for place in self._places]
        for worker in self._all.values():
            if worker is self._reserve or (worker.told and worker.place is not None):
                found.append(worker.describe("reserve" if worker is self._reserve else "giving way"))
        return found

    def alarms(self) -> list[str]:
        return [alarm for place in self._places if (alarm := place.alarm(self._expected))]

    # --- forking

    def _fork_all(self, state: State) -> list[Forked]:
        """A generation and its reserve, or none of it. Raises OSError."""
        if self._stopping:
            raise OSError(errno.ESHUTDOWN, "the server stops")
        before = self._front.state
        self._front.swap(state)
        forked: list[Forked] = []
        try:
            process.settle_memory()
            for _ in range(len(self._places) + 1):
                forked.append(process.fork(self._front, self._sockets))
        except BaseException:
            for each in forked:
                each.channel.close()  # by which it knows that it is not wanted
                process.reap(each.pid)
            if before is not None:
                self._front.swap(before)
            raise
        return forked

    def _adopt(self, forked: Forked) -> Worker:
        loop = asyncio.get_running_loop()
        worker = Worker(forked, self._generation, loop.time())
        self._all[forked.pid] = worker
        loop.add_reader(forked.channel, self._hear, worker)
        return worker

    def _fill(self, place: Place) -> None:
        """Send the reserve to a place that lacks a worker, and get another reserve."""
        place.pausing = False
        if place.lacks(self._generation) and self._reserve is not None:
            worker, self._reserve = self._reserve, None
            place.send(worker, asyncio.get_running_loop().time())
        self._restock()

    def _restock(self) -> None:
        if not self._stopping and (self._restocking is None or self._restocking.done()):
            self._restocking = asyncio.get_running_loop().create_task(self._fork_reserve())

    async def _fork_reserve(self) -> None:
        """Until there is a reserve, and no place that lacks one."""
        while True:
            if self._reserve is None:
                try:
                    await when_alone(self._fork_one)
                except OSError as error:
                    log.error("no worker can be forked, tried again in %g s: %s", FORK_PAUSE, error.strerror or error)
                    await asyncio.sleep(FORK_PAUSE)
                    continue
            place = next((place for place in self._places if place.lacks(self._generation)), None)
            if place is None:
                return
            self._fill(place)

    def _fork_one(self) -> None:
        if self._reserve is None and not self._stopping:
            self._reserve = self._adopt(process.fork(self._front, self._sockets))

    # --- reports

    def _hear(self, worker: Worker) -> None:
        try:
            report = worker.forked.channel.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            report = b""
        worker.heard()
        if not report:
            self._bury(worker)
        elif report == ANSWERING:
            self._seat(worker)
        elif report == QUIET:
            worker.quiet = True
            if not worker.told:
                self._miss(worker, "left, by SIGTERM")
                worker.told = True
        self._news.set()

    def _seat(self, worker: Worker) -> None:
        """It answers at its place; who answered there before gives way."""
        place = worker.place
        if place is None or place.starting is not worker:
            return
        before = place.seat(self._clock())
        if before is not None:
            before.tell(GIVE_WAY)
        elif place.ends:
            log.info("worker %d is process %d now", place.number, worker.forked.pid)

    async def _watch(self) -> None:
        """Ask those who answer, again and again, whether they are there; kill who does not say so, or never began."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HELLO_INTERVAL)
            for worker in [place.starting for place in self._places if place.starting is not None]:
                if loop.time() - worker.began > START_TIMEOUT:
                    self._kill(worker)
            for worker in [place.answering for place in self._places if place.answering is not None]:
                if not worker.is_there():
                    self._kill(worker)

    def _kill(self, worker: Worker) -> None:
        log.error("process %d, a worker, has not been heard of for long and is killed", worker.forked.pid)
        worker.kill()

    def _bury(self, worker: Worker) -> None:
        forked = worker.forked
        asyncio.get_running_loop().remove_reader(forked.channel)
        forked.channel.close()
        status = process.reap(forked.pid)
        for counters in forked.counters:
            counters.open = 0  # its connections went with it
            self._ended.add(counters)
        del self._all[forked.pid]
        if not worker.told and not self._stopping:
            self._miss(worker, process.ending(status))

    def _miss(self, worker: Worker, reason: str) -> None:
        """A worker is no more that was told nothing: fill its place, not too fast where that was so before."""
        loop = asyncio.get_running_loop()
        place, pid = worker.place, worker.forked.pid
        if place is None:
            log.error("process %d, the worker in reserve, %s; there will be another", pid, reason)
            if self._reserve is worker:
                self._reserve = None
                loop.call_later(FORK_PAUSE, self._restock)
            return
        pause = place.lose(worker, reason, loop.time())
        log.error(
            "worker %d, process %d, %s; another takes its place%s",
            place.number,
            pid,
            reason,
            f" in {pause:g} s" if pause else "",
        )
        if pause:
            loop.call_later(pause, self._fill, place)
        else:
            self._fill(place)

    # --- waiting

    async def _all_answer(self, generation: int) -> str:
        """Until every place answers from this generation, or a newer one; what went wrong, or ""."""
        try:
            await self._until(lambda: all(place.generation >= generation for place in self._places), START_TIMEOUT)
        except TimeoutError:
            late = ", ".join(str(place.number) for place in self._places if place.generation < generation)
            log.error("worker %s did not start within %g seconds", late, START_TIMEOUT)
            return f"worker {late} did not start within {START_TIMEOUT:g} seconds"
        return ""

    async def _others_give_way(self, generation: int) -> None:
        """Until nobody else takes queries; who does not obey is killed, and who has given way for long must leave."""
        with contextlib.suppress(TimeoutError):
            await self._until(lambda: not self._lingering(), QUIET_TIMEOUT)
        for worker in self._lingering():
            log.error("process %d, a worker from before, did not give way and is killed", worker.forked.pid)
            worker.kill()
        for worker in self._all.values():
            if worker.quiet and worker.generation <= generation - MAX_GENERATIONS:
                worker.tell(LEAVE)

    def _lingering(self) -> list[Worker]:
        return [worker for worker in self._all.values() if worker.lingers(self._generation)]

    async def _until(self, condition: Callable[[], bool], seconds: float | None) -> None:
        """Wait for what reports bring about. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._news.clear()
                await self._news.wait()
