"""Fellows: who is said to have the same reply has it, in every octet but those of the first label."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import dns.message
import pytest

from maptr.answer import make_reply
from maptr.context import Transport
from maptr.fellows import Fellows
from maptr.ready import HEADER
from maptr.readyzone import is_alone
from tests.test_answer_oracle import ORIGIN, random_zone, zone_text
from tests.test_fastpath import ready_of, snapshot_of

LABELS = [*map("".join, itertools.chain(*(itertools.product("abns*", repeat=size) for size in (1, 2))))]
FIRST = HEADER + 1  # where the first label's octets are


def claimed(fellows: Fellows, name: bytes, qtype: bytes) -> bool:
    """Whether the name in lower case, with octets of the same length in its first label, is said to be one."""
    if name[: name[0] + 1] in fellows.labels:
        return False
    there = fellows.find(name) is not None
    if fellows.absent or not there:
        return fellows.absent and not there
    packed = fellows.read(name)
    return is_alone(packed) and packed[:2] != qtype


def fellow_queries(fellows: Fellows, query: bytes) -> Iterator[bytes]:
    size = query[HEADER]
    for label in LABELS:
        octets = label.encode()
        name = query[HEADER:FIRST] + octets + query[FIRST + size : -4]
        if len(octets) == size and claimed(fellows, name, query[-4:-2]):
            yield query[:HEADER] + name + query[-4:]


@pytest.mark.parametrize("seed", range(12))
def test_fellows_have_the_same_reply(seed: int) -> None:
    rng = random.Random(seed)
    zones = [(zone_text(random_zone(rng)), ORIGIN)]
    if seed % 3 == 0:
        zones.append((zone_text(random_zone(rng)).replace(ORIGIN, f"a.{ORIGIN}"), f"a.{ORIGIN}"))
    snapshot = snapshot_of(*zones)
    snapshot = snapshot._replace(broken=frozenset({(b"b", b"example")} if seed % 2 else ()))
    ready = ready_of(snapshot)
    held = 0
    for label, above, rdtype in itertools.product(rng.sample(LABELS, 6), ("", "a.", "n.a."), ("A", "TXT", "HTTPS")):
        query = dns.message.make_query(f"{label}.{above}{ORIGIN}", rdtype, id=0, use_edns=False).to_wire()
        found = ready.find(query)
        fellows = found and ready.fellows(query, found)
        if found is None or fellows is None or fellows.gap is not None:
            continue
        for other in fellow_queries(fellows, query):
            reply = make_reply(other, snapshot, transport=Transport.TCP)
            assert reply is not None
            assert reply.wire == found.reply(other), other
            held += 1
    assert held > 100
