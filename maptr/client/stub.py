"""A stub resolver of our own for plain DNS servers: one question at a time over sockets that are used once.

The light path: nothing of dnspython is imported. A driver of ``exchange`` and no more. Every message has a random ID,
a random source port (a connected socket of its own) and letters in random case; whatever does not match all three
and the server's address is as if it had not come.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from maptr import url
from maptr.client.call import Origins
from maptr.client.exchange import Asked, Attempt, Exchange, RandomBytes, Server
from maptr.discovery import DiscoveryFailed, DiscoveryTimeout
from maptr.errors import ConfigError, reason_of
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_MESSAGE, NAPTR, PORT
from maptr.walk import Answer

if TYPE_CHECKING:
    from maptr.client.validation.validator import TrustAnchors, Validator

PATH = "/etc/resolv.conf"
MAX_SYSTEM_SERVERS = 3  # MAXNS of resolv.conf(5)
MAX_ADDRESSES = 8  # of one server given by name


class Stub:
    """Asks the servers given, in order, the silent ones last from then on.

    ``nameservers`` are addresses or names (or one, as text), each with ``#port`` where it is not ``port``. With
    ``trust_ad`` the servers' word on DNSSEC is taken: only for a validating resolver that you run, reached over
    loopback or as safe a way (RFC 6840 5.8); with ``trust_anchors`` every answer is validated from these (see
    ``Validator``).
    ``lifetime`` bounds the look-up of names, in seconds. ``randomness`` gives so many random octets, by default the
    system's. May be shared by threads.

    Raises DiscoveryFailed for a name without address, as DiscoveryTimeout where that was not found out in time;
    ValueError for a bad port, ConfigError for bad anchors.

    >>> Stub(["192.0.2.1", "2001:db8::1#5300"]).servers
    (Server(address='192.0.2.1', port=53), Server(address='2001:db8::1', port=5300))
    """

    def __init__(
        self,
        nameservers: Iterable[str],
        *,
        port: int = PORT,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        randomness: RandomBytes = os.urandom,
        clock: Callable[[], float] = time.monotonic,
        lifetime: float | None = None,
    ) -> None:
        listed = [nameservers] if isinstance(nameservers, str) else nameservers
        until = None if lifetime is None else clock() + lifetime
        self.servers: tuple[Server, ...] = tuple(
            server for text in listed for server in find_servers(text, port, None if until is None else until - clock())
        )
        self.trust_ad = trust_ad
        self.validator: Validator | None = None if trust_anchors is None else make_validator(trust_anchors, trust_ad)
        self.randomness = randomness
        self._clock = clock
        self.origins = Origins(clock)

    def __repr__(self) -> str:
        return f"<Stub of {', '.join(map(str, self.servers))}>"

    @property
    def trust(self) -> Validator | bool:
        """By what its answers are judged."""
        return self.validator or self.trust_ad

    @classmethod
    def system(cls, *, trust_ad: bool = False, trust_anchors: TrustAnchors | None = None) -> Stub:
        """One that asks the servers in resolv.conf(5). Raises DiscoveryFailed where there are none."""
        return cls(system_servers(), trust_ad=trust_ad, trust_anchors=trust_anchors)

    def trusting(self, trust_anchors: TrustAnchors | None) -> Stub:
        """The same servers, answers validated from these anchors; itself where they are None."""
        if trust_anchors is None:
            return self
        from copy import copy  # a millisecond that few wait for

        twin = copy(self)
        twin.validator = make_validator(trust_anchors, self.trust_ad)
        return twin

    def exchange(self, name: Labels, rdtype: int = NAPTR) -> Asked:
        """The question, for a driver of one's own."""
        if self.validator is not None:
            return self.validator.exchange(name, self._signed, self._clock, rdtype)
        return Exchange(name, self.servers, self.randomness, rdtype=rdtype, trust_ad=self.trust_ad)

    def _signed(self, name: Labels, rdtype: int) -> Exchange:
        return Exchange(name, self.servers, self.randomness, rdtype=rdtype, dnssec=True)

    def ask(self, name: Labels, seconds: float, rdtype: int = NAPTR) -> Answer:
        """The NAPTR records at a name, within so many seconds. Whatever goes wrong is in the answer."""
        started = self._clock()
        deadline = started + seconds
        exchange = self.exchange(name, rdtype)
        while (attempt := exchange.next()) is not None:
            left = deadline - self._clock()
            if left <= 0:
                exchange.expire()
                break
            until = self._clock() + min(left, attempt.seconds)
            try:
                (self._by_tcp if attempt.tcp else self._by_udp)(exchange, attempt, until)
            except TimeoutError:
                exchange.silent(attempt)
                self.demote(attempt.server)
            except OSError as error:
                exchange.unreachable(attempt, error.strerror or error)
                self.demote(attempt.server)
        answer = exchange.answer
        assert answer is not None  # noqa: S101 - next() gives None only then
        return answer.after(self._clock() - started)

    def _by_udp(self, exchange: Asked, attempt: Attempt, until: float) -> None:
        with open_udp(attempt.server) as sock:
            sock.settimeout(max(until - self._clock(), 0.001))
            sock.send(attempt.query.packet)
            while not exchange.hear(attempt, sock.recv(MAX_MESSAGE)):
                self._wait(sock, until)

    def _by_tcp(self, exchange: Asked, attempt: Attempt, until: float) -> None:
        with socket.socket(family(attempt.server), socket.SOCK_STREAM) as sock:
            self._wait(sock, until)
            sock.connect(attempt.server)
            sock.sendall(framed(attempt.query.packet))
            reply = self._read(sock, int.from_bytes(self._read(sock, 2, until), "big"), until)
            if not exchange.hear(attempt, reply):
                raise OSError("a TCP reply to another question")

    def _read(self, sock: socket.socket, size: int, until: float) -> bytes:
        octets = b""
        while len(octets) < size:
            self._wait(sock, until)
            part = sock.recv(size - len(octets))
            if not part:
                raise OSError("the server closes the TCP connection early")
            octets += part
        return octets

    def _wait(self, sock: socket.socket, until: float) -> None:
        left = until - self._clock()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)

    def demote(self, server: Server) -> None:
        """Ask this server last from now on."""
        if len(self.servers) > 1 and server in self.servers:
            self.servers = (*(other for other in self.servers if other != server), server)


