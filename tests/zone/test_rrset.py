"""RRsets: the canonical form of rdata, compared with dnspython."""

from __future__ import annotations

import dns.rdata
import pytest

from maptr.zone.rrset import canonical_rdata

# One record of each type whose canonical form has names in lower case (RFC 4034 6.2), and some of other types.
RECORDS = {
    "NS": "Ns.Example.",
    "CNAME": "C.Example.",
    "SOA": "Ns.Example. Host.Example. 1 2 3 4 5",
    "PTR": "P.Example.",
    "MX": "10 Mail.Example.",
    "TXT": '"Upper Case"',
    "RP": "Mbox.Example. Txt.Example.",
    "AFSDB": "1 Host.Example.",
    "RT": "10 Host.Example.",
    "PX": "10 Map.Example. X.Example.",
    "SRV": "1 2 3 Host.Example.",
    "NAPTR": '10 10 "U" "Ark" "!^ARK:(.*)$!https://H.example/!" Next.Example.',
    "KX": "1 Host.Example.",
    "DNAME": "D.Example.",
    "NSEC": "Next.Example. A RRSIG NSEC",
    "HTTPS": "1 Svc.Example. alpn=h2",
    "RRSIG": "A 13 2 60 20300101000000 20200101000000 1 Example. AAAA",
}


@pytest.mark.parametrize("kind", RECORDS)
def test_rfc4034_6_2_names_in_rdata_are_in_lower_case(kind: str) -> None:
    rdata = dns.rdata.from_text("IN", kind, RECORDS[kind])
    assert canonical_rdata(int(rdata.rdtype), rdata.to_wire() or b"") == rdata.to_digestable()
