"""Differences between two zones, lost names, the command, and the checks before publication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from maptr.cli.zone import zone as command
from maptr.errors import ZoneError
from maptr.protocol.names import ARK_ARPA, from_wire, to_wire
from maptr.zone.build import ZoneSettings, build
from maptr.zone.diff import Published, ZoneDiff, choose_serial, content_digest, decide, digest, stripped, with_serial
from maptr.zone.masterfile import read_master_file
from maptr.zone.snapshot import in_canonical_order
from tests.support.answers import load_vectors
from tests.support.entries import tables
from tests.support.zones import HEAD, view_of, view_zone, zone_of, zonemd_of


@pytest.mark.parametrize("case", load_vectors("zone_diff")["case"])
def test_changes_as_text(case: dict[str, Any]) -> None:
    changes = ZoneDiff.between(view_of(case["old"]), view_of(case["new"])).changes
    assert [change.to_text() for change in changes] == case["shown"]


def test_another_ttl_of_the_same_lines_is_a_change() -> None:
    """Lines of the zone builder are compared as they are."""
    texts = [build(tables(), 1, ZoneSettings(ttl=ttl)).text.encode() for ttl in (60, 90)]
    old, new = (read_master_file("zone", text, ARK_ARPA) for text in texts)
    assert any(
        "12345.ark.arpa. NAPTR ttl 60 -> 90" in change.to_text() for change in ZoneDiff.between(old, new).changes
    )


def test_names_without_any_record_count_as_lost() -> None:
    old = "a A 192.0.2.1\nb A 192.0.2.1\nc.d A 192.0.2.1"
    difference = ZoneDiff.between(view_of(old), view_of('a TXT "t"\nd A 192.0.2.1'))
    assert (difference.lost, difference.size) == (2, 5), "b and c.d of the apex, ns, a, b, c.d; d never had a record"
    assert difference.shrinkage == 0.4


def test_names_made_by_signing_do_not_count_as_lost() -> None:
    """A new salt changes the owner of every NSEC3 record."""
    nsec3 = "{}{} NSEC3 1 0 0 - 2vptu5timamqttgl4luu9kg21e0aor3s A\n"
    old = "".join(nsec3.format("a", number) for number in range(9))
    difference = ZoneDiff.between(view_of(old), view_of(old.replace("a", "b")))
    assert len(difference.changes) == 18
    assert (difference.lost, difference.size) == (0, 2)


LABELS = st.sampled_from(["a", "b", "c.a", "*.b", "d"])
RECORDS = st.lists(st.tuples(LABELS, st.integers(0, 9), st.sampled_from(["A 192.0.2.{}", 'TXT "{}"'])), max_size=8)


def text_of(records: list[tuple[str, int, str]]) -> str:
    return "".join(f"{owner} {kind.format(number)}\n" for owner, number, kind in records)


@given(RECORDS, RECORDS)
def test_difference_is_empty_if_and_only_if_the_records_are_the_same(
    old: list[tuple[str, int, str]], new: list[tuple[str, int, str]]
) -> None:
    one, other = view_of(text_of(old)), view_of(text_of(new))
    difference, back = ZoneDiff.between(one, other), ZoneDiff.between(other, one)
    assert bool(difference) is (set(old) != set(new))
    assert bool(difference) is (content_digest(one) != content_digest(other))
    turned = {"+": "-", "-": "+", "~": "~"}
    assert [turned[change.sign] for change in back.changes] == [change.sign for change in difference.changes]
    assert not ZoneDiff.between(one, view_of(text_of(old[::-1])))


@given(st.integers(0, 0xFFFFFFFF))
def test_with_serial_changes_only_the_serial(serial: int) -> None:
    one = view_of("a A 192.0.2.1")
    other = with_serial(one, serial)
    assert other.serial == serial
    assert content_digest(one) == content_digest(other)
    assert other == view_of("a A 192.0.2.1", serial)


def test_the_digest_of_a_zone_with_another_serial_follows_from_the_known_digest() -> None:
    known, unknown = view_of("a A 192.0.2.1"), view_of("a A 192.0.2.1")
    digest(known)
    assert digest(with_serial(known, 7)) == digest(with_serial(unknown, 7)) == digest(view_of("a A 192.0.2.1", 7))
    assert digest(known) != digest(with_serial(known, 7))


def test_many_names_are_in_canonical_order() -> None:
    names = [to_wire((b"%d" % (number * 7919 % 50_021), b"example")) for number in range(50_021)]
    assert in_canonical_order(names) == sorted((from_wire(name)[::-1], name) for name in names)


def test_the_command(tmp_path: Path) -> None:
    old, new, bare = (str(tmp_path / name) for name in ("old", "new", "bare"))
    Path(old).write_text("$ORIGIN ark.arpa.\n" + HEAD.format(serial=1) + "a A 192.0.2.1\n")
    Path(new).write_text("$ORIGIN ark.arpa.\n" + HEAD.format(serial=2) + "b A 192.0.2.1\n")
    Path(bare).write_text("x A 192.0.2.1\n")

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(command, ["diff", *arguments])
        return result.exit_code, result.stdout

    soa = "ns.ark.arpa. host.ark.arpa. {} 7200 3600 1209600 300"
    changes = "- a.ark.arpa. 60 A 192.0.2.1\n+ b.ark.arpa. 60 A 192.0.2.1\n"
    assert run(old, new) == (1, f"~ ark.arpa. SOA {soa.format(1)} -> {soa.format(2)}\n{changes}")
    assert run(old, old) == (0, "")
    code, text = run("--json", old, new)
    document = json.loads(text)
    assert (code, document["schema"], document["zone"]) == (1, "maptr/1", "ark.arpa.")
    assert (document["serial"], document["names"], document["names_lost"]) == ({"old": 1, "new": 2}, 3, 1)
    removed = {"change": "removed", "owner": "a.ark.arpa.", "type": "A"}
    assert document["changes"][1] == {**removed, "old": {"ttl": 60, "rdata": ["192.0.2.1"]}, "new": None}
    assert [run(bare, bare)[0], run(bare, old)[0], run(old, str(tmp_path / "none"))[0]] == [8, 8, 8]
    assert run("--origin", "a..b", old, new)[0] == 2


def test_rfc5155_7_1_stripping_removes_the_nsec3_chain() -> None:
    """The owners of NSEC3 are removed, and empty non-terminals without other names below them."""
    digest = "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"
    signed = view_of(f"a.b TXT x\n@ NSEC3PARAM 1 0 0 -\n{digest} NSEC3 1 0 0 - {digest} SOA\n")
    assert stripped(signed).nodes == view_of("a.b TXT x\n").nodes


# --- publication

TEN = "".join(f"n{number} A 192.0.2.9\n" for number in range(8))  # with the apex and ns, ten names


def test_a_change_without_a_higher_serial_is_refused() -> None:
    for old, new, how in ((1, 1, "did not advance"), (5, 4, "went back from 5"), (0, 0x80000000, "went back from 0")):
        with pytest.raises(ZoneError, match=rf"serial {new} {how} while the zone changed"):
            decide(view_of("a A 192.0.2.1", old), view_of("a A 192.0.2.2", new))
    wrapped = view_of("a A 192.0.2.2", 0)
    assert decide(view_of("a A 192.0.2.1", 0xFFFFFFFF), wrapped)


def test_force_allows_a_version_that_the_guards_refuse() -> None:
    old, new = view_of(TEN, 5), view_of("", 4)
    assert decide(old, new, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_an_unchanged_file_changes_nothing(force: bool) -> None:
    old = view_of("a A 192.0.2.1\na A 192.0.2.2")
    assert not decide(old, view_of("a A 192.0.2.2\na A 192.0.2.1"), force=force)


@pytest.mark.parametrize(("kept", "limit", "good"), [(5, 0.3, True), (4, 0.3, False), (0, 0.8, True), (7, 0.0, False)])
def test_version_that_lost_too_many_names_is_refused(kept: int, limit: float, good: bool) -> None:
    new = view_of("".join(TEN.splitlines(keepends=True)[:kept]), 2)
    if good:
        assert decide(view_of(TEN), new, limit)
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
