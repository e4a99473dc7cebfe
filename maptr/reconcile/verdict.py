"""Verdicts on a table's records, each with the evidence from both sides, and past verdicts."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from maptr.errors import printable

Urls = tuple[str, ...]


class Verdict(enum.StrEnum):
    """How a record of the table compares with DNS. ``is_drift`` is True if it needs a person's attention."""

    SAME = "same"  # the same URLs in the same order
    LOSSY = "lossy"  # equal as far as an h record, or natab, can tell
    MISSING = "missing"  # the table has it, DNS says there is none
    EXTRA = "extra"  # DNS has it, the table does not
    DIFFERS = "differs"
    UNPUBLISHED = "unpublished"  # no zone can hold the shoulder, and DNS gives its ARKs another record's URLs
    STALE = "stale"  # one side says what the other said earlier
    UNKNOWN = "unknown"  # DNS did not say

    @property
    def is_drift(self) -> bool:
        return self not in (*AGREES, Verdict.UNKNOWN)


AGREES = (Verdict.SAME, Verdict.LOSSY)


@dataclass(frozen=True, slots=True)
class Drift:
    """The verdict on one record. ``table`` and ``dns`` are the URLs that each side gives the probe, best first.

    ``records`` are the NAPTR records at the NAAN, as text.
    """

    record: str
    verdict: Verdict
    probe: str
    table: Urls = ()
    dns: Urls = ()
    reason: str = ""
    records: tuple[str, ...] = ()

    @property
    def naan(self) -> str:
        return self.record.partition("/")[0]

    def __str__(self) -> str:
        text = f"{self.verdict} {self.record}: {self.reason}" if self.reason else f"{self.verdict} {self.record}"
        return printable(text)

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.record,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "probe": self.probe,
            "table": list(self.table),
            "dns": list(self.dns),
            "records": list(self.records),
        }


class PastVerdict(NamedTuple):
    """An earlier verdict on a record, with the URLs that each side gave: from ``at``, the wall-clock time of its first
    run, until the next one."""

    at: float
    verdict: Verdict
    reason: str = ""
    table: Urls = ()
    dns: Urls = ()
