"""Everything that the command line writes: data on stdout, messages on stderr, and exit codes by name."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager

from maptr.text import printable

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
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


def data(text: str) -> None:
    """Print a line of data on stdout."""
    _write(sys.stdout, printable(text, keep="\n\t"))


def talk(text: str) -> None:
    """Print a message on stderr."""
    _write(sys.stderr, printable(text, keep="\n\t"))


def _write(file: TextIO | None, text: str) -> None:
    if file is None:  # the parent process closed it
        return
    if text.isascii():
        file.write(text + "\n")
        file.flush()
        return
    import click  # late: only text that is not ASCII needs what click knows of terminals

    click.echo(encodable(file, text), file)


def encodable(file: TextIO, text: str) -> str:
    """The text, with escapes if the encoding of the file lacks a character."""
    return text if can_encode(file, text) else text.encode("ascii", "backslashreplace").decode()


def can_encode(file: TextIO, text: str) -> bool:
    """Whether the encoding of a file has all characters of a text."""
    if text.isascii():
        return True
    try:
        text.encode(file.encoding or "utf-8", file.errors or "strict")
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


def watched() -> bool:
    """Whether stderr is a terminal, where progress can be shown."""
    return sys.stderr is not None and sys.stderr.isatty()


def shows_progress(target: str | Path | None) -> bool:
    """Whether to show a progress bar: stderr is a terminal and the data go elsewhere."""
    return watched() and (target is not None or sys.stdout is None or not sys.stdout.isatty())


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
    """Print an error and exit with the code."""
    talk(f"maptr: {message}")
    sys.exit(code)


def discard_stdout() -> None:
    """Drop what stdout has buffered if it cannot be written: Python 3.13 would report it at exit, with code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def unwritable(error: OSError) -> NoReturn:
    """Exit because of an OSError that no command handled: most often stdout cannot be written."""
    from maptr.errors import reason_of

    discard_stdout()
    fail(reason_of(error), EXIT_UNREADABLE)


def interrupted(kept: str = "nothing was changed; run it again") -> NoReturn:
    """Exit because of Ctrl-C; ``kept`` says what remains and how to go on."""
    discard_stdout()  # its reader got the same Ctrl-C
    fail(f"interrupted: {kept}", EXIT_INTERRUPTED)


class LastResort:
    """A context that turns exceptions no command handled, Ctrl-C included, into an exit code other than 1, which
    would mean "none found"."""

    def __init__(self, *, passing: tuple[type[BaseException], ...] = ()) -> None:
        self._passing = passing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            interrupted()
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return
        from maptr.errors import MissingExtra

        if isinstance(error, MissingExtra):
            fail(str(error), EXIT_USAGE)
        if isinstance(error, OSError):
            if error.errno != errno.EPIPE:  # a reader that closed the pipe is not an error
                unwritable(error)
            return
        import traceback

        traceback.print_exception(error)
        fail("internal error, please report the lines above", EXIT_INTERNAL)
