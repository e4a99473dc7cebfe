"""The general path: query octets and a Snapshot in, reply octets out, every rule in one readable chain.

No socket, thread, clock, log or file. What a zone says is in ``lookup.py``, how octets lie in ``packet.py``, what
the options of EDNS mean in ``edns.py`` and ``cookies.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from maptr.chaos import look_up_chaos
from maptr.context import PLAIN, Context
from maptr.context import Transport as Transport  # whoever has an answer has its transport
from maptr.cookies import answer_cookie
from maptr.edns import (
    EDE_NOT_AUTHORITATIVE,
    EDE_NOT_READY,
    EDE_NOT_SUPPORTED,
    EDE_PROHIBITED,
    NOTHING_ASKED,
    Asked,
    Opt,
    find_opt,
    padding_to_block,
    read_options,
    reply_options,
    udp_limit,
    write_opt,
)
from maptr.lookup import Outcome, find_zone, is_broken, look_up
from maptr.names import fold, to_wire
from maptr.packet import COUNTS, MAX_QUERY_RECORDS, Question, Writer, read_question, read_records, write_rrset
from maptr.protocol import (
    AA,
    ANY,
    AXFR,
    BADCOOKIE,
    BADVERS,
    CH,
    FORMERR,
    HEADER_SIZE,
    IN,
    IXFR,
    MAX_MESSAGE,
    NOERROR,
    NOTAUTH,
    NOTIFY,
    NOTIMP,
    NXDOMAIN,
    OPCODE_BITS,
    QR,
    QUERY,
    RCODE_BITS,
    RD,
    REFUSED,
    SERVFAIL,
    SOA,
    TC,
    UPDATE,
    YXDOMAIN,
)
from maptr.snapshot import Snapshot

_HEAD = struct.Struct("!2s5H")
_NOTHING = Outcome(authoritative=False)  # never changed


class Reply(NamedTuple):
    """A reply and what a rate limit wants to know of it.

    ``kind`` is equal for replies that tell the same (``Outcome.source``), whatever was asked to get them.
    ``verified``: the client showed by its cookie that its address is not forged; ``cookie``: it sent one.
    ``nameless``: it would be the same for any name in the question.
    """

    wire: bytes
    kind: Hashable
    verified: bool
    question_end: int
    opt_size: int
    cookie: bool = False
    nameless: bool = False

    def truncated(self) -> bytes:
        """The reply with TC and no records but OPT, so that a real client asks again over TCP."""
        octets = bytearray(self.wire[: self.question_end])
        octets[2] |= 0x02
        octets[6:12] = bytes((0, 0, 0, 0, 0, bool(self.opt_size)))
        return bytes(octets) + self.wire[len(self.wire) - self.opt_size :]


@dataclass(slots=True)
class _Query:
    """As much of a query as has been read; a reply is made from whatever is here."""

    wire: bytes
    transport: Transport
    context: Context
    question: Question | None = None
    opt: Opt | None = None
    asked: Asked = NOTHING_ASKED
    cookie: bytes | None = None  # to send back
    verified: bool = False
    reserve: int = 0  # octets to leave free for a signature


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
    asked = _Query(query, transport, context, reserve=reserve)
    settled = _settle(asked, client, rcode)
    return _answer(asked, snapshot) if settled is None else settled._replace(nameless=True)


def _settle(asked: _Query, client: str, rcode: int | None) -> Reply | None:
    """Read the query; the reply where it is the same whatever name is asked."""
    query, context = asked.wire, asked.context
    opcode = query[2] >> 3
    if opcode not in (QUERY, NOTIFY, UPDATE):
        return _frame(asked, NOTIMP if rcode is None else rcode)
    try:
        question, end = read_question(query)
    except ValueError:
        return _frame(asked, FORMERR)
    questions, *counts = COUNTS.unpack_from(query, 4)
    if questions > 1:
        return _frame(asked, FORMERR)  # RFC 9619: QDCOUNT is 1, or 0 to ask for a cookie
    if opcode == UPDATE and (question is None or question.qtype != SOA or question.qclass != IN):
        # What is no zone section (RFC 2136 2.3) is not sent back: dnspython for one could not read the reply.
        return _frame(asked, NOTIMP if question is not None and question.qtype == SOA else FORMERR)

    asked.question = question
    if opcode == UPDATE and sum(counts) > MAX_QUERY_RECORDS and rcode is None:
        return None  # its records may be many, and none would change the reply
    try:
        opt = find_opt(read_records(query, end, counts))
    except ValueError:
        return _frame(asked, FORMERR)
    if opt is not None:
        asked.opt = opt
        if opt.version:
            return _frame(asked, BADVERS)
        try:
            _read_options(asked, opt, client)
        except ValueError:
            return _frame(asked, FORMERR)
        if asked.cookie and context.cookies.required and asked.transport is Transport.UDP and not asked.verified:
            return _frame(asked, BADCOOKIE)  # RFC 7873 5.2.3 and 5.2.4

    if rcode is not None and (rcode != NOERROR or question is not None):
        return _frame(asked, rcode, Outcome(authoritative=rcode == NOERROR))
    if question is None:
        return _frame(asked, NOERROR if asked.cookie else FORMERR)  # RFC 7873 5.4
    if opcode == QUERY:
        if question.qclass not in (IN, CH):
            return _frame(asked, REFUSED, ede=EDE_NOT_SUPPORTED)
        if question.qclass == IN and question.qtype in (AXFR, IXFR):
            return _frame(asked, REFUSED)
        if question.qclass == CH and not (context.identity.version or context.identity.hostname):
            return _frame(asked, REFUSED)
    return None


def _answer(asked: _Query, snapshot: Snapshot) -> Reply:
    """What depends on the name."""
    question = asked.question
    assert question is not None  # noqa: S101 - or it were settled
    name, opcode = question.name, asked.wire[2] >> 3
    folded = fold(name)
    if opcode == UPDATE:
        # RFC 2136 3.1 and 3.3, as BIND says no: zones change by their files, and by no one on the network.
        return _frame(asked, REFUSED, ede=EDE_PROHIBITED) if folded in snapshot.zones else _frame(asked, NOTAUTH)
    if opcode == NOTIFY:
        # The primary of all its zones takes no news of them (RFC 1996 3.11); so say NSD and PowerDNS.
        return _frame(asked, REFUSED if folded in snapshot.zones else NOTAUTH)
    if question.qclass == CH:
        told = look_up_chaos(name, question.qtype, asked.context.identity)
        return _frame(asked, REFUSED) if told is None else _frame(asked, NOERROR, told)
    zone = find_zone(snapshot, folded, question.qtype)
    if snapshot.broken and is_broken(snapshot, folded, question.qtype, zone):
        return _frame(asked, SERVFAIL, ede=EDE_NOT_READY)
    if zone is None:
        return _frame(asked, REFUSED, ede=EDE_NOT_AUTHORITATIVE)
    minimal = question.qtype == ANY and asked.transport is Transport.UDP
    dnssec = asked.opt is not None and asked.opt.do
    outcome = look_up(zone, name, question.qtype, minimal_any=minimal, dnssec=dnssec)
    return _frame(asked, outcome.rcode, outcome)


def _read_options(query: _Query, opt: Opt, client: str) -> None:
    """Read what the options ask for, and judge the cookie. Raises ValueError."""
    query.asked = read_options(opt)
    secrets = query.context.cookies.secrets
    if query.asked.cookie is not None and secrets:
        now, siphash = query.context.clock(), query.context.siphash
        answer = answer_cookie(query.asked.cookie, client, secrets=secrets, now=now, siphash=siphash)
        query.cookie, query.verified = answer.option, answer.verified


def _frame(query: _Query, rcode: int, outcome: Outcome | None = None, *, ede: int | None = None) -> Reply:
    """Lay out a reply within the limit: whole RRsets only, TC where one that had to be there did not fit.

    Addresses that only help go before anything is truncated (RFC 2181 9); OPT stays (RFC 6891 7).
    """
    payload, udp = query.context.udp_payload, query.transport is Transport.UDP
    question = b"" if query.question is None else query.question.wire
    question_end = HEADER_SIZE + len(question)
    opt, options = b"", []
    if query.opt is not None:
        options = reply_options(query.asked, query.context, cookie=query.cookie, ede=ede, stream=not udp)
        opt = write_opt(query.opt, payload, options, rcode=rcode)
    limit = (udp_limit(query.opt, payload) if udp else MAX_MESSAGE) - query.reserve
    if outcome is None:
        outcome = _NOTHING
    body = b""
    counts, truncated = [0, 0, 0], False
    if outcome.answer or outcome.authority or outcome.additional:
        writer = Writer(bytes(HEADER_SIZE), question)
        rdclass = IN if query.question is None else query.question.qclass
        counts, truncated = _fit(writer, outcome, limit - len(opt), rdclass)
        body = bytes(writer.data[question_end:])
    if query.opt is not None and query.asked.padding and query.transport is Transport.TLS:
        # RFC 7830 6: never in the clear
        size = question_end + len(body) + len(opt)
        padding = padding_to_block(size + query.reserve, limit + query.reserve)
        if padding is not None:
            opt = write_opt(query.opt, payload, [*options, padding], rcode=rcode)

    # Of the query's flags RD alone is copied; RA, AD, CD and Z are clear, as NSD and Knot answer.
    # Other opcodes give these bits other meanings (RFC 2136 2.2), so there none is copied.
    asked = int.from_bytes(query.wire[2:4], "big")
    flags = QR | asked & (OPCODE_BITS if asked & OPCODE_BITS else RD) | rcode & RCODE_BITS
    if outcome.authoritative:
        flags |= AA
    if truncated:
        flags |= TC
    head = _HEAD.pack(query.wire[:2], flags, bool(question), *counts[:2], counts[2] + (query.opt is not None))
    kind, has_cookie = _kind(query, rcode, outcome), query.cookie is not None
    return Reply(head + question + body + opt, kind, query.verified, question_end, len(opt), has_cookie)


def _kind(query: _Query, rcode: int, outcome: Outcome) -> Hashable:
    """What all replies that tell the same have in common: errors by rcode, the rest by what they speak of."""
    if query.question is None or rcode not in (NOERROR, NXDOMAIN, YXDOMAIN):
        return rcode
    # One name has as many empty answers as there are types, and a referral is the same for all of them.
    return rcode, to_wire(outcome.source), query.question.qtype if outcome.answer else 0


def _fit(writer: Writer, outcome: Outcome, limit: int, rdclass: int) -> tuple[list[int], bool]:
    """Write what fits; the records of each section and whether TC must be set."""
    counts = [0, 0, 0]
    for section, rrsets in enumerate((outcome.answer, outcome.authority, outcome.glue)):
        for rrset in rrsets:
            written = write_rrset(writer, rrset, limit, rdclass, signed=outcome.dnssec)
            if not written:
                return counts, True
            counts[section] += written
    for rrset in outcome.additional:
        written = write_rrset(writer, rrset, limit, rdclass, signed=outcome.dnssec)
        if not written:
            break
        counts[2] += written
    return counts, False
