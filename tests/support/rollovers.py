"""Years of key rollovers in minutes: a signer, its parent and Unbound as judge, with the clock of libfaketime.

``python -m tests.support.rollovers [--days 730] [--seed 1] [maptr|knot|bind]...`` runs one way of signing after
another:

* ``maptr``: the server signs, and its operator takes each next step that ``maptr zone keys list`` names, when it is
  due;
* ``knot`` and ``bind``: maptr is the hidden primary, and the signer rolls the keys automatically, with the
  configuration of docs/admin.md.

The parent zone is signed, and reads CDS once a day (RFC 7344), its only source of keys. At each step, two instances of
Unbound are queried, one that has just started and one that has kept its cache for the whole run. Both have the parent's
trust anchor. Every answer must be secure. The TTLs of the zone and of the DS are a day, as in ``maptr zone build``; a
step is one or two days, and some hours while keys change.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.zone

from maptr.dnssec.keys import Algorithm, KeyState, Role, ZoneKey
from maptr.dnssec.policy import SigningPolicy
from tests.support.answers import VECTORS
from tests.support.peers import HOST, Maptr, Peer, Unbound, run
from tests.support.secondaries import KEY, ORIGIN, BindSecondary, KnotSecondary, Secondary, contents, serial_at
from tests.support.signing import sign_zone
from tests.support.soak.machines import Machine, libfaketime
from tests.support.waiting import until

NAME = dns.name.from_text(ORIGIN)
PARENT = "arpa."
HOUR, DAY = 3600, 86_400
TTL = DAY
TEXT = (VECTORS / "signing.zone").read_text().replace("$TTL 3600", f"$TTL {TTL}")
BUSY = 2.5 * DAY  # after a change of the keys or the DS, caches may have old data for that long
FRESH = 1.5 * DAY  # a signer renews signatures at least that long before they expire
STEP, BUSY_STEP = (DAY, 2 * DAY), (3 * HOUR, 9 * HOUR)  # the shortest and longest
BEFORE = 6 * HOUR  # the operator's next step
QUESTIONS = {
    "@ SOA": "NOERROR",
    "@ DNSKEY": "NOERROR",
    "@ DS": "NOERROR",  # from the parent
    "12345 NAPTR": "NOERROR",
    "12345 A": "NOERROR",  # no data
    "b.c A": "NOERROR",  # an empty non-terminal
    "one.two.w TXT": "NOERROR",  # from the wildcard
    "one.y.w TXT": "NXDOMAIN",
    "alias NAPTR": "NOERROR",
    "q.old TXT": "NOERROR",  # by DNAME
    "99999 DS": "NOERROR",  # a delegation that is not signed
}


class Lifetimes(NamedTuple):
    """How long a key is in use, in days."""

    zsk: int = 90
    ksk: int = 365


@dataclass
class Count:
    """The counts of one run."""

    days: float = 0
    steps: int = 0
    answers: Counter[str] = field(default_factory=Counter)  # by resolver
    faults: list[str] = field(default_factory=list)
    zsks: set[str] = field(default_factory=set)
    ksks: set[str] = field(default_factory=set)
    ds_changes: int = 0
    zone_changes: int = 0

    def text(self) -> str:
        answers = ", ".join(f"{number} of the {name} Unbound" for name, number in sorted(self.answers.items()))
        return (
            f"{self.days:.0f} days in {self.steps} steps: {len(self.zsks)} ZSKs, {len(self.ksks)} KSKs, the DS changed "
            f"{self.ds_changes} times, the zone {self.zone_changes} times; {sum(self.answers.values())} answers "
            f"({answers}), {len(self.faults)} of them not secure"
        )


class Parent(Maptr):
    """The parent zone, signed for the whole run, served by maptr."""

    def __init__(self, directory: Path, now: float, days: float) -> None:
        self.path = directory / "parent.zone"
        self.key = ZoneKey(Role.CSK, KeyState.ACTIVE, Algorithm.ED25519, Algorithm.ED25519.private_class.generate())  # type: ignore[attr-defined]
        self.policy = SigningPolicy(lifetime=int((days + 60) * DAY), refresh=0)
        self.signed_at = int(now)
        self.serial = 0
        self.ds: frozenset[str] = frozenset()
        self.write()
        super().__init__({PARENT: self.path})

    def write(self) -> None:
        self.serial += 1
        lines = "".join(f"ark {TTL} DS {each}\n" for each in sorted(self.ds))
        text = f"$TTL {TTL}\n@ SOA ns host {self.serial} 7200 3600 1209600 300\n@ NS ns\nns A {HOST}\nark NS ns.ark\n"
        zone = dns.zone.from_text(f"$ORIGIN {PARENT}\n{text}ns.ark A {HOST}\n{lines}", PARENT, relativize=False)
        signed = sign_zone(zone, [self.key], now=self.signed_at, serial=self.serial, policy=self.policy)
        new = self.path.with_suffix(".new")
        signed.to_file(str(new), relativize=False)
        new.replace(self.path)

    @property
    def anchor(self) -> str:
        return f"{PARENT} IN DNSKEY {self.key.dnskey}"

    def take(self, cds: frozenset[str]) -> bool:
        """Replace the DS by the child's CDS. Return whether that changes anything."""
        if not cds or cds == self.ds:
            return False
        self.ds = cds
        self.write()
        self.hang_up()
        until(lambda: serial_at(self, origin=PARENT) == self.serial, self.log)
        return True


