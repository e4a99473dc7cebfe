"""Reads registry files from outside in a child process with limits on memory and time.

    read(content, filename=...)     the table, and the records that cannot be read

A thread would not do: while it parses a long JSON text it holds the interpreter's lock, and DNS replies wait. The child
is a new interpreter, never a fork of a process with threads. It limits itself before it reads anything, and ends when
its standard input is closed, so that it never outlives its parent.

The parent sends the length of the content (8 octets, big-endian) and the content. The child answers with one line of
JSON for each bad record, for the metadata and for each entry, which is in the form of ``registry.json_v1``. No line is
longer than MAX_LINE, so that the parent never parses for long at a time; and nothing that the child sends is executed,
as pickle would.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NoReturn

from maptr import registry
from maptr.errors import ParserFailed, TableError
from maptr.registry import json_v1
from maptr.registry.records import MAX_BAD, Records
from maptr.registry.table import Table

MEMORY = 1 << 30  # octets of address space (RLIMIT_AS): a text of 64 MiB in the widest characters takes 320 MiB
CPU_SECONDS = 20  # of processor time (RLIMIT_CPU); the real registry takes 0.2
SECONDS = 60.0  # from start to end
MAX_LINE = 1 << 20  # octets of one record; the real registry's longest has 3,000
MAX_OUTPUT = 1 << 26  # octets of all lines, as many as a source may send; the real registry has 1.5 million
NICENESS = 10  # DNS replies come first
MAX_SAID = 4096  # octets of standard error that are looked at

PROGRAM = "import sys; sys.path[:] = sys.argv[4:]; from maptr.registry.sandbox import main; main(*sys.argv[1:4])"


def read(content: bytes, *, filename: str = "", scheme: str = "https") -> tuple[Table, list[TableError]]:
    """The table in a registry file of any format, and its bad records, which are not in it.

    ``scheme`` is that of a natab's hosts.
    Raises TableError for what is not a registry, and ParserFailed where the child came to a limit or could not run,
    which says nothing of the content.
    """
    return Parser().read(content, filename=filename, scheme=scheme)


class Parser:
    """The same for a caller that may be told to stop: ``stop``, from any thread, ends the child that runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def read(self, content: bytes, *, filename: str = "", scheme: str = "https") -> tuple[Table, list[TableError]]:
        """As the function of that name."""
        deadline = time.monotonic() + SECONDS
        process = self._start(filename, scheme)
        timer = threading.Timer(SECONDS, process.kill)
        timer.daemon = True
        try:
            timer.start()
            return _Answer(filename).read(process, content)
        except ParserFailed as error:
            if self._stopped:
                raise ParserFailed(f"{filename}: the reading was stopped") from None
            if time.monotonic() >= deadline:
                raise ParserFailed(f"{filename}: takes longer than {SECONDS:g} seconds to read") from None
            raise error from None
        finally:
            timer.cancel()
            _end(process)

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """End the child that runs, and let no other start."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _start(self, filename: str, scheme: str) -> subprocess.Popen[bytes]:
        """Isolated from the environment and without site: the parent's own path has all modules."""
        home = str(Path(__file__).resolve().parent.parent)  # of an editable installation, whose finder is not started
        path = [folder for folder in sys.path if folder]
        command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(MEMORY), str(CPU_SECONDS), scheme, *path]
        command += [] if home in path else [home]
        pipe = subprocess.PIPE
        with self._lock:
            if self._stopped:
                raise ParserFailed(f"{filename}: the reading was stopped")
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the command is all ours
                    command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
                )
            except OSError as error:
                reason = error.strerror or error
                raise ParserFailed(f"{filename}: no process can be started to read it: {reason}") from None
            return self._process


