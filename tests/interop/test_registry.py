"""The real registry becomes a zone, real servers serve it, and every ARK finds its URL, by DNS and by HTTP."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

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
from maptr.client.bulk import discover_many
from maptr.registry.table import Table
from maptr.zone.build import build
from maptr.zone.check import examine
from maptr.zone.finding import Severity
from maptr.zone.lint import publishable
from maptr.zone.rules import host_labels, needed_shoulders
from tests.support.drivers import resolver_of
from tests.support.gateway_process import GatewayProcess, ask
from tests.support.peers import CHECKERS, PEERS, Maptr, Peer

ORIGIN = "ark.arpa."
REPOSITORY = Path(__file__).resolve().parents[2]
SERIAL = 2026112001


class Registry(NamedTuple):
    """A published registry: its size, and each record that no zone can hold, with the reason."""

    file: str
    naans: int
    shoulders: int
    left_out: dict[str, str]


OLD = {
    "15050": "no-public-host: no host",
    "56775": "no-public-host: 192.168.1.12 is not a public host",
    "83025": "no-public-host: no host",
    "85163": "no-public-host: trp is a single label, not a public host",
}
NEW = {
    "13345": "bad-target: the character U+0020 is not allowed in a URL",  # prose behind the URL
    "20527": "bad-target: the character U+0020 is not allowed in a URL",
    "33181": "unknown-variable: the target has the unknown variable ${id}",
    "38653": "bad-target: the character U+0022 is not allowed in a URL",  # a quotation mark at the end
    "42073": "bad-target: not an absolute URL",  # no scheme
}
REGISTRIES = (
    Registry("naan_records.json", 1432, 368, OLD),  # of November 2024
    Registry("naan_records_2026-07-14.json.gz", 1863, 369, OLD | NEW),
)


@pytest.fixture(scope="module", params=REGISTRIES, ids=lambda registry: registry.file.partition(".")[0])
def published(request: pytest.FixtureRequest, real_data: Path) -> Registry:
    found: Registry = request.param
    if not (real_data / found.file).exists():
        pytest.skip(f"no {found.file} in {real_data}")
    return found


@pytest.fixture(scope="module")
def table(published: Registry, real_data: Path) -> Table:
    data = (real_data / published.file).read_bytes()
    return registry.read(gzip.decompress(data) if published.file.endswith(".gz") else data)


@pytest.fixture(scope="module")
def zone_file(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registry") / "ark.arpa.zone"
    built = build(publishable(table)[0], SERIAL)
    assert built.left_out == ()
    path.write_text(built.text)
    return path


@pytest.fixture(scope="module")
def zone(zone_file: Path) -> dns.zone.Zone:
    return dns.zone.from_file(str(zone_file), relativize=False)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, zone_file: Path) -> Iterator[Peer]:
    kind: type[Peer] = request.param
    with kind({ORIGIN: zone_file}) as running:
        yield running


SERVED: list[tuple[Registry, type[Peer]]] = [(registry, Maptr) for registry in REGISTRIES]
ALL_SERVED = [*SERVED, *((REGISTRIES[-1], kind) for kind in PEERS)]


def with_servers(served: list[tuple[Registry, type[Peer]]]) -> pytest.MarkDecorator:
    names = [f"{kind.name}-{registry.naans}" for registry, kind in served]
    return pytest.mark.parametrize(("published", "server"), served, indirect=True, ids=names, scope="module")


def probe(key: str) -> Ark:
    """An ARK of a record with a hyphen, upper case, a variant, a final slash and an inflection."""
    naan, _, shoulder = key.partition("/")
    return Ark.parse(f"https://n2t.net/ark:/{naan}/{shoulder}X9-b%7d/c.v1/?info")


def test_the_size_of_the_registry(table: Table, published: Registry) -> None:
    assert (len(table.naans()), len(table) - len(table.naans())) == (published.naans, published.shoulders)


@pytest.mark.parametrize("published", REGISTRIES[:1], indirect=True, ids=["2024"])
def test_shoulders_that_need_a_rule_and_naans_that_need_more_than_an_h_record(table: Table) -> None:
    needed = {naan: needed_shoulders(table[naan], table.shoulders(naan)) for naan in table.naans()}
    assert sum(map(len, needed.values())) == 45
    assert sum(map(bool, needed.values())) == 17
    bare = re.compile(r"https://[^/]+/ark:/?\$\{content\}")
    assert sum(bare.fullmatch(table[naan].nmas[0].target) is None for naan in table.naans()) == 587


@pytest.mark.parametrize("published", REGISTRIES[1:], indirect=True, ids=["2026"])
def test_naans_that_no_h_record_can_express(table: Table) -> None:
    """The figure of two pages: those whose target is not only a host. An http target has an h record with port 80."""
    bare = re.compile(r"https?://[^/]+/ark:/?\$\{content\}")
    assert sum(bare.fullmatch(table[naan].nmas[0].target) is None for naan in table.naans()) == 468
    for page in ("README.md", "docs/wire-format.md"):
        assert "468 of 1,863" in " ".join((REPOSITORY / page).read_text("utf-8").split())


def test_the_records_left_out_are_those_without_a_usable_public_host(table: Table, published: Registry) -> None:
    _, errors = publishable(table)
    found = {one.record: f"{one.code}: {one.reason.removesuffix(f': {one.value}')}" for one in errors}
    assert found == published.left_out


def test_the_zone_passes_our_own_check(zone_file: Path) -> None:
    findings = examine(zone_file.read_text()).findings
    assert [f for f in findings if f.severity is Severity.ERROR] == []
    assert [(f.record, f.code) for f in findings] == [("99152.ark.arpa.", "large-reply")]


def test_every_rule_fits_in_its_field(zone: dns.zone.Zone) -> None:
    regexps: list[bytes] = [rdata.regexp for _, _, rdata in zone.iterate_rdatas("NAPTR")]  # type: ignore[attr-defined]
    assert max(map(len, regexps)) <= 166


def test_every_checker_accepts_the_zone(checker: str, zone_file: Path) -> None:
    accepted, output = CHECKERS[checker](ORIGIN, zone_file)
    assert accepted, output


@with_servers(ALL_SERVED)
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


@with_servers(ALL_SERVED)
def test_every_ark_finds_the_url_its_record_means(server: Peer, table: Table, published: Registry) -> None:
    """The first URL is the record's own target, expanded for that ARK."""
    resolver = resolver_of(server, dns.resolver.Resolver)
    keys = [key for key in table if key not in published.left_out][:: 1 if isinstance(server, Maptr) else 5]
    arks = [probe(key) for key in keys]
    found = {key: discovery.url() for key, discovery in zip(keys, discover_many(arks, resolver=resolver), strict=True)}
    assert found == {key: table[key].urls(ark)[0] for key, ark in zip(keys, arks, strict=True)}
    assert len(found) > 400


