"""Choosers: among the candidates of the lowest order, each by its own rule."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from maptr import url
from maptr.ark import Ark
from maptr.choose import CHOOSERS, at_random, first, sticky, weighted
from maptr.discovery import Candidate, Discovery, Outcome
from maptr.errors import NmaError
from maptr.naptr.record import Naptr
from maptr.nma.reachable import Own, Reachable, named
from maptr.protocol import names
from maptr.walk import Answer, Walk


def discovery(*places: tuple[str, int, int], ark: str = "ark:12345/x1") -> Discovery:
    candidates = (Candidate(h, None, o, p, "12345.ark.arpa.", path=((o, p),)) for h, o, p in places)
    return Discovery(Ark.parse(ark), tuple(candidates))


THREE = (("a.example", 0, 0), ("b.example", 0, 9), ("c.example", 1, 0))


def test_first() -> None:
    assert first(discovery(*THREE)).host == "a.example"


def test_random_is_even_seeded_and_keeps_to_the_lowest_order() -> None:
    choose = at_random(random.Random(1))
    counts = Counter(choose(discovery(*THREE)).host for _ in range(1000))
    assert set(counts) == {"a.example", "b.example"}
    assert 400 < counts["a.example"] < 600
    again = at_random(random.Random(1))
    assert Counter(again(discovery(*THREE)).host for _ in range(1000)) == counts


def test_weighted_prefers_a_low_preference() -> None:
    choose = weighted(random.Random(1))
    counts = Counter(choose(discovery(*THREE)).host for _ in range(1100))
    assert set(counts) == {"a.example", "b.example"}
    assert 900 < counts["a.example"] < 1060  # 10 to 1


def test_sticky_agrees_spreads_and_moves_only_what_it_must() -> None:
    crowd = [(f"h{i}.example", 0, 0) for i in range(5)]
    arks = [f"ark:12345/x{i}" for i in range(500)]
    before = {ark: sticky(discovery(*crowd, ark=ark)).host for ark in arks}
    assert before == {ark: sticky(discovery(*reversed(crowd), ark=ark)).host for ark in arks}
    assert min(Counter(before.values()).values()) > 50
    after = {ark: sticky(discovery(*crowd[1:], ark=ark)).host for ark in arks}
    assert all(after[ark] == host for ark, host in before.items() if host != "h0.example")


def walked(ark: str, *records: tuple[int, int, bytes, bytes, str], inside: bool = False) -> Discovery:
    """By NAPTR records at the NAAN, or where a redirect leads."""
    rules = [Naptr(order, p, flags, b"ark", regexp, names.parse(to)) for order, p, flags, regexp, to in records]
    walk = Walk(Ark.parse(ark))
    (root,) = walk.next()
    walk.tell(root, Answer(Outcome.ANSWER, [Naptr(0, 7, b"", b"ark", b"", (b"in",))] if inside else rules, 60))
    for question in walk.next():
        walk.tell(question, Answer(Outcome.ANSWER, rules, 60))
    return walk.result()


def test_sticky_agrees_however_the_candidates_were_found() -> None:
    arks = [f"ark:12345/x{i}" for i in range(100)]

    def hosts(*preferences: int, inside: bool = False) -> list[str]:
        records = [(0, p, b"h", b"", f"h{i}.example.") for i, p in enumerate(preferences)]
        return [sticky(walked(ark, *records, inside=inside)).host for ark in arks]

    assert hosts(0, 0, 0) == hosts(0, 10, 5) == hosts(0, 0, 0, inside=True)


def test_sticky_tells_rules_of_one_host_apart_and_no_spellings_of_an_ark() -> None:
    rules = [(0, 0, b"u", b"!^(.*)$!https://h.example/%d/\\1!" % i, ".") for i in range(3)]
    counts = Counter(sticky(walked(f"ark:12345/x{i}", *rules)).target[18] for i in range(300))
    assert min(counts.values()) > 70
    for i in range(50):
        spellings = (f"ark:12345/x{i}/c", f"ark:/12345/x-{i}/c/", f"https://n2t.net/ark:12345/x{i}//c?info")
        assert len({sticky(walked(text, *rules)).target[18] for text in spellings}) == 1


@pytest.mark.parametrize("seed", ["0", "1"])
def test_sticky_and_random_are_the_same_in_every_process(seed: str) -> None:
    """Sticky in every version, too: what it says is written down, for a cluster may run several."""
    code = """
