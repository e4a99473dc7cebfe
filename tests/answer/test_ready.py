"""The shortcut and the general path give the same bytes for any zone and any packet."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import dns.message
import dns.name
import pytest

from maptr.answer import ready as shortcut
from maptr.answer.arena import ReadyRecord, has_cookie, kind_number, kind_of, make_record, rcodes, truncated
from maptr.answer.context import Context, Identity, ReceivedQuery, Transport
from maptr.answer.ready import Ready, ZoneNames
from maptr.answer.respond import make_reply
from maptr.protocol.cookies import CookieSettings, answer_cookie, packed_address, sign, timestamp
from maptr.protocol.names import Folded, Labels
from maptr.zone.snapshot import Snapshot
from tests.support import signers
from tests.support.answers import SNAPSHOT, snapshot_of
from tests.support.random_zones import ORIGIN, QUERY_TYPES, random_zone, zone_text

FUZZ_ZONES = Path(__file__).resolve().parents[1] / "fuzz" / "zones"
CLIENT, NOW = "192.0.2.1", 1_700_000_000
ADDRESS = packed_address(CLIENT)
SECRETS = (bytes(range(16)), bytes(16))
CONTEXT = Context(cookies=CookieSettings(SECRETS), clock=lambda: NOW, identity=Identity("here"))
TYPES = (*QUERY_TYPES, "HTTPS", "TYPE97", "NAPTR", "DS", "ANY")
# EDNS options: supported, unknown and malformed ones.
OPTIONS = (
    *(b"\0\3\0\0", b"\0\3\0\1x", b"\0\x0b\0\0", b"\0\x0c\0\5" + bytes(5), b"\xfd\xe9\0\0", b"\0\0"),
    bytes.fromhex("0008000700011800c00002"),
    b"\xfd\xe9\0\x0b" + bytes.fromhex("00002904d0000000000000"),  # an OPT within an option
)
# Payload size, extended rcode, version and flags of an OPT record; "" for none.
EDNS = ("", "020000000000", "04d000000000", "0fa000008000", "004100008000", "02ff00000000", "04d000014000")


class Server:
    """The shortcut and the general path for one snapshot, over UDP and TCP. ``found`` counts ready responses."""

    def __init__(self, snapshot: Snapshot, elsewhere: Sequence[Labels] = ()) -> None:
        self.snapshot = snapshot
        self.found = 0
        self.ready = {
            Transport.UDP: Ready(ZoneNames.of(snapshot, elsewhere), CONTEXT.udp_payload),
            Transport.TCP: Ready(ZoneNames.of(snapshot, elsewhere), None),
        }

    def ask(self, query: bytes) -> bool:
        """Check that both paths give the same response. Returns whether it was ready over UDP."""
        udp, _ = [self._ask(query, transport) for transport in self.ready]
        return udp

    def _ask(self, query: bytes, transport: Transport) -> bool:
        ready = self.ready[transport]
        ready.tidy()
        general = make_reply(ReceivedQuery(query, transport, CLIENT), self.snapshot, CONTEXT)
        key = query[2:]
        known = ready.known.get(key)
        found = ready.find(key) if known is None else (known, b"")
        if found is None:
            if general is not None:
                ready.learn(query, general)
            return False
        self.found += 1
        record, cookie = found
        assert general is not None, query.hex()
        option = b""
        if cookie:
            option, verified = answer_cookie(cookie, ADDRESS, SECRETS, timestamp(NOW))
            assert verified is general.verified
        assert ready.response(query, record, option) == general.wire, query.hex()
        assert ready.response(query, truncated(record), option) == general.truncated(), query.hex()
        assert kind_of(record) == kind_number(general.kind), query.hex()
        return True


def make_query(name: str, rdtype: str, rng: random.Random, edns: Sequence[str] = EDNS, flags: bytes = b"\1\0") -> bytes:
    """Return a query in lower or mixed case, perhaps with a cookie, which may be old, new or invalid."""
    query = dns.message.make_query(name, rdtype, use_edns=False).to_wire()
    mixed = rng.random() < 0.3
    body = bytes(octet ^ (rng.choice((0, 0x20)) if mixed and chr(octet).isalpha() else 0) for octet in query[12:-4])
    shape, opt = bytes.fromhex(rng.choice(edns)), b""
    if shape:
        client = rng.randbytes(8)
        aged = sign(client + timestamp(NOW - rng.choice((0, 60, 2000, 4000, -900))), ADDRESS, rng.choice(SECRETS))
        option = rng.choice((None, None, None, client, client, aged, aged, aged[:-1] + b"x", client[:-1]))
        options = b"" if option is None else b"\0\x0a" + len(option).to_bytes(2, "big") + option
        if rng.random() < 0.1:
            options = b"".join(rng.sample((options, rng.choice(OPTIONS)), k=2))
        opt = b"\0\0\x29" + shape + len(options).to_bytes(2, "big") + options
    return rng.randbytes(2) + flags + b"\0\1\0\0\0\0\0" + bytes((bool(opt),)) + body + query[-4:] + opt


def plain_query(name: str, rdtype: str, edns: str) -> bytes:
    """Return a query without options. ``edns`` is an element of ``EDNS``."""
    query = dns.message.make_query(name, rdtype, use_edns=False).to_wire()
    return query[:11] + b"\1" + query[12:] + b"\0\0\x29" + bytes.fromhex(edns) + b"\0\0" if edns else query


def names_around(snapshot: Snapshot, rng: random.Random) -> list[str]:
    """Return existing names, names beside and below them, and names outside all zones."""
    there = sorted(dns.name.Name((*key, b"")).to_text() for view in snapshot.zones.values() for key in view.nodes)
    contact = [f"host.{ORIGIN}", f"else.{ORIGIN}"]  # in the SOA record, and a name of the same length
    above = [*there, *contact, *(name.partition(".")[2] or "." for name in there), "test.", "broken.", "a.broken."]
    labels = ("".join(rng.choices("abns*w", k=rng.randint(1, 2))) + "." for _ in itertools.count())
    below = ["".join(itertools.islice(labels, rng.choice((1, 1, 2, 3)))) + name.lstrip(".") for name in above * 2]
    return there + contact * 3 + below


def ask_around(server: Server, types: Sequence[str], rng: random.Random, rounds: int = 16) -> None:
    """Send many queries for a few names at a time, so that many find a learned response."""
    names = names_around(server.snapshot, rng)
    for _ in range(rounds):
        few, kinds, edns = rng.sample(names, 6), rng.sample(types, 2), [rng.choice(EDNS), rng.choice(EDNS)]
        flags = bytes((rng.choice((0, 1)), rng.choice((0, 0x10))))
        for _ in range(48):
            server.ask(make_query(rng.choice(few), rng.choice(kinds), rng, edns, flags))


@pytest.mark.parametrize("seed", range(16))
def test_random_zones(seed: int) -> None:
    rng = random.Random(seed)
    zones = [(zone_text(random_zone(rng)), ORIGIN)]
    if seed % 3 == 0:  # a second zone below the first, with or without a delegation to it
        zones.append((zone_text(random_zone(rng)).replace(ORIGIN, f"a.{ORIGIN}"), f"a.{ORIGIN}"))
    snapshot = snapshot_of(*zones)
    if seed % 2:
        snapshot = snapshot._replace(broken=frozenset({Folded((b"broken",)), Folded((b"b", b"example"))}))
    server = Server(snapshot)
    ask_around(server, TYPES, rng)
    assert server.found > 50


@pytest.mark.interop
@pytest.mark.parametrize("way", signers.WAYS)
def test_names_of_signed_zones(way: str, tmp_path: Path) -> None:
    rng = random.Random(way)
    records = [record for record in random_zone(rng) if record.rdtype not in ("DS", "DNAME")]
    path = signers.sign(zone_text(records), ORIGIN, tmp_path, way)
    server = Server(snapshot_of((path.read_text(), ORIGIN)))
    ask_around(server, (*TYPES, "RRSIG", "NSEC", "NSEC3", "DNSKEY"), rng, rounds=10)
    above = [ORIGIN, *names_around(server.snapshot, rng)]
    for _ in range(16):  # missing names in a few gaps of the NSEC chain
        name, rdtype, size = rng.choice(above).lstrip("."), rng.choice(TYPES), rng.randint(1, 3)
        edns = [rng.choice(("04d000008000", "020000008000", "030000008000"))]
        for _ in range(48):
            server.ask(make_query(f"{''.join(rng.choices('abnsmz0*w-', k=size))}.{name}", rdtype, rng, edns))
    assert server.found > 150


@pytest.mark.parametrize("edns", EDNS[:4])
@pytest.mark.parametrize("rdtype", ["NAPTR", "A", "SPF"])
@pytest.mark.parametrize(
    ("above", "prefixes"),
    [
        ("example.", ("x", "a.b", "longer.and.deeper", "q" * 63)),  # NXDOMAIN
        ("sub.example.", ("x", "yy", "longer")),  # a referral
        ("elsewhere.test.", ("x", "a.b", "longer.and.deeper", "q" * 63)),  # REFUSED
    ],
)
def test_one_denial_serves_all_names_below(above: str, prefixes: tuple[str, ...], rdtype: str, edns: str) -> None:
    server = Server(SNAPSHOT)
    names = [f"{prefix}{number}."[-64:] + above for number in range(10) for prefix in ("n", *prefixes)]
    ready = [server.ask(plain_query(name, rdtype, edns)) for name in names]
    assert ready == [False] + [True] * (len(names) - 1)
    assert not server.ready[Transport.UDP].known, "no name is stored"


def test_one_nsec_denial_serves_all_names_in_its_gap() -> None:
    text = (FUZZ_ZONES / "nsec.zone").read_text()
    server = Server(snapshot_of(text))
    names = ("zz", "zzzz", "a.zz", "zzz", "na", "nz", "na")  # ns is between the last ones
    ready = [server.ask(plain_query(f"{name}.example.", "A", "04d000008000")) for name in names]
    assert ready == [False, True, True, True, False, False, True]


def test_one_learned_answer_serves_all_names_of_a_registry() -> None:
    zone = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n"
    zone += "".join(f'{naan} 60 NAPTR 100 10 "h" "ark" "" h{naan}.example.\n' for naan in range(10000, 10100))
    server = Server(snapshot_of((zone, "ark.arpa.")))
    for rdtype in ("NAPTR", "AAAA"):
        ready = [server.ask(plain_query(f"{naan}.ark.arpa.", rdtype, "04d000000000")) for naan in range(10000, 10100)]
        assert ready == [False] + [True] * 99


def test_names_with_an_rrset_of_any_size_are_truncated_alike() -> None:
    texts = "".join(f"n{size} 60 TXT {'y' * 250} {'z' * (size - 100)}\n" for size in range(300, 350))
    server = Server(snapshot_of(f"@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\n{texts}"))
    ready = [server.ask(plain_query(f"n{size}.example.", "TXT", "020000000000")) for size in range(300, 350)]
    assert 5 < sum(ready) < 45


def test_case_folding_does_not_change_the_type() -> None:
    # Types 65 (HTTPS) and 97 are encoded as the bytes "A" and "a".
    server = Server(snapshot_of("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nx 60 TYPE97 \\# 1 00\ny 60 HTTPS 1 ."))
    for name, rdtype in itertools.product(("x", "y", "X", "Y") * 3, ("TYPE65", "TYPE97")):
        server.ask(dns.message.make_query(f"{name}.example.", rdtype).to_wire())


def test_names_of_other_zones_take_the_general_path() -> None:
    server = Server(SNAPSHOT, [(b"catalog",), (b"sub", b"example")])
    for name in ("x.catalog.", "catalog.", "a.sub.example.") * 3:
        query = dns.message.make_query(name, "SOA").to_wire()
        for ready in server.ready.values():
            general = make_reply(ReceivedQuery(query, client=CLIENT), SNAPSHOT, CONTEXT)
            assert general is not None
            ready.learn(query, general)
            assert ready.find(query[2:]) is None


@pytest.mark.parametrize(("limit", "size"), [("MAX_RECORDS", 5), ("MAX_TABLES", 5), ("ARENA_SIZE", 4096)])
def test_a_full_table_or_arena_is_cleared(limit: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, limit, size)
    server = Server(SNAPSHOT)
    ask_around(server, TYPES, random.Random(1), rounds=10)
    assert server.found > 20
    assert limit != "MAX_RECORDS" or all(len(ready.known) <= size for ready in server.ready.values())


def test_a_query_that_ends_before_or_after_its_cookie_takes_the_general_path() -> None:
    server = Server(snapshot_of("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nx 60 TXT y"))
    query = plain_query("x.example.", "TXT", "04d000000000")[:-2] + b"\0\x0c\0\x0a\0\x08" + b"12345678"
    server.ask(query)
    assert server.ask(query)
    for other in (query[:-1], query + b"x", query + b"x" * 9):
        assert not server.ask(other)


def test_bytes_before_the_opt_are_not_taken_for_its_payload_size() -> None:
    """A response for a payload size of 513 bytes is learned; the bytes before an OPT then look like this size."""
    server = Server(snapshot_of(f"@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nx 60 TXT {'y ' * 250}"))
    server.ask(plain_query("x.example.", "TXT", "020100000000"))
    assert server.ask(plain_query("x.example.", "TXT", "020100000000"))
    query = plain_query("x.example.", "TXT", "04d000000000")
    server.ask(plain_query("y.example.", "TXT", "04d000000000"))
    server.ask(query[:-11] + b"\1\2" + query[-11:])


@pytest.mark.parametrize("proof", ["nsec", "nsec3"])
def test_unsigned_names_in_a_signed_zone(proof: str) -> None:
    """In such a faulty zone, each of these names has its own denial."""
    names = [f"{label}{label}.example." for label in "abcdefghij"]
    text = (FUZZ_ZONES / f"{proof}.zone").read_text()
    server = Server(snapshot_of(text + "".join(f"{name} 60 IN TXT x\n" for name in names)))
    for name, rdtype in itertools.product(names * 3, ("TXT", "A")):
        server.ask(plain_query(name, rdtype, "04d000008000"))


def test_a_dname_response_is_not_learned_as_a_denial() -> None:
    """With DO it has 486 bytes for one target. For another it has more than 512, and so an empty answer.

    A query of type 0 gets the DNAME as well, so the type of an answer may be 0.
    """
    text = (FUZZ_ZONES / "nsec.zone").read_text()
    server = Server(snapshot_of(text))
    for label, rdtype in itertools.product(("aa", "ab", "zz", "ns", "**", "z*", "aa"), ("SOA", "A", "TYPE0")):
        server.ask(plain_query(f"{label}.d.example.", rdtype, "020000008000"))


def test_a_record_has_the_layout_that_the_kernel_and_the_listener_read() -> None:
    header = bytes.fromhex("81030001000200030004")
    packed = make_record(header, 40, 7, 9, rcode=3, cookie_size=24, opt_size=11, kind=6)
    record = ReadyRecord.from_buffer_copy(packed)
    assert len(packed) == ctypes.sizeof(ReadyRecord)
    assert bytes(packed[ReadyRecord.head.offset :][:10]) == header
    assert (record.question, record.question_end, record.body, record.body_size) == (0, 40, 7, 9)
    assert (record.cookie, record.cookie_size, record.opt_size, record.rcode, record.kind) == (0, 24, 11, 3, 6)
    assert (has_cookie(packed), rcodes(packed * 2), kind_of(packed)) == (True, b"\3\3", 6)
