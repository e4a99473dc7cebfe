"""Durations as people write them (``14d``, ``36h``, ``3600``), and as programs keep them."""

from __future__ import annotations

from collections.abc import Callable

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # as in a zone's TTLs
JITTER = 0.1  # of an interval, either way
MAX_DURATION = 0x7FFF_FFFF  # seconds: as long as a TTL may be (RFC 2181 8), and times that wrap still compare


def read_duration(text: str) -> int:
    """Seconds. Raises ValueError."""
    lower = text.lower()
    number, unit = (lower[:-1], lower[-1]) if lower[-1:].isalpha() else (lower, "")
    if not (number.isascii() and number.isdigit()) or unit not in UNITS:
        raise ValueError(f"{text!r} is no duration such as 14d, 36h or 3600")
    seconds = int(number[:20]) * UNITS[unit]
    if seconds > MAX_DURATION:
        raise ValueError(f"{text!r} is more than {MAX_DURATION} seconds")
    return seconds


def jittered(seconds: float, uniform: Callable[[float, float], float]) -> float:
    """About so long, so that many who wait as long do not come at once. ``uniform`` is that of ``random``."""
    return seconds * uniform(1 - JITTER, 1 + JITTER)
