"""The output of commands: data on stdout, messages on stderr, and exit codes by name.

A line has parts. A ``Painted`` part has a colour on a terminal (``is_colored``). JSON has no colours.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, TextIO

from maptr.errors import SCHEMA, printable, without_surrogates

if TYPE_CHECKING:
    from maptr.zone.finding import Finding

# The exit codes of dig, where dig has one.
EXIT_OK = 0  # found, clean, applied
EXIT_NONE = 1  # none found, drift, check failed, plan not empty
EXIT_USAGE = 2  # click's code; also for an extra that is not installed
EXIT_NOT_RUNNING = 3  # the daemon is not running
EXIT_UNREADABLE = 8  # a file cannot be read or written
EXIT_NO_ANSWER = 9  # DNS did not answer
EXIT_INTERNAL = 10  # a bug in maptr
EXIT_INTERRUPTED = 130  # by Ctrl-C: 128 plus the number of SIGINT, as in shells


ERROR_LOG = "maptr.error_log"  # the key, in the ``meta`` of click's context, of the function that logs an error


class _Lossy(io.FileIO):
    """A file that drops what it cannot write: a message to a full disk must not change a command's result."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def prepare_streams() -> None:
    """Prepare stdin, stdout and stderr for every command.

    Characters that the encoding lacks are escaped. A message that stderr cannot take is lost. Descriptors 0 to 2 that
    the parent process closed become the null device, so that no socket gets their number; a stdout that was closed
    cannot be written to, and so ends the command.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # which takes the lowest free number
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8")
    if sys.stderr is sys.__stderr__:
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Lossy(2, "w", closefd=False)), encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# ---- colour


class Painted(NamedTuple):
    """A part of a line, in a colour of ``click.style``; None is bold."""

    text: str
    color: str | None


GOOD, DOUBTFUL, BAD, MINOR, STRONG = "green", "yellow", "red", "bright_black", None
SIGNS = {"+": GOOD, "~": DOUBTFUL, "-": BAD, "!": DOUBTFUL}  # in lists of changes
SEVERITIES = {"error": BAD, "warning": DOUBTFUL}

COLORS = ("auto", "always", "never")  # the values of --color


def is_colored(file: TextIO) -> bool:
    """Return whether to use colours: by ``--color``, else NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE, else by terminal."""
    click = sys.modules.get("click")  # ``start`` runs without click, and so without --color
    context = click.get_current_context(silent=True) if click is not None else None
    if context is not None and context.color is not None:
        return bool(context.color)
    if os.environ.get("NO_COLOR"):  # https://no-color.org: any text
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return is_terminal(file)


def is_terminal(file: TextIO) -> bool:
    """Return whether the file is a terminal that supports colours and cursor movement."""
    return file.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def painted(text: str, word: str, color: str | None) -> tuple[str | Painted, ...]:
    """Split a text into parts, so that the first ``word`` has a colour."""
    before, word, after = text.partition(word)
    return before, Painted(word, color), after


def counted(number: int, noun: str) -> str:
    """Write a number of things: 1 error, 2 errors."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def of_change(line: str) -> tuple[str | Painted, ...]:
    """Split a line that begins with the sign of a change into coloured parts."""
    return Painted(line[:1], SIGNS.get(line[:1])), line[1:]


def of_finding(finding: Finding) -> tuple[str | Painted, ...]:
    """Split the line of a finding into coloured parts."""
    return painted(str(finding), f"{finding.severity}:", SEVERITIES[finding.severity])


# ---- lines


def data(*parts: str | Painted) -> None:
    """Print a line of data on stdout."""
    _write(sys.stdout, *parts)


def inform(*parts: str | Painted) -> None:
    """Print a message on stderr."""
    _write(sys.stderr, *parts)


def error(text: str, cause: BaseException | None = None) -> None:
    """Print an error on stderr, after its cause's traceback, or log it if the command has an error log."""
    click = sys.modules.get("click")  # ``start`` runs without click
    context = click.get_current_context(silent=True) if click is not None else None
    if context is not None and ERROR_LOG in context.meta:
        context.meta[ERROR_LOG](text, exc_info=cause)
        return
    if cause is not None:
        import traceback  # late: only a bug needs it

        traceback.print_exception(cause)
    inform(Painted("maptr:", BAD), f" {text}")


def warning(text: str) -> None:
    """Print a warning on stderr."""
    inform(Painted("maptr:", DOUBTFUL), f" {printable(text)}")


def show_log() -> None:
    """Print the warnings of the library's log on stderr."""
    import logging  # late: only the cache logs

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warning(self.format(record))

    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[Handler()])


def _write(file: TextIO, *parts: str | Painted) -> None:
    colored = any(isinstance(part, Painted) for part in parts) and is_colored(file)
    text = "".join(_terminal_text(part, colored=colored) for part in parts)
    bar = _bar.get()
    with bar.aside() if bar is not None and file.isatty() else nullcontext():
        file.write(text + "\n")
        file.flush()


def _terminal_text(part: str | Painted, *, colored: bool) -> str:
    """Return the text of a part. Control characters are escaped, except those of its colour."""
    text = printable(part if isinstance(part, str) else part.text, keep="\n\t")
    if isinstance(part, str) or not colored or not text:
        return text
    from click import style  # late: ``start`` runs without click

    return style(text, fg=part.color, bold=part.color is None or None)


# ---- progress

DELAY = 0.3  # seconds from the start of a task until its bar appears
PAUSE = 0.2  # seconds between updates of the bar
CLEAR = "\r\x1b[2K\x1b[?25h"  # empties the line and shows the cursor, which click hides


