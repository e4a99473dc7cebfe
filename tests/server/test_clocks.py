"""The effects of a clock that is a year ahead or behind: the rows of the table in docs/admin.md."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import dns.dnssec
import dns.message
import dns.name
import dns.tsig
import pytest

from maptr.answer.context import ReceivedQuery, Transport
from maptr.config import ZoneConfig
from maptr.daemon.certificate import CertificatePeriod
from maptr.dnssec.keys import Algorithm, KeyState, Role, add_key
from maptr.protocol.cookies import answer_cookie, sign, timestamp
from maptr.protocol.names import fold, parse
from maptr.server import publisher
from maptr.server.alarm import Alarm, AlarmKind, AlarmLog
from maptr.server.state import Served
from maptr.server.status import age
from maptr.transfer.acl import TsigKey
from maptr.transfer.tsig import check_query
from tests.support.signing import to_zone
from tests.support.zone_site import ZoneSite

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "admin.md").read_text("utf-8")
NOW = 1_800_000_000.0  # 2027-01-15
DAY, YEAR = 86400.0, 365 * 86400.0
NAME = fold(parse("ark.arpa."))
ORIGIN = dns.name.from_text("ark.arpa.")
AHEAD_AND_BEHIND = pytest.mark.parametrize("shift", [YEAR, -YEAR], ids=["ahead", "behind"])


def text(number: int, serial: int = 1) -> str:
    return f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.{number}\n"


def site_of(directory: Path, **settings: object) -> ZoneSite:
    zone = replace(ZoneConfig(NAME, directory / "zone", state=directory / "state"), **settings)  # type: ignore[arg-type]
    zone.file.write_text(text(1))
    return ZoneSite(zone, NOW)


@AHEAD_AND_BEHIND
@pytest.mark.parametrize("style", ["increment", "date", "unix"])
def test_serials_never_go_back_and_none_has_two_contents(tmp_path: Path, style: str, shift: float) -> None:
    site = site_of(tmp_path, serial=style)
    serials = []
    site.start()
    for number, now in enumerate((NOW, NOW + shift, NOW + shift, NOW + 60, NOW + 120), 2):
        site.now = now
        site.zone.file.write_text(text(number))
        if number == 4:
            site.start()  # a restart while the clock is wrong
        else:
            assert site.reload().result == "reloaded"
        serials.append(site.serial)
    assert serials == sorted(set(serials))
    if style == "increment":
        assert serials == [2, 3, 4, 5, 6]
    if style == "date" and shift > 0:
        assert serials[1:] == [2028011500, 2028011501, 2028011502, 2028011503]  # the next ones add 1, until that day
    if style == "date" and shift < 0:
        assert serials == [2027011500, 2027011501, 2027011502, 2027011503, 2027011504]


@AHEAD_AND_BEHIND
def test_a_serial_of_the_file_is_that_of_the_file(tmp_path: Path, shift: float) -> None:
    site = site_of(tmp_path)
    site.start()
    site.now += shift
    site.zone.file.write_text(text(2, 7))
    assert (site.reload().result, site.serial) == ("reloaded", 7)


@AHEAD_AND_BEHIND
def test_signatures_of_the_server_are_made_again_when_the_clock_is_set(tmp_path: Path, shift: float) -> None:
    """With a wrong clock they are for another time, so that validators refuse them; the check every few seconds renews
    them in both directions, with a greater serial."""
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    keys = tmp_path / "keys"
    add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
    site = site_of(tmp_path, keys=keys)
    site.start()
    first = site.serial
    for now in (NOW + shift, NOW + 60):
        site.now = now
        site.served, outcomes = publish_again(site)
        assert outcomes == ["signed"]
        assert site.alarms() == []
        zone = to_zone(site.view)
        rrset = zone.get_rdataset(ORIGIN, "SOA"), zone.get_rdataset(ORIGIN, "RRSIG", "SOA")
        known = {ORIGIN: zone.get_rdataset(ORIGIN, "DNSKEY")}
        dns.dnssec.validate((ORIGIN, rrset[0]), (ORIGIN, rrset[1]), known, ORIGIN, now)  # type: ignore[arg-type]
        if now != NOW + 60:
            with pytest.raises(dns.exception.ValidationFailure):
                dns.dnssec.validate((ORIGIN, rrset[0]), (ORIGIN, rrset[1]), known, ORIGIN, NOW)  # type: ignore[arg-type]
    assert site.serial == first + 2


def publish_again(site: ZoneSite) -> tuple[Served, list[str]]:
    served, outcomes = publisher.sign_again(site.served, clock=site.clock)
    return served, [outcome.result for outcome in outcomes]


@AHEAD_AND_BEHIND
def test_signatures_of_others_are_served_and_an_alarm(tmp_path: Path, shift: float) -> None:
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    keys = tmp_path / "keys"
    add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
    signer = site_of(tmp_path, keys=keys)
    signer.start()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    site = site_of(elsewhere)
    site.zone.file.write_text(to_zone(signer.view).to_text(relativize=False))
    site.start()
    assert site.alarms() == []
    before = site.view
    site.now = NOW + shift
    assert site.reload().result == "unchanged"
    assert site.view is before
    (alarm,) = site.alarms()
    assert ("signatures expired at" in alarm) is (shift > 0)
    assert ("signatures are not valid yet: validators answer SERVFAIL; is a clock wrong?" in alarm) is (shift < 0)
    assert site.start() is not None  # a start does not look at the clock either
    site.now = NOW
    assert site.alarms() == []


@AHEAD_AND_BEHIND
def test_a_certificate_is_an_alarm_and_stays_in_use(shift: float) -> None:
    period = CertificatePeriod(NOW - 30 * DAY, NOW + 60 * DAY)
    assert period.trouble(NOW, 14 * DAY) == ""
    assert ("expired at" if shift > 0 else "is not valid before") in period.trouble(NOW + shift, 14 * DAY)


@AHEAD_AND_BEHIND
def test_alarms_come_and_go_with_their_condition_and_only_their_ages_are_wrong(shift: float) -> None:
    log, alarm = AlarmLog(), Alarm(AlarmKind.ZONE_REFUSED, "x", "a.test.")
    (first,) = log.dated([alarm], NOW + shift)
    (second,) = log.dated([alarm], NOW)
    assert first.since == second.since == NOW + shift
    assert age(second.since, NOW) == (0.0 if shift > 0 else YEAR)
    assert log.dated([], NOW) == ()
    (third,) = log.dated([alarm], NOW + 60)
    assert third.since == NOW + 60


@AHEAD_AND_BEHIND
def test_a_signed_transfer_is_refused_by_its_time_until_the_clock_is_set(
    shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 8945 5.2.3: 300 seconds are allowed."""
    secret = bytes(32)
    query = dns.message.make_query("ark.arpa.", "AXFR")
    query.use_tsig(dns.tsig.Key("xfr.", secret, dns.tsig.HMAC_SHA256))
    monkeypatch.setattr("time.time", lambda: NOW)
    wire = query.to_wire()
    keys: dict[tuple[bytes, ...], TsigKey] = {(b"xfr",): TsigKey((b"xfr",), "hmac-sha256", secret)}
    received = ReceivedQuery(wire, Transport.TCP, "192.0.2.1")
    assert check_query(received, keys, int(NOW)).error == 0
    assert "BADTIME" in check_query(received, keys, int(NOW + shift)).fault


@AHEAD_AND_BEHIND
def test_cookies_are_made_anew(shift: float) -> None:
    secret, address = (bytes(16),), bytes(4)
    cookie = sign(bytes(8) + timestamp(NOW), address, secret[0])
    assert answer_cookie(cookie, address, secret, timestamp(NOW))[1]
    assert not answer_cookie(cookie, address, secret, timestamp(NOW + shift))[1]
    answered, _ = answer_cookie(cookie, address, secret, timestamp(NOW + shift))
    assert answer_cookie(answered, address, secret, timestamp(NOW + shift))[1]


def test_each_row_of_the_page_names_a_test_that_there_is() -> None:
    table = PAGE.partition("### A wrong clock")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(test_\w+)`", table))
    here = {name for name in globals() if name.startswith("test_")}
    assert named
    assert named <= here
    assert here - named == {"test_each_row_of_the_page_names_a_test_that_there_is"}
    elsewhere = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", table)
    assert elsewhere
    for file, name in elsewhere:
        assert f"def {name}(" in (Path(__file__).resolve().parents[2] / file).read_text("utf-8"), name
