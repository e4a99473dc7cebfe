"""EDNS(0) as a server meets it (RFC 6891): the OPT of a query, checked, and the OPT of its reply.

Cookies, NSID and keepalive are options to be answered here one day; now they are only checked for form.
"""

from __future__ import annotations

from collections.abc import Iterable

from dnslib import DNSError
from dnslib.dns import RR, EDNSOption
from dnslib.label import DNSLabel

from maptr.packet import OPT

# The largest UDP reply we send and ask for: it fits any path without fragments (DNS flag day 2020, RFC 9715).
UDP_PAYLOAD = 1232
MIN_PAYLOAD = 512  # RFC 6891 6.2.3: smaller values are treated as this

COOKIE = 10  # RFC 7873 4
EDE = 15  # RFC 8914 2
EDE_NOT_READY = 14  # RFC 8914 4.15
EDE_NOT_AUTHORITATIVE = 20  # RFC 8914 4.21


def find_opt(answer: Iterable[RR], authority: Iterable[RR], additional: Iterable[RR]) -> RR | None:
    """The OPT of a query, or None. Raises DNSError for two, or one in a wrong place (RFC 6891 6.1.1)."""
    if any(record.rtype == OPT for section in (answer, authority) for record in section):
        raise DNSError("OPT outside the additional section")
    found = [record for record in additional if record.rtype == OPT]
    if len(found) > 1:
        raise DNSError("more than one OPT")
    if found and found[0].rname.label:
        raise DNSError("OPT is not at the root")
    return found[0] if found else None


def check_options(opt: RR) -> None:
    """DNSError for a cookie of a wrong length (RFC 7873 5.2.2); unknown options pass (RFC 6891 6.1.2)."""
    for option in opt.rdata:
        if option.code == COOKIE and len(option.data) != 8 and not 16 <= len(option.data) <= 40:
            raise DNSError("a cookie of a wrong length")


def udp_limit(opt: RR | None) -> int:
    """How large a UDP reply may be (RFC 6891 6.2.5)."""
    return MIN_PAYLOAD if opt is None else min(max(opt.edns_len, MIN_PAYLOAD), UDP_PAYLOAD)


def make_opt(query_opt: RR, *, rcode: int = 0, ede: int | None = None) -> RR:
    """The OPT of a reply: version 0, DO copied (RFC 3225 3), nothing else of the query's echoed."""
    options = [] if ede is None else [EDNSOption(EDE, ede.to_bytes(2, "big"))]
    return RR(DNSLabel(()), OPT, UDP_PAYLOAD, (rcode >> 4) << 24 | query_opt.edns_do << 15, options)
