"""Reader of untrusted registry files, in a child process with limits on memory and time.

    read(content, filename=...)     the table, and the records that cannot be read

A thread is not enough: parsing a long JSON text holds the interpreter's lock, and delays DNS responses. The child is a
new interpreter, because a fork of a process with threads is unsafe. It sets its limits before it reads anything, and
ends when its standard input is closed, so that it never outlives its parent.

The parent sends the length of the content (8 bytes, big-endian) and the content. The child answers with a line of JSON
for each bad record, for the metadata and for each entry, in the form of ``json_records.py``. No line is longer than
MAX_LINE, so that the parent parses each in a short time. Unlike pickle, JSON cannot execute code.
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
from maptr.errors import MaptrError, ParserFailed, TableError
from maptr.registry.json_records import read_record, write_record
from maptr.registry.table import MAX_BAD, Table, TableBuilder

MEMORY = 1 << 30  # bytes of address space (RLIMIT_AS); a text of 64 MiB in the widest characters takes 320 MiB
CPU_SECONDS = 20  # processor time (RLIMIT_CPU); the real registry takes 0.2
SECONDS = 60.0  # from start to end
MAX_LINE = 1 << 20  # bytes of one record; the longest of the real registry has 3,000
MAX_OUTPUT = 1 << 26  # bytes of all lines, as many as a source may send; the real registry has 1.5 million
NICENESS = 10  # so that DNS responses come first
MAX_STDERR = 4096  # bytes of standard error that are read

PROGRAM = "import sys; sys.path[:] = sys.argv[4:]; from maptr.registry.sandbox import main; main(*sys.argv[1:4])"


def read(content: bytes, *, filename: str = "", scheme: str = "https") -> tuple[Table, list[TableError]]:
    """Read a registry file of any format. Returns the table, and the bad records, which the table lacks.

    ``scheme`` is that of the hosts of a natab. Raises TableError if the content is not a registry, and ParserFailed if
    the child reached a limit or could not run, though the content may be valid.
    """
    return Parser().read(content, filename=filename, scheme=scheme)


class Parser:
    """A reader of registry files like the function ``read``, which another thread can stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    def read(self, content: bytes, *, filename: str = "", scheme: str = "https") -> tuple[Table, list[TableError]]:
        """Return the table and the bad records. Raises TableError and ParserFailed."""
        deadline = time.monotonic() + SECONDS
        process = self._start(filename, scheme)
        timer = threading.Timer(SECONDS, process.kill)
        timer.daemon = True
        try:
            timer.start()
            assert process.stdin is not None  # noqa: S101 - for the type checker
            with suppress(BrokenPipeError):  # the child ended early; its status says why
                process.stdin.write(len(content).to_bytes(8, "big") + content)
                process.stdin.flush()
            return _receive(process, filename)
        except ParserFailed as error:
            if self.is_stopped:
                raise ParserFailed(f"{filename}: the reading was stopped") from None
            if time.monotonic() >= deadline:
                raise ParserFailed(f"{filename}: takes longer than {SECONDS:g} seconds to read") from None
            raise error from None
        finally:
            timer.cancel()
            _end(process)

    def stop(self) -> None:
        """Kill the child if one runs, and start no other."""
        with self._lock:
            self.is_stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _start(self, filename: str, scheme: str) -> subprocess.Popen[bytes]:
        """Start a child that ignores the environment and ``site``, and finds modules by the parent's path."""
        home = str(Path(__file__).resolve().parents[2])  # only ``site`` would find an editable installation
        path = [folder for folder in sys.path if folder]
        command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(MEMORY), str(CPU_SECONDS), scheme, *path]
        command += [] if home in path else [home]
        pipe = subprocess.PIPE
        with self._lock:
            if self.is_stopped:
                raise ParserFailed(f"{filename}: the reading was stopped")
            try:
                self._process = subprocess.Popen(  # noqa: S603 - no part of the command is input
                    command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
                )
            except OSError as error:
                reason = error.strerror or error
                raise ParserFailed(f"{filename}: cannot start a process to read it: {reason}") from None
            return self._process


