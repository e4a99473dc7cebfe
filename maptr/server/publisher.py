"""Publishing of zone files: a valid new version replaces the served one, an invalid version does not.

The functions make a new ``Served`` (``state.py``). They read files and take long: call them in a thread.
The ``Reloader`` adopts it as a whole, or not at all, after a reload, new signatures, or a pulled table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from maptr.answer.context import Context
from maptr.config import Config, ZoneConfig
from maptr.daemon import process
from maptr.daemon.certificate import Certificate
from maptr.daemon.process import in_thread
from maptr.dnssec.expiry import Signatures
from maptr.errors import ConfigError, ZoneError, reason_of
from maptr.protocol.names import Labels, to_text
from maptr.server import settings, signer, state_folder
from maptr.server.journals import access_of
from maptr.server.responder import Responder, ServerState
from maptr.server.secondaries import SecondaryMonitor
from maptr.server.state import Clock, Served, SigningState, ZoneResult, ZoneState
from maptr.server.status import Reloads
from maptr.server.table_zone import candidate
from maptr.zone.diff import Published, choose_serial, decide, stripped
from maptr.zone.finding import text_of
from maptr.zone.load import read_checked
from maptr.zone.snapshot import ZoneView

if TYPE_CHECKING:
    from maptr.server.puller import Puller

log = logging.getLogger("maptr.serve")

ALARM_INTERVAL = 86400.0  # seconds between two log lines about an alarm


def start(zones: Iterable[ZoneConfig], *, clock: Clock) -> Served:
    """Load every zone. Queries for a zone that cannot be loaded get SERVFAIL."""
    return publish(zones, Served(MappingProxyType({})), clock=clock, starting=True)[0]


def publish(
    zones: Iterable[ZoneConfig],
    current: Served,
    *,
    clock: Clock,
    only: Labels | None = None,
    force: bool = False,
    starting: bool = False,
) -> tuple[Served, list[ZoneResult]]:
    """Read the zones again. Returns what to serve, and the result for each zone, including removed zones.

    ``only``: read only the file of this zone. ``force``: as in ``decide``. ``starting``: no zone is served yet.
    An invalid or unreadable file is a result, not an exception.
    """
    states: dict[Labels, ZoneState] = {}
    results: list[ZoneResult] = []
    for zone in zones:
        known = current.states.get(zone.name, ZoneState(zone))
        state = known._replace(zone=zone)
        if (zone.keys, zone.signing) != (known.zone.keys, known.zone.signing):
            # The signatures do not fit the new keys or policy.
            state = state._replace(signed=SigningState(known.signed.unsigned if zone.keys else None))
        if only is None or only == zone.name:
            state, result = _publish(state, clock(), force, starting)
            results.append(result)
        states[zone.name] = state
    results += [ZoneResult(to_text(origin), "removed") for origin in current.states.keys() - states.keys()]
    return Served(MappingProxyType(states)), results


def sign_again(current: Served, *, clock: Clock) -> tuple[Served, list[ZoneResult]]:
    """Sign the zones whose keys have changed or whose signatures are due, without reading their files again.
    Returns what to serve, and the result for each signed zone."""
    states, results = dict(current.states), []
    for origin, state in current.states.items():
        if not signer.is_due(state, clock()):
            continue
        pending = state.signed.pending
        unsigned = pending or state.unsigned_view()
        if unsigned is not None:  # without it, no file has been valid yet, and the next reload signs the zone
            states[origin], result = _sign(state, unsigned, clock(), state.warnings, changed=pending is not None)
            results.append(result)
    return Served(MappingProxyType(states)), results


def log_results(results: Iterable[ZoneResult]) -> None:
    """Log what is served now. Refusals and signing are logged when they happen."""
    for result in results:
        match result.result:
            case "loaded":
                log.info("zone %s loaded, serial %d", result.zone, result.serial)
            case "reloaded":
                log.info("zone %s reloaded, serial %d (was %d)", result.zone, result.serial, result.was)
            case "unchanged":
                log.info("zone %s unchanged, serial %d", result.zone, result.serial)
            case "removed":
                log.info("zone %s removed", result.zone)


def log_alarms(served: Served, now: float) -> None:
    """Log each zone whose signatures need attention, and each zone that lacks records of its table."""
    for origin, state in served.states.items():
        found = state.signatures(now)
        if found.is_alarm:
            level = logging.WARNING if found.state is Signatures.EXPIRING else logging.ERROR
            log.log(level, "zone %s: %s", to_text(origin), found.text(now))
        if state.left_out and state.left_out.records:
            level = logging.ERROR if state.left_out.answered_by_others else logging.WARNING
            log.log(level, "zone %s: %s", to_text(origin), state.left_out)


def _publish(state: ZoneState, now: float, force: bool, starting: bool) -> tuple[ZoneState, ZoneResult]:
    zone, served, old = state.zone, state.view, state.unsigned_view()
    name = to_text(zone.name)
    try:
        with candidate(zone, now, starting=starting) as (reading, left_out):
            checked = read_checked(reading.file, zone.name, lint=zone.lint)
            view = checked.view if zone.keys is None else stripped(checked.view)
            chosen = None if zone.serial == "file" else zone.state  # the folder for a serial that the server chooses
            if chosen is not None:
                published = state_folder.read_serial(chosen, zone.name) if old is None else Published.of(old)
                view = choose_serial(view, published, zone.serial, now)
            if old is not None:
                view = decide(old, view, zone.max_shrink, force=force)
            if chosen is not None and view is not old:
                _record(chosen, view, starting=starting)
    except (ZoneError, OSError) as error:
        reason = text_of(error)
        if served is None:
            log.error("zone %s not loaded, queries get SERVFAIL: %s", name, reason)
        else:
            log.error("zone %s not reloaded, serial %d stays: %s", name, served.serial, reason)
        serial = None if served is None else served.serial
        return state._replace(error=reason, failed_at=now), ZoneResult(name, "refused", serial, serial, reason)
    state = state._replace(error="", failed_at=None, left_out=left_out)
    warnings = checked.first_warnings()
    for warning in warnings if view is not old else ():
        log.warning("zone %s: %s", name, warning)
    # The operator may have removed the cause of an earlier failure to sign.
    if zone.keys is not None and (view is not old or state.signed.error or signer.is_due(state, now)):
        return _sign(state, view, now, warnings, changed=view is not old)
    if view is old and served is not None:
        return state, ZoneResult(name, "unchanged", served.serial, served.serial)
    return _serve(state, view, now, warnings)


def _sign(
    state: ZoneState, unsigned: ZoneView, now: float, warnings: tuple[str, ...], *, changed: bool
) -> tuple[ZoneState, ZoneResult]:
    """Sign a version and serve it; if that fails, keep the served one."""
    name, old = to_text(state.zone.name), state.view
    view, signed = signer.sign(state.zone, unsigned, old, state.signed, now)
    state = state._replace(signed=signed if changed else signed._replace(pending=None))
    serial = None if view is None else view.serial
    if signed.error:
        if view is not None and view is not old:
            state = state.serving(view, now)  # the version that was stored before a restart
        return state, ZoneResult(name, "refused", serial, serial, f"not signed: {signed.error}")
    assert view is not None  # noqa: S101 - it was signed
    if view is old:
        return state, ZoneResult(name, "unchanged", serial, serial)
    if changed or old is None:
        return _serve(state, view, now, warnings)
    return state.serving(view, now), ZoneResult(name, "signed", serial, old.serial)


def _serve(state: ZoneState, view: ZoneView, now: float, warnings: tuple[str, ...]) -> tuple[ZoneState, ZoneResult]:
    name, old = to_text(state.zone.name), state.view
    result, was = ("loaded", None) if old is None else ("reloaded", old.serial)
    state = state.serving(view, now)._replace(warnings=warnings)
    return state, ZoneResult(name, result, view.serial, was, "", warnings)


def _record(folder: Path, view: ZoneView, *, starting: bool) -> None:
    """Store a serial that the server chose. Raises OSError; at the start, it is logged, and the zone is served."""
    try:
        state_folder.write_serial(folder, view.origin, Published.of(view))
    except OSError as error:
        if not starting:
            raise
        log.error("zone %s: its serial cannot be kept for the next start: %s", to_text(view.origin), reason_of(error))


# ---- reloads


class Reloader:
    """Keeps the responder's state up to date.

    ``config`` is the current configuration, which a reload reads again with ``reread``.
    """

    def __init__(
        self,
        config: Config,
        served: Served,
        responder: Responder,
        monitor: SecondaryMonitor,
        *,
        certificate: Certificate | None,
        reread: Callable[[], Config] | None,
        clock: Clock,
    ) -> None:
        self.config = config
        self.served = served
        self.config_error = self.certificate_error = ""
        self.reloads = Reloads()
        self.puller: Puller | None = None  # None without a table
        self._responder = responder
        self._monitor = monitor
        self._certificate = certificate
        self._reread = reread
        self._clock = clock
        self._wanted = asyncio.Event()
        self._busy = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks that reload on request, sign and pull when due, and log alarms."""
        for work, seconds, failure in (
            (self._reload_on_request, 0.0, "nothing reloaded"),
            (self._log_alarms, ALARM_INTERVAL, "alarms not looked at"),
            (self.sign_now, signer.CHECK_INTERVAL, "zones not signed"),
        ):
            self._tasks.append(asyncio.get_running_loop().create_task(_repeat(work, seconds, failure)))
        self._pull()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def request(self) -> None:
        """Request a reload. A request during a reload causes another one after it."""
        self._wanted.set()

    async def reload_now(self, zone: str | None = None, *, force: bool = False) -> dict[str, Any]:
        """Reload one zone, or the configuration and all zones. Returns the result for each zone, or an error."""
        reply = await self._reload(zone, force)
        zones = reply.get("zones")
        refused = "error" in reply or any(each["result"] == "refused" for each in zones or ())
        result = "failed" if zones is None else "refused" if refused else "done"
        counted = {result: getattr(self.reloads, result) + 1}
        self.reloads = replace(self.reloads, last=self._clock(), **counted)
        return reply

    async def _reload(self, zone: str | None, force: bool) -> dict[str, Any]:
        async with self._busy:
            process.notify(process.reloading())
            try:
                # In a thread, because parsing takes far longer than a query may wait.
                config, context, served, results = await in_thread(lambda: self._read(zone, force))
                reply: dict[str, Any] = {"zones": [result.to_dict() for result in results]}
                await self._adopt(config, context, served, results)
                if zone is None:
                    await self._read_certificate(reply)
            except (ConfigError, OSError) as error:
                if zone is None:
                    self.config_error = str(error)
                    log.error("configuration not reloaded, the old one stays in use: %s", error)
                return {"error": str(error)}
            else:
                if zone is None:
                    self.config_error = ""
                    self._pull()
                await self._log_alarms()
                return reply
            finally:
                process.notify(process.READY)

    def _pull(self) -> None:
        if self.puller is not None:
            self.puller.wake()
        elif settings.has_table(self.config):
            from maptr.server.puller import Puller  # late, for a fast start: imports HTTP, which few servers need

            self.puller = Puller(lambda: self.config, self.reload_now, clock=self._clock)
            self._tasks.append(asyncio.get_running_loop().create_task(self.puller.run()))

    def _read(self, zone: str | None, force: bool) -> tuple[Config, Context, Served, list[ZoneResult]]:
        """Read one zone, or the configuration and all zones. Raises ConfigError; OSError for the configuration file."""
        config, context, only = self.config, self._responder.context, None
        if zone is not None:
            only = settings.served_origin(zone, self.served.states)
        elif self._reread is not None:
            new = self._reread()
            settings.check_change(config, new)
            config, context = new, settings.context_of(new, context)
        served, results = publish(config.zones, self.served, clock=self._clock, only=only, force=force)
        return config, context, served, results

    async def sign_now(self) -> None:
        """Sign the zones whose keys have changed or whose signatures are due, without reading their files again."""
        async with self._busy:
            if any(zone.keys for zone in self.served.zones):
                served, results = await in_thread(lambda: sign_again(self.served, clock=self._clock))
                if results:
                    await self._adopt(self.config, self._responder.context, served, results)

    async def _read_certificate(self, reply: dict[str, Any]) -> None:
        if self._certificate is None:
            return
        self.certificate_error = await in_thread(self._certificate.reload)
        if self.certificate_error:
            reply["error"] = f"certificate not reloaded, the old one stays: {self.certificate_error}"

    async def _adopt(self, config: Config, context: Context, served: Served, results: list[ZoneResult]) -> None:
        """Serve what a reload has read, then log it and notify secondaries. Raises ConfigError."""
        before = self._responder.state

        def make() -> ServerState:
            snapshot = served.snapshot()
            return ServerState(snapshot, access_of(config, snapshot, self._clock(), before), context)

        state = await in_thread(make)
        self._responder.swap(state)
        self.config, self.served = config, served
        log_results(results)
        self._monitor.update(state, before)

    async def _log_alarms(self) -> None:
        log_alarms(self.served, self._clock())

    async def _reload_on_request(self) -> None:
        await self._wanted.wait()
        self._wanted.clear()
        await self.reload_now()


async def _repeat(work: Callable[[], Awaitable[None]], seconds: float, failure: str) -> None:
    """Do the work now, and again after a pause, until cancelled."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("internal error, %s", failure)
        await asyncio.sleep(seconds)
