"""The commands of README.md and docs/, run and compared with their output on the page, and scripts/demo.

Conventions:

* Fenced blocks marked ``sh``, ``console`` and ``python`` are run, and one marked ``toml FILE``, ``yaml FILE`` or
  ``python FILE`` is written to FILE.
  Others are not, nor is a block directly below an HTML comment that starts with ``not run:`` and has the reason.
* A page is one session in a temporary directory with a copy of ``zones/``. The project's commands are first on the
  PATH. Each command has its own shell: ``cd`` and ``export`` have no effect on the next one.
* One command a line, longer ones with a backslash at the end; ``#`` starts a comment. In ``console`` blocks
  only lines that start with ``$ `` are commands. The lines below a command are all of its output; a line ``...`` stands
  for any number of lines, and ``...`` in a line for any text. A command that ends in ``&`` shows no output.
* A ``text`` block directly below a ``python`` block is the output of the program.
* A command exits with code 0, or with N if the line has ``# exits N``.
* A line ending in ``&`` starts a server, which is stopped at the end of the page. The next command waits until the
  server has printed ``ready``.
* The ports in DOCUMENTED_PORTS are replaced by free ones, the same on the whole page.
* ``scripts/...`` must exist and is not run: scripts/test would run itself, and scripts/demo has its own test.
* Each ``python`` block is a separate program.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.command_line import ENDING
from tests.support.peers import PEERS, SEARCH, free_port, processes, require
from tests.support.waiting import PATIENCE, until

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
DOCUMENTED_PORTS = ("5300", "5301", "8053", "8080", "9153")

# Programs that a page may show and that may not be installed.
PEER_COMMANDS = {
    "curl",
    "dig",
    "drill",
    "kdig",
    "ldns-verify-zone",
    *(command for peer in PEERS for command in peer.commands),
}

# A command, which may have several lines, and its output.
FORMS = {
    "sh": re.compile(r"^(?P<text>(?:.*\\\n)*.*)\n(?P<output>)", re.MULTILINE),
    "console": re.compile(r"^\$ (?P<text>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE),
    "python": re.compile(r"(?P<text>(?s:.+))(?P<output>)"),
}
EXITS = re.compile(r"\s#.*\bexits (?P<code>\d+)")
PORT = re.compile(rf"(?<![\w.])(?:{'|'.join(DOCUMENTED_PORTS)})(?!\w|[.]\d)")

needs_own_environment = pytest.mark.skipif(
    Path(sys.prefix).resolve() != (REPOSITORY / ".venv").resolve(),
    reason="the demo would create .venv; run scripts/test",
)


class DocumentedCommandFailed(Exception):
    """An error for a command whose result differs from the page. The message has the line and the output."""


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command, a Python program, or a file to write."""

    line: int
    text: str
    language: str = "sh"
    code: int = 0
    output: tuple[str, ...] | None = None  # the lines on the page; None if it shows none
    file: str = ""

    @property
    def word(self) -> str:
        """The name of the program."""
        if self.file:
            return ""
        return "python" if self.language == "python" else self.text.split()[0]


def commands(markdown: str) -> list[Command]:
    """Return the commands of a page, in order. Raises ValueError for a fence that is not closed."""
    found: list[Command] = []
    lines = markdown.splitlines()
    before = ""  # directly above a block: the language of a block that is run, or a comment
    for token in MarkdownIt().parse(markdown):
        language = token.info.strip() if token.type == "fence" else ""
        if token.type == "fence" and token.map:
            start, end = token.map
            if lines[end - 1].strip() != token.markup:
                raise ValueError(f"line {start + 1}: this fence is not closed")
            if before.startswith("<!-- not run: "):
                language = ""
            elif (before, language) == ("python", "text"):
                found[-1] = replace(found[-1], output=tuple(token.content.splitlines()))
            elif language.startswith(("toml ", "python ", "yaml ")):
                kind, file = language.split()
                found.append(Command(start + 2, token.content, kind, file=file))
            elif language in FORMS:
                found += _block(language, token.content, start + 2)
        before = language or token.content.strip()
    return found


def _block(language: str, content: str, first: int) -> Iterator[Command]:
    for match in FORMS[language].finditer(content):
        text = match["text"]
        if language == "python":
            yield Command(first, text, language)
            return
        text = re.sub(r"\s*\\\n(?:> )?\s*", " ", text)
        exits = EXITS.search(text)
        text = re.sub(r"\s#\s.*", "", text).strip()
        if text and not text.startswith("#"):
            has_output = language == "console" and not text.endswith("&")
            output = tuple(match["output"].splitlines()) if has_output else None
            line = first + content.count("\n", 0, match.start())
            yield Command(line, text, code=int(exits["code"]) if exits else 0, output=output)


