"""A plain reply kept as its octets: its candidates are known at once, all else is read when somebody asks.

``volley`` hears one for nearly every question. A property test holds its discoveries to those of a walk in full over
what ``wire.read`` makes of the packet.
"""

from __future__ import annotations

from maptr import plain, wire
from maptr.ark import Ark
from maptr.discovery import Candidate, Discovery, Outcome, Step
from maptr.names import Labels
from maptr.walk import Answer, Settings, full_trace


class PlainReply:
    """The reply to the root question of a walk, where it is all there is. Made by a ``Reader``."""

    __slots__ = ("_candidates", "_elapsed", "_name", "_packet", "_question", "_security", "_server", "_ttl")

    def __init__(
        self,
        name: Labels,
        question: bytes,
        packet: bytes,
        candidates: tuple[Candidate, ...],
        ttl: int,
        security: str,
        server: str,
        elapsed: float,
    ) -> None:
        self._name = name
        self._question = question
        self._packet = packet
        self._candidates = candidates
        self._ttl = ttl
        self._security = security
        self._server = server
        self._elapsed = elapsed

    @property
    def ttl(self) -> int:
        """Seconds."""
        return self._ttl

    @property
    def size(self) -> int:
        """How many records it has, or fewer where some are told twice."""
        return len(self._candidates)

    def answer(self) -> Answer:
        """What ``asking`` makes of the packet."""
        reply = wire.read_plain(self._name, self._question, self._packet)
        assert reply is not None  # noqa: S101 - or it had not been made
        return Answer(Outcome.ANSWER, reply.records, reply.ttl, "", self._server, self._elapsed, self._security)

    def discovery(self, ark: Ark, settings: Settings, expiration: float | None) -> Discovery:
        """What a walk finds for an ARK whose root name was asked."""

        def trace() -> tuple[Step, ...]:
            return full_trace(ark, settings, self.answer())

        return Discovery(
            ark, self._candidates, trace, True, "dns", self._security, self._ttl, expiration, settings.scheme
        )


class Reader:
    """Reads the replies of one run."""

    def __init__(self, settings: Settings, *, trust_ad: bool) -> None:
        self._undotted = settings.reading_origin()
        self._most = min(settings.max_candidates, settings.max_records)
        self._trust_ad = trust_ad

    def __call__(self, name: Labels, question: bytes, packet: bytes, server: str, elapsed: float) -> PlainReply | None:
        """The packet, which ``wire.answers`` took, as a plain reply; None where it is none."""
        plain_records = wire.plain_records(name, question, packet)
        if plain_records is None:
            return None
        records, ttl, authentic = plain_records
        found = plain.candidates(records, name, ttl, self._undotted) if len(records) <= self._most else None
        if found is None:
            return None
        security = ("secure" if authentic else "insecure") if self._trust_ad else "indeterminate"
        return PlainReply(name, question, packet, found, ttl, security, server, elapsed)
