"""The guards of publication: whether a new version replaces the old one, and its serial."""

from __future__ import annotations

import re
from functools import cache, partial
from pathlib import Path

import dns.rdatatype
import dns.zone
import pytest
from dns.zonetypes import DigestHashAlgorithm
from hypothesis import given
from hypothesis import strategies as st

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, parse
from maptr.protocol.serial import is_newer
from maptr.server import publisher, state_folder
from maptr.server.state import Served, ZoneSource
from maptr.server.zone_file import read_checked
from maptr.zone.publish import Guards, Published, choose_serial, decide
from maptr.zone.reader import ZoneFile, read_zone_file
from maptr.zone.snapshot import ZoneView, view_zone

HEAD = "$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"
TEN = "".join(f"n{number} A 192.0.2.9\n" for number in range(8))  # with the apex and ns, ten names


def zone(text: str, serial: int = 1) -> dns.zone.Zone:
    return dns.zone.from_text(HEAD.format(serial=serial) + text, "ark.arpa.", relativize=False)


def view(text: str = "", serial: int = 1) -> ZoneView:
    return view_zone(zone(text, serial))


# --- the serial


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
def test_rfc1982_serials(serial: int, other: int, after: bool) -> None:
    assert is_newer(serial, other) is after


def test_a_change_without_a_higher_serial_is_refused() -> None:
    for old, new, how in ((1, 1, "did not advance"), (5, 4, "went back from 5"), (0, 0x80000000, "went back from 0")):
        with pytest.raises(ZoneError, match=rf"serial {new} {how} while the zone changed"):
            decide(view("a A 192.0.2.1", old), view("a A 192.0.2.2", new), Guards())
    wrapped = view("a A 192.0.2.2", 0)
    assert decide(view("a A 192.0.2.1", 0xFFFFFFFF), wrapped, Guards()) is wrapped


def test_force_allows_what_the_guards_refuse() -> None:
    old, new = view(TEN, 5), view("", 4)
    assert decide(old, new, Guards(), force=True) is new


def test_an_unchanged_file_changes_nothing() -> None:
    old = view("a A 192.0.2.1\na A 192.0.2.2")
    assert decide(old, view("a A 192.0.2.2\na A 192.0.2.1"), Guards()) is old
    assert decide(old, view("a A 192.0.2.2\na A 192.0.2.1"), Guards(), force=True) is old


# --- the names


@pytest.mark.parametrize(("kept", "limit", "good"), [(5, 0.3, True), (4, 0.3, False), (0, 0.8, True), (7, 0.0, False)])
def test_a_zone_that_lost_its_names_is_refused(kept: int, limit: float, good: bool) -> None:
    new = view("".join(TEN.splitlines(keepends=True)[:kept]), 2)
    if good:
        assert decide(view(TEN), new, Guards(max_shrink=limit)) is new
    else:
        with pytest.raises(
            ZoneError, match=rf"lost {8 - kept} of 10 names \({8 - kept}0%, max_shrink is {limit:.0%}\)"
        ):
            decide(view(TEN), new, Guards(max_shrink=limit))


LONG = "".join(f"n{number} A 192.0.2.9\n" for number in range(298))
long_view = cache(partial(view, LONG))  # the same for every example


@given(st.integers(4, 300))
def test_a_file_cut_at_a_line_end_is_refused_if_it_lost_too_much(lines: int) -> None:
    """BIND, NSD, Knot and PowerDNS load all of these."""
    cut = "".join(LONG.splitlines(keepends=True)[: lines - 2])
    try:
        decide(long_view(), view(cut, 2), Guards())
    except ZoneError:
        assert lines < 210
    else:
        assert lines >= 210


# --- the serial, made here


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
    old = Published.of(view("a A 192.0.2.1", published))
    new = view("a A 192.0.2.1" if same else "a A 192.0.2.2", file_serial)
    assert choose_serial(new, old, style, 1_700_000_000.0).serial == expected


def test_a_signed_serial_is_not_changed() -> None:
    digested = zone("a A 192.0.2.2")
    digested.replace_rdataset("ark.arpa.", _zonemd(digested))
    with pytest.raises(ZoneError, match="is signed: the signer"):
        choose_serial(view_zone(digested), Published.of(view()), "increment", 0.0)


def _zonemd(of: dns.zone.Zone) -> dns.rdataset.Rdataset:
    return dns.rdataset.from_rdata(60, of.compute_digest(DigestHashAlgorithm.SHA384))


