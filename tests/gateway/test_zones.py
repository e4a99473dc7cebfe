"""The zones for DNS over HTTPS: read from files, followed, and kept if a file is bad."""

from __future__ import annotations

import base64
import itertools
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dns.edns
import dns.message
import pytest

from maptr.client import Client
from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.config.model import read_name, signed_path
from maptr.files import LOOK_EVERY
from maptr.gateway.doh import PATH
from maptr.gateway.zones import ZoneFiles
from maptr.registry.table import Table
from maptr.server.state_folder import write_signed
from tests.support.http_gateway import get, running_service
from tests.support.waiting import until

NAME = read_name("example.")


def text(serial: int, *lines: str) -> str:
    return "\n".join([f"@ 60 SOA ns h {serial} 2 3 4 5", "@ 60 NS ns", "ns 60 A 192.0.2.1", *lines, ""])


def write(path: Path, content: str) -> Path:
    aside = path.with_suffix(".new")
    aside.write_text(content)
    aside.replace(path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "example.zone", text(1))


def clock() -> Callable[[], float]:
    """A clock that passes the time between two looks at a file with each call."""
    return itertools.count(0.0, LOOK_EVERY).__next__


def serial(zones: ZoneFiles) -> int | None:
    snapshot = zones.refresh()
    view = None if snapshot is None else snapshot.zones.get(NAME)
    return None if view is None else view.serial


@pytest.mark.parametrize("content", ["@ 60 SOA", text(0), ""])
def test_a_bad_file_leaves_the_version_before(file: Path, content: str) -> None:
    zones = ZoneFiles([ZoneConfig(NAME, file)], clock=clock())
    first = zones.snapshot
    assert zones.refresh() is first
    write(file, content)
    assert serial(zones) == 1
    [trouble] = zones.troubles
    assert trouble.startswith("zone example.: ")
    assert str(file.parent) not in trouble, "clients may read it"
    write(file, text(2))
    assert serial(zones) == 2
    assert not zones.troubles


def test_a_finding_is_logged_once_and_again_when_it_comes_back(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    odd = '12345 60 NAPTR 1 1 "h" "ark" "!x!y!" h'
    zones = ZoneFiles([ZoneConfig(NAME, file)], clock=clock())
    counts = []
    others = [f"n{n} 60 A 192.0.2.2" for n in range(4)]
    for number, lines in enumerate(([odd], [odd, "b 60 A 192.0.2.2"], [], [odd]), 2):
        write(file, text(number, *others, *lines))
        assert serial(zones) == number
        counts.append(len([record for record in caplog.records if record.levelname == "WARNING"]))
    assert counts == [counts[0], counts[0], counts[0], 2 * counts[0]]
    assert counts[0]


def test_a_missing_file_is_a_broken_zone_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "later.zone"
    zones = ZoneFiles([ZoneConfig(NAME, path)], clock=clock())
    assert zones.snapshot is not None
    assert zones.snapshot.broken == {NAME}
    assert "later.zone" in zones.troubles[0]
    write(path, text(7))
    assert serial(zones) == 7


def test_a_reload_follows_other_zones(file: Path, tmp_path: Path) -> None:
    zones = ZoneFiles(clock=clock())
    assert zones.refresh() is None
    zones.follow([ZoneConfig(NAME, file)])
    assert serial(zones) == 1
    other = ZoneConfig(read_name("other."), write(tmp_path / "other.zone", text(3)))
    zones.follow([other])
    assert zones.snapshot is not None
    assert [*zones.snapshot.zones] == [other.name]
    zones.follow([])
    assert zones.refresh() is None


def test_troubles_are_whole_while_a_reload_reads_the_zones(tmp_path: Path) -> None:
    """A look at the troubles never fails, and never finds fewer broken zones than there are."""
    configured = [ZoneConfig(read_name(f"zone{i}."), tmp_path / "gone") for i in range(300)]
    zones, ends = ZoneFiles(configured, clock=clock()), threading.Event()

    def reload() -> None:
        try:
            for _ in range(20):
                zones.follow([])
                zones.follow(configured)
        finally:
            ends.set()

    thread = threading.Thread(target=reload)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        seen = {len(zones.troubles) for _ in iter(ends.is_set, True)}
    finally:
        ends.wait()
        sys.setswitchinterval(before)
        thread.join()
    assert seen <= {0, 300}


def test_two_zones_of_one_file(file: Path) -> None:
    zones = ZoneFiles([ZoneConfig(NAME, file), ZoneConfig(read_name("other."), file)], clock=clock())
    assert zones.snapshot is not None
    assert len(zones.snapshot.zones) == 2


def test_the_gateway_neither_builds_nor_signs_zones(tmp_path: Path) -> None:
    """A zone that the server builds and signs is read as it was published, and no file is made."""
    keys, state, table = tmp_path / "keys", tmp_path / "state", tmp_path / "naans.json"
    config = replace(ZoneConfig(NAME, tmp_path / "example.zone", keys=keys, table=table), state=state)
    zones = ZoneFiles([config], clock=clock())
    assert zones.troubles
    assert not [*tmp_path.iterdir()]
    state.mkdir()
    write_signed(state, NAME, text(20), 10)
    assert serial(zones) == 20
    write_signed(state, NAME, text(19), 10)  # as after maptr reload --force
    assert serial(zones) == 19
    assert [*tmp_path.rglob("*.*")] == [signed_path(state, NAME)]


def test_a_reload_of_the_gateway_follows_zones_and_identity(file: Path, tmp_path: Path) -> None:
    """DNS over HTTPS begins with the zone, follows its file, and ends with it."""
    configurations = iter(
        [
            Config(zones=(ZoneConfig(NAME, file),), serve=ServeConfig(nsid="one")),
            Config(),
        ]
    )
    nsid: list[dns.edns.Option] = [dns.edns.GenericOption(dns.edns.OptionType.NSID, b"")]
    query = dns.message.make_query("example.", "SOA", options=nsid).to_wire()
    target = f"{PATH}?dns={base64.urlsafe_b64encode(query).decode().rstrip('=')}"
    client = Client(table=Table(), policy="natab-only")
    with running_service(client, reread=lambda: next(configurations)) as service:
        port = service.bound[0].port

        def answered() -> tuple[int, str]:
            reply = get(port, target)
            if reply.status != 200:
                return 0, ""
            message = dns.message.from_wire(reply.body)
            return message.answer[0][0].serial, message.options[0].to_text()

        assert get(port, target).status == 404
        service.reload()
        until(lambda: answered() == (1, "NSID one"), "no zone after the reload")
        write(file, text(2))
        until(lambda: answered()[0] == 2, "the changed file is not read")
        write(file, "broken")
        until(lambda: b"zone example.: " in get(port, "/ready").body, "/ready has no reason")
        assert answered()[0] == 2
        service.reload()
        until(lambda: get(port, target).status == 404, "the zone stays")
