"""DNS over TLS on real sockets (RFC 7858), connection limits, and certificate reloads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import time
import tracemalloc
import warnings
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import dns.edns
import dns.message
import dns.query
import pytest

from maptr.config.model import TlsConfig
from maptr.daemon.certificate import ALPN, Certificate
from maptr.daemon.log_limit import MAX_LINES
from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.server.daemon import Daemon
from maptr.server.metrics import render
from maptr.server.status import ReloadResult
from maptr.server.stream import Stream
from tests.support import streams
from tests.support.certificates import write_certificate
from tests.support.running import Running, answering, daemon_of
from tests.support.waiting import PATIENCE

T = TypeVar("T")


def settings_in(directory: Path) -> TlsConfig:
    return TlsConfig((Address("127.0.0.1", 0),), directory / "tls.crt", directory / "tls.key")


@contextlib.contextmanager
def serving_tls(directory: Path) -> Iterator[tuple[int, Daemon, Running]]:
    """Run a daemon that serves only DNS over TLS. Yields its port first."""
    daemon = daemon_of(streams.SNAPSHOT, tls=settings_in(directory))
    with answering(daemon) as running:
        yield daemon.tls_bound[0].port, daemon, running


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    write_certificate(path)
    return path


@pytest.fixture(scope="module")
def port(directory: Path) -> Iterator[int]:
    with serving_tls(directory) as (port, _, _):
        yield port


def client_context(directory: Path, *alpn: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=directory / "tls.crt")
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def connect_tls(port: int, directory: Path, *alpn: str) -> ssl.SSLSocket:
    context = client_context(directory, *alpn)
    return context.wrap_socket(streams.connect(port), server_hostname="ns1.example", suppress_ragged_eofs=False)


def test_rfc7858_3_1_alpn_is_dot_and_tls_is_1_3(port: int, directory: Path) -> None:
    with connect_tls(port, directory, "h2", ALPN) as sock:
        assert sock.selected_alpn_protocol() == "dot"
        assert sock.version() == "TLSv1.3"
        assert streams.ask(sock).id == streams.QUERY.id
    with connect_tls(port, directory) as sock:
        assert sock.selected_alpn_protocol() is None
        assert streams.ask(sock).id == streams.QUERY.id


def test_rfc9325_tls_1_2_is_accepted_and_tls_1_1_is_refused(port: int, directory: Path) -> None:
    context = client_context(directory)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with context.wrap_socket(streams.connect(port), server_hostname="ns1.example") as sock:
        assert sock.version() == "TLSv1.2"
        assert streams.ask(sock).id == streams.QUERY.id
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with streams.connect(port) as plain, pytest.raises(OSError, match=r"(?i)alert|version|reset|EOF"):
        context.wrap_socket(plain, server_hostname="ns1.example")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("how", ["close_notify", "close_notify and FIN", "FIN"])
def test_a_half_closed_connection_gets_all_responses(
    port: int, directory: Path, version: ssl.TLSVersion, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 5246 7.2.1: close_notify ends both directions. The client sends queries and end in one segment."""
    context = client_context(directory)
    context.maximum_version = version
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(coming, going, server_hostname="ns1.example")
    with streams.connect(port) as sock:

        def step(function: Callable[[], T]) -> T:
            while True:
                try:
                    return function()
                except ssl.SSLWantReadError:
                    if going.pending:
                        sock.sendall(going.read())
                    octets = sock.recv(65536)
                    coming.write(octets) if octets else coming.write_eof()

        step(tls.do_handshake)
        for number in range(20):
            tls.write(streams.FRAME[:2] + number.to_bytes(2, "big") + streams.FRAME[4:])
        tls.write(streams.BIG_FRAME)  # the last query of the turn
        if how != "FIN":
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
        sock.sendall(going.read())
        if how != "close_notify":
            sock.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLEOFError):
            while octets := step(lambda: tls.read(65536)):
                received += octets
    ids = [int.from_bytes(message[:2], "big") for message in streams.messages(received)]
    assert ids == [*range(20), int.from_bytes(streams.BIG[:2], "big")]
    assert not caplog.messages, "asyncio warns of a TLS stream that would stay half open"


