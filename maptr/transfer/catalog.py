"""The catalog zone (RFC 9432), which lists the server's zones, so that secondaries know which to serve."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

from maptr.errors import ConfigError
from maptr.protocol.names import Labels, check, fold, to_text, to_wire
from maptr.protocol.numbers import NS, PTR, SOA, TXT
from maptr.zone.snapshot import PackedNodes, ZoneView

VERSION = b"2"  # RFC 9432 4.2.1
TTL = 0  # RFC 9432 4.1: clients do not cache a catalog zone
# Fields of the SOA record, in seconds; EXPIRE is the longest possible.
REFRESH, RETRY, EXPIRE, MINIMUM = 3600, 600, 0x7FFFFFFF, 0
UNIQUE = 32  # hexadecimal digits of a member's label: 128 bits, so that the labels of two members do not collide

_NOWHERE: Labels = (b"invalid",)  # RFC 9432 4.1: there is no server to query and no contact


def catalog_zone(origin: Labels, members: Iterable[Labels], serial: int) -> ZoneView:
    """Return the catalog zone. Raises ConfigError if a member has the catalog's name, or if a name is too long."""
    origin, zones = fold(origin), sorted(map(fold, members))
    if origin in zones:
        raise ConfigError(f"the catalog {to_text(origin)} is one of the zones", of_text=True)
    times = struct.pack("!5I", serial, REFRESH, RETRY, EXPIRE, MINIMUM)
    records = [
        (origin, SOA, TTL, to_wire(_NOWHERE) * 2 + times),
        (origin, NS, TTL, to_wire(_NOWHERE)),
        ((b"version", *origin), TXT, TTL, bytes((len(VERSION),)) + VERSION),
        *(((member_label(zone), b"zones", *origin), PTR, TTL, to_wire(zone)) for zone in zones),
    ]
    try:
        for owner, *_ in records:
            check(owner)
    except ValueError as error:
        raise ConfigError(f"catalog {to_text(origin)}: {error}", of_text=True) from None
    return ZoneView.of(origin, PackedNodes.pack(records))


def member_label(zone: Labels) -> bytes:
    """Return the unique label of a member: a hash of its name, which is the same in every catalog."""
    return hashlib.sha256(to_wire(fold(zone))).hexdigest()[:UNIQUE].encode()
