"""HTTP requests and responses as values: the raw target, content negotiation, and the forms of an error."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, overload
from urllib.parse import parse_qsl

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.errors import LocatedError, MaptrError, json_text, printable

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
JSON_LINES = "application/jsonl"
PROBLEM = "application/problem+json"  # RFC 9457
LD = "application/ld+json"  # JSON-LD
LINKSET = "application/linkset+json"  # RFC 9264
LINKSET_TEXT = "application/linkset"

T = TypeVar("T")
U = TypeVar("U")

Headers = tuple[tuple[str, str], ...]

_WITH_ETAG = ("text/html", "text/css", "image/", "application/atom+xml")
MAX_PARAMETERS = 200  # read from a query string
MAX_AGE = 86_400  # seconds for which a client may cache a response, at most
_MAX_RANGES = 50  # ranges read from one Accept header
_QUALITY = re.compile(r"(?i)q\s*=\s*([01](?:\.\d{0,3})?)\Z")


class Unreadable(MaptrError):
    """Something that a response needs cannot be read now. The text is safe to show to clients: it names no file."""


class Busy(Unreadable):
    """It cannot be read at once; a thread that may wait can try."""


def published(error: MaptrError | OSError) -> str:
    """Return an error's text for clients: it names the file without its folder."""
    if isinstance(error, LocatedError):
        reason, file, line = error.reason, error.filename, error.line
    elif isinstance(error, OSError):
        reason, file, line = error.strerror or str(error), str(error.filename or ""), 0
    else:
        return printable(str(error))
    return str(LocatedError(reason, filename=file.rpartition("/")[2], line=line))