class _Bar:
    """A progress bar on stderr. A thread draws it, even if ``update`` is never called."""

    def __init__(self, label: str, total: float | None) -> None:
        from threading import Event, RLock, Thread  # late: few command lines have a bar

        self._label, self._total, self._done = label, total, 0.0
        self._since = time.monotonic()
        self._ended = Event()
        self._lock = RLock()  # guards ``_drawn``
        self._drawn: Any = None  # click's bar, if it is on the screen
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def update(self, *, advance: float = 0, completed: float | None = None, total: float | None = None) -> None:
        """Report the amount done, since the last call (``advance``) or in all (``completed``), or the total."""
        self._done = self._done + advance if completed is None else completed
        self._total = total or self._total

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar while the block runs."""
        with self._lock:
            if self._drawn is not None:
                self._drawn = None
                sys.stderr.write(CLEAR)
                sys.stderr.flush()
            yield

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        with self.aside():
            pass

    def _run(self) -> None:
        pause = DELAY
        while not self._ended.wait(pause):
            pause = PAUSE
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._drawn is None:
            from click import progressbar  # late: ``start`` runs without click

            self._drawn = progressbar(
                count(),
                label=self._label,
                show_eta=False,
                item_show_func=lambda _: f"{time.monotonic() - self._since:.0f} s",
                file=sys.stderr,
            )
        self._drawn.length = None if self._total is None else int(self._total)
        self._drawn.pos = int(self._done)
        self._drawn.render_progress()


_bar: ContextVar[_Bar | None] = ContextVar("bar", default=None)  # the bar of the current task


@contextmanager
def progress(label: str, total: float | None = None, *, hidden: bool = False) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr if it is a terminal, unless ``hidden``. Yields its ``update``.

    Without a ``total``, the bar shows activity and the elapsed time. It is hidden while a line is printed.
    """
    if hidden or not is_terminal(sys.stderr):
        yield lambda **changes: None
        return
    bar = _Bar(label, total)
    token = _bar.set(bar)
    try:
        yield bar.update
    finally:
        _bar.reset(token)
        bar.end()


# ---- data


def can_encode(file: TextIO, text: str) -> bool:
    """Return whether the encoding of a file has all characters of a text."""
    try:
        text.encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def standard_input() -> BinaryIO:
    """Return the binary stdin. Raises OSError if the parent process closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed", "<stdin>")
    return sys.stdin.buffer


def json_data(document: Mapping[str, Any]) -> None:
    """Print a JSON document on one line of stdout, its schema first."""
    _write(sys.stdout, json_text(document, sys.stdout))


def json_text(document: Mapping[str, Any], file: TextIO | None) -> str:
    """Write a document as JSON, in ASCII if the file cannot encode a character or one controls a terminal."""
    import json  # late: few command lines print JSON

    text = without_surrogates(json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False))
    is_safe = text.isprintable() and (file is None or can_encode(file, text))  # JSON may hold U+009B, for example
    return text if is_safe else json.dumps(json.loads(text)).replace("\x7f", "\\u007f")


def end_with(findings: list[Finding], about: str, document: Mapping[str, Any] | None, *, strict: bool) -> NoReturn:
    """Print the findings and their numbers, or the document; exit with 1 for an error, or if ``strict`` any finding."""
    errors = sum(finding.severity == "error" for finding in findings)
    if document is not None:
        json_data(document)
    else:
        for finding in findings:
            data(*of_finding(finding))
        inform(f"{about}: {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    sys.exit(EXIT_NONE if errors or (strict and findings) else EXIT_OK)


def fail(message: str, code: int, cause: BaseException | None = None) -> NoReturn:
    error(message, cause)
    sys.exit(code)


def discard_stdout() -> None:
    """Drop the buffer of stdout if it cannot be written. Python 3.13 would report it at exit, with code 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def interrupted(kept: str = "nothing was changed; run it again") -> NoReturn:
    """Exit because of Ctrl-C. The message ``kept`` says what remains and how to resume."""
    discard_stdout()  # its reader got the same Ctrl-C
    fail(f"interrupted: {kept}", EXIT_INTERRUPTED)


def _lacking(error: Exception) -> str:
    """Return the reason if the system provides no memory, thread or stdout; "" for another error."""
    if isinstance(error, OSError) and error.errno == errno.EBADF and error.filename is None:
        return "standard output is closed"
    if isinstance(error, MemoryError):
        return "not enough memory, or a limit on it (ulimit -v)"
    # threading raises a RuntimeError of no special class.
    if isinstance(error, RuntimeError) and error.args == ("can't start new thread",):
        return "no thread can be started: there is a limit on processes and threads (ulimit -u)"
    return ""


@contextmanager
def errors_end_the_command(*passing: type[BaseException]) -> Iterator[None]:
    """Turn an error that the command did not handle, or Ctrl-C, into a message and an exit code.

    Errors of the types ``passing`` are raised. A bug has the code 10, because Python's 1 means "none found" here.
    """
    try:
        yield
    except KeyboardInterrupt:
        interrupted()
    except passing:
        raise
    except Exception as error:
        from maptr.discovery import DiscoveryError  # late: most commands end without an error
        from maptr.errors import MissingExtra, SigningError, TableError, ZoneError, reason_of

        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # the reader closed the pipe, which is not an error
        codes: dict[type[Exception], int] = {
            MissingExtra: EXIT_USAGE,  # before SigningError, its base class
            SigningError: EXIT_NONE,
            ZoneError: EXIT_NONE,
            TableError: EXIT_UNREADABLE,
            OSError: EXIT_UNREADABLE,
            DiscoveryError: EXIT_NO_ANSWER,
        }
        discard_stdout()
        if reason := _lacking(error):
            fail(reason, EXIT_UNREADABLE)
        for kind, code in codes.items():
            if isinstance(error, kind):
                fail(reason_of(error), code)
        fail("internal error, please report the lines above", EXIT_INTERNAL, error)
