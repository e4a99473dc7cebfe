"""dig, kdig, drill and OpenSSL query maptr over UDP, TCP and TLS, with each option they support."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dns.edns
import dns.message
import dns.query
import dns.rcode
import pytest

from maptr.config.model import RrlConfig
from maptr.protocol.address import Address
from maptr.protocol.cookies import answer_cookie, packed_address, sign, timestamp
from tests.support.namespaces import Network
from tests.support.peers import Bind, Knot, Nsd, Peer, TlsMaptr, output, run
from tests.support.running import answering, daemon_of
from tests.support.streams import SNAPSHOT, WIRE


@pytest.fixture(scope="module")
def server(vectors: Path) -> Iterator[TlsMaptr]:
    with TlsMaptr({"ark.arpa.": vectors / "peers.zone"}, "--nsid=ns1") as running:
        yield running


def query(server: TlsMaptr, tool: str, *options: str) -> str:
    port = server.tls_port if "+tls" in options else server.port
    out = output(tool, f"@{server.host}", "-p", port, "12345.ark.arpa.", "NAPTR", "+norec", *options)
    assert "status: NOERROR" in out, out
    assert "ANSWER: 2" in out, out
    assert "WARNING" not in out, out
    return out


COOKIE = "+cookie=0102030405060708"
NSID = r"\"ns1\""
KEEPALIVE = r"TCP.KEEPALIVE: 10\.0 secs"


@pytest.mark.parametrize("transport", ["+notcp", "+tcp", "+tls"])
@pytest.mark.parametrize(
    ("tool", "option", "shown"),
    [
        ("dig", COOKIE, r"; COOKIE: 0102030405060708010000[0-9a-f]{26} \(good\)"),  # RFC 7873
        ("dig", "+nsid", NSID),  # RFC 5001
        ("kdig", "+nsid", NSID),
        ("dig", "+keepalive", {"+tcp": KEEPALIVE, "+tls": KEEPALIVE}),  # RFC 7828
        ("kdig", "+padding", {"+tls": "(?s)PADDING.*Received 468 B"}),  # RFC 8467
        ("dig", "+padding=64", {"+tls": "PAD: "}),
    ],
)
def test_options(server: TlsMaptr, transport: str, tool: str, option: str, shown: str | dict[str, str]) -> None:
    """An option that counts on some transports only is left out of the response on the others."""
    out = query(server, tool, transport, option)
    pattern = shown if isinstance(shown, str) else shown.get(transport)
    assert re.search(pattern or "^", out), out
    assert pattern or not re.search("KEEPALIVE|PAD", out), out


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_rfc7873_kdig_sends_the_cookie_again(server: TlsMaptr, transport: str) -> None:
    found = re.search(r"COOKIE:([0-9A-F]{48})", query(server, "kdig", transport, COOKIE).replace(" ", "").upper())
    assert found
    again = query(server, "kdig", transport, f"+cookie={found[1]}")
    assert found[1] in again.replace(" ", "").upper()


def test_several_queries_on_one_tls_connection_to_a_verified_server(server: TlsMaptr) -> None:
    """RFC 7858."""
    verified = ("+tls", f"+tls-ca={server.directory}/tls.crt", "+tls-hostname=ns1.example")
    questions = ["12345.ark.arpa.", "NAPTR"] * 3
    out = output("kdig", f"@{server.host}", "-p", server.tls_port, *verified, "+keepopen", "+norec", *questions)
    assert out.count("status: NOERROR") == 3


def test_drill_reads_the_response(server: TlsMaptr) -> None:
    for options in ([], ["-t"], ["-b", "1232"]):
        out = output("drill", "-p", str(server.port), *options, "12345.ark.arpa.", "NAPTR", f"@{server.host}")
        assert "rcode: NOERROR" in out
        assert "ANSWER: 2" in out


# ---- a small path MTU


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="network namespaces are Linux's")

# The MTU of the route is what the kernel would learn from ICMP. Prints the number of fragments of a datagram.
SEND = """
import socket
from maptr.daemon import sockets

host, family, size, counters, name = {}

def fragments():
    words = [line.split() for line in open(counters)]
    if family == socket.AF_INET6:
        return int(dict(words)[name])
    keys, values = [line for line in words if line[0] == "Ip:"]
    return int(values[keys.index(name)])

