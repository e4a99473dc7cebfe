"""Learned: what the general path answers, asked once and taken apart, so that no rule of its is written twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol

from maptr import context
from maptr.context import Transport
from maptr.cookies import CLIENT_COOKIE
from maptr.protocol import ANY, SOA
from maptr.ready import (
    CLASS_IN,
    CLIENT_OPTION,
    DO,
    EDNS,
    HEADER,
    NO_EDNS,
    NO_RECORDS,
    ONE,
    ONE_RECORD,
    OPT_SIZE,
    OPT_START,
    RD,
    TC,
    Mould,
    Ready,
    Shared,
    read_options,
)

if TYPE_CHECKING:
    from maptr.rendering import Reply

# Replies, some hundred octets each, and as many moulds. Past that all are forgotten, and the common ones are soon back.
MAX_LEARNED = 8192

_ANY = ANY.to_bytes(2, "big")
_QUERY_OPTS = (b"", OPT_START + b"\x04\xd0" + bytes(6), OPT_START + b"\x04\xd0\0\0\x80" + bytes(3))


class General(Protocol):
    """``maptr.answer.make_reply`` with all but these set."""

    def __call__(self, query: bytes, /, *, transport: Transport) -> Reply | None: ...


class Learned:
    """The replies of one ``general``, by keys that say who has the same.

    Threads share it, and any may forget what another has just seen there: so each table is looked at once.
    """

    def __init__(self, general: General) -> None:
        self._general = general
        self._ready: dict[object, Ready | None] = {}
        self._moulds: dict[object, Mould] = {}
        self._settled: dict[Hashable, Ready | None] = {}

    def ready(
        self,
        key: object,
        name: bytes,
        qtype: int,
        form: int,
        make: Callable[[], Ready | None] | None = None,
        *,
        shared: Shared = Shared.BY_NAME,
    ) -> Ready | None:
        """What is known by that key, or else made, or learned from this question and shared so."""
        try:
            return self._ready[key]
        except KeyError:
            if len(self._ready) >= MAX_LEARNED:
                self._ready.clear()
        made = None if make is None else make()
        if made is None:
            made = self.ask(name + qtype.to_bytes(2, "big") + CLASS_IN, form)
            made = made and made._replace(shared=shared)
        self._ready[key] = made
        return made

    def moulded(
        self,
        key: Hashable,
        place: int,
        name: bytes,
        qtype: int,
        form: int,
        *,
        by_name: bool = False,
        shared: Shared = Shared.BY_NAME,
    ) -> Ready | None:
        """The same for all who have one name at some place of the question, learned once for all places.

        ``by_name`` is of ``Ready.kind``, ``shared`` is that of Ready.
        """
        try:
            return self._ready[key, place]
        except KeyError:
            if len(self._ready) >= MAX_LEARNED:
                self._ready.clear()
        mould = self._moulds.get(key)
        if mould is None:
            if len(self._moulds) >= MAX_LEARNED:
                self._moulds.clear()
            made = self.ask(name + qtype.to_bytes(2, "big") + CLASS_IN, form)
            if made is not None:
                made = made._replace(kind=None if by_name else made.kind, shared=shared)
                mould = self._moulds[key] = Mould.of(made, place)
        ready = self._ready[key, place] = mould.at(place) if mould else None
        return ready

    def settled(self, key: Hashable, query: bytes) -> Ready | None:
        """The reply to this query where it is the same for any name; None where it is not.

        ``key`` is all that such a reply can depend on. The query's question can be read, or it has none.
        """
        try:
            return self._settled[key]
        except KeyError:
            if len(self._settled) >= MAX_LEARNED:
                self._settled.clear()
        reply = self._general(query, transport=Transport.UDP)
        ready = None
        if reply is not None and reply.nameless:
            opt_at = len(reply.wire) - reply.opt_size
            head = bytes((reply.wire[2] & ~RD,)) + reply.wire[3:HEADER]
            ready = Ready(head, b"", 0, 0, reply.wire[opt_at:], reply.kind, Shared.BY_ALL)
        self._settled[key] = ready
        return ready

    def ask(self, question: bytes, form: int) -> Ready | None:
        """Take the general path's reply apart; None where it is no ready one for all who ask this."""
        end = HEADER + len(question)
        # Over a stream nothing is cut; ANY is found for UDP alone, which has less of it.
        transport = Transport.UDP if question[-4:-2] == _ANY else Transport.TCP
        counts, opt = ONE + (NO_RECORDS if form == NO_EDNS else ONE_RECORD), _QUERY_OPTS[form]
        reply = self._general(b"\0\0\0\0" + counts + question + opt, transport=transport)
        if reply is None or reply.wire[2] & TC:
            return None
        wire, opt_at = reply.wire, len(reply.wire) - reply.opt_size
        return Ready(wire[2:HEADER], wire[end:opt_at], 0, opt_at - end, wire[opt_at:], reply.kind)

    def ask_opts(self, origin: bytes) -> tuple[bytes, bytes, bytes]:
        """The OPT of replies that are not errors, by form."""
        asked = (self.ask(origin + SOA.to_bytes(2, "big") + CLASS_IN, form) for form in (EDNS, DO))
        plain, do = (ready.opt if ready else b"" for ready in asked)
        return b"", plain, do

    def probe_edns(self) -> tuple[bool, bool]:
        """Whether the general path answers cookies, and who asks for NSID; where it does not, they change nothing."""
        question = b"\0" + SOA.to_bytes(2, "big") + CLASS_IN
        options = context.NSID.to_bytes(2, "big") + b"\0\0" + CLIENT_OPTION + bytes(CLIENT_COOKIE)
        opt = _QUERY_OPTS[EDNS][:-2] + len(options).to_bytes(2, "big") + options
        reply = self._general(b"\0\0\0\0" + ONE + ONE_RECORD + question + opt, transport=Transport.TCP)
        told = (reply and read_options(reply.wire, len(reply.wire) - reply.opt_size + OPT_SIZE, len(reply.wire))) or {}
        return context.COOKIE in told, context.NSID in told
