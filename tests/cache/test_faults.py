"""The fault matrix: each thing that can break is broken under a cache, and mended, with no restart between.

In each: the right answer, or the honest error; nothing that was known is lost; and all is well again afterwards.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.edns
import dns.message
import dns.rcode
import pytest

from maptr.cache import STALE_LIMIT
from maptr.cache.cache import Cache
from maptr.cache.disk import PAGE, Disk
from maptr.cache.drift import Drift, Verdict, VerdictLog
from maptr.discovery import Discovery, DiscoveryFailed, NoMappingAuthority
from maptr.errors import ConfigError
from maptr.protocol.names import parse
from maptr.registry.followed_file import LOOK_EVERY, WatchedTable
from tests.client.test_drivers import Script, Scripted, zone
from tests.support.caching import ARK, HOME, Clock, Rig, host, said, table, until

GOOD = zone({HOME: ['0 0 "h" "ark" "" d.example.'], "23456.ark.arpa.": ['0 0 "h" "ark" "" d.example.']})


class Server:
    """A scripted name server on one port, that can be killed and started again there."""

    def __init__(self) -> None:
        self.script: Script = GOOD
        self.queries = 0
        self.port = 0
        self._server: Scripted | None = None

    def start(self) -> None:
        class Here(Scripted):
            allow_reuse_address = True

            def server_bind(here) -> None:  # noqa: N805
                here.server_address = ("127.0.0.1", self.port)
                super().server_bind()

        self._server = Here(self._answer)
        self.port = self._server.server_address[1]
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


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that goes on in a thread of its own, as that of a program does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


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
    """What somebody sends who sees the port and not the question: another ID, or records of another name."""
    if query.id % 2:
        reply = EVIL(query)
        if reply is not None:
            reply.id ^= 1
        return reply
    other = dns.message.make_query("99999.ark.arpa.", "NAPTR", id=query.id)
    return EVIL(other)


def bogus(query: dns.message.Message) -> dns.message.Message:
    """What a validating resolver says of an answer that is a lie (RFC 8914 4.7)."""
    reply = servfail(query)
    reply.use_edns(0, options=[dns.edns.EDEOption(dns.edns.EDECode.DNSSEC_BOGUS)])
    return reply


BREAK: dict[str, Callable[[Server], None]] = {
    "killed": Server.kill,
    "black-holed": lambda one: setattr(one, "script", lambda query: None),
    "answering SERVFAIL": lambda one: setattr(one, "script", servfail),
    "answering late": lambda one: setattr(one, "script", late),
    "lying, and seen through": lambda one: setattr(one, "script", spoofed),
    "lying, and found out by a resolver": lambda one: setattr(one, "script", bogus),
    "flapping": lambda one: setattr(one, "script", flapping()),
}


def mend(one: Server) -> None:
    one.script = GOOD
    one.kill()
    one.start()


@pytest.mark.parametrize("fault", BREAK)
@pytest.mark.parametrize("twin", ["sync", "async"])
def test_dns(fault: str, twin: str) -> None:
    with server() as one, running_loop() as loop:
        clock = Clock()
        natab = table(("12345", "t.example"), ("23456", "t.example"))
        cache = Cache(natab, nameservers=[f"127.0.0.1#{one.port}"], lifetime=0.5, patience=0.1, clock=clock)

        def discover(ark: str) -> Discovery:
            if twin == "sync":
                return cache.discover(ark)
            return asyncio.run_coroutine_threadsafe(cache.discover_async(ark), loop).result(10)

        until(lambda: discover(ARK).source in ("dns", "memory"), "DNS answers")  # at once, or a moment too late
        BREAK[fault](one)
        assert discover("ark:12345/kept").source == "memory"
        for number in range(8):
            found = discover(f"ark:23456/x{number}")
            assert (found.source, found[0].host) in {
                ("natab", "t.example"),
                ("dns", "d.example"),
                ("memory", "d.example"),
            }
        clock.now += 301
        stale = discover("ark:12345/x9")
        assert stale[0].host == "d.example"
        assert stale.stale is (stale.source != "dns")
        for number in range(5):
            try:
                discover(f"ark:3456{number}/x")
            except NoMappingAuthority as none:
                assert fault in ("answering late", "flapping"), "only a server that answers says none"
                assert none.discovery is not None
            except DiscoveryFailed as failed:
                assert failed.discovery is not None
                assert not failed.discovery.complete
        if fault in ("killed", "black-holed"):
            before = one.queries
            for number in range(50):
                assert discover(f"ark:23456/y{number}").source == "natab"
            assert one.queries <= before + 1, "the circuit is open"
        mend(one)

        def well() -> bool:
            clock.now += 31
            try:
                discover("ark:45678/x")
            except NoMappingAuthority:
                return {discover(f"ark:{naan}/z").source for naan in (12345, 23456)} <= {"dns", "memory"}
            except DiscoveryFailed:
                return False
            raise AssertionError("nobody serves it")

        until(well, "back to normal")


TEXT = "".join(f"{naan}:\n    h{naan}.example.org  ACR\n" for naan in range(10000, 10100)) + "#--- end of data ---\n"


def replace_by(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)  # permissions stop no test that runs as root; a loop does


NATAB: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "emptied": replace_by(""),
    "truncated": replace_by(TEXT[: len(TEXT) // 2 + 3]),
    "cut at a line end": replace_by("\n".join(TEXT.splitlines()[:190]) + "\n"),
    "shrunk, its end in place": replace_by("\n".join([*TEXT.splitlines()[:100], "#--- end of data ---\n"])),
    "replaced by HTML": replace_by("<!DOCTYPE html><title>Moved</title>"),
    "replaced by octets": lambda path: path.write_bytes(os.urandom(4096)),
    "unreadable": make_unreadable,
    "one line damaged": replace_by(TEXT.replace("10050:", "10050!")),
}


@pytest.mark.parametrize("fault", NATAB)
def test_natab(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_text(TEXT)
    rig = Rig(natab=path, policy="natab-only")
    arks = [f"ark:{naan}/x" for naan in range(10000, 10100)]
    urls = [rig.cache.discover(ark).url() for ark in arks]
    NATAB[fault](path)
    rig.pass_time(LOOK_EVERY)
    rig.cache.discover(arks[0])
    watched = rig.cache.table
    assert isinstance(watched, WatchedTable)
    if fault != "one line damaged":
        until(lambda: watched.current().trouble, "the trouble is seen")
        rig.pass_time(1)
        assert rig.cache.discover(arks[1]).stale
        with pytest.raises(DiscoveryFailed):
            rig.cache.discover("ark:99999/x")
    assert [rig.cache.discover(ark).url() for ark in arks] == urls
    path.unlink(missing_ok=True)
    path.write_text(TEXT.replace("#---", "20000:\n    new.example.org\n#---"))

    def well() -> bool:
        rig.pass_time(LOOK_EVERY)
        return bool(rig.cache.discover("ark:20000/x", raise_on_none=False)) if not watched.current().trouble else False

    until(well, "the new table")
    assert not rig.cache.discover(arks[2]).stale
    assert [rig.cache.discover(ark).url() for ark in arks] == urls


def test_natab_never_there_is_not_known_and_dns_answers(tmp_path: Path) -> None:
    to_come = WatchedTable(tmp_path / "natab", clock=time.monotonic)
    assert Rig({HOME: said(host("d.example."))}, to_come).cache.discover(ARK).source == "dns"
    with pytest.raises(DiscoveryFailed):
        Cache(to_come, policy="natab-only").discover(ARK)


def test_natab_named_and_not_there_is_refused_at_once(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, reason in ((tmp_path / "natab", "No such file"), (tmp_path, "is a directory"), (loop, "Too many")):
        with pytest.raises(ConfigError, match=reason):
            Cache(path)
        with pytest.raises(ConfigError, match=reason), Cache() as cache:
            cache.follow(str(path))


def test_natab_written_in_place_while_it_is_read_is_never_half_a_table(tmp_path: Path) -> None:
    path = tmp_path / "natab"
    other = TEXT.replace("example.org", "example.net")
    path.write_text(TEXT)
    watched = WatchedTable(path, clock=time.monotonic)
    first = watched.reload().table
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for text in (other, TEXT):
                with path.open("w", buffering=64) as file:
                    file.write(text)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        for _ in range(300):
            now = watched.reload().table
            assert now is not None
            assert len(now) == 100
    finally:
        stop.set()
        thread.join()
    assert watched.reload().table == first
    assert watched.current().trouble == ""


def test_a_pipe_that_nobody_writes_to_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "natab")
    state = WatchedTable(tmp_path / "natab", clock=time.monotonic).current()
    assert (state.table, state.trouble) == (None, "is no regular file")


def test_natab_unchanged_is_not_parsed_again_whatever_its_date(tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_text(TEXT)
    watched = WatchedTable(path, clock=time.monotonic)
    first = watched.reload().table
    os.utime(path, (1, 1))
    assert watched.reload().table is first
    path.write_text(TEXT.replace("h10000", "i10000"))
    os.utime(path, (1, 1))  # older than what was loaded, and yet another
    assert watched.reload().table != first


def rig_on(path: Path, **options: Any) -> Rig:
    return Rig({HOME: said(host("d.example."))}, path=path, **options)


def ask(rig: Rig) -> str:
    return rig.cache.discover(ARK).source


def test_disk_answers_after_a_restart_with_the_time_that_is_left(tmp_path: Path) -> None:
    ask(rig_on(tmp_path / "c"))
    again = rig_on(tmp_path / "c")
    again.wall.now += 100
    found = again.cache.discover(ARK)
    assert (found.source, found.ttl, found.age(again.wall()), found[0].host) == ("disk", 200, 100, "d.example")
    assert ask(again) == "disk"
    again.pass_time(1)
    assert ask(again) == "memory"
    assert again.dns.questions == []


def corrupt_header(path: Path) -> None:
    path.write_bytes(b"not SQLite" * 1000)


def corrupt_middle(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    content[PAGE:] = os.urandom(len(content) - PAGE)
    path.write_bytes(bytes(content))


def cut_in_half(path: Path) -> None:
    os.truncate(path, PAGE + PAGE // 2)


def corrupt_schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE answer")
    connection.close()


def default_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where maptr keeps a cache unless told otherwise."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    (folder / "maptr").mkdir(exist_ok=True)
    return folder / "maptr" / "cache.sqlite"


@pytest.mark.parametrize("corrupt", [corrupt_header, corrupt_middle, corrupt_schema, cut_in_half])
@pytest.mark.parametrize("when", ["at the start", "in use"])
def test_disk_corrupted_is_set_aside_reported_and_built_anew(
    corrupt: Callable[[Path], object],
    when: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = default_path(tmp_path, monkeypatch)
    first = rig_on(path)
    ask(first)
    if when == "at the start":
        first.cache.close()
    corrupt(path)
    rig = rig_on(path) if when == "at the start" else first
    rig.pass_time(301)
    assert ask(rig) == "dns"
    rig.pass_time(301)
    assert ask(rig) == "dns"
    if when == "at the start":
        assert "set aside as cache.sqlite.corrupt-1" in caplog.text
        assert path.with_name("cache.sqlite.corrupt-1").exists()
        last = rig_on(path)
        last.wall.now = rig.wall.now
        assert ask(last) == "disk"


@pytest.mark.parametrize("column", ["outcome", "records", "note", "server", "security", "fetched", "expires"])
@pytest.mark.parametrize("value", [None, "indeterminat\x00", b"\xff", 5])
def test_disk_whose_rows_are_damaged_costs_no_answer(column: str, value: object, tmp_path: Path) -> None:
    """SQLite sees no octet of a text that changed; one in ``security`` made an error of every discovery."""
    path = tmp_path / "c"
    ask(rig_on(path))
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE answer SET {column} = ?", (value,))
    connection.close()
    rig = rig_on(path)
    found = rig.cache.discover(ARK)
    assert (found.security, found[0].host) == ("indeterminate", "d.example")
    assert str(found)
    assert found.to_dict()


def test_disk_with_an_answer_for_ever_is_not_believed_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "c"
    ask(rig_on(path))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE answer SET expires = 1e300")
    connection.close()
    rig = rig_on(path)
    rig.pass_time(30 * 86_400)
    assert ask(rig) == "dns"


def test_disk_full_costs_no_answer(tmp_path: Path) -> None:
    """In a process that may write no file larger than 100 kB, which SQLite is told as any full disk tells it."""
    program = f"""
