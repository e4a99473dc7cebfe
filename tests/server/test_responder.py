"""Random zones in a running server: the responses are those of the general path, byte for byte.

``test_respond_oracle.py`` checks the general path, and ``scripts/differential`` compares it with NSD and Knot.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import dns.message
import pytest

from maptr.answer.context import NO_COOKIES, Context, Transport
from maptr.answer.respond import make_reply
from maptr.config import ZoneConfig
from maptr.dnssec.keys import Algorithm, KeyState, Role, add_key
from maptr.protocol.names import parse
from maptr.server import state_folder, udp
from maptr.server.zone_file import read_zone
from maptr.zone.snapshot import Snapshot, ZoneView
from tests.answer import test_respond_oracle as generator
from tests.server.test_udp import ask, numbered
from tests.support.server_process import Site

pytestmark = pytest.mark.skipif(udp.why_not() is not None, reason=f"no batches here: {udp.why_not()}")

PLAIN, SIGNED = 12, 4
QUESTIONS = 60  # of each zone
ROUNDS = 3  # each from ports of its own, and the last from what the first had learned
AT_ONCE = 200
FORMS: tuple[dict[str, object], ...] = (
    {},
    {"use_edns": 0, "payload": 1232},
    {"use_edns": 0, "payload": 512, "want_dnssec": True},
    {"use_edns": 0, "payload": 1232, "want_dnssec": True},
)


def zones_of(site: Site, rng: random.Random) -> Iterator[tuple[str, list[generator.Record]]]:
    for number in range(PLAIN + SIGNED):
        records = generator.random_zone(rng)
        origin = f"z{number}.test."
        records = [
            generator.Record(*(part.replace(generator.ORIGIN, origin) for part in (owner, rdtype, rdata)))
            for owner, rdtype, rdata in records
        ]
        (site.directory / f"z{number}.test.zone").write_text(generator.zone_text(records))
        yield origin, records


def questions(rng: random.Random, origin: str, records: list[generator.Record]) -> Iterator[bytes]:
    names = {record.owner for record in records} | {f"{rng.choice('abc*')}.{record.owner}" for record in records}
    names |= {generator.random_name(rng, 4).replace(generator.ORIGIN, origin) for _ in range(10)} | {f"x{origin}"}
    for _ in range(QUESTIONS):
        name = "".join(rng.choice((letter.lower(), letter.upper())) for letter in rng.choice(sorted(names)))
        query = dns.message.make_query(name, rng.choice(generator.QUERY_TYPES), **rng.choice(FORMS))  # type: ignore[arg-type]
        yield query.to_wire()


def test_a_running_server_answers_random_zones_as_the_general_path_does(site: Site) -> None:
    rng = random.Random(1)
    made = dict(zones_of(site, rng))
    add_key(site.directory / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    origins = sorted(made)
    config = '[serve]\nlisten = ["127.0.0.1:0"]\nstate = "state"\n'
    for origin in origins:
        keys = 'keys = "keys"\n' if origin in origins[:SIGNED] else ""
        config += f'[[zone]]\nname = "{origin}"\nfile = "{origin}zone"\nlint = "off"\n{keys}'
    site.config.write_text(config)
    port = site.start()
    views: list[ZoneView] = []
    for origin in origins:
        name = parse(origin)
        kept = state_folder.read_signed(site.directory / "state", name)
        assert (kept is not None) is (origin in origins[:SIGNED])
        views.append(kept.view if kept else read_zone(ZoneConfig(name, site.directory / f"{origin}zone")))
    snapshot, context = Snapshot.of(views), Context(cookies=NO_COOKIES)
    asked = numbered([query for origin in origins for query in questions(rng, origin, made[origin])])
    expected: dict[bytes, bytes | None] = {}
    for query in asked:
        reply = make_reply(query, snapshot, transport=Transport.UDP, client="127.0.0.1", context=context)
        expected[query[:2]] = None if reply is None else reply.wire
    assert len({reply[3] & 15 for reply in expected.values() if reply}) >= 3
    for _ in range(ROUNDS):
        rng.shuffle(asked)
        for start in range(0, len(asked), AT_ONCE):
            some = asked[start : start + AT_ONCE]
            replies = ask(("127.0.0.1", port), some)
            for query in some:
                assert replies.get(query[:2]) == expected[query[:2]], (query.hex(), dns.message.from_wire(query))
    batches = site.status()["batches"]
    assert isinstance(batches, dict)
    assert batches["ready"] > ROUNDS * len(asked) // 2, "by the short way"
