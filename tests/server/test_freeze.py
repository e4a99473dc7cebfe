"""maptr control freeze and thaw: a freeze lasts until an operator ends it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from maptr import config as configuration
from maptr.config import ZoneConfig
from maptr.daemon import kept
from maptr.dnssec import keys as zonekeys
from maptr.dnssec.keys import Algorithm, KeyState, Role
from maptr.errors import ZoneError
from maptr.protocol.names import Labels, fold, parse
from maptr.server import freeze, publisher
from maptr.server.freeze import Frozen
from maptr.server.puller import Puller
from maptr.server.status import ReloadResult
from tests.support.http_server import Pages, pages
from tests.support.registries import natab
from tests.support.server_process import Site, address_of, zone_text
from tests.support.server_process import site as site
from tests.support.waiting import until

NAME = fold(parse("ark.arpa."))
NOW = 1_800_000_000.0
DAY = 86400.0
PAGE = Path(__file__).resolve().parents[2] / "docs" / "admin.md"


# --- the value and its file


def test_what_is_frozen_is_read_again(tmp_path: Path) -> None:
    frozen = Frozen().freeze(NAME, 1.0).freeze(None, 2.0).freeze(NAME, 3.0).freeze(None, 4.0)
    freeze.write(tmp_path, frozen)
    assert freeze.read(tmp_path, NOW) == frozen == Frozen(2.0, {NAME: 1.0})
    freeze.write(tmp_path, Frozen())
    assert freeze.read(tmp_path, NOW) == Frozen()
    assert not [*tmp_path.iterdir()]
    freeze.write(tmp_path, Frozen())


def test_thawing_names_what_is_frozen() -> None:
    with pytest.raises(ZoneError, match=r"zone ark\.arpa\. is not frozen by itself$"):
        Frozen().thaw(NAME)
    with pytest.raises(ZoneError, match="not frozen by itself: maptr control thaw thaws all zones"):
        Frozen(1.0).thaw(NAME)
    assert Frozen(1.0, {NAME: 2.0}).thaw(NAME) == Frozen(1.0)
    assert Frozen(1.0, {NAME: 2.0}).thaw(None) == Frozen()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"": "x"}', '{"": 1e99}', '{"a..b": 1}', '{"a": null}', "[" * 99999]
)
def test_a_damaged_file_freezes_everything(tmp_path: Path, content: str) -> None:
    (tmp_path / freeze.NAME).write_text(content)
    found = freeze.read(tmp_path, NOW)
    assert (found.everything, found.zones, found.is_unread) == (NOW, {}, False)
    (alarm,) = found.alarms([NAME])
    assert alarm.text == found.trouble
    assert f"{tmp_path / freeze.NAME} is damaged, all zones are frozen until maptr control thaw: " in alarm.text


# --- one zone


class Signed:
    """A signed zone that may be frozen."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.frozen = Frozen()
        self.zone = ZoneConfig(NAME, folder / "zone", keys=folder / "keys", state=folder / "state")
        zonekeys.add_key(folder / "keys", Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
        self.write(1)
        self.start()

    def write(self, serial: int) -> None:
        self.zone.file.write_text(zone_text(serial, f"192.0.2.{serial}"))

    def start(self) -> None:
        self.served = publisher.keep(publisher.start([self.zone], clock=lambda: self.now, frozen=self.frozen))

    def reload(self, *, only: bool = False) -> str:
        self.served, (result,) = publisher.publish(
            [self.zone],
            self.served,
            clock=lambda: self.now,
            only=NAME if only else None,
            frozen=self.frozen,
        )
        return result.result

    def look(self) -> list[str]:
        self.served, results = publisher.sign_again(self.served, clock=lambda: self.now)
        return [result.result for result in results]

    @property
    def serial(self) -> int | None:
        view = self.served[NAME].view
        return None if view is None else view.serial


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    return Signed(tmp_path)


def test_a_frozen_zone_changes_only_by_its_own_reload_and_keys(signed: Signed, tmp_path: Path) -> None:
    signed.frozen = Frozen(everything=NOW)
    signed.write(2)
    assert (signed.reload(), signed.serial) == ("frozen", 1)
    signed.start()
    assert signed.serial == 1
    assert signed.served[NAME].status(NOW).frozen == NOW
    assert (signed.reload(only=True), signed.serial) == ("reloaded", 2)
    zonekeys.add_key(tmp_path / "keys", Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.PUBLISHED)
    assert (signed.look(), signed.serial) == (["signed"], 3)
    signed.write(9)
    signed.frozen = Frozen()
    assert (signed.reload(), signed.serial) == ("reloaded", 9)


def test_signatures_of_a_frozen_zone_are_renewed_two_days_before_their_end(signed: Signed) -> None:
    signed.frozen = Frozen(everything=NOW)
    assert signed.reload() == "frozen"
    validity = signed.served[NAME].validity
    assert validity is not None
    end = validity.expires
    for now in (NOW + 8 * DAY, end - 2 * DAY - 1):
        signed.now = now
        assert signed.look() == []
        signed.start()
        assert (signed.serial, signed.look()) == (1, [])
    signed.now = end - 2 * DAY
    assert signed.look() == ["signed"]


def test_a_frozen_zone_without_a_kept_version_is_read(signed: Signed, tmp_path: Path) -> None:
    kept.path_of(tmp_path / "state", NAME).unlink()
    (tmp_path / "state" / "ark.arpa.signed").unlink()
    signed.frozen = Frozen(everything=NOW)
    signed.start()
    assert signed.serial == 1


# --- a server


def test_freezing_lasts_over_restarts(site: Site) -> None:
    site.configure(serve='state = "state"')
    site.start()
    done = site.run("control", "freeze", "a.test")
    assert (done.exit_code, done.stdout) == (0, "zone a.test. is frozen\n")
    for name in ("a.test", "b.test"):
        site.write_zone(name, zone_text(2, "192.0.2.2"))
    for _ in range(2):
        assert "zone a.test. frozen, serial 1\n" in site.run("reload").stdout
        port = int(re.findall(r" on 127\.0\.0\.1:(\d+)", site.server.log())[-1])
        assert (address_of("ns.a.test.", port), address_of("ns.b.test.", port)) == ("192.0.2.1", "192.0.2.2")
        shown = site.run("control", "zone-status", "a.test")
        assert (shown.exit_code, "FROZEN since " in shown.stdout) == (1, True)
        (alarm,) = site.status()["alarms"]
        assert (alarm["kind"], alarm["zone"]) == ("frozen", "a.test.")
        assert re.search(r"frozen since 20.*: maptr control thaw a\.test\.", alarm["text"])
        site.server.stop()
        site.start()
    done = site.run("control", "freeze")
    assert (done.exit_code, done.stdout) == (0, "all zones are frozen\n")
    assert [alarm["zone"] for alarm in site.status()["alarms"]] == ["", "a.test."]
    done = site.run("control", "thaw", "b.test")
    assert (done.exit_code, "maptr control thaw thaws all zones" in done.stderr) == (1, True)
    assert site.run("control", "thaw").stdout == "all zones are thawed\n"
    assert site.status()["alarms"] == []
    assert "zone a.test. reloaded, serial 2 (was 1)" in site.run("reload").stdout


def test_what_cannot_be_stored_holds_until_a_restart_and_says_so(site: Site) -> None:
    """A thaw in an emergency is not refused because the disk is full or the folder read-only."""
    site.configure(serve='state = "state"')
    site.start()
    assert site.run("control", "freeze").exit_code == 0
    path = site.directory / "state" / freeze.NAME
    path.unlink()
    path.mkdir()  # which root, too, can neither remove as a file nor replace
    site.write_zone("a.test", zone_text(2, "192.0.2.2"))
    done = site.run("control", "thaw")
    assert (done.exit_code, done.stdout) == (0, "all zones are thawed\n")
    assert re.search(rf"last only until a restart, because they cannot .*: {re.escape(str(path))}: ", done.stderr)
    assert [(alarm["kind"], str(path) in alarm["text"]) for alarm in site.status()["alarms"]] == [
        ("freeze-not-stored", True)
    ]
    assert "zone a.test. reloaded, serial 2 (was 1)" in site.run("reload").stdout
    done = site.run("control", "freeze", "b.test")
    assert (done.exit_code, "cannot be stored" in done.stderr) == (0, True)
    assert {alarm["kind"] for alarm in site.status()["alarms"]} == {"frozen", "freeze-not-stored"}
    path.rmdir()
    done = site.run("control", "freeze", "b.test")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [alarm["kind"] for alarm in site.status()["alarms"]] == ["frozen"]
    assert path.is_file()


def test_storing_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / freeze.NAME).mkdir()
    one = freeze.stored(tmp_path, Frozen().freeze(NAME, 1.0))
    assert freeze.NAME in one.unstored
    thawed = freeze.stored(tmp_path, one.thaw(NAME))
    assert freeze.NAME in thawed.unstored
    (tmp_path / freeze.NAME).rmdir()
    assert freeze.stored(tmp_path, one) == Frozen(zones={NAME: 1.0}) == freeze.read(tmp_path, NOW)
    assert freeze.stored(tmp_path, thawed) == Frozen() == freeze.read(tmp_path, NOW)
    assert freeze.stored(tmp_path / "absent", Frozen()) == Frozen()


