"""Serial number arithmetic (RFC 1982)."""

from __future__ import annotations

import pytest

from maptr.protocol.serial import is_newer


@pytest.mark.parametrize(
    ("serial", "other", "after"),
    [
        (2, 1, True),
        (1, 1, False),
        (1, 2, False),
        (0, 0xFFFFFFFF, True),
        (0x7FFFFFFF, 0, True),
        (0x80000000, 0, False),  # RFC 1982 3.2: neither is after the other
        (0, 0x80000000, False),
    ],
)
def test_rfc1982_comparison(serial: int, other: int, after: bool) -> None:
    assert is_newer(serial, other) is after
