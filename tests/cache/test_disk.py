"""The disk file: damage, other programs' files, forks and processes that share it. No fault costs an answer."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maptr.cache.disk import _STATEMENTS, APPLICATION_ID, PAGE, PAUSE, REPORT_EVERY, Disk
from maptr.client import Client
from maptr.discovery import Outcome
from maptr.errors import ConfigError
from maptr.protocol.names import parse
from maptr.resolver.call import Options
from maptr.walk import Answer
from tests.support.caching import ARK, HOME, ONE_HOST, Clock, Rig, dns_answer, host, run_program
from tests.support.waiting import PATIENCE

NAME = parse(HOME)


def execute(path: Path, statement: str, *values: object) -> None:
    """Change the file as another program would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def ask(rig: Rig) -> str:
    return rig.sources.discover(ARK).source


def disk_at(path: Path, **options: Any) -> Disk:
    return Disk(path, wall=lambda: 0.0, **options)


def test_after_a_restart_answers_have_their_remaining_ttl(tmp_path: Path) -> None:
    ask(Rig(ONE_HOST, path=tmp_path / "c"))
    again = Rig(ONE_HOST, path=tmp_path / "c")
    again.wall.now += 100
    found = again.sources.discover(ARK)
    assert (found.source, found.ttl, found.age_at(again.wall()), found[0].host) == ("disk", 200, 100, "h.example")
    assert ask(again) == "disk"
    again.pass_time(1)
    assert ask(again) == "memory"
    assert again.dns.asked == []


def corrupt_middle(path: Path) -> None:
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    path.write_bytes(content[:PAGE] + os.urandom(len(content) - PAGE))


