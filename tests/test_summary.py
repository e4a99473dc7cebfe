"""What ``str()`` and ``repr()`` of the results say: short, printable, true, and never an error."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import pytest

from maptr import Ark, Cache, Candidate, Discovery, NoMappingAuthority, Stub, Validator
from maptr.cache.disk import Disk
from maptr.discovery import Link, Outcome, Reading, Step
from maptr.naptr.record import Kind, Naptr
from maptr.walk import Answer, Settings, Walk
from tests.client.validation.test_chain import validator
from tests.support.caching import ARK, HOME, SILENT, Rig, host, redirect, said, table


def walked(answers: dict[str, Answer], ark: str = ARK) -> Discovery:
    return Rig(answers).dns._walk(Ark.parse(ark), Settings())


def test_a_discovery_is_its_ark_and_its_url() -> None:
    found = walked({HOME: said(host("h.example"))})
    assert str(found) == "ark:12345/x1: https://h.example/ark:12345/x1"
    assert repr(found) == (
        "<Discovery of 'ark:12345/x1': ['https://h.example/ark:12345/x1'], complete, dns, indeterminate>"
    )
    assert f"{found[0]}" == "h.example (order 0, preference 0)"
    assert eval(repr(found[0]), {"Candidate": Candidate}) == found[0]


def test_what_is_to_be_minded_is_told_behind_the_url() -> None:
    answers = {HOME: said(host("h.example"), redirect("other.example")), "other.example.": SILENT}
    walk = Walk(Ark.parse(ARK), Settings())
    while questions := walk.next():
        for question in questions:
            walk.tell(question, answers.get(".".join(map(bytes.decode, question.name)) + ".", SILENT))
    found = walk.result().replace(source="disk", stale=True)
    assert str(found) == (
        "ark:12345/x1: https://h.example/ark:12345/x1 (from disk, stale, "
        "this may not be all: other.example. NAPTR: no answer in time (silence))"
    )
    assert repr(found).endswith("not complete, disk, stale, indeterminate>")


def test_of_many_candidates_a_few_are_shown() -> None:
    found = walked({HOME: said(*(host(f"h{number}.example") for number in range(64)))})
    assert str(found).endswith("(and 63 more)")
    assert "61 more" in repr(found)
    assert len(repr(found)) < 300


def test_none_says_why_and_is_the_beginning_of_the_error() -> None:
    found = walked({})
    assert str(found) == "no mapping authority for ark:12345/x1: 12345.ark.arpa. NAPTR: no such name"
    with pytest.raises(NoMappingAuthority) as raised:
        found.raise_for_none()
    assert str(raised.value).startswith(str(found))
    assert str(Discovery(Ark.parse(ARK), complete=False, reason="the table is gone")) == (
        "no mapping authority known for ark:12345/x1: the table is gone"
    )


def test_a_trace_is_a_line_for_each_question_record_and_link() -> None:
    odd = "\x1b[31mred"
    naptr = Naptr(1, 2, b"h", b"ark", b"", (b"h", b"example"))
    reading = Reading(naptr, Kind.HOST, True, ("candidate h.example",))
    link = Link("ark.arpa.", "DNSKEY", "secure", odd, "192.0.2.1#53", 0.002)
    step = Step((b"ark", b"arpa"), 0, Outcome.ANSWER, (reading,), odd, 60, "192.0.2.1#53", 0.0015, "secure", (link,))
    assert str(reading) == '+ 1 2 "h" "ark" "" h.example. (candidate h.example)'
    assert str(link) == "ark.arpa. DNSKEY: secure from 192.0.2.1#53 in 2.0 ms (?[31mred)"
    assert str(step) == "ark.arpa. NAPTR: answer, 1 records, secure from 192.0.2.1#53 in 1.5 ms (?[31mred)"


def test_what_asks_and_keeps_says_whom_and_where(tmp_path: Path) -> None:
    assert repr(Stub(["192.0.2.1", "::1#5300"])) == "<Stub of 192.0.2.1#53, ::1#5300>"
    assert repr(Validator(validator().trust.anchors)) == "<Validator from arpa.>"
    natab, kept = tmp_path / "natab", tmp_path / "c"
    natab.touch()
    assert repr(Cache()) == "<Cache dns-first, no table, no disk>"
    assert repr(Cache(natab, kept)) == f"<Cache dns-first, <table {str(natab)!r}>, <disk {str(kept)!r}>>"
    assert repr(Cache(table(("12345", "t.example")))) == "<Cache dns-first, <Table of 1 NAANs, 0 shoulders>, no disk>"


def test_a_disk_and_a_cache_are_closed_by_with(tmp_path: Path) -> None:
    journal = tmp_path / "c-wal"

    async def main() -> None:
        async with Rig({HOME: said(host("h.example"))}, path=tmp_path / "c").cache as cache:
            assert (await cache.discover_async(ARK)).source == "dns"
            assert journal.exists()
        assert not journal.exists(), "SQLite removes it when the file is closed"

    asyncio.run(main())
    with closing(Disk(tmp_path / "c", wall=lambda: 0.0)) as disk:
        assert disk.can_write()
        assert journal.exists()
    assert not journal.exists()


def test_an_async_cache_that_is_closed_leaves_no_question_behind() -> None:
    async def main() -> tuple[str, int]:
        rig = Rig({HOME: said(host("h.example"))}, table(("12345", "t.example")), patience=0.01)
        rig.dns.gate = threading.Event()  # DNS never says a word
        async with rig.cache as cache:
            source = (await cache.discover_async(ARK)).source
            assert len(asyncio.all_tasks()) == 2
        return source, len(asyncio.all_tasks())

    assert asyncio.run(main()) == ("natab", 1)
