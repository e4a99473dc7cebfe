"""One message to one server, as ``asking`` gives it to whoever has the sockets."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from maptr.client.reply import Query
from maptr.protocol.numbers import PORT
from maptr.walk import Answer


class Server(NamedTuple):
    """Where to ask: an address literal and a port."""

    address: str
    port: int = PORT

    def __str__(self) -> str:
        return f"{self.address}#{self.port}"


class Attempt(NamedTuple):
    """One message to one server, and how long to wait for the reply, in seconds."""

    server: Server
    query: Query
    tcp: bool
    seconds: float


class Asked(Protocol):
    """What a driver drives: an ``Exchange``, or several that make one answer."""

    answer: Answer | None

    def next(self) -> Attempt | None: ...
    def hear(self, attempt: Attempt, packet: bytes) -> bool: ...
    def silent(self, attempt: Attempt) -> None: ...
    def unreachable(self, attempt: Attempt, why: object) -> None: ...
    def expire(self) -> None: ...
    def unanswered(self, attempt: Attempt | None) -> Answer: ...
