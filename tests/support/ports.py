"""Ports of 127.0.0.1 for servers that must be told theirs before they start.

A port that is looked up, given back and asked for later may be another's by then: of a test beside this one, of
another run, or of any program that sends a query. So each process has a block of ports to itself, below the
ephemeral range, from which the kernel takes ports for others. It holds the first port of the block for as long as
it lives, and whoever finds that port taken goes on to the next block. No file is left behind, and no two processes
in one network namespace can have the same block, however they were started.

A port is given again only after all others of the block; whatever else may listen on it is passed over.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

HOST = "127.0.0.1"
PORTS = range(20000, 32000)  # Linux begins its ephemeral range at 32768 (ip_local_port_range), others at 49152
BLOCK = 200  # ports; what a test holds at one time is a dozen


class NoFreePort(Exception):
    """Every block is taken, or every port of our own block listened on."""


def free_port(host: str = HOST) -> int:
    """A port that nobody listens on at this host by UDP or by TCP, and no other process of tests will."""
    block = _block()
    for _ in range(BLOCK - 1):
        if _is_free(host, port := next(block)):
            return port
    raise NoFreePort(f"no free port among {BLOCK} from {port - port % BLOCK}")


@cache
def _block() -> Iterator[int]:
    """The ports of this process, round and round, without the one that is held."""
    for first in PORTS[::BLOCK]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            try:
                holder.bind((HOST, first))
            except OSError:
                continue
            holder.detach()  # the kernel closes it with the process
        return cycle(range(first + 1, first + BLOCK))
    raise NoFreePort(f"no block of {BLOCK} ports between {PORTS.start} and {PORTS.stop}")


def _is_free(host: str, port: int) -> bool:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
    ):
        try:
            udp.bind((host, port))
            tcp.bind((host, port))
        except OSError:
            return False
    return True
