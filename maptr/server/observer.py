"""The serials that secondaries have: each NOTIFY target is asked for the SOA of its zones, now and then."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from maptr.protocol.names import Labels
from maptr.server.datagrams import open_datagrams
from maptr.transfer import tsig
from maptr.transfer.acl import Key, NotifyTarget
from maptr.transfer.notify import is_truncated, make_soa_query, read_response, read_serial

# Seconds until a secondary is asked: after it acknowledged a NOTIFY, which leaves it time for the transfer; while it
# has another serial or does not answer; and while it has the same.
AFTER_NOTIFY = 5.0
SOON = 60.0
EVERY = 3600.0
WAIT = 5.0  # seconds for a reply, by UDP and then by TCP
AT_ONCE = 50  # secondaries asked at the same moment

Place = tuple[Labels, NotifyTarget]


@dataclass(frozen=True, slots=True)
class Observed:
    """``serial`` is what the secondary last said that it has, and ``at`` when, in seconds since 1970; ``error`` is why
    the last question had no such answer, else empty."""

    serial: int | None = None
    at: float | None = None
    error: str = ""


class Observer:
    """For the event loop's thread, but for ``seen``. ``clock`` is in seconds since 1970."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        after_notify: float = AFTER_NOTIFY,
        soon: float = SOON,
        every: float = EVERY,
        wait: float = WAIT,
    ) -> None:
        self._clock = clock
        self._after_notify, self._soon, self._every, self._wait = after_notify, soon, every, wait
        self._wanted: dict[Place, tuple[int, Key | None]] = {}
        self._seen: dict[Place, Observed] = {}
        self._due: dict[Place, asyncio.TimerHandle] = {}
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    def follow(self, wanted: Mapping[Place, tuple[int, Key | None]]) -> None:
        """Ask these from now on, and no others; each with the serial that it should have, and the key to sign with."""
        for place in self._wanted.keys() - wanted.keys():
            self._seen.pop(place, None)
            if place in self._due:
                self._due.pop(place).cancel()
            if place in self._tasks:
                self._tasks[place].cancel()
        before, self._wanted = self._wanted, dict(wanted)
        for place in wanted:
            if before.get(place) != wanted[place]:
                self._ask_in(place, self._soon)

    def acknowledged(self, origin: Labels, target: NotifyTarget) -> None:
        """The target has acknowledged a NOTIFY of the zone."""
        self._ask_in((origin, target), self._after_notify)

    def seen(self, origin: Labels, target: NotifyTarget) -> Observed:
        """What is known of the serial that a target has."""
        return self._seen.get((origin, target), Observed())

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self.follow({})
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask_in(self, place: Place, seconds: float) -> None:
        if place not in self._wanted:
            return
        if place in self._due:
            self._due.pop(place).cancel()
        self._due[place] = asyncio.get_running_loop().call_later(seconds, self._begin, place)

    def _begin(self, place: Place) -> None:
        del self._due[place]
        if place in self._tasks:  # it is slow, and asked for an earlier serial
            self._ask_in(place, self._soon)
            return
        task = self._tasks[place] = asyncio.get_running_loop().create_task(self._observe(place))
        task.add_done_callback(lambda _: self._tasks.pop(place))

    async def _observe(self, place: Place) -> None:
        origin, target = place
        async with self._turns:
            try:
                said: int | str = read_serial(await self._ask(origin, target, self._wanted[place][1]))
            except TimeoutError:
                said = "no answer"
            except (OSError, EOFError) as error:
                said = getattr(error, "strerror", None) or str(error)
        if isinstance(said, int):
            self._seen[place] = Observed(said, self._clock())
        else:
            before = self.seen(origin, target)
            self._seen[place] = Observed(before.serial, before.at, said)
        if place not in self._due:  # no NOTIFY was acknowledged meanwhile
            self._ask_in(place, self._every if said == self._wanted[place][0] else self._soon)

    async def _ask(self, origin: Labels, target: NotifyTarget, key: Key | None) -> bytes:
        """The reply to one question. Raises OSError, TimeoutError and EOFError."""
        request = packet = make_soa_query(origin, secrets.randbits(16))
        signer = None
        if key is not None:
            packet, signer = tsig.sign_query(request, key, int(self._clock()))

        def fits(reply: bytes) -> bool:
            return read_response(request, reply) is not None and (
                signer is None or tsig.check_reply(reply, signer, int(self._clock()))
            )

        async with open_datagrams(target.address) as (transport, answers):
            transport.sendto(packet)
            async with asyncio.timeout(self._wait):
                while not fits(reply := await answers.next()):
                    pass
        if not is_truncated(reply):
            return reply
        async with asyncio.timeout(self._wait):
            reader, writer = await asyncio.open_connection(target.address.host, target.address.port)
            try:
                writer.write(len(packet).to_bytes(2, "big") + packet)
                reply = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            finally:
                writer.close()
        if not fits(reply):
            raise EOFError("a TCP reply to another question, or not signed")
        return reply
