"""The first answers of a start: given before the daemon is there, and the rest once it is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.edns
import dns.exception
import dns.message
import dns.opcode
import dns.query
import dns.rcode
import pytest

from maptr.answer import respond
from maptr.config import Config, parse
from maptr.context import Transport
from maptr.errors import ConfigError
from maptr.serve import batch, early, settings, signals
from maptr.serve.counters import Counters
from maptr.serve.early import Early
from maptr.serve.udp import Answer
from maptr.serve.zones import ZoneSource, read_zone
from maptr.snapshot import Snapshot
from scripts.benchmark.loads import ark_zone
from tests.ports import free_port
from tests.test_serve_cli import CURRENT_USER

ZONE = "$TTL 60\n@ IN SOA ns1 host 1 7200 3600 1209600 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\nx IN TXT hello\n"
QUERY = dns.message.make_query("x.a.test", "TXT")
PATIENCE = 30.0  # seconds for what should take milliseconds
TRIES = 400  # of a tenth of a second each, for a busy machine to start Python

pytestmark = pytest.mark.skipif(batch.why_not() is not None, reason=f"no batches here: {batch.why_not()}")


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    path = tmp_path / "zone"
    path.write_text(ZONE)
    return Snapshot.of([read_zone(ZoneSource((b"a", b"test"), path))])


def configured(more: str = "", port: int = 0) -> Config:
    return parse(f'[serve]\nlisten = ["127.0.0.1:{port}"]\n{more}')


@contextlib.contextmanager
def running(snapshot: Snapshot, more: str = "") -> Iterator[tuple[Early, int]]:
    port = free_port()
    begun = early.start(configured(more, port), snapshot)
    assert begun is not None
    try:
        yield begun, port
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
        asking = threading.Thread(target=lambda: replies.append(ask(port, "a.test", "IXFR")))
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


@contextlib.contextmanager
def begun_early(directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server that answers already, and whose daemon is imported once it is given a line."""
    path = directory / "zone"
    path.write_text(ZONE)
    port = free_port()
    arguments = ["serve", f"--zone=a.test={path}", f"--listen=127.0.0.1:{port}"]
    server = subprocess.Popen(
        [sys.executable, "-c", WAITING, *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"MAPTR_SERVE_USER": CURRENT_USER} | os.environ,
    )
    try:
        for _ in range(TRIES):
            with contextlib.suppress(OSError, dns.exception.Timeout):
                reply = dns.query.udp(QUERY, "127.0.0.1", 0.1, port)
                break
            assert server.poll() is None
        else:
            pytest.fail("it does not answer")
        assert reply.answer[0][0].to_text() == '"hello"'
        yield server, port
    finally:
        server.kill()
        server.communicate()


