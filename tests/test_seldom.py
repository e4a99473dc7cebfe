"""Lines that the network can cause do not come as often as packets do."""

from __future__ import annotations

import logging

import dns.message
import pytest

from maptr.context import Transport
from maptr.exchange import Access
from maptr.serve.connections import TcpLimits
from maptr.serve.front import Front
from maptr.serve.responder import Responder
from maptr.serve.seldom import INTERVAL, MAX_LINES, Seldom
from maptr.snapshot import Snapshot


def test_so_many_lines_an_interval_and_then_their_number() -> None:
    lines: list[str] = []
    now = 100.0
    seldom = Seldom(lines.append, lambda: now)
    for number in range(MAX_LINES + 7):
        seldom(f"{number}")
    assert lines == [f"{number}" for number in range(MAX_LINES)]
    now += INTERVAL - 1
    seldom("not yet")
    now += 1
    for line in ("next", "and next"):
        seldom(line)
    assert lines[MAX_LINES:] == ["next, and 8 more before", "and next"]
    now += INTERVAL
    seldom("nothing was left out")
    assert lines[-1] == "nothing was left out"


def test_a_flood_of_forged_queries_is_no_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    front = Front(
        Responder(), Snapshot.of([]), Access(), limits=TcpLimits(), certificate=None, clock=lambda: 1_700_000_000.0
    )
    query = dns.message.make_query("ark.arpa.", "IXFR").to_wire()
    with caplog.at_level(logging.INFO, "maptr.serve"):
        for _ in range(10 * MAX_LINES):
            assert front.answer(query, Transport.UDP, "127.0.0.1") is not None
    said = [record.getMessage() for record in caplog.records]
    assert said == ["IXFR of zone ark.arpa. to 127.0.0.1 refused: not served here"] * MAX_LINES
