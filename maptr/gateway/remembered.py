"""The NAANs of own objects, remembered over restarts: if the file of the objects cannot be read, their ARKs are not
answered as if there were no such objects."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from maptr.ark import Ark
from maptr.cache.disk import Disk
from maptr.gateway.site import is_below
from maptr.registry.table import Table

MAX_NAANS = 10_000  # of one file

_NAAN = re.compile("[0-9a-z]{1,16}")
_SCHEMA = "CREATE TABLE IF NOT EXISTS own_naan (file TEXT, naan TEXT, PRIMARY KEY (file, naan)) WITHOUT ROWID"


@dataclass(frozen=True, slots=True)
class RememberedNaans:
    """The NAANs in the file ``disk`` of the cache. Safe for threads. A file that cannot be used remembers nothing."""

    disk: Disk

    def keep(self, file: str, naans: Iterable[str]) -> bool:
        """Remember the NAANs of a file of own objects, and no others of it."""
        rows = [(file, naan) for naan in sorted(naans)[:MAX_NAANS]]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_SCHEMA)
            connection.execute("DELETE FROM own_naan WHERE file = ?", (file,))
            connection.executemany("INSERT INTO own_naan VALUES (?, ?)", rows)

        return self.disk.transaction(write)

    def of(self, file: str) -> frozenset[str]:
        """Return the NAANs of a file as they were remembered last."""

        def read(connection: sqlite3.Connection) -> list[tuple[object]]:
            connection.execute(_SCHEMA)
            select = "SELECT naan FROM own_naan WHERE file = ? LIMIT ?"
            return connection.execute(select, (file, MAX_NAANS)).fetchall()

        found = (naan for (naan,) in self.disk.run(read) or () if isinstance(naan, str))
        return frozenset(naan for naan in found if _NAAN.fullmatch(naan))


def leading_to(table: Table, public_url: str) -> Iterator[str]:
    """Yield the NAANs of which a record leads to the gateway itself. They are those of own objects."""
    for entry in table.values() if public_url else ():
        if any(is_below(where, public_url) for where in entry.urls(Ark(entry.naan, f"{entry.shoulder}x"))):
            yield entry.naan
