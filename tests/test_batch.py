"""The UDP listeners on real sockets, in batches and one by one: what the general path says, whatever comes at once."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import dns.edns
import dns.message
import dns.opcode
import dns.rcode
import dns.zone
import pytest

from maptr.address import Address
from maptr.answer import make_reply, respond
from maptr.context import NO_COOKIES, Transport
from maptr.plainzone import read_plain
from maptr.rrl import RrlSettings
from maptr.serve import batch, plans, udp
from maptr.serve.batchreplies import MAX_FULL, MAX_GENERAL, BatchReplies
from maptr.serve.counters import Counters
from maptr.serve.daemon import Daemon
from maptr.serve.plantables import PlanTables
from maptr.serve.responder import Responder, fresh_cookies
from maptr.serve.slots import BATCH, Slots, key_of
from maptr.snapshot import Snapshot
from tests.running import answering, served
from tests.test_fastpath import ANSWER, PACKETS, wire
from tests.test_plans import limit

SNAPSHOT = Snapshot.from_zones([dns.zone.from_text(ANSWER["zone"], "example.", relativize=False)])
PATIENCE = 30.0
NO_EXEMPTION = RrlSettings(responses_per_second=5.0, exempt=())

pytestmark = pytest.mark.skipif(batch.why_not() is not None, reason=f"no batches: {batch.why_not()}")


@contextlib.contextmanager
def listening(responder: Responder, host: str = "127.0.0.1") -> Iterator[tuple[batch.BatchListener, tuple[str, int]]]:
    sock = udp.open_socket(host, 0)
    port = sock.getsockname()[1]

    def general(query: bytes, transport: Transport, client: str) -> bytes | None:
        return responder.answer(query, SNAPSHOT, transport=transport, client=client)

    responder.prepare(SNAPSHOT)
    listener = batch.BatchListener(sock, responder, general)
    listener.start()
    try:
        yield listener, ("::1" if ":" in host else "127.0.0.1", port)
    finally:
        listener.stop()


def ask(address: tuple[str, int], queries: list[bytes]) -> dict[bytes, bytes]:
    """Replies by ID, sent all at once and awaited until a last question is answered."""
    last = b"\xff\xff" + dns.message.make_query("example.", "SOA").to_wire()[2:]
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    replies = {}
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.settimeout(PATIENCE)
        sock.connect(address)
        for query in [*queries, last]:
            sock.send(query)
        while last[:2] not in replies:
            reply = sock.recv(65535)
            replies[reply[:2]] = reply
    del replies[last[:2]]
    return replies


def numbered(queries: list[bytes]) -> list[bytes]:
    return [number.to_bytes(2, "big") + query[2:] for number, query in enumerate(queries)]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_at_once_is_answered_as_by_the_general_path(host: str, seed: int) -> None:
    rng = random.Random(seed)
    queries = [wire(case["name"], case["type"], rng) for case in ANSWER["case"]]
    queries += [bytes.fromhex(case["packet"]) for case in PACKETS["case"]] * 2
    queries += [rng.randbytes(rng.randint(0, 60)) for _ in range(20)] + [bytes(size) for size in range(16)]
    rng.shuffle(queries)
    queries = numbered(queries * 2)
    responder = Responder()
    with listening(responder, host) as (listener, address):
        for _ in range(2):  # the second time from what was learned
            replies = ask(address, [b"", b"x", *queries, b""])  # nothing is answered to less than an ID
            for query in queries:
                context = responder.context
                expected = make_reply(query, SNAPSHOT, transport=Transport.UDP, client=address[0], context=context)
                got = replies.get(query[:2])
                if got is None or expected is None:
                    assert (got is None) is (expected is None), query.hex()
                elif got != expected.wire:  # only the second in a cookie may have passed in between
                    assert len(got) == len(expected.wire)
                    assert b"\0\x0a\0\x18" in got, query.hex()
    # What the general path made it counts itself, in the daemon; the listener counts the rest.
    counted = sum(listener.counters.to_dict().get("udp", {}).values())
    assert counted == listener.counters.received - listener.counters.general
    counters = listener.counters
    assert counters.received == 2 * (len(queries) + 4)
    assert min(counters.ready, counters.general, counters.silent) > 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::"])
def test_who_asks_alone_is_answered_as_in_a_batch(host: str) -> None:
    """One after another, between others that change what lies in the first slot and its plan."""
    rng = random.Random(host)
    queries = [wire(case["name"], case["type"], rng) for case in ANSWER["case"]] * 3
    rng.shuffle(queries)
    # A reply with a cookie, then one that is known and has none.
    known = dns.message.make_query("12345.example.", "NAPTR", use_edns=0).to_wire()
    queries += [known, known[:-2] + b"\0\x0c\0\x0a\0\x08clientck", known]
    responder = Responder()
    with listening(responder, host) as (listener, address):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(address)
            for query in queries:
                expected = make_reply(
                    query, SNAPSHOT, transport=Transport.UDP, client=address[0], context=responder.context
                )
                if expected is None:
                    continue
                sock.send(query)
                got = sock.recv(65535)
                if b"\0\x0a\0\x18" not in expected.wire:  # in which the second may have passed
                    assert got == expected.wire, query.hex()
                assert len(got) == len(expected.wire)
                total = sum(listener.counters.to_dict().get("udp", {}).values()) + listener.counters.general
                assert total == listener.counters.received == listener.counters.calls


def test_the_rate_limit_holds_for_who_asks_alone() -> None:
    query = dns.message.make_query("12345.example.", "NAPTR").to_wire()
    responder = Responder(rrl=NO_EXEMPTION)
    with listening(responder) as (listener, address), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number in range(1, 41):
            sock.sendto(query, address)
            deadline = time.monotonic() + PATIENCE
            while listener.counters.received < number and time.monotonic() < deadline:
                time.sleep(0.001)
    tally = responder.limiter.tally
    assert listener.counters.received == listener.counters.ready == 40
    assert tally.dropped > 0 < tally.truncated


def test_the_rate_limit_holds_for_what_is_known_and_what_is_not() -> None:
    query = dns.message.make_query("12345.example.", "NAPTR").to_wire()
    absent = dns.message.make_query("nowhere.example.", "NAPTR").to_wire()
    for wires in ([query] * 300, [absent] * 300):
        responder = Responder(rrl=NO_EXEMPTION)
        with listening(responder) as (_, address):
            replies = ask(address, numbered(wires))
        whole = [reply for reply in replies.values() if not reply[2] & 0x02]
        cut = [reply for reply in replies.values() if reply[2] & 0x02]
        assert len(whole) <= 5 * 2 + 5
        assert 100 <= len(cut) <= 150, "every second of the rest"
        reply = make_reply(wires[0], SNAPSHOT, transport=Transport.UDP)
        assert reply is not None
        assert {part[2:] for part in cut} == {reply.truncated()[2:]}
        assert responder.limiter.tally.dropped + responder.limiter.tally.truncated == 300 - len(whole)


def test_a_reload_forgets_what_was_known() -> None:
    query = dns.message.make_query("12345.example.", "NAPTR").to_wire()
    responder = Responder()
    with listening(responder) as (_, address):
        assert ask(address, [query])[query[:2]] == respond(query, SNAPSHOT)
        text = "@ 60 SOA ns h 2 2 3 4 5\n@ 60 NS ns\n12345 60 TXT new"
        new = Snapshot.from_zones([dns.zone.from_text(text, "example.", relativize=False)])
        responder.prepare(new)
        assert ask(address, [query])[query[:2]] == respond(query, new)


def test_names_that_are_still_lines_of_their_file_are_answered_as_others() -> None:
    rng = random.Random(0)
    text = "$TTL 60\n@ IN SOA ns h 1 2 3 4 5\n@ IN NS ns\n"
    text += "".join(f'{naan} IN NAPTR 1 1 "h" "ark" "" h{naan}.test.\n' for naan in range(10000, 10050))
    text += "".join(f'{naan} IN TXT "t"\n{naan} IN NAPTR 1 1 "h" "ark" "" h.test.\n' for naan in range(20000, 20050))
    whole = Snapshot.from_zones([dns.zone.from_text(text, "example.", relativize=False)])
    plain = read_plain(text.encode(), (b"example",))
    assert plain is not None
    names = [f"{naan}.example." for start in (10000, 20000, 30000) for naan in range(start, start + 50)]
    responder = Responder()
    with listening(responder) as (_, address):
        responder.prepare(Snapshot.of([plain.view]))
        for _ in range(3):
            asked = [(rng.choice(names), rng.choice(("NAPTR", "TXT", "A", "AAAA"))) for _ in range(200)]
            queries = numbered([dns.message.make_query(*one, use_edns=rng.choice((-1, 0))).to_wire() for one in asked])
            replies = ask(address, queries)
            assert [replies[query[:2]] for query in queries] == [respond(query, whole) for query in queries]


def test_replies_are_counted_before_they_are_sent() -> None:
    """So a process that is killed in between leaves none that nobody counted."""
    responder = Responder()
    queries = numbered([wire(case["name"], case["type"], random.Random(1)) for case in ANSWER["case"]])
    counted: list[int] = []
    with listening(responder) as (listener, address):
        send = listener._calls._sendmmsg

        def counting(fd: int, messages: object, count: int, flags: int) -> int:
            own = sum(listener.counters.to_dict().get("udp", {}).values())
            counted.append(listener.counters.received - own - listener.counters.general)
            return int(send(fd, messages, count, flags))

        listener._calls._sendmmsg = counting  # type: ignore[assignment]
        ask(address, queries)
    assert counted
    assert not any(counted)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 3)
    responder = Responder()
    queries = numbered([wire(case["name"], case["type"], random.Random(1)) for case in ANSWER["case"]])
    with listening(responder) as (listener, address):
        replies = ask(address, queries)
    known = listener._replies.plans()
    assert known is not None
    tables = known.tables
    assert len(tables.known) + len(tables.with_cookie) <= 3
    assert len(tables.patterns) + len(tables.patterns_with_cookie) <= 3
    assert max(len(known._shared), len(known.tables.deep.tails._times)) <= 3
    assert len(replies) == len(queries)


def test_absent_names_are_not_remembered() -> None:
    queries = numbered([dns.message.make_query(f"no{i}.example.", "A").to_wire() for i in range(200)])
    with listening(Responder(rrl=NO_EXEMPTION)) as (listener, address):
        ask(address, queries)
        known = listener._replies.plans()
        assert known is not None
        assert len(known.tables.known) <= 1, "that of the last question"
        assert len(known.tables.patterns) == 3, "one for each length"


def test_queries_of_any_size_are_answered() -> None:
    query = dns.message.make_query("example.", "NS").to_wire()
    padded = query[:11] + b"\1" + query[12:] + bytes.fromhex("00002904d000000000")
    sizes = (5000, 20_000, 60_000)
    queries = [padded + (n + 4).to_bytes(2, "big") + b"\0\x0c" + n.to_bytes(2, "big") + bytes(n) for n in sizes]
    queries += [query + bytes(65_507 - len(query))]
    with listening(Responder()) as (_, address):
        replies = ask(address, numbered([*queries, query]))
    assert len(replies) == 5
    for number, wire_ in enumerate(numbered([*queries, query])):
        assert replies[number.to_bytes(2, "big")] == respond(wire_, SNAPSHOT)


def test_what_a_longer_query_left_hides_no_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown: list[bytes] = []
    fill = PlanTables.fill

    def noting(known: PlanTables, which: list[int], *others: Any) -> Any:
        unknown.extend(others[1][i] for i in which)
        return fill(known, which, *others)

    short, long = (dns.message.make_query(name, "NS").to_wire() for name in ("example.", f"{'x' * 30}.example."))
    with listening(Responder()) as (listener, address):
        listener._alone.wanted = 1 << 30  # so all come as batches
        ask(address, [short])
        monkeypatch.setattr(PlanTables, "fill", noting)
        for query in (long, short, long, short):
            ask(address, [query])
    assert key_of(long[2:]) in unknown
    assert not any(query.startswith(short[2:]) for query in unknown)


def test_cookies_are_given_and_checked() -> None:
    cookie = dns.edns.CookieOption(b"clientck", b"")
    query = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[cookie])
    responder = Responder(rrl=RrlSettings(responses_per_second=20.0, exempt=()))
    with listening(responder) as (_, address):
        for _ in range(3):  # by the way of a first query, and as it is known
            first = dns.message.from_wire(ask(address, [query.to_wire()])[query.to_wire()[:2]])
            (given,) = first.options
            assert given.to_wire()[:8] == b"clientck"
            assert len(given.to_wire()) == 24
        again = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[given]).to_wire()
        replies = ask(address, numbered([again] * 100))
        assert len(replies) == 100, "no limit for those who are where they say"
        assert all(dns.message.from_wire(reply).options == (given,) for reply in replies.values())
        forged = again[:-1] + bytes((again[-1] ^ 1,))
        assert len(ask(address, numbered([forged] * 100))) < 100


def test_cookies_are_found_wherever_they_stand_among_the_options() -> None:
    """Several in one batch: some end their query, some are followed by the client's subnet, of eight octets too."""
    subnet = dns.edns.ECSOption("192.0.2.0", 32)
    responder = Responder()
    queries = []
    for number in range(20):
        cookie = dns.edns.CookieOption(number.to_bytes(8, "big"), b"")
        orders: list[list[dns.edns.Option]] = [[cookie], [cookie, subnet], [subnet, cookie], [subnet]]
        options = orders[number % 4]
        query = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=options)
        queries.append(query.to_wire())
    with listening(responder) as (_, address):
        for _ in range(3):
            replies = ask(address, numbered(queries))
            for number in range(20):
                reply = dns.message.from_wire(replies[number.to_bytes(2, "big")])
                given = [option.to_wire()[:8] for option in reply.options if option.otype == dns.edns.OptionType.COOKIE]
                assert given == ([] if number % 4 == 3 else [number.to_bytes(8, "big")])


