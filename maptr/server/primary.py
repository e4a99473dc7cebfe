"""The primary's side of zone transfers: journals of the zones, and messages to secondaries.

A zone's journal is one file, written atomically. The zone file is authoritative: if the journal is damaged or does not
end at the zone's version, secondaries get one AXFR.

Secondaries get a NOTIFY (RFC 1996) for each new serial, and SOA queries that ask which serial they have.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import secrets
import socket
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dns.rcode
from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.config import Config, ZoneConfig
from maptr.config.model import CatalogConfig, SecondariesConfig
from maptr.errors import JournalError
from maptr.files import name_for, read_up_to, write_private
from maptr.protocol.names import Labels, read_name, to_text
from maptr.protocol.numbers import (
    AA,
    HEADER_SIZE,
    IN,
    MAX_MESSAGE,
    NOERROR,
    NOTIFY,
    NOTIMP,
    RCODE_BITS,
    SOA,
    TC,
)
from maptr.protocol.serial import is_newer
from maptr.resolver.servers import socket_address
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.responder import ServerState
from maptr.server.state import Clock
from maptr.transfer import tsig
from maptr.transfer.acl import NotifyTarget, Secondaries, TsigKey, keyring
from maptr.transfer.catalog import catalog_zone
from maptr.transfer.journal import MAX_BYTES, Journal, decode, describe, encode
from maptr.transfer.session import Access, Catalog
from maptr.zone.diff import ZoneDiff
from maptr.zone.rrset import RRset
from maptr.zone.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")

JOURNAL_SUFFIX = ".journal"
BAD_SUFFIX = ".bad"  # the suffix of the last unusable journal
MAX_JOURNAL_FILE = 2 * MAX_BYTES  # bytes; a larger file is not a journal

# Seconds to wait for each response to NOTIFY. RFC 1996 3.6 suggests five retries, 60 seconds apart. These start sooner,
# in case a packet was lost, and continue for as long as a secondary takes to restart.
NOTIFY_TIMEOUTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# Seconds until the next SOA query to a secondary: after it acknowledged a NOTIFY, which leaves time for the transfer;
# and while it has another serial or does not answer. While it has the same serial, ``serve.secondaries.interval``.
AFTER_NOTIFY = 5.0
IF_DIFFERENT = 60.0
QUERY_TIMEOUT = 5.0  # seconds for a response over UDP, and then over TCP
AT_ONCE = 50  # secondaries queried or notified at the same time
MAX_SOA_RECORDS = 100  # records of a response to an SOA query, including NS records, addresses and signatures

Place = tuple[Labels, NotifyTarget]  # a zone and one of its secondaries
Tasks = dict[Place, asyncio.Task[None]]


# ---- access and journals


def access_of(config: Config, snapshot: Snapshot, now: float, before: ServerState | None = None) -> Access:
    """Return the access to a snapshot, which replaces ``before`` if that is not None.

    Reads and extends the journals, and renames unusable ones: call it in a thread.
    """
    access, old = (Access(), Snapshot.of(())) if before is None else (before.access, before.snapshot)
    journals: dict[Labels, Journal] = {}
    for zone in config.zones:
        view, known = snapshot.zones.get(zone.name), old.zones.get(zone.name)
        if view is None:
            continue
        if known is not None and known is not view:
            _warn_of_serial(known, view)
        if zone.transfer:
            journals[zone.name] = _extended(journal_path(zone), access.journals.get(zone.name), known, view)
    keys = keyring(TsigKey(key.name, key.algorithm, key.secret) for key in config.keys if key.secret is not None)
    secondaries = {zone.name: Secondaries(zone.transfer, zone.notify) for zone in config.zones}
    return Access(keys, secondaries, journals, _catalog(config.serve.catalog, snapshot, now, access.catalog))


def _catalog(config: CatalogConfig, snapshot: Snapshot, now: float, before: Catalog | None) -> Catalog | None:
    """Return the catalog of the zones; this is ``before`` if the zones are the same."""
    if config.name is None:
        return None
    # A serial taken from the time increases over restarts without being stored.
    serial = int(now) & 0xFFFF_FFFF
    if before is not None and not is_newer(serial, before.view.serial):
        serial = (before.view.serial + 1) & 0xFFFF_FFFF
    secondaries = Secondaries(config.transfer, config.notify)
    catalog = Catalog(catalog_zone(config.name, snapshot.zones, serial), secondaries)
    same = before is not None and before.view.nodes.keys() == catalog.view.nodes.keys()
    return before if before is not None and same and before.secondaries == catalog.secondaries else catalog


def _extended(path: Path, journal: Journal | None, before: ZoneView | None, view: ZoneView) -> Journal:
    """Return the journal with the changes from ``before`` to ``view``. Writes it if it has changed."""
    if before is None or (journal is None and before is view):
        return read_journal(path, view)
    if before is view and journal is not None:
        return journal
    longer = (journal or Journal.start(before)).extend(before, view)
    if longer is not journal:
        write_journal(path, longer)
    return longer


def _warn_of_serial(before: ZoneView, view: ZoneView) -> None:
    if is_newer(view.serial, before.serial) or not ZoneDiff.between(before, view):
        return
    log.warning(
        "zone %s CHANGED BUT ITS SERIAL DID NOT GO FORWARD (%d, was %d): no secondary will follow until it does",
        to_text(view.origin),
        view.serial,
        before.serial,
    )


def journal_path(zone: ZoneConfig) -> Path:
    """Return the path of a zone's journal: in the state folder if there is one, otherwise beside the zone file."""
    if zone.state is None:
        return zone.file.with_name(zone.file.name + JOURNAL_SUFFIX)
    return zone.state / (name_for(zone.name) + JOURNAL_SUFFIX)