def _receive(process: subprocess.Popen[bytes], filename: str) -> tuple[Table, list[TableError]]:
    """Read the lines of a child. Raises TableError if the file is not a registry, and ParserFailed."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    builder = TableBuilder(filename)
    metadata: dict[str, Any] = {}
    bad: list[TableError] = []

    def error(reason: Any, line: Any = 0, record: Any = "") -> TableError:
        return builder.error(str(reason), line=int(line), record=str(record))

    size = 0
    failure: MaptrError | None = None
    while failure is None and (line := process.stdout.readline(MAX_LINE + 1)):
        size += len(line)
        if size > MAX_OUTPUT:
            raise error(f"not a registry: makes more than {MAX_OUTPUT} bytes of records", 1)
        try:
            match json.loads(line if len(line) <= MAX_LINE else b""):
                case ["entry", number, record]:
                    builder.add(replace(read_record(record), line=int(number)))
                case ["metadata", values]:
                    metadata = dict(values)
                case ["bad", *values] if len(bad) < MAX_BAD:
                    bad.append(error(*values))
                    builder.refused.add(bad[-1].record)
                case ["end"]:
                    return builder.table(metadata), bad
                case ["failed", *values]:
                    failure = error(*values)
                case ["limit", reason]:
                    failure = ParserFailed(f"{filename}: {reason}")
                case other:
                    raise ValueError(f"unknown: {other!r:.40}")
        except (ValueError, TypeError, RecursionError, TableError) as wrong:
            reason = wrong.reason if isinstance(wrong, TableError) else wrong
            raise ParserFailed(f"{filename}: the process that reads it sent a malformed line: {reason}") from None
    raise failure or ParserFailed(f"{filename}: the process that reads it {_failure(process)}")


def _failure(process: subprocess.Popen[bytes]) -> str:
    """Return how a child failed: its status and the last line of its standard error."""
    assert process.stderr is not None  # noqa: S101 - for the type checker
    said = process.stderr.read(MAX_STDERR).decode("utf-8", "replace").strip().splitlines()
    status = process.wait()
    if status == -signal.SIGXCPU:
        return f"took more than {CPU_SECONDS} seconds of processor time"
    how = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
    return ": ".join([how, *said[-1:]])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child, close its pipes and wait for it."""
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):  # of data not yet sent
                stream.close()
    process.wait()


# ---- the child


def main(memory: str, cpu_seconds: str, scheme: str) -> NoReturn:
    """Run the child: read one file, then exit. It also exits if the parent does."""
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
    with suppress(OSError):  # the parent has ended or closed the pipe
        _say(output, *failure)
        output.flush()
    os._exit(0)


def _answer(content: bytes, output: IO[bytes], scheme: str) -> None:
    def bad(error: TableError) -> None:
        _say(output, "bad", error.reason, error.line, error.record)

    table = registry.read(content, on_bad=bad, scheme=scheme)
    if not _say(output, "metadata", dict(table.metadata)):
        raise TableError(f"not a registry: its metadata has more than {MAX_LINE} bytes", line=1)
    for key, entry in table.items():
        if not _say(output, "entry", entry.line, write_record(entry)):
            bad(TableError(f"has more than {MAX_LINE} bytes", line=entry.line, record=key))


def _say(output: IO[bytes], *values: Any) -> bool:
    """Write a line. Returns False, and writes nothing, if it would be too long."""
    line = json.dumps(values, separators=(",", ":"), default=dict).encode() + b"\n"
    if len(line) > MAX_LINE:
        return False
    output.write(line)
    return True


def _end_with(source: IO[bytes]) -> None:
    """Exit when the parent closes its end of the pipe."""
    source.read(1)
    os._exit(0)


def _limit(memory: int, cpu_seconds: int) -> None:
    """Set the limits that this system supports. Those on size, depth and values apply everywhere."""
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError):  # if memory runs out, Linux kills this process before the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_CPU: cpu_seconds}
    for what, most in {**limits, resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0}.items():
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (most, hard))
