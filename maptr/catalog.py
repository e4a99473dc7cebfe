"""The catalog zone (RFC 9432): a zone that lists the zones, so that secondaries learn which to serve."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from types import MappingProxyType

from maptr.names import Labels, check, fold, to_wire
from maptr.protocol import NS, PTR, SOA, TXT
from maptr.snapshot import Node, RRset, ZoneView

VERSION = b"2"  # RFC 9432 4.2.1
TTL = 0  # RFC 9432 4.1: there is nothing in it for caches
# Of the SOA, seconds: it changes when a server is told another list, and the longest expiry there is.
REFRESH, RETRY, EXPIRE, MINIMUM = 3600, 600, 0x7FFFFFFF, 0
UNIQUE = 32  # hexadecimal digits of a member's label: 128 bits do not meet by chance

_NOWHERE: Labels = (b"invalid",)  # RFC 9432 4.1: no server and no contact to be asked


def catalog_zone(origin: Labels, members: Iterable[Labels], serial: int) -> ZoneView:
    """The catalog of these zones. Raises ValueError where the origin is too long for member labels."""
    origin = fold(origin)
    times = struct.pack("!5I", serial, REFRESH, RETRY, EXPIRE, MINIMUM)
    soa = RRset(origin, SOA, TTL, (to_wire(_NOWHERE) * 2 + times,))
    nodes: dict[Labels, Node] = {
        origin: MappingProxyType({NS: RRset(origin, NS, TTL, (to_wire(_NOWHERE),), (_NOWHERE,)), SOA: soa})
    }
    version = check((b"version", *origin))
    zones = (b"zones", *origin)
    nodes[version] = MappingProxyType({TXT: RRset(version, TXT, TTL, (bytes((len(VERSION),)) + VERSION,))})
    nodes[zones] = MappingProxyType({})
    for member in sorted(map(fold, members)):
        owner = check((member_label(member), *zones))
        nodes[owner] = MappingProxyType({PTR: RRset(owner, PTR, TTL, (to_wire(member),))})
    return ZoneView(origin, serial, soa, soa, MappingProxyType(nodes), frozenset())


def member_label(zone: Labels) -> bytes:
    """A member's unique label: made from its name, so the same in every catalog, on every run."""
    return hashlib.sha256(to_wire(fold(zone))).hexdigest()[:UNIQUE].encode()
