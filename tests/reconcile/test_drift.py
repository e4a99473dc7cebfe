"""Drift verdicts: what the table says about a record compared with what DNS says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.cache.disk import Disk
from maptr.cache.store import replay
from maptr.client import Client
from maptr.discovery import Discovery, Outcome
from maptr.naptr.record import Naptr, read
from maptr.reconcile.drift import MAX_STATES, VerdictLog, compare, probe_of, reconcile, shoulders_in_dns
from maptr.reconcile.verdict import Drift, PastVerdict, Urls, Verdict
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Answer, Settings
from tests.support.caching import Clock, Rig, dns_answer, host, redirect
from tests.support.entries import records
from tests.support.hostile import hostile, hosts, reply


def entry(key: str, *targets: str, where: str = "") -> Entry:
    naan, _, shoulder = key.partition("/")
    return Entry(naan, shoulder, tuple(Nma(target, where or target) for target in targets))


def dns_of(*rules: Naptr, outcome: Outcome | None = None) -> Callable[[Ark], Discovery]:
    answer = dns_answer(*rules) if outcome is None else Answer(outcome, note="its certificate is refused")

    def discover(ark: Ark) -> Discovery:
        walk = replay(ark, Settings(), lambda name: answer, reader=read)
        assert walk is not None
        return walk.result()

    return discover


def verdicts(
    table: Table, discover: Callable[[Ark], Discovery], histories: dict[str, list[PastVerdict]] | None = None
) -> dict[str, str]:
    naan = next(iter(table), "12345").partition("/")[0]
    return {drift.record: str(drift.verdict) for drift in reconcile(naan, table, discover, histories or {})}


def past(table: Urls = (), dns: Urls = ()) -> PastVerdict:
    return PastVerdict(0.0, Verdict.SAME, "", table, dns)


WHOLE = entry("12345", "https://h.example:8443/p/ark:/${content}")
X6 = entry("12345/x6", "https://x6.example/${suffix}")
Z = entry("12345/z", "https://z.example/${suffix}")
LIKE = entry("12345/x6", "https://h.example:8443/p/ark:/${content}")
NATAB = entry("12345", "https://h.example:8443/ark:/${content}", where="h.example:8443")
JSON = entry("12345", "https://h.example:8443/ark:/${content}", where="https://h.example:8443/ark:/${content}")
UPPER = entry("12345", "HTTPS://H.Example:8443/p/ark:/${content}")
UPPER_PATH = entry("12345", "https://h.example:8443/P/ark:/${content}")
PRIVATE = entry("12345", "http://10.0.0.1/ark:/${content}")
HIDDEN = entry("12345/x6", "http://10.0.0.1/${content}")
A_B, B_A = (entry("12345", *(f"https://{host}.example/ark:/${{content}}" for host in order)) for order in ("ab", "ba"))


HOSTS = [rule for rule in records(WHOLE) if rule.flags == b"h"]
BOTH_SAME = {"12345": "same", "12345/x6": "same"}
CASES: dict[str, tuple[list[Entry], Sequence[Naptr], dict[str, str]]] = {
    "a record and its rules": ([WHOLE, X6], records(WHOLE, [X6]), BOTH_SAME),
    "h records alone": ([WHOLE], HOSTS, {"12345": "lossy"}),
    "another host": ([WHOLE], [host("other.example.")], {"12345": "differs"}),
    "a natab": ([NATAB], records(WHOLE), {"12345": "lossy"}),
    "the same in JSON": ([JSON], records(WHOLE), {"12345": "differs"}),
    "only in the table": ([WHOLE], [], {"12345": "missing"}),
    "only in DNS": ([], records(WHOLE), {"12345": "extra"}),
    "a shoulder only in DNS": ([WHOLE], records(WHOLE, [X6]), {"12345": "same", "12345/x6": "extra"}),
    "a shoulder only in the table": ([WHOLE, X6], records(WHOLE), {"12345": "same", "12345/x6": "differs"}),
    "a shoulder without its NAAN": ([X6], records(Entry("12345"), [X6]), {"12345/x6": "same"}),
    "a rule with the URLs of its NAAN": ([WHOLE], [*records(LIKE), *records(WHOLE)], {"12345": "same"}),
    "a record with the URLs of its NAAN": ([WHOLE, LIKE], records(WHOLE, [LIKE]), BOTH_SAME),
    "a record that cannot be published": ([PRIVATE], [], {"12345": "lossy"}),
    "such a record with another in DNS": ([PRIVATE], [host("h.example.")], {"12345": "differs"}),
    "two mapping authorities": ([A_B], records(A_B), {"12345": "same"}),
    "two in another order": ([A_B], records(B_A), {"12345": "differs"}),
    "scheme and host in upper case": ([UPPER], records(WHOLE), {"12345": "same"}),
    "a path in upper case": ([UPPER_PATH], HOSTS, {"12345": "lossy"}),
    "such a path in a u rule": ([UPPER_PATH], records(WHOLE), {"12345": "differs"}),
    "shoulders that a natab cannot have": ([NATAB], records(WHOLE, [X6]), {"12345": "lossy"}),
    "a probe that is one of a shoulder in DNS": ([WHOLE], records(WHOLE, [Z]), {"12345": "same", "12345/z": "extra"}),
    "another port": ([NATAB], [host("h.example.")], {"12345": "differs"}),
    "neither side": ([], [], {"12345": "same"}),
    "a NAAN and a shoulder, only in DNS": ([], records(WHOLE, [X6]), {"12345": "extra", "12345/x6": "extra"}),
    "a shoulder that is not published": ([WHOLE, HIDDEN], records(WHOLE), {"12345": "same", "12345/x6": "unpublished"}),
}


@pytest.mark.parametrize(("entries", "rules", "expected"), CASES.values(), ids=CASES)
def test_verdicts(entries: list[Entry], rules: Sequence[Naptr], expected: dict[str, str]) -> None:
    assert verdicts(Table(entries), dns_of(*rules)) == expected


REASONS: dict[str, tuple[Entry | None, Sequence[Naptr], str]] = {
    "h records alone": (WHOLE, HOSTS, "DNS says no more than the hosts"),
    "a natab": (NATAB, records(WHOLE), "the table says no more than the hosts"),
    "two in another order": (A_B, records(B_A), "the same URLs in another order"),
    "another host": (
        WHOLE,
        [host("other.example.")],
        "the table gives https://h.example:8443/p/ark:/12345/zzz, DNS https://other.example/ark:12345/zzz",
    ),
    "only in the table": (WHOLE, [], "the table gives https://h.example:8443/p/ark:/12345/zzz, DNS says none"),
    "only in DNS": (None, HOSTS, "DNS gives https://h.example:8443/ark:12345/zzz, the table has no such record"),
    "no side": (None, [], "neither side has it"),
    "a shoulder that cannot be published": (
        HIDDEN,
        records(WHOLE),
        "no zone can hold it (10.0.0.1 is not a public host: http://10.0.0.1/${content}),"
        " DNS gives https://h.example:8443/p/ark:/12345/zzz",
    ),
    "a private host": (PRIVATE, [], "the table's record has no URL that can be published"),
    "a private host and another": (PRIVATE, HOSTS, "the table gives nothing, DNS https://h.example:8443/ark:12345/zzz"),
}


@pytest.mark.parametrize(("entry", "rules", "reason"), REASONS.values(), ids=REASONS)
def test_a_verdict_has_a_reason(entry: Entry | None, rules: Sequence[Naptr], reason: str) -> None:
    probe = probe_of("12345", "", ())
    drift = compare("12345", entry, probe, dns_of(*rules)(probe))
    assert drift.reason == reason
    assert str(drift) == f"{drift.verdict} 12345: {reason}"
    assert drift.verdict.is_drift is (drift.verdict not in ("same", "lossy"))


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.SERVFAIL, Outcome.REFUSED, Outcome.UNREACHABLE])
@pytest.mark.parametrize("entries", [[WHOLE, X6], [X6]], ids=["NAAN and shoulder", "shoulder"])
def test_without_a_complete_answer_the_verdict_is_unknown(outcome: Outcome, entries: list[Entry]) -> None:
    found = list(reconcile("12345", Table(entries), dns_of(outcome=outcome), {}))
    assert [(drift.record, drift.verdict) for drift in found] == [("12345", "unknown"), ("12345/x6", "unknown")]
    assert {drift.reason for drift in found} == {f"12345.ark.arpa. NAPTR: {outcome.value} (its certificate is refused)"}
    assert not Verdict.UNKNOWN.is_drift


def test_an_answer_that_may_not_be_all_is_unknown() -> None:
    probe = probe_of("12345", "", ())
    found = dns_of(*records(WHOLE))(probe).replace(complete=False)
    drift = compare("12345", WHOLE, probe, found)
    assert (drift.verdict, drift.reason) == ("unknown", "the walk was cut short")
    found = dns_of(*records(WHOLE, [X6]))(probe).replace(complete=False)
    assert set(verdicts(Table([WHOLE]), lambda ark: found.replace(ark=ark)).values()) == {"unknown"}


def test_a_stale_answer_says_nothing_of_the_present() -> None:
    rig = Rig({"12345.ark.arpa.": dns_answer(*records(WHOLE))}, Table([WHOLE]))
    assert [drift.verdict for drift in rig.drift("12345")] == ["same"]
    rig.pass_time(1000)
    rig.dns.answers["12345.ark.arpa."] = Answer(Outcome.TIMEOUT)
    assert [drift.verdict for drift in rig.drift("12345")] == ["unknown"]


def test_records_behind_a_redirect_are_not_those_of_the_naan() -> None:
    answers = {
        (b"12345", b"ark", b"arpa"): dns_answer(redirect("next.example")),
        (b"next", b"example"): dns_answer(*records(X6)),
    }

    def discover(ark: Ark) -> Discovery:
        walk = replay(ark, Settings(), answers.get, reader=read)
        assert walk is not None
        return walk.result()

    assert shoulders_in_dns(discover(probe_of("12345", "", ()))) == set()
    (drift,) = reconcile("12345", Table([WHOLE]), discover, {})
    assert drift.records == ('0 0 "" "ark" "" next.example.',)


def test_an_older_state_of_the_other_side_is_stale() -> None:
    old = entry("12345", "https://old.example/ark:/${content}")
    probe = probe_of("12345", "", ())
    was = (old.urls(probe)[0],)
    assert verdicts(Table([WHOLE]), dns_of(*records(old)), {"12345": [past(table=was)]}) == {"12345": "stale"}
    assert verdicts(Table([old]), dns_of(*records(WHOLE)), {"12345": [past(dns=was)]}) == {"12345": "stale"}
    assert verdicts(Table(), dns_of(*records(old)), {"12345": [past(table=was)]}) == {"12345": "stale"}
    now = (*WHOLE.urls(probe),)
    for history in ([past(table=was)], [past(table=one, dns=one) for one in (now, was, now)]):
        assert verdicts(Table([WHOLE]), dns_of(*records(WHOLE)), {"12345": history}) == {"12345": "same"}


def test_an_older_state_of_a_shoulder_that_cannot_be_published_is_not_stale() -> None:
    probe = probe_of("12345", "x6", ())
    was = {"12345/x6": [past(table=(*WHOLE.urls(probe),), dns=(*WHOLE.urls(probe),))]}
    found = verdicts(Table([WHOLE, HIDDEN]), dns_of(*records(WHOLE)), was)
    assert found == {"12345": "same", "12345/x6": "unpublished"}


def test_a_silent_server_is_asked_once_about_a_naan_and_a_kept_answer_not_again() -> None:
    table = Table([WHOLE, X6, entry("12345/b2", "https://b2.example/${suffix}")])
    with hostile(lambda query, transport: [reply(query, rcode=2)]) as server:
        with Client(table=table, nameservers=[server.name]) as client:
            (found,) = client.drift_many(["12345"])
            silent = len(server.queries)
            assert {drift.verdict for drift in found} == {"unknown"}
            assert len(found) == 3
        server.queries.clear()
        with Client(table=Table([WHOLE]), nameservers=[server.name]) as client:
            list(client.drift_many(["12345"]))
            assert len(server.queries) == silent
        server.script = hosts(
            {"12345.ark.arpa.": [rule.to_wire() for rule in records(WHOLE, list(table.shoulders("12345")))]}
        )
        with Client(table=table, nameservers=[server.name]) as client:
            server.queries.clear()
            for _ in range(2):
                (found,) = client.drift_many(["12345"])
                assert {drift.verdict for drift in found} == {"same"}
            assert len(server.queries) == 1
        with Client(table=table, nameservers=[server.name], lifetime=0) as client:
            (found,) = client.drift_many(["12345"])
            assert {drift.verdict for drift in found} == {"unknown"}


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
    assert shoulders_in_dns(discover(probe_of("12345", "", shoulders))) == shoulders
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
    assert [one.dns for one in log.changes("")["12345"]] == [("b",), (), ("a",)]
    found = [(one.at, str(one.verdict), one.reason) for one in log.changes("")["12345"]]
    assert found == rows[::-1]
    assert log.changes("another view") == {}
    disk.run(lambda connection: connection.execute("UPDATE verdict SET verdict = 'of another release' WHERE at = 1000"))
    assert len(log.changes("")["12345"]) == 2
    for number in range(2 * MAX_STATES):
        log.record("", [Drift("12345", Verdict.DIFFERS, "p", (str(number),))])
    kept = [one.table for one in log.changes("")["12345"]]
    assert kept == [(str(number),) for number in reversed(range(MAX_STATES, 2 * MAX_STATES))]


def test_the_serial_of_the_zone_is_asked(at: str, sample: Path) -> None:
    (serial,) = re.findall(r"SOA \S+ \S+ (\d+)", sample.with_name("ark.arpa.zone").read_text())
    with Client(nameservers=[at.removeprefix("@")]) as client:
        assert client.resolver.serial() == int(serial)
    with Client(nameservers=["127.0.0.1#9"], lifetime=0.2) as client:
        assert client.resolver.serial() is None
