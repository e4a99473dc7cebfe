"""Registry files read in a child process: the same table as in this one, and no more of memory, time and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maptr import registry
from maptr.errors import ParserFailed, TableError
from maptr.registry import json_records, sandbox
from tests.registry.test_hostile import BAD, MANY, SAMPLES
from tests.support.caching import until

NESTED = b"[" + b"[]," * (20 << 20) + b"[]]"  # 60 MB that take 2.1 GB once they are parsed
SLOW = b"# x\n" * 3_000_000 + b"12345:\n    h.example.org A\n"
SLEEPS = "import time; time.sleep(600)"
NATAB = b"12345:\n    h.example.org A\n"


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Every child that was started; each must have been waited for in the end."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("maptr.registry.sandbox.subprocess.Popen", start)
    yield started
    assert started
    assert [process.returncode for process in started].count(None) == 0


@pytest.mark.parametrize("text", SAMPLES + [make(5) for make in (*BAD.values(), *MANY.values())])
def test_the_table_is_that_of_the_registry(text: str) -> None:
    bad: list[TableError] = []
    table = registry.read(text, filename="f", on_bad=bad.append)
    read, left_out = sandbox.read(text.encode(), filename="f")
    assert (read, read.metadata) == (table, table.metadata)
    assert [entry.line for entry in read.values()] == [entry.line for entry in table.values()]
    assert [str(error) for error in left_out] == [str(error) for error in bad]
    assert [(error.record, error.line) for error in left_out] == [(error.record, error.line) for error in bad]


NO_REGISTRY = [
    b"",
    b"<html>",
    b'{"data": [',
    b"\xff\xfe",
    b"x",
    b'{"data": ' + b"[" * 100_000,
    NESTED,
    b"#" * (65 << 20),
]


@pytest.mark.parametrize("content", NO_REGISTRY)
def test_what_is_no_registry_is_told_as_ever(content: bytes, children: list[object]) -> None:
    with pytest.raises(TableError) as inside:
        registry.read(content, filename="f")
    with pytest.raises(TableError) as outside:
        sandbox.read(content, filename="f")
    assert str(outside.value) == str(inside.value)
    assert (outside.value.line, outside.value.record) == (inside.value.line, inside.value.record)


def test_values_and_lines_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TableError, match="more than 4000000 JSON values"):
        registry.read(NESTED)
    monkeypatch.setattr(registry, "MAX_LINES", 100)
    monkeypatch.setattr(json_records, "MAX_VALUES", 100)
    for end in ("\n", "\r", "\x85", "\u2028"):
        with pytest.raises(TableError, match="more than 100 lines"):
            registry.read("12345:" + end * 101)
    with pytest.raises(TableError, match="more than 100 JSON values"):
        registry.read('{"data": [' + "{}," * 60 + "{}]}")
    assert registry.read('{"data": [{"what": "12345"}]}' + " " * 1000)


def test_the_memory_of_the_process_that_asks_does_not_grow(tmp_path: Path) -> None:
    """With a signature that is bad it grew to 2.1 GB."""
    source = tmp_path / "source"
    source.write_bytes(NESTED)
    program = f"""
import re
from pathlib import Path
from maptr.errors import PullFailed
from maptr.registry.pull import plan_pull
try:
    plan_pull(Path({str(tmp_path / "naans")!r}), [{str(source)!r}])
except PullFailed as error:
    # Of this program: ru_maxrss would be that of the process that started it.
    print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    size, _, reason = done.stdout.partition(" ")
    assert "more than 4000000 JSON values" in reason
    assert int(size) < 400


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch, children: list[object]) -> None:
    monkeypatch.setattr(sandbox, "MEMORY", 200 << 20)
    with pytest.raises(ParserFailed, match=r"^f: takes more than 200 MiB of memory to read$"):
        sandbox.read(b'{"data": [' + b"{}," * 1_900_000 + b"{}]}", filename="f")


