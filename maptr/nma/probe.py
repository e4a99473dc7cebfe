"""Probes of mapping authorities: a few connections at a time, and never two at once to one address.

A probe sets up TCP, and TLS for https, and closes the connection without a request. Addresses that are not public are
refused.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from maptr import url
from maptr.errors import NmaError
from maptr.nma.reachable import ProbeFunction, can_connect
from maptr.registry.liveness import Probe, ProbeResult
from maptr.web import connect

CONCURRENCY = 8  # probes at a time
PAUSE = 2.0  # seconds between two probes of one address, whatever the host names
SECONDS = 5.0  # for one probe
MIN_AGE = 3600.0  # seconds before the same place may be probed again


@dataclass(slots=True)
class _Gate:
    """One address: locked during a probe, and closed for a pause afterwards."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    open_at: float = 0.0


class Prober:
    """Probes the places of mapping authorities. ``look_up`` has the signature of ``connect.look_up``."""

    def __init__(
        self,
        *,
        concurrency: int = CONCURRENCY,
        seconds: float = SECONDS,
        pause: float = PAUSE,
        allow_private: bool = False,
        ask: ProbeFunction | None = None,
        look_up: Callable[[str, int, float], list[str]] = connect.look_up,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._concurrency = concurrency
        self._seconds = seconds
        self._pause = pause
        self._allow_private = allow_private
        self._ask = ask or can_connect(allow_private=allow_private)
        self._look_up = look_up
        self._clock, self._wall, self._sleep = clock, wall, sleep
        self._gates: dict[str, _Gate] = {}
        self._lock = threading.Lock()

    def probe(self, places: Iterable[str]) -> Iterator[Probe]:
        """Probe each place once; the results come as the probes end."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        done: queue.SimpleQueue[Probe | BaseException] = queue.SimpleQueue()
        count = 0
        for place in dict.fromkeys(places):
            waiting.put(place)
            count += 1
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    done.put(self.one(waiting.get_nowait()))
                except queue.Empty:
                    return
                except BaseException as error:
                    done.put(error)

        for _ in range(min(self._concurrency, count)):
            threading.Thread(target=work, name="maptr-probe", daemon=True).start()
        try:
            for _ in range(count):
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            stop.set()

    def one(self, place: str) -> Probe:
        """Probe one place, after the pause that its address needs."""
        try:
            where = url.parse(place)
        except ValueError as error:
            return Probe(place, self._wall(), ProbeResult.NOT_ASKED, str(error))
        if where.host.is_local and not self._allow_private:
            return Probe(place, self._wall(), ProbeResult.NOT_ASKED, "not a public host")
        try:
            addresses = self._look_up(where.host.text, where.port or connect.PORTS[where.scheme], self._seconds)
        except NmaError as error:
            return Probe(place, self._wall(), ProbeResult.SILENT, str(error))
        if not self._allow_private and all(map(connect.is_local, addresses)):
            return Probe(place, self._wall(), ProbeResult.NOT_ASKED, f"{addresses[0]} is not a public address")
        gate = self._gate(addresses[0])
        with gate.lock:
            if (wait := gate.open_at - self._clock()) > 0:
                self._sleep(wait)
            try:
                self._ask(where, self._seconds)
            except NmaError as error:
                return Probe(place, self._wall(), ProbeResult.SILENT, str(error))
            finally:
                gate.open_at = self._clock() + self._pause
        return Probe(place, self._wall(), ProbeResult.ANSWERED)

    def _gate(self, address: str) -> _Gate:
        with self._lock:
            return self._gates.setdefault(address, _Gate())
