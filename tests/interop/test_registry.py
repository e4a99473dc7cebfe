"""The main job on real input: the registry becomes a zone, real servers serve it, and every ARK finds its URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rdatatype
import dns.resolver
import dns.zone
import pytest

from maptr import Ark, discover_at, registry
from maptr.bulk import discover_many
from maptr.finding import Severity
from maptr.lint import publishable
from maptr.rules import host_labels, needed_shoulders
from maptr.table import Table
from maptr.zone import build
from maptr.zonecheck import check_zone
from tests.peers import CHECKERS, Bind, Knot, Maptr, Nsd, Peer, require
from tests.peers import PowerDns as Pdns

ORIGIN = "ark.arpa."
LINT_ERRORS = ["15050", "56775", "83025", "85163"]  # no usable public host, each
SERIAL = 2026112001


@pytest.fixture(scope="module")
def table(real_data: Path) -> Table:
    return registry.read((real_data / "naan_records.json").read_bytes())


@pytest.fixture(scope="module")
def zone_file(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registry") / "ark.arpa.zone"
    path.write_text(build(publishable(table)[0], SERIAL).text)
    return path


@pytest.fixture(scope="module")
def zone(zone_file: Path) -> dns.zone.Zone:
    return dns.zone.from_file(str(zone_file), relativize=False)


@pytest.fixture(scope="module", params=[Maptr, Nsd, Bind, Knot, Pdns], ids=lambda peer: peer.name)
def server(request: pytest.FixtureRequest, zone_file: Path) -> Iterator[Peer]:
    kind: type[Peer] = request.param
    require(*kind.commands)
    with kind({ORIGIN: zone_file}) as running:
        yield running


def probe(key: str) -> Ark:
    """An ARK of a record, with all that must be carried along: hyphen, case, variant, final slash, inflection."""
    naan, _, shoulder = key.partition("/")
    return Ark.parse(f"https://n2t.net/ark:/{naan}/{shoulder}X9-b%7d/c.v1/?info")


def test_the_size_of_the_registry(table: Table) -> None:
    naans = table.naans()
    needed = {naan: needed_shoulders(table[naan], table.shoulders(naan)) for naan in naans}
    assert len(naans) == 1432
    assert len(table) - len(naans) == 368
    assert sum(map(len, needed.values())) == 45
    assert sum(map(bool, needed.values())) == 17


def test_what_h_records_alone_can_say(table: Table) -> None:
    """README: the NAANs that are not just https and a host."""
    bare = re.compile(r"https://[^/]+/ark:/?\$\{content\}")
    assert sum(bare.fullmatch(table[naan].nmas[0].target) is None for naan in table.naans()) == 587


def test_the_records_left_out_are_the_four_without_a_public_host(table: Table) -> None:
    _, errors = publishable(table)
    assert sorted(finding.record for finding in errors) == LINT_ERRORS


def test_our_checker_finds_no_fault(zone_file: Path) -> None:
    findings = check_zone(zone_file.read_text())
    assert [f for f in findings if f.severity is Severity.ERROR] == []
    assert [(f.record, f.code) for f in findings] == [("99152.ark.arpa.", "large-reply")]


def test_every_rule_fits(zone: dns.zone.Zone) -> None:
    regexps: list[bytes] = [rdata.regexp for _, _, rdata in zone.iterate_rdatas("NAPTR")]  # type: ignore[attr-defined]
    assert max(map(len, regexps)) <= 130


def test_every_checker_accepts_the_zone(checker: str, zone_file: Path) -> None:
    accepted, output = CHECKERS[checker](ORIGIN, zone_file)
    assert accepted, output


def test_every_server_gives_the_records_of_the_zone(server: Peer, zone: dns.zone.Zone) -> None:
    asked = 0
    large: list[str] = []
    for name, rdataset in zone.iterate_rdatasets():
        query = dns.message.make_query(name, rdataset.rdtype, use_edns=0, payload=1232)
        reply, by_tcp = dns.query.udp_with_fallback(query, server.host, port=server.port, timeout=5)
        assert reply.flags & dns.flags.AA
        assert reply.find_rrset(reply.answer, name, rdataset.rdclass, rdataset.rdtype).to_rdataset() == rdataset
        asked += 1
        large += [name.to_text()] if by_tcp else []
    assert asked > 2800
    assert large == ["99152.ark.arpa."], "the one name too large for UDP, as our checker says"


def test_every_ark_finds_the_url_its_record_means(server: Peer, table: Table) -> None:
    """All NAANs and shoulders but the four: the first URL is the record's own target, expanded for that ARK."""
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [server.host]
    resolver.port = server.port
    keys = [key for key in table if key not in LINT_ERRORS]
    arks = [probe(key) for key in keys]
    found = {key: discovery.url() for key, discovery in zip(keys, discover_many(arks, resolver=resolver), strict=True)}
    assert found == {key: table[key].urls(ark)[0] for key, ark in zip(keys, arks, strict=True)}
    assert len(found) == 1796


def test_the_four_have_no_mapping_authority(server: Peer) -> None:
    for naan in LINT_ERRORS:
        assert not discover_at(server.host, f"ark:{naan}/x1", port=server.port, raise_on_none=False)


def draft_client(where: Peer, naan: str) -> list[str]:
    """Maptr as the draft's appendix B has it, and no more: flags "h" and "", service "ark", one name after another."""
    hosts: list[str] = []
    names = [f"{naan}.ark.arpa."]
    for name in names:
        query = dns.message.make_query(name, "NAPTR")
        reply, _ = dns.query.udp_with_fallback(query, where.host, port=where.port, timeout=5)
        for rrset in reply.answer:
            for rdata in rrset if rrset.rdtype == dns.rdatatype.NAPTR else ():
                if rdata.service != b"ark":
                    continue
                if rdata.flags == b"h":
                    hosts.append(rdata.replacement.to_text())
                elif rdata.flags == b"":
                    names.append(rdata.replacement.to_text())
    return hosts


def test_a_client_that_knows_only_the_draft_finds_a_host_for_every_naan(server: Peer, table: Table) -> None:
    published, _ = publishable(table)
    for naan in published.naans():
        hosts = draft_client(server, naan)
        expected = [dns.name.Name((*labels, b"")) for nma in published[naan].nmas if (labels := host_labels(nma))]
        assert [dns.name.from_text(host) for host in hosts] == expected
        assert hosts
