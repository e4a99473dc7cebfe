"""Serial numbers of zones: comparison (RFC 1982), and the next serial.

A serial stands for one version: a secondary that has it accepts no other content with that serial or an older one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

_HALF = 1 << 31  # RFC 1982 3.2
_MASK = 0xFFFF_FFFF
# A secondary's serial is passed if it is at most this far ahead: 4 years of seconds, or 134 years of dates. One further
# ahead uses another numbering: a date exceeds the current time in seconds by more than this.
MAX_AHEAD = 1 << 27


def is_newer(serial: int, than: int) -> bool:
    """Compare in serial number arithmetic (RFC 1982 3.2). False for a pair whose order is undefined."""
    return 0 < (serial - than) & _MASK < _HALF


def is_far_ahead(serial: int, than: int) -> bool:
    """Return whether a serial is more than MAX_AHEAD newer, and so is not passed."""
    return is_newer(serial, than) and (serial - than) & _MASK > MAX_AHEAD


def next_serial(style: str, now: float, previous: int | None = None) -> int:
    """Return the serial after ``previous``. Styles: ``date`` (YYYYMMDDnn, UTC), ``unix`` (seconds), or a number to use.

    With ``date`` and ``unix`` it is newer than the previous one even if the clock does not advance, or is set back.
    Raises ValueError for any other style.
    """
    if style.isascii() and style.isdigit():
        if int(style) > _MASK:
            raise ValueError(f"serial {style} does not fit 32 bits")
        return int(style)
    if style == "date":
        day = datetime.datetime.fromtimestamp(now, datetime.UTC)
        wanted = int(day.strftime("%Y%m%d00"))
    elif style == "unix":
        wanted = int(now) & _MASK
    else:
        raise ValueError(f"serial {style!r} is not date, unix or a number")
    if previous is None or is_newer(wanted, previous):
        return wanted
    return _one_more(previous)


def following_serial(before: int, style: str, now: float) -> int:
    """Return the serial after a published one: one more for ``increment`` and ``file``, else by ``next_serial``."""
    if style in ("increment", "file"):
        return _one_more(before)
    return next_serial(style, now, before)


def choose(own: int | None, published: int | None, style: str, now: float, others: Iterable[int] = ()) -> int:
    """Return the serial for new content, newer than every serial known to belong to other content.

    That is ``own``, the serial given by its source (or None), if it is new enough, otherwise the next one in the style.
    ``published`` is the last published serial, None if unknown. ``others`` are the secondaries' serials; those more
    than MAX_AHEAD ahead do not count.
    """
    first = next_serial("1" if style in ("increment", "file") else style, now)
    start = published if published is not None else own if own is not None else first
    present = first if style in ("date", "unix") and is_newer(first, start) else start
    near = [other for other in others if not is_far_ahead(other, present)]
    if own is not None and (published is None or is_newer(own, published)):
        chosen = own
    else:
        chosen = first if published is None else following_serial(published, style, now)
    if not any(other == chosen or is_newer(other, chosen) for other in near):
        return chosen
    greatest = present
    for other in near:
        if is_newer(other, greatest):
            greatest = other
    return following_serial(greatest, style, now)


def _one_more(serial: int) -> int:
    return (serial + 1) & _MASK
