"""The general path: query octets and a Snapshot in, reply octets out, every rule in one readable chain.

No socket, thread, clock, log or file. What a zone says is in ``lookup.py``, how octets lie in ``packet.py``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.dns import RR

from maptr.edns import EDE_NOT_AUTHORITATIVE, EDE_NOT_READY, check_options, find_opt, make_opt, udp_limit
from maptr.lookup import ANY, Outcome, find_zone, is_broken, look_up
from maptr.packet import HEADER_SIZE, IN, WireBuffer, read_question, read_records, write_rrset
from maptr.snapshot import Snapshot

FORMERR, SERVFAIL, NOTIMP, REFUSED, BADVERS = 1, 2, 4, 5, 16  # RFC 1035 4.1.1, RFC 6891 9
OPCODE_QUERY = 0
IXFR, AXFR = 251, 252

TCP_LIMIT = 0xFFFF  # RFC 1035 4.2.2: two octets of length


class Transport(enum.Enum):
    """How a query came; UDP alone limits the size of its reply and has an address that may be forged."""

    UDP = "udp"
    TCP = "tcp"
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class _Query:
    """As much of a query as could be read; a reply is made from whatever is here."""

    header: DNSHeader
    question: DNSQuestion | None = None
    opt: RR | None = None


def respond(
    query: bytes, snapshot: Snapshot, *, transport: Transport = Transport.UDP, client: str = ""
) -> bytes | None:
    """The reply to a query, or None for silence. Raises nothing, whatever the octets.

    ``client`` is the address that asked; nothing depends on it yet (ACLs, cookies and rate limits will).
    """
    if len(query) < HEADER_SIZE or query[2] & 0x80:
        return None  # no ID to answer to, or itself a response: answering those makes loops
    bare = _Query(DNSHeader.parse(WireBuffer(query[:HEADER_SIZE])))
    if bare.header.opcode != OPCODE_QUERY:
        return _frame(bare, NOTIMP)
    try:
        header, question, rest = read_question(query)
    except DNSError:
        return _frame(bare, FORMERR)
    if question is None:
        return _frame(bare, FORMERR)  # RFC 9619: QDCOUNT is 1, and no cookie-only query is known here

    asked = _Query(header, question)
    try:
        opt = find_opt(*read_records(rest, (header.a, header.auth, header.ar)))
    except DNSError:
        return _frame(asked, FORMERR)
    asked = _Query(header, question, opt)
    if opt is not None:
        if opt.edns_ver > 0:
            return _frame(asked, BADVERS)
        try:
            check_options(opt)
        except DNSError:
            return _frame(asked, FORMERR)

    if question.qclass != IN or question.qtype in (AXFR, IXFR):
        return _frame(asked, REFUSED)
    name = question.qname.label
    zone = find_zone(snapshot, name, question.qtype)
    if snapshot.broken and is_broken(snapshot, name, question.qtype, zone):
        return _frame(asked, SERVFAIL, ede=EDE_NOT_READY)
    if zone is None:
        return _frame(asked, REFUSED, ede=EDE_NOT_AUTHORITATIVE)
    minimal = question.qtype == ANY and transport is Transport.UDP
    outcome = look_up(zone, name, question.qtype, minimal_any=minimal)
    limit = udp_limit(opt) if transport is Transport.UDP else TCP_LIMIT
    return _frame(asked, outcome.rcode, outcome, limit=limit)


def _frame(
    query: _Query,
    rcode: int,
    outcome: Outcome | None = None,
    *,
    limit: int = TCP_LIMIT,
    ede: int | None = None,
) -> bytes:
    """Lay out a reply within the limit: whole RRsets only, TC where one that had to be there did not fit.

    Addresses that only help go before anything is truncated (RFC 2181 9); OPT stays (RFC 6891 7).
    """
    buffer = WireBuffer(bytes(HEADER_SIZE))
    buffer.offset = HEADER_SIZE
    if query.question is not None:
        query.question.pack(buffer)
    opt = WireBuffer()
    if query.opt is not None:
        make_opt(query.opt, rcode=rcode, ede=ede).pack(opt)
    outcome = outcome or Outcome(authoritative=False)
    counts, truncated = _fit(buffer, outcome, limit - len(opt))
    buffer.append(bytes(opt.data))
    counts[2] += query.opt is not None

    # Of the query's flags RD alone is copied; RA, AD, CD and Z are clear, as NSD and Knot answer.
    # Other opcodes give these bits other meanings (RFC 2136 2.2), so there none is copied.
    is_query = query.header.opcode == OPCODE_QUERY
    header = DNSHeader(
        id=query.header.id,
        bitmap=0,
        q=int(query.question is not None),
        a=counts[0],
        auth=counts[1],
        ar=counts[2],
        qr=1,
        opcode=query.header.opcode,
        aa=int(outcome.authoritative),
        tc=int(truncated),
        rd=query.header.rd if is_query else 0,
        rcode=rcode & 0xF,
    )
    head = WireBuffer()
    header.pack(head)
    buffer.data[:HEADER_SIZE] = head.data
    return bytes(buffer.data)


def _fit(buffer: WireBuffer, outcome: Outcome, limit: int) -> tuple[list[int], bool]:
    """Write what fits; the records of each section and whether TC must be set."""
    counts = [0, 0, 0]
    for section, rrsets in enumerate((outcome.answer, outcome.authority, outcome.glue)):
        for rrset in rrsets:
            if not write_rrset(buffer, rrset, limit):
                return counts, True
            counts[section] += len(rrset.rdatas)
    for rrset in outcome.additional:
        if not write_rrset(buffer, rrset, limit):
            break
        counts[2] += len(rrset.rdatas)
    return counts, False
