"""Checks of a zone: each finding, a valid zone without findings, and files that must not be served."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from pathlib import Path

import dns.message
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Transport
from maptr.answer.respond import respond
from maptr.daemon.process import in_thread
from maptr.errors import ZoneError
from maptr.files import read_whole
from maptr.protocol.names import ARK_ARPA, Folded, fold, parse
from maptr.protocol.numbers import UDP_PAYLOAD
from maptr.zone import masterfile
from maptr.zone.check import Checked, check_hostnames, check_integrity, examine, read_checked
from maptr.zone.clean import MAX_RRSET
from maptr.zone.finding import Severity
from maptr.zone.masterfile import Source, ZoneFile, read_zone_file
from tests.support.answers import load_vectors, snapshot_of
from tests.support.zones import view_of

CASES = load_vectors("zone_check")
HEAD = """\
$ORIGIN ark.arpa.
$TTL 300
@ IN SOA ns.example. hostmaster.example. 1 3600 900 1209600 300
@ IN NS ns.example.
"""
BLOCK = '13999 IN TXT "x"\n'
GOOD = (
    HEAD
    + r"""
12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\1!" .
12345 IN NAPTR 100 10 "h" "ark" "" h.example\0588443.
12345 IN TXT "who=x"
12026 IN NAPTR 0 0 "" "ark" "" dlc.spct.org.
12027 IN NAPTR 0 0 "h" "ark" "" h.example\:8443.
12028 IN NAPTR 0 0 "h" "ark" "" @
99999 IN NAPTR 0 0 "" "ark" "" in
in    IN NAPTR 0 0 "h" "ark" "" a.example.
13030 IN NS ns.example.
13031 IN NS ns.13031
ns.13031 IN A 192.0.2.1
b5060 IN NAPTR 10 10 "u" "E2U+sip" "!^.*$!sip:x@example!" .
naptr IN TXT "an owner by the name of a type"
txt 1h IN TXT SOA NAPTR
    60 IN TXT "leading white space: the owner above"
