"""A table for a process that asks for a few NAANs and ends: of its file, only what they need is made.

A plain natab is searched for the NAAN. Of any other form of the registry an index is kept, a line for each NAAN, good
for the content whose SHA-256 it names. What is neither is read whole, as ever: ``watched`` is the one truth of what a
file says, and this only spares finding all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from maptr import __version__, natabfile, places
from maptr.cache.watched import ChangedError, TableState, WatchedTable, confirmed, digest_of, pull_file, read_once
from maptr.errors import ConfigError, MaptrError
from maptr.files import write_atomically
from maptr.table import NATAB_PATH, Entry, Nma, Table

MAX_PARTS = 8  # NAANs; for whoever asks for more, the whole is read
_END = b"\nend\n"  # of an index


class OnceTable:
    """The table in a file, as ``WatchedTable`` has it at its first look, which is the only one here.

    ``index`` is a file where an index may be kept, which holds that of the last table. ``clock`` is for the table where
    it is read whole. Raises ConfigError for a directory.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, index: str | os.PathLike[str] | None, clock: Callable[[], float]
    ) -> None:
        self.path = Path(path)
        if os.path.isdir(path):  # noqa: PTH112 - False where nobody lets us look
            raise ConfigError(f"{path} is a directory", key="natab")
        self._index = None if index is None else Path(index)
        self._whole = WatchedTable(path, clock=clock)
        self._content: tuple[bytes, float] | None = None
        self._digest = ""
        self._parts: dict[str, TableState] = {}

    def current(self, naan: str | None = None) -> TableState:
        """See ``TableSource``."""
        if naan is not None and naan not in self._parts and not self._whole.is_read and len(self._parts) < MAX_PARTS:
            with suppress(OSError, MaptrError, ChangedError):  # told by the reader of the whole
                self._look_for(naan)
        return self._parts.get(naan or "") or self._whole.current()

    def _look_for(self, naan: str) -> None:
        content, fetched = self._read()
        entries = self._search(content, naan)
        if entries is None:
            entries = self._from_index(content, naan)
        if entries is not None:
            self._parts[naan] = TableState(Table(entries), "", fetched, self._digest)
            return
        whole = self._whole.current()
        if whole.table is not None and whole.digest == self._digest:
            self._keep(whole.table)

    def _read(self) -> tuple[bytes, float]:
        """The content, and when its source last said so."""
        if self._content is None:
            content, status = read_once(self.path)
            noted = None
            if pull_file(self.path).exists():
                self._digest = digest_of(content)
                noted = confirmed(self.path, self._digest)
            self._content = content, noted or status[3] / 1e9
        return self._content

    def _search(self, content: bytes, naan: str) -> list[Entry] | None:
        if not natabfile.is_plain(content):
            return None
        try:
            hosts = natabfile.search(content, naan)
        except natabfile.NotPlainError:
            return None
        return [] if hosts is None else [Entry(naan, nmas=tuple(Nma(f"https://{at}{NATAB_PATH}", at) for at in hosts))]

    # ---- the index

    def _head(self) -> bytes:
        return f"maptr {__version__} index of {self._digest}\n".encode()

    def _from_index(self, content: bytes, naan: str) -> list[Entry] | None:
        self._digest = self._digest or digest_of(content)
        if self._index is None:
            return None
        try:
            lines = self._index.read_bytes()
        except FileNotFoundError:
            return None
        if not (lines.startswith(self._head()) and lines.endswith(_END)):
            return None
        at = lines.find(f"\n{naan}:".encode()) + 1
        if not at:
            return []
        try:
            kept = json.loads(lines[at + len(naan) + 1 : lines.index(b"\n", at)])
            return [Entry(naan, shoulder, nmas=tuple(Nma(*nma) for nma in nmas)) for shoulder, nmas in kept]
        except (TypeError, ValueError):
            return None

    def _keep(self, table: Table) -> None:
        """Write the index; a folder that cannot be written to has none."""
        if self._index is None:
            return
        lines: dict[str, list[object]] = {}
        for entry in table.values():
            nmas = [(nma.target, nma.where, nma.status, nma.acronym) for nma in entry.nmas]
            lines.setdefault(entry.naan, []).append((entry.shoulder, nmas))
        text = "\n".join(f"{naan}:{json.dumps(kept)}" for naan, kept in lines.items())
        with suppress(OSError):
            places.make_parent(str(self._index))
            write_atomically(self._index, self._head() + text.encode() + _END)
