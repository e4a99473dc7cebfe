"""Redirects of single ARKs (draft 3.4), from a CSV or SQLite file that is read again when it changes.

A CSV has the columns ``ark`` and ``url``, and may have ``status`` (302 or 303). A SQLite file has a table ``redirects``
with the same columns. A file that is gone, cannot be read or has a bad line leaves the last good redirects in use.
"""

from __future__ import annotations

import csv
import io
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from maptr import url
from maptr.ark import Ark
from maptr.errors import ArkSyntaxError, ConfigError, MaptrError
from maptr.files import Followed, read_whole
from maptr.gateway.site import Redirect

log = logging.getLogger("maptr.gateway")

MAX_REDIRECTS = 1_000_000  # some 500 bytes each
MAX_COLUMNS = 100
MAX_LINE = 65_536  # characters of a line of CSV, bytes of a value of SQLite
STATUSES = ("302", "303")
LOCKED = 0.5  # seconds to wait for a writer of SQLite; then the file is read again later

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Redirects:
    """The redirects of a file. ``naans`` counts those of each NAAN. ``trouble`` is why its last content is not used."""

    rules: Mapping[Ark, Redirect] = field(default_factory=dict)
    naans: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""


UNREAD = Redirects()


def follow(path: Path, *, allow_private: bool, clock: Callable[[], float]) -> Followed[Redirects]:
    """Read the redirects of a file, which is read again when it changes. Raises ConfigError for the first reading."""

    def load(last: Redirects) -> Redirects:
        rules = read(path, allow_private=allow_private)
        if last is not UNREAD:
            log.info("%s read: %d redirects", path, len(rules))
        return Redirects(rules, Counter(ark.naan for ark in rules))

    def keep(last: Redirects, error: MaptrError | OSError) -> Redirects:
        if last is UNREAD:
            raise error
        if str(error) != last.trouble:
            log.error("%s; the last good redirects stay", error)
        return replace(last, trouble=str(error))

    file = Followed(path, UNREAD, load, keep, clock=clock)
    file.refresh()
    return file


def read(path: Path, *, allow_private: bool = False) -> dict[Ark, Redirect]:
    """Return the redirects in a file. Raises ConfigError that names the file and the line."""
    try:
        rows = _sqlite(path) if path.is_file() and _is_sqlite(path) else _csv(path)
        rules: dict[Ark, Redirect] = {}
        for number, (ark, target, status) in rows:
            try:
                parsed = Ark.parse(ark)
                url.parse_allowed(target, allow_private=allow_private)
                if status not in STATUSES:
                    raise ValueError(f"the status {status} is not one of {', '.join(STATUSES)}")
                if parsed in rules:
                    raise ValueError(f"a second redirect of {parsed}")
                if len(rules) == MAX_REDIRECTS:
                    raise ValueError(f"more than {MAX_REDIRECTS} redirects")
            except (ArkSyntaxError, ValueError) as error:
                raise ConfigError(str(error), filename=str(path), line=number) from None
            rules[parsed] = Redirect(target, int(status))
        return rules
    except OSError as error:
        raise ConfigError(error.strerror or str(error), filename=str(path)) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", filename=str(path), line=line) from None
    except sqlite3.Error as error:
        raise ConfigError(str(error), filename=str(path)) from None


Row = tuple[str, str, str]


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a CSV, each with the number of its last line."""
    reader = csv.reader(_lines(path), strict=True)
    try:
        header = next(reader, [])
        _check_columns(len(header), path, 1)
        if missing := {"ark", "url"} - set(header):
            raise ConfigError(f"the first line has no column {min(missing)}", filename=str(path), line=1)
        for cells in reader:
            _check_columns(len(cells), path, reader.line_num)
            row = dict(zip(header, cells, strict=False))
            if row:
                yield reader.line_num, (row.get("ark", ""), row.get("url", ""), row.get("status") or STATUSES[0])
    except csv.Error as error:
        raise ConfigError(str(error), filename=str(path), line=reader.line_num) from None


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a CSV. Raises ConfigError for one that is too long."""
    for number, line in enumerate(io.StringIO(read_whole(path).decode("utf-8-sig"), newline=""), 1):
        if len(line) > MAX_LINE:
            raise ConfigError(f"a line of more than {MAX_LINE} characters", filename=str(path), line=number)
        yield line


def _check_columns(count: int, path: Path, line: int) -> None:
    if count > MAX_COLUMNS:
        raise ConfigError(f"{count} columns, {MAX_COLUMNS} at most", filename=str(path), line=line)


def _sqlite(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows of the table, each with its number. The schema of the file is not trusted to run functions."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=LOCKED)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LINE)
        connection.execute("PRAGMA trusted_schema = OFF")
        # SQLite 3.37 says itself what it will read; an earlier one only shows that a view or virtual table has no page.
        stored = "SELECT type, rootpage FROM sqlite_master WHERE name = 'redirects' COLLATE NOCASE"
        listed = (kind for _, _, kind, *_ in connection.execute("PRAGMA table_list(redirects)"))
        if any(kind != "table" or not page for kind, page in connection.execute(stored)) or set(listed) - {"table"}:
            raise ConfigError("redirects is not a table", filename=str(path))
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('redirects')")}
        _check_columns(len(columns), path, 0)
        status = "status" if "status" in columns else "NULL"
        rows = connection.execute(f"SELECT ark, url, {status} FROM redirects")  # noqa: S608 - constants
        number = 1
        try:
            for number, (ark, target, code) in enumerate(rows, 1):
                yield number, (str(ark), str(target), str(code or STATUSES[0]))
        except sqlite3.DataError as error:  # a value that is too long
            raise ConfigError(str(error), filename=str(path), line=number + 1) from None
