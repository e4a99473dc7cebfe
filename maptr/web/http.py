"""HTTP client for servers that may be slow or hostile, with limits on time, size and destination.

    get(url, ...)       a page of a mapping authority, cut at a limit
    fetch(url, ...)     a file, if it has changed
    head(url, ...)      whether a server answers, and when its certificate expires
    ask(url, ...)       the status and headers of one response

A host name is looked up once, addresses that are not public are refused, and the connection goes to an address that was
checked, so that DNS rebinding has no effect. A file may be fetched through the environment's proxy (``proxy``), which
then looks up and checks addresses; pages and heads never are.
"""

from __future__ import annotations

import http.client
import io
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

from maptr import __version__, url
from maptr.errors import Fault, FetchError, NmaError, printable, reason_of
from maptr.files import read_up_to
from maptr.web import SECONDS
from maptr.web.proxy import Proxy, proxy_for

MAX_REDIRECTS = 5  # RFC 9110 15.4 leaves the limit to the client; RFC 2068 10.3 had five
MAX_HEAD = 4096  # bytes read of the response to HEAD
MAX_ASKED = 65_536  # bytes read of a response whose body is not wanted
MAX_PAGE = 262_144  # bytes of a page; an ERC record has hundreds
MAX_FILE = 64 << 20  # bytes of a file
MAX_ADDRESSES = 4  # of one host
MAX_VALIDATOR = 200  # characters of an ETag or a date that is kept and sent back
MAX_REASON = 200  # characters of an error
CONNECT_SECONDS = 8.0  # for the addresses and a connection: three tries of TCP (RFC 6298: after 0, 1 and 3 seconds)
REDIRECTS = frozenset({301, 302, 303, 307, 308})
USER_AGENT = f"maptr/{__version__}"
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})")  # RFC 9112 4
_HAS_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
ACCEPT_FILE = "application/json, text/plain, application/yaml, */*;q=0.1"


class NotPublicAddress(NmaError):
    """All addresses of a host are refused, because they are not public."""


ProbeFunction = Callable[[url.Url, float], None]
"""Contacts a server within a number of seconds; raises NmaError if it does not answer."""


class Page(NamedTuple):
    """An HTTP response, after redirects. Header names are in lower case; ``cut``: it had more than MAX_PAGE bytes."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: bool

    def header(self, name: str) -> str:
        """Return the first value of a header, or ""."""
        return next((value for label, value in self.headers if label == name), "")


@contextmanager
def connection(
    where: url.Url,
    *,
    seconds: float,
    connect_seconds: float | None = None,
    allow_private: bool = False,
    context: ssl.SSLContext | None = None,
    proxy: Proxy | None = None,
) -> Iterator[socket.socket]:
    """Connect a socket to the server of an http or https URL, with TLS verified. It is closed after ``seconds``.

    With a ``proxy``, the socket goes to the proxy, whose address may be private, and for https on to the server.

    Raises NmaError, also in place of an OSError, HTTPException or ValueError in the ``with`` block.
    """
    deadline = time.monotonic() + seconds
    port = where.port or url.PORTS[where.scheme]
    limit = seconds if connect_seconds is None else min(seconds, connect_seconds)
    peer = where.host.text
    if proxy is None:
        current = connect(peer, port, limit, allow_private=allow_private)
    else:
        peer += _by(proxy)
        try:
            current = connect(proxy.host.text, proxy.port, limit, allow_private=True)
        except NmaError as error:
            raise NmaError(f"{peer}: {error}", error.fault) from None
    current.settimeout(max(0.001, deadline - time.monotonic()))
    ended = threading.Event()

    def end() -> None:
        ended.set()
        with suppress(OSError):
            current.shutdown(socket.SHUT_RDWR)

    # The timeout of a socket does not end a response that arrives one byte at a time; this timer does.
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        if where.scheme == "https":
            if proxy is not None:
                _tunnel(current, f"{where.host.in_url}:{port}", proxy)
            context = context or ssl.create_default_context()
            name = where.host.text.removesuffix(".")  # RFC 6066 3
            current = context.wrap_socket(current, server_hostname=name, do_handshake_on_connect=False)
            if ended.is_set():  # the timer may have shut down the socket that was wrapped
                raise TimeoutError
            current.do_handshake()
        yield current
        if ended.is_set():  # http.client may not have noticed that the response was cut short
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = ended.is_set() or isinstance(error, TimeoutError)
        fault = Fault.TIMEOUT if late else _fault(error)
        raise NmaError(f"{peer}: {'no answer in time' if late else _reason(error)}", fault) from None
    finally:
        timer.cancel()
        current.close()


def _tunnel(sock: socket.socket, target: str, proxy: Proxy) -> None:
    """Have a proxy connect to a server (RFC 9110 9.3.6). Raises NmaError, OSError and HTTPException."""
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {USER_AGENT}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    with http.client.HTTPResponse(sock, method="CONNECT") as response:
        response.begin()
    if not 200 <= response.status < 300:
        reason = printable(f"{response.status} {response.reason}"[:MAX_REASON])
        raise NmaError(f"the proxy {proxy} answers {reason} for {target}")


def try_connection(where: url.Url, seconds: float, *, allow_private: bool = False) -> None:
    """Set up TCP, and TLS for https, and disconnect. Raises NmaError."""
    with connection(where, seconds=seconds, allow_private=allow_private):
        pass


class Head(NamedTuple):
    """The status of a response to HEAD, and the expiry of the server's certificate (Unix time, None for http)."""

    status: int
    certificate_end: float | None


