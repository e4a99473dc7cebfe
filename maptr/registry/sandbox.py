"""Reader of untrusted registry files, in a child process with limits on memory and time.

    read(content, filename=...)     the table, and the records that cannot be read

A thread is not enough: parsing a long JSON text holds the interpreter's lock, and delays DNS responses. Nor is a typed
decoder in the process itself: a hostile text of 16 MiB took msgspec 484 MB and 1.4 seconds, and json.loads 408 MB and
2 seconds. The child is a new interpreter, because a fork of a process with threads is unsafe. It sets its limits before
it reads anything. If its parent ends, it ends too: it waits for nothing, and takes CPU_SECONDS at most.

The child reads the content from its standard input. It answers with a line of JSON for each bad record, for the
metadata and for each entry, in the form of ``json_records.py``. No line is longer than MAX_LINE, so that the parent
parses each in a short time. Unlike pickle, JSON cannot execute code.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from maptr import registry
from maptr.errors import ParserFailed, TableError
from maptr.registry.json_records import read_record, write_record
from maptr.registry.table import Table, TableBuilder

MEMORY = 1 << 30  # bytes of address space (RLIMIT_AS); a text of 64 MiB in the widest characters takes 320 MiB
CPU_SECONDS = 20  # processor time (RLIMIT_CPU); the real registry takes 0.2
SECONDS = 60.0  # from start to end
MAX_LINE = 1 << 20  # bytes of one record; the longest of the real registry has 3,000
MAX_OUTPUT = 1 << 26  # bytes of all lines, as many as a source may send; the real registry has 1.5 million
NICENESS = 10  # so that DNS responses come first

PROGRAM = "import sys; sys.path[:] = sys.argv[5:]; from maptr.registry.sandbox import main; main(*sys.argv[1:5])"


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
        late = threading.Event()
        with self._start(filename, scheme) as process:

            def end() -> None:
                late.set()  # first: the child may end, and be reported, before kill() returns
                process.kill()

            timer = threading.Timer(SECONDS, end)  # with a timeout, communicate() would poll in a loop
            timer.daemon = True
            timer.start()
            try:
                output, errors = process.communicate(content)
            finally:
                timer.cancel()
                process.kill()
        if self.is_stopped:
            raise ParserFailed(f"{filename}: the reading was stopped")
        if late.is_set():
            raise ParserFailed(f"{filename}: takes longer than {SECONDS:g} seconds to read")
        if process.returncode:
            raise ParserFailed(f"{filename}: the process that reads it {_failure(process.returncode, errors)}")
        return _receive(output, filename)

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
        limits = map(str, (MEMORY, CPU_SECONDS, MAX_OUTPUT))
        command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, *limits, scheme, *path]
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


def _receive(output: bytes, filename: str) -> tuple[Table, list[TableError]]:
    """Read the lines of a child. Raises TableError if the file is not a registry, and ParserFailed."""
    builder = TableBuilder(filename)
    bad: list[TableError] = []
    failure: TableError | None = None
    for each in io.BytesIO(output):
        try:
            match json.loads(each):
                case ["entry", int(line), record]:
                    builder.add(replace(read_record(record), line=line))
                case ["metadata", dict(metadata)]:
                    builder.metadata = metadata
                case ["bad", str(reason), int(line), str(record)]:
                    bad.append(builder.error(reason, line=line, record=record))
                    builder.refused.add(record)
                case ["failed", str(reason), int(line), str(record)]:
                    failure = builder.error(reason, line=line, record=record)
                case other:
                    raise ValueError(f"unknown: {other!r:.40}")
        except (ValueError, RecursionError, TableError) as wrong:
            reason = wrong.reason if isinstance(wrong, TableError) else str(wrong)
            raise ParserFailed(f"{filename}: the process that reads it sent a malformed line: {reason}") from None
    if failure is not None:
        raise failure
    return builder.table(), bad


def _failure(status: int, errors: bytes) -> str:
    """Return how a child failed: its status and the last line of its standard error."""
    if status == -signal.SIGXCPU:
        return f"took more than {CPU_SECONDS} seconds of processor time"
    how = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
    return ": ".join([how, *errors.decode("utf-8", "replace").strip().splitlines()[-1:]])


# ---- the child


def main(memory: str, cpu_seconds: str, most: str, scheme: str) -> NoReturn:
    """Run the child: read one file, then exit."""
    _limit(int(memory), int(cpu_seconds))
    content = sys.stdin.buffer.read()
    try:
        output = _answer(content, scheme)
        if len(output) > int(most):
            raise TableError(f"not a registry: makes more than {most} bytes of records", line=1)
    except TableError as error:
        output = _line("failed", error.reason, error.line, error.record)
    except MemoryError:
        sys.exit(f"takes more than {int(memory) >> 20} MiB of memory to read")
    sys.stdout.buffer.write(output)
    sys.stdout.flush()
    os._exit(0)


def _answer(content: bytes, scheme: str) -> bytes:
    lines: list[bytes] = []

    def bad(error: TableError) -> None:
        lines.append(_line("bad", error.reason, error.line, error.record))

    table = registry.read(content, on_bad=bad, scheme=scheme)
    lines.append(_line("metadata", dict(table.metadata)))
    if len(lines[-1]) > MAX_LINE:
        raise TableError(f"not a registry: its metadata has more than {MAX_LINE} bytes", line=1)
    for key, entry in table.items():
        line = _line("entry", entry.line, write_record(entry))
        if len(line) <= MAX_LINE:
            lines.append(line)
        else:
            bad(TableError(f"has more than {MAX_LINE} bytes", line=entry.line, record=key))
    return b"".join(lines)


def _line(*values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":"), default=dict).encode() + b"\n"


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
