"""DNS server cookies (RFC 7873) in the interoperable format (RFC 9018).

Secrets, client address and time are arguments. ``answer`` decides which queries need a cookie.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

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

HALF = 1 << 31  # RFC 1982 3.2

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


def is_well_formed(option: bytes) -> bool:
    """Return True for a client cookie, with or without a server cookie. Anything else is a FORMERR (RFC 7873 5.2.2)."""
    return len(option) == CLIENT_COOKIE or len(option) - CLIENT_COOKIE in SERVER_COOKIE_SIZES


def answer_cookie(option: bytes, address: bytes, secrets: Sequence[bytes], stamp: bytes) -> tuple[bytes, bool]:
    """Return the option to send back for a well-formed cookie from a packed address, and whether the cookie is valid.

    ``stamp`` is ``timestamp`` of the present, and ``secrets`` has at least one. A valid cookie is sent back while it is
    younger than RENEW_AGE and made with the first secret; otherwise the client gets a new one.
    """
    verified = False
    if len(option) == WHOLE_COOKIE and option[CLIENT_COOKIE] == VERSION:
        # In serial number arithmetic (RFC 9018 4.3)
        elapsed = int.from_bytes(stamp[4:], "big") - int.from_bytes(option[12:16], "big")
        age = (elapsed + HALF & 0xFFFFFFFF) - HALF
        if -MAX_AHEAD <= age <= MAX_AGE:
            for secret in secrets:
                if hmac.compare_digest(option, sign(option[:16], address, secret)):
                    if secret == secrets[0] and age < RENEW_AGE:
                        return option, True
                    verified = True
    return sign(option[:CLIENT_COOKIE] + stamp, address, secrets[0]), verified


def timestamp(now: float) -> bytes:
    """Return the fields after the client cookie: version, reserved, and a UNIX time (RFC 9018 4)."""
    return bytes((VERSION, 0, 0, 0)) + (int(now) & 0xFFFFFFFF).to_bytes(4, "big")


def sign(unsigned: bytes, address: bytes, secret: bytes) -> bytes:
    """Return a whole cookie from its client cookie and ``timestamp``, for a packed address (RFC 9018 4.4)."""
    return unsigned + siphash(secret, unsigned + address).to_bytes(8, "little")


@functools.lru_cache(maxsize=MAX_ADDRESSES)
def packed_address(client: str) -> bytes:
    """Return the bytes of an address; empty for a client without one, such as a UNIX socket."""
    try:
        return ipaddress.ip_address(client.partition("%")[0]).packed
    except ValueError:
        return b""
