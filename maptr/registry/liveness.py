"""Whether mapping authorities answer: advisory, beside what tables and DNS say of them. Values; asking is ``probing``.

Nothing here ever takes a candidate away. One that kept silent several times in a row is *suspect*: it is tried after
the others, and named in reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from maptr import url
from maptr.registry.table import Table, example_url

SUSPECT_AFTER = 3  # probes in a row without an answer
TRUSTED_FOR = 604_800.0  # seconds that the last probe says anything; then it is as if there had been none

Suspects = Callable[[url.Url], bool]
"""True for a server that kept silent when it was last probed, several times in a row."""


class Outcome(StrEnum):
    """How one probe ended. What is not asked (a private address, no http URL) is no failure of anybody's."""

    ANSWERED = "answered"
    SILENT = "silent"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a place, such as ``https://ark.example.org:8443``; ``at`` in seconds since 1970."""

    place: str
    at: float
    outcome: Outcome
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"place": self.place, "at": self.at, "outcome": str(self.outcome), "note": self.note}


@dataclass(frozen=True, slots=True)
class Liveness:
    """What the probes of one place come to. ``failures`` in a row, the last at ``at``, the first at ``since``."""

    place: str
    at: float
    answered_at: float | None = None
    failures: int = 0
    since: float | None = None
    note: str = ""

    @classmethod
    def of(cls, place: str, probes: Iterable[tuple[float, bool, str]]) -> Liveness:
        """From (when, answered, note) of its probes, the oldest first."""
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
        return {
            "place": self.place,
            "at": self.at,
            "answered_at": self.answered_at,
            "failures": self.failures,
            "since": self.since,
            "note": self.note,
        }


def place_of(where: url.Url) -> str:
    """The server that a URL is asked of: scheme, host in lower case, and port where it has one."""
    port = f":{where.port}" if where.port is not None else ""
    return f"{where.scheme}://{where.host.in_url.lower().removesuffix('.')}{port}"


def places_of(table: Table, naans: Iterable[str] = ()) -> list[str]:
    """The servers that a table names, each once, in its order; of some NAANs only, if any are given."""
    wanted = set(naans)
    found: dict[str, None] = {}
    for entry in table.values():
        for nma in entry.nmas if not wanted or entry.naan in wanted else ():
            if (place := place_in(example_url(nma.target))) is not None:
                found[place] = None
    return list(found)


def place_in(text: str) -> str | None:
    """The server in the text of a URL; None where that is none to be asked."""
    try:
        return place_of(url.parse(text))
    except ValueError:
        return None
