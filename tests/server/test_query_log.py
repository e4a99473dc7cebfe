"""Rate-limited logging, and the query log."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from pathlib import Path

import dns.message
import dns.query
import pytest

from maptr.answer.arena import SILENCE
from maptr.answer.context import ReceivedQuery, Transport
from maptr.daemon.log_limit import INTERVAL, MAX_LINES
from maptr.server.counters import Counters
from maptr.server.query_log import QueryLog
from maptr.zone.snapshot import Snapshot
from tests.support.caching import Clock
from tests.support.server_process import Start
from tests.support.streams import responding
from tests.support.waiting import PATIENCE


def wire(name: str, rdtype: str = "A") -> bytes:
    return dns.message.make_query(name, rdtype).to_wire()


def test_forged_queries_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock, counters = Clock(), Counters()
    responder = responding(Snapshot.of([]), clock=clock)
    query = dns.message.make_query("ark.arpa.", "IXFR").to_wire()
    with caplog.at_level(logging.INFO, "maptr"):
        for _ in range(10 * MAX_LINES):
            assert responder.answer(ReceivedQuery(query, Transport.UDP, "127.0.0.1"), counters) is not None
        clock.now += INTERVAL
        responder.answer(ReceivedQuery(query, Transport.UDP, "127.0.0.1"), counters)
    line = "IXFR of zone ark.arpa. to 127.0.0.1 by udp refused: not served here"
    said = [record.getMessage() for record in caplog.records]
    assert said == [line] * MAX_LINES + [f"{line}, and {9 * MAX_LINES} more before"]


def test_every_nth_query_is_logged() -> None:
    noted = QueryLog(3, 100, Clock())
    assert [list(noted.pick(count)) for count in (2, 2, 5, 1, 7)] == [[], [0], [1, 4], [], [1, 4]]
    assert [list(QueryLog(1, 100, Clock()).pick(count)) for count in (0, 3)] == [[], [0, 1, 2]]


class Interrupted(int):
    """A number of queries. While it is used, another thread picks a query."""

    log: QueryLog
    others: list[threading.Thread]
    picked: list[int]

    def __rmod__(self, seen: int) -> int:
        if not self.others:
            self.others.append(threading.Thread(target=lambda: self.picked.extend(self.log.pick(1))))
            self.others[0].start()
            self.others[0].join(0.1)  # it may have to wait for its turn
        return seen % int(self)


def test_no_query_is_picked_twice_by_threads() -> None:
    every = Interrupted(2)
    every.log, every.others, every.picked = QueryLog(every, 100, Clock()), [threading.Thread()], []
    assert [*every.log.pick(1)] == []
    every.others.clear()
    first = [*every.log.pick(1)]
    every.others[0].join()
    assert len(first + every.picked) == 1, "the second of three queries"


def test_a_line_has_the_question_and_the_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    noted = QueryLog(1, 100, Clock())
    noted.write(ReceivedQuery(wire("12345.ark.arpa.", "NAPTR"), Transport.UDP, "192.0.2.1"), 0)
    noted.write(ReceivedQuery(wire("a\\010b.example.", "TYPE65400"), Transport.TLS, "2001:db8::1"), SILENCE)
    noted.write(ReceivedQuery(wire("a."), Transport.UDP, "192.0.2.1"), 11)
    noted.write(ReceivedQuery(b"", Transport.UDP, "192.0.2.1"), SILENCE)
    noted.write(ReceivedQuery(bytes(12), Transport.UDP, "192.0.2.1"), 1)
    assert caplog.messages == [
        "query 12345.ark.arpa. IN NAPTR from 192.0.2.1 by udp: NOERROR",
        "query a\\010b.example. IN TYPE65400 from 2001:db8::1 by tls: -",
        "query a. IN A from 192.0.2.1 by udp: RCODE11",
    ]


def test_the_rate_of_lines_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    noted = QueryLog(1, 2, clock)
    for _ in range(10):
        noted.write(ReceivedQuery(wire("a."), Transport.UDP, "192.0.2.1"), SILENCE)
    clock.now += 1.0
    noted.write(ReceivedQuery(wire("a."), Transport.UDP, "192.0.2.1"), SILENCE)
    assert len(caplog.messages) == 3
    assert caplog.messages[-1].endswith("by udp: -, and 8 more before")


def ask(port: int, name: str) -> None:
    query = dns.message.make_query(name, "A")
    dns.query.udp(query, "127.0.0.1", PATIENCE, port)
    dns.query.tcp(query, "127.0.0.1", PATIENCE, port)


def test_every_query_can_be_logged(start: Start, zone_file: Path) -> None:
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", "--query-log", "1")
    port = server.ready()
    long = ".".join(["a" * 50] * 4)  # a long name
    for name, rcode in ((f"{long}.ark.arpa.", "NXDOMAIN"), ("ns.ark.arpa.", "NOERROR"), ("other.", "REFUSED")):
        for _ in range(2):  # the second response is a ready one
            ask(port, name)
        for transport in ("udp", "tcp"):
            line = rf"query {re.escape(name)} IN A from 127[.]0[.]0[.]1 by {transport}: {rcode}$"
            server.wait_for(line, after=server.lines.index(server.wait_for(line).string) + 1)
    response = dns.message.make_response(dns.message.make_query("response.ark.arpa.", "A"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(response.to_wire(), ("127.0.0.1", port))
    server.wait_for(r"query response.ark.arpa. IN A from 127[.]0[.]0[.]1 by udp: -$")
    dns.query.udp(dns.message.make_query("version.ark.arpa.", "A", use_edns=1), "127.0.0.1", PATIENCE, port)
    server.wait_for(r"query version.ark.arpa. IN A from 127[.]0[.]0[.]1 by udp: BADVERS$")


def test_json_log_lines_are_objects_and_have_the_rcode(start: Start, zone_file: Path) -> None:
    options = ["--query-log", "1", "--log-format", "json"]
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", *options)
    line = json.loads(server.wait_for("^.*ready, serving 1 zone.*$")[0])
    assert line.keys() == {"time", "level", "logger", "message"}
    assert (line["level"], line["logger"]) == ("info", "maptr.serve")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"])
    port = int(re.search(r"127\.0\.0\.1:(\d+)", line["message"])[1])  # type: ignore[index]
    ask(port, "other.")
    line = json.loads(server.wait_for("^.*query other[.].*$")[0])
    assert (line["message"], line["rcode"]) == ("query other. IN A from 127.0.0.1 by udp: REFUSED", "REFUSED")
