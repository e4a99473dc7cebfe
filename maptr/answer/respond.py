"""The general path: query octets and a Snapshot in, reply octets out, every rule in one readable chain.

No socket, thread, clock, log or file. What a zone says is in ``lookup.py``, how messages are read and laid
out in ``message.py``, what the options of EDNS mean in ``edns.py`` and ``cookies.py``.
"""

from __future__ import annotations

from dnslib import DNSError

from maptr.answer.chaos import look_up_chaos
from maptr.answer.context import MIN_PAYLOAD, PLAIN, Context, Transport, is_amplifier
from maptr.answer.edns import (
    EDE_NOT_AUTHORITATIVE,
    EDE_NOT_READY,
    EDE_NOT_SUPPORTED,
    EDE_PROHIBITED,
    find_opt,
    read_options,
)
from maptr.answer.lookup import Outcome, find_zone, is_broken, look_up
from maptr.answer.message import MAX_QUERY_RECORDS, Message, Query, Reply, lay_out
from maptr.protocol.cookies import answer_cookie, packed_address
from maptr.protocol.names import fold
from maptr.protocol.numbers import (
    ANY,
    AXFR,
    BADCOOKIE,
    BADVERS,
    CH,
    FORMERR,
    HEADER_SIZE,
    IN,
    IXFR,
    NOERROR,
    NOTAUTH,
    NOTIFY,
    NOTIMP,
    QUERY,
    REFUSED,
    SERVFAIL,
    SOA,
    UPDATE,
)
from maptr.zone.snapshot import Snapshot


def respond(
    query: bytes,
    snapshot: Snapshot,
    *,
    transport: Transport = Transport.UDP,
    client: str = "",
    context: Context = PLAIN,
) -> bytes | None:
    """The reply to a query, or None for silence. Raises nothing, whatever the octets.

    ``client`` is the address that asked, which cookies are bound to.
    """
    reply = make_reply(query, snapshot, transport=transport, client=client, context=context)
    return None if reply is None else reply.wire


def make_reply(
    query: bytes,
    snapshot: Snapshot,
    *,
    transport: Transport,
    client: str = "",
    context: Context = PLAIN,
    reserve: int = 0,
    rcode: int | None = None,
) -> Reply | None:
    """As ``respond``, with what a rate limit wants to know of the reply.

    ``reserve`` octets of the reply's limit are left free, for a signature. ``rcode`` is the answer where that is
    settled already, unless the query is malformed: an error, or NOERROR for the start of a zone transfer (AA set).
    """
    if len(query) < HEADER_SIZE or query[2] & 0x80:
        return None  # no ID to answer to, or itself a response: answering those makes loops
    asked = Query(Message.parse_header(query), transport, context, reserve=reserve)
    settled = _settle(asked, client, rcode)
    return _answer(asked, snapshot) if settled is None else settled


def _settle(asked: Query, client: str, rcode: int | None) -> Reply | None:
    """Read the query; the response where it is the same whatever name is asked."""
    message, context = asked.message, asked.context
    header = message.header
    if header.opcode not in (QUERY, NOTIFY, UPDATE):
        return lay_out(asked, NOTIMP if rcode is None else rcode)
    try:
        message.parse_question()
    except DNSError:
        return lay_out(asked, FORMERR)
    if header.q > 1:
        return lay_out(asked, FORMERR)  # RFC 9619: QDCOUNT is 1, or 0 to ask for a cookie
    question = message.questions[0] if message.questions else None
    if header.opcode == UPDATE and (question is None or question.qtype != SOA or question.qclass != IN):
        # What is not a zone section (RFC 2136 2.3) is not sent back: dnspython for one could not read the response.
        return lay_out(asked, NOTIMP if question is not None and question.qtype == SOA else FORMERR)

    asked.question = question
    if header.opcode == UPDATE and header.a + header.auth + header.ar > MAX_QUERY_RECORDS and rcode is None:
        return None  # its records may be many, and none would change the response
    if (fault := _read_opt(asked, client)) is not None:
        return fault
    if rcode is not None and (rcode != NOERROR or question is not None):
        return lay_out(asked, rcode, Outcome(authoritative=rcode == NOERROR))
    if question is None:
        return lay_out(asked, NOERROR if asked.cookie else FORMERR)  # RFC 7873 5.4
    if header.opcode == QUERY:
        if question.qclass not in (IN, CH):
            return lay_out(asked, REFUSED, ede=EDE_NOT_SUPPORTED)
        if question.qclass == IN and question.qtype in (AXFR, IXFR):
            return lay_out(asked, REFUSED)
        if question.qclass == CH and not (context.identity.version or context.identity.hostname):
            return lay_out(asked, REFUSED)
    return None


