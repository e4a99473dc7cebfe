"""The truth in the soak: the versions of the registry, which server has which, and the verdict on an answer."""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from maptr import registry
from maptr.ark import Ark
from maptr.registry.table import Table
from maptr.zone.lint import publishable
from tests.support.moments import states
from tests.support.namespaces import REPOSITORY
from tests.support.soak.clients import Answer

CANARY = "99990"  # a NAAN of the soak, whose host has the number of the version
CANARY_ARK = f"ark:{CANARY}/x1"
TTL = 2  # seconds, of all records
SLACK = 3.0  # seconds within which a just fetched answer arrives, through resolver and gateway


class Verdict(Enum):
    """The verdict on one answer, best first."""

    RIGHT = "right"
    STALE = "stale"
    SILENT = "silent"
    WRONG = "wrong"


def _record(key: str, host: str) -> dict[str, Any]:
    target = {"url": f"https://{host}/ark:/${{content}}", "http_code": 302}
    return {"what": key, "where": f"https://{host}", "target": target, "when": "2024", "who": {"name": "soak"}}


def _synthetic(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """The sample registry, with records added, changed and removed."""
    document = json.loads((REPOSITORY / "zones" / "sample.json").read_bytes())
    for number in range(count + 1):
        yield copy.deepcopy(document)
        data = document["data"]
        data.append(_record(str(20000 + number), f"new{number}.example.org"))
        changed = rng.choice(data)
        data[data.index(changed)] = _record(changed["what"], f"changed{number}.example.org")
        if number % 2:
            data.remove(rng.choice(data))


def documents(rng: random.Random, count: int) -> tuple[str, list[dict[str, Any]]]:
    """The source of the registry, and its JSON at ``count`` + 1 moments."""
    folder = Path(os.environ.get("MAPTR_REAL_DATA") or REPOSITORY.parent / "shared" / "data")
    if (folder / "naan_updates.jsonl.gz").is_file():
        found = [document for _, document in states(folder)]
        last = len(found) - 1
        found = [found[number * last // count] for number in range(count + 1)]
        source = f"the real registry, {last} updates in {count} steps"
    else:
        found, source = list(_synthetic(rng, count)), f"the sample, changed in {count} steps (no real data in {folder})"
    return source, found


def with_canary(document: dict[str, Any], version: int) -> bytes:
    """The registry as published, with a record of the version."""
    canary = _record(CANARY, f"v{version}.soak.example.org")
    return json.dumps({**document, "data": [*document["data"], canary]}).encode()


class Sighting(NamedTuple):
    at: float  # seconds of the monotonic clock
    version: int


class Truth:
    """The tables so far, and which secondary was seen with which table. Times are monotonic."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.since: list[float] = []  # the simulated time of each version, in seconds since 1970
        self.seen: dict[str, list[Sighting]] = {}

    @property
    def version(self) -> int:
        return len(self.tables) - 1

    def advance(self, content: bytes, now: float) -> None:
        """Read the next version. It has only what a zone can hold."""
        self.tables.append(publishable(registry.read(content))[0])
        self.since.append(now)

    def saw(self, server: str, version: int | None) -> None:
        if version is not None:
            self.seen.setdefault(server, []).append(Sighting(time.monotonic(), version))

    def arks(self, rng: random.Random, count: int) -> list[str]:
        """The canary, a nonexistent NAAN, and records that changed last or did not."""
        new, old = self.tables[-1], self.tables[max(0, self.version - 1)]
        differ = sorted(key for key in {*new, *old} if new.get(key) != old.get(key) and key != CANARY)
        rest = sorted(new.keys() - set(differ) - {CANARY})
        keys = rng.sample(differ, min(len(differ), count - 2)) + rng.sample(rest, min(len(rest), count))
        absent = next(naan for naan in iter(lambda: f"{rng.randrange(100_000):05}", "") if naan not in {*new, *old})
        return [CANARY_ARK, f"ark:{absent}/x1", *(f"ark:{key}1s" if "/" in key else f"ark:{key}/x1s" for key in keys)][
            :count
        ]

    def expected(self, ark: str, version: int) -> str | None:
        """The first URL of the table, or None."""
        parsed = Ark.parse(ark)
        entry = self.tables[version].lookup(parsed)
        return next(iter(entry.urls(parsed)), None) if entry else None

    def oldest_in_dns(self) -> int:
        """The oldest version that a secondary served at most a TTL ago: DNS may answer with it, or with a later one.

        Between two sightings on a busy machine, a secondary may have served versions that were not seen.
        """
        now = time.monotonic()
        limit = now - TTL - SLACK
        spans = [span for seen in self.seen.values() for span in pairwise([*seen, Sighting(now, -1)])]
        return min((one.version for one, following in spans if following.at >= limit), default=self.version)

    def judge(self, ark: str, answer: Answer, oldest_in_dns: int, now: float) -> Verdict:
        """Judge an answer. An older one is stale if DNS or the response says so: its TTL has not passed, or its age is
        given."""
        if answer.silent:
            return Verdict.SILENT
        if answer.url == self.expected(ark, self.version):
            return Verdict.RIGHT
        for version in range(self.version - 1, -1, -1):
            if answer.url == self.expected(ark, version):
                superseded = now - self.since[version + 1]
                if version >= oldest_in_dns and answer.source != "natab":
                    return Verdict.STALE
                if answer.stale or (answer.source == "natab" and (answer.age or 0) + SLACK >= superseded):
                    return Verdict.STALE
        return Verdict.WRONG
