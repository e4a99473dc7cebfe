"""The general path: the bytes of a query and a Snapshot in, the bytes of a response out.

The steps are taken in this order; the first one that decides the response ends the sequence:

1. No response to a message without a complete header, or to a response (``read_question``).
2. The opcode and the question: NOTIMP or FORMERR (``_check_question``).
3. EDNS and the cookie: FORMERR, BADVERS or BADCOOKIE (``_check_edns``).
4. Responses that are the same for all names: cookies without a question, refused classes and types
   (``_answer_without_lookup``).
5. UPDATE, NOTIFY and class CHAOS; then the zone's answer, or SERVFAIL or REFUSED without a zone (``_answer``).

An error response has an extended error (RFC 8914) if the query has OPT.

Pure: no socket, thread, clock, log or file. ``lookup.py`` has the algorithm for zones, ``message.py`` reads and writes.
"""

from __future__ import annotations

import contextlib

from dnslib import DNSError

from maptr.answer.context import MIN_PAYLOAD, PLAIN, Context, ReceivedQuery, Transport
from maptr.answer.lookup import LookupResult, find_zone, is_broken, look_up, look_up_chaos
from maptr.answer.message import MAX_QUERY_RECORDS, Message, Query, Reply, first_options, lay_out
from maptr.protocol import numbers
from maptr.protocol.cookies import answer_cookie, packed_address, timestamp
from maptr.protocol.names import fold
from maptr.zone.snapshot import Snapshot

# Extended errors (RFC 8914 4.15, 4.19, 4.21, 4.22, 4.25)
EDE_NOT_READY, EDE_PROHIBITED, EDE_NOT_AUTHORITATIVE, EDE_NOT_SUPPORTED, EDE_INVALID_DATA = 14, 18, 20, 21, 24


def respond(
    query: bytes,
    snapshot: Snapshot,
    *,
    transport: Transport = Transport.UDP,
    client: str = "",
    context: Context = PLAIN,
) -> bytes | None:
    """Return the response to a query; None if the server sends no response. Never raises an exception.

    ``client`` is the client's IP address, to which cookies are bound.
    """
    reply = make_reply(ReceivedQuery(query, transport, client), snapshot, context)
    return None if reply is None else reply.wire


def read_question(wire: bytes) -> Message | None:
    """Read a query up to its question, if it has a valid one. Returns None if the server sends no response."""
    if len(wire) < numbers.HEADER_SIZE or wire[2] & 0x80:
        return None  # a response to a response could start a loop
    message = Message.parse_header(wire)
    with contextlib.suppress(DNSError):
        message.parse_question()
    return message


def make_reply(
    query: ReceivedQuery,
    snapshot: Snapshot,
    context: Context = PLAIN,
    *,
    message: Message | None = None,
    reserve: int = 0,
    rcode: int | None = None,
    ede: int | None = None,
) -> Reply | None:
    """Return the response as ``respond`` does, with the information that the rate limit and the shortcut need.

    ``message`` is what ``read_question`` returns for the query, if the caller has it; its records are read here.
    ``reserve`` bytes of the limit are left free for a signature. ``rcode`` sets the response to a well-formed query: an
    error, with the extended error ``ede``, or NOERROR with AA to start a zone transfer. Either is for one client.
    """
    message = message or read_question(query.wire)
    if message is None:
        return None
    asked = Query(message, query.transport, context, reserve=reserve)
    reply = (
        _check_question(asked, rcode)
        or _check_edns(asked, rcode, query.client)
        or _answer_without_lookup(asked, rcode, ede)
        or _answer(asked, snapshot)
    )
    return reply if not reserve and rcode is None else reply._replace(for_one=True)


def _check_question(asked: Query, rcode: int | None) -> Reply | None:
    """Check the opcode and the question. Returns an error response, or None."""
    message = asked.message
    opcode = message.header.opcode
    if opcode not in (numbers.QUERY, numbers.NOTIFY, numbers.UPDATE):
        return lay_out(asked, numbers.NOTIMP if rcode is None else rcode)
    if len(message.questions) != message.header.q:
        # It cannot be read, or there are several: QDCOUNT is 1, or 0 to ask for a cookie (RFC 9619).
        return lay_out(asked, numbers.FORMERR)
    question = message.questions[0] if message.questions else None
    if opcode == numbers.UPDATE:  # RFC 2136 2.3
        if question is None or question.qtype != numbers.SOA:
            return lay_out(asked, numbers.FORMERR)
        if question.qclass != numbers.IN:
            return lay_out(asked, numbers.NOTIMP)
    asked.question = question
    return None


