"""Secondaries: NOTIFY (RFC 1996) for each new serial, and SOA queries that ask which serial they have.

A secondary that acknowledges NOTIFY but keeps another serial, such as one whose transfer failed, gets NOTIFY again.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import dns.rcode
from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.config.model import SecondariesConfig
from maptr.daemon.background import Repetitions
from maptr.protocol.address import Address
from maptr.protocol.names import Labels, read_name, to_text
from maptr.protocol.numbers import AA, HEADER_SIZE, IN, MAX_MESSAGE, NOERROR, NOTIFY, NOTIMP, RCODE_BITS, SOA, TC
from maptr.protocol.serial import is_newer
from maptr.resolver.servers import socket_address
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.responder import ServerState
from maptr.server.state import Clock
from maptr.server.status import SecondaryStatus
from maptr.transfer import tsig
from maptr.transfer.acl import NotifyTarget, TsigKey
from maptr.zone.rrset import RRset
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

# Seconds to wait for each response to NOTIFY. RFC 1996 3.6 suggests five retries, 60 seconds apart. These start sooner,
# in case a packet was lost, and continue for as long as a secondary takes to restart.
NOTIFY_TIMEOUTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# Seconds until the next SOA query to a secondary: after it acknowledged a NOTIFY, which leaves time for the transfer;
# and while it does not answer. While it has the same serial, ``serve.secondaries.interval``. While it has another one,
# the next NOTIFY is sent after IF_DIFFERENT seconds.
AFTER_NOTIFY = 5.0
IF_DIFFERENT = 60.0
QUERY_TIMEOUT = 5.0  # seconds for a response over UDP, and then over TCP
MAX_SOA_RECORDS = 100  # records of a response to an SOA query, including NS records, addresses and signatures
AT_ONCE = 50  # messages to one secondary at the same time, so that one without an answer does not delay the others

Replica = tuple[Labels, NotifyTarget]  # a zone at one of its secondaries


class Expected(NamedTuple):
    """The version of a zone that a secondary should have. ``key`` signs the messages to the secondary.

    ``is_asked``: the monitor asks for its serial. A secondary may refuse queries for a catalog (RFC 9432 7).
    """

    view: ZoneView
    key: TsigKey | None
    is_asked: bool = True


class NotifyState(enum.StrEnum):
    """The state of the last NOTIFY of a zone to one secondary."""

    PENDING = "pending"
    DONE = "done"
    GIVEN_UP = "given up"


class SecondaryMonitor:
    """Sends NOTIFY to secondaries until they acknowledge it, and asks them at intervals which serial they have.

    All methods except ``statuses``, ``alarms`` and ``state`` are for the event loop's thread. Times are in seconds.
    """

    def __init__(self, clock: Clock, settings: SecondariesConfig) -> None:
        self._clock = clock
        self._settings = settings
        self._expected: dict[Replica, Expected] = {}
        self._states: dict[Replica, SecondaryStatus] = {}
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._slots = defaultdict[Address, asyncio.Semaphore](lambda: asyncio.Semaphore(AT_ONCE))
        self._logged = Repetitions()

    def update(self, state: ServerState) -> None:
        """Follow the secondaries of the zones and of the catalog."""
        access = state.access
        views = [*state.snapshot.zones.values(), *([access.catalog] if access.catalog else [])]
        expected: dict[Replica, Expected] = {}
        for view in views:
            for target in access.secondaries_of(view.origin).notify:
                key = None if target.key is None else access.keys[target.key]
                expected[view.origin, target] = Expected(view, key, view.origin in state.snapshot.zones)
        self.follow(expected)

    def follow(self, expected: Mapping[Replica, Expected]) -> None:
        """Follow these secondaries and no others. Sends NOTIFY to those that are new or have a new serial or key."""
        for replica in self._expected.keys() - expected.keys():
            self._states.pop(replica, None)
            self._tasks.pop(replica).cancel()
            for what in ("notify", "serial"):
                self._logged.forget((replica, what))
        before, self._expected = self._expected, dict(expected)
        for replica, wanted in expected.items():
            known = before.get(replica)
            if known is None or (known.view.serial, known.key) != (wanted.view.serial, wanted.key):
                self._restart(replica)
                if wanted.is_asked:
                    self._note_serial(replica, wanted.view.serial)

    def notify_again(self, only: Labels | None = None) -> list[str]:
        """Send NOTIFY for one zone, or for all. Returns the secondaries, each with its zone."""
        found = [replica for replica in self._expected if only in (None, replica[0])]
        for replica in found:
            self._restart(replica)
        return [f"{to_text(origin)} {target}" for origin, target in found]

    def statuses(
        self, origin: Labels, view: ZoneView | None, targets: Iterable[NotifyTarget]
    ) -> tuple[SecondaryStatus, ...]:
        """Return the status of each secondary of a zone. ``view`` is what is served of it."""
        serial, now = None if view is None else view.serial, self._clock()
        return tuple(self.state(origin, target).at(now, serial) for target in targets)

    def alarms(self) -> Iterator[Alarm]:
        """Yield the alarms about secondaries, one for each at most."""
        for origin, target in self._expected:
            found = self._alarm((origin, target))
            if found is not None:
                kind, what = found
                since = self.state(origin, target).behind_since
                text = f"zone {to_text(origin)}: secondary {target} {what}"
                yield Alarm(kind, text, to_text(origin), str(target), since)

    def _alarm(self, replica: Replica) -> tuple[AlarmKind, str] | None:
        """Return the most telling alarm about a secondary; None if it has the zone, or may still get it in time."""
        known, expected, now = self.state(*replica), self._expected.get(replica), self._clock()
        since, found = known.behind_since, known.observed_serial
        if expected is None:
            return None
        if found is not None and not known.observed_error and is_newer(found, expected.view.serial):
            # No time helps: it takes no zone with a smaller serial, as after a restore from a backup that is older.
            return AlarmKind.SECONDARY_BEHIND, f"is ahead: it has serial {found}, not {expected.view.serial}"
        if since is not None and now - since >= self._settings.alarm_after:
            if known.observed_error:
                return AlarmKind.SECONDARY_UNKNOWN, f"has an unknown serial: {known.observed_error}"
            if found is not None:
                return AlarmKind.SECONDARY_BEHIND, f"has serial {found}, not {expected.view.serial}"
        if known.notify is NotifyState.GIVEN_UP and (since is not None or not expected.is_asked):
            return AlarmKind.NOTIFY_GIVEN_UP, f"did not acknowledge NOTIFY: {known.notify_error}"
        return None

    @property
    def _if_different(self) -> float:
        return min(IF_DIFFERENT, self._settings.interval)

    def state(self, origin: Labels, target: NotifyTarget) -> SecondaryStatus:
        return self._states.get((origin, target), SecondaryStatus(str(target)))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _note(self, replica: Replica, **changes: Any) -> None:
        self._states[replica] = replace(self.state(*replica), **changes)

    def _note_serial(self, replica: Replica, serial: int) -> None:
        """Note whether the secondary is known to have the serial of the zone, and since when not."""
        known = self.state(*replica)
        if known.observed_serial == serial and not known.observed_error:
            self._note(replica, behind_since=None)
        elif known.behind_since is None:
            self._note(replica, behind_since=self._clock())

    def _restart(self, replica: Replica) -> None:
        if replica in self._tasks:
            self._tasks[replica].cancel()
        self._note(replica, notify=NotifyState.PENDING, since=self._clock(), notify_error="")
        self._tasks[replica] = asyncio.get_running_loop().create_task(self._inform(replica, self._expected[replica]))

    async def _inform(self, replica: Replica, expected: Expected) -> None:
        """Send NOTIFY, and ask for the serial at intervals; NOTIFY again while the secondary has another serial."""
        serial, level = expected.view.serial, logging.INFO
        while True:
            is_acknowledged = await self._notify(replica, expected, level)
            if not expected.is_asked:
                return
            pause, found = AFTER_NOTIFY if is_acknowledged else self._if_different, None
            while found in (None, serial) or not is_acknowledged:
                await asyncio.sleep(pause)
                found = await self._observe(replica, expected)
                pause = self._settings.interval if found == serial else self._if_different
            await asyncio.sleep(pause)
            level = logging.DEBUG

    async def _notify(self, replica: Replica, expected: Expected, level: int) -> bool:
        """Send NOTIFY, and ask for the serial after each failure. Returns whether NOTIFY was acknowledged."""
        target, view, reason = replica[1], expected.view, "no answer"
        what = f"NOTIFY of zone {to_text(view.origin)} serial {view.serial} to {target}"
        clock = asyncio.get_running_loop().time
        for timeout in NOTIFY_TIMEOUTS:
            started = clock()
            try:
                async with self._slots[target.address]:
                    request = make_request(view.origin, view.soa)
                    rcode = read_response(request, await exchange(request, target, expected.key, self._clock, timeout))
            except NoResponse as error:
                reason = str(error)
            else:
                if rcode == NOERROR:
                    self._note(replica, notify=NotifyState.DONE, since=self._clock(), serial=view.serial)
                    self._logged.forget((replica, "notify"))
                    log.log(level, "%s: done", what)
                    return True
                reason = rcode_text(rcode or NOERROR)
                if rcode == NOTIMP:  # the secondary does not implement NOTIFY (RFC 1996 3.14)
                    break
            if expected.is_asked:  # it may have the serial without a NOTIFY, or say why it has not
                await self._observe(replica, expected)
            # A refusal or an ICMP error may arrive at once, for example while the secondary is starting.
            await asyncio.sleep(max(0.0, started + timeout - clock()))
        self._note(replica, notify=NotifyState.GIVEN_UP, since=self._clock(), notify_error=reason)
        if self._logged.is_new((replica, "notify"), reason):
            log.warning("%s: given up, %s; the secondary will ask after its refresh time", what, reason)
        return False

    async def _observe(self, replica: Replica, expected: Expected) -> int | None:
        """Ask for the serial. Returns None without a response."""
        found = None
        try:
            async with self._slots[replica[1].address]:
                request = make_request(replica[0])
                found = read_serial(await exchange(request, replica[1], expected.key, self._clock, QUERY_TIMEOUT))
        except NoResponse as error:
            self._note(replica, observed_error=str(error))
        else:
            self._note(replica, observed_serial=found, observed=self._clock(), observed_error="")
        self._note_serial(replica, expected.view.serial)
        self._log_alarm(replica, expected.view.serial)
        return found

    def _log_alarm(self, replica: Replica, serial: int) -> None:
        """Log the beginning and the end of an alarm about the serial of a secondary."""
        found, since = self._alarm(replica), self.state(*replica).behind_since
        if found is not None and since is not None and found[0] is not AlarmKind.NOTIFY_GIVEN_UP:
            if self._logged.is_new((replica, "serial"), True):
                age = self._clock() - since
                log.error("zone %s: secondary %s %s, for %.0f s", to_text(replica[0]), replica[1], found[1], age)
        elif since is None and self._logged.forget((replica, "serial")):
            log.info("zone %s: secondary %s has serial %d, as it should", to_text(replica[0]), replica[1], serial)


# ---- one exchange with a secondary


class NoResponse(Exception):
    """There is no usable response, with the reason."""


async def exchange(request: bytes, target: NotifyTarget, key: TsigKey | None, clock: Clock, timeout: float) -> bytes:
    """Return the response over UDP, or over TCP if that is truncated. Signs the request if there is a key.

    ``timeout`` is for each of the two. Raises NoResponse.
    """
    refused = ""
    packet, signer = (request, None) if key is None else tsig.sign_query(request, key, int(clock()))

    def fits(response: bytes) -> bool:
        nonlocal refused
        if read_response(request, response) is None:
            return False
        if signer is None or tsig.check_reply(response, signer, int(clock())):
            return True
        refused = tsig.refusal(response, signer) or refused
        return False

    reason = "a TCP response to another query, or without a valid signature"
    try:
        async with asyncio.timeout(timeout):
            response = await _ask_by_udp(packet, target.address, fits)
        if not response[2] << 8 & TC:
            return response
        async with asyncio.timeout(timeout):
            if fits(response := await _ask_by_tcp(packet, target.address)):
                return response
    except TimeoutError as error:
        reason = error.strerror or "no answer"
    except (OSError, EOFError) as error:
        raise NoResponse(getattr(error, "strerror", None) or str(error)) from None
    raise NoResponse(f"the secondary refuses our TSIG key: {refused}" if refused else reason)


async def _ask_by_udp(packet: bytes, address: Address, fits: Callable[[bytes], bool]) -> bytes:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(socket_address(*address))
        sock.send(packet)
        # A forged refusal must not hide the response that follows it.
        while not fits(response := await asyncio.get_running_loop().sock_recv(sock, MAX_MESSAGE)):
            await asyncio.sleep(0)  # a flood of packets must not block the event loop
        return response


async def _ask_by_tcp(packet: bytes, address: Address) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(len(packet).to_bytes(2, "big") + packet)
        return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
    finally:
        writer.close()


def make_request(origin: Labels, soa: RRset | None = None) -> bytes:
    """Return an SOA query without recursion; with ``soa``, a NOTIFY with AA set and this hint (RFC 1996 3.7)."""
    buffer = MessageBuffer()
    DNSHeader(secrets.randbits(16), NOTIFY << 11 | AA if soa else 0, 1, bool(soa)).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(origin), SOA, IN), len(origin))
    if soa:
        buffer.put_rrset(soa, MAX_MESSAGE)
    return bytes(buffer.data)


def read_response(request: bytes, packet: bytes) -> int | None:
    """Return the rcode if the packet is the response to the request, otherwise None."""
    end = read_name(request, HEADER_SIZE)[1] + 4
    if len(packet) < HEADER_SIZE or packet[:2] != request[:2] or (packet[2] ^ request[2]) & 0xF8 != 0x80:
        return None
    # An error response may have no question, such as BIND's FORMERR.
    if packet[4:6] != b"\0\0" and packet[HEADER_SIZE:end] != request[HEADER_SIZE:end]:
        return None
    return packet[3] & RCODE_BITS


def rcode_text(rcode: int) -> str:
    return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))


def read_serial(response: bytes) -> int:
    """Return the serial in the response to an SOA query. Raises NoResponse with the reason if it has none."""
    try:
        message = Message.parse(response, MAX_SOA_RECORDS)
    except DNSError as error:
        raise NoResponse(f"a malformed response: {error}") from None
    rcode = int.from_bytes(response[2:4], "big") & RCODE_BITS
    if rcode:
        raise NoResponse(rcode_text(rcode))
    if not message.header.aa:
        raise NoResponse("a response without AA")
    serials = [bytes(record.rdata.data[-20:-16]) for record in message.rr if record.rtype == SOA]
    if len(serials) != 1 or len(serials[0]) != 4:
        raise NoResponse("a response without SOA")
    return int.from_bytes(serials[0], "big")
