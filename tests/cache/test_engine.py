"""Which source answers, what a failure costs, and what each discovery says about it."""

from __future__ import annotations

from pathlib import Path

import dns.exception
import dns.resolver
import pytest

from maptr.ark import Ark
from maptr.cache.engine import OVERHEAD
from maptr.cache.table import TableReader
from maptr.discovery import DiscoveryFailed, NoMappingAuthority, Outcome
from maptr.registry.followed_file import TableState, WatchedTable
from maptr.registry.table import Entry, Table
from maptr.walk import DEFAULTS, Answer
from tests.support.caching import ARK, HOME, ONE_HOST, SILENT, Rig, dns_answer, host, redirect, table


def test_a_fresh_answer_is_given_without_reading_the_table(tmp_path: Path) -> None:
    (tmp_path / "natab").write_text("12345:\n    t.example.org  ACR\n")
    Rig(ONE_HOST, path=tmp_path / "c").sources.discover(ARK)
    for policy, reads in (("dns-first", False), ("dns-only", False), ("natab-first", True)):
        rig = Rig(ONE_HOST, tmp_path / "natab", policy, path=tmp_path / "c")
        rig.sources.discover(ARK)
        assert isinstance(rig.sources.engine.table, WatchedTable)
        assert rig.sources.engine.table.is_read is reads


def test_within_a_second_the_same_discovery_is_handed_out() -> None:
    rig = Rig(ONE_HOST)
    rig.sources.discover(ARK)
    rig.pass_time(10)
    kept = rig.sources.discover(ARK)
    assert rig.sources.discover(ARK) is kept
    rig.pass_time(1)
    assert rig.sources.discover(ARK).ttl == 289


def seconds_to_wait(rig: Rig) -> float:
    """How long a caller waits for DNS while a table has the record."""
    return next(rig.sources.engine.discover(Ark.parse(ARK), 5.0)).seconds


def test_a_caller_waits_for_the_rest_of_the_patience() -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example")), patience=1.0)
    assert seconds_to_wait(rig) == pytest.approx(1.0 - OVERHEAD)
    rig.pass_time(0.25)
    assert seconds_to_wait(rig) == pytest.approx(0.75 - OVERHEAD)
    rig.pass_time(1.0)
    assert seconds_to_wait(rig) == 0.0


def test_a_name_that_failed_is_asked_again_without_a_wait() -> None:
    rig = Rig({HOME: Answer(Outcome.SERVFAIL)}, table(("12345", "t.example")))
    rig.sources.discover(ARK)
    rig.pass_time(3600)
    assert seconds_to_wait(rig) == 0.0


def test_the_error_of_a_failed_query_is_reported_once() -> None:
    rig = Rig({HOME: Answer(Outcome.UNREACHABLE, note="192.0.2.1#53: Connection refused")})
    with pytest.raises(DiscoveryFailed, match=r"NAPTR: server unreachable \(192\.0\.2\.1#53: Connection refused\)$"):
        rig.sources.discover(ARK)


def test_after_three_failures_one_caller_at_a_time_asks_the_server() -> None:
    rig = Rig({f"{naan}.ark.arpa.": SILENT for naan in range(1000, 1100)})
    for naan in range(1000, 1100):
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover(f"ark:{naan}/x")
    assert rig.dns.calls == 3
    rig.dns.answers["1000.ark.arpa."] = dns_answer(host("h.example."))
    rig.pass_time(2)
    assert rig.sources.discover("ark:1000/x")[0].host == "h.example"
    rig.dns.answers["1050.ark.arpa."] = dns_answer(host("h.example."))
    assert rig.sources.discover("ark:1050/x")[0].host == "h.example"


@pytest.mark.parametrize("outcome", [one for one in Outcome if not one.answered])
def test_failures_that_may_be_of_one_delegation_keep_no_other_name_from_being_asked(outcome: Outcome) -> None:
    rig = Rig(ONE_HOST | {f"{naan}.ark.arpa.": Answer(outcome) for naan in range(1000, 1010)})
    for naan in range(1000, 1010):
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover(f"ark:{naan}/x")
    if outcome in (Outcome.TIMEOUT, Outcome.UNREACHABLE, Outcome.REFUSED, Outcome.NO_ORIGIN):
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover(ARK)
    else:
        assert rig.sources.discover(ARK)


