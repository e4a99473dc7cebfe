"""Listening sockets: options, added and removed addresses, and the limit on open files."""

from __future__ import annotations

import json
import logging
import resource
import shlex
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import dns.message
import dns.query
import pytest

from maptr.config import Config, ServeConfig
from maptr.config.model import ConnectionLimits
from maptr.daemon import sockets
from maptr.daemon.sockets import RESERVED, limits_within_descriptors
from maptr.errors import ConfigError
from maptr.protocol.address import Address
from tests.conftest import REPOSITORY
from tests.support.certificates import write_certificate
from tests.support.namespaces import Network
from tests.support.peers import Maptr
from tests.support.waiting import PATIENCE

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        (INFINITY, INFINITY, 500, INFINITY),
        (4096, 8192, 500, 4096),
        (200, 8192, 500, 502 + RESERVED),  # raised as far as needed
        (200, INFINITY, 500, 502 + RESERVED),
        (200, 300, 298 - RESERVED, 300),
        (200, 200, 198 - RESERVED, 200),
        (20, 20, 1, 20),
    ],
)
def test_the_limit_of_open_files_limits_connections(
    soft: int, hard: int, allowed: int, raised: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: given[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    with caplog.at_level(logging.WARNING, "maptr.daemon"):
        assert limits_within_descriptors(ConnectionLimits(), 2) == ConnectionLimits(max_connections=allowed)
    assert given[-1] == (raised, hard)
    line = f"max_connections is {allowed} instead of 500, as a process may have {raised} files open: raise LimitNOFILE"
    assert caplog.messages == ([] if allowed == 500 else [line])


class FewDescriptors(Maptr):
    """A server with few file descriptors."""

    def configure(self) -> list[str]:
        return ["sh", "-c", f"ulimit -n {FILES}; exec {shlex.join(super().configure())}"]


FILES = 110


def test_a_server_with_few_file_descriptors_keeps_answering() -> None:
    query = dns.message.make_query("12345.ark.arpa", "NAPTR")
    with FewDescriptors({"ark.arpa.": REPOSITORY / "zones" / "ark.arpa.zone"}) as server, ExitStack() as stack:
        for number in range(2 * FILES):
            idle = stack.enter_context(socket.socket())
            idle.bind((f"127.0.1.{number % 250}", 0))
            idle.settimeout(PATIENCE)
            idle.connect((server.host, server.port))
        for _ in range(4):
            assert dns.query.tcp(query, server.host, PATIENCE, server.port).answer
        assert "cannot accept connections" not in server.log()
        assert "max_connections is " in server.log()


# Repeated, because the first response comes from the general path, and later ones from the shortcut.
ASK = """
import sys, dns.message, dns.query
query = dns.message.make_query("12345.ark.arpa", "NAPTR")
for ask in [dns.query.udp] * 20 + [dns.query.tcp] * 2:
    reply = ask(query, "fe80::1%vb", port=int(sys.argv[1]), timeout=20)
    assert len(reply.answer[0]) == 4, reply
"""


# Every client of the package, over UDP, TCP and TLS, and a query to a secondary; the interface by name and by number.
CLIENTS = """
import asyncio, socket, sys, time
import maptr
from maptr.resolver.dnspython import make_resolver
from maptr.protocol.names import ARK_ARPA
from maptr.server.secondaries import exchange, make_request, read_serial
from maptr.transfer.acl import NotifyTarget
port, tls = sys.argv[1:]
ark = "ark:12345/x60np1wh8k"
for zone in ("vb", socket.if_nametoindex("vb")):
    servers = f"fe80::1%{zone}#{port}", f"tcp://fe80::1%{zone}#{port}", f"tls://fe80::1%{zone}#{tls}"
    for text in servers:
        assert maptr.discover(ark, nameservers=text).urls(), text
        assert asyncio.run(maptr.discover_async(ark, nameservers=text)).urls(), text
        assert [found.complete for found in maptr.discover_many([ark], nameservers=text)] == [True], text
    assert maptr.discover(ark, nameservers=servers[0]).trace[0].server == servers[0]
    assert maptr.discover(ark, nameservers=make_resolver(servers[:2])).urls()
    target = NotifyTarget.from_text(f"[fe80::1%{zone}]:{port}")
    response = asyncio.run(exchange(make_request(ARK_ARPA), target, None, time.time, 20.0))
    assert isinstance(read_serial(response), int)
"""


class Namespaced(Maptr):
    """A server in a network namespace."""

    def __init__(self, network: Network, *options: str) -> None:
        super().__init__({}, f"--zone=ark.arpa={REPOSITORY / 'zones' / 'ark.arpa.zone'}", *options)
        self.network = network

    def configure(self) -> list[str]:
        settings = ("MAPTR_SERVE_USER=root", "MAPTR_SERVE_RRL_RESPONSES_PER_SECOND=0", f"PYTHONPATH={REPOSITORY}")
        return self.network.command("env", *settings, *super().configure())


def test_listening_on_a_link_local_address(network: Network, tmp_path: Path) -> None:
    """RFC 4007 11: an address with its interface."""
    network.cable()
    network.ip("addr add fe80::1/64 dev va nodad", "addr add fe80::2/64 dev vb nodad")
    write_certificate(tmp_path)
    tls = ("--tls-listen", "[fe80::1%va]:0", "--tls-cert", f"{tmp_path}/tls.crt", "--tls-key", f"{tmp_path}/tls.key")
    server = Namespaced(network, "--listen", "[fe80::1%va]:0", *tls).launch()
    network.stack.callback(server.stop)
    port = server.wait_for(r":(\d+) \(udp, tcp\)")[1]
    network.run(sys.executable, "-c", ASK, port)
    secure = server.wait_for(r":(\d+) \(tls\)")[1]
    network.run("env", f"SSL_CERT_FILE={tmp_path}/tls.crt", sys.executable, "-c", CLIENTS, port, secure)


# Queries of a client, mixed with forged ones from port 0 and from the server's own address; then a forged response.
FORGE = """
import socket, struct, sys
import dns.message
port = int(sys.argv[1])
query = dns.message.make_query("12345.ark.arpa", "NAPTR").to_wire()
local = socket.inet_aton("127.0.0.1")
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(("127.0.0.1", port))
client.settimeout(20)
def send(source, octets):
    size = 8 + len(octets)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + size, 0, 0, 64, 17, 0, local, local)
    raw.sendto(head + struct.pack("!4H", source, port, size, 0) + octets, ("127.0.0.1", 0))
for _ in range(50):
    for octets in (query, query[:13], b"", bytes(2000)):
        send(0, octets)
        send(port, octets)
    client.send(query)
    assert len(client.recv(4096)) > 200
client.send(query[:2] + b"\\x80\\0" + query[4:])
client.send(query)
client.recv(4096)
"""


def test_forged_queries_do_not_start_a_loop(network: Network, tmp_path: Path) -> None:
    control = str(tmp_path / "control")
    server = Namespaced(network, "--listen", "127.0.0.1:0", "--control", control).launch()
    network.stack.callback(server.stop)
    network.run(sys.executable, "-c", FORGE, server.wait_for(r":(\d+) \(udp, tcp\)")[1])
    status = json.loads(network.run(sys.executable, "-m", "maptr", "status", "--json", "--control", control))
    # Three of four queries from the server's own address are answered; these responses get no response.
    assert status["queries"]["udp"] == {"NOERROR": 151, "FORMERR": 200, "dropped": 251}
    assert status["batches"]["lost"] == 150


def test_the_error_for_a_missing_interface() -> None:
    with pytest.raises(ConfigError, match=r"^serve\.listen: cannot listen on \[fe80::1%none\]:0: no interface"):
        sockets.bind(Config(ServeConfig(listen=(Address("fe80::1%none", 0),))))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp_segments_are_short_both_ways_and_sent_without_delay(host: str) -> None:
    """Without the option, segments on the loopback interface would have 65,483 bytes."""
    with sockets.open_tcp(host, 0) as server, socket.create_connection(server.getsockname()[:2]) as client:
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for sock in (client, accepted):
                assert 536 <= sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= sockets.MAX_SEGMENT


def test_all_of_ipv6_leaves_the_port_of_ipv4_free() -> None:
    for opened in (sockets.open_udp("::", 0), sockets.open_tcp("::", 0)):
        with opened as sock:
            assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's limits, and its doubling (socket(7))")
def test_socket_buffers_have_the_configured_size_or_the_maximum() -> None:
    with sockets.open_udp("127.0.0.1", 0) as sock:
        for option, wanted, limit in (
            (socket.SO_RCVBUF, sockets.RECEIVE_BUFFER, "rmem_max"),
            (socket.SO_SNDBUF, sockets.SEND_BUFFER, "wmem_max"),
        ):
            most = int(Path("/proc/sys/net/core", limit).read_text())
            assert sock.getsockopt(socket.SOL_SOCKET, option) == 2 * min(wanted, most)


def test_the_error_for_an_address_in_use_names_it() -> None:
    """With SO_REUSEPORT on both sockets, the kernel would divide the queries between two servers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(ConfigError, match=f"cannot listen on {address}: Address already in use"):
            sockets.bind(Config(ServeConfig(listen=(address,))))
