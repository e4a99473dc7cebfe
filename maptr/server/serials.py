"""The secondaries' serials, which the next serial that the server chooses passes.

A serial names one content. If the state folder is lost or restored from a backup, the server does not know which
serials it gave, but its secondaries do. ``protocol/serial.py`` chooses the next serial from them, for zones from files
and tables (``zone/diff.py``, ``table_zone.py``), signed zones (``dnssec/sign.py``) and the catalog (``catalog.py``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable

from maptr.config import Config
from maptr.protocol.address import Address
from maptr.protocol.names import Folded, to_text
from maptr.server.alarm import Alarm, AlarmKind, Silence
from maptr.server.publisher import Others
from maptr.server.requests import NoAnswer, NoResponse, exchange, make_request, read_serial
from maptr.server.secondaries import AT_ONCE, Replica, SecondaryMonitor, source_for
from maptr.server.settings import keys_of, secondaries_of
from maptr.server.state import Clock
from maptr.transfer.acl import NotifyTarget

log = logging.getLogger("maptr.serve")

WAIT = 3.0  # seconds for all secondaries to answer


class SecondarySerials:
    """The serials that the monitor knows, and those of secondaries that it has not queried yet.

    ``of`` returns the serials to pass with a configuration. It is for one thread at a time.
    """

    def __init__(self, monitor: SecondaryMonitor, clock: Clock) -> None:
        self._monitor = monitor
        self._clock = clock
        self._answers: dict[Replica, int | None] = {}

    def of(self, config: Config, silences: Iterable[Silence]) -> Others:
        """Return the function that gives the serials of a zone's secondaries.

        Its first call queries all secondaries that were never queried, and waits at most WAIT seconds. Secondaries
        whose alarm ``secondary-behind`` is silenced have independent serials, and are left out.
        """
        silences = tuple(silences)
        given = {zone.name for zone in config.zones if zone.style == "file" and zone.keys is None}
        targets = {
            origin: [target for target in each.notify if not _has_own_serials(origin, target, silences)]
            for origin, each in secondaries_of(config).items()
            if origin not in given
        }

        def others(origin: Folded) -> list[int]:
            mine = [(origin, target) for target in targets.get(origin, ())]
            if any(not self._is_known(replica) for replica in mine):
                replicas = [(origin, target) for origin, some in targets.items() for target in some]
                self._ask(config, [replica for replica in replicas if not self._is_known(replica)])
            asked = [self._answers.get(each) for each in mine if not self._monitor.was_asked(*each)]
            known = self._monitor.serials(origin, [target for _, target in mine])
            return [*known, *(serial for serial in asked if serial is not None)]

        return others

    def _is_known(self, replica: Replica) -> bool:
        return replica in self._answers or self._monitor.was_asked(*replica)

    def _ask(self, config: Config, replicas: list[Replica]) -> None:
        count = len(replicas)
        what = "because the next serial must pass theirs"
        log.info("asking secondaries for %d serials, for %.0f s at most, %s", count, WAIT, what)
        answers: dict[Replica, int | None] = dict.fromkeys(replicas)
        # In another thread, because this one may have an event loop.
        thread = threading.Thread(
            target=lambda: asyncio.run(_ask_all(config, replicas, self._clock, answers)), daemon=True
        )
        thread.start()
        thread.join()
        self._answers |= answers


def _has_own_serials(origin: Folded, target: NotifyTarget, silences: Iterable[Silence]) -> bool:
    alarm = Alarm(AlarmKind.SECONDARY_BEHIND, "", to_text(origin), str(target))
    return any(silence.covers(alarm) for silence in silences)


async def _ask_all(
    config: Config, replicas: Iterable[Replica], clock: Clock, answers: dict[Replica, int | None]
) -> None:
    """Query secondaries' serials, and note the answers that arrive in time."""
    keys, sources = keys_of(config), config.serve.secondaries.source
    slots = defaultdict[Address, asyncio.Semaphore](lambda: asyncio.Semaphore(AT_ONCE))

    async def ask(replica: Replica) -> None:
        origin, target = replica
        key = None if target.key is None else keys.get(target.key)
        try:
            async with slots[target.address]:
                source = source_for(target.address, sources)
                # Once more, in case a packet was lost.
                for timeout in (WAIT / 3, WAIT):
                    try:
                        found = await exchange(make_request(origin), target, key, clock, timeout, source)
                        answers[replica] = read_serial(found)
                        return
                    except NoAnswer:
                        continue
        except NoResponse as error:
            log.info("zone %s: secondary %s does not tell its serial: %s", to_text(origin), target, error)

    tasks = [asyncio.ensure_future(ask(replica)) for replica in replicas]
    await asyncio.wait(tasks, timeout=WAIT)
    for task in tasks:
        task.cancel()
