"""Zones that the server signs: the time of signing, the serial, and the version served after a failure."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dns.dnssec
import dns.exception
import dns.name
import dns.zone
import pytest
from dns.rdatatype import DNSKEY, RRSIG

from maptr.config import ZoneConfig
from maptr.config.model import SigningConfig, signed_path
from maptr.daemon import kept
from maptr.dnssec import keys as zonekeys
from maptr.dnssec.keys import Algorithm, KeyState, Role
from maptr.protocol.names import fold, parse
from maptr.server import publisher, state_folder
from maptr.server.state import RETRY, SigningState, snapshot_of
from maptr.server.status import ZoneResult, to_json
from maptr.zone.diff import ZoneDiff, stripped
from maptr.zone.snapshot import ZoneView
from tests.support.signing import sign_zone, to_zone
from tests.support.zone_site import ZoneSite

pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")

NOW = 1_800_000_000
DAY = 86400
NAME = fold(parse("ark.arpa."))
ORIGIN = dns.name.from_text("ark.arpa.")
BASE = "".join(f"n{number} A 192.0.2.{number}\n" for number in range(9))


def text(serial: int = 1, extra: str = "") -> str:
    return f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{BASE}{extra}"


class Site(ZoneSite):
    """A zone file, a key folder and a state folder, and the zone served from them."""

    def __init__(self, directory: Path, serial: str = "file") -> None:
        self.directory = directory
        self.keys = directory / "keys"
        zone = ZoneConfig(NAME, directory / "zone", serial=serial, keys=self.keys, state=directory / "state")
        super().__init__(zone, NOW)
        self.write(text())
        zonekeys.add_key(self.keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)

    def write(self, zone: str) -> None:
        self.zone.file.write_text(zone)

    def look(self) -> str:
        """Sign if due, as the daemon does every few seconds. Returns the result, "" if nothing was due."""
        self.served, outcomes = publisher.sign_again(self.served, clock=self.clock)
        return outcomes[0].result if outcomes else ""

    @property
    def signed(self) -> SigningState:
        assert self.state.signed is not None
        return self.state.signed

    def key(self) -> Path:
        (path,) = self.keys.glob("*.active.pem")
        return path

    def retire(self) -> None:
        """Leave no active key in the folder."""
        self.key().rename(str(self.key()).replace("active", "published"))

    def is_valid(self, serial: int | None = None) -> bool:
        """Check the serial, all signatures with the zone's keys at this time, and ZONEMD."""
        assert serial in (None, self.serial)
        zone = to_zone(self.view)
        keys = {ORIGIN: zone.get_rdataset(ORIGIN, DNSKEY)}
        for name, rdataset in zone.iterate_rdatasets():
            signatures = zone.get_rdataset(name, RRSIG, rdataset.rdtype)
            if rdataset.rdtype != RRSIG:
                assert signatures, (name, rdataset)
                assert {rdata.original_ttl for rdata in signatures} == {rdataset.ttl}
                dns.dnssec.validate((name, rdataset), (name, signatures), keys, ORIGIN, self.now)  # type: ignore[arg-type]
        zone.verify_digest()
        return True


@pytest.fixture
def site(tmp_path: Path) -> Site:
    found = Site(tmp_path)
    found.start()
    return found


def signatures(view: ZoneView) -> set[bytes]:
    return {rdata for node in view.nodes.values() if 46 in node for rdata in node[46].rdatas}


def test_a_zone_is_signed_when_it_loads(site: Site) -> None:
    assert site.is_valid(1)
    assert site.signed.due == NOW + 7 * DAY
    assert site.alarms() == []
    (site.keys / "README").write_text("ours, and not a key")
    assert site.look() == ""
    before = site.view
    assert site.reload() == ZoneResult("ark.arpa.", "unchanged", 1, 1)
    assert site.view is before
    signing = to_json(site.state.status(site.now).signing)
    (key,) = signing.pop("key_states")
    assert (key["role"], key["state"], key["next"], key["at"]) == ("csk", "active", "", None)
    assert signing == {
        "keys": str(site.keys),
        "unsigned_serial": 1,
        "due": "2027-01-22T08:00:00Z",
        "error": "",
        "failed": None,
        "retry": None,
    }


@pytest.mark.parametrize(("extra", "longest"), [("", 60), ("old 604800 A 192.0.2.9\n", 604800)])
def test_a_new_key_waits_for_the_longest_ttl_of_the_served_zone(site: Site, extra: str, longest: int) -> None:
    site.write(text(2, extra))
    site.reload()
    added = zonekeys.add_key(site.keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.PUBLISHED)
    assert site.look() == "signed"
    signing = site.state.status(site.now).signing
    assert signing is not None
    (step,) = [key for key in signing.key_states if key.tag == added.key.tag]
    assert step.at == pytest.approx(step.since + longest + zonekeys.MARGIN)