def is_shown(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Return whether the printed lines match the page, where ``...`` matches lines or a part of a line."""
    lines = ("(?s:.*)" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + "\n" for line in shown)
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)) is not None


class Session(ExitStack):
    """The commands of one page, run in turn. Its servers are stopped when the context ends."""

    def __init__(self, directory: Path, python: Path = Path(sys.executable)) -> None:
        super().__init__()
        self.directory = directory
        self.python = python
        self.ports = {port: str(free_port()) for port in DOCUMENTED_PORTS}
        self.environment = {
            # Without PYTHONUNBUFFERED and the like, which most readers do not have.
            **{name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHONU"))},
            "PATH": os.pathsep.join((str(python.parent), SEARCH)),  # a resolved link leaves the environment
            "HOME": str(directory),
            "NO_COLOR": "1",
        }

    def run(self, command: Command) -> str:
        """Run a command and return its output. Raises DocumentedCommandFailed if the page shows something else."""
        try:
            output, code = self._run(command)
        except subprocess.TimeoutExpired as error:
            output, code = f"not done after {error.timeout:.0f} seconds", -1
        why = ""
        if code != command.code:
            why = f"exits {code}, not {command.code}"
        elif command.output is not None and not is_shown(command.output, output.splitlines()):
            why = "does not print what the page shows, but:"
        if why:
            raise DocumentedCommandFailed(f"line {command.line}: {command.text.strip()}\n{why}\n{output}")
        return output

    def _run(self, command: Command) -> tuple[str, int]:
        """Run a command and return its output and exit code."""
        if command.word.startswith("scripts/"):
            return ("", 0) if os.access(REPOSITORY / command.word, os.X_OK) else ("there is no such script", -1)
        if command.word in ("cd", "export"):
            return f"each command has its own shell, so {command.word} has no effect", -1
        text = PORT.sub(lambda match: self.ports[match[0]], command.text)
        if command.file:
            (self.directory / command.file).write_text(text)
            return "", 0
        if command.language == "sh" and text.endswith("&"):
            return self._serve(text.removesuffix("&"))
        shell = ["bash", "-o", "pipefail"] if command.language == "sh" else [str(self.python), "-W", "error"]
        done = subprocess.run(
            [*shell, "-c", text],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
        return done.stdout.decode(errors="replace"), done.returncode

    def _serve(self, text: str) -> tuple[str, int]:
        """Start a server and wait until it is ready. Returns the output so far, and 0 or the exit code."""
        log = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the session
        process = subprocess.Popen(
            [*ENDING, "bash", "-c", f"exec {text}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.callback(process.wait, PATIENCE)
        self.callback(process.terminate)

        def said() -> str:
            return os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")

        def is_ready() -> bool:
            return re.search(r"\bready\b", said()) is not None  # not the "already" of "already in use"

        until(lambda: is_ready() or process.poll() is not None, said)
        return said(), 0 if is_ready() else process.wait() or -1


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("```sh\nfalse\n```", r"line 2: false\nexits 1, not 0"),
        ("```sh\ntrue   # exits 1\n```", "exits 0, not 1"),
        ("```sh\nfalse | cat\n```", "exits 1"),
        ("```sh\ncd zones\n```", "has no effect"),
        ("```sh\nscripts/nothing\n```", "no such script"),
        ("```sh\nsh -c 'echo no >&2; exit 3' &\n```", r"exits 3, not 0\nno"),
        ("```console\n$ echo one\ntwo\n```", "does not print what the page shows, but:\none"),
        ("```console\n$ echo one\n```", "does not print what the page shows, but:\none"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "does not print what the page shows, but:\n1"),
        ("```python\nimport warnings\nwarnings.warn('old')\n```", "UserWarning: old"),
    ],
)
def test_a_failure_has_line_and_reason(block: str, reason: str, tmp_path: Path) -> None:
    (command,) = commands(block)
    with Session(tmp_path) as session, pytest.raises(DocumentedCommandFailed, match=reason):
        session.run(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_page(page: Path, tmp_path: Path) -> None:
    found = commands(page.read_text(encoding="utf-8"))
    require(*sorted({command.word for command in found} & PEER_COMMANDS))
    shutil.copytree(REPOSITORY / "zones", tmp_path / "zones")
    with Session(tmp_path) as session:
        for command in found:
            session.run(command)


@needs_own_environment
def test_the_demo_runs_in_any_folder_and_leaves_no_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [REPOSITORY / "scripts" / "demo"],
        cwd="/",
        env={**os.environ, "TMPDIR": str(tmp_path), "MAPTR_CACHE_PATIENCE": "60"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "DNS gives the URL that the registry means" in done.stdout
    assert re.search(r"^302 Found\nLocation: https?://\S+\nMaptr-Source: (dns|memory)", done.stdout, re.MULTILINE)
    assert "The servers are stopped." in done.stdout
    assert not list(tmp_path.glob("maptr-demo-*"))


@needs_own_environment
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGPIPE, 141)])
def test_the_demo_stops_its_server_when_interrupted(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C, which background processes of a shell ignore, kill, and ``scripts/demo | head`` interrupt it."""
    (tmp_path / "naan_records.json").write_bytes((REPOSITORY / "zones" / "sample.json").read_bytes())
    process = subprocess.Popen(
        [REPOSITORY / "scripts" / "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path), "MAPTR_REAL_DATA": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:
            seen += line
            if "ready" in line:
                break
        if number == signal.SIGPIPE:
            process.stdout.close()
        else:
            os.killpg(process.pid, number)
            seen += process.stdout.read()
            assert "The servers are stopped." in seen
        process.wait(600)
    assert process.returncode == code, seen
    assert not processes(process.pid)
    assert not list(tmp_path.glob("maptr-demo-*"))
