"""The one place where the command line writes: data on stdout, talk on stderr, exit codes by name."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NoReturn

from maptr.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "maptr/1"

# Exit codes are dig's where dig has one.
EXIT_OK = 0  # found, clean, applied
EXIT_NONE = 1  # none found, drift, check failed, plan not empty
EXIT_USAGE = 2  # click's own
EXIT_NOT_RUNNING = 3  # the daemon is not running
EXIT_UNREADABLE = 8  # a file cannot be read or written
EXIT_NO_ANSWER = 9  # DNS did not answer
EXIT_INTERNAL = 10  # a bug in maptr


def data(text: str) -> None:
    """A line of data, on stdout."""
    _write(sys.stdout, printable(text, keep="\n\t"))


def talk(text: str) -> None:
    """A line for the person, on stderr."""
    _write(sys.stderr, printable(text, keep="\n\t"))


def _write(file: IO[str] | None, text: str) -> None:
    if file is None:  # closed by whoever started us
        return
    if text.isascii():
        file.write(text + "\n")
        file.flush()
        return
    import click  # 14 ms, to know what an odd terminal or locale makes of other characters

    click.echo(text, file)


@contextmanager
def stream(path: Path | None, *, append: bool = False) -> Iterator[IO[str]]:
    """A text file for rows as they come, or stdout. Raises OSError."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with path.open("a" if append else "w", encoding="utf-8", newline="") as file:
        yield file


def json_data(document: Mapping[str, Any]) -> None:
    """One JSON document on one line of stdout, its schema named first."""
    import json

    text = json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False)
    if not text.isprintable():  # JSON may hold what terminals obey, such as U+009B; escaped it is the same document
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    _write(sys.stdout, text)


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong and leave with the code."""
    talk(f"maptr: {message}")
    sys.exit(code)


@contextmanager
def last_resort(*, passing: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """What no command foresaw leaves with an exit code of its own, never as "none found"."""
    try:
        yield
    except passing:
        raise
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # whoever read stdout has read enough
        fail(str(error), EXIT_UNREADABLE)
    except Exception:
        import traceback

        traceback.print_exc()
        fail("internal error, please report the lines above", EXIT_INTERNAL)


def write_atomically(path: Path, text: str) -> None:
    """``files.write_atomically`` for text."""
    from maptr import files  # few commands write files, and it costs milliseconds

    files.write_atomically(path, text.encode())