def test_a_zone_is_signed_again_before_its_signatures_expire(site: Site) -> None:
    before = site.view
    site.now += 7 * DAY - 1
    assert site.look() == ""
    site.now += 2
    assert site.look() == "signed"
    assert site.is_valid(2)
    assert not signatures(site.view) & signatures(before), "all were due"
    assert site.signed.due == site.now + 7 * DAY
    assert site.look() == ""


def test_a_changed_zone_keeps_its_recent_signatures(site: Site) -> None:
    """Otherwise a secondary would get the whole zone after a change of one record."""
    before = site.view
    site.now += DAY
    site.write(text(2, "new A 192.0.2.77\n"))
    assert site.reload().result == "reloaded"
    assert site.is_valid()
    made = signatures(site.view) - signatures(before)
    assert len(made) == 5, "of SOA, ZONEMD, the NSEC before the new name, its A and its NSEC"
    # When the signatures of the first day are due, the newer ones are past half of their time too.
    site.now = NOW + 7 * DAY + 1
    assert site.look() == "signed"
    assert not signatures(site.view) & made
    assert site.is_valid()


def test_signatures_in_their_first_half_are_kept_when_others_are_due(site: Site) -> None:
    site.now += 6 * DAY
    site.write(text(2, "new A 192.0.2.77\n"))
    site.reload()
    made = signatures(site.view)
    site.now = NOW + 7 * DAY + 1
    assert site.look() == "", "what was older than half was signed anew at the change"
    assert site.signed.due == NOW + 13 * DAY
    assert signatures(site.view) == made


# --- serials


def test_the_serial_of_a_file_is_compared_with_the_previous_file(site: Site) -> None:
    for _ in range(3):
        site.now += 8 * DAY
        assert site.look() == "signed"
    assert (site.serial, site.signed.unsigned) == (4, 1)
    site.write(text(1, "new A 192.0.2.77\n"))
    outcome = site.reload()
    assert (outcome.result, outcome.serial) == ("refused", 4)
    assert "serial 1 did not advance while the zone changed (1 RRset)" in outcome.reason
    site.write(text(2, "new A 192.0.2.77\n"))
    assert site.reload() == ZoneResult("ark.arpa.", "reloaded", 5, 4)
    assert site.is_valid()
    site.write(text(9, "new A 192.0.2.78\n"))
    assert site.reload() == ZoneResult("ark.arpa.", "reloaded", 9, 5)
    site.write(text(3, "new A 192.0.2.79\n"))
    assert site.reload().result == "refused"
    assert site.reload(force=True) == ZoneResult("ark.arpa.", "reloaded", 10, 9), "what is signed never goes back"


@pytest.mark.parametrize(("style", "serial"), [("increment", 2), ("date", 2027011500), ("unix", NOW)])
def test_serials_chosen_by_the_server(tmp_path: Path, style: str, serial: int) -> None:
    site = Site(tmp_path, serial=style)
    site.start()
    site.write(text(1, "new A 192.0.2.77\n"))
    assert site.reload().result == "reloaded"
    assert site.serial == serial
    site.now += 8 * DAY
    assert site.look() == "signed"
    assert site.serial == {"increment": 3, "date": 2027012300, "unix": NOW + 8 * DAY}[style]
    again = site.serial
    site.start()
    assert site.serial == again
    site.write(text(1, "new A 192.0.2.78\n"))
    assert site.reload().result == "reloaded"
    assert site.serial > again


def test_a_zone_signed_for_the_first_time_continues_from_its_serial(site: Site) -> None:
    signing, plain = site.zone, replace(site.zone, keys=None)
    site.zone = plain
    site.start()
    assert site.serial == 1
    assert site.state.status(site.now).signing is None
    site.zone = signing
    assert site.reload().result == "signed"
    assert site.is_valid(2)
    site.zone = plain
    outcome = site.reload()
    assert "serial 1 went back from 2 while the zone changed" in outcome.reason
    site.write(text(3))
    assert site.reload().result == "reloaded"
    assert (site.serial, 46 in site.view.nodes[NAME]) == (3, False)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("style", "has_table"), [("file", True), ("increment", True), ("increment", False)])
def test_a_zone_that_goes_unsigned_gets_a_serial_after_the_signed_one(
    tmp_path: Path, style: str, has_table: bool, restarted: bool
) -> None:
    site = Site(tmp_path, serial=style)
    if has_table:
        site.zone.file.unlink()
        (tmp_path / "naans").write_text("naa:\nwho: Example\nwhat: 12345\nwhere: https://example.org\n\n")
        site.zone = replace(site.zone, table=tmp_path / "naans")
    site.start()
    for _ in range(3):
        site.now += 8 * DAY
        assert site.look() == "signed"
    before = site.serial
    site.zone = replace(site.zone, keys=None)
    if restarted:
        site.start()
    else:
        assert site.reload().result == "reloaded"
    after = site.serial
    assert after > before
    assert 46 not in site.view.nodes[NAME]
    assert site.reload() == ZoneResult("ark.arpa.", "unchanged", after, after)
    source = site.zone.table or site.zone.file
    source.write_text(source.read_text().replace("example.org", "example.net").replace("192.0.2.8", "192.0.2.9"))
    assert site.reload().result == "reloaded"
    assert (changed := site.serial) > after
    site.start()
    assert site.serial == changed


