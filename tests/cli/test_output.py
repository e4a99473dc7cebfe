"""Exit codes and messages for bugs, full disks, closed streams, encodings and Ctrl-C, in every command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from maptr.choose import CHOOSERS
from maptr.cli import group, output
from maptr.dnssec.keys import Algorithm, KeyState, Role, add_key
from maptr.errors import json_text
from tests.support.command_line import MAPTR, interrupted, run, run_process
from tests.support.hostile import hostile
from tests.support.http_server import http_server
from tests.support.registries import OLD


@pytest.mark.parametrize("raised", [ValueError("a bug"), KeyError("a bug")])
def test_a_bug_gives_exit_code_10_and_not_1(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise raised

    monkeypatch.setattr(group.MainGroup, "get_command", lambda *_: broken)
    result = CliRunner().invoke(group.main, ["table"])
    assert result.exit_code == output.EXIT_INTERNAL
    assert "a bug" in result.stderr
    assert result.stderr.endswith("maptr: internal error, please report the lines above\n")


SAMPLE = str(Path(__file__).resolve().parents[2] / "zones" / "sample.json")
URL = ("url", "ark:12345/x1")
DRIFT = ("table", "drift", "--table", SAMPLE)
PROBE = ("table", "probe", "--table", SAMPLE)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("discover", "@127.0.0.1"), 2, "no ARK given"),
        (("discover",), 2, "ARK"),
        ((*URL, "@127.0.0.1#0"), 2, "is not a server"),
        ((*URL, "@127.0.0.1:5300"), 2, "is it 127.0.0.1#5300?"),
        ((*URL, "@[::1]:5300"), 2, "is it ::1#5300?"),
        ((*URL, "@no-such-host.invalid"), 9, "no-such-host.invalid"),
        ((*URL, "@127.0.0.1", "--origin", "a..b"), 2, "is not a valid domain name"),
        ((*URL, "--policy", "last"), 2, "'last' is not one of"),
        ((*URL, "--table", "none"), 8, "none: No such file"),
        ((*URL, "--table", "."), 8, ".: Is a directory"),
        ((*URL, "--no-cache", "--policy", "dns-only"), 2, "--no-cache excludes"),
        ((*URL, "-4", "@::1"), 9, "no server has an IPv4 address: ::1"),
        ((*URL, "-6", "@127.0.0.1"), 9, "no server has an IPv6 address: 127.0.0.1"),
        ((*URL, "-4", "-6", "@127.0.0.1"), 2, "only one of -4 and -6 is allowed"),
        ((*URL, "-p", "0", "@127.0.0.1"), 2, "0 is not in the range"),
        ((*URL, "+short"), 2, "+short: +tcp is the only option in dig's form"),
        ((*URL, "--choose", "best"), 2, f"is not one of {', '.join(map(repr, CHOOSERS))}"),
        ((*URL, "--profile", "1999"), 2, "'1999' is not one of"),
        (("bulk", "a", "b"), 2, "give at most one FILE"),
        (("bulk", "--resume", "@127.0.0.1"), 2, "need -o OUT"),
        (("bulk", "no-such-file", "@127.0.0.1"), 8, "no-such-file"),
        (("table", "check", "no-such-file"), 8, "No such file"),
        (("table", "check", "."), 8, ".: Is a directory"),
        (("table", "convert", SAMPLE, "--to", "json", "-o", "no/where"), 8, "no/where"),
        (("table", "export", SAMPLE, "--format", "lighttpd"), 2, "'lighttpd' is not one of"),
        (("table", "drift", "--table", "no-such-file"), 8, "no-such-file"),
        ((*DRIFT, "@one", "@two"), 2, "give at most one @SERVER"),
        ((*DRIFT, "not a NAAN"), 2, "'not a NAAN' is not a NAAN or a shoulder: "),
        ((*PROBE, "NO/NAAN!"), 2, "NAAN"),
        ((*PROBE, "--history", "no/h"), 8, "no/h"),
        (("up", "--sample", "naans.json"), 2, "--sample pulls nothing"),
        (("naan", " ", "@127.0.0.1"), 2, "no NAAN, ARK or name given"),
        (("up", "--origin", "a..b"), 2, "is not a valid domain name"),
        (("zone", "build", "no-such-file"), 8, "no-such-file"),
        (("zone", "build", SAMPLE, "-o", "no/such/directory/zone"), 8, "no/such/directory"),
        (("zone", "build", SAMPLE, "--include", "no-such-file"), 8, "no-such-file"),
        (("zone", "build", "-"), 8, "not a registry"),
        (("zone", "build", SAMPLE, "--serial", "soon"), 2, "soon"),
        (("zone", "build", SAMPLE, "--ns", "ns1"), 2, "give its address"),
        (("zone", "build", SAMPLE, "--json"), 2, "--json needs -o"),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_mistake_has_a_code_and_a_reason(words: tuple[str, ...], code: int, said: str) -> None:
    run(*words, text="", code=code, out="", said=said)


NATAB = "12345:\n    h.example.org  ACR\n"
BULK = ["bulk", "-", "--table", "natab", "--policy", "natab-only"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [BULK, ["table", "check", "table"]])
def test_a_pipe_closed_by_its_reader_is_not_reported(words: list[str], unbuffered: str, tmp_path: Path) -> None:
    """An example is ``maptr bulk | head -1``. Python reports nothing at exit either."""
    (tmp_path / "natab").write_text(NATAB)
    (tmp_path / "table").write_text("naa:\nwhat: 12345\nwhere: https://h.example.org\n" + "rubbish\n" * 9)
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    streams = {"input": "ark:12345/x1\n" * 20000, "stdout": writing, "stderr": subprocess.PIPE}
    done = run_process(*words, cwd=tmp_path, env=environment, **streams)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["table", "check", "table"], 1, "https://\\u56fd.example"),
        (["table", "check", "table", "--json"], 1, "https://\\u56fd.example"),
        (
            ["table", "convert", "table", "--to", "natab"],
            8,
            "standard output: its encoding iso8859-1 lacks some characters: give -o FILE",
        ),
        (["bulk", "arks"], 1, "H\\u014dsei"),
        (["bulk", "arks", "--json"], 1, "H\\u014dsei"),
    ],
)
def test_an_encoding_that_lacks_characters(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    """Text is escaped, JSON stays the same document, and a natab that would change is refused."""
    (tmp_path / "table").write_text("naa:\nwho: Hōsei国 (=) H\nwhat: 12345\nwhere: https://国.example\n", "utf-8")
    (tmp_path / "arks").write_text("Hōsei\n", "utf-8")
    done = run_process(*words, cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "iso8859-1"}, encoding="ascii")
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert (done.returncode, said in text) == (code, True), text
    if "--json" in words:
        json.loads(done.stdout)


def run_without(stream: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run maptr with a closed stream (for example ``<&-``) in a folder with tables, a zone and a key."""
    (folder / "natab").write_text(NATAB)
    os.utime(folder / "natab", (0, 0))  # its age, which bulk prints, is the same in a slow run
    (folder / "bad").write_text('{"data": [{"what": "aeiou"}]}')
    (folder / "zone").write_text("a.test. 60 IN SOA ns1 host 1 2 3 4 5\na.test. 60 IN NS ns.b.test.\n")
    if not (folder / "keys").exists():
        add_key(folder / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    command = ["sh", "-c", f'exec "$@" {stream}', "sh", *MAPTR, *words]
    return subprocess.run(
        command, cwd=folder, input="ark:12345/x1\n", capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize("words", [BULK, ["table", "check", "-"], ["ark", "-"]], ids=" ".join)
def test_a_closed_standard_input_gives_exit_code_8(words: list[str], tmp_path: Path) -> None:
    done = run_without("<&-", words, tmp_path)
    assert (done.returncode, done.stderr) == (8, "maptr: <stdin>: standard input is closed\n")


COMMANDS = [
    (0, ["ark", "ark:12345/x"]),
    (0, ["ark", "ark:12345/x", "--json"]),
    (0, ["--version"]),
    (0, ["zone", "--help"]),
    (0, ["completion", "bash"]),
    (0, ["zone", "build", "natab"]),
    (0, ["table", "convert", "natab", "--to", "natab"]),
    (0, ["url", "ark:12345/x", "--table", "natab", "--policy", "natab-only"]),
    (0, ["discover", "ark:12345/x", "--trace", "--table", "natab", "--policy", "natab-only"]),
    (0, BULK),
    (0, ["zone", "sign", "zone", "keys", "--at", "1700000000"]),
    (1, ["table", "check", "bad"]),
    (2, ["url", "nonsense"]),
    (8, ["zone", "check", "nofile"]),
    (9, ["url", "ark:12345/x", "@127.0.0.1#9"]),
]


@pytest.mark.parametrize(
    ("code", "words"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_an_exit_code_says_what_happened_whatever_stderr_is(code: int, words: list[str], tmp_path: Path) -> None:
    """A log on a full disk, and a stderr that the parent process closed."""
    expected = run_without("", words, tmp_path)
    assert expected.returncode == code
    for stream in ("2>/dev/full", "2>&-"):
        done = run_without(stream, words, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (code, expected.stdout, "")


@pytest.mark.parametrize("words", [words for code, words in COMMANDS if code < 2], ids=" ".join)
def test_a_result_that_cannot_be_written_is_exit_code_8_with_one_line(words: list[str], tmp_path: Path) -> None:
    for stream, reason in ((">&-", "standard output is closed"), (">/dev/full", "No space left on device")):
        done = run_without(stream, words, tmp_path)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (8, f"maptr: {reason}")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("stream", "code"), [("2>/dev/full", 0), (">/dev/full", 8)])
def test_a_full_disk_behind_a_stream_does_not_stop_a_pull(stream: str, code: int, tmp_path: Path) -> None:
    done = run_without(stream, ["table", "pull", "natab", "--table", "table", "--apply"], tmp_path)
    assert done.returncode == code
    assert (tmp_path / "table").read_text() == NATAB


# ---- Ctrl-C

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("MAPTR_", "XDG_"))}


def opened(pipe: Path) -> Callable[[], bool]:
    """Return whether a process has opened the pipe and waits for data."""
    held: list[int] = []

    def look() -> bool:
        try:
            held.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # ENXIO: not open for reading
            return False
        return True

    return look


@pytest.mark.parametrize(
    "words",
    [
        ["table", "check", "PIPE"],
        ["table", "drift", "--table", "PIPE"],
        ["zone", "build", "PIPE", "-o", "out"],
        ["serve", "--zone", "a.test=zone", "--key", "xfr=hmac-sha256:@PIPE"],
    ],
    ids=" ".join,
)
def test_ctrl_c_while_a_file_is_read(words: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "PIPE"
    os.mkfifo(pipe)
    done = interrupted(words, opened(pipe), cwd=tmp_path, environment={**ENVIRONMENT, "HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "maptr: interrupted: nothing was changed; run it again\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["url", "discover", "info"])
@pytest.mark.parametrize("more", [[], ["--timeout", "60"]], ids=["plain", "option"])
def test_ctrl_c_while_dns_is_asked(command: str, more: list[str], tmp_path: Path) -> None:
    asked = threading.Event()

    def silent(query: bytes, transport: str) -> list[bytes]:
        asked.set()
        return []

    with hostile(silent) as server:
        words = [command, "ark:12345/x1", "ark:12345/x2", f"@{server.name}", *more]
        done = interrupted(words, asked.is_set, cwd=tmp_path, environment={**ENVIRONMENT, "HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "maptr: interrupted: 0 of 2 ARKs were answered; run it again for the others\n"


@pytest.mark.parametrize("command", [["table", "pull", "--apply", "--table", "natab"], ["up"]], ids=" ".join)
def test_ctrl_c_while_a_registry_is_pulled(command: list[str], tmp_path: Path) -> None:
    asked, over = threading.Event(), threading.Event()

    def hangs(request: object) -> None:
        asked.set()
        over.wait(60)

    (tmp_path / "natab").write_bytes(OLD)
    with http_server(hangs) as url:
        environment = {**ENVIRONMENT, "HOME": str(tmp_path)}
        done = interrupted([*command, url], asked.is_set, cwd=tmp_path, environment=environment)
        over.set()
    assert done.returncode == 130
    assert "maptr: interrupted: " in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "natab").read_bytes() == OLD


@given(st.text(st.characters(blacklist_categories=()), max_size=20))
@example("\x7f\x9b\u202e")
def test_rfc8259_8_1_json_has_no_lone_surrogate(text: str) -> None:
    document = {text: [text]}
    assert output.json_text(document, None).isprintable(), "nothing in it controls a terminal"
    for written in (json_text(document), json_text(document, indent=2), output.json_text(document, None)):
        assert written.encode()  # to UTF-8
        again = json.loads(written)
        assert not re.search("[\ud800-\udfff]", json.dumps(again, ensure_ascii=False))
        if not re.search("[\ud800-\udfff]", text):
            assert document.items() <= again.items()


BAD = "caf\udce9"  # as Python reads a byte that is not UTF-8
C_LOCALE = {"LC_ALL": "C"}


@pytest.mark.parametrize("locale", [{}, C_LOCALE], ids=["UTF-8", "C"])
@pytest.mark.parametrize(
    ("words", "key", "shown"),
    [
        (["ark", "--json", "ark:12345/" + BAD], "received", r"ark:12345/caf\xe9"),
        (["zone", "check", "--json", BAD], "file", r"caf\xe9"),
        (["ark", "--json", "ark:12345/café"], "received", "ark:12345/café"),
        (["zone", "check", "--json", "zoné"], "file", "zoné"),
    ],
)
def test_arguments_are_utf8_and_other_bytes_are_shown(
    words: list[str], key: str, shown: str, locale: dict[str, str], tmp_path: Path
) -> None:
    for name in (b"caf\xe9", "zoné".encode()):
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_text(
            "$TTL 60\n@ SOA a b 1 2 3 4 5\n@ NS a.test.\n"
        )
    done = run_process(*words, env={**os.environ, **locale}, cwd=tmp_path, encoding="utf-8")
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)[key] == shown
