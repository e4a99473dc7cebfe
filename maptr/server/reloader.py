"""The reloader, which keeps the responder's state current: reloads, new signatures and pulled tables.

A reload takes effect as a whole, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from maptr.answer.context import Context
from maptr.config import Config
from maptr.daemon.background import Background, Repetitions, announced_reload
from maptr.daemon.certificate import Certificate
from maptr.daemon.process import in_thread
from maptr.errors import ConfigError, reason_of
from maptr.protocol.names import Folded, to_text
from maptr.server import catalog, freeze, settings, signer, state_folder
from maptr.server.alarm import Alarm, AlarmKind, AlarmLog
from maptr.server.catalog import Catalog
from maptr.server.journals import journals_of
from maptr.server.publisher import Others, keep, log_results, publish, sign_again
from maptr.server.responder import Responder, ServerState
from maptr.server.secondaries import SecondaryMonitor
from maptr.server.serials import SecondarySerials
from maptr.server.state import Clock, Served, snapshot_of
from maptr.server.status import ReloadResult, Reloads, ZoneResult
from maptr.transfer.session import Access

if TYPE_CHECKING:
    from maptr.server.puller import Puller

log = logging.getLogger("maptr.serve")

KEEP_INTERVAL = 60.0  # seconds between attempts to keep versions for the next start
KEEP_AT_ONCE = 50  # versions
ALARM_INTERVAL = 10.0  # seconds between checks that log and date the alarms


class Reloader:
    """Keeps the responder's state up to date.

    ``config`` is the current configuration, which a reload rereads with ``reread``.
    """

    def __init__(
        self,
        config: Config,
        served: Served,
        responder: Responder,
        *,
        certificate: Certificate | None,
        reread: Callable[[], Config] | None,
        clock: Clock,
    ) -> None:
        self.config = config
        self.served = served
        self.config_error = ""
        self.reloads = Reloads()
        self.puller: Puller | None = None  # None without a table
        self._responder = responder
        self.monitor = SecondaryMonitor(clock, config.serve.secondaries)
        self.certificate = certificate
        self._reread = reread
        self._clock = clock
        self.catalog = Catalog()
        self._serials = SecondarySerials(self.monitor, clock)
        self.frozen = freeze.load(config.serve.state, clock())
        self._logged = Repetitions()
        self._alarms = AlarmLog()
        self.background = Background(self.reload_now)
        self._busy = asyncio.Lock()

    def start(self) -> None:
        """Start to reload on request, to sign and pull when due, to look at alarms, and to monitor secondaries."""
        self.monitor.update(self._responder.state, self.served)
        self.background.start()
        self.background.repeat(KEEP_INTERVAL, self.keep_now, "versions not kept for the next start")
        self.background.repeat(ALARM_INTERVAL, self.look_at_alarms, "alarms not checked")
        self.background.repeat(signer.CHECK_INTERVAL, self.sign_now, "zones not signed")
        self._pull()

    async def stop(self) -> None:
        await self.background.stop()
        await self.monitor.stop()

    async def reload_now(
        self, zone: Folded | None = None, *, force: bool = False, by_operator: bool = False
    ) -> ReloadResult:
        """Reload one of the served zones, or the configuration and all zones.

        A reload ``by_operator``, or of all zones, ends the alarms about damaged files in the state folder.
        """
        async with self._busy:
            with announced_reload():
                found = await self._reload(zone, force, by_operator=by_operator or zone is None)
        outcome = "failed" if found.zones is None else "refused" if found.is_refused else "done"
        counted = {outcome: getattr(self.reloads, outcome) + 1}
        self.reloads = replace(self.reloads, last=self._clock(), **counted)
        return found

    async def _reload(self, zone: Folded | None, force: bool, *, by_operator: bool) -> ReloadResult:
        error = ""
        try:
            # In a thread: parsing would block queries for too long.
            config, context, served, results = await in_thread(lambda: self._read(zone, force, by_operator=by_operator))
            await self._adopt(config, context, served, results, passing=zone is None)
        except (ConfigError, OSError) as refused:
            error = reason_of(refused)
            if zone is None:
                self.config_error = error
                await self.look_at_alarms([AlarmKind.CONFIG_REFUSED])
            return ReloadResult(error=error)
        if zone is None:
            if self.certificate is not None:
                await in_thread(self.certificate.reload)
                error = self.certificate.refusal()
            self.config_error = ""
            await in_thread(lambda: state_folder.tidy(catalog.in_effect(config, self.served), self._clock()))
            self._pull()
            self.log_cookies()
        await self.look_at_alarms([AlarmKind.CERTIFICATE_REFUSED] if zone is None else ())
        return ReloadResult(tuple(results), error)

    def log_cookies(self) -> None:
        """Log why enabled cookies are off, if that is new. If they are explicitly configured, that is an alarm."""
        reason = "" if settings.missing_cookies(self.config) else settings.why_no_cookies(self.config)
        if self._logged.is_new("cookies", reason):
            log.info("%s", reason)

    def _pull(self) -> None:
        if self.puller is not None:
            self.puller.wanted.set()
        elif settings.has_table(self.config):
            from maptr.server.puller import Puller  # late, for a fast start: few servers need it

            self.puller = Puller(lambda: self.config, self.reload_now, clock=self._clock, frozen=lambda: self.frozen)
            self.background.repeat(
                self.puller.pause, self.puller.publish_and_pull, "table not pulled", wanted=self.puller.wanted
            )
            self.background.repeat(0.0, self.puller.look_for_drift, "servers not compared with the table")

    def _read(
        self, zone: Folded | None, force: bool, *, by_operator: bool
    ) -> tuple[Config, Context, Served, list[ZoneResult]]:
        """Read one zone, or the configuration and all zones. Raises ConfigError; OSError for the configuration file."""
        config, context = self.config, self._responder.state.context
        if zone is not None:
            if zone in catalog.held_in(config, self.served):
                raise ConfigError(f"zone {to_text(zone)} is not configured; maptr reload --force removes it")
        elif self._reread is not None:
            new = self._reread()
            settings.check_change(config, new)
            if self.frozen.is_unread:
                self.frozen = freeze.load(new.serve.state, self._clock())
            config, context = new, settings.context_of(new, context)
        current = self.served
        if by_operator:
            self.catalog.damaged = ""
            current = {
                origin: replace(state, damaged=()) if zone in (None, origin) else state
                for origin, state in current.items()
            }
        served, results = publish(
            config.zones,
            current,
            clock=self._clock,
            only=zone,
            force=force,
            frozen=self.frozen,
            others=self.others(config),
        )
        for origin in self._held(config, force=force, whole=zone is None):
            served = {**served, origin: catalog.held_state(current[origin], config)}
            results = [each for each in results if each.zone != to_text(origin)]
            results += [catalog.held_result(served[origin])] if zone is None else []
        return config, context, served, results

    def _held(self, config: Config, *, force: bool, whole: bool) -> Iterable[Folded]:
        """Return the zones that remain members of the catalog although they are not configured."""
        if not whole:
            return catalog.held_in(config, self.served)
        before = self._responder.state.access.catalog
        if force or before is None or config.serve.catalog.name != before.origin:
            return ()
        configured = {zone.name for zone in config.zones}
        return catalog.lost_members(self.served, configured, catalog.held_in(self.config, self.served))

    async def sign_now(self, *, retry: bool = False) -> ReloadResult:
        """Sign the zones with ``sign_again``."""
        results: list[ZoneResult] = []
        async with self._busy:
            if any(state.zone.keys for state in self.served.values()):
                others = self.others(self.config)
                served, results = await in_thread(
                    lambda: sign_again(self.served, clock=self._clock, retry=retry, others=others)
                )
                if results:
                    await self._adopt(self.config, self._responder.state.context, served, results)
        if results:
            await self.look_at_alarms()
        return ReloadResult(tuple(results))

    async def keep_now(self) -> None:
        """Keep the served versions for the next start, and set aside those of zones that are no longer configured."""
        due = [origin for origin, state in self.served.items() if not state.is_kept]
        for start in range(0, len(due), KEEP_AT_ONCE):  # in parts, so that a reload need not wait for all of them
            some = frozenset(due[start : start + KEEP_AT_ONCE])
            async with self._busy:
                self.served = await in_thread(partial(keep, self.served, some))
        async with self._busy:
            folder = self.config.serve.state
            if self.frozen.unstored and folder is not None:
                self.frozen = await in_thread(partial(freeze.stored, folder, self.frozen))
            await in_thread(lambda: state_folder.tidy(catalog.in_effect(self.config, self.served), self._clock()))

    async def set_frozen(self, origin: Folded | None, *, is_frozen: bool) -> tuple[str, str]:
        """Freeze or thaw a zone, or all; a due pull of the table is made. Returns what was done, and why it lasts only
        until a restart, "" if it survives one. Raises ConfigError, and ZoneError for a zone that was not frozen.
        """
        folder = self.config.serve.state
        if folder is None:
            raise ConfigError("a freeze survives restarts, so it needs a state folder: set serve.state")
        async with self._busy:
            before = self.frozen
            changed = before.freeze(origin, self._clock()) if is_frozen else before.thaw(origin)
            self.frozen = frozen = await in_thread(lambda: freeze.stored(folder, changed))
            self.served = {name: replace(each, frozen=frozen.since(name)) for name, each in self.served.items()}
        if self.puller is not None:
            self.puller.wanted.set()
        await self.look_at_alarms()
        text = "all zones are" if origin is None else f"zone {to_text(origin)} is"
        return f"{text} {'frozen' if is_frozen else 'thawed'}", frozen.not_stored()

    async def _adopt(
        self,
        config: Config,
        context: Context,
        served: Served,
        results: list[ZoneResult],
        *,
        passing: bool = False,
    ) -> None:
        """Serve what a reload has read, log it, and notify secondaries. Raises ConfigError and OSError."""
        before = self._responder.state
        # In a thread: with thousands of zones, it would block queries for too long.
        state = await in_thread(lambda: self._state_of(config, context, served, before, passing=passing))
        self._responder.swap(state)
        self.config, self.served = config, served
        await in_thread(lambda: log_results(results))
        self.monitor.settings = config.serve.secondaries
        self.monitor.update(state, served)

    def others(self, config: Config) -> Others:
        """Return the function that gives the serials of a zone's secondaries, which its next serial passes."""
        return self._serials.of(config, settings.silences_of(config))

    def first_state(self) -> ServerState:
        """Return the state with which the server starts. Reads the journals.

        Zones that are no longer configured are served as well, if the catalog would lose too many members otherwise.
        """
        origin, folder = settings.catalog_origin(self.config), self.config.serve.state
        if origin is not None and folder is not None and (before := self.catalog.read(folder, origin)) is not None:
            lost = catalog.lost_members(before.members, {zone.name for zone in self.config.zones}, before.held)
            kept = {name: catalog.kept_state(name, folder, self.config, self._clock()) for name in lost}
            self.served = {**self.served, **kept}
        return self._state_of(self.config, self._responder.state.context, self.served, None)

    def _state_of(
        self,
        config: Config,
        context: Context,
        served: Served,
        before: ServerState | None,
        *,
        passing: bool = False,
    ) -> ServerState:
        """Return the responder's state. ``passing``: the catalog passes secondaries that are ahead of it."""
        others = self.others(config)
        self.catalog.held = tuple(catalog.held_in(config, served))
        config = catalog.in_effect(config, served)
        journals = journals_of(config.zones, served, before, self._logged)
        last = None if before is None else before.access.catalog
        members = self.catalog.following(config, last, self._clock(), others, passing=passing)
        access = Access(settings.keys_of(config), settings.secondaries_of(config), journals, members)
        return ServerState(snapshot_of(served), access, context)

    # ---- alarms

    async def look_at_alarms(self, again: Container[AlarmKind] = ()) -> None:
        await in_thread(lambda: self.alarms(again))

    def alarms(self, again: Container[AlarmKind] = ()) -> tuple[Alarm, ...]:
        """Return the present alarms, and log new ones, those of the kinds ``again``, and the end of old ones. This
        takes long with many zones: call it in a thread."""
        now = self._clock()
        return self._alarms.dated(self._present_alarms(now), now, again)

    def _present_alarms(self, now: float) -> Iterator[Alarm]:
        if error := self.config_error:
            text = f"configuration not reloaded, keeping the old one: {error}; correct it, then maptr reload"
            yield Alarm(AlarmKind.CONFIG_REFUSED, text)
        if (certificate := self.certificate) is not None:
            if refusal := certificate.refusal():
                yield Alarm(AlarmKind.CERTIFICATE_REFUSED, f"{refusal}; correct it, then maptr reload")
            if trouble := certificate.trouble(now):
                version = certificate.version(now)
                yield Alarm(AlarmKind.CERTIFICATE, trouble, level=logging.WARNING, version=version)
        if reason := settings.missing_cookies(self.config):
            yield Alarm(AlarmKind.COOKIES_OFF, reason, level=logging.WARNING)
        folder, is_unusable = self.config.serve.state, False
        if folder is not None and (reason := state_folder.fault(folder)):
            is_unusable = True
            text = f"nothing can be kept for the next start: {reason}"
            yield Alarm(AlarmKind.STATE_FOLDER, text, level=logging.WARNING)
        if self.puller is not None:
            yield from self.puller.alarms()
        yield from self.frozen.alarms(self.served)
        kept = [*self.catalog.alarms(self.config, self.served)]
        for state in self.served.values():
            kept += state.alarms(now)
        # An unwritable folder is one alarm, not one for each zone.
        yield from (alarm for alarm in kept if not (is_unusable and alarm.kind is AlarmKind.ZONE_NOT_KEPT))
        yield from self.monitor.alarms()
