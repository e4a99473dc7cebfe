"""Reading and checking of a whole zone file."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from maptr.daemon.process import in_thread
from maptr.errors import ZoneError
from maptr.protocol.names import Labels, parse
from maptr.zone.load import Checked, read_checked
from maptr.zone.reader import ZoneFile, read_zone_file

HEAD = "$TTL 60\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"


def read(folder: Path, text: str | bytes, lint: str = "warn") -> Checked:
    path = folder / "z"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_checked(path, parse("ark.arpa"), lint=lint)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"z: nothing at ark\.arpa\.|z: no SOA"),
        ("@ 60 NS ns\n", "z: no SOA at the origin"),
        ("@ 60 SOA ns h 1 2 3 4 5\n", "z: no NS at the origin"),
        (HEAD + "other.test. A 192.0.2.1\n", r"z:5: the owner is outside the zone ark\.arpa\."),
        (HEAD + "x.arpa. A 192.0.2.1\n", "z:5: .*the owner is outside"),
        (HEAD + "ns CNAME x\n", "z:5: .*CNAME"),
        (HEAD + "x CNAME ns\nx A 192.0.2.1\n", "z:6: .*CNAME"),
        (HEAD + "x CNAME y\nx CNAME z\n", r"z:6: .*a second CNAME at x\.ark\.arpa\."),
        (HEAD + "@ 60 SOA ns h 2 2 3 4 5\n", r"z:5: .*a second SOA at ark\.arpa\."),
        (HEAD + "\n\nx A\n", "z:7: "),
        (HEAD + "x A 192.0.2.1 (\n", "z:[56]: "),
        (HEAD + "x CH A 192.0.2.1\n", "z:5: "),
        (HEAD + "x BOGUS y\n", "z:5: .*near 'BOGUS': unknown RR type"),
        (HEAD + "$INCLUDE a b c\n", "z:5: near 'c': more fields than .INCLUDE has"),
        (HEAD + "$GENERATE nonsense\n", "z:5: "),
        (HEAD + "$GENERATE 1-2 n$ A 192.0.2.1 x\n", "z:5: near 'x': more fields than .GENERATE has"),
        (HEAD + "$GENERATE 1-2 ${0,128} A 192.0.2.1\n", "z:5: near '.{0,128}': the width is above 127"),
        (HEAD + "$GENERATE 1-2 ${-2,3,n} A 192.0.2.1\n", "z:5: near .*: a negative number has no nibbles"),
        (HEAD + "$GENERATE 1-2/0 n$ A 192.0.2.1\n", "z:5: near '1-2/0': bad range"),
        (HEAD + "$GENERATE 0-4000000000 $ A 192.0.2.1\n", "z:5: .*its .GENERATE lines make more than 1000000"),
        (HEAD + "$GENERATE 1-4 $ A 192.0.2.1\n$generate 1-2000000/2 $ A 192.0.2.1\n", "z:6: .*its .GENERATE"),
        (HEAD + f"{'x' * 64} A 192.0.2.1\n", "z:5: "),
        ((HEAD + "x A 192.0.2.1\n").encode("utf-16"), "z:1: .*is UTF-16: save it as UTF-8"),
        (HEAD + "a DNAME b\nx.a A 192.0.2.1\n", r"z: error: x\.a\.ark\.arpa\.: below-dname: stands below the DNAME"),
        (HEAD + "@ ZONEMD 1 1 1 " + "00" * 48 + "\n", "z: its ZONEMD does not verify"),
    ],
)
def test_bad_zone_files_are_refused_with_their_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(ZoneError, match=reason):
        read(tmp_path, text)


def test_a_file_that_includes_itself_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ZoneError, match=rf"z:\d+: .*{tmp_path}/none: No such file"):
        read(tmp_path, HEAD + "$INCLUDE none\n")
    with pytest.raises(ZoneError, match=r"more than 16 levels of \$INCLUDE"):
        read(tmp_path, HEAD + f"$INCLUDE {tmp_path}/z\n")


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("what", ["a pipe", "a device"])
def test_endless_zone_files_are_refused(included: bool, what: str, tmp_path: Path) -> None:
    """Otherwise a pipe would block every reload, and a link to /dev/zero would exhaust the server's memory."""
    endless = tmp_path / "endless"
    if what == "a pipe":
        os.mkfifo(endless)
    else:
        endless.symlink_to("/dev/zero")
    path = endless
    if included:
        path = tmp_path / "z"
        path.write_text(HEAD + f"$INCLUDE {endless}\n")
    with pytest.raises(ZoneError if included else OSError, match="Is not a regular file") as caught:
        asyncio.run(asyncio.wait_for(in_thread(lambda: read_checked(path, (b"example",))), 20))
    assert str(endless) in str(caught.value)


@pytest.mark.parametrize("text", ["x CNAME ns\nx CNAME ns\n", "$GENERATE 1-9 n$ A 192.0.2.1\n"])
def test_repeated_and_generated_records_are_served(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, HEAD + text).view.serial == 1


@pytest.mark.parametrize("lint", ["off", "warn"])
@pytest.mark.parametrize(("text", "code"), [("a NS b\n", "no-address"), ("a NS b\nb CNAME ns\n", "server-alias")])
def test_errors_that_other_servers_accept_are_warnings(tmp_path: Path, text: str, code: str, lint: str) -> None:
    checked = read(tmp_path, HEAD + text, lint)
    assert checked.view.serial == 1
    assert [code in finding for finding in checked.warnings] == [True]


@pytest.mark.parametrize(("lint", "warned"), [("off", 0), ("warn", 1), ("refuse", None)])
def test_the_lint_setting(tmp_path: Path, lint: str, warned: int | None) -> None:
    text = HEAD + '12345 NAPTR 1 1 "h" "ark" "USLC" h.example.\n'
    if warned is None:
        with pytest.raises(ZoneError, match="regexp-refused"):
            read(tmp_path, text, lint)
    else:
        found = [line for line in read(tmp_path, text, lint).warnings if "regexp-refused" in line]
        assert len(found) == warned


def test_a_file_that_changes_during_reading_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes, origin: Labels, path: Path) -> ZoneFile:
        found = read_zone_file(data, origin, path)
        with path.open("a") as file:
            file.write("late A 192.0.2.1\n")
        return found

    monkeypatch.setattr("maptr.zone.load.read_zone_file", slow)
    with pytest.raises(ZoneError, match=re.escape(f"{tmp_path / 'z'}: changed while it was read")):
        read(tmp_path, HEAD)
