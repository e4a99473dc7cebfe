"""The last good version: a start never serves less than the last run, whatever happened to a zone's source."""

from __future__ import annotations

import os
import shutil
import socket
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import dns.message
import dns.opcode
import dns.query
import dns.rdatatype
import dns.rrset
import dns.zone
import pytest

from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.daemon import kept, progress
from maptr.dnssec import keys as zonekeys
from maptr.dnssec.keys import Algorithm, KeyState, Role
from maptr.gateway.zones import ZoneFiles
from maptr.protocol.names import fold, parse
from maptr.server import publisher, state_folder
from maptr.zone.check import read_checked
from maptr.zone.diff import Published, ZoneDiff
from maptr.zone.snapshot import ZoneView
from tests.support.command_line import run
from tests.support.ports import free_port
from tests.support.registries import natab
from tests.support.server_process import Site as Server
from tests.support.server_process import address_of, zone_text
from tests.support.server_process import site as server  # noqa: F401 - a fixture
from tests.support.waiting import PATIENCE, until
from tests.support.zone_site import ZoneSite

pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")

NAME = fold(parse("ark.arpa."))
NOW = 1_800_000_000.0
DAY = 86400.0
YEAR = 365 * DAY
KINDS = ("file", "chosen", "table", "signed", "signed chosen", "signed table")


def text(serial: int, names: int = 9, extra: str = "") -> str:
    records = "".join(f"n{number} A 192.0.2.{number}\n" for number in range(names))
    return f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{records}{extra}"


