"""The settings of the server that responses depend on: identity, cookies, clock, timeouts and sizes.

With the default ``Context`` the server responds to no optional feature: no cookies, NSID or keepalive.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from maptr.protocol.cookies import CookieSettings
from maptr.protocol.numbers import UDP_PAYLOAD

MIN_PAYLOAD = 512  # without EDNS (RFC 1035 4.2.1); smaller values count as this one (RFC 6891 6.2.3)
MAX_PAYLOAD = 4096  # RFC 6891 6.2.5; more would mainly serve amplification

MAX_IDENTITY = 255  # bytes: one character string (RFC 1035 3.3)


class Transport(enum.Enum):
    """The transport of a query. Only UDP limits the size of responses and allows forged addresses."""

    UDP = "udp"
    TCP = "tcp"
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class Identity:
    """How the server identifies itself; an empty text is not sent. Raises ValueError for more than MAX_IDENTITY bytes.

    ``nsid`` is the text of the NSID option (RFC 5001), in UTF-8. ``version`` is the TXT record of class CHAOS at
    ``version.bind`` and ``version.server``, ``hostname`` that at ``hostname.bind`` and ``id.server`` (RFC 4892).
    """

    nsid: str = ""
    version: str = ""
    hostname: str = ""

    def __post_init__(self) -> None:
        for name in ("nsid", "version", "hostname"):
            if len(getattr(self, name).encode()) > MAX_IDENTITY:
                raise ValueError(f"{name} is longer than {MAX_IDENTITY} bytes")


NO_IDENTITY = Identity()
NO_COOKIES = CookieSettings()


@dataclass(frozen=True, slots=True)
class Context:
    """``idle_timeout`` is how long a TCP connection may be idle, in seconds, for clients that ask (RFC 7828).

    ``clock`` returns the UNIX time for cookies. ``udp_payload`` is the most bytes of a UDP response. Raises ValueError.
    """

    identity: Identity = NO_IDENTITY
    cookies: CookieSettings = NO_COOKIES
    clock: Callable[[], float] = lambda: 0.0
    idle_timeout: float | None = None
    udp_payload: int = UDP_PAYLOAD

    def __post_init__(self) -> None:
        if not MIN_PAYLOAD <= self.udp_payload <= MAX_PAYLOAD:
            raise ValueError(f"UDP payload of {self.udp_payload} bytes is not between {MIN_PAYLOAD} and {MAX_PAYLOAD}")


PLAIN = Context()
