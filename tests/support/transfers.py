"""The path of a query without a server: verify, answer and sign."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from maptr.answer.context import PLAIN, Context, ReceivedQuery, Transport
from maptr.protocol.names import Labels
from maptr.transfer.acl import AccessRule, Secondaries, TsigKey
from maptr.transfer.session import Access, answer
from maptr.transfer.tsig import check_query
from maptr.zone.snapshot import Snapshot

HERE = "127.0.0.1"


def keyring(keys: Iterable[TsigKey]) -> dict[Labels, TsigKey]:
    return {key.name: key for key in keys}


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
) -> Iterator[bytes]:
    """The messages of the response, without a rate limit."""
    checked = check_query(ReceivedQuery(query, transport, client), access.keys, now)
    return map(checked.sign, answer(checked, snapshot, access, context).messages)