server = sockets.open_udp(host, 0) if {ours} else socket.socket(family, socket.SOCK_DGRAM)
client = socket.socket(family, socket.SOCK_DGRAM)
client.bind((host, 0))
client.settimeout(5)
server.sendto(bytes(size), client.getsockname())
assert len(client.recv(65535)) == size
print(fragments())
"""


@pytest.mark.parametrize(
    ("host", "mtu", "case"),
    [
        ("127.0.0.1", 576, (int(socket.AF_INET), 1232, "/proc/net/snmp", "FragCreates")),
        ("::1", 1280, (int(socket.AF_INET6), 1400, "/proc/net/snmp6", "Ip6FragCreates")),
    ],
    ids=["IPv4", "IPv6"],
)
def test_a_response_is_not_fragmented_on_a_path_with_a_small_mtu(
    network: Network, host: str, mtu: int, case: tuple[int, int, str, str]
) -> None:
    route = f"local {host} dev lo table local"
    network.ip(f"route delete {route}", f"route add {route} mtu {mtu}")
    assert network.run(sys.executable, "-c", SEND.format((host, *case), ours=True)) == "0\n"
    fragments = int(network.run(sys.executable, "-c", SEND.format((host, *case), ours=False)))
    assert fragments > 1, "a plain socket sends fragments, so the test can see them"


# ---- a flood


FLOOD = 300
RATE = 2


@pytest.fixture
def port() -> Iterator[int]:
    """A server that limits loopback too."""
    limit = RrlConfig(responses_per_second=RATE, exempt=())
    daemon = daemon_of(SNAPSHOT, Address("127.0.0.1", 0), rrl=limit)
    with answering(daemon):
        yield daemon.bound[0].port


def flood(port: int) -> list[bytes]:
    """The responses to one query sent again and again without a cookie."""
    replies = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        for _ in range(FLOOD):
            sock.send(WIRE)
        sock.settimeout(0.5)
        try:
            while True:
                replies.append(sock.recv(65535))
        except TimeoutError:
            return replies


def dig(port: int, *options: str) -> str:
    return run(
        "dig", "@127.0.0.1", "-p", port, "12345.ark.arpa.", "NAPTR", "+norec", "+time=1", "+tries=5", *options
    ).output


def test_dig_gets_responses_during_a_flood(port: int) -> None:
    cookie = dig(port, "+cookie=0102030405060708").partition("; COOKIE: ")[2].split()[0]
    replies = flood(port)
    assert sum(map(len, replies)) < FLOOD * len(WIRE), "fewer bytes than the flood"
    assert "ANSWER: 2" in dig(port, "+nocookie"), "truncated, then by TCP"
    for _ in range(2 * RATE):
        out = dig(port, f"+cookie={cookie}", "+ignore", "+tries=1")
        assert "ANSWER: 2" in out
        assert "(UDP)" in out


# ---- RFC 9018 1: maptr and other servers behind one address accept each other's cookies


SECRET = bytes.fromhex("e5e973e5a6b2a43f48e7dc849e37bfcf")  # RFC 9018 A.1
CLIENT = packed_address("127.0.0.1")


class CookieBind(Bind):
    settings = f'    cookie-algorithm siphash24;\n    cookie-secret "{SECRET.hex()}";\n'


class StrictBind(Bind):
    """Answers BADCOOKIE to cookies of another secret."""

    settings = f"{CookieBind.settings}    require-server-cookie yes;\n"


class CookieNsd(Nsd):
    settings = f'    answer-cookie: yes\n    cookie-secret: "{SECRET.hex()}"\n'


class CookieKnot(Knot):
    sections = f"mod-cookies:\n  - id: cookies\n    secret: 0x{SECRET.hex()}\n    badcookie-slip: 10000\n"
    settings = "    global-module: mod-cookies/cookies\n"


class StrictKnot(CookieKnot):
    """Answers BADCOOKIE to cookies of another secret."""

    sections = CookieKnot.sections.replace("10000", "1")  # every wrong cookie


def ask(server: Peer, cookie: bytes) -> tuple[str, bytes]:
    """The rcode, and the cookie of the response."""
    option = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, cookie)
    query = dns.message.make_query("12345.ark.arpa.", "NAPTR", options=[option])
    reply = dns.query.udp(query, server.host, 5, server.port)
    (returned,) = reply.options
    wire = returned.to_wire()
    assert wire is not None
    return dns.rcode.to_text(reply.rcode()), wire


@pytest.mark.parametrize("kind", [StrictBind, CookieNsd, StrictKnot], ids=lambda kind: kind.name)
def test_servers_accept_each_others_cookies(kind: type[Peer], vectors: Path) -> None:
    with kind({"ark.arpa.": vectors / "peers.zone"}) as server:
        made = ask(server, b"maptr-01")[1]
        _, verified = answer_cookie(made, CLIENT, [bytes(16), SECRET], timestamp(time.time()))
        assert verified
        assert not answer_cookie(made, packed_address("127.0.0.2"), [SECRET], timestamp(time.time()))[1]
        good = sign(b"maptr-01" + timestamp(time.time()), CLIENT, SECRET)
        assert ask(server, good)[0] == "NOERROR"
        if kind is not CookieNsd:  # NSD cannot require cookies
            assert ask(server, good[:-1] + bytes((good[-1] ^ 1,)))[0] == "BADCOOKIE"
