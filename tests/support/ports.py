"""Free ports on 127.0.0.1 for servers that need a port number before they start.

A port that was found free and closed again may be taken by another test, run or program. Each process of tests
therefore owns a block of ports below the ephemeral range. It binds the first port of the block as long as it lives; a
process that finds this port taken tries the next block. So no two processes in one network namespace share a block, and
no lock files are needed.

The ports of a block are used in turn. A port on which another program listens is skipped; a TCP connection in TIME_WAIT
does not count, because servers bind with SO_REUSEADDR.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

HOST = "127.0.0.1"
PORTS = range(20000, 32000)  # Linux begins its ephemeral range at 32768 (ip_local_port_range), others at 49152
BLOCK = 200  # ports; a test needs a dozen at a time


class NoFreePort(Exception):
    """All blocks are taken, or all ports of this process's block are in use."""


def free_port(host: str = HOST) -> int:
    """A port that is free for UDP and TCP, and that no other process of tests uses."""
    block = own_block()
    for _ in range(BLOCK - 1):
        port = next(block)
        reason = _in_use(host, port)
        if reason is None:
            return port
    raise NoFreePort(f"no free port among {BLOCK} from {port - port % BLOCK}: {reason}")


@cache
def own_block() -> Iterator[int]:
    """The ports of this process in turn, without the bound one."""
    for first in PORTS[::BLOCK]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            try:
                holder.bind((HOST, first))
            except OSError:
                continue
            holder.detach()  # the kernel closes it with the process
        return cycle(range(first + 1, first + BLOCK))
    raise NoFreePort(f"no block of {BLOCK} ports between {PORTS.start} and {PORTS.stop}")


def _in_use(host: str, port: int) -> OSError | None:
    """Why a server cannot bind the port; None if it can."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
    ):
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            udp.bind((host, port))
            tcp.bind((host, port))
        except OSError as error:
            return error
    return None
