"""What a reply depends on beside the query and the zones: how the query came, who the
server says it is, cookies, sizes, the time.

Values alone. ``serve`` makes a Context from its settings; without one, nothing optional is answered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple, Self

from maptr.protocol.cookies import CookieSettings
from maptr.protocol.numbers import RRSIG, UDP_PAYLOAD

MIN_PAYLOAD = 512  # without EDNS (RFC 1035 4.2.1); smaller values are treated as this (RFC 6891 6.2.3)
MAX_PAYLOAD = 4096  # RFC 6891 6.2.5: the usual largest; beyond it UDP is only good for amplification

# The options of EDNS that we answer: RFC 5001 2.3, RFC 7873 4, RFC 7828 3.1, RFC 7830 3.
NSID, COOKIE, KEEPALIVE, PADDING = 3, 10, 11, 12
OPTION_HEADER = 4  # octets before an option's data, RFC 6891 6.1.2

MAX_IDENTITY = 255  # octets: one character string (RFC 1035 3.3)


class Transport(enum.Enum):
    """How a query came; UDP alone limits the size of its reply and has an address that may be forged."""

    UDP = "udp"
    TCP = "tcp"
    TLS = "tls"


class _Identity(NamedTuple):
    nsid: str = ""
    version: str = ""
    hostname: str = ""


class Identity(_Identity):
    """What the server tells about itself; what is empty is not told. Raises ValueError beyond MAX_IDENTITY.

    ``nsid`` answers the option of RFC 5001, as UTF-8. ``version`` answers ``version.bind`` and ``version.server``,
    ``hostname`` answers ``hostname.bind`` and ``id.server`` (RFC 4892), all TXT of class CHAOS.
    """

    __slots__ = ()

    def __new__(cls, nsid: str = "", version: str = "", hostname: str = "") -> Self:
        for name, text in (("nsid", nsid), ("version", version), ("hostname", hostname)):
            if len(text.encode()) > MAX_IDENTITY:
                raise ValueError(f"{name} is longer than {MAX_IDENTITY} octets")
        return super().__new__(cls, nsid, version, hostname)


NO_IDENTITY = Identity()
NO_COOKIES = CookieSettings()


class _Context(NamedTuple):
    identity: Identity = NO_IDENTITY
    cookies: CookieSettings = NO_COOKIES
    clock: Callable[[], float] = lambda: 0.0
    idle_timeout: float | None = None
    udp_payload: int = UDP_PAYLOAD


class Context(_Context):
    """``idle_timeout`` is the seconds a TCP connection may be silent, told to clients that ask (RFC 7828).

    ``clock`` gives UNIX time, for cookies; ``udp_payload`` is the most bytes of a UDP reply. Raises ValueError.
    """

    __slots__ = ()

    def __new__(
        cls,
        identity: Identity = NO_IDENTITY,
        cookies: CookieSettings = NO_COOKIES,
        clock: Callable[[], float] = lambda: 0.0,
        idle_timeout: float | None = None,
        udp_payload: int = UDP_PAYLOAD,
    ) -> Self:
        if not MIN_PAYLOAD <= udp_payload <= MAX_PAYLOAD:
            raise ValueError(f"a UDP payload of {udp_payload}, not {MIN_PAYLOAD} to {MAX_PAYLOAD}")
        return super().__new__(cls, identity, cookies, clock, idle_timeout, udp_payload)


PLAIN = Context()


def is_amplifier(rdtype: int, *, apex: bool, answered: bool) -> bool:
    """True for the answers that grow with a zone's keys and signatures: those at its apex, and all to type RRSIG.

    A client that asks over UDP without a valid cookie may be a forged address, so it gets no more of them than fits
    without EDNS, and TC: the most traffic for the smallest query is drawn with these.
    """
    return answered and (apex or rdtype == RRSIG)
