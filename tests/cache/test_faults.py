"""The fault matrix: each part that can fail is broken under a cache and repaired, without a restart.

Each case gives the right answer or error, keeps known answers, and recovers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import dns.edns
import dns.message
import dns.rcode
import pytest

from maptr.cache import STALE_LIMIT
from maptr.cache.engine import Engine
from maptr.cache.policy import named
from maptr.cache.sources import Sources
from maptr.cache.store import Store
from maptr.client import Client
from maptr.discovery import DiscoveryFailed, NoMappingAuthority
from maptr.errors import ConfigError
from maptr.files import LOOK_EVERY
from maptr.registry.followed_file import TableState, WatchedTable
from maptr.resolver.call import Options
from maptr.resolver.resolver import Resolver
from tests.support.caching import ARK, HOME, ONE_HOST, Clock, Rig, table
from tests.support.ports import free_port
from tests.support.scripted import Script, Scripted, zone
from tests.support.waiting import PATIENCE, until

GOOD = zone({HOME: ['0 0 "h" "ark" "" d.example.'], "23456.ark.arpa.": ['0 0 "h" "ark" "" d.example.']})


class Server:
    """A scripted name server that can be stopped, and started again on the same port."""

    def __init__(self) -> None:
        self.script: Script = GOOD
        self.queries = 0
        self.port = free_port()
        self._server: Scripted | None = None

    def start(self) -> None:
        class Here(Scripted):
            allow_reuse_address = True

            def server_bind(here) -> None:  # noqa: N805
                here.server_address = ("127.0.0.1", self.port)
                super().server_bind()

        self._server = Here(self._answer)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _answer(self, query: dns.message.Message) -> dns.message.Message | None:
        self.queries += 1
        return self.script(query)

    def kill(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def server() -> Iterator[Server]:
    one = Server()
    one.start()
    try:
        yield one
    finally:
        one.kill()


def servfail(query: dns.message.Message) -> dns.message.Message:
    reply = dns.message.make_response(query)
    reply.set_rcode(dns.rcode.SERVFAIL)
    return reply


def late(query: dns.message.Message) -> dns.message.Message:
    time.sleep(0.3)
    return GOOD(query) or servfail(query)


def flapping() -> Script:
    turn = iter(range(1_000_000))
    return lambda query: GOOD(query) if next(turn) % 3 == 0 else None


EVIL = zone({f"{naan}.ark.arpa.": ['0 0 "h" "ark" "" evil.example.'] for naan in (12345, 23456, 99999)})


def spoofed(query: dns.message.Message) -> dns.message.Message | None:
    """A reply with another ID, or with records of another name, as an off-path attacker sends it."""
    if query.id % 2:
        reply = EVIL(query)
        if reply is not None:
            reply.id ^= 1
        return reply
    other = dns.message.make_query("99999.ark.arpa.", "NAPTR", id=query.id)
    return EVIL(other)


def bogus(query: dns.message.Message) -> dns.message.Message:
    """What a validating resolver says of a forged answer (RFC 8914 section 4.7)."""
    reply = servfail(query)
    reply.use_edns(0, options=[dns.edns.EDEOption(dns.edns.EDECode.DNSSEC_BOGUS)])
    return reply


SCRIPTS: dict[str, Callable[[], Script]] = {
    "black-holed": lambda: lambda query: None,
    "answering SERVFAIL": lambda: servfail,
    "answering late": lambda: late,
    "spoofed": lambda: spoofed,
    "bogus": lambda: bogus,
    "flapping": flapping,
}


@pytest.mark.parametrize("fault", ["killed", *SCRIPTS])
def test_dns(fault: str) -> None:
    with server() as one:
        clock = Clock()
        natab = table(("12345", "t.example"), ("23456", "t.example"))
        resolver = Resolver([f"127.0.0.1#{one.port}"], lifetime=0.5)
        engine = Engine(Store(resolver.settings, clock=clock), named("dns-first"), TableState(natab), patience=0.1)
        discover = Sources(resolver, engine).discover

        until(lambda: discover(ARK, Options(lifetime=PATIENCE)).source in ("dns", "memory"), "DNS answers")
        if fault == "killed":
            one.kill()
        else:
            one.script = SCRIPTS[fault]()
        assert discover("ark:12345/kept").source == "memory"
        for number in range(8):
            found = discover(f"ark:23456/x{number}")
            assert found[0].host == ("t.example" if found.source == "natab" else "d.example")
        clock.now += 301
        stale = discover("ark:12345/x9")
        assert stale[0].host == "d.example"
        assert stale.stale is (stale.source != "dns")
        for number in range(5):
            try:
                discover(f"ark:3456{number}/x")
            except NoMappingAuthority:
                assert fault in ("answering late", "flapping"), "none, from a server that does not answer"
            except DiscoveryFailed as failed:
                assert not failed.discovery.complete
        if fault in ("killed", "black-holed"):
            before = one.queries
            for number in range(50):
                assert discover(f"ark:23456/y{number}").source == "natab"
            assert one.queries <= before + 1, "the circuit is open"
        one.script = GOOD
        one.kill()
        one.start()

        def well() -> bool:
            clock.now += 31
            try:
                discover("ark:45678/x")
            except NoMappingAuthority:
                return {discover(f"ark:{naan}/z").source for naan in (12345, 23456)} <= {"dns", "memory"}
            except DiscoveryFailed:
                return False
            raise AssertionError("the zone does not have it")

        until(well, "back to normal")


TEXT = "".join(f"{naan}:\n    h{naan}.example.org  ACR\n" for naan in range(10000, 10100)) + "#--- end of data ---\n"


def replace_by(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)  # root ignores permissions, but not a loop


NATAB: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "emptied": replace_by(""),
    "truncated": replace_by(TEXT[: len(TEXT) // 2 + 3]),
    "cut at a line end": replace_by("\n".join(TEXT.splitlines()[:190]) + "\n"),
    "shrunk, its end in place": replace_by("\n".join([*TEXT.splitlines()[:100], "#--- end of data ---\n"])),
    "replaced by HTML": replace_by("<!DOCTYPE html><title>Moved</title>"),
    "replaced by random bytes": lambda path: path.write_bytes(os.urandom(4096)),
    "unreadable": make_unreadable,
    "one line damaged": replace_by(TEXT.replace("10050:", "10050!")),
}


@pytest.mark.parametrize("fault", NATAB)
def test_natab(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_text(TEXT)
    rig = Rig(natab=path, policy="natab-only")
    arks = [f"ark:{naan}/x" for naan in range(10000, 10100)]
    urls = [rig.sources.discover(ark).url() for ark in arks]
    NATAB[fault](path)
    rig.pass_time(LOOK_EVERY)
    rig.sources.discover(arks[0])
    watched = rig.sources.engine.table
    assert isinstance(watched, WatchedTable)
    if fault != "one line damaged":
        until(lambda: watched.current().trouble, "the trouble is seen")
        rig.pass_time(1)
        assert rig.sources.discover(arks[1]).stale
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover("ark:99999/x")
    assert [rig.sources.discover(ark).url() for ark in arks] == urls
    path.unlink(missing_ok=True)
    path.write_text(TEXT.replace("#---", "20000:\n    new.example.org\n#---"))

    def well() -> bool:
        rig.pass_time(LOOK_EVERY)
        return not watched.current().trouble and bool(rig.sources.discover("ark:20000/x", Options(raise_on_none=False)))

    until(well, "the new table")
    assert not rig.sources.discover(arks[2]).stale
    assert [rig.sources.discover(ark).url() for ark in arks] == urls


def test_a_table_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, reason in ((tmp_path / "natab", "No such file"), (tmp_path, "is a directory"), (loop, "Too many")):
        with pytest.raises(ConfigError, match=reason):
            Client(table=path)


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_a_jump_of_the_wall_clock_does_not_make_an_answer_fresh(jump: float, tmp_path: Path) -> None:
    rig = Rig(ONE_HOST, path=tmp_path / "c")
    rig.sources.discover(ARK)
    rig.wall.now += jump
    kept = rig.sources.discover("ark:12345/x2")
    assert (kept.source, kept.ttl) == ("memory", 300), "the steady clock did not jump"
    assert (kept.age_at(rig.wall()) or 0.0) >= 0.0
    ticks = count(1_000_000.0, 1e-6)
    again = Rig({}, path=tmp_path / "c", clock=lambda: next(ticks))
    again.wall.now = rig.wall.now
    with pytest.raises(NoMappingAuthority):
        again.sources.discover(ARK)
    assert again.dns.asked == [HOME], "an age that cannot be known is not fresh"


@pytest.mark.parametrize(("ahead", "stale"), [(0, False), (10, False), (86_400, True), (3650 * 86_400, True)])
def test_with_a_limit_a_table_confirmed_in_the_future_is_stale(ahead: float, stale: bool, tmp_path: Path) -> None:
    """Its age is unknown, because the clock was wrong when it was confirmed."""
    natab = tmp_path / "natab"
    natab.write_text("12345:\n    t.example.org  ACR\n")
    rig = Rig({}, natab, "natab-only", table_limit=3600.0)
    rig.wall.now = natab.stat().st_mtime - ahead
    assert rig.sources.discover("ark:12345/x1").stale is stale


def test_a_clock_far_ahead_gives_no_answer_past_the_stale_limit(tmp_path: Path) -> None:
    Rig(ONE_HOST, path=tmp_path / "c").sources.discover(ARK)
    again = Rig(ONE_HOST, path=tmp_path / "c")
    again.wall.now += STALE_LIMIT + 301
    again.dns.error = OSError("no network")
    with pytest.raises(DiscoveryFailed):
        again.sources.discover(ARK)