CORRUPT: dict[str, Callable[[Path], object]] = {
    "header": lambda path: path.write_bytes(b"not SQLite" * 1000),
    "middle": corrupt_middle,
    "schema": lambda path: execute(path, "DROP TABLE answer"),
    "cut in half": lambda path: os.truncate(path, PAGE + PAGE // 2),
}


def default_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default path of the cache file, below a folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    (folder / "maptr").mkdir(exist_ok=True)
    return folder / "maptr" / "cache.sqlite"


@pytest.mark.parametrize("corrupt", CORRUPT.values(), ids=CORRUPT)
@pytest.mark.parametrize("when", ["at the start", "in use"])
def test_a_corrupt_file_is_renamed_reported_and_built_anew(
    corrupt: Callable[[Path], object],
    when: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = default_path(tmp_path, monkeypatch)
    first = Rig(ONE_HOST, path=path)
    ask(first)
    if when == "at the start":
        first.close()
    corrupt(path)
    rig = Rig(ONE_HOST, path=path) if when == "at the start" else first
    rig.pass_time(301)
    assert ask(rig) == "dns"
    rig.pass_time(301)
    assert ask(rig) == "dns"
    if when == "at the start":
        assert "set aside as cache.sqlite.corrupt" in caplog.text
        assert path.with_name("cache.sqlite.corrupt").exists()
        last = Rig(ONE_HOST, path=path)
        last.wall.now = rig.wall.now
        assert ask(last) == "disk"


def a_file_of_many_pages(path: Path) -> bytes:
    """A closed cache file with an answer for HOME and 100 others, and its content."""
    answers = ONE_HOST | {f"{naan}.ark.arpa.": dns_answer(host("h.example.")) for naan in range(20000, 20100)}
    rig = Rig(answers, path=path)
    for name in answers:
        rig.sources.discover(f"ark:{name.partition('.')[0]}/x")
    rig.close()
    return path.read_bytes()


def is_mended(path: Path) -> bool:
    """Whether a look-up with the file at a path that the caller gave succeeds, and the next one finds it kept."""
    rig = Rig(ONE_HOST, path=path)
    assert rig.sources.discover(ARK)[0].host == "h.example"
    rig.close()
    last = Rig(ONE_HOST, path=path)
    kept = ask(last) == "disk"
    last.close()
    return kept


def test_a_truncated_file_is_mended_at_any_path(tmp_path: Path) -> None:
    whole = a_file_of_many_pages(tmp_path / "whole")
    assert len(whole) > 4 * PAGE
    edges = {edge + near for edge in range(0, len(whole), PAGE) for near in (-1, 0, 1) if edge + near >= 0}
    for length in sorted({*range(110), *range(0, len(whole), 397), *edges}):
        path = tmp_path / f"c{length}"
        path.write_bytes(whole[:length])
        assert is_mended(path), length
        aside = Path(f"{path}.corrupt")
        assert not aside.exists() or aside.read_bytes() == whole[:length], length


@pytest.mark.parametrize("damage", [b"\0", b"\xff", b"w"])
@pytest.mark.parametrize("page", range(5))
def test_an_overwritten_page_costs_no_answer_at_any_path(damage: bytes, page: int, tmp_path: Path) -> None:
    whole = bytearray(a_file_of_many_pages(tmp_path / "whole"))
    for start, end in ((0, 16), (0, 100), (16, 100), (100, PAGE), (0, PAGE)):
        if (page, start, end) == (0, 0, PAGE) and damage == b"w":
            continue  # without its first page it is a text
        at = page * PAGE
        path = tmp_path / f"c{start}-{end}"
        path.write_bytes(whole[: at + start] + damage * (end - start) + whole[at + end :])
        for _ in range(2):
            rig = Rig(ONE_HOST, path=path)
            assert rig.sources.discover(ARK)[0].host == "h.example", (start, end)
            rig.close()


def test_a_damaged_schema_that_sqlite_quotes_is_set_aside(tmp_path: Path) -> None:
    whole = bytearray(a_file_of_many_pages(tmp_path / "whole"))
    at = whole.index(b"answer_expires")
    (tmp_path / "c").write_bytes(whole[: at + 6] + b"\xff\xfe" + whole[at + 8 :])
    assert is_mended(tmp_path / "c")


def test_zeros_are_a_damaged_cache(tmp_path: Path) -> None:
    """A file system that loses power may leave zeros in place of what was written."""
    (tmp_path / "c").write_bytes(bytes(5 * PAGE))
    assert is_mended(tmp_path / "c")
    (tmp_path / "own").write_bytes(bytes(5 * PAGE))
    disk = disk_at(tmp_path / "own", own=True)
    assert keep(disk), "the write that finds the damage is repeated"
    disk.close()


def test_a_file_cut_while_a_process_uses_it_is_mended(tmp_path: Path) -> None:
    """Its write-ahead log is still there, as after ``kill -9``."""
    rig = Rig(ONE_HOST, path=tmp_path / "used")
    ask(rig)
    log = (tmp_path / "used-wal").read_bytes()
    start = (tmp_path / "used").read_bytes()
    for length in (1, 15, 16, 50, 99, 100, 512, len(start)):
        path = tmp_path / f"c{length}"
        path.write_bytes(start[:length])
        Path(f"{path}-wal").write_bytes(log)
        assert is_mended(path), length


def test_read_only_media_only_warn(tmp_path: Path) -> None:
    program = """
import sys
import threading
from tests.support.caching import *
for name in ("c", "new"):
    rig = Rig(ONE_HOST, path=f"{sys.argv[1]}/{name}")
    assert rig.sources.discover(ARK).source == "dns"
    assert rig.sources.discover(ARK).source == "memory"
"""
    ask(Rig(ONE_HOST, path=tmp_path / "c"))
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mount} || exit 77; exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode in (1, 77) and "mitted" in done.stderr:
        pytest.skip("no mounts here")
    assert done.returncode == 0, done.stderr
    assert "going on without the disk cache" in done.stderr


@pytest.mark.parametrize("column", ["outcome", "records", "note", "server", "security", "fetched", "expires"])
@pytest.mark.parametrize("value", [None, "indeterminat\x00", b"\xff", 5, 1e300])
def test_damaged_rows_cost_no_answer(column: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "c"
    ask(Rig(ONE_HOST, path=path))
    execute(path, f"UPDATE answer SET {column} = ?", value)
    rig = Rig(ONE_HOST, path=path)
    found = rig.sources.discover(ARK)
    assert (found.security, found[0].host) == ("indeterminate", "h.example")
    assert str(found)
    assert found.to_dict()
    rig.pass_time(30 * 86_400)
    assert ask(rig) == "dns", "a damaged expiry does not keep an answer forever"


def test_a_full_disk_costs_no_answer(tmp_path: Path) -> None:
    """A limit on file size makes writes fail as on a full disk."""
    program = f"""
import resource, signal
from tests.support.caching import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
many = dns_answer(*(host(f"h{{i}}.example.") for i in range(60)))
rig = Rig({{f"{{n}}.ark.arpa.": many for n in range(1000, 1200)}}, path={str(tmp_path / "c")!r})
assert all(rig.sources.discover(f"ark:{{n}}/x") for n in range(1000, 1200))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
rig.dns.answers["23456.ark.arpa."] = dns_answer(host("h.example."))
rig.sources.discover("ark:23456/x")
rig.close()
other = Rig(path={str(tmp_path / "c")!r})
assert other.sources.discover("ark:23456/x").source == "disk"
"""
    assert "going on without the disk cache" in run_program(program)


def test_a_full_file_loses_the_answers_that_expire_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cache.disk.MAX_BYTES", 40 * PAGE)
    disk = disk_at(tmp_path / "c")
    answer = dns_answer(*(host(f"h{i}.example.") for i in range(40)))
    for number in range(300):
        disk.put("", parse(f"{number}.ark.arpa."), answer, 0.0, 1000.0 + number)
    assert disk.get("", parse("299.ark.arpa.")) is not None
    assert disk.get("", parse("0.ark.arpa.")) is None
    assert (tmp_path / "c").stat().st_size <= 40 * PAGE


def test_a_folder_that_is_missing_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = default_path(tmp_path, monkeypatch)
    path.parent.rmdir()
    rig = Rig(ONE_HOST, path=path)
    assert ask(rig) == "dns"
    assert f"{path}: there is no folder {path.parent}; going on without the disk cache" in caplog.text
    path.parent.mkdir()
    rig.pass_time(301)
    ask(rig)
    for part in path.parent.iterdir():
        part.unlink()
    rig.pass_time(301)
    assert ask(rig) == "dns"
    last = Rig(ONE_HOST, path=path)
    last.wall.now = rig.wall.now
    assert ask(last) == "disk"


def test_two_processes_share_the_file(tmp_path: Path) -> None:
    program = f"""
import sys
import threading
from tests.support.caching import *
answers = {{f"{{n}}.ark.arpa.": dns_answer(host("h.example.")) for n in range(1000, 1300)}}
rig = Rig(answers, path={str(tmp_path / "c")!r})
for turn in range(3):
    for n in range(1000, 1300):
        found = rig.sources.discover(f"ark:{{n}}/x{{turn}}")
        assert found[0].host == "h.example"
    rig.clock.now += 301
rig.close()
"""
    both = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=600)
        assert (process.returncode, errors) == (0, "")
    last = Rig(path=tmp_path / "c")
    kept = [bool(last.sources.discover(f"ark:{n}/x", Options(raise_on_none=False))) for n in range(1000, 1300)]
    assert sum(kept) > 250, "a busy file loses few answers"


def test_a_child_can_use_the_file_whenever_its_parent_forked(tmp_path: Path) -> None:
    """A child inherits SQLite's mutexes, which a thread of the parent locks while it opens, writes or closes.

    Without the guard of forks, one of the first hundred children hangs.
    """
    program = f"""
import os, signal, threading, warnings
from tests.support.caching import *
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, since Python 3.12
from maptr.cache.disk import Disk
path, name, answer = {str(tmp_path / "c")!r}, parse(HOME), dns_answer(host("h.example."))
disk = Disk(path, wall=lambda: 0.0)
disk.put("", name, answer, 0.0, 1.0)
done = threading.Event()
def write():
    while not done.is_set():
        Disk(path, wall=lambda: 0.0).put("", name, answer, 0.0, 1.0)
thread = threading.Thread(target=write, daemon=True)
thread.start()
children = []
for turn in range(800):
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
    held = disk_at(tmp_path / "c")  # so that no close is the last one, which would wait for the disk
    held.get("", NAME)
    assert run_program(program) == ""
    held.close()


def test_a_child_s_writes_survive_the_parent_s_close(tmp_path: Path) -> None:
    """SQLite in the child takes the parent's lock for its own unless the file was closed before the fork."""
    program = f"""
import os, sys
from tests.support.caching import *
from maptr.cache.disk import Disk
answer = dns_answer(host("h.example."))
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
    os._exit(0)  # without closing the file
os.read(ready, 1)
disk.close()
os.write(tell, b"x")
assert os.waitpid(child, 0)[1] == 0
other = Disk({str(tmp_path / "c")!r}, wall=lambda: 0.0)
assert [other.get("", name) is not None for name in names] == [True, True, True]
"""
    assert run_program(program) == ""


def test_processes_can_open_a_new_file_at_the_same_time(tmp_path: Path) -> None:
    program = """
import multiprocessing, sys
from maptr.cache.disk import Disk
fork = multiprocessing.get_context("fork")
barrier = fork.Barrier(3)
def open_all():
    for number in range(40):
        disk = Disk(f"{sys.argv[1]}/{number}", wall=lambda: 0.0)
        barrier.wait(60)
        assert disk.run(lambda connection: True), number
processes = [fork.Process(target=open_all) for _ in range(3)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(max(process.exitcode for process in processes))
"""
    assert run_program(program, str(tmp_path)) == ""


def test_the_file_of_another_release_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    execute(path, f"PRAGMA application_id = {APPLICATION_ID}")
    before = database(path, "answer (view, name, outcome, more)", 99)
    assert ask(Rig(ONE_HOST, path=path)) == "dns"
    assert "version 99" in caplog.text
    assert path.read_bytes() == before


def database(path: Path, table: str, version: int) -> bytes:
    execute(path, f"CREATE TABLE {table}")
    execute(path, f"PRAGMA user_version = {version}")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("table", "version"),
    [
        *((table, version) for table in ("bookmark (url)", "answer (question, text)") for version in (0, 1, 99)),
        ("answer (view, name, outcome)", 0),  # every release sets a version
    ],
)
def test_the_database_of_another_program_is_left_alone(
    table: str, version: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "maptr" / "cache.sqlite"
    path.parent.mkdir()
    before = database(path, table, version)
    for options in ({"cache": path}, {"history": str(path)}):
        with pytest.raises(ConfigError, match="something other than a maptr cache"):
            Client(**options)
    default_path(tmp_path, monkeypatch)
    assert ask(Rig(ONE_HOST, path=path)) == "dns"
    assert "something other than a maptr cache: left alone; going on without" in caplog.text
    assert path.read_bytes() == before
    assert [path.name for path in path.parent.iterdir()] == ["cache.sqlite"]


TEXT = b"words, " * 1000


@pytest.mark.parametrize("content", [TEXT, b"w", str(_STATEMENTS).encode()], ids=["text", "one letter", "our schema"])
def test_a_text_file_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "thesis"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{path}: holds something other than a maptr cache"):
        Client(cache=path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"\xff" * 5000, b"\x89PNG\r\n\x1a\n\0\0" * 2000])
