"""The guards of publication: whether a new version replaces the old one, and its serial."""

from __future__ import annotations

import pytest

from maptr.errors import ZoneError
from maptr.zone.diff import Published, choose_serial, decide
from tests.support.zones import view_of, view_zone, zone_of, zonemd_of

TEN = "".join(f"n{number} A 192.0.2.9\n" for number in range(8))  # with the apex and ns, ten names


def test_a_change_without_a_higher_serial_is_refused() -> None:
    for old, new, how in ((1, 1, "did not advance"), (5, 4, "went back from 5"), (0, 0x80000000, "went back from 0")):
        with pytest.raises(ZoneError, match=rf"serial {new} {how} while the zone changed"):
            decide(view_of("a A 192.0.2.1", old), view_of("a A 192.0.2.2", new))
    wrapped = view_of("a A 192.0.2.2", 0)
    assert decide(view_of("a A 192.0.2.1", 0xFFFFFFFF), wrapped) is wrapped


def test_force_allows_a_version_that_the_guards_refuse() -> None:
    old, new = view_of(TEN, 5), view_of("", 4)
    assert decide(old, new, force=True) is new


@pytest.mark.parametrize("force", [False, True])
def test_an_unchanged_file_changes_nothing(force: bool) -> None:
    old = view_of("a A 192.0.2.1\na A 192.0.2.2")
    assert decide(old, view_of("a A 192.0.2.2\na A 192.0.2.1"), force=force) is old


@pytest.mark.parametrize(("kept", "limit", "good"), [(5, 0.3, True), (4, 0.3, False), (0, 0.8, True), (7, 0.0, False)])
def test_version_that_lost_too_many_names_is_refused(kept: int, limit: float, good: bool) -> None:
    new = view_of("".join(TEN.splitlines(keepends=True)[:kept]), 2)
    if good:
        assert decide(view_of(TEN), new, limit) is new
        return
    with pytest.raises(ZoneError, match=rf"lost {8 - kept} of 10 names \({8 - kept}0%, max_shrink is {limit:.0%}\)"):
        decide(view_of(TEN), new, limit)


@pytest.mark.parametrize(
    ("style", "file_serial", "published", "same", "expected"),
    [
        ("file", 1, 5, False, 1),
        ("increment", 1, 5, False, 6),
        ("increment", 1, 5, True, 5),
        ("increment", 5, 5, False, 6),
        ("increment", 9, 5, False, 9),
        ("increment", 9, 5, True, 9),
        ("increment", 1, 0xFFFFFFFF, False, 1),
        ("increment", 0xFFFFFFFF, 0xFFFFFFFF, False, 0),
        ("date", 1, 5, False, 2023111400),
        ("date", 1, 2023111400, False, 2023111401),
        ("unix", 1, 5, False, 1700000000),
        ("unix", 1, 1700000000, False, 1700000001),
    ],
)
def test_choosing_a_serial(style: str, file_serial: int, published: int, same: bool, expected: int) -> None:
    old = Published.of(view_of("a A 192.0.2.1", published))
    new = view_of("a A 192.0.2.1" if same else "a A 192.0.2.2", file_serial)
    assert choose_serial(new, old, style, 1_700_000_000.0).serial == expected


def test_a_signed_serial_is_not_changed() -> None:
    digested = zone_of("a A 192.0.2.2")
    digested.replace_rdataset("ark.arpa.", zonemd_of(digested))
    with pytest.raises(ZoneError, match="is signed: the signer"):
        choose_serial(view_zone(digested), Published.of(view_of()), "increment", 0.0)
