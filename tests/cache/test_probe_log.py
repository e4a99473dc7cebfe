"""The log of probes on disk, and suspects on the drift page."""

from __future__ import annotations

from pathlib import Path

from maptr import url
from maptr.cache.disk import Disk
from maptr.cache.page import render
from maptr.cache.probe_log import MAX_PROBES, ProbeLog
from maptr.registry.liveness import Liveness, Probe, ProbeResult, place_of
from tests.support.caching import ARK, Clock, Rig

PLACE = "https://a.example"


def probes(*answered: bool, start: float = 0.0) -> list[Probe]:
    return [
        Probe(PLACE, start + at, *((ProbeResult.ANSWERED, "") if one else (ProbeResult.SILENT, f"silence {at}")))
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
    assert list(log.all()) == [PLACE] == [place_of(where)]
    assert log.all()[PLACE].note == "silence 0"
    other = ProbeLog(Disk(tmp_path / "c.sqlite", wall=wall), wall=wall)
    assert other.is_suspect(where)
    log.record(probes(*[True] * (2 * MAX_PROBES), start=100.0))
    assert not other.is_suspect(where)
    count = disk.run(lambda connection: connection.execute("SELECT count(*) FROM probe").fetchone()[0])
    assert count == MAX_PROBES


def test_an_existing_cache_file_and_a_missing_folder(tmp_path: Path) -> None:
    Rig({}, path=tmp_path / "c.sqlite").cache.discover(ARK, raise_on_none=False)
    assert ProbeLog(Disk(tmp_path / "c.sqlite", wall=Clock()), wall=Clock()).record(probes(True))
    nowhere = ProbeLog(Disk(tmp_path / "none" / "c.sqlite", wall=Clock(), own=True), wall=Clock())
    assert not nowhere.record(probes(False, False, False))
    assert (nowhere.all(), nowhere.is_suspect(url.parse(PLACE))) == ({}, False)


def test_the_page_names_silent_places_with_escaped_text() -> None:
    assert "did not answer" not in render([], table="t", asked="s", origin="o")
    silent = Liveness("https://<b>.example", 1.0, failures=1, since=1.0, note="<silence>")
    assert "<code>https://&lt;b&gt;.example</code> once: &lt;silence&gt;" in render(
        [], table="t", asked="s", origin="o", silent=[silent]
    )