def head(where: url.Url, seconds: float, *, allow_private: bool = False, user_agent: str = USER_AGENT) -> Head:
    """Send a HEAD request (RFC 9110 9.3.2), with TLS verified, and follow no redirect. Raises NmaError.

    Only one status line is read, whatever the server sends, and an interim response (1xx) counts as an answer.
    """
    with connection(where, seconds=seconds, allow_private=allow_private) as sock:
        certificate = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
        send(sock, where, {"User-Agent": user_agent}, method="HEAD")
        start = b""
        while (line := _STATUS_LINE.match(start)) is None and (more := sock.recv(MAX_HEAD - len(start))):
            start += more
        if line is None:
            raise http.client.BadStatusLine("no HTTP response")
    end = ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else None
    return Head(int(line[1]), end)


def user_agent(contact: str) -> str:
    """Return the User-Agent header that tells server operators who sends the requests: a URL or an e-mail address."""
    return f"{USER_AGENT} (+{contact})" if contact.isascii() and contact else USER_AGENT


class ResponseHead(NamedTuple):
    """The status and headers of a response."""

    status: int
    headers: Message


def ask(
    where: url.Url,
    method: str,
    seconds: float,
    *,
    allow_private: bool = False,
    user_agent: str = USER_AGENT,
    context: ssl.SSLContext | None = None,
) -> ResponseHead:
    """Send one request and return the start of its response, reading at most MAX_ASKED bytes. Redirects are not
    followed. Raises NmaError, and NotPublicAddress unless ``allow_private``."""
    with connection(where, seconds=seconds, allow_private=allow_private, context=context) as sock:
        send(sock, where, {"User-Agent": user_agent, "Accept": "*/*"}, method)
        first: Any = _FirstBytes(sock, MAX_ASKED)  # what HTTPResponse needs of a socket
        with http.client.HTTPResponse(first, method=method) as response:
            response.begin()
            return ResponseHead(response.status, response.headers)


class _FirstBytes(io.RawIOBase):
    """The first bytes that a socket receives, as if the server closed the connection after them."""

    def __init__(self, sock: socket.socket, most: int) -> None:
        self._sock = sock
        self._left = most

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            return 0
        size = self._sock.recv_into(buffer, min(len(buffer), self._left))
        self._left -= size
        return size


def send(
    sock: socket.socket,
    where: url.Url,
    headers: Mapping[str, str],
    method: str = "GET",
    *,
    proxy: Proxy | None = None,
) -> http.client.HTTPConnection:
    """Send a request without a body on a connection; to a proxy, with the whole URL (RFC 9112 3.2.2)."""
    client = http.client.HTTPConnection(where.host.in_url)  # it takes the end of a bare IPv6 address for a port
    client.sock = sock
    rest = where.rest.partition("#")[0]
    target = rest if rest.startswith("/") else f"/{rest}"
    if proxy is not None:
        target, headers = f"{where.server}{target}", {**headers, **proxy.headers}
    client.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    port = f":{where.port}" if where.port is not None else ""
    fixed = {"Accept-Encoding": "identity", "Connection": "close"}
    for name, value in {"Host": where.host.in_url + port, "User-Agent": USER_AGENT, **headers, **fixed}.items():
        client.putheader(name, value)
    client.endheaders()
    return client


