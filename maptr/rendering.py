"""A reply laid out in octets: its header, the question, the sections as far as they fit, OPT.

What it says is decided in ``answer.py``; how names and records lie is ``packet.py``'s.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from maptr.context import Context, Transport
from maptr.edns import NOTHING_ASKED, Asked, Opt, padding_to_block, reply_options, udp_limit, write_opt
from maptr.lookup import Outcome
from maptr.names import to_wire
from maptr.packet import Question, Writer, write_rrset
from maptr.protocol import (
    AA,
    HEADER_SIZE,
    IN,
    MAX_MESSAGE,
    NOERROR,
    NXDOMAIN,
    OPCODE_BITS,
    QR,
    RCODE_BITS,
    RD,
    TC,
    YXDOMAIN,
)

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
        octets[2] |= TC >> 8
        octets[6:12] = bytes((0, 0, 0, 0, 0, bool(self.opt_size)))
        return bytes(octets) + self.wire[len(self.wire) - self.opt_size :]


@dataclass(slots=True)
class Query:
    """As much of a query as has been read; a reply is made from whatever is here."""

    wire: bytes
    transport: Transport
    context: Context
    question: Question | None = None
    opt: Opt | None = None
    wanted: Asked = NOTHING_ASKED  # by the options of its OPT
    cookie: bytes | None = None  # to send back
    verified: bool = False
    reserve: int = 0  # octets to leave free for a signature
    limit: int = MAX_MESSAGE  # octets of the reply, where that is less than its transport and the client allow


def render(query: Query, rcode: int, outcome: Outcome | None = None, *, ede: int | None = None) -> Reply:
    """Lay out a reply within the limit: whole RRsets only, TC where one that has to be there does not fit.

    Then there is nothing but OPT (RFC 6891 7), for nobody may believe a part of an answer (RFC 2181 9); only of a
    referral's glue stays what fits (RFC 9471 3.1). Addresses that only help go before anything is truncated.
    """
    payload, udp = query.context.udp_payload, query.transport is Transport.UDP
    question = b"" if query.question is None else query.question.wire
    question_end = HEADER_SIZE + len(question)
    opt, options = b"", []
    if query.opt is not None:
        options = reply_options(query.wanted, query.context, cookie=query.cookie, ede=ede, stream=not udp)
        opt = write_opt(query.opt, payload, options, rcode=rcode)
    limit = min(udp_limit(query.opt, payload) if udp else MAX_MESSAGE, query.limit) - query.reserve
    if outcome is None:
        outcome = _NOTHING
    body = b""
    counts, truncated = [0, 0, 0], False
    if outcome.answer or outcome.authority or outcome.additional:
        writer = Writer(bytes(HEADER_SIZE), question)
        rdclass = IN if query.question is None else query.question.qclass
        counts, truncated = _fit(writer, outcome, limit - len(opt), rdclass)
        body = bytes(writer.data[question_end:]) if any(counts) else b""
    if query.opt is not None and query.wanted.padding and query.transport is Transport.TLS:
        # RFC 7830 6: never in the clear
        size = question_end + len(body) + len(opt)
        padding = padding_to_block(size + query.reserve, limit + query.reserve)
        if padding is not None:
            opt = write_opt(query.opt, payload, [*options, padding], rcode=rcode)
    flags = _flags(query, rcode, outcome, truncated)
    head = _HEAD.pack(query.wire[:2], flags, bool(question), *counts[:2], counts[2] + (query.opt is not None))
    kind, has_cookie = _kind(query, rcode, outcome), query.cookie is not None
    return Reply(head + question + body + opt, kind, query.verified, question_end, len(opt), has_cookie)


def _flags(query: Query, rcode: int, outcome: Outcome, truncated: bool) -> int:
    """The second word of the header (RFC 1035 4.1.1).

    Of the query's flags RD alone is copied; RA, AD, CD and Z are clear, as NSD and Knot answer. Other opcodes give
    these bits other meanings (RFC 2136 2.2), so there none is copied.
    """
    asked = int.from_bytes(query.wire[2:4], "big")
    flags = QR | asked & (OPCODE_BITS if asked & OPCODE_BITS else RD) | rcode & RCODE_BITS
    return flags | (AA if outcome.authoritative else 0) | (TC if truncated else 0)


def _kind(query: Query, rcode: int, outcome: Outcome) -> Hashable:
    """What all replies that tell the same have in common: errors by rcode, the rest by what they speak of."""
    if query.question is None or rcode not in (NOERROR, NXDOMAIN, YXDOMAIN):
        return rcode
    # One name has as many empty answers as there are types, and a referral is the same for all of them.
    return rcode, to_wire(outcome.source), query.question.qtype if outcome.answer else 0


def _fit(writer: Writer, outcome: Outcome, limit: int, rdclass: int) -> tuple[list[int], bool]:
    """Write what fits; the records of each section that shall go, and whether TC must be set."""
    counts = [0, 0, 0]
    for section, rrsets in enumerate((outcome.answer, outcome.authority, outcome.glue)):
        for rrset in rrsets:
            written = write_rrset(writer, rrset, limit, rdclass, signed=outcome.dnssec)
            if not written:
                return (counts if rrsets is outcome.glue else [0, 0, 0]), True
            counts[section] += written
    for rrset in outcome.additional:
        written = write_rrset(writer, rrset, limit, rdclass, signed=outcome.dnssec)
        if not written:
            break
        counts[2] += written
    return counts, False