@pytest.mark.parametrize(
    "octets",
    [streams.FRAME, b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b""],
    ids=["DNS over TCP", "half a record", "HTTP", "zeros", "nothing"],
)
def test_data_that_is_not_tls_ends_only_its_own_connection(port: int, directory: Path, octets: bytes) -> None:
    with streams.connect(port) as sock:
        sock.sendall(octets)
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while sock.recv(4096):  # a TLS alert, then the end of the stream
                pass
    with connect_tls(port, directory) as sock:
        assert streams.ask(sock).id == streams.QUERY.id


def listening_tls(directory: Path, **limits: Any) -> contextlib.AbstractContextManager[streams.Listening]:
    return streams.listening(Certificate(directory / "tls.crt", directory / "tls.key"), **limits)


def test_a_handshake_counts_as_a_connection(directory: Path) -> None:
    with listening_tls(directory, max_per_client=2) as server, contextlib.ExitStack() as stack:
        *_, third = (stack.enter_context(streams.connect(server.port)) for _ in range(3))
        assert streams.is_closed(third)


def hello() -> bytes:
    """Return the first message of a TLS handshake."""
    going = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), going, server_hostname="ns1.example").do_handshake()
    return going.read()


@pytest.mark.parametrize("said", [b"", hello()[:20], hello()], ids=["nothing", "half a hello", "a hello"])
def test_connections_closed_during_the_handshake_are_released(directory: Path, said: bytes) -> None:
    with listening_tls(directory, max_connections=2) as server, contextlib.ExitStack() as stack:
        socks = []
        for _ in range(40):
            socks.append(stack.enter_context(streams.connect(server.port)))
            socks[-1].sendall(said)
        streams.wait_for(lambda: server.connections.counts.accepted == 40)
        for sock in socks[:-2]:
            while not streams.is_closed(sock):  # skip the server's handshake messages
                pass
        streams.wait_for(lambda: (server.connections.counts.open, server.connections.counts.shed) == (2, 38))
        with connect_tls(server.port, directory) as secure:
            assert streams.ask(secure).id == streams.QUERY.id


def test_a_slow_handshake_is_disconnected_at_the_time_limit(directory: Path) -> None:
    with listening_tls(directory, HANDSHAKE_TIMEOUT=0.2, max_per_client=100) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(streams.connect(server.port)) for _ in range(50)]
        streams.wait_for(lambda: server.connections.counts.accepted == 50)
        for octet in hello()[:-1]:
            for sock in slow:
                with contextlib.suppress(OSError):
                    sock.sendall(bytes((octet,)))
        with streams.limited(HANDSHAKE_TIMEOUT=PATIENCE), connect_tls(server.port, directory) as other:
            assert streams.ask(other).id == streams.QUERY.id
        assert all(map(streams.is_closed, slow))
        streams.wait_for(lambda: not server.connections.counts.open)


def test_stop_ends_handshakes(directory: Path) -> None:
    with listening_tls(directory) as server, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(streams.connect(server.port)) for _ in range(10)]
        for sock in socks[:5]:
            sock.sendall(hello())
        begun = stack.enter_context(connect_tls(server.port, directory))
        assert streams.ask(begun).id == streams.QUERY.id
        streams.wait_for(lambda: server.connections.counts.accepted == 11)
        server.stop()
        assert server.connections.counts.open == 0
        for sock in socks:
            while not streams.is_closed(sock):
                pass
        assert streams.is_closed(begun)


# --- over both TCP and TLS