def test_cookies_that_are_no_longer_given_cost_no_query() -> None:
    cookie = dns.edns.CookieOption(b"clientck", b"")
    query = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[cookie]).to_wire()
    responder = Responder()
    with listening(responder) as (listener, address):
        for _ in range(2):
            assert dns.message.from_wire(ask(address, [query])[query[:2]]).options
        responder.context = responder.context._replace(cookies=NO_COOKIES)
        assert not dns.message.from_wire(ask(address, [query])[query[:2]]).options
        assert listener.counters.general == 1


def test_cookies_can_be_required() -> None:
    cookie = dns.edns.CookieOption(b"clientck", b"")
    query = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[cookie]).to_wire()
    responder = Responder(cookies=fresh_cookies()._replace(required=True))
    with listening(responder) as (_, address):
        for _ in range(3):
            reply = dns.message.from_wire(ask(address, [query])[query[:2]])
            assert reply.rcode() == dns.rcode.BADCOOKIE
        again = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[*reply.options]).to_wire()
        for _ in range(3):
            assert dns.message.from_wire(ask(address, [again])[again[:2]]).rcode() == dns.rcode.NOERROR


def test_a_bug_costs_its_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = dns.message.make_query("example.", "IXFR").to_wire()
    query = dns.message.make_query("example.", "NS").to_wire()
    responder = Responder()
    with listening(responder) as (listener, address):
        monkeypatch.setattr(listener._replies, "_general", lambda *_: 1 // 0)
        assert set(ask(address, numbered([odd, query]))) == {b"\0\1"}


def test_the_daemon_takes_plain_sockets_where_there_are_no_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "why_not", lambda: "for a test")
    daemon = Daemon(served(SNAPSHOT), [Address("127.0.0.1", 0)])
    with answering(daemon):
        query = dns.message.make_query("12345.example.", "NAPTR").to_wire()
        assert ask(("127.0.0.1", daemon.bound[0].port), [query])[query[:2]] == respond(query, SNAPSHOT)


