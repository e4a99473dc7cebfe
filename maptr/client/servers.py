"""DNS servers as users name them: addresses, host names, URLs, and those of resolv.conf(5)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from maptr import url
from maptr.discovery import DiscoveryFailed, DiscoveryTimeout
from maptr.errors import reason_of
from maptr.protocol.address import check_scope
from maptr.protocol.numbers import PORT

RESOLV_CONF = "/etc/resolv.conf"
MAX_SYSTEM_SERVERS = 3  # MAXNS of resolv.conf(5)
MAX_ADDRESSES = 8  # of one server given by name
CASE_BLIND_SECONDS = 600.0  # without 0x20 at a server: bounds what one forged response can switch off
MAX_CASE_BLIND = 100  # servers kept
TCP = "tcp://"  # before a server that is asked by TCP only

Found = list[tuple[Any, ...]]  # the result of ``getaddrinfo``


SocketAddress = tuple[str, int] | tuple[str, int, int, int]


class Server(NamedTuple):
    """The address and port of a DNS server, and whether it is asked by TCP only."""

    address: str
    port: int = PORT
    tcp: bool = False

    def __str__(self) -> str:
        return f"{self.address}#{self.port}"

    @property
    def place(self) -> SocketAddress:
        """The address and port, as sockets take them. Raises OSError for an interface that does not exist."""
        return socket_address(self.address, self.port)


def socket_address(host: str, port: int) -> SocketAddress:
    """Return the argument of bind(2) and connect(2), with the interface of ``fe80::1%eth0`` or ``fe80::1%2`` (RFC 4007
    11), which Python ignores in the host.

    Raises OSError for an interface that does not exist.
    """
    host, _, interface = host.partition("%")
    if not interface:
        return host, port
    return host, port, 0, int(interface) if interface.isdecimal() else socket.if_nametoindex(interface)


class CaseBlind:
    """The servers that do not echo the letter case of a question (0x20), each for a while. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Server, float] = {}

    def __contains__(self, server: Server) -> bool:
        return bool(self._until) and self._until.get(server, 0.0) > self._clock()

    def add(self, server: Server) -> None:
        if len(self._until) >= MAX_CASE_BLIND:
            self._until = {}
        self._until[server] = self._clock() + CASE_BLIND_SECONDS


def read_server(text: str, port: int = PORT) -> tuple[str, int]:
    """Return the host and port of ``address`` or ``name``, with or without ``#port``. Raises ValueError."""
    host, mark, number = text.partition("#")
    if mark:
        port = int(number) if number.isascii() and number.isdigit() and len(number) <= 5 else 0
    if host and number.isdecimal() and not 0 < port < 65536:
        raise ValueError(f"{text!r} is not a server: {number} is not a port (1 to 65535)")
    if not host or not 0 < port < 65536:
        raise ValueError(f"{text!r} is not a server: write HOST or HOST#PORT")
    if is_address(host):
        check_scope(host)
    elif set(host) & set(":/[]"):  # 127.0.0.1:53 and [::1], which must not be looked up
        raise ValueError(
            f"{text!r} is not a server: write HOST or HOST#PORT, an IPv6 address without brackets{_hint(text)}"
        )
    return host, port


def _hint(text: str) -> str:
    """Return a suggestion for a port after a colon: ``127.0.0.1:53`` or ``[::1]:53``."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return f": is it {host}#{port}?" if port.isdecimal() and (is_address(host) or ":" not in host) else ""


def check_server(text: str) -> None:
    """Raise ValueError for a text that ``nameservers`` does not accept: neither a server, ``tls://`` nor
    ``https://``."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        read_server(text)
    elif scheme in ("tcp", "tls"):
        try:
            read_server(rest)
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from None
    elif scheme == "https":
        url.parse(text)
    else:
        raise ValueError(f"{text!r} is not a server: write HOST, tcp://HOST, tls://HOST or https://HOST/PATH")


def is_address(host: str) -> bool:
    """Return whether it is an IP address, with a zone (``fe80::1%eth0``) or without."""
    plain, mark, zone = host.partition("%")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in plain else socket.AF_INET, plain)
    except (OSError, UnicodeError, ValueError):
        return False
    return not mark or bool(zone and "/" not in zone and ":" in plain)


def find_servers(text: str, port: int = PORT, seconds: float | None = None) -> list[Server]:
    """Return the servers at ``address``, ``name``, or either with ``#port``; ``seconds`` bound the lookup of a name.

    Raises DiscoveryFailed for a name without address and for an interface that does not exist, DiscoveryTimeout if the
    lookup takes too long, and ValueError for a bad port or host.
    """
    tcp = text.startswith(TCP)
    host, port = read_server(text.removeprefix(TCP), port)
    if is_address(host):
        server = Server(host, port, tcp)
        try:
            server.place  # noqa: B018 - only to find out whether there is one
        except OSError as error:
            raise DiscoveryFailed(f"the server {host} cannot be reached: {reason_of(error)}") from None
        return [server]
    try:
        found = _look_up(host, port, seconds)
    except TimeoutError:
        raise DiscoveryTimeout(f"no address for the server {host} in time") from None
    except (OSError, UnicodeError) as error:
        raise DiscoveryFailed(f"no address for the server {host}: {reason_of(error)}") from None
    addresses = dict.fromkeys(_with_scope(*entry[4]) for entry in found)
    return [Server(address, port, tcp) for address in addresses][:MAX_ADDRESSES]


def _with_scope(address: str, port: int, flow: int = 0, scope: int = 0) -> str:
    """Return the address of a result of ``getaddrinfo``, with the interface of a link-local one."""
    return f"{address}%{scope}" if scope else address


def _look_up(host: str, port: int, seconds: float | None) -> Found:
    """``getaddrinfo``, which cannot be interrupted: after ``seconds`` its thread is left to end by itself.

    Raises OSError, TimeoutError among them, and UnicodeError.
    """
    if seconds is None:
        return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    from concurrent.futures import Future  # both are rarely needed at the start of a command
    from threading import Thread

    found: Future[Found] = Future()

    def look_up() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM))
        except (OSError, UnicodeError) as error:
            found.set_exception(error)

    Thread(target=look_up, name=f"maptr lookup of {host}", daemon=True).start()
    return found.result(max(0.0, seconds))


def system_servers(path: str = RESOLV_CONF) -> list[str]:
    """Return the first three addresses in resolv.conf(5). Raises DiscoveryFailed if there are none or no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs 2 ms to import
            lines = [line.split() for line in file.read().splitlines()]
    except OSError as error:
        raise DiscoveryFailed(f"no resolver is configured on this system: {error}") from None
    found = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver" and is_address(words[1])]
    if not found:
        raise DiscoveryFailed(f"no resolver is configured on this system: no nameserver in {path}")
    return found[:MAX_SYSTEM_SERVERS]
