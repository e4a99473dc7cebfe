"""A plain reply as its octets: its candidates are known at once, all else is read when somebody asks.

``volley`` hears one for nearly every question. A property test holds its discoveries to those of a walk in full over
what ``wire.read`` makes of the packet.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from maptr import wire
from maptr.ark import Ark
from maptr.discovery import Discovery, Outcome, Step
from maptr.names import Labels
from maptr.plain import Plan, make_plan
from maptr.walk import Answer, Settings, full_trace

Kept = tuple[Labels, bytes, bytes, str, float, str]
"""Name, question, packet, server, seconds and DNSSEC state: all that a plain reply is made of. A bare tuple, which
the garbage collector soon leaves alone; a run may keep 100,000 of them."""


class PlainReply(NamedTuple):
    """The reply to the root question of a walk, where it is all there is. Made by a ``Reader``."""

    plan: Plan
    ttl: int
    security: str
    kept: Kept

    def discovery(self, ark: Ark, settings: Settings, expiration: float | None) -> Discovery:
        """What a walk finds for an ARK whose root name was asked."""
        plan, ttl, security, kept = self
        candidates = plan.fixed or plan.candidates(ark)
        trace = partial(_trace, ark, settings, kept)
        return Discovery(ark, candidates, trace, True, "dns", security, ttl, expiration, settings.scheme)


def _trace(ark: Ark, settings: Settings, kept: Kept) -> tuple[Step, ...]:
    return full_trace(ark, settings, answer(kept))


def answer(kept: Kept) -> Answer:
    """What ``asking`` makes of the packet."""
    name, question, packet, server, elapsed, security = kept
    reply = wire.read_plain(name, question, packet)
    assert reply is not None  # noqa: S101 - or it had not been kept
    return Answer(Outcome.ANSWER, reply.records, reply.ttl, "", server, elapsed, security)


def records(kept: Kept) -> int:
    """How many records the packet has."""
    return int.from_bytes(kept[2][6:8], "big")  # ANCOUNT, RFC 1035 4.1.1


def revive(kept: Kept, name: Labels, settings: Settings) -> PlainReply:
    """The reply again, to the same question in these letters."""
    made = _read(name, kept[1], kept[2], settings, settings.reading_origin())
    assert made is not None  # noqa: S101 - or it had not been kept
    plan, ttl, _ = made
    return PlainReply(plan, ttl, kept[5], kept)


class Reader:
    """Reads the replies of one run."""

    def __init__(self, settings: Settings, *, trust_ad: bool) -> None:
        self._settings = settings
        self._undotted = settings.reading_origin()
        self._trust_ad = trust_ad

    def __call__(self, name: Labels, question: bytes, packet: bytes, server: str, elapsed: float) -> PlainReply | None:
        """The packet as a plain reply to the question; None where it is none. Its ID is not looked at."""
        made = _read(name, question, packet, self._settings, self._undotted)
        if made is None:
            return None
        plan, ttl, authentic = made
        security = ("secure" if authentic else "insecure") if self._trust_ad else "indeterminate"
        return PlainReply(plan, ttl, security, (name, question, packet, server, elapsed, security))


def _read(
    name: Labels, question: bytes, packet: bytes, settings: Settings, undotted: Labels | None
) -> tuple[Plan, int, bool] | None:
    """The plan of a packet, its TTL, and whether AD is set. A packet larger than was asked for is not kept whole."""
    if len(packet) > wire.EDNS_PAYLOAD:
        return None
    plain = wire.plain_records(name, question, packet)
    if plain is None:
        return None
    records, ttl, authentic = plain
    if len(records) > settings.max_candidates or len(records) > settings.max_records:
        return None
    made = make_plan(
        records, name, ttl, undotted=undotted, allow_private=settings.allow_private, steps=settings.regexp_steps
    )
    return None if made is None else (made, ttl, authentic)
