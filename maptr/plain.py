"""The commonest answer, read by the shortest way: every record an ``h`` that names a public host, nothing odd.

A shortcut of ``walk``, which goes on with whatever this does not take; a property test holds the two to the same
discovery. What is taken here depends on the ARK by its NAAN alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from maptr import names
from maptr.discovery import Candidate
from maptr.names import Labels

MAX_RECORDS = 16  # the longest real answer has 17; beyond this the general way is hardly slower

# Letter-digit-hyphen labels as url.parse_host takes them, the last of which is no number, nor part of an address.
_HOST = re.compile(
    rb"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
)
_ALNUM = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."  # without a hyphen, nothing can be amiss
_DIGITS = b"0123456789"
MAX_HOST = 253  # characters, as url.parse_host


def candidates(
    records: Sequence[tuple[int, int, bytes, bytes, bytes, Labels]], root: Labels, ttl: int, undotted: Labels | None
) -> tuple[Candidate, ...] | None:
    """The candidates of the records (each a Naptr, or its fields) at a walk's root name, ranked; None where one of
    them is not that plain.

    ``ttl`` is that of the records in seconds; ``undotted`` is as in ``naptr.read``.
    """
    if not records or len(records) > MAX_RECORDS:
        return None
    owner = names.to_text(root)
    suffix = undotted[-1].lower() if undotted else None
    found: list[Candidate] = []
    for order, preference, flags, service, regexp, replacement in records:
        if flags != b"h" or service != b"ark" or regexp or not replacement:
            return None
        host = b".".join(replacement)
        last = replacement[-1].lower()
        if (
            last == suffix  # may lack its final dot
            or last == b"localhost"
            or len(host) > MAX_HOST
            or host.count(b".") != len(replacement) - 1
            or ((host.translate(None, _ALNUM) or last[0] in _DIGITS) and _HOST.fullmatch(host) is None)
        ):
            return None
        path = ((order, preference),)
        found.append(Candidate(host.decode("ascii"), None, order, preference, owner, ttl, "dns", "", path))
    if len(found) == 1:
        return (found[0],)
    # Ranked by (order, preference), then by canonical rdata, of which only the replacement differs; each host once.
    keys = [names.to_wire(names.fold(record[5])) for record in records]
    ranked: dict[str, Candidate] = {}
    for _, _, candidate in sorted(zip((c.path for c in found), keys, found, strict=True), key=lambda one: one[:2]):
        ranked.setdefault(candidate.host.lower(), candidate)
    return tuple(ranked.values())
