"""Messages of a primary to its secondaries: NOTIFY for each new serial, and SOA queries for the serial that they have.

``transfer/notify.py`` makes and reads the messages.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from maptr.protocol.address import Address
from maptr.protocol.names import Labels, to_text
from maptr.protocol.numbers import NOERROR, NOTIMP
from maptr.transfer import tsig
from maptr.transfer.acl import NotifyTarget, TsigKey
from maptr.transfer.notify import is_truncated, make_notify, make_soa_query, read_response, read_serial
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

# Seconds to wait for each response to NOTIFY. RFC 1996 3.6 suggests five retries, 60 seconds apart; these come sooner
# after a first loss, and last as long as a secondary takes to restart.
NOTIFY_TIMEOUTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FINAL = frozenset({NOTIMP})  # the secondary does not implement NOTIFY (RFC 1996 3.14)
# Seconds until a secondary gets an SOA query: after it acknowledged a NOTIFY, with time for the transfer; while it has
# another serial or does not answer; and while it has the same serial.
AFTER_NOTIFY = 5.0
IF_DIFFERENT = 60.0
IF_SAME = 3600.0
QUERY_TIMEOUT = 5.0  # seconds for a response, by UDP and then by TCP
AT_ONCE = 50  # secondaries asked or notified at the same time
MAX_DATAGRAMS = 16  # that wait to be read

Place = tuple[Labels, NotifyTarget]  # a zone and one of its secondaries


class NotifyState(enum.StrEnum):
    """The state of the last NOTIFY of a zone to one secondary."""

    PENDING = "pending"
    DONE = "done"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Notified:
    """``state`` since ``at``, in seconds since 1970; ``serial`` is the last one that the secondary acknowledged."""

    state: NotifyState
    at: float
    serial: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """``serial`` is the last one that the secondary reported, ``at`` when, in seconds since 1970. ``error`` is the
    reason why the last query failed, "" after a success."""

    serial: int | None = None
    at: float | None = None
    error: str = ""


class Notifier:
    """Sends NOTIFY until it is acknowledged. A new serial replaces an earlier one that is still being sent.

    ``acknowledged`` is called when a secondary has acknowledged a zone's serial. For the event loop's thread.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        timeouts: Iterable[float] = NOTIFY_TIMEOUTS,
        random_id: Callable[[], int] = lambda: secrets.randbits(16),
        acknowledged: Callable[[Labels, NotifyTarget], None] = lambda _origin, _target: None,
    ) -> None:
        self._acknowledged = acknowledged
        self._clock = clock
        self._timeouts = tuple(timeouts)
        self._random_id = random_id
        self._states: dict[Place, Notified] = {}
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    def notify(self, view: ZoneView, targets: Iterable[NotifyTarget], keys: Mapping[Labels, TsigKey]) -> None:
        """Start sending, and return at once. ``keys`` has every key that a target names."""
        for target in targets:
            place = (view.origin, target)
            earlier = self._tasks.pop(place, None)
            if earlier is not None:
                earlier.cancel()
            self._note(view, target, NotifyState.PENDING)
            task = asyncio.get_running_loop().create_task(
                self._notify(view, target, None if target.key is None else keys[target.key])
            )
            self._tasks[place] = task
            task.add_done_callback(lambda done, place=place: self._forget(place, done))  # type: ignore[misc]

    def notified(self, origin: Labels, target: NotifyTarget) -> Notified | None:
        """The state of NOTIFY for one secondary of a zone; None if it was never sent one. For any thread."""
        return self._states.get((origin, target))

    @property
    def pending(self) -> int:
        """The number of secondaries that have not acknowledged yet."""
        return len(self._tasks)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, view: ZoneView, target: NotifyTarget, state: NotifyState) -> None:
        before = self._states.get((view.origin, target))
        known = None if before is None else before.serial
        serial = view.serial if state is NotifyState.DONE else known
        self._states[view.origin, target] = Notified(state, self._clock(), serial)

    def _forget(self, place: Place, task: asyncio.Task[None]) -> None:
        if self._tasks.get(place) is task:
            del self._tasks[place]

    async def _notify(self, view: ZoneView, target: NotifyTarget, key: TsigKey | None) -> None:
        what = f"NOTIFY of zone {to_text(view.origin)} serial {view.serial} to {target}"
        reason = "no answer"
        for timeout in self._timeouts:
            started = asyncio.get_running_loop().time()
            try:
                async with self._slots:
                    rcode = await self._send(view, target.address, key, timeout)
            except OSError as error:
                rcode, reason = None, error.strerror or str(error)
            if rcode == NOERROR:
                self._note(view, target, NotifyState.DONE)
                self._acknowledged(view.origin, target)
                log.info("%s: done", what)
                return
            if rcode is not None:
                reason = f"rcode {rcode}"
            if rcode in FINAL:
                break
            # A refusal, or an ICMP error, came at once: the secondary may be about to start.
            await asyncio.sleep(max(0.0, started + timeout - asyncio.get_running_loop().time()))
        self._note(view, target, NotifyState.GIVEN_UP)
        log.warning("%s: given up, %s; the secondary will ask after its refresh time", what, reason)

    async def _send(self, view: ZoneView, address: Address, key: TsigKey | None, timeout: float) -> int | None:
        """The RCODE of the response to one message, None if there was none in time. Raises OSError."""
        exchange = _Exchange(make_notify(view, self._random_id()), key, self._clock)
        try:
            return read_response(exchange.request, await exchange.by_udp(address, timeout))
        except TimeoutError:
            return None


