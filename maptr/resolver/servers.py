"""DNS servers as users name them: addresses, host names, URLs, and those of resolv.conf(5)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from maptr import url
from maptr.discovery import NoServer, NoServerInTime, Outcome
from maptr.errors import reason_of
from maptr.protocol.address import check_scope
from maptr.protocol.names import MAX_NAME
from maptr.protocol.numbers import PORT

RESOLV_CONF = "/etc/resolv.conf"
MAX_RESOLV_CONF = 1 << 16  # bytes read; a device has no end
MAX_SYSTEM_SERVERS = 3  # MAXNS of resolv.conf(5)
LOCALHOST = "127.0.0.1"  # the server if resolv.conf(5) names none
MAX_TIMEOUT = 30  # seconds: RES_MAXRETRANS of glibc
MAX_ATTEMPTS = 5  # RES_MAXRETRY of glibc
MAX_ADDRESSES = 8  # of one server given by name
CASE_BLIND_SECONDS = 600.0  # without 0x20 at a server: bounds what one forged response can switch off
MAX_CASE_BLIND = 100  # servers remembered
FAILED_SECONDS = 5.0  # for which a server that failed is not asked again: at least a second, RFC 9520 3.2
MAX_FAILED = 1_000  # servers remembered
TCP, TLS, HTTPS = "tcp://", "tls://", "https://"  # before a server that is queried over this transport only
DOT_PORT = 853  # RFC 7858 3.1

Found = list[tuple[Any, ...]]  # the result of ``getaddrinfo``


SocketAddress = tuple[str, int] | tuple[str, int, int, int]


class Server(NamedTuple):
    """The address and port of a DNS server, and whether it is queried over TCP only.

    ``tls`` is the host, as it was written, whose certificate a server queried over TLS (RFC 7858) must have; else "".
    """

    address: str
    port: int = PORT
    tcp: bool = False
    tls: str = ""

    def __str__(self) -> str:
        return f"{self.address}#{self.port}"

    @property
    def socket_address(self) -> SocketAddress:
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


class ServerFailure(NamedTuple):
    """How a server failed, and until when it is not asked again."""

    until: float
    outcome: Outcome
    why: str


class FailedServers:
    """The servers that gave no response, each for FAILED_SECONDS (RFC 9520). Threads may share it.

    Failures that a server reports are not among them, because they may be limited to one name.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[Server, ServerFailure] = {}

    def get(self, server: Server) -> ServerFailure | None:
        """Return the failure of a server that must not be queried now."""
        failure = self._failures.get(server) if self._failures else None
        return failure if failure is not None and failure.until > self._clock() else None

    def add(self, server: Server, outcome: Outcome, why: str) -> None:
        if len(self._failures) >= MAX_FAILED:
            self._failures = {}
        self._failures[server] = ServerFailure(self._clock() + FAILED_SECONDS, outcome, why)

    def discard(self, server: Server) -> None:
        if self._failures:
            self._failures.pop(server, None)

    def clear(self) -> None:
        self._failures = {}


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
        hint = _hint(host) or _hint(f"{host}:{number}")
        raise ValueError(f"{text!r} is not a server: write HOST or HOST#PORT, an IPv6 address without brackets{hint}")
    else:
        try:
            if len(host) > MAX_NAME:  # the codec takes long for a text of thousands of characters
                raise ValueError
            url.parse_host(host.encode("idna").decode())  # as getaddrinfo writes it
        except ValueError:  # including UnicodeError
            raise ValueError(f"{text!r} is not a server: {host!r} is not a valid host name") from None
    return host, port


