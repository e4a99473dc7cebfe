"""Hostile DNS servers: every driver has the same result, within the lifetime and in bounded memory."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from maptr import Client, Discovery, discover
from maptr.discovery import Outcome
from maptr.protocol.numbers import AA, CNAME, NAPTR, NS, TC, A
from maptr.resolver.stub import Stub
from maptr.walk import MAX_CANDIDATES, MAX_QUESTIONS
from tests.support.drivers import RESOLVER_DRIVERS, STUB_DRIVERS, Driver, by_memory, name_of
from tests.support.hostile import Hostile, Script, hostile, hosts, naptr, question, record, reply
from tests.support.waiting import PATIENCE

ARK = "ark:12345/x1"
ROOT = "12345.ark.arpa."
GOOD = hosts({ROOT: [naptr("h.example.")]})


DRIVERS = (*STUB_DRIVERS, by_memory)
Ask = Callable[..., Discovery]


@pytest.fixture(params=DRIVERS, ids=name_of)
def ask(request: pytest.FixtureRequest) -> Ask:
    """One of the drivers, as a function of script or server, and lifetime."""

    def run(script: Script | Hostile, lifetime: float = PATIENCE) -> Discovery:
        if isinstance(script, Hostile):
            return timed(request.param, script, lifetime)
        with hostile(script) as server:
            return timed(request.param, server, lifetime)

    return run


def timed(driver: Driver, server: Hostile, lifetime: float) -> Discovery:
    started = time.monotonic()
    found = driver(ARK, server, lifetime=lifetime)
    assert time.monotonic() - started < lifetime + PATIENCE
    return found


def outcomes(discovery: Discovery) -> list[Outcome]:
    return [step.outcome for step in discovery.trace]


def reasons(discovery: Discovery) -> str:
    return "\n".join(reason for step in discovery.trace for r in step.readings for reason in r.reasons)


# ---- redirects


def onward(query: bytes, transport: str) -> list[bytes]:
    name = question(query)[0]
    label = b"n" + name[0][-40:] if len(name[0]) < 60 else b"n"
    return [reply(query, [record(None, NAPTR, naptr(f"{label.decode()}.example.", flags=b""))])]


def wide(query: bytes, transport: str) -> list[bytes]:
    first = question(query)[0][0][:20].decode()
    fan = [record(None, NAPTR, naptr(f"{i}-{first}.example.", flags=b"")) for i in range(40)]
    return [reply(query, fan) if transport == "tcp" else reply(query, flags=AA | TC)]


def test_a_fan_out_bomb_ends_at_the_limit(ask: Ask) -> None:
    with hostile(wide) as server:
        found = ask(server)
        asked = {question(query)[0] for query, _ in server.queries}  # a slow reply may be asked for again
    assert len(asked) == MAX_QUESTIONS
    if not found.reason:  # a cache tells what it kept, which is less
        assert sum(step.outcome is Outcome.ANSWER for step in found.trace) == MAX_QUESTIONS
    assert not found.complete


def test_rrsets_of_maximum_size(ask: Ask) -> None:
    rdatas = [naptr(f"h{i:05}.example.", order=i) for i in range(1650)]
    whole = hosts({ROOT: rdatas})
    size = len(whole(b"\0" * 12 + b"\x0512345\x03ark\x04arpa\0\0\x23\0\1", "tcp")[0])
    assert 60_000 < size <= 65_535
    with hostile(whole) as server:
        tracemalloc.start()
        found = ask(server)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [transport for _, transport in server.queries] == ["udp", "tcp"]
    assert len(found) == MAX_CANDIDATES
    assert not found.complete
    assert peak < 20_000_000


# ---- servers that fail


def says(*answers: bytes, **fields: Any) -> Script:
    """A server that gives every query the same reply."""
    return lambda query, transport: [reply(query, list(answers), **fields)]


def refer(cut: str, *glue: tuple[int, ...]) -> Script:
    """A server that refers to ns.example for the cut."""
    extra = [record("ns.example.", A, bytes(address)) for address in glue]
    return says(authority=[record(cut, NS, b"\2ns\7example\0")], additional=extra, flags=0)


def silent(query: bytes, transport: str) -> list[bytes]:
    return []


def only_udp(query: bytes, transport: str) -> list[bytes]:
    return [] if transport == "tcp" else [reply(query, flags=AA | TC)]


EVIL = naptr("evil.example.")
TO_C = record(None, CNAME, b"\1c\7example\0", ttl=30)
TO_ITSELF = record(None, CNAME, b"\xc0\x0c")
AT_C = record("c.example.", NAPTR, naptr("h.example."))
# The outcome, and a part of its note. ``vectors/replies.toml`` has the malformed responses, for every driver too.
FAILURES: dict[str, tuple[Script, Outcome, str]] = {
    "silence": (silent, Outcome.TIMEOUT, "no reply"),
    "SERVFAIL": (says(rcode=2), Outcome.SERVFAIL, ""),
    "REFUSED": (says(rcode=5), Outcome.REFUSED, ""),
    "NOTAUTH": (says(rcode=9), Outcome.SERVFAIL, ""),
    "a referral to the root": (refer("."), Outcome.REFERRAL, "lame"),
    "a referral without address": (refer(ROOT), Outcome.REFERRAL, "no usable address"),
    "a referral to itself": (refer(ROOT, (127, 0, 0, 1)), Outcome.REFERRAL, "lame"),
    "a referral elsewhere": (refer("other.example.", (127, 0, 0, 1)), Outcome.REFERRAL, "lame"),
    "truncated over TCP": (says(flags=AA | TC), Outcome.MALFORMED, "truncated over TCP"),
    "a TCP connection that ends early": (only_udp, Outcome.UNREACHABLE, "closes the TCP connection early"),
    "a loop of CNAMEs": (says(TO_ITSELF), Outcome.MALFORMED, "more than 16 CNAMEs"),
    "another owner": (says(record("54321.ark.arpa.", NAPTR, EVIL)), Outcome.NODATA, ""),
}


@pytest.mark.parametrize("title", FAILURES)
def test_outcome_for_each_server_fault(title: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    script, outcome, note = FAILURES[title]
    if outcome is Outcome.TIMEOUT:
        monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.05)
    found = ask(script)
    assert outcomes(found) == [outcome]
    assert note in found.trace[0].note


OPT_BADVERS = b"\0" + struct.pack("!HHIH", 41, 1232, 1 << 24, 0)


@pytest.mark.parametrize("refusal", [{"rcode": 1}, {"additional": [OPT_BADVERS]}], ids=["FORMERR", "BADVERS"])
def test_a_server_without_edns_is_queried_without_edns(refusal: dict[str, Any], ask: Ask) -> None:
    assert ask(lambda query, transport: (says(**refusal) if query[11] else GOOD)(query, transport))


# ---- responses that do not match the query


def spoofed(query: bytes) -> dict[str, bytes]:
    evil = [record(None, NAPTR, naptr("evil.example."))]
    asked = question(query)[1]
    return {
        "id": reply(query, evil, ident=bytes((query[0] ^ 1, query[1]))),
        "name": reply(query, evil, asked=b"\5other\3ark\4arpa\0\0\x23\0\1"),
        "letters": reply(query, evil, asked=asked[:-5].swapcase() + asked[-5:]),
        "type": reply(query, evil, asked=asked[:-4] + b"\0\1\0\1"),
        "class": reply(query, evil, asked=asked[:-4] + b"\0\x23\0\3"),
        "query": query,
        "short": query[:7],
        "nothing": b"",
        "opcode": query[:2] + b"\xa4\0" + reply(query, evil)[4:],
    }


def test_a_response_from_another_port_is_ignored(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.05)
    heard = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as x:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(PATIENCE)

        def answer() -> None:
            query, client = udp.recvfrom(65535)
            x.sendto(reply(query, [record(None, NAPTR, naptr("evil.example."))]), client)
            heard.set()

        thread = threading.Thread(target=answer)
        thread.start()
        server = Hostile.__new__(Hostile)
        server.host, server.port = udp.getsockname()
        found = ask(server)
        thread.join()
    assert heard.is_set()
    assert outcomes(found) == [Outcome.TIMEOUT]


def test_packets_that_are_not_responses_to_the_query_are_ignored(ask: Ask) -> None:
    found = ask(lambda query, transport: [*spoofed(query).values(), *GOOD(query, transport)])
    assert found.urls() == ["https://h.example/ark:12345/x1"]


@pytest.mark.parametrize("spell", [bytes.lower, bytes.upper], ids=["lower", "upper"])
def test_a_server_that_does_not_echo_the_letter_case_answers_at_once(
    spell: Callable[[bytes], bytes], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some home routers. It is asked twice, and by TCP if the response is truncated."""
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", PATIENCE)
    large = hosts({ROOT: [naptr(f"h{i}.example.") for i in range(60)]})

    def answering(script: Script) -> Script:
        def run(query: bytes, transport: str) -> list[bytes]:
            asked = question(query)[1]
            changed = spell(asked[:-4]) + asked[-4:]
            return [packet.replace(asked, changed, 1) for packet in script(query, transport)]

        return run

    started = time.monotonic()
    for script in (GOOD, large):
        with hostile(answering(script)) as server:
            assert ask(server)
            assert len(server.queries) <= 3
    assert outcomes(ask(answering(hosts({})))) == [Outcome.NXDOMAIN]
    assert outcomes(ask(answering(says(rcode=5)))) == [Outcome.REFUSED]
    assert time.monotonic() - started < PATIENCE