class Signer:
    """A way of signing. ``server`` answers the public, and ``primary`` has the zone file."""

    def __init__(self, machine: Machine, parent: Parent, lifetimes: Lifetimes) -> None:
        self.machine, self.parent, self.lifetimes = machine, parent, lifetimes
        self.path = machine.directory / "ark.arpa.zone"
        self.version = 0
        self.restarts: list[str] = []  # after which the signer had to sign before the zone was complete
        self._write()
        self.primary, self.server = self.servers()

    def _write(self) -> None:
        self.version += 1
        new = self.path.with_suffix(".new")
        new.write_text(TEXT.replace(" 1 7200", f" {self.version} 7200") + f'v TXT "{self.version}"\n')
        new.replace(self.path)

    def publish(self) -> None:
        """Publish the next version of the zone, and wait until the public has it."""
        self._write()
        self.primary.hang_up()
        until(self._is_served, lambda: f"{self.primary.log()}\n{self.server.log()}")

    def _is_served(self) -> bool:
        return f'"{self.version}"' in map(str, ask(self.server, f"v.{ORIGIN}", "TXT"))

    def start(self, stack: ExitStack) -> None:
        for server in dict.fromkeys((self.primary, self.server)):
            self.place(server)
            stack.enter_context(server)

    def place(self, server: Peer) -> None:
        """Make a server run with the machine's clock."""
        self.machine.place(server)

    @abstractmethod
    def servers(self) -> tuple[Maptr, Peer]: ...

    @abstractmethod
    def tick(self, now: float) -> float:
        """Make the signer do what is due after the clock was moved. Return when it wants to be called again."""


