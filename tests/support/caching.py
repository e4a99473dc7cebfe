"""A cache over a scripted DNS and clocks that a test moves."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maptr.ark import Ark
from maptr.cache.cache import cache_with
from maptr.cache.lookups import Dependencies
from maptr.discovery import Discovery, Outcome
from maptr.naptr.record import Naptr
from maptr.protocol.names import Labels, parse, to_text
from maptr.registry.followed_file import TableSource
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Answer, Settings, Walk

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


class FakeDns:
    """A DNS client with answers by name. ``questions`` lists the queries; ``gate`` holds answers until it is set."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self.answers = dict(answers or {})
        self.questions: list[str] = []
        self.calls = 0
        self.security = "indeterminate"
        self.gate: threading.Event | None = None
        self.error: BaseException | None = None

    def answer(self, name: Labels) -> Answer:
        text = to_text(name)
        self.questions.append(text)
        return self.answers.get(text, Answer(Outcome.NXDOMAIN, ttl=60, zone=ZONE))._replace(security=self.security)

    def _walk(self, ark: Ark, settings: Settings) -> Discovery:
        if self.error is not None:
            raise self.error
        walk = Walk(ark, settings)
        while questions := walk.next():
            for question in questions:
                walk.tell(question, self.answer(question.name))
        found = walk.result()
        if not found.complete:
            found.raise_for_none()
        return found

    def ask(self, ark: Ark, *, settings: Settings, **options: Any) -> Discovery:
        self.calls += 1
        if self.gate is not None:
            self.gate.wait(10)
        return self._walk(ark, settings)

    async def ask_async(self, ark: Ark, *, settings: Settings, **options: Any) -> Discovery:
        self.calls += 1
        while self.gate is not None and not self.gate.is_set():
            await asyncio.sleep(0.005)
        return self._walk(ark, settings)


class Rig:
    """A cache over a ``FakeDns`` and two clocks; ``dependencies`` has others, and ``make`` makes another such cache."""

    def __init__(
        self,
        answers: Mapping[str, Answer] | None = None,
        natab: Table | Path | TableSource | None = None,
        policy: str = "dns-first",
        *,
        dependencies: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.dns = FakeDns(answers)
        self.clock = Clock()
        self.wall = Clock(1_700_000_000.0)
        made = Dependencies(self.dns.ask, self.dns.ask_async, self.clock, self.wall, random.Random(1))
        self.make = cache_with(made._replace(**dependencies or {}))
        self.options = {"policy": policy, **options}
        self.cache = self.make(natab, **self.options)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wall.now += seconds


def run_program(program: str, *arguments: str) -> str:
    """Run a Python program that must succeed, and return what it writes to stderr."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stderr
