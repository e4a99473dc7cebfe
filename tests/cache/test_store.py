"""How long answers are cached, and the discoveries made from cached answers."""

from __future__ import annotations

import pytest

from maptr.ark import Ark
from maptr.cache import STALE_LIMIT
from maptr.cache.store import MAX_KEEP, MAX_NEGATIVE, STALE_TTL, LruDict, Replay
from maptr.discovery import DiscoveryFailed, NoMappingAuthority, Outcome
from maptr.naptr.record import Naptr
from maptr.resolver.call import Options
from maptr.walk import DEFAULTS, MAX_RECORDS, Answer
from tests.support.caching import ARK, HOME, ONE_HOST, SILENT, ZONE, Rig, dns_answer, host, redirect, shoulder_redirect


def test_the_second_answer_comes_from_memory_with_the_remaining_ttl() -> None:
    rig = Rig(ONE_HOST)
    first = rig.sources.discover(ARK)
    rig.pass_time(100)
    second = rig.sources.discover(ARK)
    assert (first.source, first.ttl, first.age_at(rig.wall())) == ("dns", 300, 100)
    assert (second.source, second.ttl, second.age_at(rig.wall())) == ("memory", 200, 100)
    assert second.expiration == rig.wall() + 200
    assert first.candidates == second.candidates
    assert rig.dns.asked == [HOME]


def test_one_query_serves_every_ark_of_a_naan() -> None:
    rig = Rig(ONE_HOST)
    urls = [rig.sources.discover(f"ark:12345/x{number}?info").url() for number in range(5)]
    assert urls == [f"https://h.example/ark:12345/x{number}?info" for number in range(5)]
    assert rig.dns.asked == [HOME]


def test_nxdomain_is_not_kept_while_the_origin_is_not_known_to_exist() -> None:
    rig = Rig({HOME: Answer(Outcome.NXDOMAIN, ttl=60), "ark.arpa.": SILENT})
    with pytest.raises(DiscoveryFailed):
        rig.sources.discover(ARK)
    rig.dns.answers = ONE_HOST
    assert rig.sources.discover(ARK)[0].host == "h.example"


def test_the_shortest_ttl_on_the_path_counts() -> None:
    rig = Rig(
        {HOME: dns_answer(redirect("sub.example."), ttl=1000), "sub.example.": dns_answer(host("h.example."), ttl=50)}
    )
    assert rig.sources.discover(ARK).ttl == 50
    rig.pass_time(51)
    assert rig.sources.discover(ARK).source == "dns"


def test_only_the_redirect_target_of_another_shoulder_is_queried() -> None:
    answers = {
        HOME: dns_answer(shoulder_redirect("^ark:/?12345/(x[0-9]).*$", r"\1.example")),
        "x1.example.": dns_answer(host("one.example.")),
        "x2.example.": dns_answer(host("two.example.")),
    }
    rig = Rig(answers)
    assert rig.sources.discover("ark:12345/x1a")[0].host == "one.example"
    assert rig.sources.discover("ark:12345/x2a")[0].host == "two.example"
    assert rig.sources.discover("ark:12345/x1b").source == "memory"


def test_another_redirect_than_that_of_the_awaited_lookup_is_asked() -> None:
    by_shoulder = shoulder_redirect("^ark:/?12345/(x[0-9]).*$", r"\1.example")
    rig = Rig({HOME: dns_answer(by_shoulder), "x1.example.": dns_answer(host("h.example."))})
    engine = rig.sources.engine
    one, two = (engine.discover(Ark.parse(f"ark:12345/x{number}"), 5.0) for number in (1, 2))
    first, second = next(one), next(two)
    assert (second.start, second.pending) == (False, first.pending)
    engine.finish(first.pending, rig.dns.discover(first.pending.ark, 5.0))
    assert next(two).start


@pytest.mark.parametrize(("ttl", "kept"), [(60, 60), (10**6, MAX_NEGATIVE), (0, 0), (None, 0)])
def test_rfc2308_5_a_negative_answer_is_kept_for_its_ttl_up_to_three_hours(ttl: int | None, kept: int) -> None:
    rig = Rig({HOME: Answer(Outcome.NXDOMAIN, ttl=ttl, zone=ZONE)})
    for _ in range(2):
        with pytest.raises(NoMappingAuthority):
            rig.sources.discover(ARK)
    assert len(rig.dns.asked) == (1 if kept else 2)
    rig.pass_time(kept + 1)
    with pytest.raises(NoMappingAuthority):
        rig.sources.discover(ARK)
    assert len(rig.dns.asked) == (2 if kept else 3)