class OwnSigner(Signer):
    """maptr's server, and an operator who follows ``maptr zone keys list``, or forces each step at once."""

    is_hasty = False

    def servers(self) -> tuple[Maptr, Peer]:
        self.keys = self.machine.directory / "keys"
        self.stamped: set[Path] = set()
        self.tried: set[tuple[int, str]] = set()  # steps that were refused as too early
        self.listed: list[dict[str, Any]] = []  # what the last ``keys list`` showed
        self.due = 0.0
        for role in ("ksk", "zsk"):
            self.machine.maptr("zone", "keys", "add", "keys", "--role", role)
        config = self.machine.directory / "maptr.toml"
        lines = f'[[zone]]\nname = "{ORIGIN}"\nfile = "ark.arpa.zone"\nkeys = "keys"\nlint = "off"\n'
        config.write_text(f'[serve]\nstate = "state"\ncontrol = "control"\n{lines}')
        server = Maptr({ORIGIN: self.path}, f"--config={config}")
        return server, server

    def tick(self, now: float) -> float:
        self._stamp(now)
        if now >= self.due:
            before = serial_at(self.server)
            if self._steps(now):
                self.primary.hang_up()
                until(lambda: serial_at(self.server) != before, self.primary.log)
        self.primary.hang_up()  # makes it sign what is due: its own timer does not notice that the clock was moved
        return self.due

    def _stamp(self, now: float) -> None:
        """Give new files the machine's time: the kernel has another one."""
        for path in set(self.keys.iterdir()) - self.stamped:
            os.utime(path, (now, now))
            self.stamped.add(path)

    def _list(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._keys("list", "--json"))["keys"]
        return found

    def _keys(self, verb: str, *words: object, codes: Sequence[int] = (0,)) -> str:
        return self.machine.maptr("zone", "keys", verb, "keys", *map(str, words), codes=codes)

    def _steps(self, now: float) -> bool:
        """Do the listed steps that are due, and begin rollovers. Return whether a key has changed."""
        before = self.stamped.copy()
        listed = self.listed or self._list()
        how = ["--force"] if self.is_hasty else ["--zone", "state/ark.arpa.signed", f"@{HOST}#{self.parent.port}"]
        for key in listed:
            if key["next"] and (self.is_hasty or key["at"] <= now):
                match key["next"]:
                    case "activate":
                        self._keys("set", key["tag"], "active", *how)
                    case "retire":  # refused as long as the parent lacks the DS of the other key
                        self._keys("set", key["tag"], "retired", *how, codes=(0, 1))
                    case "remove":  # refused as long as the parent has the DS
                        self._keys("remove", key["tag"], *how, codes=(0, 1))
                self._stamp(now)
        for key in self._alone(listed):
            if now >= self._end(key):
                self._keys("add", "--role", key["role"])
                self._stamp(now)
        listed = self.listed = self._list()
        for key in listed:  # what is too early is refused
            if (
                key["next"] in ("activate", "remove")
                and key["at"] > now
                and (key["tag"], key["next"]) not in self.tried
            ):
                self.tried.add((key["tag"], key["next"]))
                words = ("remove", key["tag"]) if key["next"] == "remove" else ("set", key["tag"], "active")
                self._keys(*words, codes=(1,))
        steps = [
            key["at"] if key["at"] > now and not self.is_hasty else now + BUSY_STEP[0] for key in listed if key["next"]
        ]
        self.due = min([*steps, *map(self._end, self._alone(listed))])
        return self.stamped != before

    def _alone(self, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The keys that are alone in their role: no rollover has begun."""
        roles = [key["role"] for key in listed]
        return [key for key in listed if roles.count(key["role"]) == 1]

    def _end(self, key: dict[str, Any]) -> float:
        """When the operator begins to roll a key over."""
        return float(key["since"] + self.lifetimes._asdict()[key["role"]] * DAY)


class InlineSigner(Signer):
    """Knot or BIND between maptr and the public, with the page's configuration. It is restarted after the clock was
    moved, because its timers do not notice that."""

    kind: ClassVar[type[Inline]]
    now = 0.0

    def servers(self) -> tuple[Maptr, Peer]:
        primary = Maptr({ORIGIN: self.path}, KEY, "--transfer=key:xfr")
        server = self.kind(primary.port)
        server.parent_port, server.lifetimes = self.parent.port, self.lifetimes
        primary.options += (f"--notify={HOST}:{server.port} key:xfr",)
        return primary, server

    def tick(self, now: float) -> float:
        self.now = now
        self.stop()
        self.server.start()
        if said := self._unfinished(now):
            self.restarts.append(said)
            until(lambda: not self._unfinished(now), self.server.log)
        return math.inf

    def stop(self) -> None:
        self.server.kill(signal.SIGTERM)

    def _unfinished(self, now: float) -> str:
        """What is not signed, or not renewed, in the signer's zone; "" if nothing."""
        zone = contents(self.server)
        path = self.machine.directory / "transferred"
        zone.to_file(str(path), relativize=False)
        verified = run("ldns-verify-zone", "-t", time.strftime("%Y%m%d%H%M%S", time.gmtime(now + FRESH)), path)
        return "" if verified.accepted else verified.output


class Inline(Secondary):
    """A secondary that signs, with keys of these lifetimes, and asks the parent for the DS."""

    parent_port = 0
    lifetimes = Lifetimes()


class KnotInline(Inline, KnotSecondary):
    snippet = "knot-signer"

    def documented(self, language: str = "") -> str:
        text = super().documented(language).replace("192.0.2.53", f"{HOST}@{self.parent_port}")
        text = text.replace("zsk-lifetime: 90d", f"zsk-lifetime: {self.lifetimes.zsk}d")
        return text.replace("ksk-lifetime: 365d", f"ksk-lifetime: {self.lifetimes.ksk}d")


class BindInline(Inline, BindSecondary):
    snippet = "bind-signer"

    def documented(self, language: str = "") -> str:
        text = super().documented(language).replace("192.0.2.53", f"{HOST} port {self.parent_port}")
        text = text.replace("zsk lifetime P90D", f"zsk lifetime P{self.lifetimes.zsk}D")
        return text.replace("ksk lifetime P1Y", f"ksk lifetime P{self.lifetimes.ksk}D")


class KnotSigner(InlineSigner):
    kind = KnotInline


class BindSigner(InlineSigner):
    """libfaketime and jemalloc, which Debian's BIND uses, wait for each other; glibc's debugging malloc replaces
    jemalloc."""

    kind = BindInline

    def place(self, server: Peer) -> None:
        super().place(server)
        if server is self.server:
            server.wrapper = [*server.wrapper, f"LD_PRELOAD=libc_malloc_debug.so.0 {libfaketime()}"]

    def stop(self) -> None:
        """Give the zone the machine's time: BIND takes its file's time for that of the last refresh."""
        super().stop()
        for path in self.server.directory.glob("ark.arpa.db*"):
            os.utime(path, (self.now, self.now))


SIGNERS: Mapping[str, type[Signer]] = {"maptr": OwnSigner, "knot": KnotSigner, "bind": BindSigner}


# ---- the judge


def ask(peer: Peer, name: str, rdtype: str) -> list[dns.rdata.Rdata]:
    """The records from a server or resolver; none unless they are authoritative or secure."""
    query = dns.message.make_query(name, rdtype, use_edns=0, payload=1232, want_dnssec=True)
    reply, _ = dns.query.udp_with_fallback(query, peer.host, 20, peer.port)
    if not reply.flags & (dns.flags.AA | dns.flags.AD):
        return []
    return [rdata for rrset in reply.answer if rrset.rdtype == dns.rdatatype.from_text(rdtype) for rdata in rrset]


def verdict(resolver: Peer, question: str, wanted: str) -> str:
    """What is wrong with an answer, "" if it is secure."""
    name, rdtype = question.split()
    query = dns.message.make_query(dns.name.from_text(name, NAME), rdtype, want_dnssec=True)
    try:
        reply, _ = dns.query.udp_with_fallback(query, resolver.host, 20, resolver.port)
    except (OSError, dns.exception.DNSException) as error:
        return str(error) or type(error).__name__
    rcode = dns.rcode.to_text(reply.rcode())
    why = " ".join(map(str, reply.options))
    return "" if rcode == wanted and reply.flags & dns.flags.AD else f"{rcode}, not secure: {why}"


class Run:
    """One way of signing for some days."""

    def __init__(self, way: str, days: float, seed: int, lifetimes: Lifetimes, directory: Path) -> None:
        self.days, self.rng, self.count = days, random.Random(seed), Count()
        self.machine = Machine(way, 1, directory, namespaces=False)
        self.parent = Parent(self.machine.directory, time.time(), days)
        self.signer = SIGNERS[way](self.machine, self.parent, lifetimes)
        self.stubs = {PARENT: self.parent, ORIGIN: self.signer.server}
        self.offset = self.polled = self.changed = 0.0
        self.due = math.inf
        self.keys: frozenset[str] = frozenset()

    @property
    def now(self) -> float:
        return time.time() + self.offset

    def resolver(self) -> Unbound:
        found = Unbound(self.stubs, [self.parent.anchor])
        self.machine.place(found)
        return found

    def run(self, report: Callable[[str], object]) -> Count:
        with ExitStack() as stack:
            stack.enter_context(self.parent)
            self.signer.start(stack)
            while not self.parent.ds:  # the first DS is taken without validation (RFC 8078 3.3)
                self._poll(self.signer.server)
                self._move(BUSY_STEP[1])
            kept = stack.enter_context(self.resolver())
            start = self.offset
            while self.offset < start + self.days * DAY:
                self._move(self.rng.uniform(*(BUSY_STEP if self._is_busy() else STEP)))
                if self.offset >= self.polled + DAY:
                    self._poll(kept)
                if self.rng.random() < 0.05:
                    self.signer.publish()
                    self.count.zone_changes += 1
                with self.resolver() as fresh:
                    self._judge("fresh", fresh, list(QUESTIONS))
                self._judge("kept", kept, self.rng.sample(list(QUESTIONS), len(QUESTIONS) // 2))
                self.count.steps += 1
                self.count.days = (self.offset - start) / DAY
                if self.count.steps % 100 == 0:
                    report(self.count.text())
        return self.count

    def _is_busy(self) -> bool:
        return len(self.keys) > 2 or self.offset < self.changed + BUSY

    def _move(self, seconds: float) -> None:
        """Move the clock, not beyond the operator's next step, and make the signer do what is due.

        It also stops some hours before that step, so that the kept resolver caches the data before it. The machine's
        clock is set to whole seconds; if it were rounded down, it would be before the step.
        """
        left = self.due - self.now
        self.offset = math.ceil(self.offset + max(60.0, min(seconds, left - BEFORE if left > 1.5 * BEFORE else left)))
        self.machine.set_clock(self.offset)
        self.due = self.signer.tick(self.now)
        keys = ask(self.signer.server, ORIGIN, "DNSKEY")
        found = frozenset(str(key) for key in keys)
        if found != self.keys:
            self.keys, self.changed = found, self.offset
            self.count.zsks |= {key for key in found if key.startswith("256 ")}
            self.count.ksks |= {key for key in found if key.startswith("257 ")}

    def _poll(self, source: Peer) -> None:
        """What the parent does once a day."""
        self.polled = self.offset
        if self.parent.take(frozenset(map(str, ask(source, ORIGIN, "CDS")))):
            self.changed = self.offset
            self.count.ds_changes += 1

    def _judge(self, which: str, resolver: Peer, questions: Sequence[str]) -> None:
        absent = {f"n{self.rng.randrange(10**6)} {rdtype}": "NXDOMAIN" for rdtype in ("A", "NAPTR")}
        for question, rcode in {**{each: QUESTIONS[each] for each in questions}, **absent}.items():
            self.count.answers[which] += 1
            if fault := verdict(resolver, question, rcode):
                self.count.faults.append(f"day {self.count.days:.2f}: {which} Unbound: {question}: {fault}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/rollovers", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("ways", nargs="*", default=list(SIGNERS), help=f"{', '.join(SIGNERS)}; by default all")
    parser.add_argument("--days", type=float, default=730.0)
    parser.add_argument("--zsk", type=int, default=Lifetimes().zsk, help="the lifetime of a ZSK in days")
    parser.add_argument("--ksk", type=int, default=Lifetimes().ksk, help="the lifetime of a KSK in days")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    for way in given.ways:
        with tempfile.TemporaryDirectory(prefix="maptr-rollovers-") as directory:
            run = Run(way, given.days, given.seed, Lifetimes(given.zsk, given.ksk), Path(directory))
            count = run.run(lambda text, way=way: sys.stderr.write(f"{way}: {text}\n"))  # type: ignore[misc]
        sys.stdout.write("\n".join((f"{way}: {count.text()}", *count.faults[:20], "")))
        failed = failed or bool(count.faults)
    sys.exit(failed)


if __name__ == "__main__":
    main()
