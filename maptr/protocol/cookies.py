"""DNS server cookies (RFC 7873) in the interoperable format (RFC 9018).

Secrets, client address and time are arguments. The package ``answer`` decides which queries need a cookie.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass

try:
    from siphashc import siphash
except ImportError:  # an optional dependency, because it is compiled
    siphash = None  # type: ignore[assignment]

from maptr.protocol.address import read_ip

# Sizes, in bytes.
CLIENT_COOKIE = 8  # RFC 7873 4
SERVER_COOKIE = 16  # RFC 9018 4
WHOLE_COOKIE = CLIENT_COOKIE + SERVER_COOKIE
SERVER_COOKIE_SIZES = range(8, 33)  # the sizes that the protocol allows, RFC 7873 4
KEY_SIZE = 16  # the size of a secret: SipHash-2-4 takes 128 bits, RFC 9018 4.4

VERSION = 1  # RFC 9018 4.1
_STAMP = struct.Struct("!B3xI")

# Seconds. RFC 9018 4.3: accept a cookie of the past hour or of the next five minutes, renew one after half an hour.
MAX_AGE = 3600
MAX_AHEAD = 300
RENEW_AGE = 1800

HALF = 1 << 31  # RFC 1982 3.2

MAX_SECRETS = 2  # the secret in use, and the previous or the next one (RFC 9018 5)


@dataclass(frozen=True, slots=True)
class CookieSettings:
    """Cookie settings. The first secret makes cookies, all of them verify; without secrets, cookies are off.

    A secret has KEY_SIZE bytes; there are at most MAX_SECRETS. They need the package siphashc (``is_installed``). All
    servers behind one address need the same secrets. ``required``: a client that sends a cookie over UDP gets BADCOOKIE
    until its server cookie is valid.
    """

    secrets: tuple[bytes, ...] = ()
    required: bool = False


def is_installed() -> bool:
    """Return whether the package siphashc (extra ``server``), which computes cookies, is installed."""
    return siphash is not None


def is_well_formed(option: bytes) -> bool:
    """Return whether the option has a client cookie and no or one server cookie; else FORMERR (RFC 7873 5.2.2)."""
    return len(option) == CLIENT_COOKIE or len(option) - CLIENT_COOKIE in SERVER_COOKIE_SIZES


def answer_cookie(option: bytes, address: bytes, secrets: Sequence[bytes], stamp: bytes) -> tuple[bytes, bool]:
    """Return the response's COOKIE option for a well-formed one in a query, and whether the client's cookie is valid.

    ``address`` is in packed form, ``stamp`` is the current ``timestamp``, and ``secrets`` is not empty. A valid cookie
    is sent back while it is younger than RENEW_AGE and made with the first secret; otherwise the client gets a new one.
    """
    verified = False
    if len(option) == WHOLE_COOKIE and option[CLIENT_COOKIE] == VERSION:
        # Serial number arithmetic (RFC 9018 4.3)
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
    """Return the first fields of a server cookie: version, reserved, and the Unix time (RFC 9018 4)."""
    return _STAMP.pack(VERSION, int(now) & 0xFFFFFFFF)


def sign(unsigned: bytes, address: bytes, secret: bytes) -> bytes:
    """Return ``unsigned``, a client cookie and ``timestamp``, with the hash for a packed address (RFC 9018 4.4)."""
    return unsigned + siphash(secret, unsigned + address).to_bytes(8, "little")


def packed_address(client: str) -> bytes:
    """Return the packed form of an address, or ``b""`` for a client without an IP address, such as a Unix socket."""
    address = read_ip(client)
    return b"" if address is None else address.packed
