"""Runs a primary, two secondaries, a resolver, a gateway and clients for simulated months, with faults.

Each step moves all clocks by some days, publishes the next version of the registry, and causes a fault or a step of a
key rollover. Every client then asks for ARKs twice, meanwhile and after the repair. Its answer must be that of the
table at that moment, or an older one that is honestly stale: within the DNS TTL, or with its age in the response.
Anything else ends the soak with exit code 1. The exit code is 0 without a run if a part is not installed, but 1 in CI
(MAPTR_REQUIRE_PEERS=1).
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from tests.support.peers import PeerError, find
from tests.support.soak.clients import Answer
from tests.support.soak.faults import BY_RESOLVER, COMMAND, DISCOVER, HTTP, Happening, faults, rollover
from tests.support.soak.machines import enter_namespaces, libfaketime, make_bridge
from tests.support.soak.site import Site
from tests.support.soak.timeline import Event, Timeline
from tests.support.soak.truth import Truth, Verdict, documents, with_canary

DAY = 86400
STEP = 7.0  # seconds of a step, of which TTL and SLACK pass without a change
JUMP = (0.5, 5.0)  # days by which a step moves the clocks; signatures are renewed a week before their end
# Seconds after an outage for which an answer may still be missing: Unbound remembers failures (RFC 9520 3.2), and the
# gateway asks DNS again after pauses of up to 30 seconds.
RETRY = 45.0
UPDATES = 130  # of the real registry
OVERTIME = 1.0  # share of the time after which no further step begins
CLIENTS = (DISCOVER, BY_RESOLVER, COMMAND, HTTP)
COMMANDS = ("nsd", "knotd", "unbound", "ip", "unshare", "nsenter", "setpriv")
MANY, FEW = 12, 3  # ARKs that a client asks for
SHORT = 'signing.lifetime = "1d"\nsigning.refresh = "1h"'
SECONDARIES = ("nsd", "knot")
FLAWS = ("registry", "expiry")
PLAIN = Happening("", "primary", lags=False)


class Failed(Exception):
    """A client got a wrong answer or none, or a server did not recover."""


class Soak:
    """One run. ``flaw`` breaks something on purpose, which the soak must notice."""

    def __init__(self, site: Site, rng: random.Random, seconds: float, flaw: str) -> None:
        self.site, self.rng, self.seconds, self.flaw = site, rng, seconds, flaw
        self.steps = max(3, round(seconds / STEP))
        self.truth = Truth()
        self.timeline = Timeline(("primary", "nsd", "knot", "resolver", "gateway"), CLIENTS)
        self.verdicts: dict[str, Counter[Verdict]] = {client: Counter() for client in CLIENTS}
        self.happened: dict[str, list[float]] = {}
        self.step = 0
        self.updates = min(self.steps, UPDATES)
        self.update = 0
        self.pulled = 0, 0  # the last two versions for the gateway, which takes a second to see a new one
        self.source, self.documents = documents(rng, self.updates)
        self._ended = threading.Event()
        self._observer = threading.Thread(target=self._observe)

    # ---- what is observed all the time

    def _observe(self) -> None:
        """Record which server has which version, twice a second."""
        site = self.site
        while not self._ended.wait(0.5):
            for name, server in site.servers.items():
                if name == "gateway":
                    found = re.search(r"//v(\d+)\.", site.gateway_answer().url or "")
                    version, serial = int(found[1]) if found else None, None
                else:
                    version, serial = site.version_at(server), site.serial_at(server)
                if name in SECONDARIES:
                    self.truth.saw(name, version)
                self.timeline.saw(name, version, self.truth.version, serial)

    # ---- the run

    def run(self) -> None:
        with ExitStack() as stack, click.progressbar(length=self.steps, label="starting", file=sys.stderr) as progress:
            first = with_canary(self.documents[0], 0)
            self.truth.advance(first, self.site.now)
            self.site.start(first, stack)
            self.timeline.started = time.monotonic()
            for name in SECONDARIES:
                self.truth.saw(name, 0)
            self._observer.start()
            stack.callback(self._observer.join)
            stack.callback(self._ended.set)
            started = time.monotonic()
            for happening in self._plan():
                if time.monotonic() - started > self.seconds * OVERTIME:
                    break
                self.step += 1
                progress.label = f"day {self.day:.0f}: {happening.name or 'updates'}"
                self._one_step(happening)
                progress.update(1)
                time.sleep(max(0.0, started + self.step * STEP - time.monotonic()))
                self._ask_all(happening, "afterwards", FEW)
            if self.flaw:
                raise Failed(f"the soak did not notice the flaw: {self.flaw}")

    @property
    def day(self) -> float:
        return self.site.offset / DAY

    def _plan(self) -> Iterator[Happening]:
        """Yield, in each cycle, all faults in random order with a rollover spread over it, and in later cycles also
        plain steps."""
        planned = 0
        while planned < self.steps:
            cycle = [*faults(self.site), *([PLAIN] * 4 if planned else [])]
            self.rng.shuffle(cycle)
            for number, change in enumerate(rollover(self.site)):
                cycle.insert(1 + number * (len(cycle) + 1) // 3, change)
            yield from cycle[: self.steps - planned]
            planned += len(cycle)

    def _one_step(self, happening: Happening) -> None:
        site, started = self.site, self.timeline.now
        self._jump()
        happening.begin()
        content = None if happening.is_rollover else self._next_version()
        if not happening.holds:
            self._publish(content)
        happening.amid()
        if not happening.lags:
            site.wait_for(self.truth.version)
        self._ask_all(happening, "meanwhile", MANY)
        happening.end()
        ended = self.timeline.now
        if happening.holds:
            self._publish(content)
        if site.is_running("primary"):
            site.reload()
        until_served = f"{happening.name or 'update'} in step {self.step}"
        try:
            site.wait_for(self.truth.version)
            site.wait_for_resolver()
            site.wait_for_gateway()
        except AssertionError as error:
            raise Failed(f"no recovery after {until_served}: {error}") from error
        if happening is not PLAIN:
            name = f"{happening.row}: {happening.name}"
            self.happened.setdefault(name, []).append(self.timeline.now - ended)
            self.timeline.events.append(Event(happening.row, happening.name, started, ended, not happening.is_rollover))

    def _jump(self) -> None:
        self.site.set_clocks(self.site.offset + DAY * self.rng.uniform(*JUMP))
        self.timeline.days.append((self.timeline.now, self.day))

    def _next_version(self) -> bytes | None:
        """The registry of this step; None if it does not change."""
        done = max(self.step / self.steps, self.timeline.now / self.seconds)
        number = min(self.updates, math.ceil(self.updates * done))
        if number <= self.update:
            return None
        self.update = number
        return with_canary(self.documents[number], self.truth.version + 1)

    def _publish(self, content: bytes | None) -> None:
        site = self.site
        if content is not None:
            self.truth.advance(content, site.now)
            site.publish(self._flawed(content))
            site.version = self.truth.version
        if site.is_running("primary"):
            site.reload()
        if self.rng.random() < 0.5:
            site.pull_for_gateway()
            self.pulled = self.pulled[-1], site.version

    def _flawed(self, content: bytes) -> bytes:
        return (
            content.replace(b".soak.example.org/", b".soak.example.org/evil/") if self.flaw == "registry" else content
        )

    # ---- the clients

    def _ask_all(self, happening: Happening, when: str, count: int) -> None:
        arks = self.truth.arks(self.rng, count)
        for client in CLIENTS:
            cut_off = happening.silent if when == "meanwhile" else frozenset()
            asked = arks[:FEW] if client in cut_off or client == COMMAND else arks
            oldest = self.truth.oldest_in_dns()
            found: Counter[Verdict] = Counter()
            answers = self._ask(client, asked)
            deadline = time.monotonic() + (RETRY if happening.silent and not cut_off else 0)
            while any(answer.silent for answer in answers) and time.monotonic() < deadline:
                time.sleep(1)
                oldest, answers = self.truth.oldest_in_dns(), self._ask(client, asked)
            for ark, answer in zip(asked, answers, strict=True):
                verdict = self.truth.judge(ark, answer, oldest, self.site.now)
                found[verdict] += 1
                # Without DNS, the gateway knows only what its table has.
                unknown = client == HTTP and cut_off and None in (self.truth.expected(ark, one) for one in self.pulled)
                may_be_silent = client in cut_off or unknown
                if verdict is Verdict.WRONG or (verdict is Verdict.SILENT and not may_be_silent):
                    self._count(client, found)
                    expected = self.truth.expected(ark, self.truth.version) or "no mapping authority"
                    raise Failed(
                        f"step {self.step} (day {self.day:.1f}), {when}, with {happening.name or 'no fault'}"
                        f" at {happening.row}: {client} asked for {ark}\n  expected: {expected}"
                        f" (version {self.truth.version}; in DNS from version {oldest})\n  actual:   {answer}"
                    )
            self._count(client, found)

    def _count(self, client: str, found: Counter[Verdict]) -> None:
        self.verdicts[client] += found
        self.timeline.rounds.append((self.timeline.now, client, found))

    def _ask(self, client: str, arks: Sequence[str]) -> list[Answer]:
        site = self.site
        at_resolver = f"{site.resolver.host}#{site.resolver.port}"
        if client == DISCOVER:
            servers = [f"{server.host}#{server.port}" for server in site.secondaries]
            self.rng.shuffle(servers)
            return site.clients.ask("discover", arks, nameservers=servers, anchor=str(site.client_anchor))
        if client == BY_RESOLVER:
            return site.clients.ask("discover", arks, nameservers=[at_resolver])
        if client == HTTP:
            return site.clients.ask("http", arks, host=site.gateway.host, port=site.gateway.port)
        words = ("url", f"@{at_resolver}", "--trust-ad", "--require", "secure", "--no-cache", *arks)
        done = site.at_clients.run(sys.executable, "-m", "maptr", *words, codes=(0, 1, 9))
        said = done.stderr.strip()
        return [
            Answer(line or None, silent=not line and done.returncode == 9, note=said)
            for line in done.stdout.splitlines()
        ]

    # ---- what is printed

    def summary(self) -> Iterator[str]:
        for client, verdicts in self.verdicts.items():
            yield f"{client}: {', '.join(f'{verdicts[verdict]} {verdict.value}' for verdict in Verdict)}"
        for name, seconds in sorted(self.happened.items()):
            yield f"{len(seconds):3} times {name}, recovered in at most {max(seconds):.1f} s"

    def title(self) -> str:
        signings = self.site.primary.log().count(" signed, serial ")
        return (
            f"{self.step} of {self.steps} steps, {self.day:.0f} days, {self.truth.version} versions from {self.source},"
            f" signed {signings} times"
        )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def missing() -> list[str]:
    """The requirements of the soak that are not installed."""
    found = [command for command in COMMANDS if find(command) is None]
    return found if libfaketime() else [*found, "libfaketime"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "scripts/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (default 20; CI runs 2)")
    parser.add_argument("--seed", type=int, default=1, help="of faults, jumps and ARKs (default 1)")
    parser.add_argument("--timeline", type=Path, default=Path("soak.svg"), help="the picture (default soak.svg)")
    parser.add_argument(
        "--flaw",
        choices=FLAWS,
        default="",
        help="break something on purpose, and see the soak fail: the primary gets another registry than the clients are"
        " compared with, or its signatures last for a day, which is less than most jumps of the clock",
    )
    options = parser.parse_args(arguments)
    if absent := missing():
        required = os.environ.get("MAPTR_REQUIRE_PEERS") == "1" or os.environ.get("CI") == "true"
        say(f"soak: {'' if required else 'SKIPPED: '}not installed: {', '.join(absent)}; run scripts/peers as root")
        return int(required)
    if reason := enter_namespaces(arguments):
        say(f"soak: NO NETWORK NAMESPACES ({reason}): all servers share 127.0.0.1, and no network is cut")
    else:
        make_bridge()
    return soak(options, namespaces=not reason)


def soak(options: argparse.Namespace, *, namespaces: bool) -> int:
    failure = ""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp")))
        site = Site(directory, stack, namespaces=namespaces)
        site.signing = SHORT if options.flaw == "expiry" else ""
        run = Soak(site, random.Random(options.seed), options.minutes * 60, options.flaw)
        try:
            run.run()
        except (Failed, AssertionError, PeerError) as error:
            failure = str(error)
            for name, server in site.servers.items():
                say("\n".join((f"---- the end of the log of {name}", *server.log().splitlines()[-12:])))
        except KeyboardInterrupt:
            failure = "interrupted"
        title = f"maptr soak, seed {options.seed}: {run.title()}"
        run.timeline.write(options.timeline, title + (", FAILED" if failure else ""))
    say("\n".join((*run.summary(), f"{title}; {options.timeline}")))
    if failure:
        say(f"soak: FAILED: {failure}")
    return 130 if failure == "interrupted" else int(bool(failure))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
