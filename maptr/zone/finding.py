"""Findings of the checks of tables (``lint.py``) and zones (``check.py``)."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from maptr.errors import ZoneError, printable, reason_of

NOT_LOADED = "not-loaded"  # the code of an error that keeps a zone from being loaded and has no specific code


class Severity(enum.StrEnum):
    """The severity of a finding. A record with an error is not published, and a zone with an error is not loaded."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a table or a zone.

    ``code`` is a stable word for programs, ``record`` the key of the record or an owner name, ``value`` the text that
    is wrong, and ``line`` its line in ``file`` (0 and "" if not known).
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
        """Return the finding for an error that keeps a zone from being loaded."""
        record = error.owner or "the zone"
        return cls(Severity.ERROR, error.code or NOT_LOADED, record, error.reason, line=error.line, file=error.filename)

    def __str__(self) -> str:
        """Return one printable line: ``FILE:LINE: severity: record: code: reason``."""
        value = f" [{self.value}]" if self.value and self.value not in self.reason else ""
        where = self.file + (f":{self.line}" if self.line else "")
        text = f"{self.severity}: {self.record}: {self.code}: {self.reason}{value}"
        return printable(f"{where.removeprefix(':')}: {text}" if where else text)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


error = partial(Finding, Severity.ERROR)
warning = partial(Finding, Severity.WARNING)


def text_of(exception: BaseException) -> str:
    """Return the text of an error, or of its finding if the reader of zone files raised it."""
    return str(Finding.of(exception)) if isinstance(exception, ZoneError) and exception.code else reason_of(exception)