def read_journal(path: Path, view: ZoneView) -> Journal:
    """Read the journal of a zone that was just loaded. If the file is unusable, log why, and return a new journal."""
    try:
        with path.open("rb") as file:
            data = read_up_to(file, MAX_JOURNAL_FILE)
        journal = decode(data)
        if not journal.fits(view):
            raise JournalError(f"it leads to serial {journal.serial}, not to this zone of serial {view.serial}")
    except FileNotFoundError:
        return Journal.start(view)
    except OSError as error:
        log.warning("journal %s cannot be read, secondaries will get AXFR: %s", path, error.strerror)
        return Journal.start(view)
    except JournalError as error:
        aside = path.with_name(path.name + BAD_SUFFIX)
        log.warning("journal %s set aside as %s, secondaries will get AXFR: %s", path, aside.name, error)
        with contextlib.suppress(OSError):
            path.replace(aside)
        return Journal.start(view)
    log.info("journal %s: %s", path, describe(journal))
    return journal


def write_journal(path: Path, journal: Journal) -> None:
    """Write the journal's file atomically. Logs an OSError."""
    try:
        write_private(path, encode(journal))
    except OSError as error:
        log.error("journal %s not written, after a restart secondaries will get AXFR: %s", path, error.strerror)


# ---- NOTIFY and SOA queries


class NotifyState(enum.StrEnum):
    """The state of the last NOTIFY of a zone to one secondary."""

    PENDING = "pending"
    DONE = "done"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class SecondaryState:
    """The state of a secondary. Times are in seconds since 1970.

    ``notify`` is the state of the last NOTIFY, which it entered at ``since``; None if none was sent. ``acknowledged``
    is the last serial that the secondary acknowledged, ``serial`` the last one that it reported, at the time ``at``.
    ``error`` is the reason why the last query failed, "" after a success, and ``notify_error`` why the NOTIFY was given
    up. ``behind_since`` is when the secondary was first not known to have the serial of the zone; None if it has it.
    """

    notify: NotifyState | None = None
    since: float | None = None
    acknowledged: int | None = None
    serial: int | None = None
    at: float | None = None
    error: str = ""
    notify_error: str = ""
    behind_since: float | None = None


