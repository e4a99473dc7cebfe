"""RRsets: the canonical form of rdata, compared with dnspython."""

from __future__ import annotations

import dns.rdata
import dns.rdatatype
import pytest

from maptr.zone.rrset import canonical_rdata

# Each type whose canonical form has names in lower case (RFC 4034 6.2), and some other types.
RECORDS = {
    "NS CNAME PTR DNAME": "Name.Example.",
    "MX AFSDB RT KX": "10 Host.Example.",
    "RP": "Mbox.Example. Txt.Example.",
    "PX": "10 Map.Example. X.Example.",
    "SOA": "Ns.Example. Host.Example. 1094861636 2 3 4 5",
    "SRV": "1 2 3 Host.Example.",
    "NAPTR": '10 10 "U" "Ark" "!^ARK:(.*)$!https://H.example/!" Next.Example.',
    "RRSIG SIG": "A 13 2 60 20300101000000 20200101000000 1 Sub.Example. QUJD",
    "NSEC": "Next.Example. A RRSIG NSEC",
    "HTTPS": "1 Svc.Example. alpn=h2",
    "TXT": '"Upper Case"',
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kinds, text in RECORDS.items() for kind in kinds.split()])
def test_rfc4034_6_2_names_in_rdata_are_in_lower_case(kind: str, text: str) -> None:
    rdata = dns.rdata.from_text("IN", kind, text)
    assert canonical_rdata(int(rdata.rdtype), rdata.to_wire() or b"") == rdata.to_digestable()


NAME = b"\1A\3NET\0"
OBSOLETE: dict[str, list[tuple[bytes, ...]]] = {  # parts before, and at and after the name that is in lower case
    "MD MF MB MG MR": [(b"", NAME)],
    "MINFO": [(b"", NAME + NAME)],
    "NXT": [(b"", NAME, b"AB")],
    "A6": [(b"\x40ABCDEFGH", NAME), (b"\0" + b"A" * 16,)],  # RFC 2874 3.1: without a prefix there is no name
    "SIG": [(b"A" * 18, NAME, b"SIG")],
}


@pytest.mark.parametrize("kinds", OBSOLETE)
def test_rfc4034_6_2_also_for_obsolete_types(kinds: str) -> None:
    for kind in kinds.split():
        for parts in OBSOLETE[kinds]:
            canonical = b"".join(part.lower() if NAME in part else part for part in parts)
            assert canonical_rdata(dns.rdatatype.from_text(kind), b"".join(parts)) == canonical
