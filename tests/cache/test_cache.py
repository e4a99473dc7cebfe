"""The options of a cache and of its calls: servers, trust, errors, hooks; closing a cache, and its repr."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import closing
from pathlib import Path

import dns.resolver
import pytest

from maptr.ark import Ark
from maptr.cache.cache import Cache
from maptr.cache.disk import Disk
from maptr.discovery import DiscoveryFailed, DiscoveryTimeout, NoMappingAuthority
from maptr.errors import ArkSyntaxError, ConfigError
from maptr.resolver.stub import Stub
from maptr.resolver.validation.validator import Validator
from tests.resolver.validation.test_chain import PARENT, PARENT_KEYS
from tests.support.caching import ARK, HOME, ONE_HOST, SILENT, Rig, dns_answer, host, table
from tests.support.peers import Maptr
from tests.support.scripted import serving

ZONES = Path(__file__).resolve().parents[2] / "zones"
ANCHORS = tuple(PARENT_KEYS)


def test_a_discovery_from_memory_has_the_ark_of_its_own_call() -> None:
    rig = Rig(ONE_HOST)
    others = "ark:/12345/x1/", f"{ARK}?info", Ark.parse(f"https://n2t.net/{ARK}"), Ark.parse(f"{ARK}?info")
    for given in (ARK, ARK, *others, *others):
        found = rig.cache.discover(given)
        assert tuple(found.ark) == tuple(Ark.parse(given) if isinstance(given, str) else given)


def test_errors_are_those_of_discover() -> None:
    rig = Rig({HOME: SILENT})
    with pytest.raises(DiscoveryTimeout):
        rig.cache.discover(ARK)
    with pytest.raises(DiscoveryFailed, match="not asked again yet"):
        rig.cache.discover(ARK, raise_on_none=False)
    with pytest.raises(ArkSyntaxError):
        rig.cache.discover("no ark")
    with pytest.raises(ConfigError):
        rig.cache.discover(ARK, origin="a..b")
    with pytest.raises(ConfigError):
        Cache(policy="dns-last")
    assert rig.cache.discover("ark:1000/x", raise_on_none=False).complete


def test_the_answers_of_two_resolvers_are_kept_apart() -> None:
    rig = Rig(ONE_HOST)
    rig.cache.discover(ARK)
    inside = dns.resolver.Resolver(configure=False)
    inside.nameservers = ["192.0.2.1"]
    rig.dns.answers[HOME] = dns_answer(host("inside.example."))
    assert rig.cache.discover(ARK, resolver=inside)[0].host == "inside.example"
    assert rig.cache.discover(ARK)[0].host == "h.example"
    assert rig.cache.discover(ARK, resolver=inside).source == "memory"


def test_a_call_with_nameservers_shares_answers_with_a_resolver_of_the_same_servers() -> None:
    rig = Rig(ONE_HOST)
    rig.cache.discover(ARK)
    rig.dns.answers[HOME] = dns_answer(host("inside.example."))
    assert rig.cache.discover(ARK, nameservers=["192.0.2.1"])[0].host == "inside.example"
    assert rig.cache.discover(ARK, nameservers=["192.0.2.1#53"]).source == "memory"
    assert rig.cache.discover(ARK, resolver=Stub(["192.0.2.1"])).source == "memory"
    assert asyncio.run(rig.cache.discover_async(ARK, nameservers="192.0.2.1")).source == "memory"
    with pytest.raises(ConfigError, match="not both"):
        rig.cache.discover(ARK, nameservers=["192.0.2.1"], resolver=Stub(["192.0.2.1"]))
    with pytest.raises(TypeError, match="resolvr"):
        rig.cache.discover(ARK, resolvr=None)  # type: ignore[call-arg]


def test_calls_share_one_resolver_for_the_servers_of_the_cache() -> None:
    with serving(lambda query: None) as silent, Maptr({"ark.arpa.": ZONES / "ark.arpa.zone"}) as server:
        servers = [f"127.0.0.1#{silent}", f"127.0.0.1#{server.port}"]
        cache = Cache(nameservers=servers)
        assert cache.discover(ARK).source == "dns"
        cache.forget("12345")
        found = asyncio.run(cache.discover_async(ARK))
        assert found.source == "dns"
        assert found.trace[0].server == f"127.0.0.1#{server.port}", "the silent server is asked last from then on"
        assert cache.discover("ark:12027/x1", nameservers=servers[1:]).url().startswith("http://ark.nal.example.org/")
        assert cache.drift("12345")[0].verdict == "extra"
        assert asyncio.run(cache.drift_async("12345")) == cache.drift("12345")


def test_forgotten_answers_are_asked_for_again(tmp_path: Path) -> None:
    other = "ark:23456/x1"
    rig = Rig({**ONE_HOST, "23456.ark.arpa.": dns_answer(host("i.example."))}, path=tmp_path / "c")

    def sources() -> list[str]:
        return [rig.cache.discover(ark).source for ark in (ARK, other)]

    assert (sources(), sources()) == (["dns", "dns"], ["memory", "memory"])
    rig.cache.forget("12345")
    assert (sources(), sources()) == (["dns", "memory"], ["memory", "memory"])
    rig.cache.forget()
    assert sources() == ["dns", "dns"]


def test_require_secure_takes_neither_unvalidated_answers_nor_the_table() -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example"), ("1000", "t.example")))
    assert rig.cache.discover(ARK).security == "indeterminate"
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        rig.cache.discover(ARK, require="secure")
    rig.dns.security = "secure"
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        rig.cache.discover(ARK, require="secure")  # the kept answer was not validated
    assert rig.cache.discover(ARK, trust_ad=True, require="secure").source == "dns"
    assert rig.cache.discover(ARK, trust_ad=True, require="secure").source == "memory"
    assert rig.cache.discover("ark:1000/x1").source == "natab"
    with pytest.raises(NoMappingAuthority):
        rig.cache.discover("ark:1000/x1", trust_ad=True, require="secure")  # the table has no signatures
    strict = Rig(ONE_HOST, trust_ad=True, require="secure")
    with pytest.raises(DiscoveryFailed, match="indeterminate, not secure"):
        strict.cache.discover(ARK)


def test_answers_validated_from_other_anchors_are_kept_apart(tmp_path: Path) -> None:
    rig = Rig(ONE_HOST, path=tmp_path / "c")
    rig.dns.security = "secure"
    ours, same = Validator({PARENT: ANCHORS}), Validator({PARENT: ANCHORS})
    assert rig.cache.discover(ARK, trust_anchors=ours, require="secure").source == "dns"
    assert rig.cache.discover(ARK, trust_anchors=same, require="secure").source == "memory"
    assert rig.cache.discover(ARK).source == "dns", "an answer that is not validated is kept apart"
    other = Validator({"example.": ANCHORS})
    assert rig.cache.discover(ARK, trust_anchors=other).source == "dns"
    assert Rig(ONE_HOST, path=tmp_path / "c", trust_anchors=ours).cache.discover(ARK).source == "disk"
    with pytest.raises(ConfigError, match="not both"):
        rig.cache.discover(ARK, trust_anchors=ours, trust_ad=True)
    with pytest.raises(ConfigError, match="not both"):
        Cache(trust_anchors=ours, trust_ad=True)


def test_a_cache_validates_with_its_own_trust_anchors() -> None:
    with serving(lambda query: None) as port:
        cache = Cache(nameservers=[f"127.0.0.1#{port}"], trust_anchors=Validator({PARENT: ANCHORS}), lifetime=0.2)
        with pytest.raises(DiscoveryFailed):
            cache.discover(ARK)
    with Maptr({"ark.arpa.": ZONES / "ark.arpa.zone"}) as server:
        cache = Cache(nameservers=[f"127.0.0.1#{server.port}"], trust_anchors=Validator({"arpa.": ANCHORS}))
        with pytest.raises(DiscoveryFailed):
            cache.discover(ARK, require="secure")
        assert cache.discover(ARK, trust_ad=False).security == "indeterminate"


def test_chooser_and_hook_work_as_in_discover() -> None:
    rig = Rig({HOME: dns_answer(host("a.example."), host("b.example."))})
    rig.cache.discover(ARK)
    steps: list[object] = []
    found = rig.cache.discover(ARK, chooser=lambda discovery: discovery[-1], on_step=steps.append)
    assert [c.host for c in found] == ["b.example", "a.example"]
    assert len(steps) == 1


def test_discover_and_discover_async_share_answers_and_agree() -> None:
    rig = Rig(ONE_HOST, table(("1000", "t.example")), path="")
    assert rig.cache.disk is None, "an empty path means no disk"
    rig.cache.discover(ARK)
    awaited = asyncio.run(rig.cache.discover_async(ARK))
    assert awaited == rig.cache.discover(ARK)
    assert awaited.to_dict() == rig.cache.discover(ARK).to_dict()
    assert asyncio.run(rig.cache.discover_async("ark:1000/x")).source == "natab"
    with pytest.raises(NoMappingAuthority):
        asyncio.run(rig.cache.discover_async("ark:2000/x"))


# ---- closing


def is_open(path: Path) -> bool:
    """True if this process has the file open."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc")
    return any(os.path.realpath(one) == str(path) for one in descriptors.iterdir())