def test_a_version_that_is_none_is_no_good_reply_to_who_counts() -> None:
    """In the header BADVERS reads as NOERROR."""
    good = dns.message.make_query("12345.example.", "NAPTR").to_wire()
    bad = dns.message.make_query("12345.example.", "NAPTR", use_edns=1).to_wire()
    rrl = RrlSettings(responses_per_second=5.0, slip=1, exempt=())
    with listening(Responder(rrl=rrl, clock=lambda: 1000.0)) as (listener, address):
        for _ in range(2):  # the second time truncated
            replies = ask(address, numbered([bad] * 5))
            assert {dns.message.from_wire(reply).rcode() for reply in replies.values()} == {dns.rcode.BADVERS}
        assert listener.counters.to_dict() == {"udp": {"NOERROR": 2, "BADVERS": 10}}, "the last question of each round"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:  # and one by one
            sock.settimeout(PATIENCE)
            sock.connect(address)
            for query in [good] * 20 + [bad] * 5 + [good] * 5 + [bad] * 2:
                sock.send(query)
                assert sock.recv(65535)[:2] == query[:2]
        assert listener.counters.to_dict() == {"udp": {"NOERROR": 27, "BADVERS": 17}}
        assert listener.counters.alone[0] > 0


@pytest.mark.parametrize("size", [5, 40, 60])
def test_a_name_is_learned_once_however_long_it_is(size: int) -> None:
    """A query that is longer than its slot is known as others are; and one is learned once, however often it came."""
    name = f"{'k' * size}.example."
    zone = dns.zone.from_text(f"@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\n{name} 60 TXT x\n", "example.", relativize=False)
    responder = Responder()
    with (
        listening(responder) as (listener, address),
        mock.patch.object(plans.Plans, "learn", autospec=True, side_effect=plans.Plans.learn) as learn,
    ):
        responder.prepare(Snapshot.from_zones([zone]))
        for _ in range(5):
            queries = [dns.message.make_query(name, rdtype).to_wire() for rdtype in ("TXT", "A")]
            assert len(ask(address, numbered(queries * 20))) == 40
        assert learn.call_count < 100, "within the first batches"
        known = listener._replies.plans()
        assert known is not None
        assert (len(known.tables.known), known._denials, len(known._alive)) == (3, 1, 1), "the last question among them"


