"""Liveness of mapping authorities: the results of probes. ``maptr.nma.reachable`` sends them.

Liveness is advisory: it never removes a candidate. A server that did not answer several probes in a row is *suspect*:
its candidates are tried last, and reports name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from maptr import url
from maptr.registry.table import Table
from maptr.registry.target import example_url

SUSPECT_AFTER = 3  # unanswered probes in a row
TRUSTED_FOR = 604_800.0  # seconds for which the last probe is valid

Suspects = Callable[[url.Url], bool]
"""Returns True for a server that is suspect."""


class ProbeResult(StrEnum):
    """How a probe ended. A place that is not asked (a private address, not an http URL) has not failed."""

    ANSWERED = "answered"
    SILENT = "silent"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a place, such as ``https://ark.example.org:8443``; ``at`` is in seconds since 1970."""

    place: str
    at: float
    outcome: ProbeResult
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Liveness:
    """The state of a place: ``failures`` in a row, the first at ``since``, the last at ``at``."""

    place: str
    at: float
    answered_at: float | None = None
    failures: int = 0
    since: float | None = None
    note: str = ""

    @classmethod
    def of(cls, place: str, probes: Iterable[tuple[float, bool, str]]) -> Liveness:
        """The state after some probes, given as (time, answered, note), oldest first."""
        found = cls(place, 0.0)
        for at, answered, note in probes:
            if answered:
                found = cls(place, at, at)
            else:
                since = at if found.since is None else found.since
                found = replace(found, at=at, failures=found.failures + 1, since=since, note=note)
        return found

    def is_suspect(self, now: float) -> bool:
        return self.failures >= SUSPECT_AFTER and abs(now - self.at) <= TRUSTED_FOR

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def place_of(where: url.Url) -> str:
    """The server of a URL: scheme, host in lower case, and the port if there is one."""
    port = f":{where.port}" if where.port is not None else ""
    return f"{where.scheme}://{where.host.in_url.lower().removesuffix('.')}{port}"


def places_of(table: Table, naans: Iterable[str] = ()) -> list[str]:
    """The servers of a table, each once, in its order; only those of ``naans`` if any are given."""
    wanted = set(naans)
    found: dict[str, None] = {}
    for entry in table.values():
        for nma in entry.nmas if not wanted or entry.naan in wanted else ():
            if (place := place_in(example_url(nma.target))) is not None:
                found[place] = None
    return list(found)


def place_in(text: str) -> str | None:
    """The server of a URL given as text; None if the URL is not usable."""
    try:
        return place_of(url.parse(text))
    except ValueError:
        return None