def _hint(text: str) -> str:
    """Return a suggestion for a port after a colon: ``127.0.0.1:53`` or ``[::1]:53``."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return f": is it {host}#{port}?" if port.isdecimal() and (is_address(host) or ":" not in host) else ""


def check_server(text: str) -> None:
    """Raise ValueError for a text that ``nameservers`` does not accept."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        read_server(text)
    elif scheme == "https" and "#" in rest:
        raise ValueError(f"{text!r} is not a server: write https://HOST:PORT/PATH")
    elif scheme in ("tcp", "tls", "https"):
        try:
            read_server(url.parse(text).host.text if scheme == "https" else rest)
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from None
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

    One may begin with ``tcp://`` or ``tls://``; ``port`` is the default without TLS.

    Raises DiscoveryFailed for a name without address and for an interface that does not exist, DiscoveryTimeout if the
    lookup takes too long, and ValueError for a bad port or host.
    """
    tcp, by_tls = text.startswith((TCP, TLS)), text.startswith(TLS)
    host, port = read_server(text.removeprefix(TCP).removeprefix(TLS), DOT_PORT if by_tls else port)
    tls = host.partition("%")[0] if by_tls else ""
    if is_address(host):
        server = Server(host, port, tcp, tls)
        try:
            server.socket_address  # noqa: B018 - only to find out whether there is one
        except OSError as error:
            raise NoServer(f"the server {host} cannot be reached: {reason_of(error)}") from None
        return [server]
    try:
        found = _look_up(host, port, seconds)
    except TimeoutError:
        raise NoServerInTime(f"no address for the server {host} in time") from None
    except OSError as error:
        raise NoServer(f"no address for the server {host}: {reason_of(error)}") from None
    addresses = dict.fromkeys(_with_scope(*entry[4]) for entry in found)
    return [Server(address, port, tcp, tls) for address in addresses][:MAX_ADDRESSES]


def _with_scope(address: str, port: int, flow: int = 0, scope: int = 0) -> str:
    return f"{address}%{scope}" if scope else address


def _look_up(host: str, port: int, seconds: float | None) -> Found:
    """``getaddrinfo``, which cannot be interrupted: after ``seconds`` its thread is left to end by itself.

    Raises OSError, including TimeoutError.
    """
    if seconds is None:
        return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    from concurrent.futures import Future  # both are rarely needed when a command starts
    from threading import Thread

    found: Future[Found] = Future()

    def look_up() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM))
        except OSError as error:
            found.set_exception(error)

    Thread(target=look_up, name=f"maptr lookup of {host}", daemon=True).start()
    return found.result(max(0.0, seconds))


class ResolverOptions(NamedTuple):
    """The options of resolv.conf(5) for the servers that it names: seconds to wait for each response, rounds over the
    servers (None for maptr's own limits), whether each question begins with another server, and whether to use TCP."""

    timeout: int | None = None
    attempts: int | None = None
    rotate: bool = False
    tcp: bool = False

    @classmethod
    def read(cls, words: Iterable[str]) -> ResolverOptions:
        """Read the options that maptr knows, with the limits of glibc; a bad number counts as the minimum."""
        found = cls()
        for word in words:
            name, _, value = word.partition(":")
            number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
            if name == "timeout":
                found = found._replace(timeout=min(max(number, 1), MAX_TIMEOUT))
            elif name == "attempts":
                found = found._replace(attempts=min(max(number, 1), MAX_ATTEMPTS))
            elif word == "rotate":
                found = found._replace(rotate=True)
            elif word in ("use-vc", "usevc"):
                found = found._replace(tcp=True)
        return found


def system_servers() -> list[str]:
    """Return the first three servers in resolv.conf(5), as ``nameservers`` takes them; LOCALHOST if it names none.

    Skips a server that cannot be queried, with a line in the log. Raises DiscoveryFailed if the file cannot be read.
    """
    named, options = _read_resolv_conf()
    servers = list(islice(filter(_is_usable, named), MAX_SYSTEM_SERVERS)) or [LOCALHOST]
    return [f"{TCP}{text}" for text in servers] if options.tcp else servers


def options_for(servers: Iterable[Server]) -> ResolverOptions:
    """Return the options of resolv.conf(5) if all of the servers are in it, otherwise none."""
    if all(server.port == PORT for server in servers):
        with suppress(NoServer):
            named, options = _read_resolv_conf()
            if all(server.address in (named or [LOCALHOST]) for server in servers):
                return options
    return ResolverOptions()


def _read_resolv_conf() -> tuple[list[str], ResolverOptions]:
    """Return the servers and the options, including the variable RES_OPTIONS; no server without the file.

    Raises DiscoveryFailed for a file that cannot be read.
    """
    try:
        with open(RESOLV_CONF, "rb", opener=_open_at_once) as file:
            content = file.read(MAX_RESOLV_CONF) or b""
    except FileNotFoundError:
        content = b""  # as glibc does
    except OSError as error:
        raise NoServer(f"no resolver is configured on this system: {reason_of(error)}") from None
    lines = [line.split() for line in content.decode(errors="replace").splitlines()]
    named = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    options = [word for words in lines if words[:1] == ["options"] for word in words[1:]]
    return named, ResolverOptions.read([*options, *os.environ.get("RES_OPTIONS", "").split()])


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has no such flag


def _is_usable(text: str) -> bool:
    """Return whether a server in resolv.conf can be queried; if not, log why."""
    try:
        if not is_address(text):
            raise ValueError(f"{text} is not an IP address")
        find_servers(text)
    except (ValueError, NoServer) as error:
        import logging  # rarely needed when a command starts

        logging.getLogger("maptr.client").warning("%s: nameserver %s is skipped: %s", RESOLV_CONF, text, error)
        return False
    return True