def test_a_silent_dns_is_waited_for_once_and_again_after_it_has_answered() -> None:
    naans = [str(naan) for naan in range(1000, 1020)]
    rig = Rig(ONE_HOST, table(*[(naan, "t.example") for naan in naans]), patience=0.1)
    waits = []
    for naan in naans:
        steps = rig.sources.engine.discover(Ark(naan, "x"), 5.0)
        waits += [wait.seconds > 0 for wait in steps]
        if naan == "1009":
            rig.pass_time(60)
            assert rig.sources.discover(ARK)
    assert waits[:2] == [True, False]
    assert waits.count(True) == 2


@pytest.mark.parametrize("naan", ["12345", None])
def test_what_was_forgotten_is_asked_again_even_if_it_has_just_failed(naan: str | None) -> None:
    rig = Rig({HOME: SILENT, "1000.ark.arpa.": SILENT, "1001.ark.arpa.": SILENT})
    for ark in (ARK, "ark:1000/x", "ark:1001/x"):
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover(ark)
    rig.dns.answers = {name: dns_answer(host("h.example.")) for name in rig.dns.answers}
    rig.sources.forget(naan)
    assert rig.sources.discover(ARK)
    if naan is None:
        assert rig.sources.discover("ark:1000/x")
    rig.dns.answers = {}
    rig.sources.forget(naan)
    with pytest.raises(NoMappingAuthority):
        rig.sources.discover(ARK)


def test_rfc9520_3_2_a_name_that_fails_is_asked_with_growing_pauses() -> None:
    rig = Rig({HOME: Answer(Outcome.SERVFAIL), "1000.ark.arpa.": dns_answer(host("h.example."), ttl=0)})
    tries = []
    for _ in range(600):
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover(ARK)
        assert rig.sources.discover("ark:1000/x")
        tries.append(rig.dns.asked.count(HOME))
        rig.pass_time(0.1)
    assert tries[4] == 1
    assert 4 <= tries[-1] <= 12


def test_an_incomplete_discovery_with_candidates_is_given_and_completed_later() -> None:
    rig = Rig({HOME: dns_answer(redirect("dead.example."), host("h.example.", 5)), "dead.example.": SILENT})
    for _ in range(3):
        found = rig.sources.discover(ARK)
        assert (found[0].host, found.complete, found.ttl) == ("h.example", False, None)
    assert rig.dns.asked.count(HOME) == 1
    rig.dns.answers["dead.example."] = dns_answer(host("a.example."))
    rig.pass_time(2)
    assert [c.host for c in rig.sources.discover(ARK)] == ["a.example", "h.example"]


@pytest.mark.parametrize(
    "error", [dns.resolver.NoResolverConfiguration, OSError, dns.exception.Timeout, ZeroDivisionError]
)
def test_an_error_of_the_dns_client_means_that_dns_did_not_say_and_any_other_is_raised(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(ONE_HOST, table(("1000", "t.example")))
    rig.dns.error = error()
    for _ in range(2):
        with pytest.raises(error if error is ZeroDivisionError else DiscoveryFailed):
            rig.sources.discover(ARK)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * (error is ZeroDivisionError)
    if error is not ZeroDivisionError:
        assert rig.sources.discover("ark:1000/x").source == "natab"
        rig.pass_time(60)
    rig.dns.error = None
    assert rig.sources.discover(ARK)[0].host == "h.example"


def test_a_thread_that_reads_the_old_table_does_not_affect_the_new_one() -> None:
    reader = TableReader()
    ark = Ark.parse(ARK)

    def where(table: Table) -> str:
        _, found = reader.read(ark, DEFAULTS, TableState(table), too_old=False)
        assert found is not None
        return found.candidates[0].host

    class Overtaken(Table):
        """Another thread reads the new table while this one is read."""

        def shoulders(self, naan: str) -> list[Entry]:
            assert where(new) == "new.example"
            return super().shoulders(naan)

    new = table(("12345", "new.example"), ("23456", "new.example"))
    old = Overtaken(table(("12345", "old.example")).values())
    reader.read(Ark.parse("ark:23456/x"), DEFAULTS, TableState(new), too_old=False)
    assert where(old) == "old.example"
    assert where(new) == "new.example"
