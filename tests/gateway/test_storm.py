"""A storm: clients send requests to a gateway without a pause while its dependencies are killed, damaged, replaced and
reloaded.

``scripts/storm`` runs this module as a program, which prints its figures.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from maptr.registry import write_json
from maptr.registry.table import Entry, Nma, Table
from tests.support.http_gateway import ConfiguredGateway, HttpClient, Reply, get, request
from tests.support.peers import Maptr
from tests.support.waiting import until

BATCH = 16  # requests of one client that are sent before their responses are read
CLIENTS = 4

ZONE = """$TTL 1
@ SOA ns host 1 7200 3600 1209600 1
@ NS ns
ns A 127.0.0.1
12345 NAPTR 0 0 "h" "ark" "" h.example.
20001 NAPTR 0 0 "h" "ark" "" d.example.
"""
CONFIG = """[gateway]
listen = ["127.0.0.1:0"]
redirects = "single.csv"
rate = 0
drift_every = 1
[cache]
natab = "naans.json"
path = "cache.sqlite"
patience = 0.05
"""
BAD_CERTIFICATE = CONFIG.replace("[cache]", 'certificate = "no.crt"\nkey = "no.key"\n[cache]')
REDIRECTS = "ark,url\nark:12345/one,https://one.example/\n"


def table(version: int) -> str:
    """Two versions of a table, which differ in the target of one NAAN."""
    hosts = {"12345": "h.example", "54321": f"u{version}.example", "99166": "s.example"}
    return write_json(Table(Entry(key, nmas=(Nma(f"https://{to}/ark:${{content}}", to),)) for key, to in hosts.items()))


# What a target may be answered with: statuses, and for a redirect the hosts that it may lead to.
EXPECTED: tuple[tuple[str, set[int], set[str]], ...] = (
    ("/ark:12345/x{}?info", {302}, {"h.example"}),  # in DNS and in the table
    ("/ark:54321/x{}", {302}, {"u1.example", "u2.example"}),  # in the table
    ("/ark:20001/x{}?a={}", {302, 503}, {"d.example"}),  # in DNS
    ("/ark:77777/x{}", {404, 503}, set()),  # in neither
    ("/ark:3{:04}/x{}", {404, 503}, set()),  # in neither, and asked for once
    ("/ark:12345/one", {302}, {"one.example"}),
    ("/ark:12345/%zz{}", {400}, set()),
    ("/ark:12345", {200}, set()),
    ("/api/v1/discover?ark=ark:12345/x{}&ark=ark:54321/x{}", {200}, set()),
    ("/ready", {200, 503}, set()),
    ("/health", {200}, set()),
    ("/metrics", {200}, set()),
)
WEIGHTS = (40, 20, 10, 5, 2, 10, 3, 5, 1, 1, 2, 1)


@dataclass
class Figures:
    """What the clients saw. ``faults`` are the responses that are wrong and the connections that ended."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())

    def judge(self, pattern: str, target: str, reply: Reply) -> None:
        """Count a response, and note it if it is wrong."""
        _, statuses, hosts = next(each for each in EXPECTED if each[0] == pattern)
        self.statuses[pattern, reply.status] += 1
        if reply.status not in statuses:
            self.faults.append(f"{target}: {reply}")
        elif reply.status == 302:
            host, _, path = reply.headers["location"].removeprefix("https://").partition("/")
            if host not in hosts or (target != "/ark:12345/one" and f"/{path}" != target):
                self.faults.append(f"{target}: {reply}")

    def has_all(self) -> bool:
        """Whether every kind of target was asked, and several things were changed."""
        asked = {pattern for pattern, _ in list(self.statuses)}
        return self.changes.total() > 5 and asked == {pattern for pattern, _, _ in EXPECTED}

    def __str__(self) -> str:
        rows = [f"  {status} {number:8} {pattern}" for (pattern, status), number in sorted(self.statuses.items())]
        return "\n".join(
            (
                f"{self.requests} requests in {self.seconds:.1f} s, {self.requests / self.seconds:.0f} a second",
                *rows,
                *(f"  {number:4} times: {what}" for what, number in sorted(self.changes.items())),
                f"{len(self.faults)} faults",
                *(f"  {fault[:500]}" for fault in self.faults[:5]),
            )
        )


