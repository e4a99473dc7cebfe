"""The alarm over signatures: zones whose signatures have ended or soon will, said in the log.

At start, after each reload and once a day. Status and metrics ask ``maptr.signatures.signature_state`` themselves.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from maptr.names import Labels, to_text
from maptr.serve.background import in_thread
from maptr.signatures import EXPIRING, Signatures, SignatureState, signature_state
from maptr.snapshot import Snapshot

log = logging.getLogger("maptr.serve")

NO_OTHER: Mapping[Labels, int] = MappingProxyType({})
INTERVAL = 86400.0  # seconds; signatures.EXPIRING is two days, so nobody misses it


def tell(snapshot: Snapshot, now: float, expiring: Mapping[Labels, int] = NO_OTHER) -> None:
    """A line for each zone whose signatures need attention, by the seconds before their end that are given for some
    zones, or EXPIRING. Looks at every signature, so it belongs in a thread."""
    for zone in snapshot.zones.values():
        found = signature_state(zone, now, expiring=expiring.get(zone.origin, EXPIRING))
        if found.is_alarm:
            level = logging.WARNING if found.state is Signatures.EXPIRING else logging.ERROR
            log.log(level, "zone %s: %s", to_text(zone.origin), words(found, now))


def words(found: SignatureState, now: float) -> str:
    """What is wrong with signatures that are an alarm, and what to do."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.expires))
    if found.state is Signatures.NOT_YET:
        return "signatures are not valid yet: validators answer SERVFAIL; is a clock wrong?"
    if found.state is Signatures.EXPIRED:
        return f"signatures expired at {end}: validators answer SERVFAIL; sign the zone again"
    return f"signatures expire at {end}, in {((found.expires or 0) - now) / 3600:.0f} hours; sign the zone again"


async def watch(
    current: Callable[[], Snapshot],
    expiring: Callable[[], Mapping[Labels, int]] = lambda: NO_OTHER,
    *,
    clock: Callable[[], float] = time.time,
    interval: float = INTERVAL,
) -> None:
    """Tell now and every ``interval`` seconds, until cancelled."""
    while True:
        try:
            await in_thread(functools.partial(tell, current(), clock(), expiring()))
        except Exception:
            log.exception("internal error, signatures not looked at")
        await asyncio.sleep(interval)