class Observer:
    """Asks secondaries for the serial of their zones, now and then. ``clock`` is in seconds since 1970.

    For the event loop's thread, except for ``observed``.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        after_notify: float = AFTER_NOTIFY,
        if_different: float = IF_DIFFERENT,
        if_same: float = IF_SAME,
        timeout: float = QUERY_TIMEOUT,
    ) -> None:
        self._clock = clock
        self._after_notify, self._if_different, self._if_same = after_notify, if_different, if_same
        self._timeout = timeout
        self._wanted: dict[Place, tuple[int, TsigKey | None]] = {}
        self._observed: dict[Place, Observed] = {}
        self._due: dict[Place, asyncio.TimerHandle] = {}
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    def follow(self, wanted: Mapping[Place, tuple[int, TsigKey | None]]) -> None:
        """Ask these secondaries from now on, and no others; each has its expected serial and the key to sign with."""
        for place in self._wanted.keys() - wanted.keys():
            self._observed.pop(place, None)
            if place in self._due:
                self._due.pop(place).cancel()
            if place in self._tasks:
                self._tasks[place].cancel()
        before, self._wanted = self._wanted, dict(wanted)
        for place in wanted:
            if before.get(place) != wanted[place]:
                self._schedule(place, self._if_different)

    def acknowledged(self, origin: Labels, target: NotifyTarget) -> None:
        """Note that the secondary has acknowledged a NOTIFY of the zone."""
        self._schedule((origin, target), self._after_notify)

    def observed(self, origin: Labels, target: NotifyTarget) -> Observed:
        """What is known of the serial that a secondary has. For any thread."""
        return self._observed.get((origin, target), Observed())

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self.follow({})
        await asyncio.gather(*tasks, return_exceptions=True)

    def _schedule(self, place: Place, seconds: float) -> None:
        if place not in self._wanted:
            return
        if place in self._due:
            self._due.pop(place).cancel()
        self._due[place] = asyncio.get_running_loop().call_later(seconds, self._begin, place)

    def _begin(self, place: Place) -> None:
        del self._due[place]
        if place in self._tasks:  # the last query is not answered yet
            self._schedule(place, self._if_different)
            return
        task = self._tasks[place] = asyncio.get_running_loop().create_task(self._observe(place))
        task.add_done_callback(lambda _: self._tasks.pop(place))

    async def _observe(self, place: Place) -> None:
        origin, target = place
        async with self._slots:
            try:
                found: int | str = read_serial(await self._query(origin, target, self._wanted[place][1]))
            except TimeoutError:
                found = "no answer"
            except (OSError, EOFError) as error:
                found = getattr(error, "strerror", None) or str(error)
        if isinstance(found, int):
            self._observed[place] = Observed(found, self._clock())
        else:
            before = self.observed(origin, target)
            self._observed[place] = Observed(before.serial, before.at, found)
        if place not in self._due:  # no NOTIFY was acknowledged in the meantime
            self._schedule(place, self._if_same if found == self._wanted[place][0] else self._if_different)

    async def _query(self, origin: Labels, target: NotifyTarget, key: TsigKey | None) -> bytes:
        """The response to an SOA query. Raises OSError, TimeoutError and EOFError."""
        exchange = _Exchange(make_soa_query(origin, secrets.randbits(16)), key, self._clock)
        response = await exchange.by_udp(target.address, self._timeout)
        return await exchange.by_tcp(target.address, self._timeout) if is_truncated(response) else response


class _Exchange:
    """A request, signed if there is a key, and the check that a message is its response."""

    def __init__(self, request: bytes, key: TsigKey | None, clock: Callable[[], float]) -> None:
        self.request = self._packet = request
        self._signer = None
        self._clock = clock
        if key is not None:
            self._packet, self._signer = tsig.sign_query(request, key, int(clock()))

    def _fits(self, response: bytes) -> bool:
        return read_response(self.request, response) is not None and (
            self._signer is None or tsig.check_reply(response, self._signer, int(self._clock()))
        )

    async def by_udp(self, address: Address, timeout: float) -> bytes:
        """Raises OSError and TimeoutError."""
        async with _datagrams(address) as (transport, received), asyncio.timeout(timeout):
            transport.sendto(self._packet)
            while not self._fits(response := await received.next()):
                pass
            return response

    async def by_tcp(self, address: Address, timeout: float) -> bytes:
        """Raises OSError, TimeoutError and EOFError."""
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(len(self._packet).to_bytes(2, "big") + self._packet)
                response = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            finally:
                writer.close()
        if not self._fits(response):
            raise EOFError("a TCP response to another query, or without a valid signature")
        return response


class _Datagrams(asyncio.DatagramProtocol):
    """The first datagrams of a connected socket; ``next`` raises an ICMP error."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | Exception] = asyncio.Queue(maxsize=MAX_DATAGRAMS)

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._queue.full():
            self._queue.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        if not self._queue.full():
            self._queue.put_nowait(exc)

    async def next(self) -> bytes:
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found


@asynccontextmanager
async def _datagrams(address: Address) -> AsyncIterator[tuple[asyncio.DatagramTransport, _Datagrams]]:
    """A socket connected to the address, closed at the end. Raises OSError."""
    transport, received = await asyncio.get_running_loop().create_datagram_endpoint(
        _Datagrams, remote_addr=(address.host, address.port)
    )
    try:
        yield transport, received
    finally:
        transport.close()