def test_freezing_without_a_state_folder_is_an_error(site: Site) -> None:
    site.start()
    done = site.run("control", "freeze")
    assert (done.exit_code, "set serve.state" in done.stderr) == (1, True)
    assert site.run("control", "freeze", "nowhere.test").exit_code == 1
    assert site.status()["alarms"] == []


# --- the page: going back to an earlier table


@pytest.fixture
def registry() -> Iterator[tuple[Pages, list[bytes]]]:
    content = [natab(*range(10000, 10010))]
    with pages(lambda request: (200, {}, content[0])) as found:
        yield found, content


def recipe() -> list[list[str]]:
    text = PAGE.read_text("utf-8")
    block = text.partition("**To go back to an earlier table**")[2].partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True) for line in block.splitlines() if line]


def test_the_way_back_to_an_earlier_table_is_as_the_page_has_it(
    site: Site, registry: tuple[Pages, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, content = registry
    table = f'[table]\nfile = "naans"\nurl = "{server.url}/naans"\nevery = "1h"\n'
    site.configure(table, zones=(), serve='state = "state"')
    with site.config.open("a") as file:
        file.write('[[zone]]\nname = "ark.arpa"\nfile = "ark.arpa.zone"\ntable = "naans"\n')
    port = site.start()
    naans = site.directory / "naans"
    until(lambda: naans.exists() and site.zone("ark.arpa.")["serial"], site.server.log)
    first = naans.read_bytes()
    content[0] = natab(*range(10001, 10012))
    assert site.run("control", "pull").exit_code == 0
    assert address_of("10000.ark.arpa.", port) == ""
    before = site.zone("ark.arpa.")["serial"]
    monkeypatch.chdir(site.directory)
    steps = recipe()
    assert [step[:3] for step in steps] == [
        ["maptr", "control", "freeze"],
        ["cp", "naans.1", "naans"],
        ["maptr", "reload", "ark.arpa"],
    ]
    for words in steps:
        if words[0] == "cp":
            shutil.copy(words[1], words[2])
        else:
            done = site.run(*words[1:])
            assert done.exit_code == 0, done.output
    assert naans.read_bytes() == first
    found = site.zone("ark.arpa.")
    assert isinstance(before, int)
    assert isinstance(found["serial"], int)
    assert found["serial"] > before
    done = site.run("control", "pull")
    assert (done.exit_code, "all zones have been frozen since" in done.stderr) == (1, True)
    site.server.stop()
    site.start()
    assert site.zone("ark.arpa.")["serial"] == found["serial"]
    assert naans.read_bytes() == first
    assert site.run("control", "thaw").exit_code == 0
    until(lambda: naans.read_bytes() != first, site.server.log)
    until(lambda: site.zone("ark.arpa.")["serial"] != found["serial"], site.server.log)
    assert json.loads(site.run("status", "--json").stdout)["alarms"] == []


def test_what_was_held_is_published_after_a_thaw(tmp_path: Path) -> None:
    (tmp_path / "naans").write_bytes(natab(12345))
    zone = '[[zone]]\nname = "ark.arpa"\nfile = "z"\ntable = "naans"\n'
    (tmp_path / "maptr.toml").write_text(f'[serve]\nstate = "."\n{zone}')
    config, frozen, published = configuration.load(tmp_path / "maptr.toml"), [Frozen(NOW)], []

    async def publish(name: Labels) -> ReloadResult:
        published.append(name)
        return ReloadResult(())

    puller = Puller(lambda: config, publish, clock=lambda: NOW, frozen=lambda: frozen[0])
    for state, expected in ((Frozen(NOW), 0), (Frozen(NOW), 0), (Frozen(), 1), (Frozen(), 1)):
        frozen[0] = state
        asyncio.run(puller.publish_and_pull())
        assert len(published) == expected
