"""The access to zones, their journals, and the catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maptr.answer.context import PLAIN
from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.config.model import CatalogConfig
from maptr.daemon.background import Repetitions
from maptr.protocol.names import Labels, parse
from maptr.server.catalog import Catalog
from maptr.server.journals import journals_of
from maptr.server.responder import ServerState
from maptr.server.state import Served, ZoneState
from maptr.transfer.acl import AccessRule
from maptr.transfer.journal import Journal
from maptr.transfer.session import Access
from maptr.zone.snapshot import Snapshot, ZoneView
from tests.transfer.test_session import EXAMPLE, NOW, view_of


def config_of(tmp_path: Path, *rules: str, catalog: Labels | None = None) -> Config:
    """Return a configuration with a catalog and a zone that these clients may transfer."""
    transfer = tuple(map(AccessRule.from_text, rules))
    zone = ZoneConfig(EXAMPLE, tmp_path / "example.zone", transfer)
    return Config(ServeConfig(catalog=CatalogConfig(catalog, transfer)), zones=(zone,))


def state_of(
    config: Config, *views: ZoneView, before: ServerState | None = None, logged: Repetitions | None = None
) -> ServerState:
    logged, last = logged or Repetitions(), None if before is None else before.access.catalog
    served: Served = {zone.name: ZoneState(zone, view) for zone in config.zones for view in views}
    journals = journals_of(config.zones, served, before, logged)
    access = Access(journals=journals, catalog=Catalog().following(config, last, NOW))
    return ServerState(Snapshot.of(views), access, PLAIN)


def test_a_reload_extends_the_journal_and_its_file(tmp_path: Path) -> None:
    config = config_of(tmp_path, "192.0.2.1")
    state = state_of(config, view_of(1))
    assert state.access.journals[EXAMPLE].differences == ()
    for serial in (2, 3):
        state = state_of(config, view_of(serial), before=state)
    assert [change.from_serial for change in state.access.journals[EXAMPLE].differences] == [1, 2]
    assert state_of(config, view_of(3)).access.journals == state.access.journals
    assert (tmp_path / "example.zone.journal").exists()


def test_a_journal_that_cannot_be_written_is_logged_once_and_again_when_that_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, logged = config_of(tmp_path, "192.0.2.1"), Repetitions()
    aside = tmp_path / ".example.zone.journal.new"
    state = state_of(config, view_of(1), logged=logged)
    counts = []
    for serial, is_blocked in enumerate((True, True, False, True), 2):
        if is_blocked:
            aside.mkdir(exist_ok=True)
        else:
            aside.rmdir()
        state = state_of(config, view_of(serial), before=state, logged=logged)
        counts.append(caplog.text.count("secondaries will get AXFR"))
    assert counts == [1, 1, 1, 2]


def test_a_zone_without_secondaries_gets_no_journal(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert state_of(config, view_of(2), before=state_of(config, view_of(1))).access.journals == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("serial", "text", "warned"), [(1, "a 60 A 192.0.2.9\n", True), (0, "", True), (1, "", False)])
def test_a_change_without_a_new_serial_is_logged(
    serial: int, text: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path, "192.0.2.1")
    new = view_of(serial, text)
    state = state_of(config, new, before=state_of(config, view_of(1)))
    assert ("no secondary will follow" in caplog.text) is warned
    assert state.access.journals[EXAMPLE] == Journal.start(new)


def test_the_serial_of_the_catalog_increases_when_the_zones_change(tmp_path: Path) -> None:
    config = config_of(tmp_path, "192.0.2.1", catalog=parse("catalog.invalid."))
    state = state_of(config, view_of(1))
    catalog = state.access.catalog
    assert catalog is not None
    assert catalog.serial == NOW
    assert state_of(config, view_of(1), before=state).access.catalog is catalog
    after = state_of(replace(config, zones=()), before=state).access.catalog
    assert after is not None
    assert after.serial == NOW + 1, "even where the clock stands still"
