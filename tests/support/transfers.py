"""Queries to ``exchange``: the general path behind signatures and transfers, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from maptr.answer.context import PLAIN, Context, Transport
from maptr.answer.respond import make_reply
from maptr.transfer.acl import AccessRule, Secondaries
from maptr.transfer.session import Access, exchange
from maptr.transfer.tsig import CheckedQuery
from maptr.zone.snapshot import Snapshot

HERE = "127.0.0.1"


def allowing(*rules: str) -> Secondaries:
    """The clients that these rules allow to transfer a zone."""
    return Secondaries(tuple(AccessRule.from_text(rule) for rule in rules))


def answered(
    query: bytes,
    snapshot: Snapshot,
    access: Access,
    *,
    now: int,
    transport: Transport = Transport.TCP,
    client: str = HERE,
    context: Context = PLAIN,
    note: Callable[[str], None] = lambda line: None,
    note_refused: Callable[[Callable[[], str]], None] = lambda line: None,
) -> Iterator[bytes]:
    """The messages of the response, without a rate limit."""

    def reply(checked: CheckedQuery, snapshot: Snapshot, rcode: int | None) -> bytes | None:
        decided: dict[str, Any] = {"transport": transport, "client": client, "context": context, "rcode": rcode}
        made = make_reply(checked.query, snapshot, reserve=checked.size, **decided)
        return None if made is None else made.wire

    at: dict[str, Any] = {"transport": transport, "client": client, "now": now}
    return exchange(query, snapshot, access, reply=reply, note=note, note_refused=note_refused, **at)