def _check_edns(asked: Query, rcode: int | None, client: str) -> Reply | None:
    """Read the records, of which only OPT is used, and verify the cookie. Returns an error response, or None."""
    message = asked.message
    header = message.header
    if header.opcode == numbers.UPDATE and header.a + header.auth + header.ar > MAX_QUERY_RECORDS and rcode is None:
        return None  # an UPDATE may have many records, but the response does not depend on them
    try:
        message.parse_records()
        opt = message.find_opt()
    except DNSError:
        return lay_out(asked, numbers.FORMERR)
    if opt is None:
        return None
    asked.opt = opt
    if opt.edns_ver:
        return lay_out(asked, numbers.BADVERS)  # RFC 6891 6.1.3
    try:
        asked.wanted = first_options(opt)
    except DNSError:
        return lay_out(asked, numbers.FORMERR)
    cookies, cookie = asked.context.cookies, asked.wanted.get(numbers.COOKIE)
    if cookie is not None and cookies.secrets:
        address, stamp = packed_address(client), timestamp(asked.context.clock())
        asked.cookie, asked.verified = answer_cookie(cookie, address, cookies.secrets, stamp)
    if asked.cookie and cookies.required and asked.transport is Transport.UDP and not asked.verified:
        return lay_out(asked, numbers.BADCOOKIE)  # RFC 7873 5.2.3 and 5.2.4
    return None


def _answer_without_lookup(asked: Query, rcode: int | None, ede: int | None) -> Reply | None:
    """Return the response if it is the same for all names, otherwise None."""
    question, identity = asked.question, asked.context.identity
    if rcode is not None and (rcode != numbers.NOERROR or question is not None):
        return lay_out(asked, rcode, LookupResult(authoritative=rcode == numbers.NOERROR), ede=ede)
    if question is None:
        return lay_out(asked, numbers.NOERROR if asked.cookie else numbers.FORMERR)  # RFC 7873 5.4
    if asked.message.header.opcode != numbers.QUERY:
        return None
    if question.qclass not in (numbers.IN, numbers.CH):
        return lay_out(asked, numbers.REFUSED, ede=EDE_NOT_SUPPORTED)
    if question.qclass == numbers.IN and question.qtype in (numbers.AXFR, numbers.IXFR):
        # ``maptr.transfer`` answers these where transfers are configured.
        return lay_out(asked, numbers.REFUSED, ede=EDE_PROHIBITED)
    if question.qclass == numbers.CH and not (identity.version or identity.hostname):
        return lay_out(asked, numbers.REFUSED)
    return None


def _answer(asked: Query, snapshot: Snapshot) -> Reply:
    """Return the response for the question's name."""
    question = asked.question
    assert question is not None  # noqa: S101 - ``_answer_without_lookup`` answers queries without a question
    name, opcode = question.qname.label, asked.message.header.opcode
    folded = fold(name)
    if snapshot.is_starting and question.qclass == numbers.IN:
        return lay_out(asked, numbers.SERVFAIL, ede=EDE_NOT_READY)
    if opcode == numbers.UPDATE:
        # RFC 2136 3.1 and 3.3, with the rcodes of BIND. Zones change only when their files do.
        if folded in snapshot.zones:
            return lay_out(asked, numbers.REFUSED, ede=EDE_PROHIBITED)
        return lay_out(asked, numbers.NOTAUTH)
    if opcode == numbers.NOTIFY:
        # The server is the primary of its zones, so it refuses NOTIFY (RFC 1996 3.11), as NSD and PowerDNS do.
        if folded in snapshot.zones:
            return lay_out(asked, numbers.REFUSED, ede=EDE_PROHIBITED)
        return lay_out(asked, numbers.NOTAUTH)
    if question.qclass == numbers.CH:
        identity = look_up_chaos(name, question.qtype, asked.context.identity)
        return lay_out(asked, numbers.REFUSED) if identity is None else lay_out(asked, numbers.NOERROR, identity)
    zone = find_zone(snapshot, folded, question.qtype)
    if snapshot.broken and is_broken(snapshot, folded, question.qtype, zone):
        return lay_out(asked, numbers.SERVFAIL, ede=EDE_INVALID_DATA)
    if zone is None:
        return lay_out(asked, numbers.REFUSED, ede=EDE_NOT_AUTHORITATIVE)
    minimal = question.qtype == numbers.ANY and asked.transport is Transport.UDP
    dnssec = asked.opt is not None and bool(asked.opt.edns_do)
    result = look_up(zone, name, question.qtype, minimal_any=minimal, dnssec=dnssec)
    amplifies = bool(result.answer) and (question.qtype == numbers.RRSIG or folded == zone.origin)
    if asked.transport is not Transport.UDP or not amplifies:
        return lay_out(asked, result.rcode, result)
    # Answers at the apex and to type RRSIG amplify traffic most, because they grow with the keys and signatures.
    # Without a valid cookie, the client's address may be forged, so they are limited like responses without EDNS.
    if not asked.verified:
        asked.limit = MIN_PAYLOAD
    reply = lay_out(asked, result.rcode, result)
    return reply._replace(for_one=reply.cut or len(reply.wire) > MIN_PAYLOAD)
