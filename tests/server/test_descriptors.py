"""As many connections as the system has descriptors for, and queries answered past them."""

from __future__ import annotations

import logging
import resource
import shlex
import socket
from contextlib import ExitStack

import dns.message
import dns.query
import pytest

from maptr.server.sockets import RESERVED, limits_within_descriptors
from maptr.server.stream import DEFAULT_LIMITS, TcpLimits
from tests.conftest import REPOSITORY
from tests.support.peers import Maptr
from tests.support.running import PATIENCE

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        (INFINITY, INFINITY, 500, INFINITY),
        (4096, 8192, 500, 4096),
        (200, 8192, 500, 502 + RESERVED),  # as much as is needed
        (200, INFINITY, 500, 502 + RESERVED),
        (200, 300, 298 - RESERVED, 300),
        (200, 200, 198 - RESERVED, 200),
        (20, 20, 1, 20),
    ],
)
def test_what_fits(
    soft: int,
    hard: int,
    allowed: int,
    raised: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: given[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    with caplog.at_level(logging.WARNING, "maptr.serve"):
        assert limits_within_descriptors(DEFAULT_LIMITS, 2) == TcpLimits()._replace(max_connections=allowed)
    assert given[-1] == (raised, hard)
    assert [*caplog.messages] == (
        []
        if allowed == 500
        else [
            f"max_connections is {allowed} instead of 500, as a process may have {raised} files open: raise LimitNOFILE"
        ]
    )


class Poor(Maptr):
    """With few descriptors."""

    def configure(self) -> list[str]:
        return ["sh", "-c", f"ulimit -n {FILES}; exec {shlex.join(super().configure())}"]


FILES = 110


def test_a_server_with_few_descriptors_answers_past_the_connections_it_can_have() -> None:
    query = dns.message.make_query("12345.ark.arpa", "NAPTR")
    with Poor({"ark.arpa.": REPOSITORY / "zones" / "ark.arpa.zone"}) as server, ExitStack() as stack:
        for number in range(2 * FILES):
            idle = stack.enter_context(socket.socket())
            idle.bind((f"127.0.1.{number % 250}", 0))
            idle.settimeout(PATIENCE)
            idle.connect((server.host, server.port))
        for _ in range(4):
            assert dns.query.tcp(query, server.host, PATIENCE, server.port).answer
        assert "no connection accepted" not in server.log()
        assert "max_connections is " in server.log()
