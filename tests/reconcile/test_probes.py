"""The log of probes on disk, and the liveness that follows from them."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from maptr import url
from maptr.cache.disk import Disk
from maptr.errors import NmaError
from maptr.reconcile.probes import (
    MAX_PROBES,
    SUSPECT_AFTER,
    TRUSTED_FOR,
    Liveness,
    Probe,
    ProbeLog,
    Prober,
    ProbeResult,
    servers_of,
)
from maptr.registry.table import Entry, Nma, Table
from tests.support.caching import ARK, Clock, Rig

PLACE = "https://a.example"


def probes(*answered: bool, start: float = 0.0) -> list[Probe]:
    return [
        Probe(
            PLACE,
            start + at,
            *((ProbeResult.ANSWERED, "") if one else (ProbeResult.SILENT, f"silence {at}")),
        )
        for at, one in enumerate(answered)
    ]


def test_probes_are_kept_and_shared_between_processes(tmp_path: Path) -> None:
    wall = Clock(100.0)
    disk = Disk(tmp_path / "c.sqlite", wall=wall)
    log = ProbeLog(disk, wall=wall)
    assert log.all() == {}
    assert log.record([*probes(True, False, False), Probe("http://x", 0.0, ProbeResult.NOT_ASKED)])
    where = url.parse(PLACE)
    assert not log.is_suspect(where)
    assert log.record(probes(False, start=10.0))
    assert log.is_suspect(where)
    assert list(log.all()) == [PLACE] == [where.server]
    assert log.all()[PLACE].note == "silence 0"
    other = ProbeLog(Disk(tmp_path / "c.sqlite", wall=wall), wall=wall)
    assert other.is_suspect(where)
    log.record(probes(*[True] * (2 * MAX_PROBES), start=100.0))
    assert not other.is_suspect(where)
    count = disk.run(lambda connection: connection.execute("SELECT count(*) FROM probe").fetchone()[0])
    assert count == MAX_PROBES


def test_an_existing_cache_file_and_a_missing_folder(tmp_path: Path) -> None:
    Rig({}, path=tmp_path / "c.sqlite").sources.discover(ARK, raise_on_none=False)
    assert ProbeLog(Disk(tmp_path / "c.sqlite", wall=Clock()), wall=Clock()).record(probes(True))
    nowhere = ProbeLog(Disk(tmp_path / "none" / "c.sqlite", wall=Clock(), own=True), wall=Clock())
    assert not nowhere.record(probes(False, False, False))
    assert (nowhere.all(), nowhere.is_suspect(url.parse(PLACE))) == ({}, False)


@pytest.mark.parametrize(
    ("answered", "failures"), [((), 0), ((True,), 0), ((False,), 1), ((False, True), 0), ((True, False, False), 2)]
)
def test_failures_are_counted_since_the_last_answer(answered: tuple[bool, ...], failures: int) -> None:
    found = Liveness.of(PLACE, [(float(at), one, "x") for at, one in enumerate(answered)])
    assert found.failures == failures
    assert not found.is_suspect(10.0), "one or two unanswered probes are not enough"


def test_a_place_is_suspect_for_a_week() -> None:
    found = Liveness.of(PLACE, [(float(at), False, "x") for at in range(SUSPECT_AFTER)])
    assert (found.since, found.at) == (0.0, SUSPECT_AFTER - 1.0)
    assert found.is_suspect(TRUSTED_FOR)
    assert not found.is_suspect(TRUSTED_FOR + SUSPECT_AFTER)
    assert not found.is_suspect(-2 * TRUSTED_FOR), "the clock was wrong when the probes were sent"


def test_the_places_of_a_table() -> None:
    several = Table(
        [
            Entry("1000", nmas=(Nma("https://A.example:8443/x/${content}"), Nma("http://b.example/${value}"))),
            Entry("2000", nmas=(Nma("https://a.example:8443/y"), Nma("N/A"), Nma("ftp://c.example/"))),
        ]
    )
    assert servers_of(several) == ["https://a.example:8443", "http://b.example"]
    assert servers_of(several, ["2000"]) == ["https://a.example:8443"]
    assert url.server_of("http://[2001:DB8::1]:80/x") == "http://[2001:db8::1]"


class Network:
    """Host names with addresses, some of them dead, and a clock that ``sleep`` advances."""

    def __init__(self, addresses: dict[str, list[str]], dead: tuple[str, ...] = ()) -> None:
        self.addresses, self.dead = addresses, dead
        self.clock = Clock(0.0)
        self.asked: list[tuple[str, float]] = []
        self._lock = threading.Lock()

    def look_up(self, host: str, port: int, seconds: float) -> list[str]:
        if host not in self.addresses:
            raise NmaError(f"{host}: no address")
        return self.addresses[host]

    def ask(self, where: url.Url, seconds: float) -> None:
        with self._lock:
            self.asked.append((where.host.text, self.clock()))
        if where.host.text in self.dead:
            raise NmaError(f"{where.host.text}: refused")

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.clock.now += seconds

    def prober(self, **options: Any) -> Prober:
        return Prober(ask=self.ask, look_up=self.look_up, clock=self.clock, wall=Clock(7), sleep=self.sleep, **options)


def test_hosts_at_one_address_are_probed_in_turn_with_a_pause() -> None:
    network = Network({f"h{number}.example": ["93.184.216.34"] for number in range(5)})
    found = list(network.prober().probe([f"https://h{number}.example" for number in range(5)]))
    assert [one.outcome for one in found] == [ProbeResult.ANSWERED] * 5
    times = [at for _, at in network.asked]
    assert [later - sooner for sooner, later in pairwise(times)] == [2.0] * 4


def test_places_that_are_not_public_are_not_asked() -> None:
    network = Network(
        {"in.example": ["192.168.1.1"], "a.example": ["93.184.216.34"], "b.example": ["93.184.216.35"]}, ("b.example",)
    )
    expected = {
        "http://in.example": ProbeResult.NOT_ASKED,
        "http://127.0.0.1": ProbeResult.NOT_ASKED,
        "http://localhost": ProbeResult.NOT_ASKED,
        "https://a.example": ProbeResult.ANSWERED,
        "https://b.example": ProbeResult.SILENT,
        "http://none.example": ProbeResult.SILENT,
    }
    found = {one.place: one for one in network.prober().probe(expected)}
    assert {place: one.outcome for place, one in found.items()} == expected
    assert sorted(name for name, _ in network.asked) == ["a.example", "b.example"]
    assert found["http://in.example"].note == "192.168.1.1 is not a public address"
    assert found["https://b.example"].note == "b.example: refused"
    assert network.prober(allow_private=True).one("http://in.example").outcome is ProbeResult.ANSWERED
    assert network.prober().one("N/A").outcome is ProbeResult.NOT_ASKED


def test_an_unexpected_exception_is_raised_and_stops_the_rest() -> None:
    network = Network({"a.example": ["93.184.216.34"]})

    def broken(host: str, port: int, seconds: float) -> list[str]:
        raise ZeroDivisionError("a bug")

    network.look_up = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        list(network.prober().probe(["https://a.example"]))