"""
)


def found(text: str, **options: str) -> list[str]:
    return [f"{f.line}: {f.severity} {f.code} {f.record}" for f in examine(text, **options).findings]


def test_a_good_zone_has_no_findings() -> None:
    assert found(GOOD) == found(GOOD, origin="ark.arpa") == []
    private = HEAD.replace("ark.arpa.", "ark.internal.").replace("ns.example.", "ns.internal.")
    assert found(private) == []


@pytest.mark.parametrize("case", CASES["finding"], ids=lambda case: case["finding"])
def test_each_error_and_warning(case: dict[str, str]) -> None:
    for block in ("", BLOCK):
        assert case["finding"] in found(HEAD + case["lines"] + "\n" + block)


def test_a_response_over_the_limit_is_a_warning() -> None:
    crowd = "".join(f'12345 IN NAPTR 0 0 "h" "ark" "" host-number-{i}.example.\n' for i in range(40))
    (finding,) = examine(HEAD + crowd).findings
    query = dns.message.make_query("12345.ark.arpa.", "NAPTR", use_edns=0).to_wire()
    whole = respond(query, snapshot_of((HEAD + crowd, "ark.arpa.")), transport=Transport.TCP)
    assert finding.code == "large-reply"
    assert f"has {len(whole or b'')} bytes: over {UDP_PAYLOAD}," in finding.reason


def test_the_reason_of_a_costly_regexp() -> None:
    (finding,) = examine(HEAD + '12345 IN NAPTR 0 0 "u" "ark" "!^(.?.?){0,240}$!https://h.example/!" .\n').findings
    assert finding.reason == "clients give up on it: the match takes too many steps"


def test_more_records_than_bind_accepts_is_a_warning() -> None:
    """BIND has had this limit since 9.18.28. NAAN 19153 of the real registry once had more records."""
    crowd = [f'12345 IN NAPTR 0 0 "h" "ark" "" h{i}.example.\n' for i in range(MAX_RRSET + 1)]
    assert "large-rrset" in [f.code for f in examine(HEAD + "".join(crowd)).findings]
    assert "large-rrset" not in [f.code for f in examine(HEAD + "".join(crowd[1:])).findings]


def test_a_text_that_is_not_a_zone_is_a_finding() -> None:
    for text in ("", "<html>", "@ IN SOA", HEAD.replace("@ IN NS ns.example.\n", ""), '"'):
        assert [finding.split()[2] for finding in found(text, origin="ark.arpa.")] == ["not-loaded"]
    assert found(GOOD, origin="a..b") == ["0: error not-loaded the zone"]


@pytest.mark.parametrize(
    ("head", "owner"),
    [
        ("$ORIGIN ark.example.\n@", "12345.ark.example."),
        ("$ORIGIN example.\nark", "12345.ark.example."),
        ("$ORIGIN .\n$ORIGIN ark.example.\n@", "12345.ark.example."),
        ("ark.example.", "12345.ark.example."),
        ("@", "12345.ark.arpa."),
    ],
)
def test_zone_name_is_the_owner_of_the_soa(head: str, owner: str) -> None:
    text = f"{head} 60 IN SOA a.example. b. 1 2 3 4 5\n 60 IN NS a.example.\n"
    text += f'{owner} 60 IN NAPTR 0 0 "h" "ark" "" 10.0.0.1.\n'
    lines = text.count("\n")
    assert found(text) == [f"{lines}: warning not-public {owner}"]


@given(st.text(max_size=200) | st.text(alphabet='ab1. "();$\\\nINAPTR@', max_size=80).map(lambda text: HEAD + text))
def test_checking_any_text_raises_no_exception(text: str) -> None:
    for finding in examine(text).findings:
        assert finding.severity in (Severity.ERROR, Severity.WARNING)
        assert str(finding)


NSEC3_HEAD = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.\n"


def test_the_records_of_all_generate_lines_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masterfile, "MAX_GENERATED", 1000)
    (found,) = examine(NSEC3_HEAD + "$GENERATE 0-600 $ 60 A 192.0.2.1\n" * 2, origin="ark.arpa.").findings
    assert (found.line, found.code) == (4, "generated")


def test_every_line_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_text("x A 192.0.2.999\n")
    naptr = '12345 NAPTR 0 0 "h" "ark" a.example.\n12345 NAPTR 0 0 "h" "ark" "" host:80\n'
    generic = "naptr NAPTR \\# 9 00000000 00 00 00 0000\n"
    text = HEAD + f"x A\n$INCLUDE {part}\n{naptr}{generic}$X\ny 4294967295 FOO a\n"
    found = [(f.line, f.code, f.file) for f in examine(text, filename="z").findings if f.code != "not-public"]
    assert found == [
        (5, "not-loaded", "z"),
        (7, "naptr-fields", "z"),
        (8, "relative-replacement", "z"),
        (8, "unescaped-port", "z"),
        (9, "not-loaded", "z"),
        (10, "not-loaded", "z"),
        (11, "not-loaded", "z"),
        (11, "ttl-too-large", "z"),
        (1, "not-loaded", str(part)),
    ]
    for line in ("x A\n", "x.test. A 192.0.2.1\n"):
        *_, last, stopped = examine(HEAD + line * 200).findings
        assert (last.line, stopped.line, stopped.record) == (104, 105, "the zone")
        assert stopped.reason == "100 lines cannot be read; what follows is not checked"


@pytest.mark.parametrize("case", CASES["reason"], ids=lambda case: case["line"])
def test_reasons_are_those_of_name_server_checkers(case: dict[str, str]) -> None:
    (finding,) = examine(HEAD + case["line"] + "\n", filename="z").findings
    where, _, reason = str(finding).partition(": not-loaded: ")
    assert where in ("z:5: error: x.ark.arpa.", "z:5: error: the zone")
    assert reason == case["reason"]


def test_an_included_file_is_checked_with_its_own_lines(tmp_path: Path) -> None:
    part, zone = tmp_path / "part", tmp_path / "zone"
    part.write_text("a IN A 192.0.2.1\n")
    assert examine(f"{HEAD}{BLOCK}$INCLUDE {part}\n").included == [part]
    part.write_text('; a comment\n12345 IN NAPTR 0 0 "h" "ark" "" 10.0.0.1.\nb IN NAPTR 0 0 "" "ark" "" dlc.spct\n')
    text = f'{HEAD}$INCLUDE {part} sub\n12346 IN NAPTR 0 0 "h" "ark" "" 10.0.0.1.\n'
    found = examine(text, filename=str(zone)).findings
    assert [(f.code, f.record, f.file, f.line) for f in found] == [
        ("not-public", "12346.ark.arpa.", str(zone), 6),
        ("not-public", "12345.sub.ark.arpa.", str(part), 2),
        ("redirect-nowhere", "b.sub.ark.arpa.", str(part), 3),
        ("relative-replacement", "b.sub.ark.arpa.", str(part), 3),
    ]


@pytest.mark.parametrize("case", CASES["integrity"], ids=lambda case: case["lines"])
def test_each_integrity_error_is_found(case: dict[str, str]) -> None:
    view = view_of(case["lines"])
    found = [*check_integrity(view), *check_hostnames(view)]
    assert [finding.code for finding in found] == case["code"].split()


# ---- a file, before it is served


def read(folder: Path, text: str | bytes, lint: str = "warn") -> Checked:
    path = folder / "z"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_checked(path, fold(parse("ark.arpa")), lint=lint)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$TTL 60\n", "z: no SOA at the origin"),
        ("$TTL 60\n@ NS ns\n", "z: no SOA at the origin"),
        ("$TTL 60\n@ SOA ns h 1 2 3 4 5\n", "z: no NS at the origin"),
        (HEAD + "other.test. A 192.0.2.1\n", r"z:5: the owner is outside the zone ark\.arpa\."),
        (HEAD + "x.arpa. A 192.0.2.1\n", "z:5: .*the owner is outside"),
        (HEAD + "x A 192.0.2.1\nx CNAME y\n", "z:6: .*CNAME"),
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
        (HEAD + "$GENERATE 0-2000000000 $ A 192.0.2.1\n", "z:5: .*its .GENERATE lines make more than 1000000"),
        (
            HEAD + "$GENERATE 2147483647-2147483648 $ A 192.0.2.1\n",
            "z:5: .*a number of .GENERATE is at most 2147483647",
        ),
        (HEAD + "$GENERATE 1-2/2147483648 $ A 192.0.2.1\n", "z:5: .*a number of .GENERATE is at most 2147483647"),
        (HEAD + "$GENERATE 0-1 ${2147483647} A 192.0.2.1\n", "z:5: .*makes 2147483648 of 1: a number of .GENERATE is"),
        (
            HEAD + "$GENERATE 1-1 ${-2147483649} A 192.0.2.1\n",
            "z:5: .*makes -2147483648 of 1: a number",
        ),
        (HEAD + '$INCLUDE "a\0b"\n', r"z:5: near 'a.b': is not the name of a file"),
        (HEAD + "$INCLUDE a\0b\n", r"z:5: near 'a.b': is not the name of a file"),
        (HEAD + "$GENERATE 1-4 $ A 192.0.2.1\n$generate 1-2000000/2 $ A 192.0.2.1\n", "z:6: .*its .GENERATE"),
        (HEAD + f"{'x' * 64} A 192.0.2.1\n", "z:5: "),
        ((HEAD + "x A 192.0.2.1\n").encode("utf-16"), "z:1: .*is UTF-16: save it as UTF-8"),
        (HEAD + "a DNAME b\nx.a A 192.0.2.1\n", r"z: error: x\.a\.ark\.arpa\.: below-dname: is below the DNAME"),
        (HEAD + "@ ZONEMD 1 1 1 " + "00" * 48 + "\n", "z: its ZONEMD does not verify"),
    ],
)
def test_bad_zone_files_are_refused_with_their_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    for block in ("", BLOCK) if isinstance(text, str) else ("",):
        with pytest.raises(ZoneError, match=reason):
            read(tmp_path, text + block if isinstance(text, str) else text)


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
        asyncio.run(asyncio.wait_for(in_thread(lambda: read_checked(path, fold(parse("ark.arpa")))), 20))
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


def test_the_sources_have_the_digest_of_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, deep = tmp_path / "part", tmp_path / "deep"
    deep.write_bytes(b"deep A 192.0.2.1\r\n")
    part.write_bytes(b"part A 192.0.2.1\n$INCLUDE deep\n")
    text = HEAD + "$INCLUDE part\nother A 192.0.2.1\n$INCLUDE deep sub\n"
    contents = [(tmp_path / "z", text.encode()), *((path, path.read_bytes()) for path in (part, deep, deep))]
    expected = tuple(Source(path, hashlib.sha256(content).digest()) for path, content in contents)
    assert read(tmp_path, text).sources == expected

    def replaced(path: Path) -> bytes:
        content = read_whole(path)
        if path == part:
            path.write_text("changed A 192.0.2.1\n")
        return content

    monkeypatch.setattr("maptr.zone.masterfile.read_whole", replaced)
    assert read(tmp_path, text).sources == expected


def test_a_file_that_changes_during_reading_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(name: str, data: bytes, origin: Folded) -> ZoneFile:
        found = read_zone_file(name, data, origin)
        with Path(name).open("a") as file:
            file.write("late A 192.0.2.1\n")
        return found

    monkeypatch.setattr("maptr.zone.check.read_zone_file", slow)
    with pytest.raises(ZoneError, match=re.escape(f"{tmp_path / 'z'}: changed while it was read")):
        read(tmp_path, HEAD)


def too_large(count: int, size: int) -> str:
    head = "@ IN SOA ns hostmaster 1 3600 900 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"
    words = " ".join([f'"{"x" * 250}"'] * (size // 251))
    return f"$ORIGIN ark.arpa.\n$TTL 300\n{head}" + "".join(f'big IN TXT "{n}" {words}\n' for n in range(count))


@pytest.mark.parametrize(("count", "is_refused"), [(60, False), (66, True), (73, True)])
def test_an_rrset_that_no_response_can_hold_is_an_error_with_its_line_and_is_not_served(
    count: int, is_refused: bool, tmp_path: Path
) -> None:
    text = too_large(count, 1004)
    findings = [found for found in examine(text, filename="z").findings if found.code == "too-large"]
    assert [(found.severity.value, found.record, found.file, found.line) for found in findings] == (
        [("error", "big.ark.arpa.", "z", 6)] if is_refused else []
    )
    file = tmp_path / "zone"
    file.write_text(text)
    name = Folded((b"ark", b"arpa"))
    if is_refused:
        with pytest.raises(ZoneError, match=r"TXT records, signatures, OPT and TSIG has [67]\d{4} bytes"):
            read_checked(file, name)
    else:
        assert read_checked(file, name).view.serial == 1


@pytest.mark.parametrize(("count", "is_refused"), [(62, False), (63, True)])
def test_signatures_to_come_need_room_in_a_response(count: int, is_refused: bool, tmp_path: Path) -> None:
    file, name = tmp_path / "zone", ARK_ARPA
    file.write_text(too_large(count, 1004))
    assert read_checked(file, name).view.serial == 1
    if is_refused:
        with pytest.raises(ZoneError, match=r"TXT records, signatures, OPT and TSIG has 6[5-9]\d{3} bytes"):
            read_checked(file, name, to_sign=True)
    else:
        assert read_checked(file, name, to_sign=True).view.serial == 1