@pytest.fixture(params=[False, True], ids=["TCP", "TLS"])
def secure(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@contextlib.contextmanager
def dialled(
    directory: Path, secure: bool, **limits: Any
) -> Iterator[tuple[streams.Listening, Callable[[], socket.socket]]]:
    """Yield a listener, and a function that connects to it."""
    with listening_tls(directory, **limits) if secure else streams.listening(**limits) as server:
        yield server, lambda: connect_tls(server.port, directory) if secure else streams.connect(server.port)


def test_a_client_that_does_not_read_costs_little_memory_and_is_disconnected(directory: Path, secure: bool) -> None:
    """It requests a gigabyte and reads nothing; meanwhile, other clients are answered."""

    def dial() -> socket.socket:
        if secure:
            return connect_tls(daemon.tls_bound[0].port, directory)
        return streams.connect(daemon.bound[0].port)

    with streams.transferring(settings_in(directory), WRITE_TIMEOUT=0.3) as daemon, dial() as slow:
        slow.sendall(streams.frame(dns.message.make_query("ark.arpa.", "AXFR")) * 1000)
        tracemalloc.start()
        try:
            for _ in range(20):
                with dial() as other:
                    assert streams.ask(other).id == streams.QUERY.id
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20
        with contextlib.suppress(ssl.SSLEOFError):
            streams.wait_until_cut_off(slow)


def test_a_closed_connection_leaves_no_reference_cycle(directory: Path, secure: bool) -> None:
    """With cycles, the garbage collector would have to free each connection, which takes about 300 KB with TLS."""

    def open_ones() -> int:
        return sum(isinstance(each, Stream | ssl.SSLObject) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = open_ones()
        with dialled(directory, secure) as (server, dial):
            for said in (b"", b"GET / HTTP/1.1\r\n\r\n", hello()):  # failed handshakes
                with streams.connect(server.port) as sock:
                    sock.sendall(said)
            for end in (
                lambda sock: sock.unwrap().close() if secure else None,
                streams.linger,
                lambda sock: sock.send(b"\0"),
            ):
                with dial() as sock:
                    streams.ask(sock)
                    end(sock)
            streams.wait_for(lambda: open_ones() <= before)
    finally:
        gc.enable()


def test_abandoned_connections_and_handshakes_are_released(directory: Path, secure: bool) -> None:
    begun = hello() if secure else streams.FRAME * 3
    with dialled(directory, secure, max_per_client=1000, max_connections=1000) as (server, dial):
        for number in range(200):
            with streams.connect(server.port) as sock:
                sock.sendall(begun[: number * len(begun) // 199])
                if number % 3:
                    streams.linger(sock)
        streams.wait_for(lambda: (server.connections.counts.accepted, server.connections.counts.open) == (200, 0))
        with dial() as sock:
            assert streams.ask(sock).id == streams.QUERY.id


def test_rfc7766_6_2_3_idle_connections_are_closed(directory: Path, secure: bool) -> None:
    """TLS streams end with close_notify (RFC 8446 6.1), so that the client can exclude truncation by an attacker."""
    with dialled(directory, secure, idle_timeout=0.2) as (_, dial), dial() as silent, dial() as trickling:
        with contextlib.suppress(OSError):
            for octet in streams.FRAME[:-1]:  # never idle for long, but never complete
                trickling.sendall(bytes((octet,)))
                time.sleep(0.02)
        assert silent.recv(1) == b""
        assert streams.is_closed(trickling)


def test_a_reload_uses_a_new_certificate_and_reports_a_bad_one(tmp_path: Path) -> None:
    def presented() -> bytes | None:
        with connect_tls(port, tmp_path) as sock:
            assert streams.ask(sock).id == streams.QUERY.id
            return sock.getpeercert(binary_form=True)

    def run(work: Coroutine[None, None, ReloadResult]) -> ReloadResult:
        return asyncio.run_coroutine_threadsafe(work, running.loop).result(PATIENCE)

    write_certificate(tmp_path)
    with serving_tls(tmp_path) as (port, daemon, running):
        before = presented()
        with connect_tls(port, tmp_path) as early:
            assert streams.ask(early).id == streams.QUERY.id
            write_certificate(tmp_path)
            assert not run(daemon.reloader.reload_now()).error
            after = presented()
            assert after != before
            good = (tmp_path / "tls.crt").read_bytes()
            (tmp_path / "tls.crt").write_text("nonsense")
            reason = run(daemon.reloader.reload_now()).error
            assert "certificate not reloaded, keeping the old one: " in reason
            assert f"{reason}; correct it, then maptr reload" in str(daemon.status().alarms)
            (tmp_path / "tls.crt").write_bytes(good)
            assert presented() == after
            assert streams.ask(early).id == streams.QUERY.id, "open connections go on"


@pytest.mark.parametrize("fault", ["no certificate", "no key", "a pipe", "nonsense", "another key", "encrypted"])
def test_the_error_for_an_unusable_certificate_names_the_file(tmp_path: Path, fault: str) -> None:
    write_certificate(tmp_path, passphrase=b"secret" if fault == "encrypted" else None)
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    match fault:
        case "no certificate" | "no key":
            (certificate if fault == "no certificate" else key).unlink()
        case "a pipe":
            key.unlink()
            os.mkfifo(key)
        case "nonsense":
            certificate.write_text("nonsense")
        case "another key":
            other = key.read_bytes()
            write_certificate(tmp_path)
            key.write_bytes(other)
    with pytest.raises(ConfigError, match=r"tls\.(crt|key).*(No such file|Is not a regular file|no usable pair)"):
        Certificate(certificate, key)


DAY = 86400.0


def test_the_end_of_the_certificate_is_an_alarm_and_a_metric_until_a_reload(tmp_path: Path) -> None:
    now = float(int(time.time()))
    write_certificate(tmp_path, period=(now - 77 * DAY, now + 13 * DAY))
    with serving_tls(tmp_path) as (_, daemon, running):
        (text,) = of_certificate(daemon)
        assert text.startswith(f"the certificate of {tmp_path}/tls.crt expires at ")
        assert text.endswith(", in 13 days; renew it, and load it by maptr reload")
        assert daemon.status().certificate_expires == now + 13 * DAY
        shown = render(daemon.status()).decode().partition("\nmaptr_certificate_expiry_time_seconds ")[2]
        assert float(shown.split()[0]) == now + 13 * DAY
        write_certificate(tmp_path, period=(now - DAY, now + 89 * DAY))
        assert ": load it by maptr reload" in of_certificate(daemon)[0]
        reloaded(daemon, running)
        assert of_certificate(daemon) == []
        assert daemon.status().certificate_expires == now + 89 * DAY
        write_certificate(tmp_path, period=(now - 3 * DAY, now - DAY))
        reloaded(daemon, running)
        assert ": clients refuse it; " in of_certificate(daemon)[0]


def of_certificate(daemon: Daemon) -> list[str]:
    return [alarm.text for alarm in daemon.status().alarms if alarm.kind == "certificate"]


def reloaded(daemon: Daemon, running: Running) -> None:
    asyncio.run_coroutine_threadsafe(daemon.reloader.reload_now(), running.loop).result(PATIENCE)


def test_a_failed_handshake_is_logged_with_its_reason(
    port: int, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "maptr")

    def wait_for_line(said: str) -> None:
        streams.wait_for(lambda: f"TLS handshake with 127.0.0.1 failed: {said}" in caplog.messages)

    with streams.connect(port) as sock, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(sock, server_hostname="ns1.example")
    wait_for_line("tlsv1 alert unknown ca")
    with streams.connect(port) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_for_line("http request")
    with streams.connect(port):
        pass
    wait_for_line("the client ended the connection")
    with streams.connect(port) as sock:
        streams.linger(sock)  # closing it resets the connection
    streams.wait_for(lambda: len([line for line in caplog.messages if "the client ended" in line]) == 2)
    with connect_tls(port, directory) as good:
        streams.ask(good)
    assert not [record for record in caplog.records if record.levelname != "INFO"]


def test_failed_handshakes_fill_no_log(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "maptr")
    certificate = Certificate(directory / "tls.crt", directory / "tls.key")
    with streams.listening(certificate) as listening:
        for _ in range(MAX_LINES + 20):
            with streams.connect(listening.port) as sock:
                sock.sendall(b"x" * 20)
                streams.wait_for(lambda: is_over(sock))
        assert len([line for line in caplog.messages if "TLS handshake" in line]) == MAX_LINES


def is_over(sock: socket.socket) -> bool:
    try:
        return not sock.recv(4096)
    except ConnectionError:
        return True
