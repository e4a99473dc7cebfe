"""A plain reply as its octets: its candidates are known at once, all else is read when somebody asks.

``volley`` hears one for nearly every question. A property test holds its discoveries to those of a walk in full over
what ``wire.read`` makes of the packet.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from maptr import names, wire
from maptr.ark import Ark
from maptr.candidate import Candidate
from maptr.discovery import Discovery
from maptr.lonehost import LoneReader, host_in_wire
from maptr.naptr import Fields
from maptr.plain import Ranking, make_ranking
from maptr.plainwire import plain_records
from maptr.protocol import HEADER_SIZE, UDP_PAYLOAD
from maptr.question import Answer, Settings
from maptr.trace import Outcome, Step
from maptr.walk import full_trace

_STAMP = struct.Struct("!dI")  # before the packet in what is kept: seconds it took, number of the server

_new = tuple.__new__  # half the time of a NamedTuple's own


class PlainReply(NamedTuple):
    """The reply to the root question of a walk, where it is all there is. Made by a ``Reader``.

    ``kept`` is all that it is made of, as octets: a run may keep 100,000, and the garbage collector does not look at
    octets. Called with an ARK, it gives the trace.
    """

    ranking: Ranking
    ttl: int
    security: str
    kept: bytes
    reader: Reader

    def discovery(self, ark: Ark, expiration: float | None) -> Discovery:
        """What a walk finds for an ARK whose root name was asked."""
        ranking, ttl, security, _, reader = self
        found = ranking.fixed or ranking.candidates(ark)
        trace: Any = self  # mypy takes no NamedTuple for what its __call__ makes it
        return Discovery(ark, found, trace, True, "dns", security, ttl, expiration, reader.settings.scheme)

    def __call__(self, ark: Ark) -> tuple[Step, ...]:
        return full_trace(self.reader.settings, self.reader.answer(self.kept), ark)


class Reader:
    """Reads the replies of one run. Names are in wire format."""

    def __init__(self, settings: Settings, *, trust_ad: bool = False) -> None:
        self.settings = settings
        self._undotted = settings.reading_origin()
        # By whether AD is set.
        self._security = ("insecure", "secure") if trust_ad else ("indeterminate", "indeterminate")
        self._most = min(settings.max_candidates, settings.max_records)
        self._origin = names.to_wire(settings.origin)
        self._below_origin = ("." if settings.origin else "") + names.to_text(settings.origin)
        self._servers: dict[str, int] = {}
        self._lone = LoneReader()

    def __call__(self, name: bytes, question: bytes, packet: bytes, server: str, elapsed: float) -> PlainReply | None:
        """The packet as a plain reply to the question; None where it is none. Its ID is not looked at."""
        if len(packet) > UDP_PAYLOAD or self._most < 1:  # one larger than was asked for is not kept whole
            return None
        ranking: Ranking | None = None
        lone = self._lone(question, packet)
        if lone is not None:
            order, preference, target, ttl, authentic = lone
            host = host_in_wire(target, self._undotted)
            if host is not None:
                path = ((order, preference),)
                owner = self._owner(name)
                one = _new(Candidate, (host, None, order, preference, owner, ttl, "dns", "", path, "", None, ""))
                ranking = _new(Ranking, ((one,), ()))
        if ranking is None:
            several = plain_records(names.from_wire(name), question, packet)
            if several is None:
                return None
            records, ttl, authentic = several
            ranking = self._ranking(records, name, ttl)
            if ranking is None:
                return None
        number = self._servers.setdefault(server, len(self._servers))
        kept = _STAMP.pack(elapsed, number) + packet
        return _new(PlainReply, (ranking, ttl, self._security[authentic], kept, self))

    def revive(self, kept: bytes, name: bytes) -> PlainReply:
        """The reply again, to the same question in these letters."""
        packet = kept[_STAMP.size :]
        reply = self(name, _question(packet), packet, *self._stamped(kept))
        assert reply is not None  # noqa: S101 - or it had not been kept
        return reply

    def answer(self, kept: bytes) -> Answer:
        """What ``asking`` makes of the packet."""
        packet = kept[_STAMP.size :]
        question = _question(packet)
        reply = wire.read_plain(names.from_wire(question), question, packet)
        assert reply is not None  # noqa: S101 - or it had not been kept
        server, elapsed = self._stamped(kept)
        security = self._security[reply.authentic]
        return Answer(Outcome.ANSWER, reply.records, reply.ttl, "", server, elapsed, security)

    def _stamped(self, kept: bytes) -> tuple[str, float]:
        """Server and seconds."""
        elapsed, number = _STAMP.unpack_from(kept)
        return list(self._servers)[number], elapsed

    def _ranking(self, records: list[Fields], name: bytes, ttl: int) -> Ranking | None:
        if len(records) > self._most:
            return None
        how = self.settings
        return make_ranking(
            records,
            names.from_wire(name),
            ttl,
            undotted=self._undotted,
            allow_private=how.allow_private,
            steps=how.regexp_steps,
        )

    def _owner(self, name: bytes) -> str:
        """The name as text, which is quickly written where it is a NAAN at the origin."""
        label = name.removesuffix(self._origin)[1:]
        if len(label) == name[0] and label.isalnum():
            return label.decode() + self._below_origin
        return names.to_text(names.from_wire(name))


RECORDS_AT = _STAMP.size + 7
"""Where what is kept has the number of its records, which are few: of ANCOUNT, RFC 1035 4.1.1."""


def _question(packet: bytes) -> bytes:
    """The question section of a packet that was read."""
    at = HEADER_SIZE
    while size := packet[at]:
        at += size + 1
    return packet[HEADER_SIZE : at + 5]