def test_a_changed_policy_applies_at_a_reload(site: Site) -> None:
    site.now += 30 * DAY
    assert site.look() == "signed"
    site.zone = replace(site.zone, signing=SigningConfig(zonemd=False))
    assert site.reload().serial == 3
    assert 63 not in site.view.nodes[NAME]
    assert site.reload().result == "unchanged"


def test_dnssec_records_in_the_zone_file_are_replaced(site: Site) -> None:
    """A file that another signer has signed is signed with the server's keys."""
    other = zonekeys.add_key(site.directory / "other", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE).key
    elsewhere = sign_zone(to_zone(stripped(site.view, 7)), [other], now=NOW, serial=7)
    elsewhere.to_file(str(site.directory / "zone"), relativize=False)
    assert site.reload().serial == 7
    assert site.is_valid()
    assert len(site.view.nodes[NAME][48].rdatas) == 1


# --- failures


BREAK: dict[str, Callable[[Site], object]] = {
    "contains no unencrypted PEM private key for ecdsap256sha256": lambda site: site.key().write_text("no key"),
    "has mode 0644: others can read or change the secret; chmod 600 it": lambda site: site.key().chmod(0o644),
    "keys: no active KSK or CSK: no key would match the DS at the parent": lambda site: site.retire(),
    "is not a regular file": lambda site: os.mkfifo(site.keys / "csk-ed25519-00001.active.pem", 0o600),
    "No such file or directory": lambda site: site.keys.rename(site.directory / "elsewhere"),
}


@pytest.mark.parametrize("error", BREAK)
def test_after_a_failure_the_old_zone_stays_and_signing_is_retried(
    site: Site, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "maptr")
    shutil.copytree(site.keys, site.directory / "saved")
    before = site.view
    BREAK[error](site)
    assert site.look() == "refused"
    assert site.view is before
    (alarm,) = site.alarms()
    assert alarm.startswith("zone ark.arpa. was not signed, still serving serial 1: ")
    assert error in alarm
    site.now += RETRY - 1
    assert site.look() == ""
    site.now += 1
    assert site.look() == "refused"
    assert site.alarms() == [alarm]
    assert caplog.messages.count(alarm) == 1, "the same reason is not logged again"
    shutil.rmtree(site.keys, ignore_errors=True)
    shutil.copytree(site.directory / "saved", site.keys)
    assert site.look() == "unchanged", "at once, and the zone is good as it is"
    assert site.alarms() == []
    assert caplog.messages[-1] == "alarm ended after 300 s: zone-not-signed ark.arpa."
    assert site.view is before


def test_signing_is_retried_even_if_the_clock_went_back(site: Site) -> None:
    """For example, after a failure at a start before the clock was set."""
    site.retire()
    assert site.look() == "refused"
    site.now -= 3650 * DAY
    assert site.look() == "refused"
    assert site.look() == ""


def test_an_accepted_version_is_signed_once_signing_works(site: Site) -> None:
    site.write(text(2, "new A 192.0.2.77\n"))
    site.key().chmod(0o644)
    outcome = site.reload()
    assert (outcome.result, outcome.serial) == ("refused", 1)
    assert outcome.reason.startswith("not signed: ")
    site.write(text(3, "not yet reloaded"))
    site.now += 60
    site.key().chmod(0o600)
    assert site.look() == "reloaded"
    assert site.serial == 2
    assert parse("new.ark.arpa.") in site.view.nodes
    assert site.is_valid()


def test_a_file_reverted_after_failed_signing_is_unchanged(site: Site) -> None:
    site.write(text(2, "new A 192.0.2.77\n"))
    site.key().chmod(0o644)
    site.reload()
    site.write(text(1))
    site.key().chmod(0o600)
    assert site.reload().result == "unchanged"
    assert (site.serial, site.look()) == (1, "")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Simulate a full disk. Returns a function that ends this."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "state")

    monkeypatch.setattr(state_folder, "write_signed", full)
    return monkeypatch.undo


def test_on_a_full_disk_the_old_zone_stays(site: Site, full_disk: object, caplog: pytest.LogCaptureFixture) -> None:
    site.now += 8 * DAY
    assert site.look() == "refused"
    assert "No space left on device" in site.alarms()[0]
    site.now = NOW + 12 * DAY + 1
    assert site.look() == "signed", "a zone that ends is worse than a serial that is not on record"
    assert "its signed version cannot be kept for the next start" in caplog.text
    assert site.is_valid()