def go_on(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.write("\n")
    server.stdin.flush()


def logged(server: subprocess.Popen[str]) -> str:
    """The next line."""
    assert server.stderr is not None
    return server.stderr.readline()


def test_the_server_answers_before_the_daemon_is_imported_and_hands_over(tmp_path: Path) -> None:
    with begun_early(tmp_path) as (server, port):
        go_on(server)
        assert "ready, serving 1 zone" in logged(server)
        assert dns.query.tcp(QUERY, "127.0.0.1", PATIENCE, port).answer
        odd = dns.message.make_query("a.test", "SOA")
        odd.set_opcode(dns.opcode.STATUS)
        assert dns.query.udp(odd, "127.0.0.1", PATIENCE, port).rcode() == dns.rcode.NOTIMP
        server.terminate()
        assert server.wait(PATIENCE) == 0


def test_sighup_while_it_starts_is_heard_when_it_is_ready(tmp_path: Path) -> None:
    """What changed since its zones were read is read then; it would have ended a process that has no handler yet."""
    with begun_early(tmp_path) as (server, port):
        (tmp_path / "zone").write_text(ZONE.replace("host 1", "host 2").replace("hello", "again"))
        server.send_signal(signal.SIGHUP)
        go_on(server)
        while "reloaded, serial 2 (was 1)" not in (line := logged(server)):
            assert line
        assert dns.query.udp(QUERY, "127.0.0.1", PATIENCE, port).answer[0][0].to_text() == '"again"'


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_what_other_servers_take_does_not_end_it(tmp_path: Path, name: str) -> None:
    with begun_early(tmp_path) as (server, _):
        server.send_signal(signal.Signals[name])
        go_on(server)
        for again in (True, False):
            while f"{name} means nothing here" not in (line := logged(server)):
                assert line
            if again:
                server.send_signal(signal.Signals[name])
        server.terminate()
        assert server.wait(PATIENCE) == 0


def test_sigterm_while_it_starts_ends_it_at_once(tmp_path: Path) -> None:
    with begun_early(tmp_path) as (server, _):
        server.terminate()
        assert server.wait(PATIENCE) == -signal.SIGTERM


def test_signals_are_held_no_longer_than_told() -> None:
    def held() -> bool:
        return signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert not held()
    with signals.held():
        assert held()
        signals.heard()
        assert not held()
    with pytest.raises(ConfigError), signals.held():
        raise ConfigError("a start that fails")
    assert not held()


def test_a_zone_that_did_not_load_is_never_answered_for_another(snapshot: Snapshot) -> None:
    """Not from the zone above it, not as nobody's, by no name and with no EDNS or DO."""
    below, other = (b"bad", b"a", b"test"), (b"bad", b"test")
    broken = Snapshot.of(snapshot.zones.values(), broken=[below, other])
    with running(broken) as (begun, port):
        begun.open(lambda _: lambda query, transport, client: respond(query, broken))
        for name in ("bad.a.test", "x.bad.a.test", "bad.test", "no.where.bad.test", "*.bad.a.test"):
            for options in ({}, {"use_edns": 0}, {"want_dnssec": True}):
                for _ in range(3):  # for what comes twice is learned
                    query = dns.message.make_query(name, "TXT", **options)
                    assert dns.query.udp(query, "127.0.0.1", PATIENCE, port).rcode() == dns.rcode.SERVFAIL
        assert ask(port, "x.a.test", "TXT").answer


def test_required_cookies_are_required_from_the_first_answer_on(snapshot: Snapshot) -> None:
    """Who shows none is answered; who shows a new one waits for the daemon, which says BADCOOKIE."""
    with running(snapshot, "[serve.cookies]\nrequire = true\n") as (_, port):
        assert ask(port, "x.a.test", "TXT").answer
        option = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"12345678")
        query = dns.message.make_query("x.a.test", "TXT", use_edns=0, options=[option])
        with pytest.raises(dns.exception.Timeout):
            dns.query.udp(query, "127.0.0.1", 0.2, port)


# Whoever imports the daemon is told what was loaded before it, instead.
TELLING = """
import json, os, sys

class Tell:
    def find_spec(self, name, path, target=None):
        if name == "maptr.serve.daemon":
            os.write(1, json.dumps(sorted(sys.modules)).encode())
            os._exit(0)

sys.meta_path.insert(0, Tell())
from maptr.cli.brief import run
run()
"""
LOGGING = "import json, logging, sys; print(json.dumps(sorted(sys.modules)))"
# click takes 27 ms to import, dataclasses with inspect 8 and half a millisecond a class, dnslib 10, asyncio 25. From
# Python 3.14 on, logging brings dataclasses along.
LATER = {
    *("click", "dataclasses", "inspect", "dnslib", "asyncio", "ssl", "dns.name", "dns.message"),
    *("maptr.answer", "maptr.acl", "maptr.signing", "maptr.zonediff", "maptr.finding", "maptr.rulecheck"),
}


@pytest.mark.parametrize("options", [[], ["--state=."], ["--nsid", "here", "--tls-listen=127.0.0.1:0"]])
def test_the_first_answers_wait_for_nothing_that_they_do_not_need(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "zone").write_text(ark_zone(1000))
    if "--nsid" in options:
        options = [*options, "--tls-cert=cert.pem", "--tls-key=key.pem"]  # not looked at so early
    arguments = ["serve", "--zone=ark.arpa=zone", "--listen=127.0.0.1:0", *options]
    command = [sys.executable, "-c", TELLING, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True, cwd=tmp_path)
    loaded = set(json.loads(done.stdout))
    assert "maptr.serve.early" in loaded
    logging = subprocess.run([sys.executable, "-c", LOGGING], stdout=subprocess.PIPE, timeout=60, check=True)
    assert loaded & LATER == set(json.loads(logging.stdout)) & LATER