def test_with_closes_a_disk_and_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "c"

    async def main() -> None:
        async with Rig(ONE_HOST, path=path).cache as cache:
            assert (await cache.discover_async(ARK)).source == "dns"
            assert is_open(path)
        assert not is_open(path)

    asyncio.run(main())
    with closing(Disk(path, wall=lambda: 0.0)) as disk:
        assert disk.can_write()
        assert is_open(path)
    assert not is_open(path)


def test_closing_an_async_cache_ends_its_queries() -> None:
    async def main() -> tuple[str, int]:
        rig = Rig(ONE_HOST, table(("12345", "t.example")), patience=0.01)
        rig.dns.gate = threading.Event()  # DNS never answers
        async with rig.cache as cache:
            source = (await cache.discover_async(ARK)).source
            assert len(asyncio.all_tasks()) == 2
        return source, len(asyncio.all_tasks())

    assert asyncio.run(main()) == ("natab", 1)


def test_a_cache_shows_its_policy_table_and_disk(tmp_path: Path) -> None:
    natab, kept = tmp_path / "natab", tmp_path / "c"
    natab.touch()
    assert repr(Cache()) == "<Cache dns-first, no table, no disk>"
    assert repr(Cache(natab, kept)) == f"<Cache dns-first, <table {str(natab)!r}>, <disk {str(kept)!r}>>"
    assert repr(Cache(table(("12345", "t.example")))) == "<Cache dns-first, <Table of 1 NAANs, 0 shoulders>, no disk>"
