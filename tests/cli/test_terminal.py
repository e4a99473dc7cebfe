"""Colours and progress bars, in pseudo-terminals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest

from maptr.cli.output import CLEAR
from maptr.dnssec.keys import Algorithm, KeyState, Role, add_key
from tests.support.command_line import MAPTR, run, run_process
from tests.support.hostile import hostile, hosts, naptr
from tests.support.http_server import http_server, sends
from tests.support.peers import Maptr

SLOW = 0.8  # seconds until an answer, long enough for most machines to show a bar
SIZES = (1, 4, 16, 64)  # of the task: a slow machine needs a longer one to show a bar
SAMPLE = Path(__file__).resolve().parents[2] / "zones" / "sample.json"
BAD = "naa:\nwhat: 12345\nwhere: ftp://h.example.org\n"
CHECK = ("table", "check", "table")

COLORS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")
_PART = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Shown(NamedTuple):
    """Exit code, stdout if it was a pipe, and all that the terminal got."""

    code: int
    out: str
    sent: str

    @property
    def has_color(self) -> bool:
        return re.search(r"\x1b\[[0-9;]*[1-9][0-9;]*m", self.sent) is not None

    @property
    def lines(self) -> list[str]:
        """The lines that are left on the terminal at the end, and their text without colours."""
        lines, row, column = [""], 0, 0
        for match in _PART.finditer(self.sent):
            number, command, line_end, text = match.groups()
            if command == "A":
                row = max(0, row - int(number or 1))
            elif command == "K":
                lines[row] = "" if number == "2" else lines[row][:column]
            elif line_end == "\r":
                column = 0
            elif line_end:
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
        return [line.rstrip() for line in lines if line.strip()]


def run_in_terminal(
    *words: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None, piped: bool = False
) -> Shown:
    """Run ``maptr`` with stdout and stderr in a terminal; ``piped``: stdout is not one."""
    ours, theirs = os.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in COLORS}
    with (
        TemporaryFile("w+") as out,
        subprocess.Popen(
            [*MAPTR, *map(str, words)],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out if piped else theirs,
            stderr=theirs,
            env={**variables, "TERM": "xterm-256color", "COLUMNS": "200", **(environment or {})},
        ) as process,
    ):
        os.close(theirs)
        shown = bytearray()
        with contextlib.suppress(OSError):  # EIO: the other end of the terminal is closed
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        code = process.wait()
        out.seek(0)
        return Shown(code, out.read(), shown.decode())


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "table").write_text(BAD)
    for name in COLORS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- colour


@pytest.mark.parametrize(
    ("environment", "option", "colored"),
    [
        ({}, "", False),
        ({}, "auto", False),
        ({}, "always", True),
        ({"FORCE_COLOR": "1"}, "", True),
        ({"FORCE_COLOR": "1"}, "auto", True),
        ({"FORCE_COLOR": "1"}, "never", False),
        ({"FORCE_COLOR": "0"}, "", False),
        ({"FORCE_COLOR": ""}, "", False),
        ({"CLICOLOR_FORCE": "1"}, "", True),
        ({"CLICOLOR_FORCE": "0"}, "", False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, "", False),
        ({"NO_COLOR": "", "FORCE_COLOR": "1"}, "", True),
        ({"NO_COLOR": "1"}, "always", True),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.usefixtures("work")
def test_a_pipe_gets_colour_only_on_request(
    environment: dict[str, str], option: str, colored: bool, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = ("--color", option) if option else ()
    done = run(*given, *CHECK) if before else run(*CHECK, *given)
    assert (done.exit_code, "\x1b[31merror:\x1b[0m" in done.stdout, "\x1b" in done.stdout) == (1, colored, colored)


@pytest.mark.parametrize(
    ("environment", "option", "colored"),
    [
        ({}, (), True),
        ({"NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({}, ("--color", "never"), False),
        ({"TERM": "dumb"}, (), False),
    ],
)
def test_a_terminal_gets_colour_unless_it_is_disabled(
    environment: dict[str, str], option: tuple[str, ...], colored: bool, work: Path
) -> None:
    shown = run_in_terminal(*CHECK, *option, cwd=work, environment=environment)
    assert (shown.code, shown.has_color) == (1, colored), shown.sent
    assert "error: 12345: " in "\n".join(shown.lines)


def test_an_error_is_red_on_a_terminal_while_the_data_in_a_pipe_is_plain(work: Path) -> None:
    for words, message in ((("ark", "x", "ark:1/x"), "no ark: label"), (("nonsense",), "No such command")):
        shown = run_in_terminal(*words, cwd=work, piped=True)
        assert (shown.code, "\x1b[31m" in shown.sent, "\x1b" in shown.out) == (2, True, False), shown
        assert message in shown.sent


def test_candidates_verdicts_and_the_status_have_colours(work: Path) -> None:
    zone = work / "zone"
    run("zone", "build", SAMPLE, "-o", zone, code=0)
    with Maptr({"ark.arpa.": zone}, "--control", str(work / "socket")) as server:
        at = f"@127.0.0.1#{server.port}"
        found = run_in_terminal("discover", "ark:12025/x", at, cwd=work)
        assert "\x1b[32mhttps://" in found.sent
        drift = run_in_terminal("table", "drift", "--table", SAMPLE, "--all", "12025", at, cwd=work)
        assert "\x1b[32msame\x1b[0m 12025" in drift.sent
        status = run_in_terminal("status", "--control", work / "socket", cwd=work)
        assert "zone \x1b[1mark.arpa.\x1b[0m serial" in status.sent
        for words in (("discover", "ark:12025/x", at), ("status", "--control", str(work / "socket"))):
            document = run("--color", "always", *words, "--json", code=0).stdout
            assert "\x1b" not in document
            json.loads(document)


def test_control_codes_in_data_are_not_printed(work: Path) -> None:
    (work / "table").write_text("naa:\nwhat: 12345\nwhere: https://h\x1b[2J\x1b[32m.example\n")
    assert "\x1b" not in re.sub("\x1b\\[(0|31|33)m", "", run("--color", "always", *CHECK).stdout)


def test_colour_is_not_kept_for_the_next_command(work: Path) -> None:
    run("--color", "always", *CHECK)
    assert "\x1b" not in run(*CHECK).stdout
    assert run("--color", "red", *CHECK, code=2, said="'auto', 'always', 'never'").stdout == ""


# ---- progress


@contextmanager
def slow_dns(work: Path, size: int = 1) -> Iterator[list[object]]:
    answer = hosts({"12345.ark.arpa.": [naptr("h.example.org.")], "ark.arpa.": []})

    def script(query: bytes, transport: str) -> list[bytes]:
        time.sleep(min(SLOW * size, 4))  # drift waits for 5 s
        return answer(query, transport)

    (work / "natab").write_text("12345:\n    h.example.org  ACR\n")
    (work / "arks").write_text("ark:12345/x\n" * 3)
    with hostile(script) as server:
        yield [f"@{server.name}"]


@contextmanager
def slow_registry(work: Path, size: int) -> Iterator[list[object]]:
    send = sends(SAMPLE.read_bytes())

    def handle(request: object) -> None:
        time.sleep(SLOW * size)
        send(request)  # type: ignore[arg-type]

    with http_server(handle) as url:
        yield [url]


@contextmanager
def silent_authority(work: Path, size: int = 1) -> Iterator[list[object]]:
    """Accept connections, but do not speak TLS."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        (work / "natab").write_text(f"12345:\n    127.0.0.1:{sock.getsockname()[1]}  ACR\n")
        yield []