def test_a_reload_retries_a_failed_signing(site: Site, full_disk: Callable[[], None]) -> None:
    """The operator has removed the cause, or wants to see the error, so a reload does not wait for the next retry."""
    site.now += 8 * DAY
    assert [site.look(), site.look()] == ["refused", ""], "it is not yet time"
    outcome = site.reload()
    assert (outcome.result, outcome.serial) == ("refused", 1)
    assert "not signed: " in outcome.reason
    full_disk()
    assert site.reload().result == "signed"
    assert (site.serial, site.alarms()) == (2, [])
    assert site.reload().result == "unchanged"
    assert site.is_valid()


def test_signing_again_after_a_wrong_clock_is_corrected(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.now += 1000 * DAY
    site.start()
    site.now = NOW
    assert "signatures are not valid yet" in site.alarms()[0]
    assert site.look() == "signed"
    assert site.alarms() == []
    assert site.is_valid()


# --- restarts


def test_a_restart_continues_with_the_stored_version(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.now += 8 * DAY
    site.look()
    before = site.view
    caplog.set_level(logging.INFO, "maptr")
    site.start()
    assert (site.serial, site.signed.unsigned) == (2, 1)
    assert not ZoneDiff.between(before, site.view)
    assert " signed" not in caplog.text
    site.write(text(2, "new A 192.0.2.77\n"))
    assert site.reload().serial == 3


def test_changes_while_the_server_was_down_are_signed_at_the_start(site: Site) -> None:
    site.now += 8 * DAY
    site.look()
    site.write(text(2, "new A 192.0.2.77\n"))
    site.start()
    assert site.is_valid(3)
    site.now += 20 * DAY
    site.start()
    assert site.is_valid(4)


def test_a_version_stored_but_never_served_is_served(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is killed after the version was written and before it was served."""

    class Killed(BaseException):
        pass

    write = state_folder.write_signed

    def killed(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        raise Killed

    site.now += 8 * DAY
    with monkeypatch.context() as patch:
        patch.setattr(state_folder, "write_signed", killed)
        with pytest.raises(Killed):
            site.look()
    site.start()
    assert site.is_valid(2)


def test_a_start_with_unusable_keys_serves_the_stored_version(site: Site) -> None:
    site.now += 8 * DAY
    site.look()
    site.key().chmod(0o644)
    site.write(text(2, "new A 192.0.2.77\n"))
    assert site.start() is not None
    assert site.serial == 2
    assert "was not signed, still serving serial 2" in site.alarms()[0]
    assert site.reload().result == "refused"
    site.key().chmod(0o600)
    assert site.look() == "reloaded"
    assert site.serial == 3
    assert parse("new.ark.arpa.") in site.view.nodes


def test_servfail_after_a_start_with_unusable_keys_and_no_stored_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "maptr")
    site = Site(tmp_path)
    site.key().chmod(0o644)
    assert site.start() is None
    assert NAME in snapshot_of(site.served).broken
    assert "is not loaded, queries get SERVFAIL: not signed: " in site.alarms()[0]
    assert site.look() == ""
    site.key().chmod(0o600)
    assert site.look() == "loaded"
    assert site.is_valid(1)
    assert caplog.text.count("zone ark.arpa.: signing its 11 names") == 1


def test_a_bad_zone_file_at_the_start_is_not_retried(site: Site) -> None:
    site.write("rubbish")
    assert site.start() is not None
    assert site.look() == ""
    site.write(text(2, "new A 192.0.2.77\n"))
    assert site.reload().result == "reloaded"
    assert site.is_valid(2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-10],
        lambda text: text.replace("192.0.2.5", "192.0.2.6"),
        lambda text: "",
        lambda text: "\0" * 100,
        lambda text: text.replace("serial 1", "serial 2"),
    ],
)
def test_a_damaged_stored_version_is_ignored(site: Site, damage: object, caplog: pytest.LogCaptureFixture) -> None:
    path = signed_path(site.directory / "state", NAME)
    whole = path.read_text()
    path.write_text(damage(whole))  # type: ignore[operator]
    kept.path_of(site.directory / "state", NAME).unlink()
    site.start()
    assert site.is_valid(1)
    assert f"{path}: is damaged" in caplog.text


def test_a_damaged_stored_version_is_logged_once_without_keys(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    signed_path(site.directory / "state", NAME).write_text("")
    kept.path_of(site.directory / "state", NAME).unlink()
    site.retire()
    site.start()
    for _ in range(3):
        site.now += RETRY
        assert site.look() == "refused"
    assert caplog.text.count("is damaged") == 1
