"""A table at one moment, with its dates and origin; and the source of a table, which may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from maptr.discovery import GIVEN
from maptr.registry.table import Table


@dataclass(frozen=True, slots=True, repr=False)
class TableState:
    """A table at one moment, and also the source of a table that does not change.

    ``table`` is None if there was never a valid one. ``trouble`` is the reason if the file is invalid now. ``fetched``
    is when the source last confirmed the content, in seconds since 1970, and ``date`` its data's date (see ``dates``).
    ``origin`` is the source that it was pulled from. ``kind`` says where the table comes from (see ``found``).
    """

    table: Table | None = None
    trouble: str = ""
    fetched: float | None = None
    digest: str = ""
    origin: str = ""
    kind: str = GIVEN
    date: float | None = None

    def __repr__(self) -> str:
        return "no table" if self.table is None else repr(self.table)

    @property
    def is_read(self) -> bool:
        return True

    def current(self) -> TableState:
        return self


class TableSource(Protocol):
    """A source of a client's table. ``is_read``: ``current`` need not read a file first."""

    @property
    def is_read(self) -> bool: ...
    def current(self) -> TableState: ...
