"""Connections to mapping authorities, which hostile DNS may have named: bounded in time, size and destination.

A host name is looked up once, every address that is not public is refused, and the connection goes to an address
that was judged, so that a name cannot change its mind in between (DNS rebinding).
"""

from __future__ import annotations

import http.client
import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import urljoin

from maptr import __version__, url
from maptr.errors import NmaError, reason_of

MAX_REDIRECTS = 5  # RFC 9110 15.4 leaves it to the client; five were the rule of RFC 2068 (10.3)
MAX_BODY = 262_144  # octets; an ERC record has hundreds
MAX_ADDRESSES = 4  # of one host tried
PORTS = {"http": 80, "https": 443}
REDIRECTS = frozenset({301, 302, 303, 307, 308})
USER_AGENT = f"maptr/{__version__}"


class Page(NamedTuple):
    """An HTTP response: the URL it came from, after redirects; header names in lower case; the body cut at a limit."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: bool

    def header(self, name: str) -> str:
        """Its first value, "" where there is none."""
        return next((value for label, value in self.headers if label == name), "")


@contextmanager
def connection(where: url.Url, *, seconds: float, allow_private: bool = False) -> Iterator[socket.socket]:
    """A connected socket to an http or https URL's server, TLS verified; it dies when the seconds are over.

    Raises NmaError.
    """
    deadline = time.monotonic() + seconds
    raw = _connect(where, deadline, allow_private)
    current = [raw]

    ended = threading.Event()

    def end() -> None:
        ended.set()
        with suppress(OSError):
            current[0].shutdown(socket.SHUT_RDWR)

    # A server that drips one octet at a time resets every timeout of a socket; this one it cannot.
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        if where.scheme == "https":
            context = ssl.create_default_context()
            name = where.host.text.removesuffix(".")  # RFC 6066 3: without
            current[0] = context.wrap_socket(raw, server_hostname=name, do_handshake_on_connect=False)
            current[0].do_handshake()  # type: ignore[attr-defined]
        yield current[0]
        if ended.is_set():  # what was read may be cut short, without http.client noticing
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = ended.is_set() or isinstance(error, TimeoutError)
        raise NmaError(f"{where.host.text}: {'no answer in time' if late else error}") from None
    finally:
        timer.cancel()
        current[0].close()


def get(target: str, *, seconds: float, accept: str = "*/*", allow_private: bool = False) -> Page:
    """The page at a URL, redirects followed within limits. Raises NmaError, for a URL that may not be followed too."""
    deadline = time.monotonic() + seconds
    for _ in range(MAX_REDIRECTS + 1):
        if refusal := url.refusal(target, allow_private=allow_private):
            raise NmaError(f"{target[:200]!a} is not asked: {refusal}")
        where = url.parse(target)
        with connection(where, seconds=deadline - time.monotonic(), allow_private=allow_private) as sock:
            page = _ask(sock, where, target, accept)
        location = page.header("location")
        if page.status not in REDIRECTS or not location:
            return page
        try:
            target = urljoin(target, location)
        except ValueError as error:  # a bracket that is never closed
            raise NmaError(f"{where.host.text}: redirects to {location[:200]!a}: {error}") from None
    raise NmaError(f"more than {MAX_REDIRECTS} redirects")


def _ask(sock: socket.socket, where: url.Url, target: str, accept: str) -> Page:
    client = http.client.HTTPConnection(where.host.text)
    client.sock = sock
    rest = where.rest.partition("#")[0]
    client.putrequest("GET", rest if rest.startswith("/") else f"/{rest}", skip_host=True, skip_accept_encoding=True)
    port = f":{where.port}" if where.port is not None else ""
    for name, value in (
        ("Host", where.host.in_url + port),
        ("Accept", accept),
        ("Accept-Encoding", "identity"),
        ("User-Agent", USER_AGENT),
        ("Connection", "close"),
    ):
        client.putheader(name, value)
    client.endheaders()
    with client.getresponse() as response:
        headers = tuple((name.lower(), value) for name, value in response.getheaders())
        body = response.read(MAX_BODY + 1)
        return Page(target, response.status, headers, body[:MAX_BODY], len(body) > MAX_BODY)


def _connect(where: url.Url, deadline: float, allow_private: bool) -> socket.socket:
    seconds = deadline - time.monotonic()
    return connect(where.host.text, where.port or PORTS[where.scheme], seconds, allow_private=allow_private)


def connect(host: str, port: int, seconds: float, *, allow_private: bool) -> socket.socket:
    """A socket connected by TCP within so many seconds, all addresses together. Raises NmaError."""
    deadline = time.monotonic() + seconds
    failures = []
    addresses = look_up(host, port, seconds)
    public = [text for text in addresses if allow_private or not is_local(text)]
    if addresses and not public:
        raise NmaError(f"{host} is not asked: {addresses[0]} is not a public address")
    tried = _mixed(public)[:MAX_ADDRESSES]
    for number, address in enumerate(tried):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:  # a silent address leaves the others their part of the time
            sock = socket.create_connection((address, port), timeout=left / (len(tried) - number))
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}".removeprefix(f"{host}: "))
        else:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            return sock
    raise NmaError(f"{host}: {'; '.join(failures) or 'no answer in time'}")


def _mixed(addresses: list[str]) -> list[str]:
    """IPv6 and IPv4 in turn (RFC 8305 section 4): where one kind goes nowhere, the other is still tried."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    others = [address for address in addresses if address not in first]
    return [one for pair in zip_longest(first, others) for one in pair if one]


def is_local(address: str) -> bool:
    """True for an address that is not public."""
    plain = address.partition("%")[0]
    return url.parse_host(f"[{plain}]" if ":" in plain else plain).is_local


def look_up(host: str, port: int, seconds: float) -> list[str]:
    """Addresses by the system's resolver, which knows no deadline; so it is left behind when the time is over.

    Raises NmaError where there is none, or none in time.
    """
    found: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except (OSError, UnicodeError) as error:
            found.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        result = found.get(timeout=max(0.0, seconds))
    except queue.Empty:
        raise NmaError(f"{host}: no address in time") from None
    if isinstance(result, list):
        return result
    raise NmaError(f"{host}: no address: {reason_of(result)}") from None
