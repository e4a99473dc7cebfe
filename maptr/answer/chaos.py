"""Class CHAOS: the few names by which a server says who it is (RFC 4892), where its operator lets it."""

from __future__ import annotations

from maptr.answer.context import Identity
from maptr.answer.lookup import Outcome
from maptr.protocol.names import Labels, fold
from maptr.protocol.numbers import TXT
from maptr.zone.rrset import RRset

_VERSION = frozenset({(b"version", b"bind"), (b"version", b"server")})
_HOSTNAME = frozenset({(b"hostname", b"bind"), (b"id", b"server")})


def look_up_chaos(name: Labels, rdtype: int, identity: Identity) -> Outcome | None:
    """The TXT record of one of the names; None is to be refused, as Knot does for every other name and type."""
    key = fold(name)
    text = identity.version if key in _VERSION else identity.hostname if key in _HOSTNAME else ""
    if rdtype != TXT or not text:
        return None
    octets = text.encode()
    # No zone stands behind it, so AA is clear, as in NSD and Knot; TTL 0 as in all four.
    record = RRset(name, TXT, 0, (bytes((len(octets),)) + octets,))
    return Outcome(authoritative=False, answer=[record], source=key)