class Site(ZoneSite):
    """A zone of a kind, which was published in one run."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.table = folder / "naans"
        self.keys = folder / "keys"
        zone = ZoneConfig(
            NAME,
            folder / "zone",
            state=folder / "state",
            serial="increment" if "chosen" in kind else "file",
            keys=self.keys if "signed" in kind else None,
            table=self.table if "table" in kind else None,
        )
        super().__init__(zone, NOW)
        if zone.keys:
            zonekeys.add_key(zone.keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
        if zone.table:
            self.table.write_bytes(natab(*range(10000, 10010)))
        else:
            zone.file.write_text(text(5))
        self.start()
        assert self.state.error == ""
        self.before = self.view

    def again(self) -> ZoneView | None:
        return self.start()

    def is_kept(self) -> bool:
        """Whether all that was served is still served."""
        view = self.state.view
        return view is not None and view.serial == self.before.serial and not ZoneDiff.between(self.before, view)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path, request.param)


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def gone(site: Site) -> None:
    delete(site.zone.file)
    delete(site.table)


def folder_in_its_place(site: Site) -> None:
    for path in (site.zone.file, site.table):
        delete(path)
        path.mkdir()


def typo(site: Site) -> None:
    site.zone.file.write_text(text(6) + "x NAPTRR 1\n")


def shrunk(site: Site) -> None:
    site.zone.file.write_text(text(6, names=2))


def wrong_digest(site: Site) -> None:
    site.zone.file.write_text(text(6, 9, f"@ ZONEMD 6 1 1 {'0' * 96}\n"))


def empty(site: Site) -> None:
    site.zone.file.write_text("")
    site.table.write_text("")


def cut(site: Site) -> None:
    whole = site.zone.file.read_bytes()
    site.zone.file.write_bytes(whole[: len(whole) // 2] + b"(")


def noise(site: Site) -> None:
    site.zone.file.write_bytes(bytes(range(256)) * 9)


def including_nul(site: Site) -> None:
    site.zone.file.write_bytes(text(6).encode() + b"$INCLUDE a\0b\n")


FAULTS = (gone, folder_in_its_place, typo, shrunk, wrong_digest, empty, cut, noise, including_nul)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_start_with_a_bad_source_serves_the_last_version(
    site: Site, fault: Callable[[Site], None], caplog: pytest.LogCaptureFixture
) -> None:
    if site.zone.table and fault is shrunk:
        pytest.skip("the file of a built zone is made again")
    fault(site)
    for _ in range(2):
        site.again()
        if "table" in site.kind and fault is empty:
            site.reload()  # an empty file is built again, as the puller does after each start
        assert site.is_kept()
        (alarm,) = site.alarms()
        assert "zone ark.arpa. was not reloaded, still serving serial " in alarm
        assert f"published 2027-01-15T08:00:00Z: {site.folder}" in alarm or "max_shrink" in alarm
        assert "maptr reload ark.arpa." in alarm
    status = site.state.status(site.now)
    assert (status.error != "", status.serial, status.published) == (True, site.before.serial, NOW)
    assert "queries get SERVFAIL" not in caplog.text


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "table" not in kind])
def test_a_source_that_is_mended_is_served_and_force_takes_it_as_it_is(tmp_path: Path, kind: str) -> None:
    site = Site(tmp_path, kind)
    shrunk(site)
    site.again()
    assert site.alarms()[0].endswith("; maptr reload ark.arpa. --force accepts it as it is")
    assert site.reload().result == "refused"
    assert site.reload(force=True).result == "reloaded"
    assert (site.alarms(), parse("n8.ark.arpa.") in site.view.nodes) == ([], False)
    site.again()
    assert (site.alarms(), parse("n8.ark.arpa.") in site.view.nodes) == ([], False)


@pytest.mark.parametrize("kind", ["file", "signed"])
def test_a_start_refuses_a_serial_that_went_back_or_stayed_as_a_reload_does(tmp_path: Path, kind: str) -> None:
    site = Site(tmp_path, kind)
    for serial in (4, 5):
        site.zone.file.write_text(text(serial, extra="new A 192.0.2.77\n"))
        site.again()
        assert site.is_kept()
        assert f"serial {serial} " in site.alarms()[0]
    site.zone.file.write_text(text(6, extra="new A 192.0.2.77\n"))
    site.again()
    assert (site.alarms(), parse("new.ark.arpa.") in site.view.nodes) == ([], True)


def test_what_lint_refuses_is_not_served_after_a_start(tmp_path: Path) -> None:
    site = Site(tmp_path, "file")
    site.zone = replace(site.zone, lint="refuse")
    site.zone.file.write_text(text(6, extra='12345 NAPTR 1 1 "" "ark" "" 12345\n'))
    site.again()
    assert site.is_kept()
    assert "redirect" in site.alarms()[0]


def test_other_rules_are_applied_to_an_unchanged_file(tmp_path: Path) -> None:
    """A version that the present rules refuse stays, as what was published does, and each start says so."""
    site = Site(tmp_path, "file")
    site.zone.file.write_text(text(6, extra='12345 NAPTR 1 1 "" "ark" "" 12345\n'))
    assert site.reload().result == "reloaded"
    site.zone = replace(site.zone, lint="refuse")
    for _ in range(2):
        site.again()
        assert (site.serial, len(site.alarms())) == (6, 1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "signed" in kind])
@pytest.mark.parametrize("fault", ["gone", "open", "broken"])
def test_a_start_with_unusable_keys_serves_the_last_version(tmp_path: Path, kind: str, fault: str) -> None:
    site = Site(tmp_path, kind)
    (key,) = site.keys.glob("*.pem")
    if fault == "gone":
        shutil.rmtree(site.keys)
    elif fault == "open":
        key.chmod(0o644)
    else:
        key.write_text("-----BEGIN\n")
    for _ in range(2):
        site.again()
        assert site.is_kept()
        assert any("was not signed, still serving serial" in alarm for alarm in site.alarms())
    gone(site)  # all at once
    site.again()
    assert site.is_kept()
    site.now += 60 * DAY  # and for long
    site.again()
    assert site.is_kept()
    assert any("expired" in alarm for alarm in site.alarms())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "signed" in kind])
def test_signatures_of_a_kept_version_are_renewed(tmp_path: Path, kind: str) -> None:
    site = Site(tmp_path, kind)
    gone(site)
    for later in (60 * DAY, 2 * YEAR):
        site.now = NOW + later
        before = site.serial
        site.again()
        site.served, _ = publisher.sign_again(site.served, clock=site.clock)
        assert site.serial > before
        assert [alarm for alarm in site.alarms() if ": signatures" in alarm] == []
        assert parse("n1.ark.arpa." if "table" not in kind else "10001.ark.arpa.") in site.view.nodes


def test_a_signed_version_is_not_used_without_keys(tmp_path: Path) -> None:
    site = Site(tmp_path, "signed")
    site.zone = replace(site.zone, keys=None)
    gone(site)
    assert site.again() is None
    site.zone.file.write_text(text(6))
    assert site.again() is not None
    gone(site)
    assert site.again() is not None, "the unsigned version was kept meanwhile"
    site.zone = replace(site.zone, keys=site.keys)
    site.again()
    assert site.serial == 6, "the version that was signed long ago is not newer"


def test_keys_that_are_new_and_unusable_leave_the_unsigned_version(tmp_path: Path) -> None:
    site = Site(tmp_path, "file")
    site.zone = replace(site.zone, keys=site.folder / "nowhere")
    site.again()
    assert site.is_kept()
    assert "was not signed" in site.alarms()[0]
    site.again()
    assert site.is_kept()


def test_an_unchanged_source_is_not_read_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("the file was read")

    monkeypatch.setattr(publisher, "read_checked", read)
    for later in (0.0, YEAR, -YEAR) if "signed" not in site.kind else (0.0, DAY):
        site.now = NOW + later
        site.again()
        assert (site.state.error, site.alarms()) == ("", [])
        assert site.is_kept()
        assert site.state.published == NOW


def test_a_changed_include_is_read_again(tmp_path: Path) -> None:
    site = Site(tmp_path, "file")
    include = site.folder / "more"
    include.write_text("m A 192.0.2.50\n")
    site.zone.file.write_text(text(6, extra=f"$INCLUDE {include}\n"))
    site.again()
    include.write_text("m A 192.0.2.50\nm2 A 192.0.2.51\n")
    site.again()
    assert "serial 6 did not advance" in site.alarms()[0]
    include.unlink()
    site.again()
    assert (site.serial, str(include) in site.alarms()[0]) == (6, True)


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_no_clock_unpublishes(site: Site, jump: float) -> None:
    site.now += jump
    site.again()
    assert site.view.nodes.keys() >= {parse("ark.arpa.")}
    gone(site)
    site.again()
    site.now = NOW
    site.again()
    assert site.state.view is not None
    assert site.view.nodes.count() == site.before.nodes.count()


def damaged(whole: bytes) -> Iterator[bytes]:
    for at in {*range(0, len(whole), 97), len(whole) - 1}:
        yield whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
    for at in range(0, len(whole), 211):
        yield whole[:at]
    yield whole.replace(b"maptr kept zone 1", b"maptr kept zone 2")


def test_a_damaged_kept_version_is_made_again_from_the_source(site: Site) -> None:
    path = kept.path_of(site.folder / "state", NAME)
    whole = path.read_bytes()
    for data in damaged(whole):
        path.write_bytes(data)
        site.again()
        assert site.is_kept()
        assert site.state.error == ""
    path.unlink()
    path.mkdir()
    site.again()
    assert site.is_kept()
    assert "is not kept for the next start" in site.alarms()[0]


def test_a_version_that_was_refused_is_not_kept(site: Site) -> None:
    typo(site)
    site.reload()
    site.zone.file.unlink()
    site.again()
    assert site.is_kept()


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device", "state")


def test_a_full_disk_stops_neither_start_nor_publication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "file")
    with monkeypatch.context() as patch:
        patch.setattr(kept, "write_private_parts", full)
        site.zone.file.write_text(text(6))
        site.again()
        assert site.serial == 6
        (alarm,) = site.alarms()
        assert alarm.startswith("zone ark.arpa. is not kept for the next start: state: No space left on device; ")
        assert alarm.endswith("then maptr reload ark.arpa.")
        site.zone.file.write_text(text(7))
        assert site.reload().serial == 7
    site.served = publisher.keep(site.served)
    assert site.alarms() == []
    gone(site)
    site.again()
    assert site.serial == 7


def test_a_newer_signed_file_than_the_kept_version_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends between both."""
    site = Site(tmp_path, "signed")
    site.now += 20 * DAY
    with monkeypatch.context() as patch:
        patch.setattr(kept, "write_private_parts", full)
        site.served, _ = publisher.sign_again(site.served, clock=site.clock)
    assert site.serial > site.before.serial
    last, site.now = site.serial, site.now + 1
    gone(site)
    site.again()
    assert site.serial == last


