"""The catalog of a server: members follow the configuration, and the serial follows the content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import dns.query
import dns.rcode
import dns.zone
import pytest

from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.config.model import CatalogConfig
from maptr.protocol.names import Folded, fold, parse
from maptr.server import catalog
from maptr.server.catalog import Catalog
from maptr.transfer.catalog import member_label
from tests.support.server_process import Site, address_of, zone_text
from tests.support.server_process import site as site
from tests.support.waiting import PATIENCE

NAME = parse("catalog.invalid.")
NOW = 1_800_000_000
YEAR = 365 * 86400
SERVE = 'state = "state"\ncatalog.name = "catalog.invalid"\ncatalog.transfer = ["127.0.0.1"]'
ZONES = ("a.test", "b.test", "c.test", "d.test")


# ---- the serial


def config_of(folder: Path | None, *zones: str) -> Config:
    named = tuple(ZoneConfig(fold(parse(name)), Path("z")) for name in zones)
    return Config(ServeConfig(state=folder, catalog=CatalogConfig(NAME)), zones=named)


def serial_at_start(config: Config, now: float = NOW, others: tuple[int, ...] = ()) -> int:
    view = Catalog().following(config, None, now, lambda origin: others)
    assert view is not None
    return view.serial


def test_the_serial_outlives_a_restart_and_changes_only_with_the_content(tmp_path: Path) -> None:
    one, two = config_of(tmp_path, "a.test"), config_of(tmp_path, "a.test", "b.test")
    assert serial_at_start(one) == NOW
    assert serial_at_start(one, NOW + 60) == NOW
    assert serial_at_start(two, NOW + 120) == NOW + 1
    assert serial_at_start(replace(two, zones=two.zones[::-1]), NOW) == NOW + 1, "the order is no content"
    assert serial_at_start(one, NOW) == NOW + 2


@pytest.mark.parametrize("wrong", [-YEAR, YEAR])
def test_the_serial_never_goes_back_after_a_wrong_clock(wrong: int, tmp_path: Path) -> None:
    first = serial_at_start(config_of(tmp_path, "a.test"), NOW + wrong)
    assert serial_at_start(config_of(tmp_path, "a.test", "b.test"), NOW) == first + 1


def test_a_lost_serial_begins_with_the_time_and_passes_the_secondaries(tmp_path: Path) -> None:
    config = config_of(tmp_path, "a.test")
    assert serial_at_start(config, NOW, (NOW - 5,)) == NOW
    catalog.path_of(tmp_path, NAME).unlink()
    assert serial_at_start(config, NOW, (NOW + YEAR,)) == NOW + YEAR + 1


def test_a_reload_passes_a_secondary_that_is_ahead(tmp_path: Path) -> None:
    config, kept = config_of(tmp_path, "a.test"), Catalog()
    view = kept.following(config, None, NOW)
    assert kept.following(config, view, NOW, lambda origin: (NOW + 5,)) is view
    later = kept.following(config, view, NOW, lambda origin: (NOW + 5,), passing=True)
    assert later is not None
    assert later.serial == NOW + 6
    assert serial_at_start(config) == NOW + 6


def with_digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


WRONG = (
    b"1",
    b"[]",
    b'{"members": 1}',
    b'{"serial": "1", "digest": ""}',
    b'{"serial": -1, "digest": ""}',
    b"[" * 99999,
)


@pytest.mark.parametrize("damage", [b"", b"\0" * 200, b"{}", b"x\n{}", *map(with_digest, WRONG)], ids=range(10))
def test_a_damaged_file_is_an_alarm_and_no_serial(damage: bytes, tmp_path: Path) -> None:
    config, kept = config_of(tmp_path, "a.test"), Catalog()
    serial_at_start(config)
    path = catalog.path_of(tmp_path, NAME)
    path.write_bytes(damage)
    view = kept.following(config, None, NOW + 9)
    assert view is not None
    assert view.serial == NOW + 9
    (alarm,) = kept.alarms(config, {})
    assert (alarm.kind, str(path) in alarm.text) == ("state-damaged", True)
    assert serial_at_start(config, NOW + 60) == NOW + 9, "it was written anew"


def test_a_catalog_that_cannot_be_kept_is_served_with_an_alarm(tmp_path: Path) -> None:
    config, kept = config_of(tmp_path, "a.test"), Catalog()
    blocked = tmp_path / ".catalog.invalid.catalog.new"
    blocked.mkdir()
    view = kept.following(config, None, NOW)
    assert view is not None
    assert [alarm.kind for alarm in kept.alarms(config, {})] == ["zone-not-kept"]
    blocked.rmdir()
    assert kept.following(config, view, NOW) is view, "kept by the next reload"
    assert list(kept.alarms(config, {})) == []
    assert serial_at_start(config, NOW + 60) == NOW


@pytest.mark.parametrize(
    ("members", "configured", "lost"),
    [
        ("abcd", "abcd", ""),
        ("abcd", "abc", ""),
        ("abcd", "ab", "cd"),
        ("abc", "ab", "c"),
        ("ab", "a", "b"),
        ("ab", "xyz", "ab"),
        ("a", "", ""),
        ("a", "b", ""),
        ("", "ab", ""),
        ("abcdefghij", "abcdefg", ""),
        ("abcdefghij", "abcdef", "ghij"),
    ],
)
def test_more_than_30_percent_of_two_or_more_members_stay(members: str, configured: str, lost: str) -> None:
    names = [[Folded((each.encode(),)) for each in text] for text in (members, configured, lost)]
    assert [*catalog.lost_members(names[0], names[1])] == names[2]


# ---- the members


def members_of(port: int, names: tuple[str, ...] = ZONES) -> tuple[list[str], int]:
    """Return which of these are members, and the serial of the catalog."""
    zone = dns.zone.from_xfr(dns.query.xfr("127.0.0.1", "catalog.invalid.", port=port, lifetime=PATIENCE))
    labels = {member_label(parse(name)).decode(): name for name in names}
    owners = (str(owner).partition(".")[0] for owner in zone.nodes)
    return sorted(labels[owner] for owner in owners if owner in labels), zone.find_rdataset("@", "SOA")[0].serial


@pytest.fixture
def served(site: Site) -> Site:
    for number, name in enumerate(ZONES):
        site.write_zone(name, zone_text(1, f"192.0.2.{number + 1}"))
    site.configure(zones=ZONES, serve=SERVE)
    return site


def test_a_zone_that_cannot_be_loaded_is_a_member(served: Site) -> None:
    served.write_zone("b.test", "not a zone")
    port = served.start()
    assert members_of(port)[0] == [*ZONES]
    assert address_of("ns.b.test.", port) == "", "SERVFAIL"


def test_a_restart_has_the_same_serial(served: Site) -> None:
    before = members_of(served.start())
    served.server.stop()
    assert members_of(served.start()) == before


def restart(served: Site, *, how: str) -> int:
    """Reload, or stop and start; return the port."""
    if how == "reload":
        result = served.run("reload")
        assert result.exit_code == 1
        assert "zone c.test. refused, still serving serial 1: it is no longer configured" in result.output
        return served.server.ready()
    served.server.stop()
    return served.start()


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_many_members_that_are_lost_stay_until_force(how: str, served: Site) -> None:
    port = served.start()
    before = members_of(port)
    served.configure(zones=("a.test", "b.test"), serve=SERVE)
    port = restart(served, how=how)
    for again in range(2):
        assert members_of(port) == before
        assert address_of("ns.d.test.", port) == "192.0.2.4"
        answer = dns.query.xfr("127.0.0.1", "c.test.", port=port, lifetime=PATIENCE)
        assert dns.zone.from_xfr(answer)["ns"], "it is transferred by the rules of the catalog"
        (alarm,) = served.status()["alarms"]
        assert alarm["kind"] == "members-kept"
        assert "2 of 4 members are no longer configured: c.test., d.test.;" in alarm["text"]
        assert "maptr reload --force" in alarm["text"]
        if not again:
            assert served.run("reload").exit_code == 1
            assert served.run("reload", "a.test").exit_code == 0
            assert served.run("reload", "c.test").exit_code == 1
    assert served.run("reload", "--force").exit_code == 0
    assert members_of(port) == (["a.test", "b.test"], before[1] + 1)
    assert address_of("ns.d.test.", port) == ""
    assert served.status()["alarms"] == []
    served.server.stop()
    assert members_of(served.start()) == (["a.test", "b.test"], before[1] + 1)


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_members_that_are_configured_again_are_ordinary_zones(how: str, served: Site) -> None:
    before = members_of(served.start())
    served.configure(zones=("a.test",), serve=SERVE)
    port = restart(served, how=how)
    served.write_zone("d.test", zone_text(2, "192.0.2.99"))
    served.configure(zones=ZONES, serve=SERVE)
    assert served.run("reload").exit_code == 0
    assert members_of(port) == before
    assert address_of("ns.d.test.", port) == "192.0.2.99"
    assert served.status()["alarms"] == []


def test_few_members_are_taken_out_at_once(served: Site) -> None:
    port = served.start()
    before = members_of(port)
    served.configure(zones=ZONES[:3], serve=SERVE)
    assert served.run("reload").exit_code == 0
    assert members_of(port) == ([*ZONES[:3]], before[1] + 1)


def test_a_member_without_a_kept_version_stays_a_member(served: Site) -> None:
    """Its queries get SERVFAIL, but no secondary purges it."""
    before = members_of(served.start())
    served.server.stop()
    for name in ("c.test", "d.test"):
        (served.directory / "state" / f"{name}.kept").unlink()
    served.configure(zones=("a.test", "b.test"), serve=SERVE)
    port = served.start()
    assert members_of(port) == before
    kinds = [alarm["kind"] for alarm in served.status()["alarms"]]
    assert sorted(kinds) == ["members-kept", "zone-not-loaded", "zone-not-loaded"]


def test_the_status_has_the_held_zones(served: Site) -> None:
    served.start()
    served.configure(zones=("a.test",), serve=SERVE)
    served.run("reload")
    found = json.loads(served.run("status", "--json").stdout)
    assert [zone["zone"] for zone in found["zones"]] == [f"{name}." for name in ZONES]


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_members_that_are_held_stay_if_one_of_them_is_configured_again_and_others_are_new(
    how: str, served: Site
) -> None:
    """The rest of them would then be few, and leave the catalog without a person."""
    served.start()
    served.configure(zones=("a.test", "b.test"), serve=SERVE)
    assert served.run("reload").exit_code == 1
    new = ("e.test", "f.test")
    for name in new:
        served.write_zone(name, zone_text(1))
    served.configure(zones=("a.test", "b.test", "c.test", *new), serve=SERVE)
    if how == "reload":
        assert served.run("reload").exit_code == 1
        port = served.server.ready()
    else:
        served.server.stop()
        port = served.start()
    assert members_of(port, (*ZONES, *new))[0] == [*ZONES, *new]
    assert address_of("ns.d.test.", port) == "192.0.2.4"
    (alarm,) = served.status()["alarms"]
    assert "1 of 6 members are no longer configured: d.test.;" in alarm["text"]