# ---- names


def test_a_cname_at_the_owner_name_is_followed(ask: Ask) -> None:
    target = hosts({"c.example.": [naptr("h.example.")]})

    def leave(query: bytes, transport: str) -> list[bytes]:
        return (says(TO_C) if question(query)[0][0] == b"12345" else target)(query, transport)

    for script in (says(TO_C, AT_C), leave):  # the target is in the response, or queried
        found = ask(script)
        assert found.urls() == ["https://h.example/ark:12345/x1"]
        assert found.trace[0].note == "through CNAME c.example."
        assert found.ttl == 30


def test_an_endless_chain_of_cnames_ends_at_a_limit(ask: Ask) -> None:
    def onward(query: bytes, transport: str) -> list[bytes]:
        first = question(query)[0][0]
        number = int(first[1:]) if first.startswith(b"c") else 0
        label = b"c%d" % (number + 1)
        return [reply(query, [record(None, CNAME, bytes((len(label),)) + label + b"\7example\0")])]

    with hostile(onward) as server:
        assert outcomes(ask(server)) == [Outcome.MALFORMED]
        assert len(server.queries) < 20


# ---- targets of rules


def test_no_name_is_looked_up_to_judge_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise AssertionError("a name is looked up to be judged")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    targets = ("https://2130706433/", "https://0x7f.1/", "https://[::ffff:10.0.0.1]/", "https://a.localhost./")
    rules = [naptr(flags=b"u", regexp=f"!^.*$!{target}!".encode()) for target in (*targets, "https://h.example/")]
    with hostile(hosts({ROOT: rules})) as server:
        found = discover(ARK, nameservers=[server.name], raise_on_none=False)
        assert len(server.queries) == 1
    assert found.urls() == ["https://h.example/"]


