"""Vectors of responses, byte by byte."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from maptr.ark import Ark
from maptr.discovery import Outcome
from maptr.protocol.names import ARK_ARPA
from maptr.resolver.exchange import Exchange, StubQuery
from maptr.resolver.servers import CaseBlind, Server
from maptr.walk import Question, Walk
from tests.resolver.test_exchange import take
from tests.resolver.test_hostile import ARK
from tests.support.hostile import AA, NAPTR, TC, naptr, record, reply

VECTORS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).resolve().parents[1] / "vectors" / "replies.toml").read_text("utf-8")
)["reply"]
ID = b"\xab\xcd"
NAME = (b"12345", *ARK_ARPA)
ASKED = b"\x0512345\3ark\4arpa\0\0\x23\0\1"
GOOD = [record(None, NAPTR, naptr("good.example."))]


def octets(case: dict[str, Any]) -> bytes:
    return bytes.fromhex(case["packet"])


def exchange() -> Exchange:
    """An exchange that sends the query of the vectors, with their ID and in lower case."""
    return Exchange(
        StubQuery(NAME, (Server("192.0.2.1"),), CaseBlind(), random_bytes=lambda size: ID + bytes(size - 2))
    )


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["title"])
def test_vector(case: dict[str, Any]) -> None:
    asking = exchange()
    attempt = take(asking)
    assert attempt.query.packet.startswith(ID)
    if case.get("by_tcp"):
        assert asking.receive(attempt, reply(attempt.query.packet, flags=AA | TC))
        attempt = take(asking)
    assert asking.receive(attempt, octets(case)) is case.get("heard", True)
    if not case.get("heard", True):
        return
    following = asking.next()
    if case.get("repeated"):
        assert following is not None
        assert asking.receive(following, octets(case))
        following = asking.next()
    assert (following is not None and following.tcp) is case.get("tcp", False)
    if case.get("respelled"):
        assert following is not None
        assert following.query.question == octets(case)[12 : 12 + len(ASKED)]
    if following is not None:
        return
    answer = asking.answer
    assert answer is not None
    assert answer.outcome is Outcome[case["outcome"]]
    assert case.get("note", "") in answer.note
    assert answer.ttl == case.get("ttl")
    walk = Walk(Ark.parse(ARK))
    (root,) = walk.next()
    assert root == Question(NAME)
    walk.tell(root, answer)
    assert [candidate.host for candidate in walk.result()] == case.get("hosts", [])
