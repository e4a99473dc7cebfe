"""The last good states of a table, kept beside its file: ``FILE.1`` is the one before this, ``FILE.2`` before that."""

from __future__ import annotations

import os
from pathlib import Path

from maptr.errors import TableError
from maptr.files import write_atomically
from maptr.registry import sandbox
from maptr.registry.table import Table

KEEP = 3  # last good states kept beside the file


def last_good(path: Path) -> Table:
    """The table of the latest state kept that is one; an empty table where none is. Raises ParserFailed."""
    for number in range(1, KEEP + 1):
        kept = _kept(path, number)
        try:
            return sandbox.read(kept.read_bytes(), filename=str(kept))[0]
        except (OSError, TableError):
            continue
    return Table()


def rotate(path: Path, keep: int = KEEP) -> None:
    """Keep the file's content as ``FILE.1``, and older states one further; the file itself stays. Raises OSError."""
    for number in range(keep, 1, -1):
        older = _kept(path, number - 1)
        if older.exists():
            older.replace(_kept(path, number))
    if keep:
        last = _kept(path, 1)
        last.unlink(missing_ok=True)
        try:
            os.link(path, last)
        except OSError:  # a file system without links, or somebody else's file (fs.protected_hardlinks of Linux)
            write_atomically(last, path.read_bytes())


def _kept(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