# ---- queries


def test_ids_ports_and_case_are_hard_to_guess() -> None:
    with hostile(GOOD) as server:
        for _ in range(60):
            discover(ARK, nameservers=[server.name])
        idents = {query[:2] for query, _ in server.queries}
        spellings = {question(query)[1] for query, _ in server.queries}
        assert len(idents) > 55
        assert len(spellings) > 40
        assert len(server.clients) > 40  # source ports


def test_a_server_that_did_not_respond_is_queried_last() -> None:
    with hostile(silent) as one, hostile(GOOD) as good:
        client = Client([one.name, good.name])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.5)
            assert client.discover(ARK)
        asked = len(one.queries)
        stub = client.resolver.opened(1.0)
        assert isinstance(stub, Stub)
        assert [str(server) for server in stub.servers] == [good.name, one.name]
        assert asyncio.run(client.discover_async(ARK))
        assert len(one.queries) == asked


# ---- the same through dnspython's resolvers, whose sockets are their own


# dnspython does not send letters in random case, so it accepts responses with any.
OTHERS: dict[str, tuple[Script, bool]] = {  # the server, and whether the discovery is complete
    "garbage": (lambda query, _: [b"\xff" * 300], False),
    "garbage behind a header": (lambda query, _: [query[:2] + b"\x84\0\0\1\0\1\0\0\0\0" + b"\xc0\x0c" * 9], False),
    "answers to other questions": (
        lambda query, _: [packet for what, packet in spoofed(query).items() if what != "letters"],
        False,
    ),
    "no such name, truncated": (says(flags=AA | TC, rcode=3), False),
    "a part, truncated": (says(record(None, NAPTR, EVIL), flags=AA | TC), False),
    "an alias elsewhere": (says(TO_C), False),
    "redirects in a loop": (hosts({ROOT: [naptr(ROOT, flags=b"")]}), True),
    "redirects without end": (onward, False),
    "redirects without number": (wide, False),
    "hosts that may not be followed": (
        hosts({ROOT: [naptr("127.0.0.1."), naptr("localhost."), naptr("a\\046b.example.")]}),
        True,
    ),
}
OTHERS |= {title: (script, outcome is Outcome.NODATA) for title, (script, outcome, _) in FAILURES.items()}


@pytest.mark.parametrize("driver", RESOLVER_DRIVERS, ids=name_of)
@pytest.mark.parametrize("said", OTHERS)
def test_a_dnspython_resolver_finds_nothing_at_a_hostile_server(said: str, driver: Driver) -> None:
    script, complete = OTHERS[said]
    with hostile(script) as server:
        found = timed(driver, server, PATIENCE if complete else 0.3)
        assert len(server.queries) < 2_000
    assert not found
    assert found.complete is complete
