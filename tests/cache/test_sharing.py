"""A cache among others: in a forked child, on a file of somebody else's or held by him, after a loop that closed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maptr.ark import Ark
from maptr.cache.cache import Cache
from maptr.cache.disk import FIRST_PAUSE, REPORT_EVERY, Disk
from maptr.cache.drivers import LOST_AFTER, PendingLookups
from maptr.cache.engine import TableReader
from maptr.cache.options import Key
from maptr.discovery import Discovery, DiscoveryFailed
from maptr.errors import ConfigError
from maptr.files import ForkLock
from maptr.protocol.names import parse
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Table
from maptr.walk import DEFAULTS
from tests.support.caching import ARK, HOME, Clock, Rig, host, said, table

H = {HOME: said(host("h.example."))}
KEY: Key = ("", parse(HOME))


# ---- a fork


def test_a_child_asks_what_its_parent_was_asking_when_it_forked() -> None:
    program = """
import os, sys, threading
from maptr.files import ForkLock
from tests.support.caching import *
rig = Rig({HOME: said(host("h.example."))}, lifetime=60.0, patience=60.0)
rig.dns.gate = threading.Event()
asking = threading.Thread(target=lambda: rig.cache.discover(ARK))
asking.start()
while not rig.dns.calls:
    pass
lock = ForkLock()
with lock:
    child = os.fork()
    if not child:
        rig.dns.gate.set()
        with lock:
            os._exit(0 if rig.cache.discover(ARK).source == "dns" else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
rig.dns.gate.set()
asking.join()
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


FORKS = 3_000


def test_a_child_opens_the_file_anew_at_whatever_moment_its_parent_forked(tmp_path: Path) -> None:
    """A thread of the parent opens, writes and closes it: a child inherits SQLite's own mutexes as they are."""
    program = f"""
import os, signal, threading
from tests.support.caching import *
from maptr.cache.disk import Disk
path, name, answer = {str(tmp_path / "c")!r}, parse(HOME), said(host("h.example."))
disk = Disk(path, wall=lambda: 0.0)
disk.put("", name, answer, 0.0, 1.0)
done = threading.Event()
def write():
    while not done.is_set():
        Disk(path, wall=lambda: 0.0).put("", name, answer, 0.0, 1.0)
thread = threading.Thread(target=write, daemon=True)
thread.start()
children = []
for turn in range({FORKS}):
    children.append(os.fork())
    if not children[-1]:
        signal.alarm(60)  # ends one that hangs
        os._exit(0 if disk.get("", name) else 1)
    if len(children) == 8:
        assert os.waitpid(children.pop(0), 0)[1] == 0, turn
assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
done.set()
thread.join()
assert disk.get("", name)
"""
    held = Disk(tmp_path / "c", wall=lambda: 0.0)  # so that no closing is the last one, which would wait for the disk
    held.get("", KEY[1])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stderr) == (0, "")
    held.close()