class Request(NamedTuple):
    """One request. ``target`` is as received: no ``%`` pair is decoded, and a final ``?`` is kept.

    ``headers`` has its names in lower case, or ignores case. ``now`` is wall-clock time, ``client`` the client's
    address. ``is_admin``: it came to an operator address.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    now: float = 0.0
    client: str = ""
    is_admin: bool = False

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The decoded pairs of the query string, the first MAX_PARAMETERS of them."""
        pairs = self.target.partition("?")[2].split("&", MAX_PARAMETERS)[:MAX_PARAMETERS]
        return parse_qsl("&".join(pairs), keep_blank_values=True)

    def parameter(self, name: str) -> str:
        """Return the first value of a parameter; "" if there is none."""
        return next((value for known, value in self.parameters if known == name), "")

    @property
    def media_type(self) -> str:
        """The body's type in lower case, without parameters; "" without a Content-Type (RFC 9110 8.3)."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def accepted(self) -> Sequence[tuple[str, float]]:
        """The media ranges of the Accept header, each with its quality (RFC 9110 12.5.1); any type without one."""
        return ranges(self.headers.get("accept") or "*/*")

    def names(self, *kinds: str) -> bool:
        """Return whether the client asks for one of these media types by name, not only with a wildcard."""
        return any(pattern in kinds and quality > 0 for pattern, quality in self.accepted)

    def quality(self, offer: str) -> float:
        """Return the quality of a media type for the client, from the most specific range; 0 means not acceptable."""
        kind = offer.partition(";")[0]
        ranges = self.accepted
        for pattern in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
            for known, quality in ranges:
                if known == pattern:
                    return quality
        return 0.0

    def prefers(self, *offers: str) -> str:
        """Return the offered media type that the client prefers; the first if it accepts none."""
        return max(offers, key=self.quality)


class Response(NamedTuple):
    """One response. The server adds the length to ``headers``. ``reason`` says why it failed, for the statistics and
    pages; ``meant`` is the ARK that was perhaps meant."""

    status: int
    headers: Headers
    body: bytes = b""
    reason: str = ""
    meant: str = ""

    def header(self, name: str) -> str:
        """Return the value of a header; "" without one."""
        lower = name.lower()
        for known, value in self.headers:
            if known.lower() == lower:
                return value
        return ""


class Lookup(NamedTuple):
    """An ARK to look up, and the function that makes the response from its discovery."""

    ark: Ark
    respond: Callable[[Discovery], Response]


class Lines(NamedTuple):
    """A response in lines, sent in order, each as soon as it and all earlier ones are known.

    Each line is the body of one part. ``response`` has the status and headers of the whole. Taking a part, or calling
    its ``respond``, may raise Unreadable: ``unreadable`` then makes the line, from its index and the error.
    """

    parts: Sequence[Lookup | Response]
    response: Response
    unreadable: Callable[[int, Unreadable], Response]


class Made(Sequence[T]):
    """Values made on access, each from one of the ``items``."""

    def __init__(self, items: Sequence[U], make: Callable[[U], T]) -> None:
        self._items: Sequence[Any] = items
        self._make: Callable[[Any], T] = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return Made(self._items[index], self._make) if isinstance(index, slice) else self._make(self._items[index])


Work = Callable[[], Response]
"""Makes a response that takes long. May be called in any thread."""

Answer = Response | Lookup | Lines | Work


@lru_cache(maxsize=1024)
def ranges(text: str) -> Sequence[tuple[str, float]]:
    """Return the ranges of an Accept or Accept-Language header in lower case, each with its quality."""
    return tuple(_range(part) for part in text.split(",")[:_MAX_RANGES])


def _range(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in text.split(";"))
    quality = next((float(found[1]) for part in parameters if (found := _QUALITY.match(part))), 1.0)
    return kind.lower(), min(quality, 1.0)


@lru_cache(maxsize=1024)
def kept(now: int, seconds: int) -> Headers:
    """Return the headers that say how long a client may cache a response."""
    seconds = max(0, min(seconds, MAX_AGE))
    return ("Cache-Control", f"max-age={seconds}"), ("Expires", formatdate(now + seconds, usegmt=True))


def unchanged(method: str, received: Mapping[str, str], response: Response) -> Response:
    """Return a page or file with an ETag, and 304 to a client that names it (RFC 9110 8.8.3 and 13.1.2)."""
    if method not in ("GET", "HEAD") or not response.header("Content-Type").startswith(_WITH_ETAG):
        return response
    tag = f'"{hashlib.sha256(response.body).hexdigest()[:20]}"'
    headers = (*response.headers, ("ETag", tag))
    wanted = received.get("if-none-match", "")
    if wanted.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in wanted.split(",")]:
        left = tuple(pair for pair in headers if pair[0] != "Content-Type")
        return Response(HTTPStatus.NOT_MODIFIED, left)
    return response._replace(headers=headers)


def not_kept(response: Response) -> Response:
    """Return the response, marked as not cacheable."""
    headers = [pair for pair in response.headers if pair[0] not in ("Cache-Control", "Expires")]
    return response._replace(headers=(*headers, ("Cache-Control", "no-store")))


def text(lines: str, status: int = HTTPStatus.OK, headers: Headers = ()) -> Response:
    """Return a plain text response. Values that may contain line breaks must have been through ``printable``."""
    shown = printable(lines, keep="\n")
    return Response(status, (("Content-Type", TEXT), *headers), shown.encode("utf-8", "replace"))


def as_json(value: Any, status: int = HTTPStatus.OK, headers: Headers = (), kind: str = JSON) -> Response:
    """Return a JSON document, in ASCII."""
    return Response(status, (("Content-Type", kind), *headers), json_text(value, indent=2).encode() + b"\n")


def problem(status: HTTPStatus, detail: str, headers: Headers = (), **members: Any) -> Response:
    """Problem details (RFC 9457). The type is about:blank, because the HTTP status says it all."""
    value = {"title": status.phrase, "status": status.value, "detail": detail, **members}
    return as_json(value, status, headers, PROBLEM)


def preflight(methods: Iterable[str]) -> Response:
    """Return the response to OPTIONS: the methods, also for scripts (CORS)."""
    allowed = ", ".join(methods)
    headers = (
        ("Allow", allowed),
        ("Access-Control-Allow-Methods", allowed),
        ("Access-Control-Allow-Headers", "*, Authorization"),  # the wildcard covers all but this one (Fetch standard)
        ("Access-Control-Max-Age", "86400"),
    )
    return Response(HTTPStatus.NO_CONTENT, headers)
