"""The log of a server on stderr, which holds nobody up: a reader that stops reading costs lines, and no query.

A pipe that is full, or a journal that hangs, would keep whoever writes there: the thread that answers, and with it
everybody. Others have the same stderr, so it is not made one that never waits; each line is written to one of our own.
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

PATIENCE = 0.1  # seconds that a reader gets to make room; then none until it has read again
CHUNK = 512  # octets that any pipe that has room takes at once (POSIX's least PIPE_BUF)


TEXT_FORMAT = "%(asctime)s %(levelname)s maptr: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # RFC 3339


def configure(level: int, form: logging.Formatter | None = None) -> None:
    """Have what is logged go to stderr, by default without time and level."""
    handler = _handler()
    handler.setFormatter(form or logging.Formatter(output.LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def formatter(form: str) -> logging.Formatter:
    """That of ``text`` or ``json``; the journal of systemd has time and level of its own, so text has none there."""
    if form == "json":
        return JsonFormatter()
    made = logging.Formatter(output.LOG_FORMAT if _is_journal() else TEXT_FORMAT, TIME_FORMAT)
    made.converter = time.gmtime
    return made


def _is_journal() -> bool:
    """Whether systemd's journal reads stderr: it says by which device and inode (systemd.exec(5))."""
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
        return logging.StreamHandler()  # there is none, or none of the system's


class LogStream(logging.Handler):
    """Lines written to a descriptor where there is room; how many had none is said with the next one that has."""

    def __init__(self, descriptor: int, encoding: str = "utf-8", *, patience: float = PATIENCE) -> None:
        super().__init__()
        self._encoding = encoding
        self._patience = patience
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._rest = b""  # of a line that went in part
        self._lost = 0
        self._stuck = False  # the reader had its time, and took nothing

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
        """A line of our own, in the form of the others."""
        return self._encoded(self.format(logging.LogRecord("maptr.serve", logging.WARNING, "", 0, text, (), None)))

    def _put(self, octets: bytes) -> bytes:
        """What there was no room for."""
        end = 0.0 if self._stuck else time.monotonic() + self._patience
        while octets:
            try:
                octets = octets[_write(self._descriptor, octets) :]
            except BlockingIOError:
                left = end - time.monotonic()
                if left <= 0 or not self._room.poll(left * 1000):
                    self._stuck = True
                    return octets
            except OSError:  # nobody can read it any more, or the disk is full
                return octets
            else:
                self._stuck = False
        return b""


def _write(descriptor: int, octets: bytes) -> int:
    """How many octets there was room for. Raises BlockingIOError where it was for none.

    What is opened for that is closed at once.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.write(descriptor, octets)
    try:
        if stat.S_ISSOCK(mode):
            own = os.dup(descriptor)
        else:
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no more of them, not Linux, or another user's
        return _write_a_little(descriptor, octets)
    if stat.S_ISSOCK(mode):
        with socket.socket(fileno=own) as sock:
            return sock.send(octets, socket.MSG_DONTWAIT)
    try:
        return os.write(own, octets)
    finally:
        os.close(own)


def _write_a_little(descriptor: int, octets: bytes) -> int:
    """The same, of so much as surely makes nobody wait."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    if not room.poll(0):
        raise BlockingIOError
    return os.write(descriptor, octets[:CHUNK])
