"""RFC 9715: responses are not fragmented after a forged ICMP message about a small path MTU."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.support.namespaces import Network

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
