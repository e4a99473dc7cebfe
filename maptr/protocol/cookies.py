"""DNS server cookies (RFC 7873) in the interoperable format (RFC 9018).

Secrets, client address and time are arguments. ``answer`` decides which queries need a cookie.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from siphashc import siphash

# Sizes, in bytes.
CLIENT_COOKIE = 8  # RFC 7873 4
SERVER_COOKIE = 16  # RFC 9018 4
WHOLE_COOKIE = CLIENT_COOKIE + SERVER_COOKIE
SERVER_COOKIE_SIZES = range(8, 33)  # those that any server may make, RFC 7873 4
KEY_SIZE = 16  # of a secret: SipHash-2-4 takes 128 bits, RFC 9018 4.4

VERSION = 1  # RFC 9018 4.1

# Seconds. RFC 9018 4.3: accept for an hour and from five minutes ahead; make a new one after half an hour.
MAX_AGE = 3600
MAX_AHEAD = 300
RENEW_AGE = 1800

MAX_SECRETS = 2  # the secret in use, and the previous or the next one (RFC 9018 5)
MAX_ADDRESSES = 10_000  # in the cache of packed addresses; parsing one takes longer than anything but the hash


@dataclass(frozen=True, slots=True)
class CookieSettings:
    """``secrets`` of KEY_SIZE bytes: the first makes cookies, all of them verify. Without secrets there are no cookies.

    ``required``: a client that sends a cookie over UDP gets BADCOOKIE until the server part of the cookie is valid.
    All servers behind one address need the same secrets. Raises ValueError.
    """

    secrets: tuple[bytes, ...] = ()
    required: bool = False

    def __post_init__(self) -> None:
        if len(self.secrets) > MAX_SECRETS:
            raise ValueError(f"{len(self.secrets)} cookie secrets, {MAX_SECRETS} at most")
        for secret in self.secrets:
            if len(secret) != KEY_SIZE:
                raise ValueError(f"a cookie secret has {KEY_SIZE} bytes, not {len(secret)}")


class CookieReply(NamedTuple):
    """The option to send back, and whether the client proved its address."""

    option: bytes
    verified: bool


def is_well_formed(option: bytes) -> bool:
    """True for a client cookie, with or without a server cookie. Anything else is a FORMERR (RFC 7873 5.2.2)."""
    return len(option) == CLIENT_COOKIE or len(option) - CLIENT_COOKIE in SERVER_COOKIE_SIZES


def answer_cookie(option: bytes, address: bytes, *, secrets: Sequence[bytes], now: float) -> CookieReply:
    """The response to a well-formed cookie option from a packed address.

    ``now`` is UNIX time, and ``secrets`` has at least one. A valid cookie is sent back while it is younger than
    RENEW_AGE and made with the first secret; otherwise the client gets a new one.
    """
    seconds = int(now) & 0xFFFFFFFF
    client_cookie, server_cookie = option[:CLIENT_COOKIE], option[CLIENT_COOKIE:]
    age = _age(server_cookie, seconds)
    if age is not None and -MAX_AHEAD <= age <= MAX_AGE:
        for place, secret in enumerate(secrets):
            expected = _hash(secret, client_cookie + server_cookie[:8] + address)
            if hmac.compare_digest(server_cookie[8:], expected):
                if place == 0 and age < RENEW_AGE:
                    return CookieReply(option, True)
                return CookieReply(make_cookie(client_cookie, address, secrets[0], seconds), True)
    return CookieReply(make_cookie(client_cookie, address, secrets[0], seconds), False)


def make_cookie(client_cookie: bytes, address: bytes, secret: bytes, seconds: int) -> bytes:
    """Client and server cookie for a packed address (RFC 9018 4)."""
    head = client_cookie + _fresh_part(seconds)
    return head + _hash(secret, head + address)


@functools.lru_cache(maxsize=1)
def _fresh_part(seconds: int) -> bytes:
    """The fields between the client cookie and the hash: version, reserved and timestamp (RFC 9018 4)."""
    return bytes((VERSION, 0, 0, 0)) + (seconds & 0xFFFFFFFF).to_bytes(4, "big")


def _hash(secret: bytes, data: bytes) -> bytes:
    return siphash(secret, data).to_bytes(8, "little")


def _age(server_cookie: bytes, seconds: int) -> int | None:
    """Seconds since it was made, in serial number arithmetic (RFC 9018 4.3); None for another format."""
    if len(server_cookie) != SERVER_COOKIE or server_cookie[0] != VERSION:
        return None
    age = (seconds - int.from_bytes(server_cookie[4:8], "big")) & 0xFFFFFFFF
    return age - 0x100000000 if age & 0x80000000 else age


@functools.lru_cache(maxsize=MAX_ADDRESSES)
def packed_address(client: str) -> bytes:
    """The bytes of an address; empty for a client without one, such as a UNIX socket."""
    try:
        return ipaddress.ip_address(client.partition("%")[0]).packed
    except ValueError:
        return b""