def make_validator(trust_anchors: TrustAnchors, trust_ad: bool) -> Validator:
    """The validator given, or one with these anchors. Raises ConfigError, also where the resolver is trusted, too."""
    from maptr.client.validation.validator import Validator

    if trust_ad:
        raise ConfigError("give trust_ad or trust_anchors, not both")
    return Validator.of(trust_anchors)


def family(server: Server) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.address else socket.AF_INET


def open_udp(server: Server) -> socket.socket:
    """A socket connected to the server: the system picks a random source port, and drops what others send."""
    sock = socket.socket(family(server), socket.SOCK_DGRAM)
    try:
        sock.connect(server)
    except BaseException:
        sock.close()
        raise
    return sock


def framed(packet: bytes) -> bytes:
    """As it goes over TCP (RFC 1035 4.2.2), in one segment (RFC 7766 8)."""
    return len(packet).to_bytes(2, "big") + packet


def find_servers(text: str, port: int = PORT, seconds: float | None = None) -> list[Server]:
    """``address``, ``name``, or either with ``#port``, as addresses to ask, found within so many seconds.

    Raises DiscoveryFailed for a name without address, DiscoveryTimeout where the system took too long to say, and
    ValueError for a bad port or no host.
    """
    host, port = read_server(text, port)
    if is_address(host):
        return [Server(host, port)]
    try:
        return servers_at(port, _look_up(host, port, seconds))
    except (OSError, UnicodeError) as error:
        raise no_address(host, error) from None


Found = list[tuple[Any, ...]]  # what ``getaddrinfo`` gives


def servers_at(port: int, found: Found) -> list[Server]:
    """The addresses that were found for a name."""
    return [Server(address, port) for address in dict.fromkeys(str(entry[4][0]) for entry in found)][:MAX_ADDRESSES]


def no_address(host: str, error: Exception) -> DiscoveryFailed:
    """What a failed look-up of a server's name is, to be raised."""
    if isinstance(error, TimeoutError):
        return DiscoveryTimeout(f"no address for the server {host} in time")
    return DiscoveryFailed(f"no address for the server {host}: {reason_of(error)}")


def _look_up(host: str, port: int, seconds: float | None) -> Found:
    """``getaddrinfo``, which cannot be interrupted, and so is left alone in its thread where its time is over.

    Raises OSError, TimeoutError among them, and UnicodeError.
    """
    if seconds is None:
        return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    from threading import Thread  # which few wait for

    ended: list[Found | Exception] = []

    def look() -> None:
        try:
            ended.append(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM))
        except (OSError, UnicodeError) as error:
            ended.append(error)

    thread = Thread(target=look, name=f"maptr looks up {host}", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if not ended:
        raise TimeoutError
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


def read_server(text: str, port: int = PORT) -> tuple[str, int]:
    """The host and port of ``address``, ``name``, or either with ``#port``; nothing is looked up. Raises ValueError."""
    host, mark, number = text.partition("#")
    if mark:
        if not (number.isascii() and number.isdigit() and len(number) <= 5):
            raise ValueError(f"{text!r} is no server: write HOST or HOST#PORT")
        port = int(number)
    if not host or not 0 < port < 65536:
        raise ValueError(f"{text!r} is no server: write HOST or HOST#PORT")
    if not is_address(host) and set(host) & set(
        ":/[]"
    ):  # 127.0.0.1:53 and [::1] are no names, and nobody is to be asked for their addresses
        raise ValueError(
            f"{text!r} is no server: write HOST or HOST#PORT, an IPv6 address without brackets{_meant(text)}"
        )
    return host, port


def check_server(text: str) -> None:
    """ValueError for what no form of ``nameservers`` takes: a server as above, ``tls://`` or ``https://``."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        read_server(text)
    elif scheme == "tls":
        read_server(rest)
    elif scheme == "https":
        url.parse(text)
    else:
        raise ValueError(f"{text!r} is no server: write HOST, tls://HOST or https://HOST/PATH")


def _meant(text: str) -> str:
    """What was meant where a port is written as elsewhere, ``127.0.0.1:53`` or ``[::1]:53``."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return f": is it {host}#{port}?" if port.isdecimal() and (is_address(host) or ":" not in host) else ""


def is_address(host: str) -> bool:
    """Whether it is an IP address, with a zone (``fe80::1%eth0``) or without, and no name."""
    plain = host.partition("%")[0]
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in plain else socket.AF_INET, plain)
    except (OSError, UnicodeError, ValueError):
        return False
    return True


def system_servers(path: str = PATH) -> list[str]:
    """The servers of resolv.conf(5), at most three; DiscoveryFailed where there is no such file or none in it."""
    try:
        found = [text for text in nameservers(path) if is_address(text)]
    except OSError as error:
        raise DiscoveryFailed(f"no resolver is configured on this system: {error}") from None
    if not found:
        raise DiscoveryFailed(f"no resolver is configured on this system: no nameserver in {path}")
    return found[:MAX_SYSTEM_SERVERS]


def nameservers(path: str = PATH) -> list[str]:
    """What stands behind each ``nameserver``, whatever it is, in order. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs 2 ms to import
        lines = [line.split() for line in file.read().splitlines()]
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
