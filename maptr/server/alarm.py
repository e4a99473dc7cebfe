"""The alarms that the log repeats: signatures that have ended or soon will, and records that a zone lacks.

At start, after each reload and once a day. Status and metrics have the same from the same ``ZoneState``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from maptr.dnssec.expiry import Signatures, SignatureState
from maptr.protocol.names import to_text

if TYPE_CHECKING:
    from maptr.server.state import Served

log = logging.getLogger("maptr.serve")

INTERVAL = 86400.0  # seconds; signatures.EXPIRING is two days, so nobody misses it


def tell(served: Served, now: float) -> None:
    """A line for each zone whose signatures need attention, and for each that lacks records of its table."""
    for origin, state in served.states.items():
        found = state.signatures(now)
        if found.is_alarm:
            level = logging.WARNING if found.state is Signatures.EXPIRING else logging.ERROR
            log.log(level, "zone %s: %s", to_text(origin), words(found, now))
        if state.left_out and state.left_out.records:
            level = logging.ERROR if state.left_out.answered_by_others else logging.WARNING
            log.log(level, "zone %s: of its table %s", to_text(origin), state.left_out)


def words(found: SignatureState, now: float) -> str:
    """What is wrong with signatures that are an alarm, and what to do."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.expires))
    if found.state is Signatures.NOT_YET:
        return "signatures are not valid yet: validators answer SERVFAIL; is a clock wrong?"
    if found.state is Signatures.EXPIRED:
        return f"signatures expired at {end}: validators answer SERVFAIL; sign the zone again"
    return f"signatures expire at {end}, in {((found.expires or 0) - now) / 3600:.0f} hours; sign the zone again"


async def watch(
    current: Callable[[], Served], *, clock: Callable[[], float] = time.time, interval: float = INTERVAL
) -> None:
    """Tell now and every ``interval`` seconds, until cancelled."""
    while True:
        try:
            tell(current(), clock())
        except Exception:
            log.exception("internal error, alarms not looked at")
        await asyncio.sleep(interval)
