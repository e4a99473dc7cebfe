"""The log of a server on stderr. A slow reader of the log loses lines, but never delays a query.

A write to a full pipe or a hanging journal blocks, so a separate thread writes. Lines wait for it in a bounded queue.
A line that finds the queue full is lost; the next line that is written reports the number of lost lines.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from typing import Any

import click

from maptr.cli import output
from maptr.errors import json_text, printable

MAX_WAITING = 1000  # lines
PATIENCE = 0.1  # seconds to wait for room in the queue; after a timeout, 0 until there is room again
END_PATIENCE = 1.0  # seconds to wait at the end of the process until the last lines are written

SWITCHED = "maptr.gateway.access", "maptr.query"  # loggers with their own settings, at any level
SHORT_FORMAT = "maptr: %(message)s"  # like the messages of ``output``
TEXT_FORMAT = "%(asctime)s %(levelname)s maptr: %(message)s"
PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}  # RFC 5424
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # RFC 3339


def configure(level: str, form: str = "") -> None:
    """Log to stderr as ``text``, by default without time and level, or as ``json``, with the command's errors."""
    handler: logging.Handler
    try:
        handler = LogStream(sys.stderr.fileno(), sys.stderr.encoding)
    except (AttributeError, OSError, ValueError):
        handler = logging.StreamHandler()  # stderr is closed or replaced
    handler.setFormatter(formatter(form) if form else TextFormatter(SHORT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    context = click.get_current_context(silent=True)
    if isinstance(handler.formatter, JsonFormatter | JournalFormatter) and context is not None:  # a program reads it
        context.meta[output.ERROR_LOG] = logging.getLogger("maptr.daemon").error
    for name in SWITCHED:
        logging.getLogger(name).setLevel(logging.INFO)


def formatter(form: str) -> logging.Formatter:
    """Return the formatter of ``text`` or ``json``. Text for systemd's journal lacks the time, which it adds."""
    is_journal = _is_journal()
    text = TextFormatter(SHORT_FORMAT if is_journal else TEXT_FORMAT, TIME_FORMAT)
    inner = JsonFormatter() if form == "json" else text
    return JournalFormatter(inner) if is_journal else inner


def _is_journal() -> bool:
    """Return whether stderr is the journal: JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class TextFormatter(logging.Formatter):
    """One line of text, whatever its values hold. A traceback after it is indented, so that none of its lines looks
    like a line of the log. A line that is already complete, of an access log for other programs, gets no prefix."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        record = copy(record)
        if isinstance(record.args, Mapping):
            record.args = {name: _plain(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_plain, record.args))
        return record.getMessage() if getattr(record, "is_whole", False) else super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the library
        return printable(super().formatMessage(record), keep="\n")

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


def _plain(value: object) -> object:
    """Return a value for a line: a text from a file or another machine cannot begin another line."""
    return value if isinstance(value, int | float) else printable(str(value))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``message``; ``rcode`` and ``members`` if the record
    has them; ``error``, a traceback, if there was an exception."""

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


class JournalFormatter(logging.Formatter):
    """Another formatter's lines, each after its level, which systemd's journal reads and removes (sd-daemon(3))."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = f"<{PRIORITIES[record.levelno]}>"
        return priority + self._inner.format(record).replace("\n", f"\n{priority}")


class LogStream(QueueHandler):
    """A log handler that writes to a descriptor in a thread, and reports the number of lost lines."""

    queue: Queue[logging.LogRecord]

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        super().__init__(Queue(MAX_WAITING))
        self._stuck = False  # the last wait for room timed out
        self._without_room = 0  # lines
        self._writer = _Writer(self, descriptor, encoding)
        self._writer.start()

    def enqueue(self, record: logging.LogRecord) -> None:
        vars(record)["lost"] = self._without_room
        try:
            self.queue.put(record, timeout=0 if self._stuck else PATIENCE)
            self._stuck = False
        except Full:
            self._stuck = True
            self._without_room += 1

    def flush(self) -> None:
        """Wait until all lines are written, for END_PATIENCE seconds at most."""
        with self.queue.all_tasks_done:
            self.queue.all_tasks_done.wait_for(lambda: not self.queue.unfinished_tasks, END_PATIENCE)

    def close(self) -> None:
        with suppress(Full):  # not QueueListener.stop, which waits for the thread and so for the reader of the log
            self._writer.enqueue_sentinel()
        super().close()


class _Writer(QueueListener):
    """Writes lines in a thread, each after a notice of the lines that were lost before it.

    It has no handler: ``logging.shutdown`` would wait for the handler's lock.
    """

    def __init__(self, stream: LogStream, descriptor: int, encoding: str) -> None:
        super().__init__(stream.queue)
        self._format = stream.format
        self._descriptor = descriptor
        self._encoding = encoding
        self._not_written = self._reported = 0  # lines

    def handle(self, record: logging.LogRecord) -> None:
        lost, text = vars(record)["lost"] + self._not_written - self._reported, record.msg
        if lost:
            log_line = f"{lost} log lines lost: the queue was full, or they could not be written"
            notice = logging.LogRecord("maptr.daemon", logging.WARNING, "", 0, log_line, (), None)
            text = f"{self._format(notice)}\n{text}"
        line = f"{text}\n".encode(self._encoding, "backslashreplace")
        try:
            while line:
                try:
                    line = line[os.write(self._descriptor, line) :]
                except BlockingIOError:  # another process made the stream non-blocking
                    select.select([], [self._descriptor], [])
            self._reported += lost
        except OSError:  # the reader closed its end, or the disk is full
            self._not_written += 1