@contextmanager
def large_zone(work: Path, size: int) -> Iterator[list[object]]:
    names = (f"n{n}.a.test. 60 IN A 192.0.2.1\n" for n in range(2500 * size))
    (work / "zone").write_text("a.test. 60 IN SOA ns1 host 1 2 3 4 5\na.test. 60 IN NS ns.b.test.\n" + "".join(names))
    if size == 1:
        add_key(work / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    yield []


Setting = Callable[[Path, int], AbstractContextManager[list[object]]]
LONG_WORK = [
    (slow_dns, "bulk arks", 0, ["ARKs"], "ark:12345/x,https://"),
    (silent_authority, "table probe --table natab --allow-private --history h", 1, ["probing"], "failed "),
    (slow_registry, "table pull --table t", 1, ["pulling the registry"], "+ 12025"),
    (large_zone, "zone sign zone keys", 0, ["signing the names"], " IN RRSIG "),
]


@pytest.mark.parametrize(
    ("setting", "command", "code", "labels", "data"), LONG_WORK, ids=[command for _, command, *_ in LONG_WORK]
)
def test_a_long_task_shows_a_bar_on_a_terminal_and_clears_it_at_the_end(
    setting: Setting, command: str, code: int, labels: list[str], data: str, work: Path
) -> None:
    for size in SIZES:
        with setting(work, size) as more:
            words = [*command.split(), *(["--again", "--timeout", size] if "probe" in command else []), *more]
            shown = run_in_terminal(*words, cwd=work, piped=True)
            if size < max(SIZES) and not all(label in shown.sent for label in labels):
                continue
            piped = run_process(*words, cwd=work)
            break
    assert (shown.code, piped.returncode) == (code, code), shown
    assert [label for label in labels if label not in shown.sent] == []
    assert "  [---" in shown.sent or "  [###" in shown.sent
    assert not any(label in line for label in labels for line in shown.lines), shown.lines
    assert shown.sent.endswith(("\n", CLEAR)), "the cursor is at the beginning of a line"
    assert shown.sent.rindex("\x1b[?25h") > shown.sent.rindex("\x1b[?25l"), "the cursor is shown again"
    assert data in shown.out
    assert data in piped.stdout
    assert "\x1b" not in shown.out + piped.stdout + piped.stderr
    assert [label for label in labels if label in piped.stderr] == []


def test_redirects_are_counted_on_a_terminal(work: Path) -> None:
    (work / "r.csv").write_text("ark,url\nark:12345/x1,https://o.example.org/1\n")
    shown = run_in_terminal("redirects", "check", "r.csv", cwd=work)
    assert (shown.code, shown.lines) == (0, ["1 redirect, 0 errors"])


def test_data_and_bar_on_one_terminal_do_not_mix(work: Path) -> None:
    with silent_authority(work):
        for seconds in SIZES:
            shown = run_in_terminal(*LONG_WORK[1][1].split(), "--again", "--timeout", seconds, cwd=work)
            if "probing" in shown.sent:
                break
    assert [line.split()[0] for line in shown.lines] == ["failed", "1"], shown.lines
    assert "probing" in shown.sent


def test_ctrl_c_clears_the_bar(work: Path) -> None:
    """The terminal sends the signal."""
    import pty  # only this test starts a session with a controlling terminal
    import sys

    with slow_dns(work, max(SIZES)) as more:
        process, terminal = pty.fork()
        if process == 0:
            words = [sys.executable, "-m", "maptr", "table", "drift", "--table", "natab", *map(str, more)]
            os.execve(sys.executable, words, {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"})
        sent = bytearray()
        while b"asking DNS" not in sent:
            sent += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        try:
            while part := os.read(terminal, 65536):
                sent += part
        except OSError:  # EIO: the process has ended
            pass
        _, status = os.waitpid(process, 0)

    assert os.waitstatus_to_exitcode(status) == 130
    (line,) = Shown(130, "", sent.decode().replace("^C", "")).lines
    assert line == "maptr: interrupted: nothing was kept; run it again"
