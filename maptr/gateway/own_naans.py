"""The NAANs of own objects, remembered across restarts: if the objects' file cannot be read, their ARKs are not
answered as if the objects did not exist."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace

from maptr.ark import MAX_NAAN, Ark
from maptr.cache.disk import Disk
from maptr.files import Followed
from maptr.gateway.objects import Redirects, UnreadObjects
from maptr.gateway.site import is_below
from maptr.registry.table import Table

MAX_NAANS = 10_000  # of one file

_NAAN = re.compile(f"[0-9a-z]{{1,{MAX_NAAN}}}")
_SCHEMA = "CREATE TABLE IF NOT EXISTS own_naan (file TEXT, naan TEXT, PRIMARY KEY (file, naan)) WITHOUT ROWID"


class OwnNaans:
    """The known NAANs of own objects, in memory and, if there is a cache file ``disk``, in it.

    For one thread at a time.
    """

    def __init__(self, disk: Disk | None) -> None:
        self._disk = disk
        self._remembered: dict[str, frozenset[str]] = {}
        self._last: tuple[Redirects, Table | None, str, Redirects] | None = None  # arguments and result of ``shown``

    def shown(self, file: Followed[Redirects], public_url: str, table: Table | None) -> Redirects:
        """Return a file's own objects, and remember their NAANs. If the file was never read, they may be in the
        remembered NAANs, and in those whose record leads to ``public_url``."""
        found, name, last = file.value, str(file.path.absolute()), self._last
        if last is not None and last[0] is found and last[1] is table and last[2] == public_url:
            return last[3]
        if name not in self._remembered:
            self._remembered[name] = self._recall(name)
        shown, remembered = found, self._remembered[name]
        if not found.objects.is_read:
            shown = replace(found, objects=UnreadObjects(remembered.union(leading_to(table, public_url))))
        elif remembered != found.objects.naans.keys():
            self._remembered[name] = frozenset(found.objects.naans)
            self._keep(name, found.objects.naans)
        self._last = found, table, public_url, shown
        return shown

    def _keep(self, file: str, naans: Iterable[str]) -> None:
        rows = [(file, naan) for naan in sorted(naans)[:MAX_NAANS]]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_SCHEMA)
            connection.execute("DELETE FROM own_naan WHERE file = ?", (file,))
            connection.executemany("INSERT INTO own_naan VALUES (?, ?)", rows)

        if self._disk is not None:
            self._disk.transaction(write)

    def _recall(self, file: str) -> frozenset[str]:
        def read(connection: sqlite3.Connection) -> list[tuple[object]]:
            connection.execute(_SCHEMA)
            select = "SELECT naan FROM own_naan WHERE file = ? LIMIT ?"
            return connection.execute(select, (file, MAX_NAANS)).fetchall()

        rows = () if self._disk is None else self._disk.run(read) or ()
        return frozenset(naan for (naan,) in rows if isinstance(naan, str) and _NAAN.fullmatch(naan))


def leading_to(table: Table | None, public_url: str) -> Iterator[str]:
    """Yield the NAANs with a record that leads to the gateway itself: its own objects may be in these."""
    if table is None or not public_url:
        return
    for entry in table.values():
        if any(is_below(where, public_url) for where in entry.urls(Ark(entry.naan, f"{entry.shoulder}x"))):
            yield entry.naan
