"""UDP and TCP on real sockets (RFC 7766), their limits, and dnslib's stock server."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import time

import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from maptr.answer.context import ReceivedQuery, Transport
from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.server.counters import Counters
from maptr.server.responder import ServerState
from maptr.transfer.session import Access
from tests.support import streams
from tests.support.running import daemon_of
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    ("host", "asked"), [("0.0.0.0", ["127.0.0.1", "127.0.0.2", "127.0.0.9", "127.0.0.1"]), ("::", ["::1"])]
)
def test_the_source_of_a_response_is_the_destination_of_its_query(
    batched: bool, host: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not batched:
        monkeypatch.setattr("maptr.server.batch.why_not", lambda: "for a test")
    with streams.serving(Address(host, 0)) as daemon, contextlib.ExitStack() as stack:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socks = [stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for _ in asked]
        for sock, address in zip(socks, asked, strict=True):
            sock.settimeout(PATIENCE)
            sock.connect((address, daemon.bound[0].port))  # receives nothing from other addresses
        for _ in range(3):
            for sock in socks:
                sock.send(streams.WIRE)
            assert [sock.recv(65535)[:2] for sock in socks] == [streams.WIRE[:2]] * len(asked)


@pytest.mark.parametrize(("wanted", "advised"), [(53, True), (5300, False)])
def test_the_error_for_a_privileged_port_names_the_capability(
    monkeypatch: pytest.MonkeyPatch, wanted: int, advised: bool
) -> None:
    def refuse(*_: object, **__: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("maptr.daemon.sockets.open_udp", refuse)
    with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{wanted}: Permission denied") as caught:
        daemon_of(streams.SNAPSHOT, Address("127.0.0.1", wanted)).bind()
    assert ("CAP_NET_BIND_SERVICE" in str(caught.value)) is advised


def test_at_the_limit_the_longest_idle_connection_is_closed() -> None:
    with (
        streams.listening(max_connections=2) as server,
        streams.connect(server.port) as one,
        streams.connect(server.port) as two,
    ):
        for sock in (one, two, one):
            streams.ask(sock)
        with streams.connect(server.port) as three:
            streams.ask(three)
            assert streams.is_closed(two)
            streams.ask(one)


def test_an_internal_error_drops_only_its_query_on_every_transport(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    responder = streams.responding()
    with monkeypatch.context() as patch:
        patch.setattr("maptr.server.responder.answer", lambda *_args, **_kwargs: 1 // 0)
        for transport in Transport:
            assert responder.answer(ReceivedQuery(streams.WIRE, transport, "127.0.0.1"), Counters()) is None
    assert streams.WIRE.hex() in caplog.text
    assert responder.answer(ReceivedQuery(streams.WIRE, Transport.UDP, "127.0.0.1"), Counters())


def test_rfc5936_a_query_pipelined_after_a_transfer() -> None:
    with streams.transferring() as daemon, streams.connect(daemon.bound[0].port) as sock:
        sock.sendall(streams.frame(dns.message.make_query("ark.arpa.", "AXFR")) + streams.FRAME)
        records, soas = 0, 0
        while soas < 2:
            message = streams.receive_message(sock)
            records += sum(map(len, message.answer))
            soas += sum(len(rrset) for rrset in message.answer if rrset.rdtype == dns.rdatatype.SOA)
        assert records == 3004
        assert streams.receive_message(sock).id == streams.QUERY.id


def test_a_transfer_continues_with_the_old_zone_after_a_reload() -> None:
    """The client reads only the first message before the zone is replaced."""
    with streams.transferring() as daemon, streams.connect(daemon.bound[0].port) as sock:
        sock.sendall(streams.frame(dns.message.make_query("ark.arpa.", "AXFR")))
        records = sum(map(len, streams.receive_message(sock).answer))
        daemon.responder.swap(ServerState(streams.SNAPSHOT, Access(), daemon.responder.state.context))
        with streams.connect(daemon.bound[0].port) as other:
            streams.ask(other)
        while records < 3004:
            records += sum(map(len, streams.receive_message(sock).answer))
        assert records == 3004


def test_queries_sent_before_the_connection_is_accepted_are_answered() -> None:
    """The kernel receives one query, two queries and the end of the stream, or half a query before the accept."""
    with streams.listening(start=False) as server, contextlib.ExitStack() as stack:
        one, two, half, nothing, gone = (stack.enter_context(streams.connect(server.port)) for _ in range(5))
        one.sendall(streams.FRAME)
        two.sendall(streams.FRAME + streams.BIG_FRAME)
        two.shutdown(socket.SHUT_WR)
        half.sendall(streams.FRAME[:-1])
        gone.sendall(streams.FRAME)
        streams.linger(gone)
        gone.close()
        server.start()
        assert streams.receive_message(one).id == streams.QUERY.id
        assert streams.receive_message(two).id == streams.QUERY.id
        assert len(streams.receive_message(two).answer[0]) == 250
        assert streams.is_closed(two)
        streams.wait_for(lambda: server.connections.counts.open == 3)  # "two" and "gone" are closed
        half.sendall(streams.FRAME[-1:])
        one.sendall(streams.FRAME)
        nothing.sendall(streams.FRAME)
        for sock in (half, one, nothing):
            assert streams.receive_message(sock).id == streams.QUERY.id


@pytest.mark.parametrize("has_idle", [False, True])
def test_connections_wait_for_a_file_descriptor(
    has_idle: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server waits until there is one, or closes the connection that has been idle longest."""
    monkeypatch.setattr("maptr.daemon.connections.ACCEPT_PAUSE", 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with streams.listening() as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(streams.connect(server.port)) for _ in range(has_idle)]
        for sock in idle:
            streams.ask(sock)
        later = stack.enter_context(socket.socket())
        later.settimeout(PATIENCE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
            later.connect(("127.0.0.1", server.port))
            later.sendall(streams.FRAME)
            streams.wait_for(
                lambda: "cannot accept connections, trying again every 0.05 s: Too many open files" in caplog.text
            )
            time.sleep(0.2)
            assert caplog.text.count("cannot accept connections") == 1
            assert all(map(streams.is_closed, idle))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert streams.receive_message(later).id == streams.QUERY.id
    assert server.connections.counts.shed == len(idle)