class _Answer:
    """What the child says, line by line."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._bad: list[TableError] = []
        self._records = Records(filename)
        self._metadata: dict[str, Any] = {}

    def read(self, process: subprocess.Popen[bytes], content: bytes) -> tuple[Table, list[TableError]]:
        assert process.stdin is not None  # noqa: S101 - for the type checker, as below
        assert process.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):  # it ended early, and its status says why
            process.stdin.write(len(content).to_bytes(8, "big"))
            process.stdin.write(content)
            process.stdin.flush()
        size = 0
        while line := process.stdout.readline(MAX_LINE + 1):
            size += len(line)
            if size > MAX_OUTPUT:
                raise self._error(f"not a registry: makes more than {MAX_OUTPUT} octets of records", 1)
            try:
                kind, *values = json.loads(line if len(line) <= MAX_LINE else b"")
                if kind == "end":
                    return self._records.table(self._metadata), self._bad
                self._take(kind, values)
            except (ValueError, TypeError, RecursionError) as error:
                raise ParserFailed(
                    f"{self._filename}: the process that reads it sent a malformed line: {error}"
                ) from None
        raise ParserFailed(f"{self._filename}: the process that reads it {_last_words(process)}")

    def _take(self, kind: str, values: list[Any]) -> None:
        """One line's worth. Raises TableError where it is that the file is not a registry."""
        if kind == "entry":
            line, record = values
            try:
                self._records.add(replace(json_v1.entry(record, self._records, ""), line=int(line)))
            except TableError as error:
                raise ValueError(error.reason) from None
        elif kind == "metadata":
            self._metadata = dict(*values)
        elif kind == "bad" and len(self._bad) < MAX_BAD:
            self._bad.append(self._error(*values))
            self._records.refused.add(self._bad[-1].record)
        elif kind == "failed":
            raise self._error(*values)
        elif kind == "limit":
            raise ParserFailed(f"{self._filename}: {values[0]}")
        else:
            raise ValueError(kind)

    def _error(self, reason: str, line: int = 0, record: str = "") -> TableError:
        return TableError(str(reason), filename=self._filename, line=int(line), record=str(record))


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """How a child ended that did not come to its end."""
    assert process.stderr is not None  # noqa: S101 - for the type checker
    said = process.stderr.read(MAX_SAID).decode("utf-8", "replace").strip().splitlines()
    status = process.wait()
    if status == -signal.SIGXCPU:
        return f"took more than {CPU_SECONDS} seconds of processor time"
    how = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
    return f"{how}: {said[-1]}" if said else how


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it is left, whatever it was about to do."""
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):  # what was not sent yet
                stream.close()
    process.wait()


# ---- in the child


def main(memory: str, cpu_seconds: str, scheme: str) -> NoReturn:
    """What the child does; it ends with its parent, or with what it was asked."""
    _limit(int(memory), int(cpu_seconds))
    source, output = sys.stdin.buffer, sys.stdout.buffer
    content = source.read(int.from_bytes(source.read(8), "big"))
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    failure: tuple[Any, ...] = ("end",)
    try:
        _answer(content, output, scheme)
    except TableError as error:
        failure = "failed", error.reason, error.line, error.record
    except MemoryError:
        failure = "limit", f"takes more than {int(memory) >> 20} MiB of memory to read"
    with suppress(OSError):  # the parent is gone, or has heard enough
        _say(output, *failure)
        output.flush()
    os._exit(0)


def _answer(content: bytes, output: IO[bytes], scheme: str) -> None:
    def bad(error: TableError) -> None:
        _say(output, "bad", error.reason, error.line, error.record)

    table = registry.read(content, on_bad=bad, scheme=scheme)
    if not _say(output, "metadata", dict(table.metadata)):
        raise TableError(f"not a registry: its metadata have more than {MAX_LINE} octets", line=1)
    for key, entry in table.items():
        if not _say(output, "entry", entry.line, json_v1.record(entry)):
            bad(TableError(f"has more than {MAX_LINE} octets", line=entry.line, record=key))


def _say(output: IO[bytes], *values: Any) -> bool:
    """Write a line; False with nothing written where it would be too long."""
    line = json.dumps(values, separators=(",", ":"), default=dict).encode() + b"\n"
    if len(line) > MAX_LINE:
        return False
    output.write(line)
    return True


def _end_with(source: IO[bytes]) -> None:
    """The parent keeps its end of the pipe open for as long as it listens."""
    source.read(1)
    os._exit(0)


def _limit(memory: int, cpu_seconds: int) -> None:
    """Each limit as far as this system has it; the limits on size, depth and values hold everywhere."""
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError):  # if memory ends for the whole machine, the kernel ends this process before the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (most, hard))
