"""A client's sources: errors, hooks, separation and forgetting of answers, and streams of ARKs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dns.resolver
import pytest

from maptr.ark import Ark
from maptr.cache.sources import view_of
from maptr.discovery import Discovery, DiscoveryFailed, DiscoveryTimeout, NoMappingAuthority
from maptr.errors import ArkSyntaxError, ConfigError
from maptr.registry.followed_file import TableState
from maptr.resolver.call import Options
from maptr.resolver.resolver import Resolver
from maptr.resolver.validation.validator import Validator
from maptr.testing import Answers, offline_client
from tests.resolver.validation.test_chain import PARENT, PARENT_KEYS
from tests.support.caching import ARK, HOME, ONE_HOST, SILENT, Rig, dns_answer, host, table
from tests.support.waiting import PATIENCE

ANCHORS = tuple(PARENT_KEYS)
OTHER = "ark:23456/x1"
BOTH = {**ONE_HOST, "23456.ark.arpa.": dns_answer(host("i.example."))}


def test_a_discovery_from_memory_has_the_ark_of_its_own_call() -> None:
    rig = Rig(ONE_HOST)
    others = "ark:/12345/x1/", f"{ARK}?info", Ark.parse(f"https://n2t.net/{ARK}"), Ark.parse(f"{ARK}?info")
    for given in (ARK, ARK, *others, *others):
        found = rig.sources.discover(given)
        assert found.ark.__reduce__() == (Ark.parse(given) if isinstance(given, str) else given).__reduce__()


def test_errors_are_those_of_a_client_without_memory() -> None:
    rig = Rig({HOME: SILENT})
    with pytest.raises(DiscoveryTimeout):
        rig.sources.discover(ARK)
    with pytest.raises(DiscoveryFailed, match="not asked again yet"):
        rig.sources.discover(ARK, Options(raise_on_none=False))
    with pytest.raises(ArkSyntaxError):
        rig.sources.discover("no ark")
    with pytest.raises(TypeError, match="chooser: 5 is not a function"):
        rig.sources.discover(ARK, Options(chooser=5))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="policy"):
        Rig(policy="dns-last")
    assert rig.sources.discover("ark:1000/x", Options(raise_on_none=False)).complete


def test_options_that_are_the_defaults_do_not_bypass_memory() -> None:
    rig = Rig(ONE_HOST)
    rig.sources.discover(ARK)
    kept = rig.sources.discover(ARK)
    assert rig.sources.discover(ARK, Options(chooser=None, on_step=None, lifetime=None, raise_on_none=True)) is kept
    assert rig.sources.discover(ARK, Options(chooser=lambda found: found[0])) is not kept


# ---- views


def test_servers_and_trust_make_a_view() -> None:
    inside = dns.resolver.Resolver(configure=False)
    inside.nameservers = ["192.0.2.1"]
    ours, same, other = (Validator({zone: ANCHORS}) for zone in (PARENT, PARENT, "example."))
    views = [
        view_of(resolver)
        for resolver in (
            Resolver(),
            Resolver(["192.0.2.1"]),
            Resolver(["192.0.2.1", "192.0.2.2#54"]),
            Resolver(trust_ad=True),
            Resolver(trust_anchors=ours),
            Resolver(trust_anchors=other),
            Resolver(["192.0.2.1"], trust_anchors=ours),
        )
    ]
    assert len(set(views)) == len(views)
    assert view_of(Resolver(inside)) == view_of(Resolver("192.0.2.1#53")) == view_of(Resolver("192.0.2.1"))
    assert view_of(Resolver(trust_anchors=same)) == view_of(Resolver(trust_anchors=ours))


def test_the_answers_of_two_views_on_disk_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "c"
    Rig(ONE_HOST, path=path, view="outside").sources.discover(ARK)
    inside = Rig({HOME: dns_answer(host("inside.example."))}, path=path, view="inside")
    assert inside.sources.discover(ARK)[0].host == "inside.example"
    assert Rig(ONE_HOST, path=path, view="outside").sources.discover(ARK)[0].host == "h.example"
    assert Rig(ONE_HOST, path=path, view="inside").sources.discover(ARK).source == "disk"


def test_forgotten_answers_are_asked_for_again(tmp_path: Path) -> None:
    rig = Rig(BOTH, path=tmp_path / "c")

    def sources() -> list[str]:
        return [rig.sources.discover(ark).source for ark in (ARK, OTHER)]

    assert (sources(), sources()) == (["dns", "dns"], ["memory", "memory"])
    rig.sources.forget("12345")
    assert (sources(), sources()) == (["dns", "memory"], ["memory", "memory"])
    rig.sources.forget()
    assert sources() == ["dns", "dns"]


def test_require_secure_takes_neither_unvalidated_answers_nor_the_table(tmp_path: Path) -> None:
    answers = Answers({"12345": "https://h.example/${content}"})
    options: dict[str, Any] = {"table": table(("12345", "t.example"), ("1000", "t.example")), "cache": tmp_path / "c"}
    open_to_all = offline_client(answers, **options)
    assert open_to_all.discover(ARK).security == "indeterminate"
    assert open_to_all.discover("ark:1000/x1").source == "natab"
    strict = offline_client(answers, **options, require="secure")
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        strict.discover(ARK)
    answers.security = "secure"
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        strict.discover(ARK)  # the cached answer was not validated
    strict.forget()
    assert strict.discover(ARK).source == "dns"
    assert strict.discover(ARK).source == "memory"
    with pytest.raises(NoMappingAuthority):
        strict.discover("ark:1000/x1")  # the table has no signatures
    open_to_all.close()
    strict.close()


def test_chooser_and_hook_work_as_without_memory() -> None:
    rig = Rig({HOME: dns_answer(host("a.example."), host("b.example."))})
    rig.sources.discover(ARK)
    steps: list[object] = []
    found = rig.sources.discover(ARK, Options(chooser=lambda discovery: discovery[-1], on_step=steps.append))
    assert [c.host for c in found] == ["b.example", "a.example"]
    assert len(steps) == 1


def test_discover_and_discover_async_share_answers_and_agree() -> None:
    rig = Rig(ONE_HOST, table(("1000", "t.example")))
    rig.sources.discover(ARK)
    awaited = asyncio.run(rig.sources.discover_async(ARK))
    assert awaited == rig.sources.discover(ARK)
    assert awaited.to_dict() == rig.sources.discover(ARK).to_dict()
    assert asyncio.run(rig.sources.discover_async("ark:1000/x")).source == "natab"
    with pytest.raises(NoMappingAuthority):
        asyncio.run(rig.sources.discover_async("ark:2000/x"))


async def test_stopping_ends_the_queries_of_the_event_loop() -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example")), patience=0.01)
    rig.dns.gate = threading.Event()  # DNS never answers
    assert (await rig.sources.discover_async(ARK)).source == "natab"
    assert len(asyncio.all_tasks()) == 2
    await rig.sources.stop()
    assert len(asyncio.all_tasks()) == 1


def test_a_table_is_read_beside_the_event_loop() -> None:
    class Unread:
        is_read = False

        def current(self) -> TableState:
            if not self.is_read:
                threads.append(threading.current_thread())
            self.is_read = True
            return TableState(table(("12345", "t.example")))

    threads: list[threading.Thread] = []
    asyncio.run(Rig(None, Unread()).sources.discover_async(ARK))
    asyncio.run(many_async(Rig(None, Unread()), ARK))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


# ---- streams


def many(rig: Rig, *arks: str) -> list[Discovery]:
    pairs = ((number, Ark.parse(ark)) for number, ark in enumerate(arks))
    found = dict(rig.sources.discover_many(pairs, PATIENCE))
    assert list(found) == list(range(len(arks)))
    return list(found.values())


async def many_async(rig: Rig, *arks: str) -> list[Discovery]:
    async def pairs() -> AsyncIterator[tuple[int, Ark]]:
        for number, ark in enumerate(arks):
            yield number, Ark.parse(ark)

    return [found async for _, found in rig.sources.discover_many_async(pairs(), PATIENCE)]


def test_a_stream_goes_through_memory_and_its_answers_are_kept() -> None:
    rig = Rig(BOTH)
    rig.sources.discover(ARK)
    assert [found.source for found in many(rig, "ark:12345/x2", OTHER)] == ["memory", "dns"]
    assert rig.sources.discover("ark:23456/x2").source == "memory"
    assert [found.source for found in asyncio.run(many_async(rig, ARK, OTHER))] == ["memory", "memory"]
    assert sorted(rig.dns.asked) == sorted(BOTH)


@pytest.mark.parametrize("policy", ["dns-first", "natab-first", "dns-only", "natab-only"])
@pytest.mark.parametrize("state", ["answers", "none", "silent", "bogus"])
@pytest.mark.parametrize("has", [True, False])
def test_a_stream_gives_what_a_single_discovery_gives(policy: str, state: str, has: bool) -> None:
    def made() -> Rig:
        answers = {"answers": ONE_HOST, "none": {HOME: dns_answer()}, "silent": {HOME: SILENT}, "bogus": ONE_HOST}
        rig = Rig(answers[state], table(("12345" if has else "1000", "t.example")), policy)
        rig.dns.security = "bogus" if state == "bogus" else "indeterminate"
        return rig

    try:
        alone = made().sources.discover(ARK, Options(raise_on_none=False))
    except DiscoveryFailed as failed:
        alone = failed.discovery
    for found in (*many(made(), ARK), *asyncio.run(many_async(made(), ARK))):
        assert found == alone
        assert (found.source, found.complete, found.reason) == (alone.source, alone.complete, alone.reason)


def test_a_stream_waits_for_a_silent_dns_no_longer_than_its_patience() -> None:
    for take in (many, lambda rig, *arks: asyncio.run(many_async(rig, *arks))):
        rig = Rig(BOTH, table(("12345", "t.example"), ("23456", "t.example")), patience=0.05)
        rig.dns.gate = threading.Event()  # DNS never answers
        assert [found.source for found in take(rig, ARK, OTHER)] == ["natab", "natab"]
        rig.dns.gate.set()


def test_a_stream_takes_an_older_answer_while_dns_is_silent() -> None:
    rig = Rig(ONE_HOST)
    rig.sources.discover(ARK)
    rig.dns.answers[HOME] = SILENT
    rig.pass_time(301)
    (found,) = many(rig, ARK)
    assert (found.stale, found[0].host) == (True, "h.example")
