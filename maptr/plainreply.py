"""A plain reply as its octets: its candidates are known at once, all else is read when somebody asks.

``volley`` hears one for nearly every question. A property test holds its discoveries to those of a walk in full over
what ``wire.read`` makes of the packet.
"""

from __future__ import annotations

from typing import NamedTuple

from maptr import plain, wire
from maptr.ark import Ark
from maptr.discovery import Candidate, Discovery, Outcome, Step
from maptr.names import Labels
from maptr.walk import Answer, Settings, full_trace

Kept = tuple[Labels, bytes, bytes, str, float, str]
"""Name, question, packet, server, seconds and DNSSEC state: all that a plain reply is made of. A bare tuple, which
the garbage collector soon leaves alone; a run may keep 100,000 of them."""


class PlainReply(NamedTuple):
    """The reply to the root question of a walk, where it is all there is. Made by a ``Reader``."""

    candidates: tuple[Candidate, ...]
    ttl: int
    security: str
    kept: Kept

    def discovery(self, ark: Ark, settings: Settings, expiration: float | None) -> Discovery:
        """What a walk finds for an ARK whose root name was asked."""
        candidates, ttl, security, kept = self

        def trace() -> tuple[Step, ...]:
            return full_trace(ark, settings, answer(kept))

        return Discovery(ark, candidates, trace, True, "dns", security, ttl, expiration, settings.scheme)


def answer(kept: Kept) -> Answer:
    """What ``asking`` makes of the packet."""
    name, question, packet, server, elapsed, security = kept
    reply = wire.read_plain(name, question, packet)
    assert reply is not None  # noqa: S101 - or it had not been kept
    return Answer(Outcome.ANSWER, reply.records, reply.ttl, "", server, elapsed, security)


def records(kept: Kept) -> int:
    """How many records the packet has."""
    return int.from_bytes(kept[2][6:8], "big")  # ANCOUNT, RFC 1035 4.1.1


class Reader:
    """Reads the replies of one run."""

    def __init__(self, settings: Settings, *, trust_ad: bool) -> None:
        self._undotted = settings.reading_origin()
        self._most = min(settings.max_candidates, settings.max_records)
        self._trust_ad = trust_ad

    def __call__(self, name: Labels, question: bytes, packet: bytes, server: str, elapsed: float) -> PlainReply | None:
        """The packet as a plain reply to the question; None where it is none. Its ID is not looked at."""
        plain_records = wire.plain_records(name, question, packet)
        if plain_records is None:
            return None
        records, ttl, authentic = plain_records
        found = plain.candidates(records, name, ttl, self._undotted) if len(records) <= self._most else None
        if found is None:
            return None
        security = ("secure" if authentic else "insecure") if self._trust_ad else "indeterminate"
        return PlainReply(found, ttl, security, (name, question, packet, server, elapsed, security))
