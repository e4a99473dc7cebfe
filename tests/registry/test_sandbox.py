"""Parsing in a child process: equal tables, limits on memory and time, and the end of the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from maptr import registry
from maptr.errors import ParserFailed, TableError
from maptr.registry import sandbox
from tests.support.registries import BAD_RECORDS, GOOD_RECORDS, SAMPLES
from tests.support.waiting import until

NESTED = b"[" + b"[]," * (20 << 20) + b"[]]"  # 60 MB, which take 2.1 GB when parsed
SLOW = b"# x\n" * 3_000_000 + b"12345:\n    h.example.org A\n"
SLEEP = "import time; time.sleep(600)"
NATAB = b"12345:\n    h.example.org A\n"


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """List the child processes that the test starts, and check that each was waited for."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("maptr.registry.sandbox.subprocess.Popen", start)
    yield started
    assert started
    assert [process.returncode for process in started].count(None) == 0


@pytest.mark.parametrize("text", SAMPLES + [make(5) for make in (*BAD_RECORDS.values(), *GOOD_RECORDS.values())])
def test_the_child_reads_the_same_table(text: str) -> None:
    bad: list[TableError] = []
    table = registry.read(text, filename="f", on_bad=bad.append)
    read, left_out = sandbox.read(text.encode(), filename="f")
    assert (read, read.metadata) == (table, table.metadata)
    assert [entry.line for entry in read.values()] == [entry.line for entry in table.values()]
    assert [str(error) for error in left_out] == [str(error) for error in bad]
    assert [(error.record, error.line) for error in left_out] == [(error.record, error.line) for error in bad]


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b'{"data": [', b"\xff\xfe", b"x", b'{"data": ' + b"[" * 100_000, NESTED, b"#" * (65 << 20)],
)
def test_the_child_reports_the_same_error(content: bytes, children: list[object]) -> None:
    with pytest.raises(TableError) as inside:
        registry.read(content, filename="f")
    with pytest.raises(TableError) as outside:
        sandbox.read(content, filename="f")
    assert str(outside.value) == str(inside.value)
    assert (outside.value.line, outside.value.record) == (inside.value.line, inside.value.record)


@pytest.mark.parametrize(
    ("limit", "value", "content", "reason"),
    [
        (
            "MEMORY",
            200 << 20,
            b'{"data": [' + b"{}," * 1_900_000 + b"{}]}",
            "the process that reads it ended with status 1: takes more than 200 MiB of memory",
        ),
        ("CPU_SECONDS", 1, SLOW, "the process that reads it took more than 1 seconds of processor time"),
    ],
    ids=["memory", "processor time"],
)
def test_memory_and_processor_time_are_limited(
    limit: str, value: int, content: bytes, reason: str, monkeypatch: pytest.MonkeyPatch, children: list[object]
) -> None:
    monkeypatch.setattr(sandbox, limit, value)
    with pytest.raises(ParserFailed, match=f"^f: {reason}"):
        sandbox.read(content, filename="f")


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch, children: list[object]) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 0.2)
    monkeypatch.setattr(sandbox, "PROGRAM", SLEEP)
    with pytest.raises(ParserFailed, match=r"^f: takes longer than 0\.2 seconds to read$"):
        sandbox.read(NATAB * 100_000, filename="f")  # more than a pipe holds


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        ("raise OSError('no such module')", "ended with status 1: OSError: no such module"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("print('[')", "sent a malformed line"),
        ('print(\'["rm", "-r"]\')', "sent a malformed line: unknown"),
        ('print(\'["entry", 0, {"what": "1"}]\\n\' * 2)', "sent a malformed line: duplicate record"),
    ],
)
def test_failing_child_raises_parser_failed(
    program: str, reason: str, monkeypatch: pytest.MonkeyPatch, children: list[object]
) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", f"import sys; sys.stdin.buffer.read(); {program}")
    with pytest.raises(ParserFailed, match=reason):
        sandbox.read(NATAB, filename="f")


def test_the_output_of_the_child_is_limited(monkeypatch: pytest.MonkeyPatch, children: list[object]) -> None:
    monkeypatch.setattr(sandbox, "MAX_OUTPUT", 1000)
    with pytest.raises(TableError, match="more than 1000 bytes of records"):
        sandbox.read(GOOD_RECORDS["natab"](100).encode(), filename="f")


def test_a_record_that_is_too_long_is_bad() -> None:
    text = '{"data": [{"what": "12345", "x": "%s"}, {"what": "12346"}]}' % ("x" * sandbox.MAX_LINE)
    table, bad = sandbox.read(text.encode(), filename="f")
    assert list(table) == ["12346"]
    assert [str(error) for error in bad] == ["f: record 12345: has more than 1048576 bytes"]


def test_a_child_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(ParserFailed, match="cannot start a process to read it: No such file"):
        sandbox.read(NATAB, filename="f")


def test_stop_ends_the_child_and_prevents_another(
    monkeypatch: pytest.MonkeyPatch, children: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", SLEEP)
    parser = sandbox.Parser()
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(parser.read, NATAB, filename="f")
        until(lambda: children, "a child")
        parser.stop()
        assert children[0].returncode == -signal.SIGKILL
    with pytest.raises(ParserFailed, match="f: the reading was stopped"):
        reading.result()
    with pytest.raises(ParserFailed, match="f: the reading was stopped"):
        parser.read(NATAB, filename="f")
    assert len(children) == 1


def test_the_child_ignores_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the current folder or in PYTHONPATH must not be imported with the rights of the server."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", os.devnull)
    assert list(sandbox.read(NATAB, filename="f")[0]) == ["12345"]


def test_the_scheme_of_natab_hosts_is_passed_to_the_child() -> None:
    table, _ = sandbox.read(NATAB, scheme="http")
    assert {nma.target.partition(":")[0] for entry in table.values() for nma in entry.nmas} == {"http"}
