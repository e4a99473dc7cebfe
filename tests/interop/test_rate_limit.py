"""During a flood from one network, its genuine clients get responses: dig over TCP, and dig with a cookie."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from maptr.config.model import RrlConfig
from maptr.protocol.address import Address
from tests.support.peers import run
from tests.support.running import answering, daemon_of
from tests.support.streams import SNAPSHOT, WIRE

FLOOD = 300
RATE = 2


@pytest.fixture
def port() -> Iterator[int]:
    """A server that limits loopback too."""
    limit = RrlConfig(responses_per_second=RATE, exempt=())
    daemon = daemon_of(SNAPSHOT, Address("127.0.0.1", 0), rrl=limit)
    with answering(daemon):
        yield daemon.bound[0].port


def flood(port: int) -> list[bytes]:
    """The responses to one query sent again and again without a cookie."""
    replies = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        for _ in range(FLOOD):
            sock.send(WIRE)
        sock.settimeout(0.5)
        try:
            while True:
                replies.append(sock.recv(65535))
        except TimeoutError:
            return replies


def dig(port: int, *options: str) -> str:
    return run(
        "dig", "@127.0.0.1", "-p", port, "12345.ark.arpa.", "NAPTR", "+norec", "+time=1", "+tries=5", *options
    ).output


def test_dig_gets_responses_during_a_flood(port: int) -> None:
    cookie = dig(port, "+cookie=0102030405060708").partition("; COOKIE: ")[2].split()[0]
    replies = flood(port)
    assert sum(map(len, replies)) < FLOOD * len(WIRE), "fewer bytes than the flood"
    assert "ANSWER: 2" in dig(port, "+nocookie"), "truncated, then by TCP"
    for _ in range(2 * RATE):
        out = dig(port, f"+cookie={cookie}", "+ignore", "+tries=1")
        assert "ANSWER: 2" in out
        assert "(UDP)" in out
