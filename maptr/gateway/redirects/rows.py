"""The rows of a file of own objects that another program wrote: a CSV, or a SQLite database with a table ``redirects``.

Both have the columns ``ark`` and ``url``, and may have more (``objects.COLUMNS``).
"""

from __future__ import annotations

import csv
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from maptr.errors import NOT_UTF8, ConfigError, printable, text_of_cell
from maptr.files import opened, sqlite_errors
from maptr.gateway.objects import COLUMNS

MAX_COLUMNS = 100
SEPARATORS = ",;\t"
MAX_LINE = 65_536  # characters of a line of CSV, bytes of a row of SQLite
MAX_ROW = 16_000_000  # bytes; a longer row of another database makes the file unreadable, a shorter one is a bad row
WAIT = 0.5  # seconds to wait for a writer of SQLite
STEPS = 1_000  # SQLite steps between two looks at the clock; a look-up takes some thirty

APPLICATION, VERSION = 0x6D61706F, 2  # application_id ("mapo", as a cache has "mapt") and user_version of a store
CHANGE = "change"  # the column with the number of a row's last change, which a store exports

OTHER_NAMES = {
    "ark": ("ark id", "arkid", "_id", "ark identifier", "identifier", "dc:identifier", "dcterms:identifier", "pid"),
    "url": ("new url", "_target", "target", "target url", "location", "link", "redirect", "href", "uri"),
}
"""How other programs name a column, in lower case."""

INTERRUPTED = "a change of it was interrupted: maptr redirects show, run as a user who may write it, repairs it"
_READONLY_ROLLBACK = 776  # SQLITE_READONLY_ROLLBACK
_SQLITE = b"SQLite format 3\0"
_DAMAGED = (ValueError, OverflowError, RecursionError)  # what an edited row may raise
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT}


class Row(NamedTuple):
    """A row and its line number, or its number in a database; ``fault`` says why it cannot be read."""

    number: int
    cells: Mapping[str, str]
    fault: str = ""


class LockedFileError(ConfigError):
    """Another program has locked a database; it may be free a moment later."""


def is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING


def is_interrupted(error: Exception) -> bool:
    """Return whether there is a journal that a reader must not roll back: a killed writer's, or that of a writer to the
    file that has just replaced the one being read."""
    return getattr(error, "sqlite_errorcode", 0) == _READONLY_ROLLBACK


def unreadable(path: Path, error: Exception) -> ConfigError:
    """Return a file's error for one of the system or of SQLite."""
    if is_interrupted(error):
        return LockedFileError(INTERRUPTED, filename=str(path))
    kind = LockedFileError if is_busy(error) else ConfigError
    return kind(getattr(error, "strerror", None) or str(error), filename=str(path))


def is_database(path: Path) -> bool:
    """Return whether a file is a database. Raises OSError, also for a pipe or a device."""
    with opened(path) as file:
        return has_header(file.read(len(_SQLITE)))


def has_header(content: bytes) -> bool:
    """Return whether a file with this beginning is a database."""
    return content.startswith(_SQLITE)


def connected(path: Path, mode: str = "ro") -> sqlite3.Connection:
    """Return a connection to a database; its schema may not run functions. Raises sqlite3.Error."""
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    made = sqlite3.connect(uri, uri=True, timeout=WAIT, check_same_thread=False, isolation_level=None)
    made.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    made.execute("PRAGMA trusted_schema = OFF")
    return made


