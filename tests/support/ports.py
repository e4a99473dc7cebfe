"""Free ports on 127.0.0.1 for servers that need a port number before they start.

A port that was found free and closed again may be taken by another test, run or program. Each test process therefore
owns a block of ports below the ephemeral range. It binds the first port of the block as long as it lives; a process
that finds this port taken tries the next block. So no two processes in one network namespace share a block, and no lock
files are needed.

The ports of a block are used in turn. Ports on which another program listens are skipped; a TCP connection in TIME_WAIT
does not count, because servers bind with SO_REUSEADDR.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle, islice

HOST = "127.0.0.1"
PORTS = range(20000, 32000)  # Linux begins its ephemeral range at 32768 (ip_local_port_range), others at 49152
BLOCK = 200  # ports; a test needs a dozen at a time


def free_port(host: str = HOST) -> int:
    """A port that is free for UDP and TCP, and that no other test process uses."""
    for port in islice(own_block(), BLOCK - 1):
        with (
            suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        ):
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            udp.bind((host, port))
            tcp.bind((host, port))
            return port
    raise RuntimeError(f"no free port among {BLOCK}")


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
    raise RuntimeError(f"no block of {BLOCK} ports between {PORTS.start} and {PORTS.stop}")
