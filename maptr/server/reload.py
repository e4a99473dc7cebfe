"""Replaces what is served: a reload, zones signed again, a pulled table.

The next state is made in a thread beside the current one, and then swapped in as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maptr.answer.context import Context
from maptr.config import Config
from maptr.errors import ConfigError
from maptr.server import settings, signer, status, systemd
from maptr.server.background import in_thread
from maptr.server.connections import Certificate
from maptr.server.primary import Primary
from maptr.server.publisher import log_results, publish, sign_again
from maptr.server.responder import Responder, ServerState
from maptr.server.state import Clock, Served, ZoneResult

if TYPE_CHECKING:
    from maptr.server.puller import Puller

log = logging.getLogger("maptr.serve")


@dataclass(frozen=True, slots=True)
class _Next:
    """Everything that a reload swaps in, and the result for each zone."""

    config: Config | None
    served: Served
    state: ServerState
    results: list[ZoneResult]


class Reloader:
    """Keeps the responder's state up to date.

    ``config`` is the current configuration. With ``reread`` a reload reads it again; otherwise the zones stay the same.
    """

    def __init__(
        self,
        responder: Responder,
        primary: Primary,
        served: Served,
        *,
        certificate: Certificate | None,
        config: Config | None,
        reread: Callable[[], Config] | None,
        clock: Clock,
    ) -> None:
        self.served = served
        self.config = config
        self.config_error = self.certificate_error = ""
        self.counts: dict[str, Any] = {"done": 0, "refused": 0, "failed": 0, "last": None}  # as the status shows them
        self.puller: Puller | None = None  # if there is a table
        self._responder = responder
        self._primary = primary
        self._certificate = certificate
        self._reread = reread
        self._clock = clock
        self._wanted = asyncio.Event()
        self._busy = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _state(self) -> ServerState:
        assert self._responder.state is not None  # noqa: S101 - the daemon has set it
        return self._responder.state

    def start(self) -> None:
        """From now on reload on request, sign and pull when due, and log alarms."""
        loop = asyncio.get_running_loop()
        alarms = status.log_alarms_daily(lambda: self.served, clock=self._clock)
        self._tasks += [loop.create_task(work) for work in (self._reload_on_request(), alarms, self._sign_when_due())]
        self._pull()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def request(self) -> None:
        """Request a reload soon; a request during a reload causes one more after it."""
        self._wanted.set()

    async def reload_now(self, zone: str | None = None, *, force: bool = False) -> dict[str, Any]:
        """Reload one zone, or the configuration and every zone: the result for each, or the error that stopped it."""
        reply = await self._reload(zone, force)
        zones = reply.get("zones")
        refused = "error" in reply or any(each["result"] == "refused" for each in zones or ())
        result = "failed" if zones is None else "refused" if refused else "done"
        self.counts = {**self.counts, result: self.counts[result] + 1, "last": status.time_text(self._clock())}
        return reply

    async def _reload(self, zone: str | None, force: bool) -> dict[str, Any]:
        async with self._busy:
            systemd.notify(systemd.reloading())
            secondaries = self._primary.settings
            try:
                # In a thread, as parsing takes far longer than a query may wait.
                following = await in_thread(lambda: self._read(zone, force))
                reply: dict[str, Any] = {"zones": [result.to_dict() for result in following.results]}
                if zone is None:
                    await self._read_certificate(reply)
                self._adopt(following)
            except (ConfigError, OSError) as error:
                self._primary.settings = secondaries
                if zone is None:
                    self.config_error = str(error)
                    log.error("configuration not reloaded, everything stays: %s", error)
                return {"error": str(error)}
            else:
                if zone is None:
                    self.config_error = ""
                    self._pull()
                status.log_alarms(following.served, self._clock())
                return reply
            finally:
                systemd.notify(systemd.READY)

    def _pull(self) -> None:
        """Pull the table now, and regularly from now on, if there is one."""
        if self.puller is not None:
            self.puller.wake()
        elif self.config is not None and settings.has_table(self.config):
            from maptr.server.puller import Puller  # late, for a start: HTTP and the cache, which few servers need

            self.puller = Puller(lambda: self.config, self.reload_now, clock=self._clock)
            self._tasks.append(asyncio.get_running_loop().create_task(self.puller.run()))

    def _read(self, zone: str | None, force: bool) -> _Next:
        """Make the next state. Raises ConfigError, and OSError for the configuration file."""
        config, context, only = self.config, self._responder.context, None
        if zone is not None:
            only = settings.served_origin(zone, self.served.states)
        elif self._reread is not None:
            new = self._reread()
            if config is not None:
                settings.check_change(config, new)
            config, context = new, settings.renewed(context, new)
        sources = self.served.sources if config is None else settings.sources_of(config)
        served, results = publish(sources, self.served, clock=self._clock, only=only, force=force)
        if config is not None:
            self._primary.settings = settings.primary_of(config)
        return self._next(config, served, context, results)

    async def sign_now(self) -> None:
        """Sign the zones whose keys have changed or whose signatures are due, as their files were last read."""
        async with self._busy:
            signs = any(state.source.signing for state in self.served.states.values())
            if signs and (following := await in_thread(self._sign)) is not None:
                self._adopt(following)

    def _sign(self) -> _Next | None:
        """The next state with new signatures; None if none are due."""
        served, results = sign_again(self.served, clock=self._clock)
        return self._next(self.config, served, self._responder.context, results) if results else None

    def _next(self, config: Config | None, served: Served, context: Context, results: list[ZoneResult]) -> _Next:
        snapshot = served.snapshot()
        access = self._primary.follow(self._state.access, served.sources, self._state.snapshot, snapshot)
        return _Next(config, served, ServerState(snapshot, access, context), results)

    async def _read_certificate(self, reply: dict[str, Any]) -> None:
        if self._certificate is None:
            return
        self.certificate_error = await in_thread(self._certificate.reload)
        if self.certificate_error:
            reply["error"] = f"certificate not reloaded, the old one stays: {self.certificate_error}"

    def _adopt(self, following: _Next) -> None:
        """Answer from the next state, then log it and notify secondaries."""
        before, state = self._state, following.state
        self._responder.swap(state)
        self.config, self.served = following.config, following.served
        log_results(following.results)
        self._primary.notify(state.access, state.snapshot, before.snapshot, before.access)

    async def _sign_when_due(self) -> None:
        while True:
            try:
                await self.sign_now()
            except Exception:
                log.exception("internal error, zones not signed")
            await asyncio.sleep(signer.CHECK_INTERVAL)

    async def _reload_on_request(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.reload_now()
            except Exception:
                log.exception("internal error, nothing reloaded")
