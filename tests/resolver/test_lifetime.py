"""``lifetime`` bounds the whole walk, for every driver, even if walks share questions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing

import dns.message
import pytest

from maptr import Discovery, discover_many
from maptr.ark import Ark
from maptr.discovery import DiscoveryTimeout, Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.resolver.bulk import Scheduler, SharedQuestion
from maptr.resolver.exchange import ROUNDS
from maptr.resolver.message import DnsResponse, SentQuery, read_response
from maptr.resolver.resolver import Resolver
from maptr.walk import TIME_OVER, Answer, Settings
from tests.support.drivers import (
    CLOCKED_DRIVERS,
    STUB_DRIVERS,
    Driver,
    by_call,
    name_of,
)
from tests.support.hostile import NAPTR, Hostile, hostile, hosts, naptr, question, record, reply
from tests.support.scripted import serving, zone
from tests.support.waiting import PATIENCE, until

ARK = "ark:1/x"
CHAIN = {f"{i}.ark.arpa.": [naptr(f"{i + 1}.ark.arpa.", flags=b"")] for i in range(1, 7)}


def outcomes(found: Discovery) -> list[tuple[Outcome, str]]:
    return [(step.outcome, step.note) for step in found.trace]


@pytest.mark.parametrize("driver", CLOCKED_DRIVERS, ids=name_of)
def test_a_chain_of_late_answers_ends_when_the_time_is_over(driver: Driver) -> None:
    honest = hosts(CHAIN)
    now = 1000.0

    def late(query: bytes, transport: str) -> list[bytes]:
        nonlocal now
        now += 0.75  # less than a stub waits before it asks again
        return honest(query, transport)

    with hostile(late) as server:
        found = driver(ARK, server, lifetime=2.0, clock=lambda: now)
        asked = len(server.queries)
    assert outcomes(found) == [(Outcome.ANSWER, "")] * 3 + [(Outcome.TIMEOUT, TIME_OVER)]
    assert not found.complete
    assert asked == 3
    with pytest.raises(DiscoveryTimeout, match=TIME_OVER):
        found.raise_for_none()


def test_a_walk_that_times_out_keeps_its_answers() -> None:
    honest = hosts({"1.ark.arpa.": [naptr("h.example."), naptr("2.ark.arpa.", flags=b"", order=1)]})
    with hostile(lambda query, transport: [] if question(query)[0][0] == b"2" else honest(query, transport)) as server:
        alone: Discovery | None = None
        expected = [(Outcome.ANSWER, ""), (Outcome.TIMEOUT, f"{server.name}: no reply")]
        for driver in STUB_DRIVERS:
            for lifetime in (0.3, 3.0, 30.0):  # until it is enough for the answer
                started = time.monotonic()
                found = driver(ARK, server, lifetime=lifetime)
                assert time.monotonic() - started < lifetime + PATIENCE
                if outcomes(found) == expected:
                    break
            assert outcomes(found) == expected
            assert [candidate.host for candidate in found] == ["h.example"]
            assert not found.complete
            alone = alone or found
            assert found == alone  # as discover() found it


@pytest.mark.parametrize("over", ["", "tcp://"])
@pytest.mark.parametrize("awaited", [False, True], ids=["", "awaited"])
def test_the_time_of_the_caller_and_of_its_arks_is_not_that_of_dns(over: str, awaited: bool) -> None:
    now = 1000.0
    zone = {f"{naan}.ark.arpa.": [naptr(f"r{naan}.example.", flags=b"")] for naan in range(10, 50)}
    zone |= {f"r{naan}.example.": [naptr("h.example.")] for naan in range(10, 50)}
    found: list[Discovery] = []

    def arks() -> Iterator[tuple[None, Ark]]:
        nonlocal now
        for naan in range(10, 50):
            now += 0 if awaited else 10  # awaited, the ARKs are taken while DNS is asked
            yield None, Ark(str(naan), "x")

    def take(one: Discovery) -> None:
        nonlocal now
        now += 10
        found.append(one)

    async def main() -> None:
        async def pairs() -> AsyncIterator[tuple[None, Ark]]:
            for pair in arks():
                yield pair

        async with aclosing(resolver.discover_many_async(pairs(), 1.0)) as stream:
            async for _, one in stream:
                take(one)

    with hostile(hosts(zone)) as server:
        resolver = Resolver([over + server.name], clock=lambda: now)
        if awaited:
            asyncio.run(main())
        else:
            for _, one in resolver.discover_many(arks(), 1.0):
                take(one)
    assert [outcomes(one) for one in found] == [[(Outcome.ANSWER, "")] * 2] * 40


@pytest.mark.parametrize("driver", CLOCKED_DRIVERS, ids=name_of)
def test_a_server_that_is_slower_than_each_try_is_heard(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.05)
    honest = zone({"1.ark.arpa.": ['0 0 "h" "ark" "" h.example.']})
    came: list[dns.message.Message] = []
    last = threading.Event()

    def late(query: dns.message.Message) -> dns.message.Message | None:
        """Answers the first query when the last try has come; each try but the last times out when it has come."""
        came.append(query)
        if len(came) == ROUNDS:
            last.set()
        return honest(query) if query is came[0] and last.wait(60) else None

    with serving(late) as port:
        clock = lambda: 0.05 * (2 ** min(len(came), ROUNDS - 1) - 1)  # noqa: E731
        found = driver(ARK, Hostile(lambda query, transport: [], "127.0.0.1", port), lifetime=60.0, clock=clock)
    assert [candidate.host for candidate in found] == ["h.example"]
    assert len(came) == ROUNDS


# ---- walks that share a question


class Rig:
    """A scheduler without I/O, on a clock of its own."""

    def __init__(self, lifetime: float = 5.0) -> None:
        self.now = 100.0
        self.many: Scheduler[str] = Scheduler(Settings(), lifetime=lifetime, clock=lambda: self.now)
        self.asked: dict[str, SharedQuestion[str]] = {}

    def start(self, naan: str) -> list[str]:
        self.many.start(naan, Ark.parse(f"ark:{naan}/x"))
        return self.take()

    def redirect(self, naan: str, target: str, elapsed: float) -> None:
        self.tell(f"{naan}.ark.arpa.", Naptr(0, 0, b"", b"ark", b"", names.parse(target)), elapsed)

    def host(self, name: str) -> None:
        self.tell(name, Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example")), 0.1)

    def tell(self, name: str, record: Naptr, elapsed: float) -> None:
        self.many.tell(self.asked.pop(name), Answer(Outcome.ANSWER, [record], 60, elapsed=elapsed))
        self.many.tick(self.now)

    def take(self) -> list[str]:
        """The names of the new questions."""
        new = {names.to_text(shared.name): shared for shared in self.many.take()}
        self.asked |= new
        return list(new)

    def done(self) -> dict[str, Discovery]:
        done = dict(self.many.done)
        self.many.done.clear()
        return done


def test_a_walk_stops_waiting_for_a_shared_question_at_its_own_deadline() -> None:
    rig = Rig()
    for naan in "12":
        rig.start(naan)
    rig.redirect("1", "s.example.", 4.0)
    rig.redirect("2", "s.example.", 1.0)
    assert rig.take() == ["s.example."]
    assert rig.many.tick(rig.now) == 1.0
    rig.now += 1.0
    assert rig.many.tick(rig.now) == 3.0
    late = rig.done()
    assert list(late) == ["1"]
    assert outcomes(late["1"]) == [(Outcome.ANSWER, ""), (Outcome.TIMEOUT, TIME_OVER)]
    rig.host("s.example.")
    assert [candidate.host for candidate in rig.done()["2"]] == ["h.example"]
    rig.now += 10
    assert rig.many.tick(rig.now) is None
    assert rig.many.open == 0


def test_a_question_of_a_redirect_ends_with_its_walk_and_is_asked_again() -> None:
    rig = Rig()
    for naan in "12":
        rig.start(naan)
        rig.redirect(naan, f"{naan}.example.", 4.0)
    rig.take()
    assert rig.asked["1.example."].deadline == 101.0
    rig.many.tell(rig.asked.pop("1.example."), Answer(Outcome.TIMEOUT, note="no reply"))
    assert outcomes(rig.done()["1"]) == [(Outcome.ANSWER, ""), (Outcome.TIMEOUT, "no reply")]
    rig.start("3")
    rig.redirect("3", "1.example.", 0.0)
    assert rig.take() == ["1.example."]


@pytest.mark.parametrize(("later", "ended"), [(1.0, ["1"]), (0.9, ["1", "2"])], ids=["cut off", "all tries failed"])
def test_a_question_is_asked_again_for_a_walk_that_joined_it_with_more_time(later: float, ended: list[str]) -> None:
    rig = Rig()
    rig.start("1")
    rig.redirect("1", "s.example.", 4.0)
    rig.take()
    rig.start("2")
    rig.redirect("2", "s.example.", 0.0)
    assert rig.take() == []
    rig.now += later
    rig.many.tell(rig.asked.pop("s.example."), Answer(Outcome.TIMEOUT, note="no reply"))
    assert list(rig.done()) == ended
    for name in rig.take():
        rig.host(name)
        assert [candidate.host for candidate in rig.done()["2"]] == ["h.example"]
    assert rig.many.open == 0


def test_a_walk_whose_time_is_over_asks_nothing() -> None:
    rig = Rig()
    rig.start("1")
    rig.redirect("1", "s.example.", 5.0)
    assert rig.many.has_new
    rig.many.tick(rig.now)
    assert rig.take() == []
    assert outcomes(rig.done()["1"])[1] == (Outcome.TIMEOUT, TIME_OVER)
    rig.start("2")
    rig.redirect("2", "s.example.", 0.0)
    assert rig.take() == ["s.example."]


def test_a_naan_to_which_another_walk_was_redirected_shares_its_question() -> None:
    rig = Rig()
    rig.start("1")
    rig.redirect("1", "2.ark.arpa.", 0.1)
    assert rig.take() == ["2.ark.arpa."]
    assert rig.start("2") == []
    rig.host("2.ark.arpa.")
    assert {naan: [candidate.host for candidate in found] for naan, found in rig.done().items()} == {
        "1": ["h.example"],
        "2": ["h.example"],
    }


def test_dropped_questions_leave_room_for_others() -> None:
    zone = {f"{i}.ark.arpa.": [naptr(f"s{i}.example.", flags=b"")] for i in range(16)}
    honest = hosts({**zone, **{f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(16, 40)}})

    def half(query: bytes, transport: str) -> list[bytes]:
        return [] if question(query)[0][-1] == b"example" else honest(query, transport)

    def clock() -> float:
        """Time stands still until as many questions as may be are without an answer."""
        unanswered = [query for query, _ in server.queries if question(query)[0][-1] == b"example"]
        return float(len(unanswered) // 8)

    with hostile(half) as server:
        arks = [(i, Ark.parse(f"ark:{i}/x")) for i in range(40)]
        found = list(Resolver([server.name], concurrency=8, clock=clock).discover_many(arks, 0.2))
        assert [one.complete for _, one in found] == [False] * 16 + [True] * 24
        assert len(server.queries) == 40 + 16  # each of those without answer once


def test_questions_of_redirects_count_for_the_concurrency() -> None:
    honest = hosts({"0.ark.arpa.": [naptr(f"s{i}.example.", flags=b"", order=i) for i in range(6)]})

    onward: list[float] = []  # when a further question came

    def first(query: bytes, transport: str) -> list[bytes]:
        if question(query)[0][-1] == b"example":
            onward.append(time.monotonic())
        return honest(query, transport) if question(query)[0][0] == b"0" else []

    def clock() -> float:
        """Time stands still until one question too many would have come; then all four lifetimes are over."""
        return 1.0 if onward and time.monotonic() > onward[0] + 0.2 else 0.0

    with hostile(first) as server:
        arks = [f"ark:{i}/x" for i in range(20)]
        resolver = Resolver([server.name], concurrency=4, clock=clock)
        stream = resolver.discover_many(((ark, Ark.parse(ark)) for ark in arks), 0.6)
        with closing(stream):
            _, found = next(stream)
    assert len(onward) == 1  # three first questions are outstanding
    assert [note for _, note in outcomes(found)] == ["", f"{server.name}: no reply"] + [TIME_OVER] * 5


def test_time_spent_on_a_silent_server_counts_for_every_walk() -> None:
    with hostile(lambda query, transport: []) as one, hostile(lambda query, transport: []) as other:
        arks = [f"ark:{i}/x" for i in range(9)]
        found = list(discover_many(arks, nameservers=[one.name, other.name], lifetime=0.5))
        assert [outcome for late in found for outcome, _ in outcomes(late)] == [Outcome.TIMEOUT] * 9
        until(lambda: len(one.queries) == 9, "the queries")
        assert other.queries == []


def test_large_responses_after_the_deadline_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one takes time, here the whole lifetime."""
    now, read = 0.0, 0

    def slow(query: SentQuery, packet: bytes) -> DnsResponse:
        nonlocal now, read
        now, read = (now + 2.0, read + 1) if len(packet) > 1232 else (now, read)
        return read_response(query, packet)

    monkeypatch.setattr("maptr.resolver.exchange.read_response", slow)
    honest = hosts({"1.ark.arpa.": [naptr(f"r{i}.example.", flags=b"") for i in range(9)]})
    large = [record(None, NAPTR, naptr(f"h{i}.example.")) for i in range(80)]

    def script(query: bytes, transport: str) -> list[bytes]:
        return [reply(query, large)] if question(query)[0][-1] == b"example" else honest(query, transport)

    with hostile(script) as server:
        assert not by_call(ARK, server, clock=lambda: now, lifetime=1.5).complete
    assert read == 1
