"""Vectors of responses, byte by byte: read without sockets, and by every driver from a server."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maptr.ark import Ark
from maptr.client.exchange import Exchange
from maptr.client.servers import Server
from maptr.discovery import Outcome
from maptr.protocol.names import ARK_ARPA
from maptr.walk import Question, Walk
from tests.client.test_exchange import take
from tests.client.test_hostile import ARK, DRIVERS
from tests.support.drivers import Driver, name_of
from tests.support.hostile import AA, NAPTR, TC, Hostile, hostile, naptr, question, record, reply

VECTORS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).resolve().parents[1] / "vectors" / "replies.toml").read_text("utf-8")
)["reply"]
ID = b"\xab\xcd"
NAME = (b"12345", *ARK_ARPA)
ASKED = b"\x0512345\3ark\4arpa\0\0\x23\0\1"
GOOD = [record(None, NAPTR, naptr("good.example."))]


def octets(case: dict[str, Any]) -> bytes:
    return bytes.fromhex(case["packet"])


def spoken(packet: bytes, asked: bytes) -> bytes:
    """The packet with the question as it was sent. If the vector has other letters, all of them differ from it."""
    theirs = packet[12 : 12 + len(ASKED)]
    if theirs != ASKED and theirs.lower() == ASKED:
        return packet.replace(theirs, asked.swapcase())  # the query may have the letters of the vector by chance
    return packet.replace(ASKED, asked)


def exchange() -> Exchange:
    """An exchange that sends the query of the vectors, with their ID and in lower case."""
    return Exchange(NAME, (Server("192.0.2.1"),), lambda size: ID + bytes(size - 2))


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
    assert (following is not None and following.tcp) is case.get("tcp", False)
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


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    """One server for all cases. Each case sets its script."""
    with hostile(lambda query, transport: []) as running:
        yield running


@pytest.mark.parametrize("driver", DRIVERS, ids=name_of)
@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["title"])
def test_every_driver_by_a_server(case: dict[str, Any], driver: Driver, server: Hostile) -> None:
    """A response that must be ignored is followed by a good one."""
    packet = octets(case)

    def serve(query: bytes, transport: str) -> list[bytes]:
        name, asked = question(query)
        if name != NAME:
            return [reply(query, rcode=3)]
        told = spoken(packet, asked)
        told = query[:2] + told[2:] if packet.startswith(ID) else bytes((query[0] ^ 1, query[1])) + told[2:]
        if not case.get("heard", True):
            return [told, reply(query, GOOD)]
        if transport == "tcp" and case.get("tcp"):
            return [reply(query, GOOD)]
        if transport == "udp" and case.get("by_tcp"):
            return [reply(query, flags=AA | TC)]
        return [told]

    server.script = serve
    found = driver(ARK, server, lifetime=10.0)
    if case.get("tcp") or not case.get("heard", True):
        assert [candidate.host for candidate in found] == ["good.example"]
        return
    assert found.trace[0].outcome is Outcome[case["outcome"]]
    assert case.get("note", "") in found.trace[0].note
    assert [candidate.host for candidate in found] == case.get("hosts", [])