class StatementLimit:
    """Ends SQLite statements that take too long, whatever the file makes them do. It belongs to one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.at = math.inf
        connection.set_progress_handler(self.is_over, STEPS)

    def is_over(self) -> bool:
        return time.monotonic() > self.at


def check_tables(connection: sqlite3.Connection, names: Sequence[str], path: Path) -> None:
    """Raise ConfigError if one of these is not a table: a view could run for ever. Raises sqlite3.Error."""
    # SQLite 3.37 says what it will read; earlier versions only show that a view or virtual table has no page.
    stored = "SELECT type, rootpage FROM sqlite_master WHERE name = ? COLLATE NOCASE"
    for name in names:
        with sqlite_errors():
            listed = {kind for _, _, kind, *_ in connection.execute(f"PRAGMA table_list({name})")}
            found = connection.execute(stored, (name,)).fetchall()
        if any(kind != "table" or not page for kind, page in found) or listed - {"table"}:
            raise ConfigError(f"{name} is not a table", filename=str(path))


def read_rows(path: Path, *, unended: bool = False) -> Iterator[Row]:
    """Yield the columns as a row, then the rows. ``unended``: the last line of a CSV may lack its line end. Raises
    ConfigError."""
    try:
        yield from _sqlite_rows(path) if is_database(path) else _csv_rows(path, unended=unended)
    except (OSError, sqlite3.Error, *_DAMAGED) as error:
        raise unreadable(path, error) from None


def _csv_rows(path: Path, *, unended: bool) -> Iterator[Row]:
    """Yield the columns as a row, then the rows of a CSV, each with the number of its last line.

    Rows without any value, which spreadsheets leave at the end, are skipped. The separator is guessed from the first
    line: Excel uses semicolons in countries with a decimal comma.
    """
    source = _LinesOfCsv()
    lines = source.read(path)
    first = next(lines, "")
    if "\r" in first.rstrip("\r\n"):
        raise ConfigError("its lines end with CR alone: save it with LF or CR LF", filename=str(path), line=1)
    separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(chain([first], lines), strict=True, delimiter=separator)
    begun, width = 0, -1
    try:
        header = [_column(text_of_cell(name)) for name in next(reader, [])]
        _check_columns(len(header), path, 1)
        _check_header(header, path)
        yield Row(1, dict.fromkeys(header, ""))
        begun = reader.line_num
        for cells in reader:
            begun, width = reader.line_num, len(cells)
            _check_columns(width, path, begun)
            if any(cells):
                fault = ""
                if any(cells[len(header) :]):
                    counts = f"{width} values for {len(header)} columns"
                    fault = f"{counts}: put a text with {separator!r} in quotation marks"
                yield Row(begun, dict(zip(header, map(text_of_cell, cells), strict=False)), fault)
    except csv.Error as error:
        reason = f"{error}: a quotation mark in this row may not be closed"
        raise ConfigError(reason, filename=str(path), line=begun + 1) from None
    if source.lacks_end:
        is_short = 0 <= width < len(header)
        if is_short:
            reason = f"the last line has no end, and {width} values for {len(header)} columns: the file was cut"
            raise ConfigError(reason, filename=str(path), line=begun)
        if not unended:
            reason = "the last line has no end: the file may have been cut (if it was not, end the line, or --unended)"
            raise ConfigError(reason, filename=str(path), line=max(begun, 1))


class _LinesOfCsv:
    """The lines of a CSV. ``lacks_end``: the last line read has no line end."""

    def __init__(self) -> None:
        self.lacks_end = False

    def read(self, path: Path) -> Iterator[str]:
        """Yield the lines. Raises ConfigError for a line that is too long or not UTF-8."""
        with opened(path) as file:
            number = 0
            while raw := file.readline(4 * MAX_LINE + 1):
                number += 1
                self.lacks_end = raw[-1:] != b"\n"
                try:
                    if number == 1 and b"\0" in raw:  # UTF-16 without a byte order mark, or a workbook
                        raise ValueError
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except ValueError:
                    raise ConfigError(NOT_UTF8, filename=str(path), line=number) from None
                if len(line) > MAX_LINE:
                    raise ConfigError(f"a line of more than {MAX_LINE} characters", filename=str(path), line=number)
                yield line


def _column(name: str) -> str:
    """Return a column's name; those with a meaning may be written in capitals, and with spaces around them."""
    known = name.strip().lower()
    return known if known in (*COLUMNS, CHANGE) else name


def _check_columns(count: int, path: Path, line: int) -> None:
    if count > MAX_COLUMNS:
        raise ConfigError(f"{count} columns, {MAX_COLUMNS} at most", filename=str(path), line=line)


def _check_header(header: Sequence[str], path: Path) -> None:
    if lacking := [name for name in OTHER_NAMES if name not in header]:
        name = lacking[0]
        reason = f"the first line has no column {name}, but {printable(', '.join(header))[:80]!r}"
        if meant := _meant(header, name):
            reason += f": name {printable(meant)!r} {name}"
        raise ConfigError(reason, filename=str(path), line=1)
    if twice := [name for name in header if name and header.count(name) > 1]:
        raise ConfigError(f"the first line has two columns {twice[0]}", filename=str(path), line=1)


def _meant(header: Sequence[str], name: str) -> str:
    """Return the column that stands for this one under another name; "" if there is none."""
    return next((each for each in header if each.strip().lower() in OTHER_NAMES[name]), "")


def _sqlite_rows(path: Path) -> Iterator[Row]:
    """Yield the columns as a row, then the numbered rows of the table ``redirects``.

    A store's table has its other columns as JSON, in ``more``.
    """
    with closing(connected(path)) as connection:
        check_tables(connection, ["redirects"], path)
        is_store = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
        names = [_column(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info('redirects')")]
        _check_columns(len(names), path, 0)
        if lacking := [name for name in OTHER_NAMES if name not in names]:
            meant = _meant(names, lacking[0])
            hint = f": name {printable(meant)!r} {lacking[0]}" if meant else ""
            raise ConfigError(f"no such column: {lacking[0]}{hint}", filename=str(path))
        columns = dict.fromkeys(names, "")
        if is_store and columns.pop("more", None) is not None:
            check_tables(connection, ["columns"], path)
            kept = connection.execute("SELECT name FROM columns LIMIT ?", (MAX_COLUMNS,))
            columns |= {str(name): "" for (name,) in kept}
        yield Row(0, columns)
        number = 1
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW)
        try:
            for number, values in enumerate(connection.execute("SELECT * FROM redirects"), 1):
                cells = dict(zip(names, ("" if value is None else str(value) for value in values), strict=True))
                fault = fault_of("".join(cells.values()))
                if any(len(cell) > MAX_LINE for cell in cells.values()):
                    fault = f"a value of more than {MAX_LINE} characters"
                if is_store and not fault:
                    try:
                        cells |= more_columns(cells.pop("more", ""))
                    except ValueError as error:
                        fault = str(error)
                yield Row(number, cells, fault)
        except sqlite3.DataError as error:  # too long a value
            raise ConfigError(str(error), filename=str(path), line=number + 1) from None


def fault_of(text: str) -> str:
    """Return why a text from a database cannot be used; "" if it can."""
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a text is not UTF-8"
    return ""


def more_columns(text: str) -> Mapping[str, str]:
    """Return the other columns of a store's row. Raises ValueError."""
    try:
        kept = json.loads(text) if text else {}
    except RecursionError:
        raise ValueError("its other columns nest too deeply") from None
    if not isinstance(kept, dict) or not all(isinstance(value, str) for value in kept.values()):
        raise ValueError("its other columns are damaged")
    return kept