def test_a_possibly_damaged_cache_only_warns(content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    path.write_bytes(content)
    assert ask(Rig(ONE_HOST, path=path)) == "dns"
    assert "something other than a maptr cache: left alone; going on without" in caplog.text
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_foreign_file_that_replaced_the_cache_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    rig = Rig(ONE_HOST, path=path)
    ask(rig)
    for part in tmp_path.iterdir():
        part.unlink()
    path.write_bytes(TEXT)
    rig.pass_time(301)
    assert ask(rig) == "dns"
    assert "something other than a maptr cache" in caplog.text
    assert path.read_bytes() == TEXT
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_and_an_empty_database_are_used(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    execute(tmp_path / "no-tables", "PRAGMA journal_mode = WAL")
    for name in ("empty", "no-tables"):
        ask(Rig(ONE_HOST, path=tmp_path / name))
        assert ask(Rig(path=tmp_path / name)) == "disk"


def test_a_path_that_cannot_be_used_is_a_config_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    reasons = {"none/c": "there is no folder", "pipe": "not a regular file", "": "is a directory", "loop": "Too many"}
    for name, reason in reasons.items():
        with pytest.raises(ConfigError, match=reason):
            Client(cache=tmp_path / name)


def test_a_file_that_is_held_is_opened_again_after_a_pause(tmp_path: Path) -> None:
    clock = Clock()
    file = disk_at(tmp_path / "c", clock=clock)
    with closing(sqlite3.connect(tmp_path / "c", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert file.run(lambda connection: True) is None
    clock.now += PAUSE - 0.1
    assert file.run(lambda connection: True) is None, "no attempt before the pause is over"
    clock.now += 0.1
    assert file.run(lambda connection: connection.execute("SELECT count(*) FROM answer").fetchone()) == (0,)
    file.close()


def test_opening_waits_a_moment_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = disk_at(tmp_path / "c")
    monkeypatch.setattr("maptr.cache.disk.OPENING", PATIENCE)
    with closing(sqlite3.connect(tmp_path / "c", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr("random.random", lambda: float(other.execute("ROLLBACK").rowcount > 0))  # between two tries
        assert disk.run(lambda connection: True)
    disk.close()


def keep(disk: Disk) -> bool:
    disk.put("", NAME, Answer(Outcome.NXDOMAIN), 0.0, 1.0)
    return disk.get("", NAME) is not None


def note(disk: Disk) -> bool:
    return disk.transaction(lambda connection: None)


@pytest.mark.parametrize(
    ("write", "limit"), [(keep, "maptr.cache.disk.BUSY_MS"), (note, "maptr.cache.disk.BUSY_HISTORY_MS")]
)
def test_a_write_waits_a_moment_for_another_process(
    write: Callable[[Disk], bool], limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, 60_000)
    disk = disk_at(tmp_path / "c")
    usual = disk.run(lambda connection: connection.execute("PRAGMA busy_timeout").fetchone())
    with closing(sqlite3.connect(tmp_path / "c", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.3, other.execute, ["ROLLBACK"])
        end.start()
        assert write(disk)
        end.join()
    assert disk.run(lambda connection: connection.execute("PRAGMA busy_timeout").fetchone()) == usual
    disk.close()


def test_a_read_only_file_is_logged_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    disk = disk_at(tmp_path / "c", clock=clock)
    disk.put("", NAME, ONE_HOST[HOME], 0.0, 1.0)
    for minutes in (1, 2):
        for _ in range(50):
            disk.run(lambda connection: connection.execute("PRAGMA query_only = 1"))
            assert disk.get("", NAME) is not None
            disk.put("", NAME, ONE_HOST[HOME], 0.0, 1.0)
        assert caplog.text.count("going on without") == minutes
        clock.now += REPORT_EVERY
    disk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
def test_another_user_s_file_and_folder_cost_no_answer(tmp_path: Path) -> None:
    """At the default path. At a path that the caller gave they are a ConfigError, as is an unreadable table."""
    program = """
import os, sys, time
from maptr.client import Client
from maptr.cache.disk import Disk
from maptr.registry.followed_file import WatchedTable
from maptr.registry.found import FoundTable  # before the other user, who may not read Python's own files
from maptr.errors import ConfigError
from tests.support.caching import *
folder = sys.argv[1]
Rig(ONE_HOST, path=folder + "/private").sources.discover(ARK)
os.chmod(folder + "/private", 0o600)
Rig(ONE_HOST, path=folder + "/readable").sources.discover(ARK)
os.mkdir(folder + "/closed", 0o700)
with open(folder + "/closed/natab", "w") as natab:
    natab.write("12345:\\n    t.example.org\\n")
os.chdir(folder)
os.chmod(folder, 0o755)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for name in ("private", "readable", "new", "closed/natab"):
    rig = Rig(ONE_HOST, natab=WatchedTable("closed/natab", clock=time.monotonic))
    rig.drift("12345", VerdictLog(Disk(name, wall=rig.wall, own=True)))
    assert rig.sources.discover(ARK).source == "memory"
    for options in ({"cache": name}, {"table": "closed/natab"}):
        try:
            Client(**options)
        except ConfigError as error:
            assert any(word in str(error) for word in ("denied", "no file can be made")), error
        else:
            raise AssertionError(options)
"""
    assert run_program(program, str(tmp_path)).count("going on without the disk cache") == 4
