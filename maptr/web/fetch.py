"""Fetching a file by HTTP from a server that may be slow or hostile: limits on size, time and redirects.

No proxy is used.
"""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urljoin

from maptr.errors import FetchError, NmaError
from maptr.url import parse
from maptr.web.connect import MAX_REDIRECTS, REDIRECTS, connection, is_local, request

SECONDS = 60.0  # for one source, redirects included
CONNECT_SECONDS = 8.0  # for the addresses and a connection: three tries of TCP (RFC 6298: after 0, 1 and 3 seconds)
MAX_BODY = 64 << 20  # bytes
CHUNK = 65_536
MAX_VALIDATOR = 200  # characters of an ETag or a date that are kept and sent back
ACCEPT = "application/json, text/plain, application/yaml, */*;q=0.1"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file. ``content`` is None if the server says that it did not change. ``url`` is the one after redirects."""

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
    max_bytes: int = MAX_BODY,
) -> Fetched:
    """The file at an http or https URL; with ``etag`` or ``modified`` only if it changed (RFC 9110 section 13).

    Certificates are verified, against ``cafile`` if given. A redirect from https to http is refused, and so is one from
    a server at a public address to one that is not. Raises FetchError.
    """
    deadline = time.monotonic() + seconds
    seen: list[str] = []
    public = False
    while True:
        seen.append(url)
        try:
            reply, location, public = _get(url, etag, modified, cafile, deadline, max_bytes, public)
        except FetchError as error:
            raise error if url == seen[0] else FetchError(f"{seen[0]}: redirected to {error}") from None
        if reply is not None:
            return reply
        try:
            target = urljoin(url, location)
        except ValueError:
            raise FetchError(f"{url}: redirected to {location}, which is not a valid URL") from None
        if len(seen) > MAX_REDIRECTS or target in seen:
            raise FetchError(f"{seen[0]}: redirected in a circle, or more than {MAX_REDIRECTS} times, last to {target}")
        if url.startswith("https:") and target.startswith("http:"):
            raise FetchError(f"{url}: redirected away from https, to {target}")
        url = target


def _get(
    url: str, etag: str, modified: str, cafile: str | None, deadline: float, max_bytes: int, only_public: bool
) -> tuple[Fetched | None, str, bool]:
    """One request: the file, or None and the location of a redirect; and whether the server's address is public."""
    try:
        where = parse(url)
    except ValueError as error:
        raise FetchError(f"{url}: not a valid URL: {error}") from None
    try:
        context = ssl.create_default_context(cafile=cafile) if where.scheme == "https" else None
    except OSError as error:
        raise FetchError(f"{cafile}: no certificates to trust: {error}") from None
    headers = {"Accept": ACCEPT}
    if etag:
        headers["If-None-Match"] = etag
    elif modified:
        headers["If-Modified-Since"] = modified
    seconds = deadline - time.monotonic()
    try:
        with connection(
            where, seconds=seconds, connect_seconds=CONNECT_SECONDS, allow_private=not only_public, context=context
        ) as sock:
            public = not is_local(sock.getpeername()[0])
            with request(sock, where, headers) as response:
                location = response.getheader("Location", "") if response.status in REDIRECTS else ""
                fetched = None if location else _receive(url, response, etag, modified, max_bytes)
    except NmaError as error:
        late = time.monotonic() >= deadline
        raise FetchError(f"{url}: {'no answer in time' if late else error}") from None
    return fetched, location, public


def _receive(url: str, response: http.client.HTTPResponse, etag: str, modified: str, max_bytes: int) -> Fetched:
    if response.status == 304 and (etag or modified):
        return Fetched(url, None, etag, modified)
    if response.status != 200:
        raise FetchError(f"{url}: the server answers {response.status} {response.reason}")
    kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        raise FetchError(f"{url}: not a registry: the server sends a web page ({kind})")
    content = _read(url, response, max_bytes)
    etag, modified = (_validator(response.getheader(name, "")) for name in ("ETag", "Last-Modified"))
    return Fetched(url, content, etag, modified)


def _read(url: str, response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    expected = response.length
    parts: list[bytes] = []
    size = 0
    while part := response.read1(CHUNK):
        size += len(part)
        if size > max_bytes:
            raise FetchError(f"{url}: more than {max_bytes} bytes")
        parts.append(part)
    content = b"".join(parts)
    if expected is not None and size < expected:
        raise http.client.IncompleteRead(content, expected - size)
    return content


def _validator(value: str) -> str:
    """An ETag or a date that can be sent back; "" for any other, which could make every later request fail."""
    return value if len(value) <= MAX_VALIDATOR and value.isascii() and value.isprintable() else ""
