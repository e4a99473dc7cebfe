"""Mapping authorities by their probes: the list of the page ``/servers``, and its feed (RFC 4287)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import escape

from maptr.errors import time_text, visible
from maptr.gateway.site import Site
from maptr.reconcile.probes import CERTIFICATE_WARNING, Liveness, Period

DAY = 86_400.0
DAYS = 90  # of a picture
MAX_FEED = 100  # entries of a feed


class Outage(NamedTuple):
    """A period without an answer, its end (None if it goes on), and its place in a picture that is DAYS wide."""

    period: Period
    until: float | None
    x: float
    width: float


class Picture(NamedTuple):
    """The outages of a server within DAYS, the latest first, and where the picture begins: at the first probe."""

    x: float
    outages: list[Outage]


def picture(one: Liveness, now: float) -> Picture:
    """Return the outages of a server. An outage ends with the first probe that is answered."""

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
    """Return all servers: those that do not answer, the latest first; those whose certificate ends; the others."""

    def rank(one: Liveness) -> tuple[bool, bool, float, str]:
        changed = (one.since or 0.0) if one.failures or len(one.history) > 1 else 0.0
        return not one.failures, not one.certificate_ends_soon(now), -changed, one.place

    return sorted(site.liveness.values(), key=rank)


class _Change(NamedTuple):
    place: str
    at: float
    kind: str  # distinguishes the changes of a server at one time
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


def feed(site: Site, now: float) -> bytes:
    """Return the changes of all servers, the latest first, as a feed."""
    name = site.settings.name or "maptr"
    base = f"{site.settings.public_url or f'urn:maptr:{quote(name)}'}/servers"
    page = f"{site.settings.public_url}/servers"
    changes = [change for one in site.liveness.values() for change in _changes(one, now)]
    latest = sorted(changes, key=lambda change: (-change.at, change.place))[:MAX_FEED]
    entries = "".join(
        f"<entry><id>{escape(f'{base}#{one.place}@{one.kind}{int(one.at)}')}</id>"
        f'<title>{escape(f"{one.place} {one.what}")}</title><link href="{escape(page)}"/>'
        f"<updated>{time_text(one.at)}</updated>"
        f"<summary>{escape(visible(one.note))}</summary></entry>\n"
        for one in latest
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom"><id>{escape(base)}</id>'
        f'<link href="{escape(page)}"/><link rel="self" href="{escape(page)}.atom"/>'
        f"<title>Changes of mapping authorities</title><updated>{time_text(latest[0].at if latest else 0)}</updated>"
        f"<author><name>{escape(name)}</name></author>\n{entries}</feed>\n"
    ).encode()
