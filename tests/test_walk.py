"""The Maptr algorithm: the vectors, its limits, and properties over random graphs of records."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import dns.rdata
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.discovery import (
    Candidate,
    Discovery,
    DiscoveryError,
    DiscoveryFailed,
    DiscoveryTimeout,
    Limit,
    NoMappingAuthority,
    Outcome,
)
from maptr.naptr.record import Kind, Naptr
from maptr.naptr.regexp import Substitution
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SOA
from maptr.walk import MAX_DEPTH, Answer, Question, Settings, Walk
from tests.support.answers import load_vectors

VECTORS = load_vectors("walk")["walk"]
URLS = load_vectors("urls")["url"]
RULES = {
    "h": '0 0 "h" "ark" "" h.example\\0588443.',
    "rest": r'0 0 "u" "ark" "!^ark:/?12345/(.*)$!https://u.example/p/ark:/12345/\\1!" .',
    "query": r'0 0 "u" "ark" "!^(ark:/?12345/.*)$!https://u.example/?id=\\1!" .',
}
ARK = Ark.parse("ark:12345/x1")
ROOT = (b"12345", b"ark", b"arpa")

Dns = dict[Labels, list[Naptr] | Outcome]


def naptr(text: str) -> Naptr:
    """A record in presentation format, read by dnspython."""
    return Naptr.from_wire(dns.rdata.from_text("IN", "NAPTR", text).to_wire() or b"")


def host(order: int, preference: int, name: str) -> Naptr:
    return Naptr(order, preference, b"h", b"ark", b"", names.parse(name))


def redirect(name: str, order: int = 0, preference: int = 0) -> Naptr:
    return Naptr(order, preference, b"", b"ark", b"", names.parse(name))


def answer(dns: Dns, question: Question, ttls: dict[Labels, int] | None = None, soa: Labels | None = None) -> Answer:
    said = dns.get(names.fold(question.name), Outcome.NXDOMAIN)
    ttl = (ttls or {}).get(names.fold(question.name), 60)
    if isinstance(said, Outcome):
        return Answer(said, zone=question.name if soa is None else soa)
    return Answer(Outcome.ANSWER, said, ttl)


def run(
    ark: Ark,
    dns: Dns,
    settings: Settings | None = None,
    order: Callable[[list[Any]], None] = lambda _: None,
    ttls: dict[Labels, int] | None = None,
    soa: Labels | None = None,
) -> Discovery:
    walk = Walk(ark, settings)
    asked: list[Labels] = []
    while questions := walk.next():
        order(questions)
        for question in questions:
            assert names.fold(question.name) not in asked
            asked.append(names.fold(question.name))
            walk.tell(question, answer(dns, question, ttls, soa))
    assert walk.over
    found = walk.result()
    assert Discovery.from_dict(found.to_dict()) == found
    return found


def walk_with(ark: Ark, *records: Naptr, ttl: int = 60, settings: Settings | None = None) -> Walk:
    """A walk that has the records at the NAAN."""
    walk = Walk(ark, settings)
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, records, ttl))
    return walk


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["title"])
def test_vector(case: dict[str, Any]) -> None:
    table: Dns = {
        names.fold(names.parse(name)): Outcome[records] if isinstance(records, str) else [naptr(r) for r in records]
        for name, records in case["dns"].items()
    }
    ttls: dict[names.Labels, int] = {names.fold(names.parse(name)): ttl for name, ttl in case.get("ttls", {}).items()}
    settings = Settings(origin=names.parse(case.get("origin", "ark.arpa.")), scheme=case.get("scheme", "https"))
    soa = names.parse(case["soa"]) if "soa" in case else None
    discovery = run(Ark.parse(case["ark"]), table, settings, ttls=ttls, soa=soa)
    assert discovery.urls() == case["urls"]
    assert discovery.complete is case.get("complete", True)
    if "asked" in case:
        assert [names.to_text(names.fold(step.name)) for step in discovery.trace] == case["asked"]
    if "steps" in case:
        assert [step.outcome.name for step in discovery.trace] == case["steps"]
    if "ttl" in case:
        assert discovery.ttl == case["ttl"]
    if "best" in case:
        assert len(discovery.best) == case["best"]
    readings = [reading for step in discovery.trace for reading in step.readings]
    reasons = [reason for reading in readings for reason in reading.reasons]
    for note in case.get("notes", ()):
        assert any(note in reason for reason in reasons), (note, reasons)
    assert all(reading.reasons and all(reading.reasons) for reading in readings), "every record has a reason"
    assert not any(reading.counted and reading.kind is Kind.OTHER for reading in readings)
    counted = {reading.naptr[:2] for reading in readings if reading.counted and "candidate" in str(reading)}
    assert {(candidate.order, candidate.preference) for candidate in discovery} <= counted


def test_the_longest_ark_has_urls_at_several_hosts() -> None:
    ark = Ark.parse(f"ark:12345/{'x1' * 4000}")
    hosts = [host(0, preference, name) for preference, name in enumerate(("a.example.", "A.example.", "b.example."))]
    assert run(ark, {ROOT: hosts}).urls() == [f"https://a.example/{ark}", f"https://b.example/{ark}"]


@pytest.mark.parametrize("case", URLS, ids=lambda case: case["title"])
@pytest.mark.parametrize("rule", RULES)
def test_urls_are_made(rule: str, case: dict[str, str]) -> None:
    """By the walk, and by the candidate of another ARK."""
    ark, record = Ark.parse(case["ark"]), naptr(RULES[rule])
    assert walk_with(ark, record).result().urls() == [case[rule]]
    assert walk_with(ARK, record).result()[0].url(ark) == case[rule]
    if rule == "h":
        again = Ark.parse(case[rule])
        assert (again, again.tail) == (ark, ark.tail)


@pytest.mark.parametrize(
    ("dns", "error", "reason"),
    [
        ({}, NoMappingAuthority, "no such name"),
        ({ROOT: Outcome.SERVFAIL}, DiscoveryFailed, "server failure"),
        ({ROOT: Outcome.TIMEOUT}, DiscoveryTimeout, "no answer in time"),
    ],
)
def test_none_and_unknown_are_different(dns: Dns, error: type[DiscoveryError], reason: str) -> None:
    with pytest.raises(error, match=reason) as caught:
        run(ARK, dns).url()
    assert type(caught.value) is error


def test_a_spent_regexp_budget_makes_the_walk_incomplete() -> None:
    rules = [Naptr(0, i, b"u", b"ark", b"!((a*)*(a*)*b)!https://a.example/!", ()) for i in range(200)]
    ark = Ark.parse("ark:12345/x" + "a" * 2000)
    discovery = run(ark, {ROOT: [*rules, host(9, 9, "a.example.")]})
    assert not discovery.complete
    assert [c.host for c in discovery] == ["a.example"]
    unread = [reading for reading in discovery.trace[0].readings if "regexp steps" in str(reading)]
    assert unread
    assert not any(reading.counted for reading in unread)
    assert discovery.trace[0].limit is Limit.REGEXP_STEPS


def test_records_are_read_to_the_limit_in_canonical_order() -> None:
    records = [host(i, 0, f"h{i}.example") for i in range(40)]
    discovery = walk_with(ARK, *records[::-1], settings=Settings(max_records=30)).result()
    assert [candidate.order for candidate in discovery] == list(range(30))
    assert not discovery.complete
    assert discovery.trace[0].limit is Limit.RECORDS
    assert discovery.incomplete_reason() == (
        "12345.ark.arpa. NAPTR: answer (30 of 40 records read: at most 30 in one walk)"
    )
    assert walk_with(ARK, *records, settings=Settings(max_records=40)).result().complete
    walk = Walk(ARK, Settings(max_records=30))
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, records, note="cut short"))
    assert walk.result().trace[0].note == "cut short; 30 of 40 records read: at most 30 in one walk"


def test_the_best_candidates_are_kept_to_the_limit() -> None:
    records = [host(i, 0, f"h{i}.example") for i in range(5)]
    discovery = walk_with(ARK, *records, settings=Settings(max_candidates=4)).result()
    assert [candidate.order for candidate in discovery] == [0, 1, 2, 3]
    assert (discovery.complete, discovery.ttl) == (False, None)
    assert discovery.trace[-1].limit is Limit.CANDIDATES
    assert walk_with(ARK, *records, settings=Settings(max_candidates=5)).result().complete


def test_the_limit_of_records_is_for_the_whole_walk() -> None:
    nodes = [names.parse(f"n{i}.example") for i in range(3)]
    dns: Dns = {ROOT: [redirect(f"n{i}.example") for i in range(3)]}
    dns |= {node: [host(0, 0, f"h{i}.example"), host(0, 1, f"i{i}.example")] for i, node in enumerate(nodes)}
    found = run(ARK, dns, Settings(max_records=6))
    assert [candidate.host for candidate in found] == ["h0.example", "h1.example", "i0.example"]
    assert [step.note for step in found.trace] == [
        *("", "", "1 of 2 records read: at most 6 in one walk", "0 of 2 records read: at most 6 in one walk")
    ]
    assert not found.complete
    assert run(ARK, dns, Settings(max_records=9)).complete


def test_rfc4033_5_a_discovery_has_the_worst_state_of_its_answers() -> None:
    for first, second, worst in (
        ("secure", "secure", "secure"),
        ("secure", "insecure", "insecure"),
        ("indeterminate", "secure", "indeterminate"),
        ("secure", "bogus", "bogus"),
    ):
        walk = Walk(ARK)
        walk.tell(walk.next()[0], Answer(Outcome.ANSWER, [redirect("a.example")], 60, security=first))
        walk.tell(walk.next()[0], Answer(Outcome.ANSWER, [host(0, 0, "h.example")], 60, security=second))
        found = walk.result()
        assert (found.security, [step.security for step in found.trace]) == (worst, [first, second])


def test_open_questions_at_the_end_are_timeouts() -> None:
    walk = walk_with(ARK, redirect("a.example."), redirect("b.example."))
    one, _ = walk.next()
    assert walk.next() == []
    walk.tell(one, Answer(Outcome.ANSWER, [host(0, 0, "h.example."), redirect("c.example.")], 60))
    discovery = walk.result()
    assert [step.outcome for step in discovery.trace] == [Outcome.ANSWER] * 2 + [Outcome.TIMEOUT] * 2
    assert [c.host for c in discovery] == ["h.example"]
    assert (discovery.complete, discovery.ttl) == (False, None)


def test_a_walk_is_over_after_its_last_answer_and_expires_with_the_shortest_ttl() -> None:
    walk = walk_with(ARK, redirect("a.example."), ttl=60)
    assert not walk.over
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, [host(0, 0, "h.example.")], 300))
    assert walk.over
    assert (walk.result().expiration, walk.result(1000.0).expiration) == (None, 1060.0)
    assert walk_with(ARK, redirect("a.example.")).result(1000.0).expiration is None, "not all is known"


def test_an_origin_that_is_known_to_exist_is_not_asked_for() -> None:
    for known in (True, False):
        walk = Walk(ARK, origin_known=known)
        walk.tell(walk.next()[0], Answer(Outcome.NXDOMAIN, ttl=60, zone=()))
        assert walk.over is known
        assert [question.rdtype for question in walk.next()] == ([] if known else [SOA])


def test_private_hosts_are_a_setting() -> None:
    assert walk_with(ARK, host(0, 0, "127.0.0.1."), settings=Settings(allow_private=True)).result().urls() == [
        "https://127.0.0.1/ark:12345/x1"
    ]


def test_the_ttl_is_the_shortest_and_an_invalid_one_counts_as_0() -> None:
    walk = walk_with(ARK, redirect("a.example."), host(0, 0, "b.example."), ttl=300)
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, [host(0, 0, "h.example.")], 2**31))
    discovery = walk.result()
    assert discovery.ttl == 0
    assert {c.host: c.ttl for c in discovery} == {"h.example": 0, "b.example": 300}
    assert discovery.expiring(1000.0).expiration == 1000.0


def test_a_candidate_makes_urls_for_other_arks_of_its_rule() -> None:
    rule = naptr('10 10 "u" "ark" "!^ark:/?12345/(x.*)$!https://h.example/\\\\1!" .')
    candidate = walk_with(ARK, rule).result()[0]
    assert candidate.url(Ark.parse("ark:12345/x2?info")) == "https://h.example/x2?info"
    with pytest.raises(Exception, match="not for ark:12345/y2"):
        candidate.url(Ark.parse("ark:12345/y2"))


@pytest.mark.parametrize(
    "name",  # the first is refused by a walk too
    [
        *("http://127.0.0.1/", "https://h.example:8443/", "https://h.example.evil.example/", "javascript:alert(1)"),
        *("http://h.example/", "x" * 4200),
    ],
)
def test_a_candidate_does_not_make_urls_at_another_place(name: str) -> None:
    rule = Substitution.parse(rb"!^ark:/?12345/(.*)$!\1!")  # which no walk uses
    candidate = Candidate(
        "h.example",
        None,
        10,
        10,
        "12345.ark.arpa.",
        target="https://h.example/",
        ark=Ark("12345", "a"),
        substitution=rule,
    )
    assert candidate.url(Ark.parse("ark:12345/https://H.example/b")) == "https://H.example/b"
    with pytest.raises(DiscoveryError, match=r"h\.example"):
        candidate.url(Ark.parse(f"ark:12345/{name}"))


@pytest.mark.parametrize(
    "replacement",
    [
        *(r"https://h.example\\1", r"https://h.example:\\1/", r"https://\\1.h.example/", r"https://\\1@h.example/"),
        *(r"https://a@\\1", r"\\1", r"http\\1", r"https:\\1", r"https://h.example\\\\\\1/"),
    ],
)
def test_a_rule_whose_host_depends_on_the_ark_is_not_used(replacement: str) -> None:
    rule = naptr(f'10 10 "u" "ark" "!^ark:/?12345/(.*)$!{replacement}!" .')
    found = walk_with(Ark.parse("ark:12345/.evil.example"), rule).result()
    assert not found.candidates
    assert "in the host of its URL" in str(found.trace[0].readings[0].reasons)


@pytest.mark.parametrize("name", ["x1", ".evil.example", "@evil.example", ":8080", "a.evil.example"])
def test_text_after_the_match_is_no_part_of_the_host(name: str) -> None:
    rule = naptr('10 10 "u" "ark" "!^ark:/?12345/!https://h.example!" .')
    found = walk_with(Ark.parse(f"ark:12345/{name}"), rule).result()
    assert not found.candidates


@pytest.mark.parametrize("replacement", [r"https://h.example/\\1", r"https://h.example?\\1", "https://h.example"])
def test_a_rule_with_a_fixed_host_is_used(replacement: str) -> None:
    rule = naptr(f'10 10 "u" "ark" "!^ark:/?12345/(.*)$!{replacement}!" .')
    (candidate,) = walk_with(Ark.parse("ark:12345/.evil.example"), rule).result()
    assert candidate.host == "h.example"


def test_the_url_of_another_ark_has_the_budget_of_a_walk() -> None:
    rule = naptr('10 10 "u" "ark" "!^(x{0,200}|.)*$!https://h.example/!" .')
    candidate = walk_with(ARK, rule).result()[0]
    with pytest.raises(DiscoveryError, match="the match takes too many steps"):
        candidate.url(Ark.parse("ark:12345/" + "x" * 8000))


def test_a_naan_too_long_for_the_origin_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="bytes"):
        Walk(ARK, Settings(origin=(b"a" * 63,) * 4))


# ---- properties over random graphs

NODES = 12
graph_names = [(b"n%d" % i, b"example") for i in range(NODES)]
ranks = st.tuples(st.integers(0, 2), st.integers(0, 2))
records = st.one_of(
    st.builds(lambda i, rank: host(rank[0], rank[1], f"h{i}.example."), st.integers(0, 9), ranks),
    st.builds(lambda n, rank: Naptr(rank[0], rank[1], b"", b"ark", b"", n), st.sampled_from(graph_names), ranks),
    st.just(Naptr(0, 0, b"s", b"ark", b"", (b"x",))),
)
said = st.one_of(st.lists(records, max_size=5), st.sampled_from([Outcome.NODATA, Outcome.SERVFAIL, Outcome.TIMEOUT]))
graphs = st.dictionaries(st.sampled_from(graph_names), said).flatmap(
    lambda rest: st.lists(records, min_size=1, max_size=5).map(lambda root: {ROOT: root, **rest})
)


def reachable(dns: Dns, depth: int) -> set[str]:
    """The hosts within a number of redirects, by breadth-first search."""
    hosts: set[str] = set()
    level: set[Labels] = {ROOT}
    seen: set[Labels] = set()
    for _ in range(depth + 1):
        seen |= level
        onward: set[Labels] = set()
        for name in level:
            found = dns.get(name, Outcome.NXDOMAIN)
            for record in [] if isinstance(found, Outcome) else found:
                if record.flags == b"h":
                    hosts.add(names.to_text(record.replacement).rstrip("."))
                elif record.flags == b"":
                    onward.add(record.replacement)
        level = onward - seen
    return hosts


@given(graphs)
def test_every_reachable_candidate_is_found(dns: Dns) -> None:
    discovery = run(ARK, dns)
    assert {candidate.host for candidate in discovery} == reachable(dns, MAX_DEPTH)
    paths = [candidate.path + ((0, 0),) * (MAX_DEPTH + 1 - len(candidate.path)) for candidate in discovery]
    assert paths == sorted(paths)
    assert discovery.best[:1] == discovery.candidates[:1]
    assert all(candidate.orders == discovery[0].orders for candidate in discovery.best)


@given(graphs, st.randoms(use_true_random=False))
def test_the_order_of_records_and_answers_does_not_matter(dns: Dns, rng: random.Random) -> None:
    mixed: Dns = {n: s if isinstance(s, Outcome) else rng.sample(s, len(s)) for n, s in dns.items()}
    assert run(ARK, dns) == run(ARK, mixed, order=rng.shuffle)


@given(graphs, st.integers(1, 6), st.integers(0, 4), st.integers(1, 3))
def test_limits_hold_and_are_on_the_trace(dns: Dns, questions: int, depth: int, candidates: int) -> None:
    settings = Settings(max_questions=questions, max_depth=depth, max_candidates=candidates)
    discovery = run(ARK, dns, settings)
    asked = [step for step in discovery.trace if step.outcome is not Outcome.LIMIT]
    assert len(asked) <= questions
    assert all(step.depth <= depth for step in asked)
    assert discovery.candidates == run(ARK, dns, settings._replace(max_candidates=64)).candidates[:candidates]
    assert discovery.complete == all(step.outcome.answered for step in discovery.trace)
    for step in discovery.trace:
        assert (step.limit is not None) is (step.outcome is Outcome.LIMIT)
        assert step.limit is not Limit.DEPTH or step.depth > depth
    assert run(ARK, dns, settings, order=lambda level: level.reverse()) == discovery


@pytest.mark.parametrize(
    "regexp",
    [r"!^ark:/?12345/(.*)$!https://u.example/\\1\\1\\1\\1\\1!", r"!^ark:/?12345/(.*)$!https://u.example/\\1\\1/!"],
    ids=["longer than a regexp may make", "longer than a URL may be"],
)
def test_a_url_that_is_too_long_is_not_replaced_by_a_record_of_a_worse_rank(regexp: str) -> None:
    """The limit makes the discovery incomplete."""
    ark = Ark.parse("ark:12345/" + "x" * 2040)
    long = naptr(f'10 10 "u" "ark" "{regexp}" .')
    found = walk_with(ark, long, host(10, 20, "lesser.example"), host(100, 10, "least.example")).result()
    assert (len(found), found.complete, found.trace[0].limit) == (0, False, Limit.URL_LENGTH)
    with pytest.raises(DiscoveryFailed, match="url_length"):
        found.url()
    others = [host(5, 50, "better.example"), host(10, 10, "equal.example"), host(10, 11, "l.example")]
    found = walk_with(ark, long, *others).result()
    assert ([candidate.host for candidate in found], found.complete) == (["better.example", "equal.example"], False)
    for fallback in ([redirect("a.example", 10, 11)], [redirect("a.example", 9, 0), long]):
        found = run(ark, {ROOT: [long, *fallback], (b"a", b"example"): [host(0, 0, "h.example")]})
        assert bool(found) == (fallback[0].order == 9)
        assert not found.complete
    short = walk_with(ARK, long, host(100, 10, "least.example")).result()
    assert (len(short), short.complete) == (2, True)


@pytest.mark.parametrize(
    ("rule", "received", "sent"),
    [
        ("h", "ark:/12345/3cb8-c2d0", "https://h.example:8443/ark:12345/3cb8-c2d0"),
        ("rest", "ark:/12345/3cb8\u2010c2d0-", "https://u.example/p/ark:/12345/3cb8-c2d0-"),
        ("query", "ark:/12-345/3cb8-c2\u00add0?info", "https://u.example/?id=ark:12345/3cb8-c2d0?info"),
        ("rest", "ark%3A%2F12345%2Fa-b%2Fc", "https://u.example/p/ark:/12345/a-b/c"),
        ("rest", "ark:/12345/x%7-d", "https://u.example/p/ark:/12345/x%7d"),  # a pair split by a hyphen stays a pair
    ],
)
def test_hyphens_are_kept_if_the_settings_say_so(rule: str, received: str, sent: str) -> None:
    """Draft 3.2 step 6 removes them; some authorities resolve an ARK only with them."""
    ark = Ark.parse(received)
    kept = run(ark, {ROOT: [naptr(RULES[rule])]}, Settings(hyphens="keep"))
    assert kept.url() == sent
    assert kept.ark == ark
    assert run(ark, {ROOT: [naptr(RULES[rule])]}).url() == (sent.replace("-", ""))


def test_a_kept_hyphen_does_not_hide_the_shoulder_of_a_rule() -> None:
    rules: Dns = {ROOT: [naptr(r'0 0 "u" "ark" "!^ark:/?12345/x5(.*)$!https://u.example/\\1!" .')]}
    assert run(Ark.parse("ark:12345/x-5a"), rules, Settings(hyphens="keep")).url() == "https://u.example/a"
    assert run(Ark.parse("ark:12345/x5-a"), rules, Settings(hyphens="keep")).url() == "https://u.example/-a"
