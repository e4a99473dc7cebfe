"""Serial numbers of zones: comparison (RFC 1982), and the next serial."""

from __future__ import annotations

import datetime

_HALF = 1 << 31  # RFC 1982 3.2


def is_newer(serial: int, than: int) -> bool:
    """Compare in serial number arithmetic (RFC 1982 3.2). False for a pair whose order is undefined."""
    return 0 < (serial - than) & 0xFFFF_FFFF < _HALF


def next_serial(style: str, now: float, previous: int | None = None) -> int:
    """Return the serial after ``previous``. Styles: ``date`` (YYYYMMDDnn, UTC), ``unix`` (seconds), or a number to use.

    With ``date`` and ``unix`` it is newer than the previous one even if the clock does not advance, or is set back.
    Raises ValueError for any other style.
    """
    if style.isascii() and style.isdigit():
        if int(style) > 0xFFFF_FFFF:
            raise ValueError(f"serial {style} does not fit 32 bits")
        return int(style)
    if style == "date":
        day = datetime.datetime.fromtimestamp(now, datetime.UTC)
        wanted = int(day.strftime("%Y%m%d00"))
    elif style == "unix":
        wanted = int(now) & 0xFFFF_FFFF
    else:
        raise ValueError(f"serial {style!r} is not date, unix or a number")
    if previous is None or is_newer(wanted, previous):
        return wanted
    return (previous + 1) & 0xFFFF_FFFF


def following_serial(before: int, style: str, now: float) -> int:
    """Return the serial after a published one: one more for ``increment`` and ``file``, else by ``next_serial``."""
    if style in ("increment", "file"):
        return (before + 1) & 0xFFFF_FFFF
    return next_serial(style, now, before)
