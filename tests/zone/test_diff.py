"""Differences of two zones, the names that are lost, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from maptr.cli.zone import zone as command
from maptr.zone.diff import ZoneDiff, content_digest, stripped, with_serial
from tests.support.answers import load_vectors
from tests.support.zones import HEAD, view_of


@pytest.mark.parametrize("case", load_vectors("zone_diff")["case"])
def test_changes_as_text(case: dict[str, Any]) -> None:
    changes = ZoneDiff.between(view_of(case["old"]), view_of(case["new"])).changes
    assert [change.to_text() for change in changes] == case["shown"]


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
