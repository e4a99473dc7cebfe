"""The date of a table's data, as opposed to the date when a source confirmed it.

It comes from the registry's ``metadata``, or else from the newest record, or else from the file. A date in the future
is ignored: the clock that gave it was wrong, and no later table could be newer. ``latest`` decides what is in the
future, because this machine's clock may also be wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

SLACK = 86_400.0  # seconds by which a date may be in the future: a date without a time may be in another time zone
NAMES = ("date", "updated", "modified_date", "date_modified", "modified", "created_date", "date_created", "created")
"""The members of a registry's metadata with a date. The newest counts."""

_DATE = re.compile(r"(\d{4})(?:[-.](\d\d)(?:[-.](\d\d))?|(\d\d)(\d\d))?(?![\d.-])")
LATEST = 253_402_300_799.0  # seconds from 1970 to the end of the year 9999, the latest that a date can show
MAX_DATE = 40  # characters of a date


def parse(text: object) -> float | None:
    """Return the time of a date such as ``2026-07-14``, ``2026-07-14T12:00:00+00:00``, ``2001.03.08`` or ``2001``.

    It is in seconds since 1970; None for anything else. A date without a time is the start of the day in UTC.
    """
    if not isinstance(text, str) or not (text := text.strip()[:MAX_DATE]):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        if (match := _DATE.match(text)) is None:
            return None
        year, month, day_of_month = int(match[1]), int(match[2] or match[4] or 1), int(match[3] or match[5] or 1)
        try:
            found = datetime(year, month, day_of_month, tzinfo=UTC)
        except ValueError:
            return None
    try:
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None
    return seconds if seconds <= LATEST else None


@lru_cache(maxsize=16)  # for the tables in use, whose date is in every redirect
def day(seconds: float | None) -> str:
    """Return a date as text, such as ``2026-07-14``, in UTC; "an unknown date" if it is not known."""
    return "an unknown date" if seconds is None else time.strftime("%Y-%m-%d", time.gmtime(seconds))


def latest(*known: float | None) -> float:
    """Return the latest time that is not in the future, from times that have certainly passed: the clock's, the date of
    the built-in registry, the time at which a source confirmed a table."""
    return max(0.0 if each is None else each for each in known) + SLACK


def of_metadata(metadata: Mapping[str, Any], until: float) -> float | None:
    """Return the newest date of a registry's metadata that is not after ``until``."""
    return newest((metadata.get(name) for name in NAMES), until)


def newest(texts: Iterable[object], until: float) -> float | None:
    """Return the newest of some dates that is not after ``until``, or None."""
    found = (parse(text) for text in texts)
    return max((each for each in found if each is not None and 0 <= each <= until), default=None)
