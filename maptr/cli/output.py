"""Everything that the command line writes: data on stdout, messages on stderr, and exit codes by name."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import contextmanager

from maptr.errors import printable

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, BinaryIO, NoReturn, TextIO

SCHEMA = "maptr/1"

# Exit codes are dig's where dig has one.
EXIT_OK = 0  # found, clean, applied
EXIT_NONE = 1  # none found, drift, check failed, plan not empty
EXIT_USAGE = 2  # click's own; also an extra that is not installed
EXIT_NOT_RUNNING = 3  # the daemon is not running
EXIT_UNREADABLE = 8  # a file cannot be read or written
EXIT_NO_ANSWER = 9  # DNS did not answer
EXIT_INTERNAL = 10  # a bug in maptr
EXIT_INTERRUPTED = 130  # by Ctrl-C: 128 and the number of SIGINT, as shells count

LOG_FORMAT = "maptr: %(message)s"  # of the library's log on stderr, as the messages of ``fail``


def escape_missing_characters() -> None:
    """Make stdout and stderr write escapes for characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def data(text: str) -> None:
    """Print a line of data on stdout."""
    _write(sys.stdout, printable(text, keep="\n\t"))


def talk(text: str) -> None:
    """Print a message on stderr."""
    _write(sys.stderr, printable(text, keep="\n\t"))


def _write(file: TextIO | None, text: str) -> None:
    if file is not None:  # the parent process closed it
        file.write(text + "\n")
        file.flush()


def can_encode(file: TextIO, text: str) -> bool:
    """Whether the encoding of a file has all characters of a text."""
    try:
        text.encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def stdout() -> Iterator[TextIO]:
    """Stdout to write rows to, flushed at the end. Raises OSError, also if the parent process closed it."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    yield sys.stdout
    sys.stdout.flush()


def standard_input() -> BinaryIO:
    """The bytes of stdin. Raises OSError if the parent process closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer


@contextmanager
def progress(label: str, total: int | None = None, *, hidden: bool = False) -> Iterator[Callable[..., object]]:
    """A progress bar on stderr if it is a terminal, unless ``hidden``.

    Yields rich's ``Progress.update`` of the bar, which takes ``advance``, ``completed`` and ``total``.
    """
    if hidden or sys.stderr is None or not sys.stderr.isatty():
        yield lambda **changes: None
        return
    from functools import partial

    from rich.console import Console  # late: only a progress bar needs rich
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        yield partial(bar.update, bar.add_task(label, total=total))


def json_data(document: Mapping[str, Any]) -> None:
    """Print a JSON document on one line of stdout, its schema first."""
    _write(sys.stdout, json_text(document, sys.stdout))


def json_text(document: Mapping[str, Any], file: TextIO | None) -> str:
    """The document with escapes for characters that the file cannot hold or that a terminal would obey."""
    import json

    text = json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False)
    if file is not None and not can_encode(file, text):
        return json.dumps({"schema": SCHEMA, **document})
    if not text.isprintable():  # JSON may hold characters that terminals obey, such as U+009B
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return text


def fail(message: str, code: int) -> NoReturn:
    talk(f"maptr: {message}")
    sys.exit(code)


def discard_stdout() -> None:
    """Drop what stdout has buffered if it cannot be written: Python 3.13 would report it at exit, with code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def interrupted(kept: str = "nothing was changed; run it again") -> NoReturn:
    """Exit because of Ctrl-C; ``kept`` says what remains and how to go on."""
    discard_stdout()  # its reader got the same Ctrl-C
    fail(f"interrupted: {kept}", EXIT_INTERRUPTED)


@contextmanager
def errors_end_the_command(*passing: type[BaseException]) -> Iterator[None]:
    """Turn an error that the command did not handle, Ctrl-C included, into a message and an exit code.

    Errors of the types ``passing`` are raised. A bug has the code 10, not Python's 1, which means "none found".
    """
    try:
        yield
    except KeyboardInterrupt:
        interrupted()
    except passing:
        raise
    except Exception as error:
        from maptr.discovery import DiscoveryError  # late: most command lines end without an error
        from maptr.errors import MissingExtra, SigningError, TableError, ZoneError, reason_of

        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # a reader that closed the pipe is not an error
        codes: dict[type[Exception], int] = {
            MissingExtra: EXIT_USAGE,  # before SigningError, of which it is one
            SigningError: EXIT_NONE,
            ZoneError: EXIT_NONE,
            TableError: EXIT_UNREADABLE,
            OSError: EXIT_UNREADABLE,
            DiscoveryError: EXIT_NO_ANSWER,
        }
        code = next((code for kind, code in codes.items() if isinstance(error, kind)), None)
        discard_stdout()
        if code is not None:
            fail(reason_of(error), code)
        import traceback

        traceback.print_exception(error)
        fail("internal error, please report the lines above", EXIT_INTERNAL)