def test_what_a_child_writes_outlives_its_parent_s_closing(tmp_path: Path) -> None:
    """SQLite takes a lock of its parent's for the child's own, unless the file was closed before the fork."""
    program = f"""
import os, sys
from tests.support.caching import *
from maptr.cache.disk import Disk
answer = said(host("h.example."))
names = [parse(f"{{n}}.ark.arpa.") for n in range(3)]
disk = Disk({str(tmp_path / "c")!r}, wall=lambda: 0.0)
disk.put("", names[0], answer, 0.0, 1.0)
closed, tell = os.pipe()
ready, say = os.pipe()
child = os.fork()
if not child:
    disk.put("", names[1], answer, 0.0, 1.0)
    os.write(say, b"x")
    os.read(closed, 1)
    disk.put("", names[2], answer, 0.0, 1.0)
    os._exit(0)  # it does not close the file, as a worker that is killed does not
os.read(ready, 1)
disk.close()
os.write(tell, b"x")
assert os.waitpid(child, 0)[1] == 0
other = Disk({str(tmp_path / "c")!r}, wall=lambda: 0.0)
assert [other.get("", name) is not None for name in names] == [True, True, True]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lock_of_the_same_process_locks() -> None:
    lock = ForkLock()
    got = threading.Event()

    def get() -> None:
        with lock:
            got.set()

    with lock:
        assert lock.locked()
        thread = threading.Thread(target=get)
        thread.start()
        assert not got.wait(0.05)
    thread.join(10)
    assert got.is_set()
    assert not lock.locked()


# ---- questions that nobody asks any more


def test_a_loop_closed_over_a_question_leaves_it_to_the_next_caller_in_the_end() -> None:
    rig = Rig(H, lifetime=0.01)
    rig.dns.gate = threading.Event()

    tasks: list[asyncio.Task[Discovery]] = []

    async def leave() -> None:
        tasks.append(asyncio.create_task(rig.cache.discover_async(ARK)))
        while not rig.dns.calls:
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    rig.dns.gate.set()
    with pytest.raises(DiscoveryFailed):
        rig.cache.discover(ARK)
    rig.pass_time(LOST_AFTER + 1)
    assert rig.cache.discover(ARK).source == "dns"
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()
    assert rig.cache.discover(ARK).source == "memory", "what lands late changes nothing"


def test_lost_flights_take_no_room_and_landing_late_ends_no_other() -> None:
    clock = Clock()
    pending = PendingLookups(clock, limit=2)
    lost, fly = pending.join(KEY, 1.0)
    assert lost is not None
    assert fly
    assert pending.join(KEY, 1.0) == (lost, False)
    pending.join(("other", KEY[1]), 1.0)
    assert pending.join(("third", KEY[1]), 1.0) == (None, False)
    clock.now += 1.0 + LOST_AFTER + 0.1
    assert pending.join(("third", KEY[1]), 1.0)[1]
    second, fly = pending.join(KEY, 1.0)
    assert fly
    pending.finish(lost, DiscoveryFailed(None, "late"))  # type: ignore[arg-type]
    assert pending.join(KEY, 1.0) == (second, False)


# ---- a table that changes while it is read


def test_what_an_old_table_said_is_never_kept_as_the_new_one_s() -> None:
    """A thread that still reads the old table, while another one has begun with the new."""
    reader = TableReader()
    ark = Ark.parse(ARK)

    def where(table: Table) -> str:
        _, found = reader.read(ark, DEFAULTS, TableState(table), too_old=False)
        assert found is not None
        return found[0].host

    class Overtaken(Table):
        """In the midst of whose reading somebody reads the new one."""

        def shoulders(self, naan: str) -> list[Entry]:
            assert where(new) == "new.example"
            return super().shoulders(naan)

    new = table(("12345", "new.example"), ("23456", "new.example"))
    old = Overtaken(table(("12345", "old.example")).values())
    reader.read(Ark.parse("ark:23456/x"), DEFAULTS, TableState(new), too_old=False)
    assert where(old) == "old.example"
    assert where(new) == "new.example"


# ---- files that are not ours, or not now


def test_processes_that_open_new_files_at_once_all_get_them(tmp_path: Path) -> None:
    program = """
import sys
from tests.support.caching import *
from maptr.cache.disk import Disk
for number in range(40):
    disk = Disk(f"{sys.argv[1]}/{number}", wall=lambda: 0.0)
    print(flush=True)
    sys.stdin.readline()
    print(disk.run(lambda connection: True))
