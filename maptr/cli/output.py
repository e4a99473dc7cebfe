"""The one place where the command line writes: data on stdout, talk on stderr, exit codes by name."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from maptr import files

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
    click.echo(_printable(text))


def talk(text: str) -> None:
    """A line for the person, on stderr."""
    click.echo(_printable(text), err=True)


def _printable(text: str) -> str:
    """Text from files and from DNS, without what a terminal would obey."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)


def json_data(document: Mapping[str, Any]) -> None:
    """One JSON document on one line of stdout, its schema named first."""
    click.echo(json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False))


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong and leave with the code."""
    talk(f"maptr: {message}")
    sys.exit(code)


def write_atomically(path: Path, text: str) -> None:
    """``files.write_atomically`` for text."""
    files.write_atomically(path, text.encode())
