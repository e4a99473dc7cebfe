"""The log of a server on stderr. A reader that stops reading costs log lines, but never delays a query.

Writing to a full pipe or a hanging journal would block the thread that answers queries. Other processes share stderr,
so it cannot be made non-blocking; each line is written through a descriptor of its own.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import stat
import sys
import time

from maptr.cli import output

PATIENCE = 0.1  # seconds to wait for a reader to make room; then none until it has read again
CHUNK = 512  # bytes that a pipe with room takes at once (the least PIPE_BUF of POSIX)


TEXT_FORMAT = "%(asctime)s %(levelname)s maptr: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # RFC 3339


def configure(level: int, form: logging.Formatter | None = None) -> None:
    """Log to stderr, by default without time and level."""
    handler = _handler()
    handler.setFormatter(form or logging.Formatter(output.LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def formatter(form: str) -> logging.Formatter:
    """The formatter of ``text`` or ``json``; text has no time and level if systemd's journal adds its own."""
    if form == "json":
        return JsonFormatter()
    made = logging.Formatter(output.LOG_FORMAT if _is_journal() else TEXT_FORMAT, TIME_FORMAT)
    made.converter = time.gmtime
    return made


def _is_journal() -> bool:
    """Whether systemd's journal reads stderr, by the device and inode that it announces (systemd.exec(5))."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, and where there is one, the ``rcode`` of a
    query and ``error`` with a traceback."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, TIME_FORMAT),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "rcode"):
            line["rcode"] = record.rcode
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _handler() -> logging.Handler:
    try:
        return LogStream(sys.stderr.fileno(), sys.stderr.encoding)
    except (AttributeError, OSError, ValueError):
        return logging.StreamHandler()  # stderr is closed or replaced


class LogStream(logging.Handler):
    """Writes lines to a descriptor while it has room, and reports the number of lost lines with the next line."""

    def __init__(self, descriptor: int, encoding: str = "utf-8", *, patience: float = PATIENCE) -> None:
        super().__init__()
        self._encoding = encoding
        self._patience = patience
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._rest = b""  # of a line that was written in part
        self._lost = 0
        self._stuck = False  # the reader had its time and took nothing

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._encoded(self.format(record))
        except Exception:
            self.handleError(record)
            return
        self._rest = self._put(self._rest)
        if self._rest:
            self._lost += 1
            return
        if self._lost:
            line = self._noted(f"{self._lost} lines of the log lost: there was no room for them") + line
        left = self._put(line)
        if len(left) == len(line):
            self._lost += 1
        else:
            self._rest, self._lost = left, 0

    def _encoded(self, text: str) -> bytes:
        return f"{text}\n".encode(self._encoding, "backslashreplace")

    def _noted(self, text: str) -> bytes:
        """A line of this module, formatted like the others."""
        return self._encoded(self.format(logging.LogRecord("maptr.serve", logging.WARNING, "", 0, text, (), None)))

    def _put(self, data: bytes) -> bytes:
        """Write, and return what there was no room for."""
        end = 0.0 if self._stuck else time.monotonic() + self._patience
        while data:
            try:
                data = data[_write(self._descriptor, data) :]
            except BlockingIOError:
                left = end - time.monotonic()
                if left <= 0 or not self._room.poll(left * 1000):
                    self._stuck = True
                    return data
            except OSError:  # the reader is gone or the disk is full
                return data
            else:
                self._stuck = False
        return b""


def _write(descriptor: int, data: bytes) -> int:
    """Write without blocking; the number of bytes written. Raises BlockingIOError without room."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.write(descriptor, data)
    try:
        if stat.S_ISSOCK(mode):
            own = os.dup(descriptor)
        else:
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no more descriptors, not Linux, or not permitted
        return _write_a_little(descriptor, data)
    if stat.S_ISSOCK(mode):
        with socket.socket(fileno=own) as sock:
            return sock.send(data, socket.MSG_DONTWAIT)
    try:
        return os.write(own, data)
    finally:
        os.close(own)


def _write_a_little(descriptor: int, data: bytes) -> int:
    """The same, with few enough bytes that a ready pipe takes them without blocking."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    if not room.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[:CHUNK])
