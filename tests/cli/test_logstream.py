"""A server's log: its level and formats, and lines that are lost and counted while its reader is slow."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import dns.rcode
import dns.rrset
import pytest

from maptr.cli import logstream
from maptr.cli.logstream import LogStream
from tests.conftest import REPOSITORY
from tests.support.namespaces import environment
from tests.support.server_process import Start
from tests.support.waiting import PATIENCE

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
LINES = 40_000  # more bytes than the buffers hold
Ends = tuple[int, int]  # descriptors to read from and to write to


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = os.pipe()
    yield both
    for end in both:
        os.close(end)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("maptr.serve", logging.INFO, "", 0, text, (), None)


def fill(log: LogStream) -> None:
    for number in range(LINES):
        log.handle(record(f"line {number:06}"))


def fill_up(pipe: int) -> None:
    """Fill a pipe through another open file description."""
    own = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(own, bytes(4096))
    os.close(own)


FORGED = "a\n2026-01-01T00:00:00Z ERROR maptr: forged\r\x1b[2J\x9b1m\u202e\u2066\u2028\ud800\x7f"


@pytest.mark.parametrize("form", ["", "text", "json"])
def test_no_value_forges_a_line(form: str, ends: Ends) -> None:
    handler = LogStream(ends[1])
    handler.setFormatter(logstream.formatter(form) if form else logstream.TextFormatter(logstream.SHORT_FORMAT))
    handler.handle(logging.LogRecord("maptr.serve", logging.INFO, "", 0, "said %s", (FORGED,), None))
    whole = logging.LogRecord("maptr.serve", logging.INFO, "", 0, "%(one)s", ({"one": FORGED},), None)
    whole.is_whole = True
    handler.handle(whole)
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        failed = (type(error), error, error.__traceback__)
    handler.handle(logging.LogRecord("maptr.serve", logging.ERROR, "", 0, "failed", (), failed))
    handler.flush()
    lines = os.read(ends[0], 1 << 16).decode().rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("2026-01-01T00:00:00Z ERROR maptr: forged")]
    beginnings = [line for line in lines if not line.startswith("  ")]
    assert len(beginnings) == 3, "three lines, and an indented traceback"


def test_lost_lines_are_counted_and_the_others_are_complete(ends: Ends) -> None:
    log = LogStream(ends[1])
    fill(log)
    found = bytearray()

    def take() -> None:
        while not found.endswith(b"again\n"):
            found.extend(os.read(ends[0], 1 << 20))

    reader = threading.Thread(target=take, daemon=True)
    reader.start()
    for _ in range(int(PATIENCE)):
        log.flush()  # returns after a second, or when all lines are written
    log.handle(record("again"))
    reader.join(PATIENCE)
    *kept, notice, last = found.decode().splitlines()
    assert kept == [f"line {number:06}" for number in range(len(kept))]
    assert 0 < len(kept) < LINES
    lost = f"{LINES - len(kept)} log lines lost: the queue was full, or they could not be written"
    assert (notice, last) == (lost, "again")
    assert os.get_blocking(ends[1])  # unchanged for other processes


def test_a_line_longer_than_the_pipe_is_written_whole() -> None:
    reading, writing = socket.socketpair()
    with reading, writing:
        log = LogStream(writing.fileno())
        long = "x" * 10_000_000
        log.handle(record(long))
        log.handle(record("next"))
        found = b""
        while not found.endswith(b"next\n"):
            found += reading.recv(1 << 20)
    assert found.decode().splitlines() == [long, "next"]


def test_a_full_disk_loses_lines_and_reports_it_later(tmp_path: Path) -> None:
    file = (tmp_path / "log").open("wb", buffering=0)
    with file:
        log = LogStream(file.fileno())
        log.handle(record("one"))
        log.flush()
        with Path("/dev/full").open("wb", buffering=0) as full:
            kept = os.dup(file.fileno())
            os.dup2(full.fileno(), file.fileno())
            log.handle(record("lost"))
            log.flush()
            os.dup2(kept, file.fileno())
            os.close(kept)
        log.handle(record("two"))
        log.handle(record("three"))
        log.flush()
    lost = "1 log lines lost: the queue was full, or they could not be written"
    assert (tmp_path / "log").read_text().splitlines() == ["one", lost, "two", "three"]


def test_a_server_answers_while_its_log_is_not_read() -> None:
    """A client that may not transfer the zone causes a log line with each query."""
    reading, writing = os.pipe()
    zone = f"ark.arpa={REPOSITORY / 'zones' / 'ark.arpa.zone'}"
    command = [sys.executable, "-m", "maptr", "serve", "--zone", zone, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=writing, env=environment()) as process:
        said = ""
        while "udp in batches" not in said and "udp one query at a time" not in said:
            said += os.read(reading, 4096).decode()
        found = re.search(r":(\d+) \(udp, tcp\)", said)
        assert found is not None, said
        fill_up(writing)
        os.close(writing)
        transfer = dns.message.make_query("ark.arpa.", "IXFR")
        transfer.authority.append(dns.rrset.from_text("ark.arpa.", 0, "IN", "SOA", ". . 1 1 1 1 1"))
        try:
            for ask in (dns.query.udp, dns.query.tcp):
                for _ in range(5):
                    refused = ask(transfer, "127.0.0.1", PATIENCE, int(found[1]))
                    assert refused.rcode() == dns.rcode.REFUSED
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    os.close(reading)


# ---- formats


@pytest.mark.parametrize("level", ["info", "warning"])
def test_text_has_time_and_level(level: str, start: Start, zone_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.peers.STAMP", re.compile("$^"))
    monkeypatch.setenv("MAPTR_SERVE_USER", "")
    options = ["--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", "--log-level", level]
    server = start(*options, "--query-log", "1")
    if level == "info":
        server.wait_for(f"^{STAMP} INFO maptr: ready, serving 1 zone on ")
    else:
        server.wait_for(f"^{STAMP} WARNING maptr: ")
        server.stop()
        assert not any(" INFO " in line for line in server.lines)


def test_lines_that_have_a_setting_of_their_own_come_at_each_level() -> None:
    """Those of the access log and of queries: with a level of "warning", such a log has nothing else."""
    code = """
from maptr.cli import logstream; from maptr.gateway import server, service; from maptr.server import query_log
logstream.configure("error")
for each in (server.access_log, query_log.log, service.log): each.info(each.name)
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=True)
    assert done.stderr.splitlines() == ["maptr: maptr.gateway.access", "maptr: maptr.query"]


def test_json_lines_hold_tracebacks() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        failed = logging.LogRecord("maptr.serve", logging.ERROR, "", 0, "x %s\n", ("ü",), sys.exc_info())
    line = logstream.formatter("json").format(failed)
    assert "\n" not in line
    document = json.loads(line)
    assert (document["message"], document["error"].splitlines()[-1]) == ("x ü\n", "b")


def test_lines_for_the_systemd_journal_have_their_level_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        status = (tmp_path / "log").stat()
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert logstream.formatter("text").format(record("stopped")) == "<6>maptr: stopped"
        late = logging.LogRecord("maptr.serve", logging.WARNING, "", 0, "one\ntwo", (), None)
        assert logstream.formatter("text").format(late) == "<4>maptr: one\n<4>two"
        assert logstream.formatter("json").format(late).startswith('<4>{"time": ')
        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
        assert re.fullmatch(f"{STAMP} INFO maptr: stopped", logstream.formatter("text").format(record("stopped")))
