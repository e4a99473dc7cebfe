"""The limit of log lines that remote clients can trigger."""

from __future__ import annotations

import logging

import dns.message
import pytest

from maptr.answer.context import Transport
from maptr.server.counters import Counters
from maptr.server.log_limit import INTERVAL, MAX_LINES, LogLimit
from maptr.server.responder import Responder, State
from maptr.transfer.session import Access
from maptr.zone.snapshot import Snapshot


def test_lines_beyond_the_limit_are_counted() -> None:
    now = 100.0
    seldom = LogLimit(30, lambda: now)
    assert [seldom.left_out() for _ in range(37)] == [0] * 30 + [None] * 7
    now += INTERVAL - 1
    assert seldom.left_out() is None
    now += 1
    assert [seldom.left_out() for _ in range(2)] == [8, 0]
    now += INTERVAL
    assert seldom.left_out() == 0


def test_forged_queries_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    responder, counters = Responder(clock=lambda: now), Counters()
    responder.swap(State(Snapshot.of([]), Access(), responder.context))
    query = dns.message.make_query("ark.arpa.", "IXFR").to_wire()
    with caplog.at_level(logging.INFO, "maptr.serve"):
        for _ in range(10 * MAX_LINES):
            assert responder.answer(query, Transport.UDP, "127.0.0.1", counters) is not None
        now += INTERVAL
        responder.answer(query, Transport.UDP, "127.0.0.1", counters)
    line = "IXFR of zone ark.arpa. to 127.0.0.1 refused: not served here"
    said = [record.getMessage() for record in caplog.records]
    assert said == [line] * MAX_LINES + [f"{line}, and {9 * MAX_LINES} more before"]