@with_servers(ALL_SERVED)
def test_records_left_out_have_no_mapping_authority(server: Peer, published: Registry) -> None:
    for naan in published.left_out:
        assert not discover_at(server.host, f"ark:{naan}/x1", port=server.port, raise_on_none=False)


def draft_client(where: Peer, naan: str) -> list[str]:
    """The hosts by the draft's appendix B only: flags "h" and "", service "ark", one name after another."""
    hosts: list[str] = []
    names = [f"{naan}.ark.arpa."]
    for name in names:
        query = dns.message.make_query(name, "NAPTR")
        reply, _ = dns.query.udp_with_fallback(query, where.host, port=where.port, timeout=5)
        rdatas = [rdata for rrset in reply.answer if rrset.rdtype == dns.rdatatype.NAPTR for rdata in rrset]
        found = [(rdata.flags, rdata.replacement.to_text()) for rdata in rdatas if rdata.service == b"ark"]
        hosts += [replacement for flags, replacement in found if flags == b"h"]
        names += [replacement for flags, replacement in found if flags == b""]
    return hosts


@with_servers(SERVED)
def test_a_client_that_knows_only_the_draft_finds_a_host_for_every_naan(server: Peer, table: Table) -> None:
    usable, _ = publishable(table)
    for naan in usable.naans():
        hosts = draft_client(server, naan)
        expected = [dns.name.Name((*labels, b"")) for nma in usable[naan].nmas if (labels := host_labels(nma))]
        assert [dns.name.from_text(host) for host in hosts] == expected
        assert hosts


# ---- over HTTP


@pytest.fixture(scope="module")
def table_file(published: Registry, real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = (real_data / published.file).read_bytes()
    path = tmp_path_factory.mktemp("table") / "naans.json"
    path.write_bytes(gzip.decompress(data) if published.file.endswith(".gz") else data)
    return path


def redirects(gateway: GatewayProcess, table: Table) -> tuple[dict[str, tuple[int, str]], set[str]]:
    """The status and the Location of an ARK of each record, and the sources that the gateway names."""
    found, sources = {}, set()
    with closing(gateway.connect()) as connection:
        for key in table:
            naan, _, shoulder = key.partition("/")
            reply = ask(connection, f"/https://n2t.net/ark:/{naan}/{shoulder}X9-b%7d/c.v1/?info")
            found[key] = reply.status, reply.headers.get("location", "")
            if reply.status in (302, 303):
                sources.add(reply.headers["maptr-source"].partition(";")[0])
    return found, sources


def meant(table: Table, published: Registry, *, none: int, statuses: bool = True) -> dict[str, tuple[int, str]]:
    """The redirects that the records mean. ``none`` is the status for those that no client can use. ``statuses``: those
    of the records; a NAPTR record has none."""
    return {
        key: (none, "")
        if key in published.left_out
        else (entry.nmas[0].status if statuses else 302, entry.urls(probe(key))[0])
        for key, entry in table.items()
    }


@pytest.mark.parametrize("published", REGISTRIES, indirect=True, ids=["2024", "2026"])
def test_the_gateway_redirects_every_record_even_without_dns_or_table(
    published: Registry, table: Table, table_file: Path, zone_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAPTR_CACHE_PATH", "")  # each gateway starts without answers
    with Maptr({ORIGIN: zone_file}) as server:
        dns, natab = f"@{server.host}#{server.port}", f"--table={table_file}"
        with GatewayProcess(dns, natab, "--policy", "dns-first") as gateway:
            found, sources = redirects(gateway, table)
            assert found == meant(table, published, none=404)
            assert sources <= {"dns", "memory", "natab"}  # the table, if the server has no time
            server.stop()
            kept, sources = redirects(gateway, table)
            assert sources <= {"memory", "natab"}
            assert {key: one for key, one in kept.items() if key not in published.left_out} == {
                key: one for key, one in found.items() if key not in published.left_out
            }
        with GatewayProcess(dns, natab, "--policy", "dns-first") as gateway:  # the table alone
            assert redirects(gateway, table) == (meant(table, published, none=503), {"natab"})
        server.start()
        with GatewayProcess(dns, "--policy", "dns-first") as gateway:  # DNS alone
            found, sources = redirects(gateway, table)
            assert found == meant(table, published, none=404, statuses=False)
            assert sources <= {"dns", "memory"}
