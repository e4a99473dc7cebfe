"""The one place where the command line writes: data on stdout, talk on stderr, exit codes by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click

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
    click.echo(printable(text, keep="\n\t"))


def talk(text: str) -> None:
    """A line for the person, on stderr."""
    click.echo(printable(text, keep="\n\t"), err=True)


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

    click.echo(json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False))


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong and leave with the code."""
    talk(f"maptr: {message}")
    sys.exit(code)


def write_atomically(path: Path, text: str) -> None:
    """Write beside the target, flush to disk, rename: a reader sees the old file or the new, never half.

    A symbolic link stays, and the file it names is replaced; a device or a pipe is written to, for a rename would
    put a file in its place. Raises OSError; the old file is then untouched and nothing is left beside it.
    """
    # Few commands write files, and each of the two costs milliseconds.
    import tempfile
    from pathlib import Path

    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8", newline="\n") as device:
            device.write(text)
        return
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
