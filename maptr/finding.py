"""One thing wrong with a table or a zone: how bad, where, and why. What ``lint`` and ``zonecheck`` give."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from maptr.printable import printable


class Severity(enum.StrEnum):
    """An error is not published (a record) or not loaded (a zone); a warning is, all the same."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is a stable word for programs, ``record`` a key of the table or an owner name, ``value`` what is
    wrong as it stands there, ``line`` its line in the file (0: not known)."""

    severity: Severity
    code: str
    record: str
    reason: str
    value: str = ""
    line: int = 0

    def __str__(self) -> str:
        """One printable line, whatever stands in the file."""
        value = f" [{self.value}]" if self.value and self.value not in self.reason else ""
        line = f"{self.line}: " if self.line else ""
        text = f"{line}{self.severity} {self.record} {self.code}: {self.reason}{value}"
        return printable(text)

    def to_dict(self) -> dict[str, Any]:
        return {
            "severity": str(self.severity),
            "code": self.code,
            "record": self.record,
            "reason": self.reason,
            "value": self.value,
            "line": self.line,
        }
