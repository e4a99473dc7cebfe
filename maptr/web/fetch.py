"""Getting a file by HTTP from a server that may be slow, wrong or hostile: bounded in octets, time and redirects.

Only the bytes are got here; what they mean is the business of whoever asked. No proxy is used.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from maptr import __version__
from maptr.errors import FetchError, NmaError
from maptr.web.connect import MAX_REDIRECTS, PORTS, REDIRECTS, connect, is_local

SECONDS = 60.0  # for one source, redirects and all
CONNECT_SECONDS = 8.0  # for addresses and a connection: three tries of TCP (RFC 6298: after 0, 1 and 3 seconds)
MAX_BODY = 64 << 20  # bytes of a body
CHUNK = 65_536
MAX_VALIDATOR = 200  # characters of an ETag or a date that are kept and sent back
ACCEPT = "application/json, text/plain, application/yaml, */*;q=0.1"


@dataclass(frozen=True, slots=True)
class Fetched:
    """``content`` is None where the server said that nothing changed. ``url`` is where it was in the end."""

    url: str
    content: bytes | None
    etag: str = ""
    modified: str = ""


def fetch(
    url: str,
    *,
    etag: str = "",
    modified: str = "",
    cafile: str | None = None,
    seconds: float = SECONDS,
    max_octets: int = MAX_BODY,
    clock: Callable[[], float] = time.monotonic,
) -> Fetched:
    """The file at an http or https URL; with ``etag`` or ``modified`` only if it changed (RFC 9110 section 13).

    Certificates are checked, against ``cafile`` if given. A redirect from https to http is refused, and one from a
    server at a public address to one that is not. Raises FetchError.
    """
    deadline = clock() + seconds
    seen: list[str] = []
    public = False
    while True:
        seen.append(url)
        try:
            reply, location, public = _get(url, etag, modified, cafile, deadline, max_octets, clock, public)
        except FetchError as error:
            raise error if url == seen[0] else FetchError(f"{seen[0]}: redirected to {error}") from None
        if reply is not None:
            return reply
        try:
            target = urljoin(url, location)
        except ValueError:
            raise FetchError(f"{url}: redirected to {location}, which is no URL") from None
        if len(seen) > MAX_REDIRECTS or target in seen:
            raise FetchError(f"{seen[0]}: redirected in a circle, or more than {MAX_REDIRECTS} times, last to {target}")
        if not target.startswith(("http://", "https://")):
            raise FetchError(f"{url}: redirected to {target}, neither an http nor an https URL")
        if url.startswith("https:") and not target.startswith("https:"):
            raise FetchError(f"{url}: redirected away from https, to {target}")
        url = target


def _get(
    url: str,
    etag: str,
    modified: str,
    cafile: str | None,
    deadline: float,
    max_octets: int,
    clock: Callable[[], float],
    only_public: bool,
) -> tuple[Fetched | None, str, bool]:
    """One request: the file, or None and the location that the server sends us to; and whether its address is public.

    The address is judged that is connected to, so that no name can change its mind in between.
    """
    connection, path, context = _connection(url, cafile, deadline - clock())
    headers = {"User-Agent": f"maptr/{__version__}", "Accept": ACCEPT, "Accept-Encoding": "identity"}
    if etag:
        headers["If-None-Match"] = etag
    elif modified:
        headers["If-Modified-Since"] = modified
    watchdog, response = None, None
    try:
        seconds = min(deadline - clock(), CONNECT_SECONDS)
        raw = connection.sock = connect(connection.host, connection.port, seconds, allow_private=not only_public)
        raw.settimeout(max(0.001, deadline - clock()))
        public = not is_local(raw.getpeername()[0])
        if context is not None:
            connection.sock = context.wrap_socket(raw, server_hostname=connection.host)
        # A server that sends an octet now and then never meets a socket's timeout; this ends it at the deadline.
        # The connection forgets its socket when the server is to close it, so the socket itself is handed over.
        watchdog = threading.Timer(max(0.0, deadline - clock()), _cut, [connection.sock])
        watchdog.daemon = True
        watchdog.start()
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status in REDIRECTS and response.getheader("Location"):
            return None, response.getheader("Location", ""), public
        if response.status == 304 and (etag or modified):
            return Fetched(url, None, etag, modified), "", public
        if response.status != 200:
            raise FetchError(f"{url}: the server answers {response.status} {response.reason}")
        kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise FetchError(f"{url}: not a registry: the server sends a web page ({kind})")
        content = _read(url, response, max_octets)
        if clock() >= deadline:  # the watchdog's end looks like the server's, where no length was sent
            raise FetchError(f"{url}: not all there in time")
        etag, modified = (_validator(response.getheader(name, "")) for name in ("ETag", "Last-Modified"))
        return Fetched(url, content, etag, modified), "", public
    except (NmaError, OSError, http.client.HTTPException, ValueError) as error:
        if clock() >= deadline or isinstance(error, TimeoutError):
            raise FetchError(f"{url}: not all there in time") from None
        raise FetchError(f"{url}: {_reason(error)}") from None
    finally:
        if watchdog is not None:
            watchdog.cancel()
        if response is not None:
            response.close()
        connection.close()


def read_url(url: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port and path with query of a URL that can be fetched. Raises FetchError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORTS.get(parts.scheme)  # told, or ::1 is read as : and a port
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        path.encode("ascii")
    except ValueError as error:
        raise FetchError(f"{url}: no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise FetchError(f"{url}: neither an http nor an https URL with a host and nothing before it")
    return parts.scheme, host, port, path


def _connection(
    url: str, cafile: str | None, seconds: float
) -> tuple[http.client.HTTPConnection, str, ssl.SSLContext | None]:
    """A connection that is not made yet, the path to ask for, and how TLS is done where it is."""
    scheme, host, port, path = read_url(url)
    if seconds <= 0:
        raise FetchError(f"{url}: not all there in time")
    try:
        if scheme == "http":
            return http.client.HTTPConnection(host, port), path, None
        context = ssl.create_default_context(cafile=cafile)
        return http.client.HTTPSConnection(host, port, context=context), path, context
    except http.client.InvalidURL as error:
        raise FetchError(f"{url}: no URL: {error}") from None
    except (OSError, ssl.SSLError) as error:
        raise FetchError(f"{cafile}: no certificates to trust: {error}") from None


def _read(url: str, response: http.client.HTTPResponse, max_octets: int) -> bytes:
    expected = response.length
    parts: list[bytes] = []
    size = 0
    while part := response.read1(CHUNK):
        size += len(part)
        if size > max_octets:
            raise FetchError(f"{url}: more than {max_octets} octets")
        parts.append(part)
    if expected is not None and size < expected:
        raise FetchError(f"{url}: cut short after {size} of {expected} octets")
    return b"".join(parts)


def _validator(value: str) -> str:
    """An ETag or a date that is worth keeping: a request with any other might be refused for ever after."""
    return value if len(value) <= MAX_VALIDATOR and value.isascii() and value.isprintable() else ""


def _cut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is closed, or never was connected
        return


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, http.client.IncompleteRead):
        return f"cut short after {len(error.partial)} octets"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
