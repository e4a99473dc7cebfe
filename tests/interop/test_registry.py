"""The real registry becomes a zone, real servers serve it, and every ARK finds its URL, by DNS and by HTTP."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
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

from maptr import Ark, Client, registry
from maptr.registry.table import Table
from maptr.zone.build import build
from maptr.zone.check import examine
from maptr.zone.finding import Severity
from maptr.zone.lint import publishable
from maptr.zone.rules import host_labels
from tests.support.drivers import resolver_of
from tests.support.http_gateway import GatewayProcess, HttpClient
from tests.support.peers import CHECKERS, PEERS, Maptr, Peer
from tests.support.secondaries import contents

ORIGIN = "ark.arpa."
REPOSITORY = Path(__file__).resolve().parents[2]
SERIAL = 2026112001


class Registry(NamedTuple):
    """A published registry, and the records that no zone can hold."""

    file: str
    left_out: set[str]


UNUSABLE = {"15050", "56775", "83025", "85163"}
REGISTRIES = {
    "2024": Registry("naan_records.json", UNUSABLE),
    "2026": Registry("naan_records_2026-07-14.json.gz", UNUSABLE | {"13345", "20527", "33181", "38653", "42073"}),
}
with_both = pytest.mark.parametrize("published", REGISTRIES.values(), indirect=True, ids=REGISTRIES, scope="module")


@pytest.fixture(scope="module")
def published(request: pytest.FixtureRequest) -> Registry:
    """The registry of 2026 in tests that do not name another."""
    found: Registry = getattr(request, "param", REGISTRIES["2026"])
    return found


@pytest.fixture(scope="module")
def table_file(published: Registry, real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = real_data / published.file
    if not data.exists():
        pytest.skip(f"no {published.file} in {real_data}")
    path = tmp_path_factory.mktemp("table") / "naans.json"
    path.write_bytes(gzip.decompress(data.read_bytes()) if data.suffix == ".gz" else data.read_bytes())
    return path


@pytest.fixture(scope="module")
def table(table_file: Path) -> Table:
    return registry.read(table_file.read_bytes())


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


@pytest.fixture(scope="module", params=[Maptr, *PEERS], ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, zone_file: Path) -> Iterator[Peer]:
    options = ("--transfer=127.0.0.1",) if request.param is Maptr else ()
    with request.param({ORIGIN: zone_file}, *options) as running:
        yield running


def probe(key: str) -> Ark:
    """An ARK of a record with a hyphen, upper case, a variant, a final slash and an inflection."""
    naan, _, shoulder = key.partition("/")
    return Ark.parse(f"https://n2t.net/ark:/{naan}/{shoulder}X9-b%7d/c.v1/?info")


def test_naans_that_no_h_record_can_express(table: Table) -> None:
    """The figure of two pages: those whose target is not only a host. An http target has an h record with port 80."""
    bare = re.compile(r"https?://[^/]+/ark:/?\$\{content\}")
    assert sum(bare.fullmatch(table[naan].nmas[0].target) is None for naan in table.naans()) == 468
    for page in ("README.md", "docs/wire-format.md"):
        assert "468 of 1,863" in " ".join((REPOSITORY / page).read_text("utf-8").split())


@with_both
def test_the_records_left_out_are_those_without_a_usable_public_host(table: Table, published: Registry) -> None:
    assert {one.record for one in publishable(table)[1]} == published.left_out


def test_the_zone_passes_our_own_check(zone_file: Path) -> None:
    findings = examine(zone_file.read_text()).findings
    assert [f for f in findings if f.severity is Severity.ERROR] == []
    assert [(f.record, f.code) for f in findings] == [("ark.arpa.", "not-public"), ("99152.ark.arpa.", "large-reply")]


@pytest.mark.parametrize("checker", CHECKERS)
def test_every_checker_accepts_the_zone(checker: str, zone_file: Path) -> None:
    accepted, output = CHECKERS[checker](ORIGIN, zone_file)
    assert accepted, output


def test_every_server_transfers_the_records_of_the_zone(server: Peer, zone: dns.zone.Zone) -> None:
    assert contents(server) == zone


def test_every_ark_finds_the_url_its_record_means(server: Peer, table: Table, published: Registry) -> None:
    """The first URL is the record's own target, expanded for that ARK. Records left out have none."""
    client = Client(resolver_of(server, dns.resolver.Resolver))
    keys = [key for key in table if key not in published.left_out][:: 1 if isinstance(server, Maptr) else 5]
    arks = [probe(key) for key in keys]
    found = {key: discovery.url() for key, discovery in zip(keys, client.discover_many(arks), strict=True)}
    assert found == {key: table[key].urls(ark)[0] for key, ark in zip(keys, arks, strict=True)}
    assert len(found) > 400
    assert not any(client.discover_many([f"ark:{naan}/x1" for naan in published.left_out]))


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