def get(target: str, *, seconds: float, accept: str = "*/*", allow_private: bool = False) -> Page:
    """Return the page at a URL, after redirects. Raises NmaError, also for a URL that must not be followed."""
    deadline = time.monotonic() + seconds
    for _ in range(MAX_REDIRECTS + 1):
        if refusal := url.refusal(target, allow_private=allow_private):
            raise NmaError(f"{target[:200]!a} is refused: {refusal}")
        where = url.parse(target)
        with (
            connection(where, seconds=deadline - time.monotonic(), allow_private=allow_private) as sock,
            send(sock, where, {"Accept": accept}).getresponse() as response,
        ):
            headers = tuple((name.lower(), value) for name, value in response.getheaders())
            body = read_up_to(response, MAX_PAGE)
        page = Page(target, response.status, headers, body[:MAX_PAGE], len(body) > MAX_PAGE)
        location = page.header("location")
        if page.status not in REDIRECTS or not location:
            return page
        try:
            target = urljoin(target, location)
        except ValueError:  # such as an unbalanced bracket
            raise NmaError(f"{where.host.text}: redirects to {location[:200]!a}, which is not a valid URL") from None
    raise NmaError(f"more than {MAX_REDIRECTS} redirects")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file. ``content`` is None if the server says that it has not changed. ``url`` is the one after redirects."""

    url: str
    content: bytes | None
    etag: str = ""
    modified: str = ""


def fetch(
    source: str,
    *,
    etag: str = "",
    modified: str = "",
    cafile: str | Path | None = None,
    seconds: float = SECONDS,
    max_bytes: int = MAX_FILE,
) -> Fetched:
    """Fetch the file at an http or https URL; with ``etag`` or ``modified`` only if it changed (RFC 9110 section 13).

    Certificates are verified, against ``cafile`` if given. Redirects from https to http are refused, and so are those
    from a public address to one that is not; if a proxy does the lookup, the host's name or literal address decides.
    Raises FetchError.
    """
    deadline = time.monotonic() + seconds
    known = {"If-None-Match": etag} if etag else {"If-Modified-Since": modified} if modified else {}
    current, public = source, False

    def failed(reason: object) -> FetchError:
        return FetchError(f"{source}: {'' if current == source else f'redirected to {current}: '}{reason}")

    for _ in range(MAX_REDIRECTS + 1):
        try:
            where = url.parse(current)
            context = ssl.create_default_context(cafile=cafile) if where.scheme == "https" else None
        except OSError as error:
            raise failed(f"{cafile}: no certificates to trust: {error}") from None
        except ValueError as error:
            raise failed(f"not a valid URL: {error}") from None
        try:
            proxy = proxy_for(where)
        except ValueError as error:
            raise failed(error) from None
        if proxy is not None and public and where.host.is_local:
            raise failed(f"{where.host.text} is refused: not a public host")
        try:
            with (
                connection(
                    where,
                    seconds=deadline - time.monotonic(),
                    connect_seconds=CONNECT_SECONDS,
                    allow_private=not public,
                    context=context,
                    proxy=proxy,
                ) as sock,
                send(
                    sock,
                    where,
                    {"Accept": ACCEPT_FILE, **known},
                    proxy=proxy if where.scheme == "http" else None,
                ).getresponse() as response,
            ):
                is_local = where.host.is_local if proxy is not None else url.is_local(sock.getpeername()[0])
                public = not is_local
                location = response.getheader("Location", "") if response.status in REDIRECTS else ""
                if not location:
                    return _receive(current, response, etag, modified, max_bytes, proxy)
        except NmaError as error:
            raise failed(f"no complete answer in time{_by(proxy)}" if time.monotonic() >= deadline else error) from None
        try:
            target = urljoin(current, location)
        except ValueError:
            raise failed(f"redirected to {location}, which is not a valid URL") from None
        if current.lower().startswith("https:") and target.lower().startswith("http:"):
            raise failed(f"redirected away from https, to {target}")
        current = target
    raise FetchError(f"{source}: redirected more than {MAX_REDIRECTS} times, last to {current}")


def _receive(
    source: str, response: http.client.HTTPResponse, etag: str, modified: str, max_bytes: int, proxy: Proxy | None
) -> Fetched:
    """Return the file in a response that is not a redirect, and may come from the ``proxy`` itself. Raises NmaError,
    OSError and HTTPException."""
    if response.status == 304 and (etag or modified):
        return Fetched(source, None, etag, modified)
    if response.status != 200:
        raise NmaError(f"the server answers {response.status} {response.reason}{_by(proxy)}")
    kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        raise NmaError(f"not a registry: the server sends a web page ({kind})")
    content = read_up_to(response, max_bytes)
    if len(content) > max_bytes:
        raise NmaError(f"more than {max_bytes} bytes")
    if response.length:  # what is left of Content-Length
        raise http.client.IncompleteRead(content, response.length)
    etag, modified = (_validator(response.getheader(name, "")) for name in ("ETag", "Last-Modified"))
    return Fetched(source, content, etag, modified)


def _by(proxy: Proxy | None) -> str:
    return "" if proxy is None else f" by the proxy {proxy}"


def _validator(value: str) -> str:
    """Return an ETag or a date; "" if it cannot be sent back, because every later request could then fail."""
    return value if len(value) <= MAX_VALIDATOR and value.isascii() and value.isprintable() else ""


def connect(host: str, port: int, seconds: float, *, allow_private: bool) -> socket.socket:
    """Open a TCP connection; ``seconds`` is the limit for all addresses together. Raises NmaError."""
    deadline = time.monotonic() + seconds
    failures, fault = [], Fault.TIMEOUT
    addresses = look_up(host, port, seconds)
    public = [text for text in addresses if allow_private or not url.is_local(text)]
    if addresses and not public:
        raise NotPublicAddress(f"{host} is refused: {addresses[0]} is not a public address")
    tried = _interleaved(public)[:MAX_ADDRESSES]
    for number, address in enumerate(tried):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:  # each address has its share of the time
            sock = socket.create_connection((address, port), timeout=left / (len(tried) - number))
        except OSError as error:
            fault = fault if isinstance(error, TimeoutError) else Fault.UNREACHABLE
            failures.append(
                f"{error.strerror or error}" if address == host else f"{address}: {error.strerror or error}"
            )
        else:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            return sock
    raise NmaError(f"{host}: {'; '.join(failures) or 'no answer in time'}", fault)


def _interleaved(addresses: list[str]) -> list[str]:
    """Alternate IPv6 and IPv4 addresses (RFC 8305 section 4), so that both are tried."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    others = [address for address in addresses if address not in first]
    return [one for pair in zip_longest(first, others) for one in pair if one]


def look_up(host: str, port: int, seconds: float) -> list[str]:
    """Look up the addresses of a host by the system's resolver, which has no timeout and so runs in a thread.

    Raises NmaError if there is none, or none in time.
    """
    found: queue.SimpleQueue[list[str] | str] = queue.SimpleQueue()

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except (OSError, UnicodeError) as error:
            found.put(f"{host}: no address: {reason_of(error)}")

    threading.Thread(target=ask, daemon=True).start()
    try:
        addresses = found.get(timeout=max(0.0, seconds))
    except queue.Empty:
        addresses = f"{host}: no address in time"
    if isinstance(addresses, str):
        raise NmaError(addresses, Fault.DNS)
    return addresses


def _fault(error: Exception) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code == _HAS_EXPIRED:
        return Fault.EXPIRED
    if isinstance(error, ssl.SSLError):
        return Fault.TLS
    return Fault.UNREACHABLE if isinstance(error, OSError) else Fault.NOT_HTTP


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, http.client.IncompleteRead):
        return f"cut short after {len(error.partial)} bytes"
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return printable(text[:MAX_REASON])  # it may be a line from the server
