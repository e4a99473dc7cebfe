"""The one place where the command line writes: data on stdout, talk on stderr, exit codes by name.

Light to import, for ``brief``.
"""

from __future__ import annotations

import errno
import os
import sys

from maptr.text import printable

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Any, BinaryIO, NoReturn, TextIO

SCHEMA = "maptr/1"

# Exit codes are dig's where dig has one.
EXIT_OK = 0  # found, clean, applied
EXIT_NONE = 1  # none found, drift, check failed, plan not empty
EXIT_USAGE = 2  # click's own; or what is asked for needs an extra that is not installed
EXIT_NOT_RUNNING = 3  # the daemon is not running
EXIT_UNREADABLE = 8  # a file cannot be read or written
EXIT_NO_ANSWER = 9  # DNS did not answer
EXIT_INTERNAL = 10  # a bug in maptr
EXIT_INTERRUPTED = 130  # by Ctrl-C, as shells count: 128 and the number of SIGINT

LOG_FORMAT = "maptr: %(message)s"  # of what the library has to say, on stderr beside ``fail``


def data(text: str) -> None:
    """A line of data, on stdout."""
    _write(sys.stdout, printable(text, keep="\n\t"))


def talk(text: str) -> None:
    """A line for the person, on stderr."""
    _write(sys.stderr, printable(text, keep="\n\t"))


def _write(file: TextIO | None, text: str) -> None:
    if file is None:  # closed by whoever started us
        return
    if text.isascii():
        file.write(text + "\n")
        file.flush()
        return
    import click  # 14 ms, to know what an odd terminal makes of other characters

    click.echo(held(file, text), file)


def held(file: TextIO, text: str) -> str:
    """The text as the encoding of a file can hold it, for people: the characters that are not in it are escaped."""
    return text if can_hold(file, text) else text.encode("ascii", "backslashreplace").decode()


def can_hold(file: TextIO, text: str) -> bool:
    """Whether the encoding of a file, for stdout that of the locale, has all characters of a text."""
    if text.isascii():
        return True
    try:
        text.encode(file.encoding or "utf-8", file.errors or "strict")
    except UnicodeEncodeError:
        return False
    return True


def stream(path: Path | None, *, append: bool = False) -> AbstractContextManager[TextIO]:
    """A text file for rows as they come, or stdout, which is flushed after them. Raises OSError."""
    return _Stdout() if path is None else path.open("a" if append else "w", encoding="utf-8", newline="")


def standard_input() -> BinaryIO:
    """The octets of stdin. Raises OSError where whoever started us closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer


def watched() -> bool:
    """Whether a person may be looking at stderr, to whom progress can be shown."""
    return sys.stderr is not None and sys.stderr.isatty()


def shows_progress(target: str | Path | None) -> bool:
    """Whether there can be a bar on stderr: a terminal, while the data go to a file, or to a stdout that is none."""
    return watched() and (target is not None or sys.stdout is None or not sys.stdout.isatty())


class _Stdout:
    def __enter__(self) -> TextIO:
        if sys.stdout is None:  # closed by whoever started us
            raise OSError(errno.EBADF, "standard output is closed")
        return sys.stdout

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            sys.stdout.flush()


def json_data(document: Mapping[str, Any]) -> None:
    """One JSON document on one line of stdout, its schema named first."""
    _write(sys.stdout, json_text(document, sys.stdout))


def json_text(document: Mapping[str, Any], file: TextIO | None) -> str:
    """The document as a file can hold it and a terminal may have it: escaped in part it is the same document."""
    import json

    text = json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False)
    if file is not None and not can_hold(file, text):
        return json.dumps({"schema": SCHEMA, **document})
    if not text.isprintable():  # JSON may hold what terminals obey, such as U+009B
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return text


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong and leave with the code."""
    talk(f"maptr: {message}")
    sys.exit(code)


def let_go_of_stdout() -> None:
    """Where stdout cannot be written, what is left for it is dropped: Python 3.13 would try again at its end, say so
    once more and exit with 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def unwritable(error: OSError) -> NoReturn:
    """Leave because of what no command foresaw: most often stdout cannot be written."""
    from maptr.errors import reason_of

    let_go_of_stdout()
    fail(reason_of(error), EXIT_UNREADABLE)


def interrupted(kept: str = "nothing was changed; run it again") -> NoReturn:
    """Leave because of Ctrl-C, and say what was kept and how to go on."""
    let_go_of_stdout()  # its reader had the same Ctrl-C
    fail(f"interrupted: {kept}", EXIT_INTERRUPTED)


class LastResort:
    """A context in which what no command foresaw, Ctrl-C too, leaves with an exit code of its own, never as "none
    found"."""

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
            if error.errno != errno.EPIPE:  # whoever read stdout has read enough
                unwritable(error)
            return
        import traceback

        traceback.print_exception(error)
        fail("internal error, please report the lines above", EXIT_INTERNAL)


def write_atomically(path: Path, text: str) -> None:
    """``files.write_atomically`` for text."""
    from maptr import files  # few commands write files, and it costs milliseconds

    files.write_atomically(path, text.encode())