import random
from maptr.choose import at_random, sticky, weighted
from tests.test_choose import discovery
crowd = [(f"h{i}.example", 0, i) for i in range(5)]
found = [discovery(*crowd, ark=f"ark:12345/x{i}") for i in range(12)]
for choose in (sticky, at_random(random.Random(7)), weighted(random.Random(7))):
    print("".join(choose(one).host[1] for one in found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    crowd = [(f"h{i}.example", 0, i) for i in range(5)]
    found = [discovery(*crowd, ark=f"ark:12345/x{i}") for i in range(12)]
    chosen = [
        "".join(choose(one).host[1] for one in found)
        for choose in (at_random(random.Random(7)), weighted(random.Random(7)))
    ]
    assert done.stdout.split() == ["002232120020", *chosen]


def test_the_weights_of_weighted() -> None:
    choose = weighted(random.Random(3))
    counts = Counter(
        choose(discovery(("a", 0, 0), ("b", 0, 1), ("c", 0, 3), ("d", 0, 65535))).host for _ in range(7000)
    )
    assert [round(counts[host] / 1000) for host in "abcd"] == [4, 2, 1, 0]


# ---- the mapping authority that the ARK was received with (draft section 3.4)


class Web:
    """Servers that answer, by scheme and host; ``asked`` are those that were tried."""

    def __init__(self, *alive: str) -> None:
        self.alive = alive
        self.asked: list[str] = []

    def __call__(self, where: url.Url, seconds: float) -> None:
        port = "" if where.port is None else f":{where.port}"
        place = f"{where.scheme}://{where.host.in_url}{port}"
        self.asked.append(place)
        if place not in self.alive:
            raise NmaError("silence")


@pytest.mark.parametrize(
    ("received", "alive", "chosen"),
    [
        ("https://own.example/", "https://own.example", "https://own.example/ark:12345/x1?info"),
        ("http://own.example/", "http://own.example", "http://own.example/ark:12345/x1?info"),
        ("http://own.example/", "https://own.example", "https://a.example/ark:12345/x1?info"),
        ("own.example/", "http://own.example", "http://own.example/ark:12345/x1?info"),
        ("own.example:8443/", "https://own.example:8443", "https://own.example:8443/ark:12345/x1?info"),
        ("https://own.example/a!b/", "https://own.example", "https://own.example/a!b/ark:12345/x1?info"),
        ("https://B.example/", "https://b.example", "https://b.example/ark:12345/x1?info"),
        ("", "https://a.example", "https://a.example/ark:12345/x1?info"),
    ],
)
def test_own_is_the_one_received_if_it_answers(received: str, alive: str, chosen: str) -> None:
    found = discovery(*THREE, ark=f"{received}ark:12345/x1?info")
    assert found.url(Own(probe=Web(alive))) == chosen
    silent = Web()
    assert found.url(Own(probe=silent)) == found.url()
    assert all("a.example" not in place for place in silent.asked), "nothing else is asked"


@pytest.mark.parametrize(
    "received",
    [
        "http://localhost/",
        "http://127.0.0.1/",
        "https://u:p@own.example/",
        "ftp://own.example/",
        "https://own.example/?q=/",
        "https://own.example:0/",
        "javascript:/",
        "//own.example/",
    ],
)
def test_own_asks_no_host_that_no_rule_may_name(received: str) -> None:
    web = Web()
    found = discovery(*THREE, ark=f"{received}ark:12345/x1")
    assert found.choose(Own(probe=web)) == found[0]
    assert web.asked == []


def test_own_is_ranked_before_what_was_found_and_can_be_limited_to_that() -> None:
    found = discovery(*THREE, ark="https://own.example/p/ark:12345/x1")
    preferred = found.preferring(Own(probe=Web("https://own.example")))
    assert [candidate.source for candidate in preferred] == ["ark", "dns", "dns", "dns"]
    assert preferred.best[1:] == found.best, "it is of their order"
    assert preferred.to_dict()["candidates"][0]["url"] == preferred.url() == "https://own.example/p/ark:12345/x1"
    assert preferred[0].url(Ark.parse("ark:12345/y?info")) == "https://own.example/p/ark:12345/y?info"
    assert found.choose(Own(found_only=True, probe=Web("https://own.example"))) == found[0]
    last = discovery(*THREE, ark="https://c.example/ark:12345/x1")
    assert last.choose(Own(found_only=True, probe=Web("https://c.example"))).host == "c.example"


def test_each_name_has_its_chooser() -> None:
    made = [named(name) for name in CHOOSERS]
    assert made[0] is first
    assert made[1](discovery(*THREE)).host in ("a.example", "b.example")
    assert [type(one) for one in made[2:]] == [Reachable, Own]