# --- reading for the server


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@ SOA ns host 2 7200 3600 1209600 300\n", r"z:5: a second SOA at ark\.arpa\."),
        ("x CNAME ns\nx CNAME y\n", r"z:6: a second CNAME at x\.ark\.arpa\."),
        ("x CNAME ns\nx A 192.0.2.1\n", "z:6: .*CNAME"),
        ("a DNAME b\nx.a A 192.0.2.1\n", r"z: error: x\.a\.ark\.arpa\.: below-dname: stands below the DNAME"),
        ("@ ZONEMD 1 1 1 " + "00" * 48 + "\n", "z: its ZONEMD does not verify"),
    ],
)
def test_refused_files(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "z").write_text(HEAD.format(serial=1) + text)
    with pytest.raises(ZoneError, match=reason):
        read_checked(ZoneSource(parse("ark.arpa"), tmp_path / "z"))


@pytest.mark.parametrize("lint", ["off", "warn"])
@pytest.mark.parametrize(("text", "code"), [("a NS b\n", "no-address"), ("a NS b\nb CNAME ns\n", "server-alias")])
def test_errors_that_other_servers_accept_are_warnings(tmp_path: Path, text: str, code: str, lint: str) -> None:
    (tmp_path / "z").write_text(HEAD.format(serial=1) + text)
    checked = read_checked(ZoneSource(parse("ark.arpa"), tmp_path / "z", guards=Guards(lint=lint)))
    assert checked.view.serial == 1
    assert [code in finding for finding in checked.warnings] == [True]


def test_a_repeated_error_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "z").write_text(HEAD.format(serial=1) + "x CNAME ns\nx CNAME ns\n")
    assert read_checked(ZoneSource(parse("ark.arpa"), tmp_path / "z")).view.serial == 1


@pytest.mark.parametrize(("lint", "warned"), [("off", 0), ("warn", 1), ("refuse", None)])
def test_the_lint_setting(tmp_path: Path, lint: str, warned: int | None) -> None:
    (tmp_path / "z").write_text(HEAD.format(serial=1) + '12345 NAPTR 1 1 "h" "ark" "USLC" h.example.\n')
    source = ZoneSource(parse("ark.arpa"), tmp_path / "z", guards=Guards(lint=lint))
    if warned is None:
        with pytest.raises(ZoneError, match="regexp-refused"):
            read_checked(source)
    else:
        found = [line for line in read_checked(source).warnings if "regexp-refused" in line]
        assert len(found) == warned


def test_a_file_that_changes_during_reading_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "z"
    path.write_text(HEAD.format(serial=1))
    from maptr.server import zone_file

    def slow(data: bytes, origin: Labels, path: Path) -> ZoneFile:
        read = read_zone_file(data, origin, path)
        with path.open("a") as file:
            file.write("late A 192.0.2.1\n")
        return read

    monkeypatch.setattr(zone_file, "read_zone_file", slow)
    with pytest.raises(ZoneError, match=re.escape(f"{path}: changed while it was read")):
        read_checked(ZoneSource(parse("ark.arpa"), path))


# --- the observed serials


def test_serials_continue_after_a_restart(tmp_path: Path) -> None:
    path, state = tmp_path / "z", tmp_path / "state"
    source = ZoneSource(parse("ark.arpa"), path, Guards(serial="increment"), state)

    def start() -> Served:
        return publisher.start([source], clock=lambda: 0.0)

    def serial(served: Served) -> int:
        (state,) = served.states.values()
        assert state.view is not None
        return state.view.serial

    path.write_text(HEAD.format(serial=7))
    served = start()
    for number in (8, 9):
        path.write_text(HEAD.format(serial=7) + f"a A 192.0.2.{number}\n")
        served, outcomes = publisher.publish([source], served, clock=lambda: 0.0)
        assert [outcome.result for outcome in outcomes] == ["reloaded"]
        assert serial(served) == number
    served, outcomes = publisher.publish([source], served, clock=lambda: 0.0)
    assert [outcome.result for outcome in outcomes] == ["unchanged"]
    assert serial(start()) == 9
    path.write_text(HEAD.format(serial=7) + "a A 192.0.2.77\n")
    assert serial(start()) == 10, "changed while nobody served"
    assert [file.name for file in state.iterdir()] == ["ark.arpa.serial"]


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"serial": -1, "digest": ""}', '{"serial": true, "digest": ""}', "\xff"]
)
def test_a_damaged_serial_file_is_ignored(tmp_path: Path, record: str) -> None:
    state_folder.write_serial(tmp_path, parse("ark.arpa"), Published(1, "x"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(record.encode("latin-1"))
    assert state_folder.read_serial(tmp_path, parse("ark.arpa")) is None


def test_the_serial_file_stays_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for name in (b"../x", b"..", b"/etc", b"a/b", b"\0"):
        state_folder.write_serial(folder, (name,), Published(1, "x"))
        assert state_folder.read_serial(folder, (name,)) == Published(1, "x")
    assert list(tmp_path.iterdir()) == [folder]
    assert len(list(folder.iterdir())) == 5
