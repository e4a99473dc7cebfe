"""A serial stands for one content: the next one exceeds those of secondaries, whatever was lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.config.model import CatalogConfig, SecondariesConfig
from maptr.protocol.address import Address
from maptr.protocol.names import Folded, fold, parse
from maptr.protocol.serial import MAX_AHEAD
from maptr.server import serials
from maptr.server.alarm import AlarmKind, Silence
from maptr.server.secondaries import SecondaryMonitor
from maptr.server.serials import SecondarySerials
from maptr.transfer.acl import NotifyTarget
from maptr.zone.diff import Published
from tests.server.test_secondaries import Secondary, soa
from tests.support.ports import free_port
from tests.support.zone_site import ZoneSite

NAME = fold(parse("ark.arpa."))
EXAMPLE = fold(parse("example."))
NOW = 1_800_000_000
YEAR = 365 * 86400


def text(serial: int, extra: str = "") -> str:
    return f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{extra}"


class Site(ZoneSite):
    """A zone file with serial 1, in which content is set, and a state folder."""

    def __init__(self, folder: Path, style: str, **settings: object) -> None:
        zone = ZoneConfig(NAME, folder / "zone", serial=style, state=folder / "state")
        super().__init__(replace(zone, **settings), NOW)  # type: ignore[arg-type]
        self.folder = folder / "state"
        self.set(0)

    def set(self, content: int, serial: int = 1) -> None:
        self.zone.file.write_text(text(serial, f"a A 192.0.2.{content}\n"))

    def publish(self, *contents: int) -> int:
        for content in contents:
            self.set(content)
            self.reload()
        return self.serial

    def content(self) -> dict[int, str]:
        return {self.serial: Published.of(self.view).digest}

    def damage(self, *suffixes: str) -> None:
        for suffix in suffixes:
            path = self.folder / f"ark.arpa.{suffix}"
            if path.exists():
                path.write_bytes(path.read_bytes()[:-9] + b"damaged !")


# ---- which serial is next


@pytest.mark.parametrize(("style", "offset"), [("increment", 0), ("unix", NOW), ("date", 2027011500)])
def test_after_the_state_is_lost_the_next_serial_passes_those_of_secondaries(
    style: str, offset: int, tmp_path: Path
) -> None:
    site = Site(tmp_path, style)
    site.start()
    last = site.publish(1, 2, 3)
    assert last >= offset
    shutil.rmtree(site.folder)
    site.others = [last, last - 1]
    site.set(9)
    site.start()
    assert site.serial == last + 1
    site.others = []
    site.set(10)
    site.start()
    assert site.serial == last + 2, "it is known again"


def test_a_backup_that_is_older_is_passed_when_that_is_seen(tmp_path: Path) -> None:
    site = Site(tmp_path, "increment")
    site.start()
    assert site.publish(1, 2) == 3
    site.others = [7]
    assert (site.reload().result, site.serial) == ("unchanged", 3)
    assert site.publish(3) == 8
    site.others = [20]
    site.set(4)
    site.start()
    assert site.serial == 21, "so at a start, if there is something new"


def test_force_passes_a_secondary_that_is_ahead_without_a_change(tmp_path: Path) -> None:
    site = Site(tmp_path, "increment")
    site.start()
    site.others = [7]
    assert (site.reload(force=True).result, site.serial) == ("reloaded", 8)
    assert (site.reload(force=True).result, site.serial) == ("unchanged", 8)


def test_a_serial_that_the_file_gives_follows_no_secondary(tmp_path: Path) -> None:
    site = Site(tmp_path, "file")
    site.others = [7]
    site.start()
    site.set(1, serial=2)
    assert (site.reload(force=True).result, site.serial) == ("reloaded", 2)


def test_a_secondary_that_is_too_far_ahead_is_not_followed(tmp_path: Path) -> None:
    site = Site(tmp_path, "increment")
    site.others = [2 + MAX_AHEAD]
    site.start()
    assert site.serial == 1
    site.others = [1 + MAX_AHEAD]
    assert site.publish(1) == 2 + MAX_AHEAD, "this one is"


@pytest.mark.parametrize("style", ["unix", "date"])
@pytest.mark.parametrize("wrong", [-YEAR, YEAR])
def test_a_wrong_clock_gives_no_serial_twice_and_none_back(style: str, wrong: int, tmp_path: Path) -> None:
    site = Site(tmp_path, style)
    site.start()
    known = [site.publish(1)]
    for now in (NOW + wrong, NOW + wrong + 60, NOW, NOW + 60):
        site.now = now
        known.append(site.publish(len(known) + 1))
        site.start()
        assert site.serial == known[-1]
    assert known == sorted(set(known))


def test_a_serial_that_was_stored_names_the_content_that_was_stored(tmp_path: Path) -> None:
    """A crash after serving and before the version was kept: the serial is taken, by other content."""
    site = Site(tmp_path, "increment")
    site.start()
    kept = (site.folder / "ark.arpa.kept").read_bytes()
    assert site.publish(1) == 2
    (site.folder / "ark.arpa.kept").write_bytes(kept)
    site.start()
    assert site.serial == 2, "the same content"
    (site.folder / "ark.arpa.kept").write_bytes(kept)
    site.set(2)
    site.start()
    assert site.serial == 3


# ---- signed zones


@pytest.fixture
def signed(tmp_path: Path) -> Callable[[str], Site]:
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    from maptr.dnssec import keys

    def make(style: str) -> Site:
        folder = tmp_path / "keys"
        keys.add_key(folder, keys.Role.CSK, keys.Algorithm.ECDSAP256SHA256, keys.KeyState.ACTIVE)
        site = Site(tmp_path, style, keys=folder)
        site.start()
        return site

    return make


@pytest.mark.parametrize("style", ["file", "increment"])
def test_a_zone_that_is_signed_anew_passes_its_secondaries(style: str, signed: Callable[[str], Site]) -> None:
    site = signed(style)
    for _ in range(3):  # new signatures, with new serials
        site.now += 8 * 86400
        site.reload()
    assert site.serial == 4
    site.damage("signed", "kept", "serial")
    site.others = [4]
    site.start()
    assert site.serial == 5
    damaged = [alarm.text for alarm in site.state.alarms(site.now) if alarm.kind is AlarmKind.STATE_DAMAGED]
    assert len(damaged) == 1
    assert "ark.arpa.signed: is damaged" in damaged[0]
    assert "maptr reload ark.arpa." in damaged[0]


@pytest.mark.parametrize("lost", [("signed", "kept"), ("serial", "kept"), ("signed", "serial")])
def test_one_of_three_records_of_a_serial_is_enough(lost: tuple[str, str], signed: Callable[[str], Site]) -> None:
    """Without the answer of any secondary."""
    site = signed("increment")
    site.now += 8 * 86400
    site.reload()
    before = site.content()
    assert [*before] == [2]
    site.damage(*lost)
    site.now += 60
    site.start()
    after = site.content()
    assert after == before or [*after] == [3]
    site.set(9)
    site.start()
    assert site.serial == max(after) + 1


def test_signatures_that_are_renewed_pass_a_secondary(signed: Callable[[str], Site]) -> None:
    site = signed("increment")
    site.others = [40]
    assert (site.reload().result, site.serial) == ("unchanged", 1)
    site.now += 8 * 86400
    assert (site.reload().result, site.serial) == ("signed", 41)
    site.others = [50]
    assert (site.reload(force=True).result, site.serial) == ("signed", 51)


# ---- damage


def test_a_damaged_serial_is_an_alarm(tmp_path: Path) -> None:
    site = Site(tmp_path, "increment")
    site.start()
    site.damage("serial", "kept")
    site.set(1)
    site.start()
    (alarm,) = (alarm for alarm in site.state.alarms(NOW) if alarm.kind is AlarmKind.STATE_DAMAGED)
    assert f"{site.folder}/ark.arpa.serial: is damaged" in alarm.text
    site.start()
    assert site.alarms() == [], "it was written anew"


# ---- asking secondaries


def config_of(*targets: NotifyTarget, style: str = "increment", **serve: object) -> Config:
    zone = ZoneConfig(EXAMPLE, Path("zone"), notify=targets, serial=style)
    return Config(ServeConfig(**serve), zones=(zone,))  # type: ignore[arg-type]


def asked(config: Config, origin: Folded = EXAMPLE, *silences: Silence) -> list[int]:
    monitor = SecondaryMonitor(lambda: float(NOW), config.serve.secondaries)
    known = SecondarySerials(monitor, lambda: float(NOW))
    found = [*known.of(config, silences)(origin)]
    assert [*known.of(config, silences)(origin)] == found, "without asking again"
    return found


def target_of(secondary: Secondary) -> NotifyTarget:
    return NotifyTarget(Address("127.0.0.1", secondary.port))


async def test_secondaries_are_asked_once() -> None:
    async with Secondary(lambda query: [soa(query, 7)]) as one, Secondary(lambda query: [soa(query, 9)]) as other:
        refusing = NotifyTarget(Address("127.0.0.1", free_port()))
        config = config_of(target_of(one), target_of(other), refusing)
        assert await asyncio.to_thread(asked, config) == [7, 9]
        assert (one.asked, other.asked) == (["udp"], ["udp"])


async def test_no_secondary_is_asked_of_a_zone_whose_file_gives_the_serial() -> None:
    async with Secondary(lambda query: [soa(query, 7)]) as one:
        assert await asyncio.to_thread(asked, config_of(target_of(one), style="file")) == []
        assert one.asked == []


async def test_a_secondary_whose_alarm_is_silenced_has_serials_of_its_own() -> None:
    async with Secondary(lambda query: [soa(query, 7)]) as one:
        config = config_of(target_of(one))
        silence = Silence.parse("secondary-behind example.", {"example.": (target_of(one),)})
        assert await asyncio.to_thread(asked, config, EXAMPLE, silence) == []


async def test_a_secondary_that_does_not_answer_delays_a_start_for_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert serials.WAIT == 3.0
    monkeypatch.setattr(serials, "WAIT", 0.5)
    async with Secondary(lambda query: []) as silent, Secondary(lambda query: [soa(query, 9)]) as other:
        config = config_of(target_of(silent), target_of(other))
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(asked, config) == [9]
        assert len(silent.asked) == 2, "once more, in case a packet was lost"


async def test_a_silent_secondary_of_many_zones_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serials, "AT_ONCE", 1)
    monkeypatch.setattr(serials, "WAIT", 2.0)
    async with Secondary(lambda query: []) as silent, Secondary(lambda query: [soa(query, 9)]) as other:
        targets = (target_of(silent), target_of(other))
        names = [*(fold(parse(f"z{number}.")) for number in range(20)), EXAMPLE]
        zones = tuple(ZoneConfig(name, Path("zone"), notify=targets, serial="increment") for name in names)
        assert await asyncio.to_thread(asked, Config(zones=zones)) == [9]


async def test_secondaries_of_the_catalog_are_asked() -> None:
    name = fold(parse("catalog.invalid."))
    async with Secondary(lambda query: [soa(query, 7)]) as one:
        catalog = CatalogConfig(name, notify=(target_of(one),))
        config = config_of(style="file", catalog=catalog, secondaries=SecondariesConfig())
        assert await asyncio.to_thread(asked, config, name) == [7]
