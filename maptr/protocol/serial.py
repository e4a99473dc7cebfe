"""Serials of zones: which of two is newer (RFC 1982), and the next one."""

from __future__ import annotations

_HALF = 1 << 31  # RFC 1982 3.2


def is_newer(serial: int, than: int) -> bool:
    """Serial arithmetic (RFC 1982 3.2); False for the pair whose order is undefined."""
    return 0 < (serial - than) & 0xFFFF_FFFF < _HALF


def next_serial(style: str, now: float, previous: int | None = None) -> int:
    """The serial after ``previous``: ``date`` (YYYYMMDDnn, UTC), ``unix`` (seconds), or a number as it is.

    For the styles it is greater than the previous one by RFC 1982 even when the clock stands still or goes
    back. Raises ValueError for anything else.
    """
    import datetime  # here, for nothing else needs it and the command line starts without

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
        raise ValueError(f"serial {style!r} is neither date, unix nor a number")
    if previous is None or is_newer(wanted, previous):
        return wanted
    return (previous + 1) & 0xFFFF_FFFF


def following_serial(before: int, style: str, now: float) -> int:
    """The serial after one that is out: one more ("increment", and "file", for no file has it), or by date or time."""
    if style in ("increment", "file"):
        return (before + 1) & 0xFFFF_FFFF
    return next_serial(style, now, before)
