"""The cache over a DNS that does as it is told: what costs a question, and what each discovery says of itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dns.exception
import dns.resolver
import pytest

from maptr.ark import Ark
from maptr.cache import STALE_LIMIT
from maptr.cache.cache import Cache
from maptr.cache.store import MAX_KEEP, MAX_NEGATIVE, STALE_TTL
from maptr.client.stub import Stub
from maptr.client.validation.validator import Validator
from maptr.discovery import Discovery, DiscoveryFailed, DiscoveryTimeout, NoMappingAuthority, Outcome
from maptr.errors import ArkSyntaxError, ConfigError
from maptr.registry.followed_file import WatchedTable
from maptr.walk import Answer
from tests.client.test_drivers import serving
from tests.client.validation.test_chain import validator
from tests.support.caching import ARK, HOME, SILENT, ZONE, Rig, host, redirect, said, shoulder_redirect, table, until
from tests.support.peers import Maptr

ZONES = Path(__file__).resolve().parents[2] / "zones"
ANCHORS = next(iter(validator().trust.anchors.values()))
H = {HOME: said(host("h.example."))}


def test_a_fresh_answer_is_given_without_reading_the_table(tmp_path: Path) -> None:
    (tmp_path / "natab").write_text("12345:\n    t.example.org  ACR\n")
    Rig(H, path=tmp_path / "c").cache.discover(ARK)
    for policy, reads in (("dns-first", False), ("dns-only", False), ("natab-first", True)):
        rig = Rig(H, tmp_path / "natab", policy, path=tmp_path / "c")
        rig.cache.discover(ARK)
        assert isinstance(rig.cache.table, WatchedTable)
        assert rig.cache.table.is_read is reads


def test_an_empty_path_is_no_disk_as_in_the_configuration(caplog: pytest.LogCaptureFixture) -> None:
    cache = Rig(H, path="").cache
    assert cache.discover(ARK).source == "dns"
    assert cache.disk is None
    assert not caplog.records


def test_the_first_answer_is_of_dns_and_the_next_of_memory_with_the_ttl_that_is_left() -> None:
    rig = Rig(H)
    first = rig.cache.discover(ARK)
    rig.pass_time(100)
    second = rig.cache.discover(ARK)
    assert (first.source, first.ttl, first.age(rig.wall())) == ("dns", 300, 100)
    assert (second.source, second.ttl, second.age(rig.wall())) == ("memory", 200, 100)
    assert second.expiration == rig.wall() + 200
    assert first.candidates == second.candidates
    assert rig.dns.questions == [HOME]


def test_every_ark_of_a_naan_is_answered_by_one_question() -> None:
    rig = Rig(H)
    urls = [rig.cache.discover(f"ark:12345/x{number}?info").url() for number in range(5)]
    assert urls == [f"https://h.example/ark:12345/x{number}?info" for number in range(5)]
    assert rig.dns.questions == [HOME]


def test_two_spellings_of_one_ark_keep_their_own_urls() -> None:
    rig = Rig(H)
    for text in ("ark:12345/x1", "ark:/12345/x1/", "ark:12345/x1?info"):
        assert rig.cache.discover(text).url() == rig.cache.discover(text).url()
        assert rig.cache.discover(Ark.parse(text)).url() == rig.cache.discover(text).url()
    assert rig.cache.discover("ark:12345/x1?info").url().endswith("x1?info")


def test_what_is_handed_out_again_within_a_second_has_the_same_whole_ttl() -> None:
    rig = Rig(H)
    rig.cache.discover(ARK)
    rig.pass_time(10)
    kept = rig.cache.discover(ARK)
    assert rig.cache.discover(ARK) is kept
    rig.pass_time(1)
    assert rig.cache.discover(ARK).ttl == 289


def test_a_discovery_is_kept_as_long_as_the_shortest_record_that_led_to_it() -> None:
    rig = Rig({HOME: said(redirect("sub.example."), ttl=1000), "sub.example.": said(host("h.example."), ttl=50)})
    assert rig.cache.discover(ARK).ttl == 50
    rig.pass_time(51)
    assert rig.cache.discover(ARK).source == "dns"


def test_another_shoulder_asks_only_where_its_own_redirect_leads() -> None:
    answers = {
        HOME: said(shoulder_redirect("^ark:/?12345/(x[0-9]).*$", "\\\\1.example".replace("\\\\", "\\"))),
        "x1.example.": said(host("one.example.")),
        "x2.example.": said(host("two.example.")),
    }
    rig = Rig(answers)
    assert rig.cache.discover("ark:12345/x1a")[0].host == "one.example"
    assert rig.cache.discover("ark:12345/x2a")[0].host == "two.example"
    assert rig.cache.discover("ark:12345/x1b").source == "memory"


@pytest.mark.parametrize(("ttl", "kept"), [(60, 60), (10**6, MAX_NEGATIVE), (0, 0), (None, 0)])
def test_rfc2308_5_a_negative_answer_is_kept_for_its_soa_s_time_and_three_hours_at_most(
    ttl: int | None, kept: int
) -> None:
    rig = Rig({HOME: Answer(Outcome.NXDOMAIN, ttl=ttl, zone=ZONE)})
    for _ in range(2):
        with pytest.raises(NoMappingAuthority):
            rig.cache.discover(ARK)
    assert len(rig.dns.questions) == (1 if kept else 2)
    rig.pass_time(kept + 1)
    with pytest.raises(NoMappingAuthority):
        rig.cache.discover(ARK)
    assert len(rig.dns.questions) == (2 if kept else 3)


def test_rfc8767_4_a_ttl_of_more_than_a_week_is_a_week() -> None:
    rig = Rig({HOME: said(host("h.example."), ttl=2**31 - 1)})
    rig.cache.discover(ARK)
    rig.pass_time(1)
    assert rig.cache.discover(ARK).ttl == MAX_KEEP - 1


def test_a_ttl_of_nought_is_not_kept() -> None:
    rig = Rig({HOME: said(host("h.example."), ttl=0)})
    assert [rig.cache.discover(ARK).source for _ in range(3)] == ["dns"] * 3
    assert len(rig.dns.questions) == 3


def test_the_least_used_names_go_first() -> None:
    rig = Rig({f"{n}.ark.arpa.": said(host("h.example.")) for n in range(1000, 1004)}, size=2)
    for naan in (1000, 1001, 1000, 1002):
        rig.cache.discover(f"ark:{naan}/y{len(rig.dns.questions)}")
    assert rig.cache.discover("ark:1000/z").source == "memory"
    assert rig.cache.discover("ark:1001/z").source == "dns"


def test_rfc8767_5_a_stale_answer_is_given_within_its_limit_where_dns_is_silent() -> None:
    rig = Rig(H)
    rig.cache.discover(ARK)
    rig.dns.answers[HOME] = SILENT
    rig.pass_time(STALE_LIMIT + 299)
    stale = rig.cache.discover(ARK, lifetime=0.5)
    assert (stale.stale, stale.source, stale.ttl, stale[0].host) == (True, "memory", STALE_TTL, "h.example")
    assert stale.age(rig.wall()) == STALE_LIMIT + 299
    assert "stale" in stale.reason
    rig.pass_time(2)
    with pytest.raises(DiscoveryFailed):
        rig.cache.discover(ARK)


def test_a_stale_answer_is_never_given_where_dns_says_none() -> None:
    rig = Rig(H)
    rig.cache.discover(ARK)
    rig.dns.answers[HOME] = said()
    rig.pass_time(301)
    with pytest.raises(NoMappingAuthority):
        rig.cache.discover(ARK)


def test_what_is_used_near_its_end_is_asked_ahead_and_nobody_waits() -> None:
    rig = Rig(H)
    rig.cache.discover(ARK)
    rig.pass_time(269)
    assert rig.cache.discover(ARK).ttl == 31
    assert rig.dns.calls == 1
    rig.pass_time(2)
    assert rig.cache.discover(ARK).ttl == 29
    until(lambda: rig.cache.discover("ark:12345/x2").ttl == 300, "the answer is refreshed")
    assert rig.dns.calls == 2


def test_one_question_is_under_way_for_a_name_however_many_threads_wait() -> None:
    rig = Rig(H)
    rig.dns.gate = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(rig.cache.discover, f"ark:12345/x{number}") for number in range(20)]
        until(lambda: rig.dns.calls, "somebody asks")
        rig.dns.gate.set()
        assert {future.result()[0].host for future in waiting} == {"h.example"}
    assert rig.dns.questions == [HOME]


def test_one_question_is_under_way_for_a_name_however_many_tasks_and_threads_wait() -> None:
    rig = Rig(H)
    rig.dns.gate = threading.Event()

    async def main() -> list[Discovery]:
        tasks = [asyncio.create_task(rig.cache.discover_async(f"ark:12345/x{number}")) for number in range(20)]
        threads = [asyncio.to_thread(rig.cache.discover, f"ark:12345/y{number}") for number in range(3)]
        gathered = asyncio.gather(*tasks, *threads)
        await asyncio.sleep(0.05)
        assert rig.dns.gate is not None
        rig.dns.gate.set()
        return await gathered

    assert {found[0].host for found in asyncio.run(main())} == {"h.example"}
    assert rig.dns.questions == [HOME]


def test_answers_that_may_not_be_kept_still_serve_all_who_waited_for_them() -> None:
    rig = Rig({HOME: said(host("h.example."), ttl=0)})
    rig.dns.gate = threading.Event()
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(rig.cache.discover, f"ark:12345/x{number}") for number in range(10)]
        until(lambda: rig.dns.calls, "somebody asks")
        threading.Event().wait(0.1)
        rig.dns.gate.set()
        assert {future.result().url() for future in waiting} == {
            f"https://h.example/ark:12345/x{number}" for number in range(10)
        }
    assert len(rig.dns.questions) < 10


def test_a_cancelled_task_leaves_the_question_to_the_others() -> None:
    rig = Rig(H)
    rig.dns.gate = threading.Event()

    async def main() -> Discovery:
        first = asyncio.create_task(rig.cache.discover_async(ARK))
        await asyncio.sleep(0.02)
        second = asyncio.create_task(rig.cache.discover_async("ark:12345/x2"))
        await asyncio.sleep(0.02)
        first.cancel()
        await asyncio.sleep(0)
        assert rig.dns.gate is not None
        rig.dns.gate.set()
        return await second

    assert asyncio.run(main())[0].host == "h.example"
    assert rig.dns.questions == [HOME]


def test_a_loop_that_ends_lets_go_of_whoever_waits_elsewhere() -> None:
    rig = Rig(H, table(("12345", "t.example")), patience=0.01)
    rig.dns.gate = threading.Event()
    assert asyncio.run(rig.cache.discover_async(ARK)).source == "natab"
    rig.dns.gate.set()
    until(lambda: rig.cache.discover("ark:12345/x2").source != "natab", "DNS is asked again")


def test_a_caller_waits_as_long_as_its_patience_and_the_next_finds_the_late_answer() -> None:
    rig = Rig(H, table(("12345", "t.example")), patience=0.02)
    rig.dns.gate = threading.Event()
    first = rig.cache.discover(ARK)
    assert (first.source, first[0].host, first.stale) == ("natab", "t.example", False)
    assert (first.trace[0].outcome, first.trace[0].note) == (Outcome.TIMEOUT, "still being asked")
    rig.dns.gate.set()
    until(lambda: rig.cache.discover(ARK).source == "memory", "the late answer is kept")
    assert rig.dns.calls == 1


def test_how_a_question_ended_is_said_once() -> None:
    rig = Rig({HOME: Answer(Outcome.UNREACHABLE, note="192.0.2.1#53: Connection refused")})
    with pytest.raises(DiscoveryFailed, match=r"NAPTR: server unreachable \(192\.0\.2\.1#53: Connection refused\)$"):
        rig.cache.discover(ARK)


def test_a_dead_server_is_not_asked_by_every_caller() -> None:
    rig = Rig({f"{naan}.ark.arpa.": SILENT for naan in range(1000, 1100)})
    for naan in range(1000, 1100):
        with pytest.raises(DiscoveryFailed):
            rig.cache.discover(f"ark:{naan}/x")
    assert rig.dns.calls == 3
    rig.dns.answers["1000.ark.arpa."] = said(host("h.example."))
    rig.pass_time(2)
    assert rig.cache.discover("ark:1000/x")[0].host == "h.example"
    rig.dns.answers["1050.ark.arpa."] = said(host("h.example."))
    assert rig.cache.discover("ark:1050/x")[0].host == "h.example"


def test_rfc9520_3_2_a_name_that_fails_is_asked_with_growing_pauses_while_others_are_answered() -> None:
    rig = Rig({HOME: Answer(Outcome.SERVFAIL), "1000.ark.arpa.": said(host("h.example."), ttl=0)})
    tries = []
    for _ in range(600):
        with pytest.raises(DiscoveryFailed):
            rig.cache.discover(ARK)
        assert rig.cache.discover("ark:1000/x")
        tries.append(rig.dns.questions.count(HOME))
        rig.pass_time(0.1)
    assert tries[4] == 1
    assert 4 <= tries[-1] <= 12


def test_an_incomplete_discovery_with_candidates_is_given_and_completed_later() -> None:
    answers = {HOME: said(redirect("dead.example."), host("h.example.", 5)), "dead.example.": SILENT}
    rig = Rig(answers)
    for _ in range(3):
        found = rig.cache.discover(ARK)
        assert (found[0].host, found.complete, found.ttl) == ("h.example", False, None)
    assert rig.dns.questions.count(HOME) == 1
    rig.dns.answers["dead.example."] = said(host("a.example."))
    rig.pass_time(2)
    assert [c.host for c in rig.cache.discover(ARK)] == ["a.example", "h.example"]


def test_the_errors_are_those_of_discover() -> None:
    rig = Rig({HOME: SILENT})
    with pytest.raises(DiscoveryTimeout) as timeout:
        rig.cache.discover(ARK)
    assert timeout.value.discovery is not None
    with pytest.raises(DiscoveryFailed, match="not asked again yet"):
        rig.cache.discover(ARK, raise_on_none=False)
    with pytest.raises(ArkSyntaxError):
        rig.cache.discover("no ark")
    with pytest.raises(ConfigError):
        rig.cache.discover(ARK, origin="a..b")
    with pytest.raises(ConfigError):
        Cache(policy="dns-last")
    assert rig.cache.discover("ark:1000/x", raise_on_none=False).complete


@pytest.mark.parametrize("error", [dns.resolver.NoResolverConfiguration, OSError, dns.exception.Timeout])
def test_whatever_asking_raises_is_dns_that_did_not_say(error: type[Exception]) -> None:
    rig = Rig(H, table(("1000", "t.example")))
    rig.dns.error = error()
    with pytest.raises(DiscoveryFailed):
        rig.cache.discover(ARK)
    assert rig.cache.discover("ark:1000/x").source == "natab"
    rig.dns.error = None
    rig.pass_time(60)
    assert rig.cache.discover(ARK)[0].host == "h.example"


def test_a_bug_in_asking_is_raised_as_it_is_and_stops_nothing() -> None:
    rig = Rig(H)
    rig.dns.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        rig.cache.discover(ARK)
    rig.dns.error = None
    assert rig.cache.discover(ARK)[0].host == "h.example"


def test_what_one_resolver_said_is_never_given_out_as_another_s_word() -> None:
    rig = Rig(H)
    rig.cache.discover(ARK)
    inside = dns.resolver.Resolver(configure=False)
    inside.nameservers = ["192.0.2.1"]
    rig.dns.answers[HOME] = said(host("inside.example."))
    assert rig.cache.discover(ARK, resolver=inside)[0].host == "inside.example"
    assert rig.cache.discover(ARK)[0].host == "h.example"
    assert rig.cache.discover(ARK, resolver=inside).source == "memory"


def test_servers_named_for_a_call_have_a_view_of_their_own_shared_with_a_resolver_of_the_same() -> None:
    rig = Rig(H)
    rig.cache.discover(ARK)
    rig.dns.answers[HOME] = said(host("inside.example."))
    assert rig.cache.discover(ARK, nameservers=["192.0.2.1"])[0].host == "inside.example"
    assert rig.cache.discover(ARK, nameservers=["192.0.2.1#53"]).source == "memory"
    assert rig.cache.discover(ARK, resolver=Stub(["192.0.2.1"])).source == "memory"
    assert asyncio.run(rig.cache.discover_async(ARK, nameservers="192.0.2.1")).source == "memory"
    with pytest.raises(ConfigError, match="not both"):
        rig.cache.discover(ARK, nameservers=["192.0.2.1"], resolver=Stub(["192.0.2.1"]))
    with pytest.raises(TypeError, match="no option resolvr"):
        rig.cache.discover(ARK, resolvr=None)  # type: ignore[call-arg]


def test_servers_are_asked_as_they_were_named() -> None:
    with serving(lambda query: None) as silent, Maptr({"ark.arpa.": ZONES / "ark.arpa.zone"}) as server:
        servers = [f"127.0.0.1#{silent}", f"127.0.0.1#{server.port}"]
        cache = Cache(nameservers=servers)
        assert cache.discover(ARK).source == "dns"
        cache.forget("12345")
        found = asyncio.run(cache.discover_async(ARK))
        assert found.source == "dns"
        assert found.trace[0].server == f"127.0.0.1#{server.port}", "the silent one is asked last from then on"
        assert cache.discover("ark:12027/x1", nameservers=servers[1:]).url().startswith("http://ark.nal.example.org/")
        assert cache.drift("12345")[0].verdict == "extra"
        assert asyncio.run(cache.drift_async("12345")) == cache.drift("12345")


def test_what_was_not_validated_is_never_given_to_who_requires_it() -> None:
    rig = Rig(H, table(("12345", "t.example"), ("1000", "t.example")))
    assert rig.cache.discover(ARK).security == "indeterminate"
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        rig.cache.discover(ARK, require="secure")
    rig.dns.security = "secure"
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        rig.cache.discover(ARK, require="secure")  # kept from before, by who did not look
    assert rig.cache.discover(ARK, trust_ad=True, require="secure").source == "dns"
    assert rig.cache.discover(ARK, trust_ad=True, require="secure").source == "memory"
    assert rig.cache.discover("ark:1000/x1").source == "natab"
    with pytest.raises(NoMappingAuthority):
        rig.cache.discover("ark:1000/x1", trust_ad=True, require="secure")  # nothing vouches for the table
    strict = Rig(H, trust_ad=True, require="secure")
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        strict.cache.discover(ARK)


def test_what_was_validated_from_other_anchors_is_another_s_word(tmp_path: Path) -> None:
    rig = Rig(H, path=tmp_path / "c")
    rig.dns.security = "secure"
    ours, same = validator(), validator()
    assert rig.cache.discover(ARK, trust_anchors=ours, require="secure").source == "dns"
    assert rig.cache.discover(ARK, trust_anchors=same, require="secure").source == "memory"
    assert rig.cache.discover(ARK).source == "dns", "and what was not validated is not what was"
    other = Validator({"example.": ANCHORS})
    assert rig.cache.discover(ARK, trust_anchors=other).source == "dns"
    assert Rig(H, path=tmp_path / "c", trust_anchors=ours).cache.discover(ARK).source == "disk"
    with pytest.raises(ConfigError, match="not both"):
        rig.cache.discover(ARK, trust_anchors=ours, trust_ad=True)
    with pytest.raises(ConfigError, match="not both"):
        Cache(trust_anchors=ours, trust_ad=True)


def test_a_cache_validates_by_itself() -> None:
    with serving(lambda query: None) as port:
        cache = Cache(nameservers=[f"127.0.0.1#{port}"], trust_anchors=validator(), lifetime=0.2)
        with pytest.raises(DiscoveryFailed):
            cache.discover(ARK)
    with Maptr({"ark.arpa.": ZONES / "ark.arpa.zone"}) as server:
        cache = Cache(nameservers=[f"127.0.0.1#{server.port}"], trust_anchors=Validator({"arpa.": ANCHORS}))
        with pytest.raises(DiscoveryFailed):
            cache.discover(ARK, require="secure")
        assert cache.discover(ARK, trust_ad=False).security == "indeterminate"


def test_chooser_and_hook_work_as_in_discover() -> None:
    rig = Rig({HOME: said(host("a.example."), host("b.example."))})
    rig.cache.discover(ARK)
    steps: list[object] = []
    found = rig.cache.discover(ARK, chooser=lambda discovery: discovery[-1], on_step=steps.append)
    assert [c.host for c in found] == ["b.example", "a.example"]
    assert len(steps) == 1


def test_both_twins_share_what_they_learn_and_say_the_same() -> None:
    rig = Rig(H, table(("1000", "t.example")))
    rig.cache.discover(ARK)
    awaited = asyncio.run(rig.cache.discover_async(ARK))
    assert awaited == rig.cache.discover(ARK)
    assert awaited.to_dict() == rig.cache.discover(ARK).to_dict()
    assert asyncio.run(rig.cache.discover_async("ark:1000/x")).source == "natab"
    with pytest.raises(NoMappingAuthority):
        asyncio.run(rig.cache.discover_async("ark:2000/x"))


def test_a_bogus_answer_is_never_kept_nor_given_later() -> None:
    rig = Rig({HOME: said(host("evil.example."))})
    rig.dns.security = "bogus"
    for _ in range(3):
        with pytest.raises(DiscoveryFailed):
            rig.cache.discover(ARK)
        rig.pass_time(0.1)
    rig.dns.answers[HOME], rig.dns.security = said(host("h.example.")), "secure"
    rig.pass_time(31)
    found = rig.cache.discover(ARK)
    assert (found[0].host, found.security) == ("h.example", "secure")
    assert rig.cache.discover("ark:12345/x2").security == "secure"
