"""The numbers of the DNS protocol, as registered by IANA: ports, sizes, types, opcodes, RCODEs and flags.

They are plain integers. Limits and defaults that maptr chooses itself are in the modules that use them.
"""

from __future__ import annotations

PORT = 53  # RFC 1035 4.2
SERVER_PORT = 5300  # the default of maptr serve and maptr up: 53 needs root, and 5353 is mDNS (RFC 6762)
HTTP_PORT = 8080  # the default of maptr gateway

# Sizes, in bytes.
HEADER_SIZE = 12  # RFC 1035 4.1.1
MAX_MESSAGE = 0xFFFF  # RFC 1035 4.2.2: the length field over TCP
UDP_PAYLOAD = 1232  # DNS flag day 2020, RFC 9715: it avoids fragmentation

MAX_TTL = 0x7FFF_FFFF  # RFC 2181 8; a greater value is treated as 0

# Types and question types: RFC 1035 3.2.2 and 3.2.3, and the RFC that defines each.
A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, NAPTR, DNAME, OPT = 1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 39, 41
DS, RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM, CDS, CDNSKEY, ZONEMD = 43, 46, 47, 48, 50, 51, 59, 60, 63
SVCB, HTTPS = 64, 65
TSIG, IXFR, AXFR, ANY = 250, 251, 252, 255

IN, CH, ANY_CLASS = 1, 3, 255  # RFC 1035 3.2.4 and 3.2.5

QUERY, NOTIFY, UPDATE = 0, 4, 5  # opcodes: RFC 1035 4.1.1, RFC 1996 3.3, RFC 2136 1.3

# RCODEs: RFC 1035 4.1.1, RFC 2136 2.2; the upper bits of those above 15 are in the OPT (RFC 6891 9, RFC 7873 8).
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, YXDOMAIN, NOTAUTH = 0, 1, 2, 3, 4, 5, 6, 9
BADVERS, BADCOOKIE = 16, 23

# Bits in the second word of the header: RFC 1035 4.1.1, RFC 4035 3.1.6 and 3.2.2.
QR, OPCODE_BITS, AA, TC, RD, RA, AD, CD, RCODE_BITS = 0x8000, 0x7800, 0x0400, 0x0200, 0x0100, 0x80, 0x20, 0x10, 0x0F

ZONE_KEY, SECURE_ENTRY_POINT, REVOKED = 0x0100, 0x0001, 0x0080  # flags of a DNSKEY: RFC 4034 2.1.1, RFC 5011 7
DNSSEC_PROTOCOL = 3  # the protocol field of a DNSKEY, RFC 4034 2.1.2

DO = 0x8000  # a bit in the lower half of the TTL of an OPT, RFC 3225 3

# EDNS options: RFC 5001 2.3, RFC 7873 4, RFC 7828 3.1, RFC 7830 3, RFC 8914 2.
NSID, COOKIE, KEEPALIVE, PADDING, EDE = 3, 10, 11, 12, 15

# The record types that a signer makes from the keys. It drops such records of its input.
MADE_BY_SIGNERS = frozenset({RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM, CDS, CDNSKEY, ZONEMD})