class Storm:
    """A gateway with DNS, table and redirects in a directory, its clients, and what happens to it."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.figures = Figures()
        self._directory = directory
        for name, content in (
            ("ark.arpa.zone", ZONE),
            ("maptr.toml", CONFIG),
            ("single.csv", REDIRECTS),
            ("naans.json", table(1)),
        ):
            self._write(name, content)
        self._dns = Maptr({"ark.arpa.": directory / "ark.arpa.zone"})
        stack.callback(self._dns.stop)
        self._dns.start()
        servers = f"@127.0.0.1#{self._dns.port}"
        self.server = ConfiguredGateway("--config", str(directory / "maptr.toml"), servers)
        stack.callback(self.server.stop)
        self.port = self.server.launch().ready()
        self._stop = threading.Event()
        self._numbers = count()

    def run(self, seconds: float) -> Figures:
        """Let it rage for some seconds, then repair everything and check what is answered."""
        started = time.monotonic()
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            rng = random.Random(1)
            changes = [each for _ in range(100) for each in rng.sample(self._changes(), k=len(self._changes()))]
            for name, change in changes:
                is_over = time.monotonic() - started > seconds and self.figures.has_all()
                if is_over or self.figures.faults:
                    break
                self.figures.changes[name] += 1
                change()
                time.sleep(rng.uniform(0.02, 0.3))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        self.figures.seconds = time.monotonic() - started
        self._repair()
        self.figures.faults += [line for line in self.server.lines if "internal error" in line or "Traceback" in line]
        return self.figures

    def _ask(self, number: int) -> None:
        rng = random.Random(number)
        patterns = [pattern for pattern, _, _ in EXPECTED]
        try:
            with HttpClient(self.port) as client:
                while not self._stop.is_set():
                    batch = [
                        (pattern, pattern.format(*[next(self._numbers) % 10_000] * 2))
                        for pattern in rng.choices(patterns, WEIGHTS, k=BATCH)
                    ]
                    client.send(b"".join(request(target) for _, target in batch))
                    for pattern, target in batch:
                        self.figures.judge(pattern, target, client.reply())
        except (OSError, EOFError) as error:
            self.figures.faults.append(f"the connection: {error!r}")

    def _changes(self) -> list[tuple[str, Callable[[], object]]]:
        return [
            ("DNS killed", lambda: self._dns.stop(signal.SIGKILL)),
            ("DNS started", self._start_dns),
            ("table replaced", lambda: self._write("naans.json", table(1))),
            ("table replaced", lambda: self._write("naans.json", table(2))),
            ("table broken", lambda: self._write("naans.json", "{")),
            ("table cut short in place", lambda: (self._directory / "naans.json").write_text(table(2)[:200])),
            ("table removed", lambda: (self._directory / "naans.json").unlink(missing_ok=True)),
            ("redirects broken", lambda: self._write("single.csv", "ark,url\nx,y\n")),
            ("redirects replaced", lambda: self._write("single.csv", REDIRECTS)),
            ("reloaded", lambda: self._reload(CONFIG)),
            ("reloaded with a bad configuration", lambda: self._reload("[gateway]\nrats = 1\n")),
            ("reloaded with a bad certificate", lambda: self._reload(BAD_CERTIFICATE)),
        ]

    def _write(self, name: str, content: str) -> None:
        beside = self._directory / f"{name}.new"
        beside.write_text(content)
        beside.replace(self._directory / name)

    def _start_dns(self) -> None:
        self._dns.stop(signal.SIGKILL)
        self._dns.launch()

    def _reload(self, config: str) -> None:
        self._write("maptr.toml", config)
        self.server.hang_up()

    def _repair(self) -> None:
        """Repair everything, and check that all is answered as at the start."""
        self._start_dns()
        self._write("naans.json", table(1))
        self._write("single.csv", REDIRECTS)
        self._reload(CONFIG)
        until(lambda: get(self.port, "/ready").status == 200, lambda: str(get(self.port, "/ready")))
        right = {
            "/ark:12345/x?info": (302, "https://h.example/ark:12345/x?info"),
            "/ark:54321/x": (302, "https://u1.example/ark:54321/x"),
            "/ark:20001/x": (302, "https://d.example/ark:20001/x"),
            "/ark:12345/one": (302, "https://one.example/"),
            "/ark:77777/x": (404, None),
        }

        def seen() -> dict[str, tuple[int, str | None]]:
            replies = {target: get(self.port, target) for target in right}
            return {target: (reply.status, reply.headers.get("location")) for target, reply in replies.items()}

        until(lambda: seen() == right, lambda: str(seen()))


def test_a_storm_causes_no_wrong_redirect_and_no_error(tmp_path: Path) -> None:
    with ExitStack() as stack:
        figures = Storm(tmp_path, stack).run(4)
    assert figures.faults == [], str(figures)
    assert figures.has_all(), str(figures)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures = Storm(Path(directory), stack).run(seconds)
    sys.stdout.write(f"{figures}\n")
    sys.exit(bool(figures.faults))


if __name__ == "__main__":
    main()