def test_a_flood_of_what_is_not_ready_keeps_nobody_else_from_answers() -> None:
    """Sixteen of each full batch are answered by the general path once there were eight of them in a row."""
    sock = udp.open_socket("127.0.0.1", 0)
    responder = Responder()
    responder.prepare(SNAPSHOT)
    asked: list[bytes] = []

    def general(query: bytes, transport: Transport, client: str) -> bytes | None:
        asked.append(query)
        return responder.answer(query, SNAPSHOT, transport=transport, client=client)

    slots = Slots(sock.family, anywhere=False)
    counters = Counters()
    replies = BatchReplies(slots, responder, general, counters, family=sock.family, anywhere=False)
    plans_now = replies.plans()
    assert plans_now is not None
    update = dns.message.make_query("example.", "SOA")
    update.set_opcode(dns.opcode.UPDATE)
    known = dns.message.make_query("12345.example.", "NAPTR", use_edns=0).to_wire()

    def lay_out(count: int) -> tuple[list[int], int]:
        """Which of a batch, half known and half updates, get no reply, and how many took the general path."""
        asked.clear()
        for i in range(count):
            query = known if i % 2 else update.to_wire()
            slots.memory[slots.bases[i] : slots.bases[i] + len(query)] = query
            slots.memory[slots.addresses[i]] = socket.inet_aton("127.0.0.1")
            slots.lengths[count][i] = len(query)
        silent = replies.lay_out(plans_now, count)
        slots.clear(count)
        plans_now.sent()
        return [*silent], len(asked)

    for _ in range(MAX_FULL):
        assert lay_out(BATCH) == ([], BATCH // 2)
    dropped = [i for i in range(BATCH) if not i % 2][MAX_GENERAL:]
    assert lay_out(BATCH) == (dropped, MAX_GENERAL)
    assert lay_out(BATCH) == (dropped, MAX_GENERAL)
    assert counters.overload == counters.silent == 2 * len(dropped)
    assert counters.ready + counters.general + counters.overload == (MAX_FULL + 2) * BATCH
    assert counters.to_dict() == {"udp": {"NOERROR": (MAX_FULL + 2) * BATCH // 2, "dropped": 2 * len(dropped)}}
    # A batch that is not full ends it.
    assert lay_out(BATCH - 1) == ([], BATCH // 2)
    assert lay_out(BATCH) == ([], BATCH // 2)
    sock.close()
