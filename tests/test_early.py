"""The first answers of a start: given before the daemon is there, and the rest once it is."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import dns.rcode
import pytest

from maptr.answer import Transport
from maptr.config import Config, parse
from maptr.errors import ConfigError
from maptr.serve import batch, early, settings
from maptr.serve.counters import Counters
from maptr.serve.early import Early
from maptr.serve.udp import Answer
from maptr.serve.zones import ZoneSource, read_zone
from maptr.snapshot import Snapshot

ZONE = "$TTL 60\n@ IN SOA ns1 host 1 7200 3600 1209600 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\nx IN TXT hello\n"
PATIENCE = 10.0  # seconds for what should take milliseconds

pytestmark = pytest.mark.skipif(batch.why_not() is not None, reason=f"no batches here: {batch.why_not()}")


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    path = tmp_path / "zone"
    path.write_text(ZONE)
    return Snapshot.of([read_zone(ZoneSource((b"a", b"test"), path))])


def configured(more: str = "") -> Config:
    return parse(f'[serve]\nlisten = ["127.0.0.1:0"]\n{more}')


@contextlib.contextmanager
def running(snapshot: Snapshot, more: str = "") -> Iterator[tuple[Early, int]]:
    begun = early.start(configured(more), snapshot)
    assert begun is not None
    try:
        yield begun, begun.sockets.udp[0].getsockname()[1]
    finally:
        begun.stop()


def ask(port: int, name: str, rdtype: str, timeout: float = PATIENCE) -> dns.message.Message:
    return dns.query.udp(dns.message.make_query(name, rdtype, use_edns=0), "127.0.0.1", timeout, port)


def test_what_lies_ready_is_answered_at_once_and_counted(snapshot: Snapshot) -> None:
    with running(snapshot) as (begun, port):
        assert ask(port, "x.a.test", "TXT").answer[0][0].to_text() == '"hello"'
        assert ask(port, "y.a.test", "TXT").rcode() == dns.rcode.NXDOMAIN
        assert ask(port, "elsewhere.test", "A").rcode() == dns.rcode.REFUSED
    assert sum(begun.counters[1].to_dict()["udp"].values()) == 3


def test_the_rest_waits_for_the_daemon(snapshot: Snapshot) -> None:
    told: list[tuple[bytes, Transport, str]] = []

    def answer(counters: Counters) -> Answer:
        assert counters is begun.counters[1]

        def reply(query: bytes, transport: Transport, client: str) -> bytes:
            told.append((query, transport, client))
            return dns.message.make_response(dns.message.from_wire(query)).to_wire()

        return reply

    with running(snapshot) as (begun, port):
        replies: list[dns.message.Message] = []
        asking = threading.Thread(target=lambda: replies.append(ask(port, "a.test", "AXFR")))
        asking.start()
        asking.join(0.1)
        assert asking.is_alive()
        begun.open(answer)
        asking.join(PATIENCE)
        assert [reply.rcode() for reply in replies] == [dns.rcode.NOERROR]
        assert [(transport, client) for _, transport, client in told] == [(Transport.UDP, "127.0.0.1")]


def test_a_start_that_fails_leaves_no_socket_and_nobody_waiting(snapshot: Snapshot) -> None:
    before = threading.active_count()
    with running(snapshot) as (_, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(dns.message.make_query("a.test", "AXFR").to_wire(), ("127.0.0.1", port))
    assert threading.active_count() == before
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.bind(("127.0.0.1", port))


def test_an_address_in_use_is_an_error_with_nothing_left_running(snapshot: Snapshot) -> None:
    before = threading.active_count()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(ConfigError, match="cannot listen on"):
            early.start(parse(f'[serve]\nlisten = ["127.0.0.1:{sock.getsockname()[1]}"]\n'), snapshot)
    assert threading.active_count() == before


def test_a_catalog_is_not_refused_before_those_who_may_have_it_are_known(snapshot: Snapshot) -> None:
    catalog = '[serve.catalog]\nname = "catalog.test"\n'
    with running(snapshot, catalog) as (_, port), pytest.raises(dns.exception.Timeout):
        ask(port, "catalog.test", "SOA", 0.2)


def test_settings_hold_from_the_first_answer_on(snapshot: Snapshot) -> None:
    more = "[serve.cookies]\nenabled = false\n[serve.rrl]\nresponses_per_second = 1\nslip = 0\nexempt = []\n"
    with running(snapshot, more) as (begun, port):
        assert begun.responder.context.cookies == settings.cookies_of(configured(more))
        ask(port, "x.a.test", "TXT")
        with pytest.raises(dns.exception.Timeout):
            ask(port, "x.a.test", "TXT", 0.2)
        assert begun.counters[0].dropped == 1


def test_nothing_begins_early_where_workers_are_to_be_forked(snapshot: Snapshot) -> None:
    assert early.start(configured("workers = 2\n"), snapshot) is None


# Whoever imports the daemon waits until a line comes by stdin.
WAITING = """
import importlib.abc, sys

class Wait(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "maptr.serve.daemon":
            sys.stdin.readline()

sys.meta_path.insert(0, Wait())
from maptr.cli import main
main(sys.argv[1:], prog_name="maptr")
"""


def test_the_server_answers_before_the_daemon_is_imported_and_hands_over(tmp_path: Path) -> None:
    path = tmp_path / "zone"
    path.write_text(ZONE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    arguments = ["serve", f"--zone=a.test={path}", f"--listen=127.0.0.1:{port}"]
    server = subprocess.Popen(
        [sys.executable, "-c", WAITING, *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdin is not None
        assert server.stderr is not None
        query = dns.message.make_query("x.a.test", "TXT")
        for _ in range(100):
            with contextlib.suppress(OSError, dns.exception.Timeout):
                reply = dns.query.udp(query, "127.0.0.1", 0.1, port)
                break
        assert reply.answer[0][0].to_text() == '"hello"'
        server.stdin.write("\n")
        server.stdin.flush()
        assert "ready, serving 1 zone" in server.stderr.readline()
        assert dns.query.tcp(query, "127.0.0.1", PATIENCE, port).answer == reply.answer
        chaos = dns.message.make_query("version.bind", "TXT", "CH")
        assert dns.query.udp(chaos, "127.0.0.1", PATIENCE, port).rcode() == dns.rcode.REFUSED
        server.terminate()
        assert server.wait(PATIENCE) == 0
    finally:
        server.kill()
        server.communicate()