import resource, signal
from tests.support.caching import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
many = said(*(host(f"h{{i}}.example.") for i in range(60)))
rig = Rig({{f"{{n}}.ark.arpa.": many for n in range(1000, 1200)}}, path={str(tmp_path / "c")!r})
assert all(rig.cache.discover(f"ark:{{n}}/x") for n in range(1000, 1200))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
rig.dns.answers["23456.ark.arpa."] = said(host("h.example."))
rig.cache.discover("ark:23456/x")
rig.cache.close()
other = Rig(path={str(tmp_path / "c")!r})
assert other.cache.discover("ark:23456/x").source == "disk"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "going on without the disk cache" in done.stderr


def test_disk_at_its_own_limit_drops_what_expires_first(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "c", wall=lambda: 1000.0, max_bytes=40 * PAGE)
    answer = said(*(host(f"h{i}.example.") for i in range(40)))
    for number in range(300):
        disk.put("", parse(f"{number}.ark.arpa."), answer, 1000.0, 2000.0 + number)
    assert disk.get("", parse("299.ark.arpa.")) is not None
    assert disk.get("", parse("0.ark.arpa.")) is None
    assert (tmp_path / "c").stat().st_size <= 40 * PAGE


def test_disk_of_another_release_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answer (view, name, outcome, more)")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    assert ask(rig_on(path)) == "dns"
    assert "version 99" in caplog.text
    assert path.read_bytes() == before


