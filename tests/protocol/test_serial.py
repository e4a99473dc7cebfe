"""Serial number arithmetic (RFC 1982)."""

from __future__ import annotations

import pytest

from maptr.protocol.serial import is_newer, next_serial

DAY = 1_795_176_000.0  # 2026-11-20, noon, UTC


@pytest.mark.parametrize(
    ("serial", "other", "after"),
    [
        (2, 1, True),
        (1, 1, False),
        (1, 2, False),
        (0, 0xFFFFFFFF, True),
        (0x7FFFFFFF, 0, True),
        (0x80000000, 0, False),  # RFC 1982 3.2: the order is undefined
        (0, 0x80000000, False),
    ],
)
def test_rfc1982_comparison(serial: int, other: int, after: bool) -> None:
    assert is_newer(serial, other) is after


@pytest.mark.parametrize(
    ("style", "previous", "serial"),
    [
        ("date", None, 2026112000),
        ("date", 2026111905, 2026112000),
        ("date", 2026112000, 2026112001),
        ("date", 2026112150, 2026112151),  # the clock was set back
        ("unix", None, int(DAY)),
        ("unix", int(DAY), int(DAY) + 1),
        ("unix", 0xFFFF_FFFF, int(DAY)),  # RFC 1982: the time is newer than the previous serial
        ("date", 4_000_000_000, 4_000_000_001),  # the date is older than the previous serial
        ("42", 2026112000, 42),
    ],
)
def test_next_serial_by_style(style: str, previous: int | None, serial: int) -> None:
    assert next_serial(style, DAY, previous) == serial


@pytest.mark.parametrize("style", ["", "yesterday", "-1", "4294967296", "1.5"])
def test_invalid_serial_style_is_refused(style: str) -> None:
    with pytest.raises(ValueError, match="serial"):
        next_serial(style, DAY)