def test_processor_time_is_limited(monkeypatch: pytest.MonkeyPatch, children: list[object]) -> None:
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 1)
    with pytest.raises(ParserFailed, match="took more than 1 seconds of processor time"):
        sandbox.read(SLOW, filename="f")


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch, children: list[object]) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 0.2)
    monkeypatch.setattr(sandbox, "PROGRAM", SLEEPS)
    with pytest.raises(ParserFailed, match=r"^f: takes longer than 0\.2 seconds to read$"):
        sandbox.read(NATAB * 100_000, filename="f")  # more than a pipe holds


@pytest.mark.parametrize(
    ("program", "because"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        ("raise OSError('no such module')", "ended with status 1: OSError: no such module"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("print('x')", "sent a malformed line"),
        ("print('[]')", "sent a malformed line"),
        ('print(\'["rm", "-r"]\')', "sent a malformed line"),
        ("print('[\"entry\", 0, {}]')", "sent a malformed line"),
        ('print(\'["entry", 0, {"what": "1"}]\\n\' * 2)', "sent a malformed line: duplicate record"),
        ("print('[' * 100_000)", "sent a malformed line"),
        ("print('x' * (2 << 20))", "sent a malformed line"),
    ],
)
def test_a_child_that_fails_says_nothing_of_the_file(
    program: str, because: str, monkeypatch: pytest.MonkeyPatch, children: list[object]
) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", f"import sys; sys.stdin.buffer.read(8 + {len(NATAB)}); {program}")
    with pytest.raises(ParserFailed, match=because):
        sandbox.read(NATAB, filename="f")


def test_records_without_end_are_not_taken(monkeypatch: pytest.MonkeyPatch, children: list[object]) -> None:
    monkeypatch.setattr(sandbox, "MAX_OUTPUT", 1000)
    with pytest.raises(TableError, match="more than 1000 bytes of records"):
        sandbox.read(MANY["natab"](100).encode(), filename="f")


def test_a_record_without_end_is_a_bad_one() -> None:
    text = '{"data": [{"what": "12345", "x": "%s"}, {"what": "12346"}]}' % ("x" * sandbox.MAX_LINE)
    table, bad = sandbox.read(text.encode(), filename="f")
    assert list(table) == ["12346"]
    assert [str(error) for error in bad] == ["f: record 12345: has more than 1048576 bytes"]


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(ParserFailed, match="cannot start a process to read it: No such file"):
        sandbox.read(NATAB, filename="f")


def test_stopped_from_another_thread_it_ends_and_starts_no_other(
    monkeypatch: pytest.MonkeyPatch, children: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", SLEEPS)
    parser = sandbox.Parser()
    ends: list[str] = []

    def read() -> None:
        with pytest.raises(ParserFailed) as failed:
            parser.read(NATAB, filename="f")
        ends.append(str(failed.value))

    thread = threading.Thread(target=read)
    thread.start()
    until(lambda: children, "a child")
    parser.stop()
    assert children[0].returncode == -signal.SIGKILL, "and it was waited for"
    thread.join()
    read()
    assert (ends, len(children)) == (["f: the reading was stopped"] * 2, 1)


BEGINS = """
import sys
sys.path[:] = sys.argv[4:]
import threading
from pathlib import Path
from maptr.registry import sandbox

def read(content, **options):
    Path({begun!r}).touch()
    threading.Event().wait()

sandbox.registry.read = read
sandbox.main(*sys.argv[1:4])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = f"""
import subprocess
from maptr.registry import sandbox
real = subprocess.Popen
def start(*arguments, **options):
    process = real(*arguments, **options)
    print(process.pid, flush=True)
    return process
subprocess.Popen = start
sandbox.PROGRAM = {BEGINS.format(begun=str(begun))!r}
sandbox.read({NATAB!r})
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(begun.exists, "the content to be read")
        assert not _is_gone(pid)
        parent.kill()
    until(lambda: _is_gone(pid), "its end")


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_the_environment_of_the_parent_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name in the folder where the command is given would be run, with the rights of the server."""
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", os.devnull)
    assert list(sandbox.read(NATAB, filename="f")[0]) == ["12345"]


def test_the_hosts_of_a_natab_have_the_scheme_that_is_asked_for() -> None:
    table, _ = sandbox.read(NATAB, scheme="http")
    assert {nma.target.partition(":")[0] for entry in table.values() for nma in entry.nmas} == {"http"}
