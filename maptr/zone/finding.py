"""Findings of lint and zone check: severity, place, code and reason."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from maptr.errors import ZoneError, reason_of
from maptr.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from maptr.protocol.names import Labels


NOT_LOADED = "not-loaded"  # the code of what keeps a zone from being loaded, where no other is known


class Severity(enum.StrEnum):
    """A record with an error is not published, a zone with an error not loaded; warnings prevent neither."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a table or a zone.

    ``code`` is a stable word for programs, ``record`` a key of the table or an owner name, ``value`` the text that is
    wrong, ``line`` its line in the ``file`` (0 and "" if not known).
    """

    severity: Severity
    code: str
    record: str
    reason: str
    value: str = ""
    line: int = 0
    file: str = ""

    @classmethod
    def of(cls, error: ZoneError) -> Finding:
        """What keeps a zone from being loaded."""
        record = error.owner or "the zone"
        return cls(Severity.ERROR, error.code or NOT_LOADED, record, error.reason, line=error.line, file=error.filename)

    def __str__(self) -> str:
        """One printable line: ``FILE:LINE: severity: record: code: reason``."""
        value = f" [{self.value}]" if self.value and self.value not in self.reason else ""
        where = self.file + (f":{self.line}" if self.line else "")
        text = f"{self.severity}: {self.record}: {self.code}: {self.reason}{value}"
        return printable(f"{where.removeprefix(':')}: {text}" if where else text)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def text_of(error: BaseException) -> str:
    """What went wrong: as a finding, where it is a reader's of zone files."""
    return str(Finding.of(error)) if isinstance(error, ZoneError) and error.code else reason_of(error)


class Places:
    """The file and line of each record of a zone, for checks that see only the zone."""

    def __init__(self) -> None:
        self.included: list[tuple[Path, bytes]] = []  # the included files and their contents, in order
        self._places: dict[tuple[Labels, int, bytes], tuple[str, int]] = {}

    def add(self, owner: Labels, rdtype: int, rdata: bytes, place: tuple[str, int]) -> None:
        """``owner`` is folded."""
        for key in ((owner, rdtype, rdata.lower()), (owner, rdtype, b""), (owner, 0, b"")):
            self._places.setdefault(key, place)

    def find(self, owner: Labels, rdtype: int = 0, rdata: bytes = b"") -> tuple[str, int]:
        """The place of a record, or of the first one with this type or owner."""
        return self._places.get((owner, rdtype, rdata.lower()), ("", 0))
