"""The built-in registry: the copy of the public NAAN registry in this version of maptr, with its date.

``builtin.json`` is in the registry's own JSON, one record per line; ``scripts/registry`` writes it. Records are parsed
when needed, because most programs need only one. The digest in its metadata covers the other lines. If the file is
missing or damaged, a ConfigError says what to do.
"""

from __future__ import annotations

import hashlib
import json
import pkgutil
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from maptr import paths
from maptr.discovery import BUILT_IN
from maptr.errors import ConfigError
from maptr.registry import dates
from maptr.registry.json_records import read_record
from maptr.registry.table import Table
from maptr.registry.table_state import TableState

FILE = Path(paths.BUILT_IN_FILE)

_KEY = re.compile(r'\{"what":"([^"]+)"')


_REMEDY = "reinstall maptr; in a program made by PyInstaller or the like, collect the data files of the package maptr"


@lru_cache(maxsize=1)
def content() -> tuple[bytes, str]:
    """Return the content of the file, and its date as text. Raises ConfigError if it is missing or damaged."""
    try:
        data = pkgutil.get_data(__package__, FILE.name)
    except OSError as error:
        raise _unusable(error.strerror or str(error)) from None
    if data is None:
        raise _unusable("this installation has no data files")
    head, _, rest = data.partition(b"\n")
    try:
        metadata = json.loads(head + b"]}")["metadata"]
        date, digest = str(metadata["date"]), metadata["sha256"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise _unusable("it is damaged") from None
    if hashlib.sha256(rest).hexdigest() != digest or dates.parse(date) is None:
        raise _unusable("it is damaged")
    return data, date


def _unusable(reason: str) -> ConfigError:
    return ConfigError(f"the built-in registry cannot be read: {reason}: {_REMEDY}", filename=str(FILE))


def date() -> float:
    """Return the date of the data, in seconds since 1970. Raises ConfigError as ``content`` does."""
    return dates.parse(content()[1]) or 0.0


def latest(*known: float | None) -> float:
    """``dates.latest`` with the date of the built-in registry, unless that cannot be read."""
    with suppress(ConfigError):
        known = (*known, date())
    return dates.latest(*known)


@lru_cache(maxsize=1)
def state() -> TableState:
    """Return the built-in table, with its date as the time at which it was fetched. Raises ConfigError as ``content``
    does."""
    data, day = content()
    _, *lines = data.decode().splitlines()
    records = {match[1]: line for line in lines if (match := _KEY.match(line))}
    table = Table.lazy(records, lambda line: read_record(json.loads(line.removesuffix(","))), metadata={"date": day})
    return TableState(table, fetched=date(), kind=BUILT_IN, date=date())
