"""A received query, and the settings that responses depend on: identity, cookies, clock, timeouts and sizes.

The default ``Context`` turns optional features off: cookies, NSID and keepalive.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from maptr.protocol.cookies import CookieSettings
from maptr.protocol.numbers import UDP_PAYLOAD

MIN_PAYLOAD = 512  # the limit without EDNS (RFC 1035 4.2.1); smaller values are treated as 512 (RFC 6891 6.2.3)
MAX_PAYLOAD = 4096  # RFC 6891 6.2.5; more would mainly serve amplification

MAX_IDENTITY = 255  # bytes in one character string (RFC 1035 3.3)


class Transport(enum.Enum):
    """The transport of a query. Only over UDP is the size of responses limited, and can the address be forged."""

    UDP = "udp"
    TCP = "tcp"
    TLS = "tls"


class ReceivedQuery(NamedTuple):
    """The bytes of a query, its transport, and the IP address of the client, to which cookies are bound."""

    wire: bytes
    transport: Transport = Transport.UDP
    client: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """The texts that identify the server, in UTF-8. An empty text is not sent.

    ``nsid`` is the NSID option (RFC 5001), ``version`` the TXT record of class CHAOS at ``version.bind`` and
    ``version.server``, ``hostname`` that at ``hostname.bind`` and ``id.server`` (RFC 4892). Each has at
    most MAX_IDENTITY bytes.
    """

    nsid: str = ""
    version: str = ""
    hostname: str = ""


NO_COOKIES = CookieSettings()


@dataclass(frozen=True, slots=True)
class Context:
    """The settings for responses.

    ``idle_timeout`` is how many seconds a TCP connection may be idle, which is sent to clients that ask (RFC 7828).
    ``clock`` returns the Unix time for cookies. ``udp_payload`` is the maximum size of a UDP response in bytes, from
    MIN_PAYLOAD to MAX_PAYLOAD.
    """

    identity: Identity = Identity()
    cookies: CookieSettings = NO_COOKIES
    clock: Callable[[], float] = lambda: 0.0
    idle_timeout: float | None = None
    udp_payload: int = UDP_PAYLOAD


PLAIN = Context()
