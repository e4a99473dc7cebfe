"""Server cookies (RFC 7873) in the format that servers of any make share (RFC 9018).

Made and verified from values alone: the secrets, the client's address and the time are arguments. When a cookie
matters is decided in ``answer.py``.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple, Self

from siphashc import siphash

CLIENT_COOKIE = 8  # octets, RFC 7873 4
SERVER_COOKIE = 16  # octets of the interoperable format, RFC 9018 4
WHOLE_COOKIE = CLIENT_COOKIE + SERVER_COOKIE
SERVER_COOKIE_SIZES = range(8, 33)  # what any server may have made, RFC 7873 4
VERSION = 1  # RFC 9018 4.1
KEY_SIZE = 16  # bytes of a secret: SipHash-2-4 takes 128 bits, RFC 9018 4.4

# RFC 9018 4.3: accept for an hour and from five minutes ahead; make a new one after half an hour.
MAX_AGE = 3600
MAX_AHEAD = 300
RENEW_AGE = 1800

# The secret in use, and the one that came before or comes next (RFC 9018 5).
MAX_SECRETS = 2

MAX_ADDRESSES = 10_000  # packed, remembered at a time: reading one takes longer than all else but the hash


class _Settings(NamedTuple):
    secrets: tuple[bytes, ...] = ()
    required: bool = False


class CookieSettings(_Settings):
    """``secrets`` of 16 octets: the first makes cookies, each verifies them; without one there are no cookies.

    ``required``: a client that sends a cookie over UDP gets BADCOOKIE until the cookie is one of ours.
    All servers behind one address are given the same secrets. Raises ValueError.
    """

    __slots__ = ()

    def __new__(cls, secrets: tuple[bytes, ...] = (), required: bool = False) -> Self:
        if len(secrets) > MAX_SECRETS:
            raise ValueError(f"{len(secrets)} cookie secrets, {MAX_SECRETS} at most")
        for secret in secrets:
            if len(secret) != KEY_SIZE:
                raise ValueError(f"a cookie secret has {KEY_SIZE} octets, not {len(secret)}")
        return super().__new__(cls, secrets, required)


class CookieReply(NamedTuple):
    """The option to send back, and whether the client proved to be at its address."""

    option: bytes
    verified: bool


def is_well_formed(option: bytes) -> bool:
    """True for a client cookie with or without a server cookie (RFC 7873 5.2.2 makes the rest FORMERR)."""
    return len(option) == CLIENT_COOKIE or len(option) - CLIENT_COOKIE in SERVER_COOKIE_SIZES


def answer_cookie(option: bytes, address: bytes, *, secrets: Sequence[bytes], now: float) -> CookieReply:
    """What a well-formed cookie option of a client at a packed address is answered with.

    ``now`` is UNIX time, ``secrets`` has one at least. A cookie of ours comes back as it was while it is young and its
    secret is in use; otherwise a new one goes.
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
    """Client and server cookie together, for a client at a packed address (RFC 9018 4)."""
    head = client_cookie + _fresh_part(seconds)
    return head + _hash(secret, head + address)


@functools.lru_cache(maxsize=1)
def _fresh_part(seconds: int) -> bytes:
    """What a cookie made at that UNIX time has between the client's part and the hash (RFC 9018 4)."""
    return bytes((VERSION, 0, 0, 0)) + (seconds & 0xFFFFFFFF).to_bytes(4, "big")


def _hash(secret: bytes, data: bytes) -> bytes:
    return siphash(secret, data).to_bytes(8, "little")


def _age(server_cookie: bytes, seconds: int) -> int | None:
    """Seconds since it was made, by serial number arithmetic (RFC 9018 4.3); None if it is none of ours."""
    if len(server_cookie) != SERVER_COOKIE or server_cookie[0] != VERSION:
        return None
    age = (seconds - int.from_bytes(server_cookie[4:8], "big")) & 0xFFFFFFFF
    return age - 0x100000000 if age & 0x80000000 else age


@functools.lru_cache(maxsize=MAX_ADDRESSES)
def packed_address(client: str) -> bytes:
    """The address's octets; none where it is not known, which binds the cookie to no address of the network."""
    try:
        return ipaddress.ip_address(client.partition("%")[0]).packed
    except ValueError:
        return b""
