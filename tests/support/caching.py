"""A client's sources over a scripted DNS, and clocks that a test moves."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from maptr.ark import Ark
from maptr.cache import MAX_NAMES
from maptr.cache.disk import Disk
from maptr.cache.engine import Engine
from maptr.cache.policy import named
from maptr.cache.sources import Sources
from maptr.cache.store import Store
from maptr.discovery import Discovery, Outcome
from maptr.naptr.record import Naptr
from maptr.paths import cache_file
from maptr.protocol.names import parse, to_text
from maptr.reconcile.drift import VerdictLog, verdicts
from maptr.reconcile.verdict import Drift
from maptr.registry.followed_file import TableSource, table_source
from maptr.registry.table import Entry, Nma, Table
from maptr.resolver.call import Lifetime
from maptr.testing import Answers, OfflineResolver
from maptr.walk import DEFAULTS, Answer, Question, Settings
from tests.support.waiting import PATIENCE

ARK = "ark:12345/x1"
HOME = "12345.ark.arpa."
ZONE = (b"ark", b"arpa")  # the zone that denies names
SILENT = Answer(Outcome.TIMEOUT, note="silence")


def host(name: str, order: int = 0) -> Naptr:
    return Naptr(order, 0, b"h", b"ark", b"", parse(name))


def redirect(name: str) -> Naptr:
    return Naptr(0, 0, b"", b"ark", b"", parse(name))


def shoulder_redirect(pattern: str, name: str) -> Naptr:
    return Naptr(0, 0, b"", b"ark", f"!{pattern}!{name}!".encode(), ())


def dns_answer(*records: Naptr, ttl: int | None = 300) -> Answer:
    return Answer(Outcome.ANSWER if records else Outcome.NXDOMAIN, records, ttl, zone=ZONE)


def table(*pairs: tuple[str, str]) -> Table:
    return Table(Entry(key, nmas=(Nma(f"https://{where}/ark:/${{content}}", where),)) for key, where in pairs)


ONE_HOST = {HOME: dns_answer(host("h.example."))}


class Clock:
    """A clock that a test moves."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FakeDns(OfflineResolver):
    """A resolver with answers by name. ``asked`` lists the queries; ``gate`` holds answers until it is set."""

    def __init__(
        self, answers: Mapping[str, Answer] | None = None, lifetime: float = PATIENCE, settings: Settings = DEFAULTS
    ) -> None:
        super().__init__(Answers(), lifetime=lifetime, settings=settings)
        self.answers = dict(answers or {})
        self.asked: list[str] = []
        self.calls = 0
        self.security = "indeterminate"
        self.gate: threading.Event | None = None
        self.error: BaseException | None = None

    def answer(self, question: Question) -> tuple[Answer, float]:
        text = to_text(question.name)
        self.asked.append(text)
        answer = self.answers.get(text, Answer(Outcome.NXDOMAIN, ttl=60, zone=ZONE))
        return answer._replace(security=self.security), 0.0

    def discover(self, ark: Ark, lifetime: Lifetime, *given: Any, **options: Any) -> Discovery:
        self.calls += 1
        if self.gate is not None:
            self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return super().discover(ark, lifetime, *given, **options)

    async def discover_async(self, ark: Ark, lifetime: Lifetime, *given: Any, **options: Any) -> Discovery:
        self.calls += 1
        while self.gate is not None and not self.gate.is_set():
            await asyncio.sleep(0.005)
        if self.error is not None:
            raise self.error
        return await super().discover_async(ark, lifetime, *given, **options)


class Rig:
    """``Sources`` over a ``FakeDns`` and two clocks; ``clock`` may be another one, and so may ``dns``.

    By default, lifetime and patience are longer than a slow machine needs.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer] | None = None,
        natab: Table | Path | TableSource | None = None,
        policy: str = "dns-first",
        *,
        path: Path | None = None,
        lifetime: float = PATIENCE,
        patience: float = PATIENCE,
        settings: Settings = DEFAULTS,
        dns: FakeDns | None = None,
        clock: Callable[[], float] | None = None,
        view: str = "",
        size: int = MAX_NAMES,
        **options: Any,
    ) -> None:
        self.dns = dns or FakeDns(answers, lifetime, settings)
        self.clock = Clock()
        self.wall = Clock(1_700_000_000.0)
        self.disk = None if path is None else Disk(path, wall=self.wall, own=str(path) == cache_file(os.environ))
        clock = clock or self.clock
        store = Store(self.dns.settings, self.disk, view=view, size=size, clock=clock, wall=self.wall)
        source = table_source(natab, self.clock)
        engine = Engine(store, named(policy), source, rng=random.Random(1), patience=patience, **options)
        self.sources = Sources(self.dns, engine)

    def drift(self, naan: str, log: VerdictLog | None = None) -> list[Drift]:
        """The verdicts on a NAAN, with the log of earlier ones, by default in the cache file."""
        log = log or (None if self.disk is None else VerdictLog(self.disk))
        return next(verdicts(self.sources, log, [naan]))

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wall.now += seconds


def run_program(program: str, *arguments: str) -> str:
    """Run a Python program that must succeed, and return what it writes to stderr."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stderr
