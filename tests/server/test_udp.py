"""UDP without batches: responses leave from the address that was asked."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct

import pytest

from maptr.server import sockets, udp
from tests.support.running import PATIENCE


@pytest.mark.parametrize(
    ("level", "kind", "arrived", "leaves"),
    [
        (
            socket.IPPROTO_IP,
            sockets.IP_PKTINFO,
            struct.pack("@i4s4s", 7, bytes((192, 0, 2, 1)), bytes((192, 0, 2, 1))),
            struct.pack("@i4s4s", 0, bytes((192, 0, 2, 1)), bytes((192, 0, 2, 1))),
        ),
        (
            socket.IPPROTO_IPV6,
            socket.IPV6_PKTINFO,
            ipaddress.ip_address("2001:db8::1").packed + struct.pack("@I", 7),
            ipaddress.ip_address("2001:db8::1").packed + struct.pack("@I", 0),
        ),
        (socket.SOL_SOCKET, 29, bytes(16), None),
    ],
)
def test_rfc3542_the_address_is_kept_and_the_interface_is_not(
    level: int, kind: int, arrived: bytes, leaves: bytes | None
) -> None:
    assert udp.reply_source([(level, kind, arrived)]) == ([] if leaves is None else [(level, kind, leaves)])


def test_every_address_of_a_wildcard_socket_answers_as_itself() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        listener = udp.UdpListener(server, lambda query, _transport, _client: query)
        listener.start(loop)
        for number in (1, 2, 9):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.setblocking(False)
                client.connect((f"127.0.0.{number}", server.getsockname()[1]))  # takes nothing from another address
                client.send(b"query")
                assert await asyncio.wait_for(loop.sock_recv(client, 100), PATIENCE) == b"query"
        listener.stop(loop)

    server = sockets.open_udp("0.0.0.0", 0)
    asyncio.run(run())
