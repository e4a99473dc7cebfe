"""Secondaries: NOTIFY (RFC 1996) for each new serial, and SOA queries for the serial that they have.

A secondary that acknowledges NOTIFY but keeps another serial, such as one whose transfer failed, gets NOTIFY again.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from maptr.config.model import SecondariesConfig
from maptr.protocol.address import Address
from maptr.protocol.names import Folded, to_text
from maptr.protocol.numbers import NOERROR, NOTAUTH, NOTIMP, REFUSED
from maptr.protocol.serial import is_far_ahead, is_newer
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.requests import NoResponse, NoSource, exchange, make_request, rcode_text, read_response, read_serial
from maptr.server.responder import ServerState
from maptr.server.state import Clock, Served
from maptr.server.status import Progress, SecondaryStatus
from maptr.transfer.acl import NotifyTarget, TsigKey
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

# Seconds to wait for each response to NOTIFY. RFC 1996 3.6 suggests five retries, 60 seconds apart. These start sooner,
# in case a packet was lost, and continue for as long as a secondary takes to restart.
NOTIFY_TIMEOUTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# Seconds from the acknowledgement of a NOTIFY to the first SOA query, and from each query to the next: most transfers
# take less than a second. After the last one, NOTIFY is sent again, if the secondary has another serial.
AFTER_NOTIFY = (0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
IF_DIFFERENT = 60.0  # seconds between two SOA queries to a secondary that does not answer or did not accept NOTIFY
QUERY_TIMEOUT = 5.0  # seconds for a response over UDP, and then over TCP
SOURCE_RETRY = 5.0  # seconds until a request is retried whose source is not on this machine
AT_ONCE = 50  # messages to one secondary at the same time, so that an unanswered one does not delay the rest

Replica = tuple[Folded, NotifyTarget]  # a zone at one of its secondaries


class Expected(NamedTuple):
    """The zone version that a secondary should have. ``key`` signs the messages to the secondary.

    ``is_catalog``: the zone is the catalog, whose secondaries may refuse queries for its serial (RFC 9432 7).
    ``file``: the zone file whose serial is served unchanged; None if the server chooses the serials.
    """

    view: ZoneView
    key: TsigKey | None
    is_catalog: bool = False
    file: Path | None = None


class NotifyState(enum.StrEnum):
    """The state of the last NOTIFY of a zone to one secondary."""

    PENDING = "pending"
    DONE = "done"
    GIVEN_UP = "given up"


class SecondaryMonitor:
    """Sends NOTIFY to secondaries until they acknowledge it, and queries their serials at intervals.

    All methods except ``statuses``, ``alarms``, ``state``, ``serials`` and ``was_asked`` are for the event loop's
    thread. Times are in seconds. ``settings`` may be replaced, before ``update``.
    """

    def __init__(self, clock: Clock, settings: SecondariesConfig) -> None:
        self.settings = settings
        self._clock = clock
        self._expected: dict[Replica, Expected] = {}
        self._states: dict[Replica, SecondaryStatus] = {}
        self._far: frozenset[Replica] = frozenset()  # too far ahead ever to be passed
        self._missing: dict[str, float] = {}  # sources that are not on this machine, and since when
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._slots = defaultdict[Address, asyncio.Semaphore](lambda: asyncio.Semaphore(AT_ONCE))
        self._unheard: dict[Replica, str] = {}  # why the last NOTIFY was given up, until one is acknowledged

    def update(self, state: ServerState, served: Served) -> None:
        """Follow the secondaries of the zones and the catalog."""
        access, expected = state.access, dict[Replica, Expected]()
        views = [*state.snapshot.zones.values(), *([access.catalog] if access.catalog else [])]
        for view in views:
            zone = served[view.origin].zone if view.origin in served else None
            file = zone.file if zone is not None and zone.style == "file" and zone.keys is None else None
            for target in access.secondaries_of(view.origin).notify:
                key = None if target.key is None else access.keys[target.key]
                expected[view.origin, target] = Expected(view, key, view is access.catalog, file)
        self.follow(expected)

    def follow(self, expected: Mapping[Replica, Expected]) -> None:
        """Follow only these secondaries. Sends NOTIFY to each that is new, or has a new serial or key."""
        for replica in self._expected.keys() - expected.keys():
            self._states.pop(replica, None)
            self._tasks.pop(replica).cancel()
            self._unheard.pop(replica, None)
        before, self._expected = self._expected, dict(expected)
        self._far = frozenset(self._far & expected.keys())
        for source in self._missing.keys() - {*self.settings.source}:
            self._missing.pop(source, None)
        for replica, wanted in expected.items():
            known = before.get(replica)
            if known is None or (known.view.serial, known.key) != (wanted.view.serial, wanted.key):
                self._restart(replica)
                self._note_serial(replica, wanted)

    def notify_again(self, only: Folded | None = None) -> list[str]:
        """Send NOTIFY for one zone, or for all. Returns the secondaries, each with its zone."""
        found = [replica for replica in self._expected if only in (None, replica[0])]
        for replica in found:
            self._restart(replica)
        return [f"{to_text(origin)} {target}" for origin, target in found]

    def statuses(
        self, origin: Folded, view: ZoneView | None, targets: Iterable[NotifyTarget]
    ) -> tuple[SecondaryStatus, ...]:
        """Return the status of each of a zone's secondaries. ``view`` is the served version."""
        serial, now = None if view is None else view.serial, self._clock()
        return tuple(self.state(origin, target).at(now, serial) for target in targets)

    def serials(self, origin: Folded, targets: Iterable[NotifyTarget]) -> list[int]:
        """Return the known serials of a zone's secondaries, without those that are never passed."""
        replicas = [(origin, target) for target in targets]
        known = [self.state(*each).observed_serial for each in replicas if each not in self._far]
        return [serial for serial in known if serial is not None]

    def was_asked(self, origin: Folded, target: NotifyTarget) -> bool:
        """Return whether a secondary was asked for its serial, even if it did not answer."""
        known = self.state(origin, target)
        return known.observed is not None or bool(known.observed_error) or known.progress == Progress.UNTOLD

    def alarms(self) -> Iterator[Alarm]:
        """Yield the alarms about sources, and at most one about each secondary."""
        if missing := dict(self._missing):
            which = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on this machine"
            text = f"serve.secondaries.source: {which}; no NOTIFY or SOA query is sent from another address"
            yield Alarm(AlarmKind.SOURCE_MISSING, text, since=min(missing.values()))
        for origin, target in self._expected:
            found = self._alarm((origin, target))
            if found is not None:
                kind, what = found
                since = self.state(origin, target).behind_since
                text = f"zone {to_text(origin)}: secondary {target} {what}"
                level = logging.WARNING if kind is AlarmKind.NOTIFY_GIVEN_UP else logging.ERROR
                yield Alarm(kind, text, to_text(origin), str(target), since, level=level, version=kind)

    def _alarm(self, replica: Replica) -> tuple[AlarmKind, str] | None:
        """Return the most important alarm about a secondary; None if it has the zone, or may still get it in time."""
        known, expected, now = self.state(*replica), self._expected.get(replica), self._clock()
        since, found = known.behind_since, known.observed_serial
        if expected is None:
            return None
        if found is not None and is_newer(found, expected.view.serial):
            # Waiting does not help: it takes no zone with a smaller serial, such as one restored from an older backup.
            remedy = self._remedy(replica, expected)
            return AlarmKind.SECONDARY_BEHIND, f"is ahead: it has serial {found}, not {expected.view.serial}; {remedy}"
        if since is not None and now - since >= self.settings.alarm_after:
            if known.observed_error:
                return AlarmKind.SECONDARY_UNKNOWN, f"has an unknown serial: {known.observed_error}"
            if found is not None:
                return AlarmKind.SECONDARY_BEHIND, f"has serial {found}, not {expected.view.serial}"
        is_known = since is None and known.progress != Progress.UNTOLD
        reason = self._unheard.get(replica)
        # While the next NOTIFY is pending, the last one counts if the secondary already lacked the zone then.
        is_given_up = known.notify is NotifyState.GIVEN_UP or (since or 0.0) < (known.since or 0.0)
        if reason is not None and is_given_up and not is_known:
            what = f"did not acknowledge NOTIFY: {reason}; it will check after its refresh interval"
            return AlarmKind.NOTIFY_GIVEN_UP, what
        return None

    def _remedy(self, replica: Replica, expected: Expected) -> str:
        """Return what brings a secondary that is ahead back in step."""
        zone = to_text(replica[0])
        if replica in self._far:
            return "that is too far ahead to pass: make it transfer the whole zone once"
        if expected.is_catalog:
            return "maptr reload gives the catalog a greater one"
        if expected.file is not None:
            return f"give {expected.file} a greater one, then run maptr reload {zone}"
        return f"the next one passes it; maptr reload {zone} --force publishes that now"

    def state(self, origin: Folded, target: NotifyTarget) -> SecondaryStatus:
        return self._states.get((origin, target), SecondaryStatus(str(target)))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _note(self, replica: Replica, **changes: Any) -> None:
        self._states[replica] = replace(self.state(*replica), **changes)

    def _note_serial(self, replica: Replica, expected: Expected) -> None:
        """Note whether the secondary is known to have the zone's serial, and if not, since when."""
        known, serial = self.state(*replica), expected.view.serial
        if known.observed_serial is not None and is_far_ahead(known.observed_serial, serial):
            self._far |= {replica}
        elif known.observed_serial is not None and not is_newer(known.observed_serial, serial):
            self._far -= {replica}
        is_there = known.observed_serial == serial and not known.observed_error
        if is_there or known.progress == Progress.UNTOLD:
            self._note(replica, behind_since=None)
        elif known.behind_since is None:
            self._note(replica, behind_since=self._clock())

    def _restart(self, replica: Replica) -> None:
        if replica in self._tasks:
            self._tasks[replica].cancel()
        self._note(replica, notify=NotifyState.PENDING, since=self._clock(), notify_error="")
        if self.state(*replica).progress != Progress.UNTOLD:
            self._note(replica, progress=Progress.NOTIFYING)
        self._tasks[replica] = asyncio.get_running_loop().create_task(self._inform(replica, self._expected[replica]))

    async def _inform(self, replica: Replica, expected: Expected) -> None:
        """Send NOTIFY and query the serial, for as long as the zone has this version.

        ============== =================== ====================================================================
        progress       next                after a pause of
        ============== =================== ====================================================================
        NOTIFYING      NOTIFY, SOA query   NOTIFY_TIMEOUTS, each once; then it is given up
        TOLD           SOA query           AFTER_NOTIFY, each once, until an answer has the serial
        BEHIND         NOTIFY              0; if NOTIFY was given up, an SOA query after IF_DIFFERENT
        AHEAD, SILENT  SOA query           IF_DIFFERENT
        IN_STEP        SOA query           ``interval``
        UNTOLD         SOA query           ``interval``
        ============== =================== ====================================================================
        """
        is_first = True
        while True:
            is_acknowledged = await self._notify(replica, expected, logging.INFO if is_first else logging.DEBUG)
            if is_acknowledged:
                progress = await self._await_transfer(replica, expected, is_first=is_first)
            else:
                progress = await self._observe(replica, expected)
            while not (progress is Progress.BEHIND and is_acknowledged):
                await asyncio.sleep(self._pause_after(progress))
                progress = await self._observe(replica, expected)
            is_first = False

    async def _await_transfer(self, replica: Replica, expected: Expected, *, is_first: bool) -> Progress:
        """Query the serial of a secondary that acknowledged NOTIFY, until it has, or should have, the zone."""
        progress = Progress.SILENT
        for pause in AFTER_NOTIFY:
            if is_first:  # later, it is known to be behind
                self._note(replica, progress=Progress.TOLD)
            await asyncio.sleep(pause)
            progress = await self._observe(replica, expected)
            if progress not in (Progress.BEHIND, Progress.SILENT):
                break
        return progress

    def _pause_after(self, progress: Progress) -> float:
        if progress in (Progress.IN_STEP, Progress.UNTOLD):
            return self.settings.interval
        return min(IF_DIFFERENT, self.settings.interval)

    async def _notify(self, replica: Replica, expected: Expected, level: int) -> bool:
        """Send NOTIFY, and query the serial after each failure. Returns whether NOTIFY was acknowledged."""
        target, view, reason = replica[1], expected.view, "no answer"
        what = f"NOTIFY of zone {to_text(view.origin)} serial {view.serial} to {target}"
        clock = asyncio.get_running_loop().time
        for timeout in NOTIFY_TIMEOUTS:
            started = clock()
            try:
                request = make_request(view.origin, view.soa)
                rcode = read_response(request, await self._ask_when_here(replica, expected, request, timeout))
            except NoResponse as error:
                reason = str(error)
            else:
                if rcode == NOERROR:
                    self._note(replica, notify=NotifyState.DONE, since=self._clock(), serial=view.serial)
                    self._unheard.pop(replica, None)
                    log.log(level, "%s: done", what)
                    return True
                reason = rcode_text(rcode or NOERROR)
                if rcode == NOTIMP:  # the secondary does not implement NOTIFY (RFC 1996 3.14)
                    break
            # It may have the serial without a NOTIFY, or say why it lacks it.
            if await self._observe(replica, expected) in (Progress.BEHIND, Progress.SILENT):
                self._note(replica, progress=Progress.NOTIFYING)
            # A refusal or an ICMP error may arrive at once, for example while the secondary is starting.
            await asyncio.sleep(max(0.0, started + timeout - clock()))
        self._note(replica, notify=NotifyState.GIVEN_UP, since=self._clock(), notify_error=reason)
        before, self._unheard[replica] = self._unheard.get(replica), reason
        if before != reason and self._alarm(replica) is None:
            log.warning("%s: giving up: %s; the secondary will check after its refresh interval", what, reason)
        return False

    async def _ask_when_here(self, replica: Replica, expected: Expected, request: bytes, timeout: float) -> bytes:
        """Return the response to a request, sent once its source is an address of this machine. Raises NoResponse."""
        while True:
            try:
                return await self._ask(replica, expected, request, timeout)
            except NoSource as error:
                self._note(replica, observed_error=str(error))
                await asyncio.sleep(SOURCE_RETRY)

    async def _ask(self, replica: Replica, expected: Expected, request: bytes, timeout: float) -> bytes:
        """Return the response to one request. Raises NoResponse."""
        target = replica[1]
        source = source_for(target.address, self.settings.source)
        async with self._slots[target.address]:
            try:
                found = await exchange(request, target, expected.key, self._clock, timeout, source)
            except NoSource:
                if source is not None:
                    self._missing.setdefault(source, self._clock())
                raise
            except NoResponse:
                self._found_source(source)
                raise
        self._found_source(source)
        return found

    def _found_source(self, source: str | None) -> None:
        if source is not None:
            self._missing.pop(source, None)

    async def _observe(self, replica: Replica, expected: Expected) -> Progress:
        """Query the serial, and note the secondary's progress."""
        serial, found = expected.view.serial, None
        try:
            found = read_serial(await self._ask(replica, expected, make_request(replica[0]), QUERY_TIMEOUT))
        except NoResponse as error:
            if expected.is_catalog and error.rcode in (REFUSED, NOTAUTH):
                progress = Progress.UNTOLD
                self._note(replica, progress=progress, observed_error="")
            else:
                progress = Progress.SILENT
                self._note(replica, progress=progress, observed_error=str(error))
        else:
            progress = Progress.AHEAD if is_newer(found, serial) else Progress.BEHIND
            progress = Progress.IN_STEP if found == serial else progress
            self._note(replica, progress=progress, observed_serial=found, observed=self._clock(), observed_error="")
        self._note_serial(replica, expected)
        return progress


def source_for(address: Address, sources: Iterable[str]) -> str | None:
    """Return the source of the same address family for requests to an address; None for any source."""
    is_six = ":" in address.host
    return next((source for source in sources if (":" in source) is is_six), None)