def test_disk_out_of_reach_and_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = default_path(tmp_path, monkeypatch)
    path.parent.rmdir()
    rig = rig_on(path)
    assert ask(rig) == "dns"
    assert f"{path}: there is no folder {path.parent}; going on without the disk cache" in caplog.text
    path.parent.mkdir()
    rig.pass_time(301)
    ask(rig)
    for part in path.parent.iterdir():
        part.unlink()
    rig.pass_time(301)
    assert ask(rig) == "dns"
    last = rig_on(path)
    last.wall.now = rig.wall.now
    assert ask(last) == "disk"


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_a_clock_that_jumps_a_day_makes_nothing_fresh_that_is_not(jump: float, tmp_path: Path) -> None:
    rig = rig_on(tmp_path / "c")
    ask(rig)
    rig.wall.now += jump
    kept = rig.cache.discover("ark:12345/x2")
    assert (kept.source, kept.ttl) == ("memory", 300), "the steady clock did not jump"
    assert (kept.age(rig.wall()) or 0.0) >= 0.0
    clock = Clock()

    def ticking() -> float:
        clock.now += 1e-6
        return clock.now

    again = rig_on(tmp_path / "c", clock=ticking)
    again.wall.now = rig.wall.now
    again.dns.answers = {}
    with pytest.raises(NoMappingAuthority):
        again.cache.discover(ARK)
    assert again.dns.questions == [HOME], "an age that cannot be known is not fresh"


