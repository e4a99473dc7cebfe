"""maptr's extended errors (RFC 8914) compared with those of NSD, Knot and BIND for the same questions."""

from __future__ import annotations

import socket
from pathlib import Path

import dns.edns
import dns.message
import dns.query
import dns.rcode
import pytest

from maptr.protocol.address import Address
from maptr.server import starting
from tests.support.answers import SNAPSHOT
from tests.support.peers import Bind, Knot, Maptr, Nsd, Peer
from tests.support.running import answering, daemon_of
from tests.support.server_process import Site, zone_text
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.interop
OUTSIDE, SILENT = [20], list[int]()  # BIND 9.18 sends none


def asked(port: int, name: str, rdtype: str = "A", *, edns: bool = True) -> tuple[str, list[int]]:
    """Return the rcode of a response, and its extended errors."""
    query = dns.message.make_query(name, rdtype, use_edns=edns)
    ask = dns.query.tcp if rdtype == "AXFR" else dns.query.udp
    reply = ask(query, "127.0.0.1", PATIENCE, port)
    codes = [int(option.code) for option in reply.options if isinstance(option, dns.edns.EDEOption)]
    return dns.rcode.to_text(reply.rcode()), codes


@pytest.mark.parametrize(("kind", "codes"), [(Nsd, OUTSIDE), (Knot, OUTSIDE), (Bind, SILENT), (Maptr, OUTSIDE)])
def test_rfc8914_4_21_a_name_outside_all_zones(kind: type[Peer], codes: list[int], tmp_path: Path) -> None:
    (tmp_path / "zone").write_text(zone_text(1))
    with kind({"a.test.": tmp_path / "zone"}) as server:
        assert asked(server.port, "b.test.") in (("REFUSED", codes), ("REFUSED", OUTSIDE))
        for _ in range(3):  # the first responses of maptr are made, the others are ready
            assert asked(server.port, "x.b.test.") in (("REFUSED", codes), ("REFUSED", OUTSIDE))
        assert asked(server.port, "b.test.", edns=False) == ("REFUSED", [])
        assert asked(server.port, "b.test.", "AXFR") == ("NOTAUTH", [])  # the rcode says it


def test_rfc8914_4_19_a_transfer_that_is_refused(site: Site) -> None:
    port = site.start()
    assert asked(port, "a.test.", "AXFR") == ("REFUSED", [18])
    assert asked(port, "a.test.", "AXFR", edns=False) == ("REFUSED", [])


def test_rfc8914_4_25_a_zone_that_cannot_be_served(site: Site) -> None:
    site.write_zone("a.test", "nonsense")
    port = site.start()
    assert asked(port, "a.test.") == asked(port, "a.test.", "AXFR") == ("SERVFAIL", [24])
    assert asked(port, "a.test.", edns=False) == ("SERVFAIL", [])
    assert asked(port, "b.test.", "SOA") == ("NOERROR", [])


def test_rfc8914_4_15_a_start_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries wait for a short start, and get an error while a long one lasts; then the zones are served."""
    monkeypatch.setattr(starting, "SHORT_START", 0.2)
    daemon = daemon_of(SNAPSHOT, Address("127.0.0.1", 0))
    daemon.bind()
    try:
        port = daemon.bound[0].port
        for name in ("example.", "elsewhere.test."):
            assert asked(port, name, "SOA") == ("SERVFAIL", [14])
        assert asked(port, "example.", "SOA", edns=False) == ("SERVFAIL", [])
        with answering(daemon):
            until(lambda: asked(port, "example.", "SOA") == ("NOERROR", []), "the zones are served")
        assert daemon.status().queries["udp"]["SERVFAIL"] >= 3
    finally:
        daemon.close()


def test_a_query_waits_for_a_short_start() -> None:
    daemon = daemon_of(SNAPSHOT, Address("127.0.0.1", 0))
    daemon.bind()
    query = dns.message.make_query("example.", "SOA", use_edns=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE)
        sock.sendto(query.to_wire(), ("127.0.0.1", daemon.bound[0].port))
        with answering(daemon):
            assert dns.message.from_wire(sock.recv(4096)).rcode() == dns.rcode.NOERROR
