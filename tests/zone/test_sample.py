"""The sample in zones/: built from its registry, without findings, and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maptr import Ark, discover_at, registry
from maptr.registry.table import Table
from maptr.zone.build import NameServer, ZoneSettings, build
from maptr.zone.check import examine
from tests.support.peers import Maptr

ZONES = Path(__file__).resolve().parents[2] / "zones"
DELEGATED = "20775"


@pytest.fixture(scope="module")
def table() -> Table:
    return registry.read((ZONES / "sample.json").read_bytes())


@pytest.fixture(scope="module")
def server() -> Iterator[Maptr]:
    files = {"ark.arpa.": "ark.arpa.zone", "20775.ark.arpa.": "20775.ark.arpa.zone"}
    with Maptr({origin: ZONES / file for origin, file in files.items()}) as running:
        yield running


def test_the_zone_is_the_one_built_from_the_sample(table: Table) -> None:
    include = ("delegations.zone", (ZONES / "delegations.zone").read_bytes())
    settings = ZoneSettings(servers=(NameServer.parse("ns1=192.0.2.1"),), include=(include,))
    built = build(table, 2026010101, settings)
    assert (ZONES / "ark.arpa.zone").read_text() == built.text
    assert built.delegated == (DELEGATED,)
    assert built.left_out == ()


@pytest.mark.parametrize("file", ["ark.arpa.zone", "20775.ark.arpa.zone"])
def test_sample_zone_has_no_findings(file: str) -> None:
    assert examine((ZONES / file).read_text()).findings == []


def test_every_record_finds_its_url(server: Maptr, table: Table) -> None:
    keys = [key for key in table if not key.startswith(DELEGATED)]
    for key in keys:
        ark = Ark.parse(f"ark:{key}{'' if '/' in key else '/'}9x.v1?info")
        assert discover_at(server.host, ark, port=server.port).url() == table[key].urls(ark)[0]
    assert len(keys) == 17


def test_the_zone_of_a_delegated_naan_redirects_some_names(server: Maptr) -> None:
    elsewhere = discover_at(server.host, "ark:20775/x6abc", port=server.port)
    assert elsewhere.url() == "https://x6.ucsd.example.com/x6abc"
    assert [step.depth for step in elsewhere.trace] == [0, 1]
    at_home = discover_at(server.host, "ark:20775/bb123", port=server.port)
    assert at_home.url() == "https://libraries.ucsd.example.com/objects?name=bb123"
