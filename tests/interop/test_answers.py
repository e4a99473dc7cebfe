"""Names with non-ASCII bytes, as BIND and NSD answer them."""

from __future__ import annotations

from pathlib import Path

import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from tests.support.peers import START_SECONDS, Bind, Maptr, Nsd, Peer

NON_ASCII = """\
$ORIGIN example.
$TTL 60
@ IN SOA ns1 host 1 7200 3600 1209600 300
@ IN NS ns1
ns1 IN A 192.0.2.1
café IN TXT "ü"
"""


@pytest.mark.parametrize("kind", [Bind, Nsd, Maptr], ids=lambda kind: kind.name)
def test_rfc1035_5_1_non_ascii_text_in_a_zone_file_is_read_as_bytes(kind: type[Peer], tmp_path: Path) -> None:
    """In names too. Knot and PowerDNS refuse such a zone."""
    (tmp_path / "zone").write_text(NON_ASCII, "utf-8")
    with kind({"example.": tmp_path / "zone"}) as server:
        for label, rcode in ("café".encode(), dns.rcode.NOERROR), (b"xn--caf-dma", dns.rcode.NXDOMAIN):
            query = dns.message.make_query(dns.name.Name((label, b"example", b"")), "TXT")
            reply = dns.query.udp(query, server.host, START_SECONDS, server.port)
            assert (reply.rcode(), len(reply.answer)) == (rcode, 0 if rcode else 1)
            assert not reply.answer or reply.answer[0][0].strings == ("ü".encode(),)
