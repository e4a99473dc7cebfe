"""The log of probes on disk, and the liveness that follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr import url
from maptr.cache import probe_log
from maptr.cache.disk import Disk
from maptr.registry.table import Entry, Nma, Table
from tests.support.caching import ARK, Clock, Rig

PLACE = "https://a.example"


def probes(*answered: bool, start: float = 0.0) -> list[probe_log.Probe]:
    return [
        probe_log.Probe(
            PLACE,
            start + at,
            *((probe_log.ProbeResult.ANSWERED, "") if one else (probe_log.ProbeResult.SILENT, f"silence {at}")),
        )
        for at, one in enumerate(answered)
    ]


def test_probes_are_kept_and_shared_between_processes(tmp_path: Path) -> None:
    wall = Clock(100.0)
    disk = Disk(tmp_path / "c.sqlite", wall=wall)
    log = probe_log.ProbeLog(disk, wall=wall)
    assert log.all() == {}
    assert log.record([*probes(True, False, False), probe_log.Probe("http://x", 0.0, probe_log.ProbeResult.NOT_ASKED)])
    where = url.parse(PLACE)
    assert not log.is_suspect(where)
    assert log.record(probes(False, start=10.0))
    assert log.is_suspect(where)
    assert list(log.all()) == [PLACE] == [where.place]
    assert log.all()[PLACE].note == "silence 0"
    other = probe_log.ProbeLog(Disk(tmp_path / "c.sqlite", wall=wall), wall=wall)
    assert other.is_suspect(where)
    log.record(probes(*[True] * (2 * probe_log.MAX_PROBES), start=100.0))
    assert not other.is_suspect(where)
    count = disk.run(lambda connection: connection.execute("SELECT count(*) FROM probe").fetchone()[0])
    assert count == probe_log.MAX_PROBES


def test_an_existing_cache_file_and_a_missing_folder(tmp_path: Path) -> None:
    Rig({}, path=tmp_path / "c.sqlite").sources.discover(ARK, raise_on_none=False)
    assert probe_log.ProbeLog(Disk(tmp_path / "c.sqlite", wall=Clock()), wall=Clock()).record(probes(True))
    nowhere = probe_log.ProbeLog(Disk(tmp_path / "none" / "c.sqlite", wall=Clock(), own=True), wall=Clock())
    assert not nowhere.record(probes(False, False, False))
    assert (nowhere.all(), nowhere.is_suspect(url.parse(PLACE))) == ({}, False)


@pytest.mark.parametrize(
    ("answered", "failures"), [((), 0), ((True,), 0), ((False,), 1), ((False, True), 0), ((True, False, False), 2)]
)
def test_failures_are_counted_since_the_last_answer(answered: tuple[bool, ...], failures: int) -> None:
    found = probe_log.Liveness.of(PLACE, [(float(at), one, "x") for at, one in enumerate(answered)])
    assert found.failures == failures
    assert not found.is_suspect(10.0), "one or two unanswered probes are not enough"


def test_a_place_is_suspect_for_a_week() -> None:
    found = probe_log.Liveness.of(PLACE, [(float(at), False, "x") for at in range(probe_log.SUSPECT_AFTER)])
    assert (found.since, found.at) == (0.0, probe_log.SUSPECT_AFTER - 1.0)
    assert found.is_suspect(probe_log.TRUSTED_FOR)
    assert not found.is_suspect(probe_log.TRUSTED_FOR + probe_log.SUSPECT_AFTER)
    assert not found.is_suspect(-2 * probe_log.TRUSTED_FOR), "the clock was wrong when the probes were sent"


def test_the_places_of_a_table() -> None:
    several = Table(
        [
            Entry("1000", nmas=(Nma("https://A.example:8443/x/${content}"), Nma("http://b.example/${value}"))),
            Entry("2000", nmas=(Nma("https://a.example:8443/y"), Nma("N/A"), Nma("ftp://c.example/"))),
        ]
    )
    assert probe_log.places_of(several) == ["https://a.example:8443", "http://b.example"]
    assert probe_log.places_of(several, ["2000"]) == ["https://a.example:8443"]
    assert probe_log.place_in("http://[2001:DB8::1]:80/x") == "http://[2001:db8::1]:80"
