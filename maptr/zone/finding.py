"""One thing wrong with a table or a zone: how bad, where, and why. What ``lint`` and ``zonecheck`` give."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maptr.errors import ZoneError, reason_of
from maptr.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from maptr.protocol.names import Labels


NOT_LOADED = "not-loaded"  # the code of what keeps a zone from being loaded, where no other is known


class Severity(enum.StrEnum):
    """An error is not published (a record) or not loaded (a zone); a warning is, all the same."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is a stable word for programs, ``record`` a key of the table or an owner name, ``value`` what is
    wrong as it stands there, ``line`` its line in the ``file`` (0 and empty: not known)."""

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
        """One printable line, whatever stands in the file: ``FILE:LINE: severity: owner: code: reason``."""
        value = f" [{self.value}]" if self.value and self.value not in self.reason else ""
        where = self.file + (f":{self.line}" if self.line else "")
        text = f"{self.severity}: {self.record}: {self.code}: {self.reason}{value}"
        return printable(f"{where.removeprefix(':')}: {text}" if where else text)

    def to_dict(self) -> dict[str, Any]:
        return {
            "severity": str(self.severity),
            "code": self.code,
            "record": self.record,
            "reason": self.reason,
            "value": self.value,
            "line": self.line,
            "file": self.file,
        }


def text_of(error: BaseException) -> str:
    """What went wrong: as a finding, where it is a reader's of zone files."""
    return str(Finding.of(error)) if isinstance(error, ZoneError) and error.code else reason_of(error)


class Places:
    """File and line of each record of a zone, for findings of a reader that sees only the zone."""

    def __init__(self) -> None:
        self.included: list[tuple[Path, bytes]] = []  # the files included, in the order of their text
        self._places: dict[tuple[Labels, int, bytes], tuple[str, int]] = {}

    def add(self, owner: Labels, rdtype: int, rdata: bytes, place: tuple[str, int]) -> None:
        """``owner`` is folded."""
        for key in ((owner, rdtype, rdata.lower()), (owner, rdtype, b""), (owner, 0, b"")):
            self._places.setdefault(key, place)

    def find(self, owner: Labels, rdtype: int = 0, rdata: bytes = b"") -> tuple[str, int]:
        """That of a record; without rdata of the first one of the type, without type of the first one at the owner."""
        return self._places.get((owner, rdtype, rdata.lower()), ("", 0))