@pytest.mark.parametrize("how", ["head", "pipe"])
def test_a_damaged_signed_file_is_written_again_from_the_kept_version(tmp_path: Path, how: str) -> None:
    site = Site(tmp_path, "signed")
    path = tmp_path / "state" / "ark.arpa.signed"
    whole = path.read_bytes()
    if how == "head":
        path.write_bytes(b"x" + whole)
    else:
        path.unlink()
        os.mkfifo(path)
    site.again()
    assert site.is_kept()
    assert ".signed" in site.alarms()[0]
    assert path.read_bytes() == whole
    site.again()
    assert site.is_kept()
    assert site.alarms() == []


def test_a_serial_that_a_start_raises_without_a_known_reason_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a version of maptr that kept nothing but serials, with digests of its own."""
    site = Site(tmp_path, "chosen")
    (tmp_path / "state" / "ark.arpa.kept").unlink(missing_ok=True)
    state_folder.write_serial(tmp_path / "state", NAME, Published(5, "other"))
    caplog.set_level("INFO")
    site.again()
    assert site.serial == 6
    assert "zone ark.arpa.: serial 6 follows 5: its content may differ" in caplog.text
    site.again()
    assert site.serial == 6


def test_a_zone_without_state_folder_is_not_kept(tmp_path: Path) -> None:
    site = ZoneSite(ZoneConfig(NAME, tmp_path / "zone"), NOW)
    site.zone.file.write_text(text(1))
    assert site.start() is not None
    site.zone.file.unlink()
    assert site.start() is None
    assert site.reload().result == "refused"


def test_an_unexpected_exception_is_the_error_of_one_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zones = []
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(text(1))
        zones.append(ZoneConfig(fold(parse(name)), tmp_path / name, state=tmp_path / "state"))

    def broken(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "b":
            raise ZeroDivisionError("no such luck")
        return read_checked(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(publisher, "read_checked", broken)
    for _ in "start", "reload":
        served = publisher.start(zones, clock=lambda: NOW)
        served, results = publisher.publish(zones, served, clock=lambda: NOW)
        assert [result.result for result in results] == ["unchanged", "refused", "unchanged"]
        assert f"{tmp_path / 'b'}: internal error, see the log: no such luck" in results[1].reason
    monkeypatch.undo()
    served, _ = publisher.publish(zones, served, clock=lambda: NOW)
    (tmp_path / "b").write_text(text(2))
    monkeypatch.setattr(publisher, "read_checked", broken)
    served = publisher.start(zones, clock=lambda: NOW)
    assert [state.view is not None for state in served.values()] == [True, True, True]
    assert "Traceback" in caplog.text


def test_a_zone_that_is_not_configured_is_set_aside(tmp_path: Path) -> None:
    site = Site(tmp_path, "signed")
    state = tmp_path / "state"
    config = Config(serve=ServeConfig(state=state), zones=(site.zone,))
    state_folder.tidy(config, NOW)
    assert sorted(path.name for path in state.glob("[!.]*")) == ["ark.arpa.kept", "ark.arpa.serial", "ark.arpa.signed"]
    state_folder.tidy(replace(config, zones=()), NOW)
    assert sorted(path.suffix for path in state.glob("[!.]*")) == [".aside", ".aside", ".serial"]
    gone(site)
    assert site.again() is None, "the zone is configured again, and does not come back by itself"
    site.zone.file.write_text(text(5))
    site.again()
    assert site.serial >= site.before.serial
    assert state_folder.last_removed(state, NAME) is not None


# --- a server


@pytest.mark.parametrize("fault", ["gone", "typo", "shrunk", "folder"])
def test_a_restarted_server_transfers_notifies_and_is_healthy(server: Server, fault: str) -> None:  # noqa: F811
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as secondary:
        secondary.bind(("127.0.0.1", 0))
        secondary.settimeout(PATIENCE)
        serve = f'state = "state"\nmetrics = "127.0.0.1:{free_port()}"'
        notify = f'transfer = ["127.0.0.1"]\nnotify = ["127.0.0.1:{secondary.getsockname()[1]}"]\n'
        server.configure(notify, zones=("b.test", "a.test"), serve=serve)
        server.write_zone("a.test", zone_text(1) + "".join(f"n{number} A 192.0.2.8\n" for number in range(9)))
        server.start()
        server.write_zone("a.test", zone_text(2) + "".join(f"n{number} A 192.0.2.8\n" for number in range(9)))
        assert server.run("reload", "a.test").exit_code == 0
        server.server.stop()
        file = server.directory / "a.test.zone"
        file.unlink()
        if fault == "folder":
            file.mkdir()
        elif fault != "gone":
            file.write_text(zone_text(3) + ("x NAPTRR\n" if fault == "typo" else ""))
        checked = run("serve", "--config", server.config, "--check-config")
        assert checked.exit_code in (1, 8)
        assert "zone a.test.: a start would serve the last good version, serial 2, published 20" in checked.stderr
        port = server.start()
        assert (address_of("n1.a.test.", port), address_of("ns.b.test.", port)) == ("192.0.2.8", "192.0.2.1")
        axfr = dns.zone.from_xfr(dns.query.xfr("127.0.0.1", "a.test.", port=port, lifetime=PATIENCE))
        assert len(axfr.nodes) == 12
        query = dns.message.make_query("a.test.", "IXFR")
        known = dns.rrset.from_text("a.test.", 60, "IN", "SOA", "ns.a.test. host.a.test. 1 7200 3600 1209600 300")
        query.authority.append(known)
        answer = dns.query.tcp(query, "127.0.0.1", PATIENCE, port).answer
        assert next(rrset[0].serial for rrset in answer if rrset.rdtype == dns.rdatatype.SOA) == 2
        assert sum(map(len, answer)) < 12, "the changes alone"
        said = dns.message.from_wire(secondary.recv(4096))
        assert said.opcode() == dns.opcode.NOTIFY
        url = server.server.wait_for(r"metrics on (http://.*)/metrics")[1]
        with urllib.request.urlopen(f"{url}/health") as response:
            assert response.status == 200
        (alarm,) = (one for one in server.status()["alarms"] if one["kind"] == "zone-refused")
        assert (alarm["zone"], "serial 2, published 20" in alarm["text"]) == ("a.test.", True)
        assert alarm["since"]


def test_a_removed_zone_is_set_aside_by_reload_and_start(server: Server) -> None:  # noqa: F811
    server.configure(serve='state = "state"')
    server.start()
    state = server.directory / "state"
    until(lambda: (state / "a.test.kept").exists() and (state / "b.test.kept").exists(), server.server.log)
    server.configure(serve='state = "state"', zones=("b.test",))
    assert server.run("reload").exit_code == 0
    (aside,) = state.glob("*.aside")
    assert aside.name.startswith("a.test.kept.20")
    (server.directory / "a.test.zone").unlink()
    server.configure(serve='state = "state"')
    server.server.stop()
    server.start()
    assert server.zone("a.test.")["serial"] is None
    server.configure(serve='state = "state"', zones=("a.test",))
    server.server.stop()
    server.start()
    until(lambda: len([*state.glob("*.aside")]) == 2, server.server.log)


def test_a_state_folder_that_cannot_be_written_to_stops_nothing(server: Server) -> None:  # noqa: F811
    """A folder in place of each file that the server would write, so that the test holds for root too."""
    server.configure(serve='state = "state"')
    state = server.directory / "state"
    for name in (".a.test.kept.new", ".b.test.kept.new"):
        (state / name).mkdir(parents=True)
    port = server.start()
    assert address_of("ns.a.test.", port) == "192.0.2.1"
    until(lambda: len(server.status()["alarms"]) == 2, server.server.log)
    assert {alarm["kind"] for alarm in server.status()["alarms"]} == {"zone-not-kept"}
    assert server.zone("a.test.")["keep_error"]


def test_a_long_start_says_what_it_does(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level("INFO", "maptr")
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with progress.StartProgress() as doing:
        doing.doing = "loading zone a.test., 3 of 7"
        until(lambda: "starting for 0 s: loading zone a.test., 3 of 7" in caplog.messages, str)


# --- the gateway


def test_the_gateway_reads_the_version_that_the_server_serves(site: Site) -> None:
    seconds = count(0.0, 10.0)
    fault = typo if "table" not in site.kind else gone
    fault(site)
    site.again()
    zones = ZoneFiles([site.zone], clock=lambda: next(seconds))
    assert (zones.troubles, zones.snapshot is not None) == ([], True)
    assert zones.snapshot is not None
    assert not ZoneDiff.between(zones.snapshot.zones[NAME], site.view)
    if "table" not in site.kind:
        site.zone.file.write_text(text(7, extra="new A 192.0.2.77\n"))
        snapshot = zones.refresh()
        assert snapshot is not None
        assert parse("new.ark.arpa.") not in snapshot.zones[NAME].nodes, "the server has not read it"
        site.reload()
        snapshot = zones.refresh()
        assert snapshot is not None
        assert snapshot.zones[NAME].serial == site.serial
    assert sorted(path.suffix for path in (site.folder / "state").iterdir()) == sorted(
        path.suffix for path in (site.folder / "state").iterdir() if path.suffix in (".kept", ".signed", ".serial")
    )


def test_the_gateway_reads_the_file_without_a_usable_kept_version(tmp_path: Path) -> None:
    site = Site(tmp_path, "file")
    kept.path_of(tmp_path / "state", NAME).write_bytes(b"x")
    zones = ZoneFiles([site.zone])
    assert (zones.troubles, zones.snapshot is not None) == ([], True)


def test_a_restart_opens_two_files_for_each_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept version and the zone file: with thousands of zones, each more is felt."""
    zones = [
        ZoneConfig(fold(parse(f"z{number}.")), tmp_path / f"z{number}", state=tmp_path / "state") for number in range(5)
    ]
    for zone in zones:
        zone.file.write_text(text(1))
    publisher.keep(publisher.start(zones, clock=lambda: NOW))
    opened = []

    def noted(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(Path(path).name)
        return os_open(path, *arguments, **options)

    os_open = os.open
    monkeypatch.setattr(os, "open", noted)
    served = publisher.start(zones, clock=lambda: NOW)
    assert all(state.is_kept and state.view is not None for state in served.values())
    assert sorted(opened) == sorted(f"z{number}{suffix}" for number in range(5) for suffix in ("", kept.SUFFIX))