"""
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for _ in range(3)
    ]
    for _ in range(40):
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")


def database(path: Path, table: str, version: int) -> bytes:
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table}")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("table", "version"),
    [
        *((table, version) for table in ("bookmark (url)", "answer (question, text)") for version in (0, 1, 99)),
        ("answer (view, name, outcome)", 0),  # ours has had a version in every release
    ],
)
def test_the_database_of_another_program_is_left_alone(
    table: str, version: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "maptr" / "cache.sqlite"
    path.parent.mkdir()
    before = database(path, table, version)
    for options in ({"path": path}, {"history": str(path)}):
        with pytest.raises(ConfigError, match="something other than a maptr cache"):
            Rig(H, **options)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Rig(H, path=path).cache.discover(ARK).source == "dns"
    assert "something other than a maptr cache: left alone; going on without" in caplog.text
    assert path.read_bytes() == before
    assert [path.name for path in path.parent.iterdir()] == ["cache.sqlite"]


FOREIGN = {
    "a text": b"words, " * 1000,
    "a short text": b"w",
    "a damaged database": b"SQLite format 3\0" + b"\xff" * 5000,
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_file_that_is_no_database_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "thesis"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{path}: holds something other than a maptr cache"):
        Cache(path=path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_took_the_cache_s_place_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    rig = Rig(H, path=path)
    rig.cache.discover(ARK)
    for part in tmp_path.iterdir():
        part.unlink()
    path.write_bytes(FOREIGN["a text"])
    rig.pass_time(301)
    assert rig.cache.discover(ARK).source == "dns"
    assert "something other than a maptr cache" in caplog.text
    assert path.read_bytes() == FOREIGN["a text"]
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_and_an_empty_database_are_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with sqlite3.connect(tmp_path / "no-tables") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    for name in ("empty", "no-tables"):
        Rig(H, path=tmp_path / name).cache.discover(ARK)
        assert Rig(path=tmp_path / name).cache.discover(ARK).source == "disk"


def test_a_path_that_cannot_be_used_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "closed").touch(0o400)
    reasons = {"none/c": "there is no folder", "pipe": "not a regular file", "": "is a directory", "loop": "Too many"}
    if os.geteuid() != 0:
        reasons["closed"] = "Permission denied"
    for name, reason in reasons.items():
        with pytest.raises(ConfigError, match=reason):
            Cache(path=tmp_path / name)


def test_setting_aside_cuts_nothing_that_a_link_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "maptr" / "cache.sqlite"
    path.parent.mkdir()
    (tmp_path / "precious").write_text("words")
    Path(f"{path}.lock").symlink_to(tmp_path / "precious")
    path.write_text("not SQLite" * 1000)
    Rig(H, path=path).cache.discover(ARK)
    assert Path(f"{path}.corrupt-1").exists()
    assert (tmp_path / "precious").read_text() == "words"


@contextmanager
def held(path: Path) -> Iterator[None]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def test_a_file_that_somebody_holds_is_waited_for_once_and_then_left_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    file = Disk(tmp_path / "c", wall=clock, clock=clock)
    with held(tmp_path / "c"):
        for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE):
            assert file.run(lambda connection: True) is None
            (tmp_path / "c").rename(tmp_path / "held")  # from here on it could be had
            clock.now += pause - 0.1
            assert file.run(lambda connection: True) is None, "it is not even tried"
            (tmp_path / "held").rename(tmp_path / "c")
            clock.now += 0.1
    clock.now += 2 * FIRST_PAUSE
    assert file.run(lambda connection: connection.execute("SELECT count(*) FROM answer").fetchone()) == (0,)
    file.close()


def test_a_disk_that_reads_and_does_not_write_is_told_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    disk = Disk(tmp_path / "c", wall=clock, clock=clock)
    disk.put("", KEY[1], H[HOME], 0.0, 1.0)
    disk.run(lambda connection: connection.execute("PRAGMA query_only = 1"))
    for _ in range(100):
        assert disk.get("", KEY[1]) is not None
        disk.put("", KEY[1], H[HOME], 0.0, 1.0)
        disk.run(lambda connection: connection.execute("PRAGMA query_only = 1"))
    assert caplog.text.count("going on without") == 1
    clock.now += REPORT_EVERY
    disk.put("", KEY[1], H[HOME], 0.0, 1.0)
    assert caplog.text.count("going on without") == 2
    disk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
def test_another_user_s_file_and_folder_cost_no_answer(tmp_path: Path) -> None:
    """Where maptr chose the path. What was named is refused at once, as is a table that may not be read."""
    program = """
import os, sys, time
from maptr.cache.disk import Disk
from maptr.registry.followed_file import WatchedTable
from maptr.errors import ConfigError
from tests.support.caching import *
folder = sys.argv[1]
H = {HOME: said(host("h.example."))}
Rig(H, path=folder + "/theirs").cache.discover(ARK)
os.chmod(folder + "/theirs", 0o600)
Rig(H, path=folder + "/readable").cache.discover(ARK)
os.mkdir(folder + "/closed", 0o700)
with open(folder + "/closed/natab", "w") as natab:
    natab.write("12345:\\n    t.example.org\\n")
os.chdir(folder)
os.chmod(folder, 0o755)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for name in ("theirs", "readable", "new", "closed/natab"):
    rig = Rig(H, natab=WatchedTable("closed/natab", clock=time.monotonic))
    rig.cache = Cache(history=Disk(name, wall=rig.wall, own=True), **rig.options)
    rig.cache.drift("12345")
    assert rig.cache.discover(ARK).source == "memory"
    for options in ({"path": name}, {"natab": "closed/natab"}):
        try:
            Cache(**options)
        except ConfigError as error:
            assert any(word in str(error) for word in ("denied", "no file can be made", "unable to open")), error
        else:
            raise AssertionError(options)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("going on without the disk cache") == 4
