"""Serial number arithmetic (RFC 1982)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.protocol.serial import MAX_AHEAD, choose, is_newer, next_serial

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


TODAY = 2026112000
FAR = MAX_AHEAD + 1


@pytest.mark.parametrize(
    ("style", "own", "published", "others", "chosen"),
    [
        # what is published is known
        ("increment", 1, 5, (), 6),
        ("increment", 7, 5, (), 7),
        ("increment", 1, 5, (5, 4), 6),
        ("increment", 1, 5, (9, 6), 10),
        ("increment", 7, 5, (7,), 8),  # the next one of the file names other content at a secondary
        ("increment", 7, 5, (9,), 10),
        ("increment", 1, 5, (5 + MAX_AHEAD,), 6 + MAX_AHEAD),
        ("increment", 1, 5, (5 + FAR,), 6),
        ("increment", 1, 5, (5 + FAR, 8), 9),
        ("file", 1, 5, (9,), 10),  # of a signed zone
        ("date", TODAY, TODAY, (TODAY + 3,), TODAY + 4),
        ("date", 1, TODAY - 100, (TODAY - 50,), TODAY),
        ("unix", 1, 5, (int(DAY) - 7,), int(DAY)),
        ("unix", 1, int(DAY) - 9, (int(DAY) + 31_536_000,), int(DAY) + 31_536_001),  # a clock that was a year ahead
        ("unix", 1, int(DAY) - 9, (TODAY,), int(DAY)),  # a signer with dates
        ("increment", 0xFFFF_FFFF, 0xFFFF_FFFF, (), 0),
        ("increment", 5, 0xFFFF_FFFE, (0xFFFF_FFFF, 4), 5),
        ("increment", 1, 0xFFFF_FFF0, (3,), 4),  # RFC 1982: 3 is newer
        # it is not known
        ("increment", 1, None, (), 1),
        ("increment", 1, None, (1,), 2),
        ("increment", 7, None, (3,), 7),
        ("increment", 1, None, (57,), 58),
        ("increment", 1, None, (FAR + 1,), 1),
        ("unix", 1, None, (int(DAY) - 7,), int(DAY) + 1),
        ("unix", 1, None, (int(DAY) + 7,), int(DAY) + 8),
        ("date", 1, None, (TODAY + 5,), TODAY + 6),
        # without one of its own, as of a table
        ("increment", None, None, (), 1),
        ("date", None, None, (), TODAY),
        ("date", None, None, (TODAY,), TODAY + 1),
        ("date", None, 2026112099, (), 2026112100),
        ("unix", None, int(DAY) + 5, (), int(DAY) + 6),
    ],
)
def test_the_serial_of_new_content_passes_those_of_secondaries(
    style: str, own: int | None, published: int | None, others: tuple[int, ...], chosen: int
) -> None:
    assert choose(own, published, style, DAY, others) == chosen


@given(
    st.sampled_from(["increment", "date", "unix", "file"]),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**32 - 1), max_size=4),
    st.floats(0, 2**32),
)
def test_a_chosen_serial_is_new(
    style: str, own: int | None, published: int | None, others: list[int], now: float
) -> None:
    """It is newer than what is published, and than every serial of a secondary that is not too far ahead."""
    chosen = choose(own, published, style, now, others)
    assert 0 <= chosen < 2**32
    if published is not None:
        assert is_newer(chosen, published)
        near = [other for other in others if (other - published) % 2**32 <= MAX_AHEAD]
        assert all(is_newer(chosen, other) for other in near)
