"""The extended errors (RFC 8914) of maptr beside those of NSD, Knot and BIND, for the same questions."""

from __future__ import annotations

from pathlib import Path

import dns.edns
import dns.message
import dns.query
import dns.rcode
import pytest

from tests.support.peers import Bind, Knot, Maptr, Nsd, Peer
from tests.support.server_process import Site, zone_text
from tests.support.waiting import PATIENCE

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
