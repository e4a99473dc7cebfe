"""The log of a server on stderr. A slow reader of the log loses lines, but never delays a query.

A write to a full pipe or a hanging journal blocks, so a separate thread writes. Lines wait for it in a bounded queue.
A line that finds the queue full is lost; the next line that is written reports the number of lost lines.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from contextlib import suppress
from queue import Full, Queue

from maptr.errors import json_text

MAX_WAITING = 1000  # lines
PATIENCE = 0.1  # seconds to wait for room in the queue; after a timeout, 0 until there is room again
END_PATIENCE = 1.0  # seconds to wait at the end of the process until the last lines are written

SHORT_FORMAT = "maptr: %(message)s"  # like the messages of ``output``
TEXT_FORMAT = "%(asctime)s %(levelname)s maptr: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # RFC 3339


def configure(level: str, form: str = "") -> None:
    """Log to stderr as ``text`` or ``json``, by default as text without time and level."""
    handler: logging.Handler
    try:
        handler = LogStream(sys.stderr.fileno(), sys.stderr.encoding)
    except (AttributeError, OSError, ValueError):
        handler = logging.StreamHandler()  # stderr is closed or replaced
    handler.setFormatter(formatter(form) if form else logging.Formatter(SHORT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def formatter(form: str) -> logging.Formatter:
    """Return the formatter of ``text`` or ``json``. Text for systemd's journal lacks time and level, which it adds."""
    if form == "json":
        return JsonFormatter()
    made = logging.Formatter(SHORT_FORMAT if _is_journal() else TEXT_FORMAT, TIME_FORMAT)
    made.converter = time.gmtime
    return made


def _is_journal() -> bool:
    """Return whether stderr is the journal: JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``; ``rcode`` and ``members`` if the record has
    them; ``error``, a traceback, if there was an exception."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, TIME_FORMAT),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "rcode"):
            line["rcode"] = record.rcode
        line |= getattr(record, "members", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json_text(line)


class LogStream(logging.Handler):
    """A log handler that writes to a descriptor in a thread, and reports the number of lost lines."""

    def __init__(self, descriptor: int, encoding: str = "utf-8", *, patience: float = PATIENCE) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._encoding = encoding
        self._patience = patience
        self._stuck = False  # the last wait for room timed out
        # Each line, with the number of lines that count as lost if it cannot be written. None ends the thread.
        self._lines: Queue[tuple[bytes, int] | None] = Queue(MAX_WAITING)
        # Numbers of lines; only one thread changes each.
        self._without_room = self._not_written = self._reported = 0
        threading.Thread(target=self._write_all, name="maptr-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        lost = self._without_room + self._not_written - self._reported
        try:
            line = self._encoded(record)
            if lost:
                log_line = f"{lost} lines of the log lost: the queue was full"
                line = (
                    self._encoded(logging.LogRecord("maptr.serve", logging.WARNING, "", 0, log_line, (), None)) + line
                )
        except Exception:
            self.handleError(record)
            return
        try:
            self._lines.put((line, lost + 1), timeout=0 if self._stuck else self._patience)
        except Full:
            self._stuck = True
            self._without_room += 1
        else:
            self._stuck = False
            self._reported += lost

    def flush(self) -> None:
        """Wait until all lines are written, at most for END_PATIENCE."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, END_PATIENCE)

    def close(self) -> None:
        with suppress(Full):
            self._lines.put_nowait(None)
        super().close()

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")

    def _write_all(self) -> None:
        for line, lost in iter(self._lines.get, None):
            try:
                self._write(line)
            except OSError:  # the reader closed its end, or the disk is full
                self._not_written += lost
            self._lines.task_done()

    def _write(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:  # another process made the stream non-blocking
                select.select([], [self._descriptor], [])
