"""Sockets to answer on, or a clear word of why one cannot be had."""

from __future__ import annotations

import errno
import socket

from maptr.address import Address
from maptr.errors import ConfigError
from maptr.serve import tcp, udp

# Tries to find one port that is free for UDP and TCP both, where any port will do.
PORT_TRIES = 20


def bind_pair(address: Address) -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on the same port. Raises ConfigError."""
    for attempt in range(PORT_TRIES):
        try:
            udp_socket = udp.open_socket(address.host, address.port)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        try:
            return udp_socket, tcp.open_socket(address.host, udp_socket.getsockname()[1])
        except OSError as error:
            udp_socket.close()
            if address.port or error.errno != errno.EADDRINUSE or attempt == PORT_TRIES - 1:
                raise _cannot_listen(address, error) from error
    raise AssertionError("unreachable")


def bind_tls(address: Address) -> socket.socket:
    """A TCP socket for DNS over TLS. Raises ConfigError."""
    try:
        return tcp.open_socket(address.host, address.port)
    except OSError as error:
        raise _cannot_listen(address, error) from error


def _cannot_listen(address: Address, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {address}: {error.strerror or error}")
