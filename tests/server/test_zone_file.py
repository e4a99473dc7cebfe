"""Zone files as the server reads and checks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, parse
from maptr.server.state import ZoneSource
from maptr.server.zone_file import read_checked
from maptr.zone.publish import Guards
from maptr.zone.reader import ZoneFile, read_zone_file

HEAD = "$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"


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