def _read_opt(asked: Query, client: str) -> Reply | None:
    """Read the records, of which OPT matters, and judge its cookie; the response where one of them is at fault."""
    try:
        asked.message.parse_records()
        opt = find_opt(asked.message)
    except DNSError:
        return lay_out(asked, FORMERR)
    if opt is None:
        return None
    asked.opt = opt
    if opt.edns_ver:
        return lay_out(asked, BADVERS)  # RFC 6891 6.1.3
    cookies = asked.context.cookies
    try:
        asked.wanted = read_options(opt)
    except DNSError:
        return lay_out(asked, FORMERR)
    if asked.wanted.cookie is not None and cookies.secrets:
        address, now = packed_address(client), asked.context.clock()
        answer = answer_cookie(asked.wanted.cookie, address, secrets=cookies.secrets, now=now)
        asked.cookie, asked.verified = answer.option, answer.verified
    if asked.cookie and cookies.required and asked.transport is Transport.UDP and not asked.verified:
        return lay_out(asked, BADCOOKIE)  # RFC 7873 5.2.3 and 5.2.4
    return None


def _answer(asked: Query, snapshot: Snapshot) -> Reply:
    """What depends on the name."""
    question = asked.question
    assert question is not None  # noqa: S101 - or it were settled
    name, opcode = question.qname.label, asked.message.header.opcode
    folded = fold(name)
    if opcode == UPDATE:
        # RFC 2136 3.1 and 3.3, as BIND says no: zones change by their files, and by no one on the network.
        return lay_out(asked, REFUSED, ede=EDE_PROHIBITED) if folded in snapshot.zones else lay_out(asked, NOTAUTH)
    if opcode == NOTIFY:
        # The primary of all its zones takes no news of them (RFC 1996 3.11); so say NSD and PowerDNS.
        return lay_out(asked, REFUSED if folded in snapshot.zones else NOTAUTH)
    if question.qclass == CH:
        told = look_up_chaos(name, question.qtype, asked.context.identity)
        return lay_out(asked, REFUSED) if told is None else lay_out(asked, NOERROR, told)
    zone = find_zone(snapshot, folded, question.qtype)
    if snapshot.broken and is_broken(snapshot, folded, question.qtype, zone):
        return lay_out(asked, SERVFAIL, ede=EDE_NOT_READY)
    if zone is None:
        return lay_out(asked, REFUSED, ede=EDE_NOT_AUTHORITATIVE)
    minimal = question.qtype == ANY and asked.transport is Transport.UDP
    dnssec = asked.opt is not None and bool(asked.opt.edns_do)
    outcome = look_up(zone, name, question.qtype, minimal_any=minimal, dnssec=dnssec)
    amplifier = is_amplifier(question.qtype, apex=folded == zone.origin, answered=bool(outcome.answer))
    if asked.transport is not Transport.UDP or not amplifier:
        return lay_out(asked, outcome.rcode, outcome)
    if not asked.verified:
        asked.limit = MIN_PAYLOAD
    reply = lay_out(asked, outcome.rcode, outcome)
    return reply._replace(for_one=reply.cut or len(reply.wire) > MIN_PAYLOAD)
