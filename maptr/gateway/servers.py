"""Mapping authorities and their probes: the list on the page ``/servers``, and its feed (RFC 4287)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from maptr.errors import time_text
from maptr.gateway.site import Site
from maptr.reconcile.probes import CERTIFICATE_WARNING, Liveness, Period

DAY = 86_400.0
DAYS = 90  # in a picture
MAX_FEED = 100  # entries in a feed


class Outage(NamedTuple):
    """A period without an answer: its end (None while it lasts), and its place in a picture that is DAYS wide."""

    period: Period
    until: float | None
    x: float
    width: float


class Picture(NamedTuple):
    """A server's outages within DAYS, latest first, and where the picture begins: at the first probe."""

    x: float
    outages: list[Outage]


def picture(one: Liveness, now: float) -> Picture:
    """Return a server's outages. An outage ends with the first probe that is answered."""

    def place(at: float) -> float:
        return round(max(0.0, DAYS - (now - at) / DAY), 2)

    found: list[Outage] = []
    until: float | None = None
    for period in one.history:
        end = place(now if until is None else until)
        if period.fault is not None and end > 0:
            x = max(0.0, min(place(period.since), end - 1))  # visible, however short
            found.append(Outage(period, until, x, round(end - x, 2)))
        until = period.since
    return Picture(place(now if until is None else until), found)


def in_order(site: Site, now: float) -> list[Liveness]:
    """Return all servers: those that do not answer, latest first; those whose certificate expires soon; the others."""

    def rank(one: Liveness) -> tuple[bool, bool, float, str]:
        changed = (one.since or 0.0) if one.failures or len(one.history) > 1 else 0.0
        return not one.failures, not one.certificate_ends_soon(now), -changed, one.place

    return sorted(site.liveness.values(), key=rank)


class _Change(NamedTuple):
    place: str
    at: float
    kind: str  # distinguishes a server's simultaneous changes
    what: str
    note: str = ""


def _changes(one: Liveness, now: float) -> Iterator[_Change]:
    for number, period in enumerate(one.history, 1):
        if period.fault is not None:
            yield _Change(one.place, period.since, "", "does not answer", period.note)
        elif number < len(one.history):
            yield _Change(one.place, period.since, "", "answers again")
    if one.certificate_end is not None and one.certificate_ends_soon(now):
        date = time_text(one.certificate_end)
        yield _Change(
            one.place, one.certificate_end - CERTIFICATE_WARNING, "certificate", f"has a certificate until {date}"
        )
        if one.certificate_end <= now:
            yield _Change(one.place, one.certificate_end, "certificate", "has an expired certificate")


def feed(site: Site, now: float) -> dict[str, Any]:
    """Return the values for the feed's template: the changes of all servers, latest first."""
    name, base = site.settings.name or "maptr", site.settings.public_url
    changes = [change for one in site.liveness.values() for change in _changes(one, now)]
    latest = sorted(changes, key=lambda change: (-change.at, change.place))[:MAX_FEED]
    own = base or f"urn:maptr:{quote(name)}"
    return {"name": name, "base": f"{own}/servers", "page": f"{base}/servers", "changes": latest}
