"""Discoveries and their parts as text: short, printable and complete."""

from __future__ import annotations

import pytest

from maptr import Ark, Candidate, Discovery, NoMappingAuthority
from maptr.discovery import Link, Outcome, Reading, Step
from maptr.naptr.record import Kind, Naptr
from maptr.walk import Answer, Walk
from tests.support.caching import ARK, HOME, SILENT, dns_answer, host, redirect


def walked(answers: dict[str, Answer]) -> Discovery:
    """The result of a walk over these answers; every other name is an NXDOMAIN."""
    walk = Walk(Ark.parse(ARK))
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
    step = Step((b"ark", b"arpa"), 0, Outcome.ANSWER, (reading,), odd, 60, "192.0.2.1#53", 0.0015, "secure", (link,))
    assert str(reading) == '+ 1 2 "h" "ark" "" h.example. (candidate h.example)'
    assert str(link) == "ark.arpa. DNSKEY: secure from 192.0.2.1#53 in 2.0 ms (?[31mred)"
    assert str(step) == "ark.arpa. NAPTR: answer, 1 records, secure from 192.0.2.1#53 in 1.5 ms (?[31mred)"
