"""Tells secondaries of each new serial, again and again with longer pauses, until they have answered."""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from maptr.protocol.address import Address
from maptr.protocol.names import Labels, to_text
from maptr.protocol.numbers import NOERROR, NOTIMP
from maptr.server.datagrams import open_datagrams
from maptr.transfer import tsig
from maptr.transfer.acl import Key, NotifyTarget
from maptr.transfer.notify import make_notify, read_response
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

# Seconds to wait for an answer. RFC 1996 3.6 leaves it to us and names five retries, 60 seconds apart, as reasonable;
# these six come sooner after a first loss and last as long as a secondary takes to restart.
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# Targets told at the same moment; with more, the later ones wait their turn.
AT_ONCE = 50

FINAL = frozenset({NOTIMP})  # it will never understand (RFC 1996 3.14)


class Told(enum.StrEnum):
    """How far the news of a zone has come with one secondary."""

    PENDING = "pending"
    DONE = "done"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class News:
    """``state`` since ``at``, in seconds since 1970; ``serial`` is the last one that the secondary acknowledged."""

    state: Told
    at: float
    serial: int | None = None


class Notifier:
    """The tasks that tell. News of a zone replaces what the same target was still to be told of it.

    ``acknowledged`` is called with origin and target once the target has acknowledged the zone's serial.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        waits: Iterable[float] = WAITS,
        random_id: Callable[[], int] = lambda: secrets.randbits(16),
        acknowledged: Callable[[Labels, NotifyTarget], None] = lambda _origin, _target: None,
    ) -> None:
        self._acknowledged = acknowledged
        self._clock = clock
        self._waits = tuple(waits)
        self._random_id = random_id
        self._news: dict[tuple[Labels, NotifyTarget], News] = {}
        self._tasks: dict[tuple[Labels, NotifyTarget], asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    def tell(self, view: ZoneView, targets: Iterable[NotifyTarget], keys: Mapping[Labels, Key]) -> None:
        """Start telling; returns at once. For the event loop's thread. Every key that a target names is in ``keys``."""
        for target in targets:
            place = (view.origin, target)
            earlier = self._tasks.pop(place, None)
            if earlier is not None:
                earlier.cancel()
            self._note(view, target, Told.PENDING)
            task = asyncio.get_running_loop().create_task(
                self._tell(view, target, None if target.key is None else keys[target.key])
            )
            self._tasks[place] = task
            task.add_done_callback(lambda done, place=place: self._forget(place, done))  # type: ignore[misc]

    def news(self, origin: Labels, target: NotifyTarget) -> News | None:
        """How it stands with one secondary of a zone; None where it was never told anything."""
        return self._news.get((origin, target))

    def _note(self, view: ZoneView, target: NotifyTarget, state: Told) -> None:
        before = self._news.get((view.origin, target))
        known = None if before is None else before.serial
        serial = view.serial if state is Told.DONE else known
        self._news[view.origin, target] = News(state, self._clock(), serial)

    @property
    def telling(self) -> int:
        """How many are still to be told of something."""
        return len(self._tasks)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, place: tuple[Labels, NotifyTarget], task: asyncio.Task[None]) -> None:
        if self._tasks.get(place) is task:
            del self._tasks[place]

    async def _tell(self, view: ZoneView, target: NotifyTarget, key: Key | None) -> None:
        what = f"NOTIFY of zone {to_text(view.origin)} serial {view.serial} to {target}"
        said = "no answer"
        for wait in self._waits:
            started = asyncio.get_running_loop().time()
            try:
                async with self._turns:
                    rcode = await self._ask(view, target.address, key, wait)
            except OSError as error:
                rcode, said = None, error.strerror or str(error)
            if rcode == NOERROR:
                self._note(view, target, Told.DONE)
                self._acknowledged(view.origin, target)
                log.info("%s: done", what)
                return
            if rcode is not None:
                said = f"rcode {rcode}"
            if rcode in FINAL:
                break
            # Refused at once, or not yet listening: it may be about to start.
            await asyncio.sleep(max(0.0, started + wait - asyncio.get_running_loop().time()))
        self._note(view, target, Told.GIVEN_UP)
        log.warning("%s: given up, %s; it will come by itself after its refresh time", what, said)

    async def _ask(self, view: ZoneView, address: Address, key: Key | None, wait: float) -> int | None:
        """One message and its answer, None where there was none in time. Raises OSError."""
        request = make_notify(view, self._random_id())
        signer = None
        packet = request
        if key is not None:
            packet, signer = tsig.sign_query(request, key, int(self._clock()))
        try:
            async with open_datagrams(address) as (transport, answers), asyncio.timeout(wait):
                transport.sendto(packet)
                while True:
                    answer = await answers.next()
                    rcode = read_response(request, answer)
                    if rcode is None:
                        continue
                    if signer is None or tsig.check_reply(answer, signer, int(self._clock())):
                        return rcode
        except TimeoutError:
            return None
