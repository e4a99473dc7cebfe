"""The general path: query octets and a Snapshot in, reply octets out, every rule in one readable chain.

No socket, thread, clock, log or file. What a zone says is in ``lookup.py``, how octets lie in ``packet.py`` and
``rendering.py``, what the options of EDNS mean in ``edns.py`` and ``cookies.py``.
"""

from __future__ import annotations

from maptr.chaos import look_up_chaos
from maptr.context import MIN_PAYLOAD, PLAIN, Context, Transport, is_amplifier
from maptr.cookies import answer_cookie
from maptr.edns import (
    EDE_NOT_AUTHORITATIVE,
    EDE_NOT_READY,
    EDE_NOT_SUPPORTED,
    EDE_PROHIBITED,
    find_opt,
    read_options,
)
from maptr.lookup import Outcome, find_zone, is_broken, look_up
from maptr.names import fold
from maptr.packet import COUNTS, MAX_QUERY_RECORDS, read_question, read_records
from maptr.protocol import (
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
from maptr.rendering import Query, Reply, render
from maptr.snapshot import Snapshot


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
    asked = Query(query, transport, context, reserve=reserve)
    settled = _settle(asked, client, rcode)
    return _answer(asked, snapshot) if settled is None else settled._replace(nameless=True)


def _settle(asked: Query, client: str, rcode: int | None) -> Reply | None:
    """Read the query; the reply where it is the same whatever name is asked."""
    query, context = asked.wire, asked.context
    opcode = query[2] >> 3
    if opcode not in (QUERY, NOTIFY, UPDATE):
        return render(asked, NOTIMP if rcode is None else rcode)
    try:
        question, end = read_question(query)
    except ValueError:
        return render(asked, FORMERR)
    questions, *counts = COUNTS.unpack_from(query, 4)
    if questions > 1:
        return render(asked, FORMERR)  # RFC 9619: QDCOUNT is 1, or 0 to ask for a cookie
    if opcode == UPDATE and (question is None or question.qtype != SOA or question.qclass != IN):
        # What is no zone section (RFC 2136 2.3) is not sent back: dnspython for one could not read the reply.
        return render(asked, NOTIMP if question is not None and question.qtype == SOA else FORMERR)

    asked.question = question
    if opcode == UPDATE and sum(counts) > MAX_QUERY_RECORDS and rcode is None:
        return None  # its records may be many, and none would change the reply
    if (fault := _read_opt(asked, client, end, counts)) is not None:
        return fault
    if rcode is not None and (rcode != NOERROR or question is not None):
        return render(asked, rcode, Outcome(authoritative=rcode == NOERROR))
    if question is None:
        return render(asked, NOERROR if asked.cookie else FORMERR)  # RFC 7873 5.4
    if opcode == QUERY:
        if question.qclass not in (IN, CH):
            return render(asked, REFUSED, ede=EDE_NOT_SUPPORTED)
        if question.qclass == IN and question.qtype in (AXFR, IXFR):
            return render(asked, REFUSED)
        if question.qclass == CH and not (context.identity.version or context.identity.hostname):
            return render(asked, REFUSED)
    return None


def _read_opt(asked: Query, client: str, at: int, counts: list[int]) -> Reply | None:
    """Read the records, of which OPT matters, and judge its cookie; the reply where one of them is at fault."""
    try:
        opt = find_opt(read_records(asked.wire, at, counts))
    except ValueError:
        return render(asked, FORMERR)
    if opt is None:
        return None
    asked.opt = opt
    if opt.version:
        return render(asked, BADVERS)  # RFC 6891 6.1.3
    cookies = asked.context.cookies
    try:
        asked.wanted = read_options(opt)
        if asked.wanted.cookie is not None and cookies.secrets:
            now, siphash = asked.context.clock(), asked.context.siphash
            answer = answer_cookie(asked.wanted.cookie, client, secrets=cookies.secrets, now=now, siphash=siphash)
            asked.cookie, asked.verified = answer.option, answer.verified
    except ValueError:
        return render(asked, FORMERR)
    if asked.cookie and cookies.required and asked.transport is Transport.UDP and not asked.verified:
        return render(asked, BADCOOKIE)  # RFC 7873 5.2.3 and 5.2.4
    return None


def _answer(asked: Query, snapshot: Snapshot) -> Reply:
    """What depends on the name."""
    question = asked.question
    assert question is not None  # noqa: S101 - or it were settled
    name, opcode = question.name, asked.wire[2] >> 3
    folded = fold(name)
    if opcode == UPDATE:
        # RFC 2136 3.1 and 3.3, as BIND says no: zones change by their files, and by no one on the network.
        return render(asked, REFUSED, ede=EDE_PROHIBITED) if folded in snapshot.zones else render(asked, NOTAUTH)
    if opcode == NOTIFY:
        # The primary of all its zones takes no news of them (RFC 1996 3.11); so say NSD and PowerDNS.
        return render(asked, REFUSED if folded in snapshot.zones else NOTAUTH)
    if question.qclass == CH:
        told = look_up_chaos(name, question.qtype, asked.context.identity)
        return render(asked, REFUSED) if told is None else render(asked, NOERROR, told)
    zone = find_zone(snapshot, folded, question.qtype)
    if snapshot.broken and is_broken(snapshot, folded, question.qtype, zone):
        return render(asked, SERVFAIL, ede=EDE_NOT_READY)
    if zone is None:
        return render(asked, REFUSED, ede=EDE_NOT_AUTHORITATIVE)
    minimal = question.qtype == ANY and asked.transport is Transport.UDP
    dnssec = asked.opt is not None and asked.opt.do
    outcome = look_up(zone, name, question.qtype, minimal_any=minimal, dnssec=dnssec)
    unverified = asked.transport is Transport.UDP and not asked.verified
    if unverified and is_amplifier(question.qtype, apex=folded == zone.origin, answered=bool(outcome.answer)):
        asked.limit = MIN_PAYLOAD
    return render(asked, outcome.rcode, outcome)
