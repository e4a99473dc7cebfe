"""Drift verdicts: what the table says of a record compared with what DNS says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.cache.disk import Disk
from maptr.cache.drift import Drift, History, Verdict, VerdictLog, compare, probe_of, reconcile, said_shoulders
from maptr.cache.store import replay
from maptr.discovery import Discovery, Outcome
from maptr.naptr.record import Naptr
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Answer, Settings
from maptr.zone.rules import records
from tests.support.caching import Clock, host, said


def entry(key: str, *targets: str, where: str = "") -> Entry:
    naan, _, shoulder = key.partition("/")
    return Entry(naan, shoulder, tuple(Nma(target, where or target) for target in targets))


def dns_of(*rules: Naptr, outcome: Outcome | None = None) -> object:
    answer = said(*rules) if outcome is None else Answer(outcome)

    def discover(ark: Ark) -> Discovery:
        found = replay(ark, Settings(), lambda name: answer)
        assert found is not None
        return found

    return discover


def verdicts(table: Table, discover: object, history: dict[str, History] | None = None) -> dict[str, str]:
    assert callable(discover)
    naan = next(iter(table), "12345").partition("/")[0]
    found = reconcile(naan, table, discover, lambda record: (history or {}).get(record, History()))
    return {drift.record: str(drift.verdict) for drift in found}


WHOLE = entry("12345", "https://h.example:8443/p/ark:/${content}")


X6 = entry("12345/x6", "https://x6.example/${suffix}")


def test_a_record_and_the_rules_made_of_it_are_the_same() -> None:
    table = Table([WHOLE, X6])
    assert verdicts(table, dns_of(*records(WHOLE, [X6]))) == {"12345": "same", "12345/x6": "same"}


def test_h_records_alone_are_lossy() -> None:
    hosts = [rule for rule in records(WHOLE) if rule.flags == b"h"]
    assert verdicts(Table([WHOLE]), dns_of(*hosts)) == {"12345": "lossy"}
    assert verdicts(Table([WHOLE]), dns_of(host("other.example."))) == {"12345": "differs"}


def test_a_natab_is_lossy() -> None:
    natab = entry("12345", "https://h.example:8443/ark:/${content}", where="h.example:8443")
    assert verdicts(Table([natab]), dns_of(*records(WHOLE))) == {"12345": "lossy"}
    json = entry("12345", "https://h.example:8443/ark:/${content}", where="https://h.example:8443/ark:/${content}")
    assert verdicts(Table([json]), dns_of(*records(WHOLE))) == {"12345": "differs"}


def test_a_record_that_only_one_side_has() -> None:
    assert verdicts(Table([WHOLE]), dns_of()) == {"12345": "missing"}
    assert verdicts(Table(), dns_of(*records(WHOLE))) == {"12345": "extra"}
    assert verdicts(Table([WHOLE]), dns_of(*records(WHOLE, [X6]))) == {"12345": "same", "12345/x6": "extra"}
    assert verdicts(Table([WHOLE, X6]), dns_of(*records(WHOLE))) == {"12345": "same", "12345/x6": "differs"}
    assert verdicts(Table([X6]), dns_of(*records(Entry("12345"), [X6]))) == {"12345/x6": "same"}


def test_a_shoulder_with_the_urls_of_its_naan_is_the_same() -> None:
    like = entry("12345/x6", "https://h.example:8443/p/ark:/${content}")
    own_rule = [*records(entry("12345/x6", "https://h.example:8443/p/ark:/${content}")), *records(WHOLE)]
    assert verdicts(Table([WHOLE]), dns_of(*own_rule)) == {"12345": "same"}
    assert verdicts(Table([WHOLE, like]), dns_of(*records(WHOLE, [like]))) == {"12345": "same", "12345/x6": "same"}


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.SERVFAIL, Outcome.REFUSED, Outcome.UNREACHABLE])
def test_if_dns_did_not_say_the_verdict_is_unknown(outcome: Outcome) -> None:
    found = verdicts(Table([WHOLE, X6]), dns_of(outcome=outcome))
    assert set(found.values()) == {"unknown"}
    assert not Verdict.UNKNOWN.is_drift


def test_an_older_state_of_the_other_side_is_stale() -> None:
    old = entry("12345", "https://old.example/ark:/${content}")
    probe = probe_of("12345", "", ())
    was = (old.urls(probe)[0],)
    assert verdicts(Table([WHOLE]), dns_of(*records(old)), {"12345": History(table=[was])}) == {"12345": "stale"}
    assert verdicts(Table([old]), dns_of(*records(WHOLE)), {"12345": History(dns=[was])}) == {"12345": "stale"}
    assert verdicts(Table(), dns_of(*records(old)), {"12345": History(table=[was])}) == {"12345": "stale"}
    assert verdicts(Table([WHOLE]), dns_of(*records(WHOLE)), {"12345": History(table=[was])}) == {"12345": "same"}


def test_a_record_that_cannot_be_published_is_lossy_not_missing() -> None:
    private = entry("12345", "http://10.0.0.1/ark:/${content}")
    assert verdicts(Table([private]), dns_of()) == {"12345": "lossy"}
    assert verdicts(Table([private]), dns_of(host("h.example."))) == {"12345": "differs"}


def test_the_order_of_mapping_authorities_counts() -> None:
    one, other = "https://a.example/ark:/${content}", "https://b.example/ark:/${content}"
    table = Table([entry("12345", one, other)])
    assert verdicts(table, dns_of(*records(entry("12345", other, one)))) == {"12345": "differs"}
    assert verdicts(table, dns_of(*records(entry("12345", one, other)))) == {"12345": "same"}


def test_a_verdict_has_the_evidence_of_both_sides_and_prints_on_one_line() -> None:
    probe = probe_of("12345", "", ())
    discover = dns_of(*records(entry("12345", "https://other.example/ark:/${content}")))
    assert callable(discover)
    drift = compare("12345", WHOLE, probe, discover(probe))
    assert drift.table == (f"https://h.example:8443/p/ark:/12345/{probe.name}",)
    assert drift.dns == (f"https://other.example/ark:/12345/{probe.name}",)
    assert drift.records[0].startswith("10 10 ")
    assert "\n" not in str(drift)
    assert drift.to_dict()["verdict"] == "differs"


SHOULDERS = st.sets(st.text("abz0123=.", min_size=1, max_size=4), max_size=6)


@given(SHOULDERS)
def test_a_probe_belongs_to_its_record_and_not_to_a_longer_shoulder(shoulders: set[str]) -> None:
    entries = [entry(f"12345/{shoulder}", "https://s.example/${suffix}") for shoulder in shoulders]
    table = Table([WHOLE, *entries])
    for record in (WHOLE, *entries):
        assert table.lookup(probe_of("12345", record.shoulder, shoulders)) == record


@given(SHOULDERS)
def test_every_shoulder_that_needs_a_rule_is_read_back_from_the_rules(shoulders: set[str]) -> None:
    entries = [
        entry(f"12345/{shoulder}", f"https://s{number}.example/${{{kind}}}")
        for number, shoulder in enumerate(sorted(shoulders))
        for kind in [("suffix", "content", "pid", "value")[number % 4]]
    ]
    discover = dns_of(*records(WHOLE, entries))
    assert callable(discover)
    assert said_shoulders(discover(probe_of("12345", "", shoulders))) == shoulders
    assert set(verdicts(Table([WHOLE, *entries]), discover).values()) == {"same"}


def test_the_history_of_verdicts_holds_changes_only(tmp_path: Path) -> None:
    now = Clock(1000.0)
    disk = Disk(tmp_path / "c", wall=now)
    log = VerdictLog(disk)
    states = [("same", ("a",), ("a",)), ("same", ("a",), ("a",)), ("missing", ("a",), ()), ("differs", ("a",), ("b",))]
    for verdict, in_table, in_dns in states:
        assert log.record("", [Drift("12345", Verdict(verdict), "p", in_table, in_dns, "why")])
        now.now += 1
    rows = disk.run(lambda connection: connection.execute("SELECT at, verdict, reason FROM verdict").fetchall())
    assert rows == [(1000.0, "same", "why"), (1002.0, "missing", "why"), (1003.0, "differs", "why")]
    assert list(log.histories("")["12345"].dns) == [("b",), (), ("a",)]
    assert log.histories("another view") == {}
