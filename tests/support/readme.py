"""Runs the commands of a Markdown page and compares their output with the page.

Conventions:

* Fenced blocks marked ``sh``, ``console`` and ``python`` are run; others are not, nor is a block directly below an
  HTML comment that starts with ``not run:`` and has the reason.
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

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from tests.support.peers import PEERS, SEARCH, free_port, require

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTED_PORTS = ("5300", "5301", "8053", "8080", "9153")
COMMAND_SECONDS = 180.0  # on a busy machine; usually a second or two
READY_SECONDS = 60.0
STOP_SECONDS = 10.0

# Programs that a page may show and that may not be installed.
PEER_COMMANDS = frozenset(
    {"dig", "drill", "kdig", "ldns-verify-zone", *(command for peer in PEERS for command in peer.commands)}
)

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>```+|~~~+)\s*(?P<language>[\w+-]*).*")
_NOT_RUN = re.compile(r"\s*<!--\s*not run:\s*\S")
_EXITS = re.compile(r"\s#.*\bexits (?P<code>\d+)")
_PORT = re.compile(rf"(?<![\w.])(?:{'|'.join(DOCUMENTED_PORTS)})(?!\w|[.]\d)")


class DocumentedCommandFailed(Exception):
    """A command did not do what the page shows. The message has the line and the output."""


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command or a Python program."""

    line: int
    text: str
    language: str = "sh"
    code: int = 0
    output: tuple[str, ...] | None = None  # the lines on the page; None if it shows none

    @property
    def in_background(self) -> bool:
        return self.language == "sh" and self.text.endswith("&")

    @property
    def word(self) -> str:
        """The name of the program."""
        return self.text.split()[0] if self.language == "sh" else "python"


def commands(markdown: str) -> list[Command]:
    """The commands of a page, in order. Raises ValueError for a fence that is not closed."""
    found: list[Command] = []
    lines = markdown.splitlines()
    number = 0
    program_ended = -1  # the line below the last python block
    while number < len(lines):
        match = _FENCE.fullmatch(lines[number])
        number += 1
        if match is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != match["fence"]:
            number += 1
        if number == len(lines):
            raise ValueError(f"line {start}: this fence is not closed")
        before = lines[start - 2] if start >= 2 else ""
        indent = len(match["indent"])
        block = [line[indent:] for line in lines[start:number]]
        if match["language"] == "text" and start - 2 == program_ended and not before.strip():
            found[-1] = replace(found[-1], output=tuple(block))
        elif not _NOT_RUN.match(before):
            found += _block(match["language"], block, start + 1)
            program_ended = number + 1 if match["language"] == "python" else -1
        number += 1
    return found


def _block(language: str, lines: Sequence[str], first: int) -> Iterator[Command]:
    if language == "python":
        yield Command(first, "\n".join(lines) + "\n", "python")
        return
    if language not in ("sh", "console"):
        return
    number = 0
    while number < len(lines):
        at, text = number, lines[number]
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text = f"{text[:-1].rstrip()} {lines[number].removeprefix('> ').strip()}"
        number += 1
        output = None
        if language == "console":
            text = text.removeprefix("$ ")
            end = next((n for n in range(number, len(lines)) if lines[n].startswith("$ ")), len(lines))
            output, number = tuple(lines[number:end]), end
        exits = _EXITS.search(text)
        text = re.sub(r"\s#\s.*", "", text).strip()
        if text and not text.startswith("#"):
            yield Command(first + at, text, code=int(exits["code"]) if exits else 0, output=output)


def is_shown(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """True if the printed lines match those of the page; ``...`` matches lines or a part of a line."""
    lines = ("(?s:.*)" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + "\n" for line in shown)
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)) is not None


class Session:
    """The commands of one page, run in turn. Its servers are stopped when the context ends."""

    def __init__(self, page: str, directory: Path) -> None:
        self.page = page
        self.directory = directory
        self._ports = {port: str(free_port()) for port in DOCUMENTED_PORTS}
        self._servers: list[tuple[subprocess.Popen[bytes], BinaryIO]] = []
        scripts = Path(sys.executable).parent  # not resolved: the environment's own bin directory
        self._environment: Mapping[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "PATH": os.pathsep.join((str(scripts), SEARCH)),
            "HOME": str(directory),
            "NO_COLOR": "1",
        }

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, command: Command) -> str:
        """Run a command and return its output. Raises DocumentedCommandFailed if the page shows something else."""
        if command.word.startswith("scripts/"):
            self._look_up(command)
            return ""
        if command.word in ("cd", "export"):
            raise self._failure(command, f"each command has its own shell, so {command.word} has no effect")
        text = _PORT.sub(lambda match: self._ports[match[0]], command.text)
        if command.in_background:
            return self._serve(command, text.removesuffix("&").strip())
        argv = [sys.executable, "-W", "error", "-c", text]
        if command.language == "sh":
            argv = ["bash", "-o", "pipefail", "-c", text]
        try:
            done = subprocess.run(
                argv,
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._failure(command, f"not done after {error.timeout:.0f} seconds") from None
        output = done.stdout.decode(errors="replace")
        if done.returncode != command.code:
            raise self._failure(command, f"exits {done.returncode}, not {command.code}\n{output}")
        if command.output is not None and not is_shown(command.output, output.splitlines()):
            raise self._failure(command, f"does not print what the page shows, but:\n{output}")
        return output

    def _serve(self, command: Command, text: str) -> str:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._servers.append((process, log))
        deadline = time.monotonic() + READY_SECONDS
        while True:
            ended = process.poll() is not None
            said = os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")
            if re.search(r"\bready\b", said):  # not an address that is "already in use"
                return said
            if ended or time.monotonic() > deadline:
                why = f"exits {process.returncode}" if ended else "is not ready"
                raise self._failure(command, f"{why}\n{said}")
            time.sleep(0.02)

    def _look_up(self, command: Command) -> None:
        path = REPOSITORY / command.word
        if not path.is_file() or not os.access(path, os.X_OK):
            raise self._failure(command, "there is no such script")

    def _failure(self, command: Command, why: str) -> DocumentedCommandFailed:
        return DocumentedCommandFailed(f"{self.page}:{command.line}: {command.text.strip()}\n{why}")

    def stop(self) -> None:
        """Stop the servers, the last one first."""
        while self._servers:
            process, log = self._servers.pop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.close()


def run_page(path: Path, directory: Path) -> int:
    """Run the commands of a page in a directory and return their number.

    Skips the test first if the page uses a program that is not installed.
    """
    page = commands(path.read_text(encoding="utf-8"))
    require(*sorted({command.word for command in page} & PEER_COMMANDS))
    if (REPOSITORY / "zones").is_dir():
        shutil.copytree(REPOSITORY / "zones", directory / "zones")
    with Session(path.name, directory) as session:
        for command in page:
            session.run(command)
    return len(page)
