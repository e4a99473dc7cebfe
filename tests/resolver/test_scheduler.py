"""The scheduler: walks that share answers have the same results as single walks, in bounded memory and time."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.discovery import Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.resolver.bulk import Scheduler
from maptr.walk import DEFAULTS, Answer, Walk

NAME = (b"12345", b"ark", b"arpa")
ARK = Ark.parse("ark:12345/x1")

plain_records = st.builds(
    Naptr,
    st.integers(0, 2),
    st.integers(0, 1),
    st.just(b"h"),
    st.just(b"ark"),
    st.just(b""),
    st.sampled_from([(b"h%d" % i, b"Example" if i % 2 else b"example") for i in range(6)]),
)
REGEXPS = (
    rb"!^ark:/?[0-9]+/(x.*)$!https://u.example/\1!",
    rb"!^ark:/?1/(x.*)$!https://u.example:8443/\1!",
    rb"!^ark:/?[01]/(.*)$!http://v.example/\1\1!",
    rb"!^ark:.*$!https://U.example/all!",
    rb"!^ark:/?1/x(.*)$!https://127.0.0.1/\1!",
    rb"!^ark:/?1/x(.*)$!ftp://h.example/\1!",
    rb"!^ark:/?1/x(.*)$!https://h.example\1/!",
    rb"!^ark:/?1/(.*)$!\1!",
    rb"!^ark:/?1/(.*)$!https://h.example/<\1>!",
    rb"!^ark:/?1/(.*)$!https://a@h.example/\1!",
    rb"!^ark:/?1/(.*)$!x!i",
)

ROOTS: list[Labels] = [(naan, b"ark", b"arpa") for naan in (b"0", b"1", b"2", b"3", b"b")]
ELSEWHERE: list[Labels] = [(b"n%d" % i, b"example") for i in range(3)]
HOST = Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example"))
graph_records = st.one_of(
    plain_records,
    st.builds(
        lambda order, to: Naptr(order, 0, b"", b"ark", b"", to), st.integers(0, 1), st.sampled_from(ROOTS + ELSEWHERE)
    ),
    st.builds(
        lambda order, regexp: Naptr(order, 0, b"u", b"ark", regexp, ()), st.integers(0, 1), st.sampled_from(REGEXPS)
    ),
    st.just(Naptr(0, 0, b"", b"ark", rb"!^.*/(x|y).*$!\1.example!", ())),
)
graphs = st.dictionaries(st.sampled_from(ROOTS + ELSEWHERE), st.lists(graph_records, max_size=3))
texts = st.builds("ark:{}/{}".format, st.integers(0, 3), st.sampled_from(["x1", "y1", "x2/c.pdf", "x1?info"]))
arks = texts.map(Ark.parse) | st.sampled_from([Ark("b", "x1"), Ark("B", "x1"), Ark("b", "y1")])


@given(graphs, st.lists(arks, max_size=12), st.integers(1, 12), st.sampled_from([100_000, 3]), st.randoms())
def test_shared_walks_find_what_each_finds_alone(
    zone: dict[Labels, list[Naptr]], asked: list[Ark], at_once: int, max_kept: int, rng: random.Random
) -> None:
    def answer(name: Labels) -> Answer:
        records = zone.get(names.fold(name))
        return (
            Answer(Outcome.NXDOMAIN, ttl=60, zone=name)
            if records is None
            else Answer(Outcome.ANSWER, tuple(records), 60)
        )

    asked = asked + asked[::2]  # further ARKs of the same NAANs, when their roots are known
    names_asked: list[Labels] = []
    left = list(enumerate(asked))
    with patch("maptr.resolver.bulk.MAX_KEPT", max_kept):
        many: Scheduler[int] = Scheduler(DEFAULTS, lifetime=5.0, clock=lambda: 0.0, now=lambda: 1000.0)
        while left or many.open:
            for number, ark in left[:at_once]:
                many.start(number, ark)
            del left[:at_once]
            new = many.take()
            names_asked += [wanted.name for wanted in new]
            for wanted in rng.sample(new, len(new)):
                many.tell(wanted, answer(wanted.name))
            many.tick(0.0)
    assert max_kept == 3 or len(set(names_asked)) == len(names_asked)
    assert len(many.done) == len(asked)
    for number, found in many.done:
        walk = Walk(asked[number])
        while questions := walk.next():
            for question in questions:
                walk.tell(question, answer(question.name))
        alone = walk.result(1000.0)
        assert found == alone
        assert (found.ttl, found.expiration, found.urls()) == (alone.ttl, alone.expiration, alone.urls())


@pytest.mark.parametrize("record", [HOST, Naptr(0, 0, b"u", b"ark", REGEXPS[1], ())], ids=["host", "regexp"])
def test_arks_of_a_naan_share_a_discovery_that_no_regexp_has_made(record: Naptr) -> None:
    many: Scheduler[int] = Scheduler(DEFAULTS, lifetime=5.0, clock=lambda: 0.0)
    many.start(0, Ark.parse("ark:1/x0"))
    (wanted,) = many.take()
    many.tell(wanted, Answer(Outcome.ANSWER, [record], 60))
    many.tick(0.0)
    for number in (1, 2):
        many.start(number, Ark.parse(f"ark:1/x{number}"))
        many.tick(0.0)
    (_, first), (_, second), (_, third) = many.done
    assert second.trace is not first.trace, "most NAANs of a stream have one ARK"
    assert (third.trace is second.trace) is (record is HOST)
    assert [found.url()[-2:] for found in (first, second, third)] == ["x0", "x1", "x2"]


def test_cached_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.bulk.MAX_KEPT", 10)
    many: Scheduler[int] = Scheduler(DEFAULTS, lifetime=5.0, clock=lambda: 0.0)
    for i in range(50):
        many.start(i, Ark.parse(f"ark:{i}/x"))
        (wanted,) = many.take()
        records = [Naptr(0, n, b"h", b"ark", b"", (b"h", b"example")) for n in range(3)]
        many.tell(wanted, Answer(Outcome.ANSWER, records, 60))
        many.tick(0.0)
    assert len(many.done) == 50
    many.start(99, Ark.parse("ark:49/y"))
    many.tick(0.0)
    assert many.take() == []
    many.start(100, Ark.parse("ark:0/y"))  # the oldest made room
    assert len(many.take()) == 1
    assert many.open == 1


HOSTILE = b"!" + b"(" * 12 + b"x?" + b")*" * 12 + b"y$!https://u.example/!"  # read in linear time, but not in little
REGEXP = rb"!^ark:/?1/(.*)$!https://u.example/\1!"


def test_the_walks_of_a_naan_share_one_budget_for_regexps() -> None:
    root = Naptr(0, 0, b"u", b"ark", HOSTILE, ())
    many: Scheduler[int] = Scheduler(DEFAULTS, lifetime=5.0, clock=lambda: 0.0)
    for i in range(50):
        many.start(i, Ark.parse(f"ark:666/{'x' * 200}{i}"))
    (wanted,) = many.take()
    many.tell(wanted, Answer(Outcome.ANSWER, [root._replace(order=order) for order in range(30)], 60))
    many.tick(0.0)
    reasons = [reading.reasons for _, found in many.done for reading in found.trace[0].readings]
    spent = sum("steps of this walk are spent" in " ".join(reason) for reason in reasons)
    assert len(many.done) == 50
    assert spent > 0.9 * len(reasons)


def test_walks_of_one_answer_are_computed_in_slices() -> None:
    """On a clock that advances with each walk, one ``tick`` computes a few of them."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.003
        return now

    many: Scheduler[int] = Scheduler(DEFAULTS, lifetime=500.0, clock=clock)
    for i in range(100):
        many.start(i, Ark.parse(f"ark:1/x{i}"))
    (wanted,) = many.take()
    many.tell(wanted, Answer(Outcome.ANSWER, [Naptr(0, 0, b"u", b"ark", REGEXP, ())], 60))
    turns = 0
    while many.has_new:
        many.tick(0.0)
        turns += 1
    assert turns > 5
    assert [token for token, _ in many.done] == list(range(100))
    assert all(found for _, found in many.done)
