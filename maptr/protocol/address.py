"""Addresses and networks in the configuration. Only IP address literals are accepted; host names are not resolved."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple

from maptr.protocol.numbers import PORT

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Address(NamedTuple):
    """An IP address literal and a port. For a listener, port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def from_text(cls, text: str) -> Address:
        """Read ``HOST:PORT``, with an IPv6 host in brackets. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if colon and port.isascii() and port.isdigit() and (len(port) > 5 or int(port) > 65535):
            raise ValueError(f"{text!r} is not HOST:PORT: {port} is not a port (1 to 65535)")
        if not colon or not (port.isascii() and port.isdigit()):
            raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:5300 or [::1]:5300")
        try:
            address = ipaddress.ip_address(host[1:-1] if bracketed else host)
        except ValueError:
            raise ValueError(f"{text!r}: the host must be an IP address, IPv6 in brackets") from None
        check_scope(str(address))
        if bracketed is not (address.version == 6):
            raise ValueError(f"{text!r}: IPv6 addresses are written in brackets, and IPv4 addresses are not")
        return cls(str(address), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(maxsize=10_000)
def read_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in a text without its scope; an IPv4-mapped IPv6 address as IPv4 (RFC 4291 2.5.5.2).

    None for any other text.
    """
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def check_scope(address: str) -> None:
    """Raise ValueError for a link-local IPv6 address without an interface: nothing can be sent to it (RFC 4007 6)."""
    if ":" in address and "%" not in address and ipaddress.IPv6Address(address).is_link_local:
        raise ValueError(f"{address} is link-local: add its interface, as in {address}%eth0")


CLIENT_IPV6_PREFIX = 64  # bits: a client can use every address of its link (RFC 4291 2.5.1)


@lru_cache(maxsize=10_000)
def client_of(address: str) -> str:
    """Return the key under which a client is counted: its IPv4 address, or the /64 network of its IPv6 address."""
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], CLIENT_IPV6_PREFIX), strict=False))


def read_network(text: str) -> Network:
    """Read an address or a prefix (``192.0.2.0/24``). Raises ValueError, also for a prefix with host bits."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is neither an address nor a prefix") from None
    if ipaddress.ip_interface(text).ip != network.network_address:
        raise ValueError(f"{text} has host bits set")
    return network


def read_target(text: str) -> Address:
    """Read ``HOST:PORT``, or an address without a port, which means port 53. Raises ValueError."""
    try:
        address = str(ipaddress.ip_address(text))
    except ValueError:
        return Address.from_text(text)
    check_scope(address)
    return Address(address, PORT)
