"""RFC 1035 5.1: non-ASCII text in a zone file is read as bytes, in names too. Knot and PowerDNS refuse such a zone."""

from __future__ import annotations

from pathlib import Path

import dns.message
import dns.name
import dns.query
import dns.rcode
import pytest

from tests.support.peers import Bind, Maptr, Nsd, Peer, require

SECONDS = 20.0
ZONE = """\
$ORIGIN example.
$TTL 60
@ IN SOA ns1 host 1 7200 3600 1209600 300
@ IN NS ns1
ns1 IN A 192.0.2.1
café IN TXT "ü"
"""


@pytest.mark.parametrize("server", [Bind, Nsd, Maptr], ids=lambda server: server.name)
def test_a_name_that_is_not_ascii_is_the_same_octets_everywhere(server: type[Peer], tmp_path: Path) -> None:
    require(*server.commands)
    path = tmp_path / "octets.zone"
    path.write_text(ZONE, "utf-8")
    with server({"example.": path}) as running:
        for label, rcode in ("café".encode(), dns.rcode.NOERROR), (b"xn--caf-dma", dns.rcode.NXDOMAIN):
            query = dns.message.make_query(dns.name.Name((label, b"example", b"")), "TXT")
            reply = dns.query.udp(query, running.host, port=running.port, timeout=SECONDS)
            assert (reply.rcode(), len(reply.answer)) == (rcode, 0 if rcode else 1)
            assert not reply.answer or reply.answer[0][0].strings == ("ü".encode(),)
