"""Discoveries and their parts as text: short, printable and complete."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from maptr import Ark, Candidate, Discovery, NoMappingAuthority
from maptr.discovery import Link, Outcome, Reading, Step
from maptr.naptr.record import Kind, Naptr
from maptr.walk import Answer, Settings, Walk
from tests.support.caching import ARK, HOME, SILENT, dns_answer, host, redirect


def walked(answers: dict[str, Answer], *, ark: str = ARK, scheme: str = "https") -> Discovery:
    """The result of a walk over these answers; every other name is an NXDOMAIN."""
    walk = Walk(Ark.parse(ark), Settings(scheme=scheme))
    while questions := walk.next():
        for question in questions:
            walk.tell(question, answers.get(b".".join(question.name).decode() + ".", dns_answer()))
    return walk.result()


def test_a_discovery_shows_its_ark_and_its_url() -> None:
    found = walked({HOME: dns_answer(host("h.example"))})
    assert str(found) == "ark:12345/x1: https://h.example/ark:12345/x1"
    assert repr(found) == (
        "<Discovery of 'ark:12345/x1': ['https://h.example/ark:12345/x1'], complete, dns, indeterminate>"
    )
    assert f"{found[0]}" == "h.example (order 0, preference 0)"
    assert eval(repr(found[0]), {"Candidate": Candidate}) == found[0]


def test_remarks_follow_the_url() -> None:
    answers = {HOME: dns_answer(host("h.example"), redirect("other.example")), "other.example.": SILENT}
    found = walked(answers).replace(source="disk", stale=True)
    assert found.__replace__(stale=False) == found.replace(stale=False)  # copy.replace
    assert str(found) == (
        "ark:12345/x1: https://h.example/ark:12345/x1 (from disk, stale, "
        "there may be more: other.example. NAPTR: no answer in time (silence))"
    )
    assert repr(found).endswith("not complete, disk, stale, indeterminate>")


def test_the_first_of_many_candidates_are_shown() -> None:
    found = walked({HOME: dns_answer(*(host(f"h{number}.example") for number in range(64)))})
    assert str(found).endswith("(and 63 more)")
    assert "61 more" in repr(found)
    assert len(repr(found)) < 300


def test_without_a_candidate_the_reason_is_shown_and_begins_the_error() -> None:
    found = walked({})
    assert str(found) == "no mapping authority for ark:12345/x1: 12345.ark.arpa. NAPTR: no such name"
    with pytest.raises(NoMappingAuthority) as raised:
        found.raise_for_none()
    assert str(raised.value).startswith(str(found))
    assert str(Discovery(Ark.parse(ARK), complete=False, reason="the table is gone")) == (
        "no mapping authority known for ark:12345/x1: the table is gone"
    )
    assert str(walked({HOME: dns_answer(host("localhost"))})) == (
        "no mapping authority for ark:12345/x1: 12345.ark.arpa. NAPTR: answer, but none of its records leads to "
        "a mapping authority (localhost is not a public host)"
    )


def test_a_trace_has_one_line_for_each_query_record_and_link() -> None:
    odd = "\x1b[31mred"
    naptr = Naptr(1, 2, b"h", b"ark", b"", (b"h", b"example"))
    reading = Reading(naptr, Kind.HOST, True, ("candidate h.example",))
    link = Link("ark.arpa.", "DNSKEY", "secure", odd, "192.0.2.1#53", 0.002)
    asked: dict[str, Any] = {"note": odd, "ttl": 60, "server": "192.0.2.1#53", "elapsed": 0.0015, "security": "secure"}
    step = Step((b"ark", b"arpa"), 0, Outcome.ANSWER, readings=(reading,), links=(link,), **asked)
    assert str(reading) == '+ 1 2 "h" "ark" "" h.example. (candidate h.example)'
    assert str(link) == "ark.arpa. DNSKEY: secure from 192.0.2.1#53 in 2.0 ms (?[31mred)"
    assert str(step) == "ark.arpa. NAPTR: answer, 1 records, secure from 192.0.2.1#53 in 1.5 ms (?[31mred)"


def test_a_candidate_makes_the_url_of_the_ark_it_was_found_for() -> None:
    by_rule = Naptr(10, 10, b"u", b"ark", rb"!^ark:/?12345/(.*)$!http://h.example/p/\1!", ())
    for rule in (host("h.example"), host("h.example:80"), by_rule):
        found = walked({HOME: dns_answer(rule)}, scheme="http")
        assert [candidate.url() for candidate in found] == found.urls()
        assert [candidate.to_dict() for candidate in found] == found.to_dict()["candidates"]
        assert all(candidate.ark is found.ark for candidate in found)
    other = walked({HOME: dns_answer(host("h.example"))}, ark="ark:12345/x2")
    assert other[0] == walked({HOME: dns_answer(host("h.example"))})[0], "its ARK is not compared"


def test_candidates_and_steps_are_values_and_not_tuples() -> None:
    found = walked({HOME: dns_answer(host("h.example"))})
    values: list[Any] = [found[0], found.trace[0], found]
    for value in values:
        assert not isinstance(value, tuple)
        again = pickle.loads(pickle.dumps(value))
        assert (again, hash(again), repr(again)) == (value, hash(value), repr(value))
        assert value != 1
        with pytest.raises(AttributeError, match="immutable"):
            value.source = "x"
        with pytest.raises(TypeError, match="has no other"):
            value.replace(other=1)
    assert found[0].replace(ttl=7) == found[0]
    assert found[0].replace(port=7) != found[0]
