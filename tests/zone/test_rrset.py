"""RRsets: the canonical form of rdata, compared with dnspython."""

from __future__ import annotations

import dns.rdata
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


NAME, LOWER = b"\1A\3NET\0", b"\1a\3net\0"
OBSOLETE = {
    "MD MF MB MG MR": (NAME, LOWER),
    "MINFO": (NAME + NAME, LOWER + LOWER),
    "NXT": (NAME + b"AB", LOWER + b"AB"),
    "A6": (b"\x40" + b"ABCDEFGH" + NAME, b"\x40" + b"ABCDEFGH" + LOWER),
    "SIG": (b"A" * 18 + NAME + b"SIG", b"A" * 18 + LOWER + b"SIG"),
}
NUMBERS = {"MD": 3, "MF": 4, "MB": 7, "MG": 8, "MR": 9, "MINFO": 14, "NXT": 30, "A6": 38, "SIG": 24}


@pytest.mark.parametrize(
    ("kind", "forms"), [(kind, forms) for kinds, forms in OBSOLETE.items() for kind in kinds.split()]
)
def test_rfc4034_6_2_also_for_obsolete_types(kind: str, forms: tuple[bytes, bytes]) -> None:
    assert canonical_rdata(NUMBERS[kind], forms[0]) == forms[1]


def test_an_a6_record_without_a_prefix_has_no_name() -> None:
    """RFC 2874 3.1."""
    assert canonical_rdata(38, b"\0" + b"A" * 16) == b"\0" + b"A" * 16