@pytest.mark.parametrize(("ahead", "stale"), [(0, False), (10, False), (86_400, True), (3650 * 86_400, True)])
def test_a_table_confirmed_in_the_future_is_stale_where_there_is_a_limit(
    ahead: float, stale: bool, tmp_path: Path
) -> None:
    """Its age is not known: by a clock that was wrong it would stay fresh until the right one is there."""
    natab = tmp_path / "natab"
    natab.write_text("12345:\n    t.example.org  ACR\n")
    rig = Rig({}, natab, "natab-only", table_limit=3600.0)
    rig.wall.now = natab.stat().st_mtime - ahead
    assert rig.cache.discover("ark:12345/x1").stale is stale


def test_a_clock_far_ahead_and_dns_silent_gives_no_answer_past_the_limit(tmp_path: Path) -> None:
    ask(rig_on(tmp_path / "c"))
    again = rig_on(tmp_path / "c")
    again.wall.now += STALE_LIMIT + 301
    again.dns.error = OSError("no network")
    with pytest.raises(DiscoveryFailed):
        again.cache.discover(ARK)


def test_two_processes_share_the_file_without_losing_an_answer(tmp_path: Path) -> None:
    program = f"""
import sys
from tests.support.caching import *
rig = Rig({{f"{{n}}.ark.arpa.": said(host("h.example.")) for n in range(1000, 1300)}}, path={str(tmp_path / "c")!r})
for turn in range(3):
    for n in range(1000, 1300):
        found = rig.cache.discover(f"ark:{{n}}/x{{turn}}")
        assert found[0].host == "h.example"
    rig.clock.now += 301
rig.cache.close()
"""
    both = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    last = Rig(path=tmp_path / "c")
    kept = [bool(last.cache.discover(f"ark:{n}/x", raise_on_none=False)) for n in range(1000, 1300)]
    assert sum(kept) > 250, "a busy file costs an answer kept now and then, not many"


def test_the_history_of_verdicts_holds_changes_only(tmp_path: Path) -> None:
    now = Clock(1000.0)
    disk = Disk(tmp_path / "c", wall=now)
    log = VerdictLog(disk)
    states = [("same", ("a",), ("a",)), ("same", ("a",), ("a",)), ("missing", ("a",), ()), ("differs", ("a",), ("b",))]
    for verdict, in_table, in_dns in states:
        assert log.record("", [Drift("12345", Verdict(verdict), "p", in_table, in_dns, "why")])
        now.now += 1
    rows = disk.run(lambda connection: connection.execute("SELECT at, verdict, reason FROM verdict").fetchall())
    assert rows == [(1000.0, "same", "why"), (1002.0, "missing", "why"), (1003.0, "differs", "why")]
    assert list(log.histories("")["12345"].dns) == [("b",), (), ("a",)]
    assert log.histories("another view") == {}