@pytest.mark.parametrize("server", [Maptr], indirect=True, ids=["maptr"])
def test_a_client_that_knows_only_the_draft_finds_a_host_for_every_naan(server: Peer, table: Table) -> None:
    usable, _ = publishable(table)
    for naan in usable.naans():
        hosts = draft_client(server, naan)
        expected = [dns.name.Name((*labels, b"")) for nma in usable[naan].nmas if (labels := host_labels(nma))]
        assert [dns.name.from_text(host) for host in hosts] == expected
        assert hosts


# ---- over HTTP


def redirects(gateway: GatewayProcess, table: Table) -> tuple[dict[str, tuple[int, str]], set[str]]:
    """The status and the Location of an ARK of each record, and the sources that the gateway names."""
    found, sources = {}, set()
    with HttpClient(gateway.port) as client:
        for key in table:
            naan, _, shoulder = key.partition("/")
            reply = client.get(f"/https://n2t.net/ark:/{naan}/{shoulder}X9-b%7d/c.v1/?info")
            found[key] = reply.status, reply.headers.get("location", "")
            if reply.status in (302, 303):
                sources.add(reply.headers["maptr-source"].partition(";")[0])
    return found, sources


def meant(table: Table, published: Registry, *, none: int) -> dict[str, tuple[int, str]]:
    """The redirects that the records mean. ``none`` is the status for those that no client can use."""
    return {
        key: (none, "") if key in published.left_out else (entry.nmas[0].status, entry.urls(probe(key))[0])
        for key, entry in table.items()
    }


def test_the_gateway_redirects_every_record_even_without_dns_or_table(
    published: Registry, table: Table, table_file: Path, zone_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAPTR_CACHE_PATH", "")  # each gateway starts without answers
    monkeypatch.setenv("MAPTR_CACHE_PATIENCE", "60")  # however slow the machine is, DNS answers
    monkeypatch.setenv("MAPTR_GATEWAY_RATE", "0")
    with Maptr({ORIGIN: zone_file}) as server:
        dns, natab = f"@{server.host}#{server.port}", f"--table={table_file}"
        with GatewayProcess(dns, natab, "--policy", "dns-first") as gateway:
            found, sources = redirects(gateway, table)
            assert found == meant(table, published, none=404)
            assert sources <= {"dns", "memory"}
            server.stop()
            kept, sources = redirects(gateway, table)
            assert kept | dict.fromkeys(published.left_out, (404, "")) == found
            assert sources <= {"memory", "natab"}
        with GatewayProcess(dns, natab, "--policy", "dns-first") as gateway:  # the table alone
            assert redirects(gateway, table) == (meant(table, published, none=503), {"natab"})
        server.start()
        with GatewayProcess(dns, "--policy", "dns-first") as gateway:
            found, sources = redirects(gateway, table)
            assert found == meant(table, published, none=404), "the built-in table has the statuses"
            assert sources <= {"dns", "memory"}