@pytest.mark.parametrize(("ttl", "kept"), [(0, 0), (300, 300), (2**31 - 1, MAX_KEEP)])
def test_rfc8767_4_a_positive_answer_is_kept_for_its_ttl_up_to_a_week(ttl: int, kept: int) -> None:
    rig = Rig({HOME: dns_answer(host("h.example."), ttl=ttl)})
    rig.sources.discover(ARK)
    rig.pass_time(kept // 2)
    again = rig.sources.discover(ARK)
    assert (again.source, again.ttl) == (("memory", kept - kept // 2) if kept else ("dns", 0))
    rig.pass_time(kept - kept // 2)
    assert rig.sources.discover(ARK).source == "dns"


def test_the_least_recently_used_names_are_dropped() -> None:
    rig = Rig({f"{n}.ark.arpa.": dns_answer(host("h.example.")) for n in range(1000, 1004)}, size=2)
    for naan in (1000, 1001, 1000, 1002):
        rig.sources.discover(f"ark:{naan}/y{len(rig.dns.asked)}")
    assert rig.sources.discover("ark:1000/z").source == "memory"
    assert rig.sources.discover("ark:1001/z").source == "dns"
    kept = LruDict[str, int](2)
    for number, key in enumerate("abac"):
        kept.put(key, number)
    assert [kept.get(key) for key in "abc"] == [2, None, 3], "one that is kept again is used"


def test_rfc8767_5_a_stale_answer_is_given_within_its_limit_while_dns_is_silent() -> None:
    rig = Rig(ONE_HOST)
    rig.sources.discover(ARK)
    rig.dns.answers[HOME] = SILENT
    rig.pass_time(STALE_LIMIT + 299)
    stale = rig.sources.discover(ARK, Options(lifetime=0.5))
    assert (stale.stale, stale.source, stale.ttl, stale[0].host) == (True, "memory", STALE_TTL, "h.example")
    assert stale.age_at(rig.wall()) == STALE_LIMIT + 299
    assert "stale" in stale.reason
    rig.pass_time(2)
    with pytest.raises(DiscoveryFailed):
        rig.sources.discover(ARK)


def test_a_stale_answer_is_not_given_if_dns_says_none() -> None:
    rig = Rig(ONE_HOST)
    rig.sources.discover(ARK)
    rig.dns.answers[HOME] = dns_answer()
    rig.pass_time(301)
    with pytest.raises(NoMappingAuthority):
        rig.sources.discover(ARK)


def test_a_bogus_answer_is_not_kept() -> None:
    rig = Rig({HOME: dns_answer(host("evil.example."))})
    rig.dns.security = "bogus"
    for _ in range(3):
        with pytest.raises(DiscoveryFailed):
            rig.sources.discover(ARK)
        rig.pass_time(0.1)
    rig.dns.answers[HOME], rig.dns.security = dns_answer(host("h.example.")), "secure"
    rig.pass_time(31)
    found = rig.sources.discover(ARK)
    assert (found[0].host, found.security) == ("h.example", "secure")
    assert rig.sources.discover("ark:12345/x2").security == "secure"


def test_an_answer_of_which_not_all_records_were_read_is_not_kept() -> None:
    rig = Rig({HOME: dns_answer(*(host(f"h{number}.example.") for number in range(MAX_RECORDS + 1)))})
    assert [rig.sources.discover(ARK).complete for _ in range(2)] == [False, False]
    assert rig.dns.asked == [HOME, HOME]


@pytest.mark.parametrize("first", ["", "^ark:/?12345/(.*)$"])
def test_another_ark_of_a_kept_naan_is_as_if_its_walk_ran_alone(first: str) -> None:
    """A walk whose regexps did not read the ARK serves the next ARKs of its NAAN, as long as its answers are kept."""
    records = [host("h.example.", 100)]
    if first:
        regexp = f"!{first}!https://u.example/\\1!".encode()
        records.append(Naptr(10, 10, b"u", b"ark", regexp, ()))
    rig = Rig({HOME: dns_answer(*records, ttl=10)})
    rig.sources.discover(ARK)
    store = rig.sources.engine.store
    for step in range(32):
        ark = Ark.parse(f"ark:12345/x-{step}?info")
        found, alone = store.fresh(ark), Replay(store, ark, DEFAULTS).run()
        assert (found.found, found.refresh_at, found.missing) == (alone.found, alone.refresh_at, alone.missing)
        assert found.found is not None
        assert alone.found is not None
        assert [one.url() for one in found.found] == alone.found.urls()
        assert [one.ttl for one in found.found] == [one.ttl for one in alone.found]
        assert (found.found.ttl, found.found.ark, found.found.fetched) == (
            alone.found.ttl,
            alone.found.ark,
            alone.found.fetched,
        )
        rig.pass_time(0.3)
    rig.pass_time(1)
    assert store.fresh(ark).found is None
    rig.dns.answers = {HOME: dns_answer(host("new.example."), ttl=10)}
    assert rig.sources.discover("ark:12345/y1")[0].host == "new.example"
    assert rig.sources.discover("ark:12345/y2")[0].url() == "https://new.example/ark:12345/y2"
    store.forget(store.root(ark))
    assert store.fresh(ark).found is None