class SecondaryMonitor:
    """Sends NOTIFY to secondaries until they acknowledge it, and asks them at intervals which serial they have.

    All methods except ``secondaries``, ``alarms`` and ``state`` are for the event loop's thread. Times are in seconds.
    """

    def __init__(
        self,
        clock: Clock,
        settings: SecondariesConfig = SecondariesConfig(),  # noqa: B008 - it is frozen
        *,
        notify_timeouts: Iterable[float] = NOTIFY_TIMEOUTS,
        if_different: float = IF_DIFFERENT,
        timeout: float = QUERY_TIMEOUT,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._notify_timeouts, self._timeout = tuple(notify_timeouts), timeout
        self._if_different = min(if_different, settings.interval)
        self._wanted: dict[Place, tuple[int, TsigKey | None]] = {}
        self._states: dict[Place, SecondaryState] = {}
        self._notifying: Tasks = {}
        self._observing: Tasks = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._alarmed: set[Place] = set()  # secondaries whose alarm was logged

    def update(self, state: ServerState, before: ServerState | None = None) -> None:
        """Send NOTIFY for the zones whose serial differs from the one in ``before``; for all zones if that is None.

        Also monitor the secondaries of all zones with SOA queries.
        """
        wanted: dict[Place, tuple[int, TsigKey | None]] = {}
        access = state.access
        for origin, view in state.snapshot.zones.items():
            targets = access.secondaries.get(origin, Secondaries()).notify
            for target in targets:
                wanted[origin, target] = (view.serial, None if target.key is None else access.keys[target.key])
            known = before.snapshot.zones.get(origin) if before is not None else None
            if known is None or known.serial != view.serial:
                self.notify(view, targets, access.keys)
        self.follow(wanted)
        catalog = access.catalog
        if catalog is not None and (before is None or before.access.catalog is not catalog):
            self.notify(catalog.view, catalog.secondaries.notify, access.keys)

    def secondaries(self, zone: ZoneConfig) -> list[tuple[NotifyTarget, SecondaryState]]:
        return [(target, self.state(zone.name, target)) for target in zone.notify]

    def alarms(self, origin: Labels, targets: Iterable[NotifyTarget]) -> Iterator[Alarm]:
        """Yield the alarms about the secondaries of a zone, one for each at most."""
        for target in targets:
            found = self._alarm((origin, target))
            if found is not None:
                kind, what = found
                yield Alarm(kind, f"zone {to_text(origin)}: secondary {target} {what}", to_text(origin), str(target))

    def _alarm(self, place: Place) -> tuple[AlarmKind, str] | None:
        """Return the most telling alarm about a secondary; None if it has the zone, or may still get it in time.

        A secondary of the catalog is not asked for its serial.
        """
        known, wanted, now = self.state(*place), self._wanted.get(place), self._clock()
        since = known.behind_since
        if wanted is not None and since is not None and now - since >= self._settings.alarm_after:
            age = f"{now - since:.0f} s"
            if known.error:
                return AlarmKind.SECONDARY_UNKNOWN, f"has an unknown serial, for {age}: {known.error}"
            if known.serial is not None:
                return AlarmKind.SECONDARY_BEHIND, f"has serial {known.serial}, not {wanted[0]}, for {age}"
        if known.notify is NotifyState.GIVEN_UP and (wanted is None or since is not None):
            return AlarmKind.NOTIFY_GIVEN_UP, f"did not acknowledge NOTIFY: {known.notify_error}"
        return None

    def notify(self, view: ZoneView, targets: Iterable[NotifyTarget], keys: Mapping[Labels, TsigKey]) -> None:
        """Start to send NOTIFY, and return at once. This ends the sending of an earlier serial. ``keys`` has the keys
        of all targets."""
        for target in targets:
            self._note((view.origin, target), notify=NotifyState.PENDING, since=self._clock(), notify_error="")
            sending = self._notify(view, target, None if target.key is None else keys[target.key])
            _restart(self._notifying, (view.origin, target), sending)

    def follow(self, wanted: Mapping[Place, tuple[int, TsigKey | None]]) -> None:
        """Monitor these secondaries and no others, each with its expected serial and the key to sign with."""
        for place in self._wanted.keys() - wanted.keys():
            self._note(place, serial=None, at=None, error="", behind_since=None)
            self._alarmed.discard(place)
            self._observing.pop(place).cancel()
        before, self._wanted = self._wanted, dict(wanted)
        for place in wanted:
            if before.get(place) != wanted[place]:
                self._note_serial(place, wanted[place][0])
                _restart(self._observing, place, self._observe(place, self._if_different))

    def state(self, origin: Labels, target: NotifyTarget) -> SecondaryState:
        return self._states.get((origin, target), SecondaryState())

    async def stop(self) -> None:
        tasks = [*self._notifying.values(), *self._observing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, place: Place, **changes: Any) -> None:
        self._states[place] = replace(self.state(*place), **changes)

    def _note_serial(self, place: Place, serial: int) -> None:
        """Note whether the secondary is known to have the serial of the zone, and since when not."""
        known = self.state(*place)
        if known.serial == serial and not known.error:
            self._note(place, behind_since=None)
        elif known.behind_since is None:
            self._note(place, behind_since=self._clock())

    async def _notify(self, view: ZoneView, target: NotifyTarget, key: TsigKey | None) -> None:
        what = f"NOTIFY of zone {to_text(view.origin)} serial {view.serial} to {target}"
        place, reason = (view.origin, target), "no answer"
        clock = asyncio.get_running_loop().time
        for timeout in self._notify_timeouts:
            started = clock()
            try:
                async with self._slots:
                    request = make_request(view.origin, view.soa)
                    rcode = read_response(request, await _exchange(request, target, key, self._clock, timeout))
            except TimeoutError as error:
                reason = str(error) or "no answer"
                continue
            except (OSError, EOFError) as error:
                reason = getattr(error, "strerror", None) or str(error)
            else:
                if rcode == NOERROR:
                    self._note(place, notify=NotifyState.DONE, since=self._clock(), acknowledged=view.serial)
                    if place in self._wanted:
                        _restart(self._observing, place, self._observe(place, AFTER_NOTIFY))
                    log.info("%s: done", what)
                    return
                reason = f"rcode {rcode}"
                if rcode == NOTIMP:  # the secondary does not implement NOTIFY (RFC 1996 3.14)
                    break
            # A refusal or an ICMP error may arrive at once, for example while the secondary is starting.
            await asyncio.sleep(max(0.0, started + timeout - clock()))
        self._note(place, notify=NotifyState.GIVEN_UP, since=self._clock(), notify_error=reason)
        log.warning("%s: given up, %s; the secondary will ask after its refresh time", what, reason)

    async def _observe(self, place: Place, pause: float) -> None:
        """Ask for the serial after ``pause`` seconds, and then at intervals."""
        serial, key = self._wanted[place]
        while True:
            await asyncio.sleep(pause)
            async with self._slots:
                try:
                    request = make_request(place[0])
                    response = await _exchange(request, place[1], key, self._clock, self._timeout)
                    found: int | str = read_serial(response)
                except TimeoutError as error:
                    found = str(error) or "no answer"
                except (OSError, EOFError) as error:
                    found = getattr(error, "strerror", None) or str(error)
            if isinstance(found, int):
                self._note(place, serial=found, at=self._clock(), error="")
            else:
                self._note(place, error=found)
            self._note_serial(place, serial)
            self._log_alarm(place, serial)
            pause = self._settings.interval if found == serial else self._if_different

    def _log_alarm(self, place: Place, serial: int) -> None:
        """Log the beginning and the end of an alarm about the serial of a secondary."""
        found = self._alarm(place)
        if found is not None and found[0] is not AlarmKind.NOTIFY_GIVEN_UP and place not in self._alarmed:
            self._alarmed.add(place)
            log.error("zone %s: secondary %s %s", to_text(place[0]), place[1], found[1])
        elif self.state(*place).behind_since is None and place in self._alarmed:
            self._alarmed.discard(place)
            log.info("zone %s: secondary %s has serial %d, as it should", to_text(place[0]), place[1], serial)


def _restart(tasks: Tasks, place: Place, work: Coroutine[None, None, None]) -> None:
    if place in tasks:
        tasks[place].cancel()
    tasks[place] = asyncio.get_running_loop().create_task(work)


class _KeyRefused(TimeoutError):
    """The secondary refuses the signature, by an unsigned response with a TSIG error."""

    def __str__(self) -> str:
        return f"the secondary refuses our TSIG key: {self.args[0]}"


async def _exchange(request: bytes, target: NotifyTarget, key: TsigKey | None, clock: Clock, timeout: float) -> bytes:
    """Return the response over UDP, or over TCP if that is truncated. Signs the request if there is a key.

    ``timeout`` is for each of the two. Raises OSError, TimeoutError and EOFError; _KeyRefused, which is a TimeoutError,
    if the only response refused the signature.
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

    family = socket.AF_INET6 if ":" in target.address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(socket_address(*target.address))
        sock.send(packet)
        try:
            async with asyncio.timeout(timeout):
                # A forged refusal must not hide the response that follows it.
                while not fits(response := await asyncio.get_running_loop().sock_recv(sock, MAX_MESSAGE)):
                    await asyncio.sleep(0)  # a flood of packets must not block the event loop
        except TimeoutError:
            if refused:
                raise _KeyRefused(refused) from None
            raise
    if not response[2] << 8 & TC:
        return response
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(*target.address)
        try:
            writer.write(len(packet).to_bytes(2, "big") + packet)
            response = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        finally:
            writer.close()
    if not fits(response):
        if refused:
            raise _KeyRefused(refused)
        raise EOFError("a TCP response to another query, or without a valid signature")
    return response


# ---- the messages


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


def read_serial(response: bytes) -> int | str:
    """Return the serial in the response to an SOA query, or the reason why there is none."""
    try:
        message = Message.parse(response, MAX_SOA_RECORDS)
    except DNSError as error:
        return f"a malformed response: {error}"
    rcode = int.from_bytes(response[2:4], "big") & RCODE_BITS
    if rcode:
        return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))
    if not message.header.aa:
        return "a response without AA"
    serials = [bytes(record.rdata.data[-20:-16]) for record in message.rr if record.rtype == SOA]
    if len(serials) != 1 or len(serials[0]) != 4:
        return "a response without SOA"
    return int.from_bytes(serials[0], "big")
