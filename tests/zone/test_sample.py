"""The sample in zones/: built from its registry, and without findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr import registry
from maptr.zone.build import NameServer, ZoneSettings, build
from maptr.zone.check import examine

ZONES = Path(__file__).resolve().parents[2] / "zones"


def test_the_zone_is_the_one_built_from_the_sample() -> None:
    table = registry.read((ZONES / "sample.json").read_bytes())
    include = ("delegations.zone", (ZONES / "delegations.zone").read_bytes())
    settings = ZoneSettings(servers=(NameServer.parse("ns1=192.0.2.1"),), include=(include,))
    built = build(table, 2026010101, settings)
    assert (ZONES / "ark.arpa.zone").read_text() == built.text
    assert built.delegated == ("20775",)
    assert built.left_out == ()


@pytest.mark.parametrize("file", ["ark.arpa.zone", "20775.ark.arpa.zone"])
def test_sample_zone_has_no_findings(file: str) -> None:
    assert examine((ZONES / file).read_text()).findings == []
