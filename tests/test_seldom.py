"""What strangers have the log say: bounded in any minute, and counted."""

from __future__ import annotations

from collections.abc import Callable

import dns.message
import dns.query
import dns.rcode
import dns.rrset
import pytest

from maptr.serve.seldom import MAX_LINES, WINDOW, Seldom
from tests.caching import Clock
from tests.conftest import REPOSITORY as ROOT
from tests.peers import Maptr
from tests.running import PATIENCE


def test_so_many_lines_in_a_window_and_the_others_counted() -> None:
    clock, said = Clock(5.0), list[str]()
    seldom = Seldom(said.append, clock=clock)
    for number in range(MAX_LINES + 7):
        seldom(f"line {number}")
    assert said == [f"line {number}" for number in range(MAX_LINES)]
    clock.now += WINDOW
    seldom("again")
    seldom("and again")
    assert said[MAX_LINES:] == ["again; 7 more before it were not told", "and again"]


@pytest.mark.parametrize("ask", [dns.query.udp, dns.query.tcp], ids=["udp", "tcp"])
def test_a_flood_of_refused_transfers_is_none_of_lines(ask: Callable[..., dns.message.Message]) -> None:
    query = dns.message.make_query("ark.arpa.", "IXFR")
    query.authority.append(dns.rrset.from_text("ark.arpa.", 0, "IN", "SOA", ". . 1 1 1 1 1"))
    with Maptr({"ark.arpa.": ROOT / "zones" / "ark.arpa.zone"}) as server:
        for _ in range(5 * MAX_LINES):
            assert ask(query, server.host, PATIENCE, server.port).rcode() == dns.rcode.REFUSED
        assert server.log().count("refused") == MAX_LINES
