"""The level and the formats of the log."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest

from maptr.cli import logstream
from tests.support.server_process import Start, start, zone_file

__all__ = ["start", "zone_file"]  # fixtures

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.mark.parametrize("level", ["info", "warning"])
def test_text_has_time_and_level(level: str, start: Start, zone_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.server_process.STAMP", re.compile("$^"))
    monkeypatch.setenv("MAPTR_SERVE_USER", "")
    options = ["--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", "--log-level", level]
    server = start(*options, "--query-log", "1")
    if level == "info":
        server.wait_for(f"^{STAMP} INFO maptr: ready, serving 1 zone on ")
    else:
        server.wait_for(f"^{STAMP} WARNING maptr: ")
        server.end()
        assert not any(" INFO " in line for line in server.lines)


def test_json_lines_are_objects(start: Start, zone_file: Path) -> None:
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", "--log-format", "json")
    line = json.loads(server.wait_for("^.*ready, serving 1 zone.*$")[0])
    assert line.keys() == {"time", "level", "logger", "message"}
    assert (line["level"], line["logger"], line["message"][:6]) == ("info", "maptr.serve", "ready,")
    assert re.fullmatch(STAMP, line["time"])


def test_json_lines_hold_tracebacks() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("maptr.serve", logging.ERROR, "", 0, "x %s\n", ("ü",), sys.exc_info())
    line = logstream.formatter("json").format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["error"].splitlines()[-1]) == ("x ü\n", "b")


def test_lines_for_the_systemd_journal_have_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("maptr.serve", logging.INFO, "", 0, "stopped", (), None)
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        status = (tmp_path / "log").stat()
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert logstream.formatter("text").format(record) == "maptr: stopped"
        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
        assert re.fullmatch(f"{STAMP} INFO maptr: stopped", logstream.formatter("text").format(record))
