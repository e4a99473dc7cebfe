"""Choosers: each chooses among the candidates of the lowest order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from maptr.ark import Ark
from maptr.choose import at_random, sticky, weighted
from maptr.discovery import Candidate, Discovery, Outcome
from maptr.errors import ArkSyntaxError
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.walk import Answer, Walk


def discovery(*places: tuple[str, int, int], ark: str = "ark:12345/x1") -> Discovery:
    candidates = (Candidate(h, None, o, p, "12345.ark.arpa.", path=((o, p),)) for h, o, p in places)
    return Discovery(Ark.parse(ark), tuple(candidates))


THREE = (("a.example", 0, 0), ("b.example", 0, 9), ("c.example", 1, 0))


def test_random_is_even_and_seeded_and_stays_in_the_lowest_order() -> None:
    choose = at_random(random.Random(1))
    counts = Counter(choose(discovery(*THREE)).host for _ in range(1000))
    assert set(counts) == {"a.example", "b.example"}
    assert 400 < counts["a.example"] < 600
    again = at_random(random.Random(1))
    assert Counter(again(discovery(*THREE)).host for _ in range(1000)) == counts


def test_weighted_prefers_a_low_preference_of_the_lowest_order() -> None:
    choose = weighted(random.Random(3))
    found = discovery(("a", 0, 0), ("b", 0, 1), ("c", 0, 3), ("d", 0, 65535), ("e", 1, 0))
    counts = Counter(choose(found).host for _ in range(7000))
    assert [round(counts[host] / 1000) for host in "abcde"] == [4, 2, 1, 0, 0]


def test_sticky_ignores_the_order_and_moves_only_the_arks_of_a_lost_candidate() -> None:
    crowd = [(f"h{i}.example", 0, 0) for i in range(5)]
    arks = [f"ark:12345/x{i}" for i in range(500)]
    before = {ark: sticky(discovery(*crowd, ark=ark)).host for ark in arks}
    assert before == {ark: sticky(discovery(*reversed(crowd), ark=ark)).host for ark in arks}
    assert min(Counter(before.values()).values()) > 50
    after = {ark: sticky(discovery(*crowd[1:], ark=ark)).host for ark in arks}
    assert all(after[ark] == host for ark, host in before.items() if host != "h0.example")


@pytest.mark.parametrize("chooser", [weighted, at_random, lambda found: None, lambda found: "a.example"])
def test_a_chooser_that_gives_no_candidate_is_a_type_error(chooser: Any) -> None:
    """Also one that had to be called with a random generator."""
    for use in (Discovery.choose, Discovery.url, Discovery.preferring):
        with pytest.raises(TypeError, match=r"not a Candidate$"):
            use(discovery(*THREE), chooser)


def test_a_candidate_makes_the_url_of_any_ark_and_of_its_text() -> None:
    (found,) = discovery(*THREE[:1])
    for ark in ("ark:12345/x5?info", Ark.parse("ark:12345/x5?info")):
        assert found.url(ark) == "https://a.example/ark:12345/x5?info"
    with pytest.raises(ArkSyntaxError):
        found.url("x5")


def walked(ark: str, *records: tuple[int, int, bytes, bytes, str], inside: bool = False) -> Discovery:
    """The discovery from NAPTR records at the NAAN, or behind a redirect."""
    rules = [Naptr(order, p, flags, b"ark", regexp, names.parse(to)) for order, p, flags, regexp, to in records]
    walk = Walk(Ark.parse(ark))
    (root,) = walk.next()
    walk.tell(root, Answer(Outcome.ANSWER, [Naptr(0, 7, b"", b"ark", b"", (b"in",))] if inside else rules, 60))
    for question in walk.next():
        walk.tell(question, Answer(Outcome.ANSWER, rules, 60))
    return walk.result()


def test_sticky_does_not_depend_on_preference_or_redirects() -> None:
    arks = [f"ark:12345/x{i}" for i in range(100)]

    def hosts(*preferences: int, inside: bool = False) -> list[str]:
        records = [(0, p, b"h", b"", f"h{i}.example.") for i, p in enumerate(preferences)]
        return [sticky(walked(ark, *records, inside=inside)).host for ark in arks]

    assert hosts(0, 0, 0) == hosts(0, 10, 5) == hosts(0, 0, 0, inside=True)


def test_sticky_distinguishes_rules_of_one_host_but_not_spellings_of_an_ark() -> None:
    rules = [(0, 0, b"u", b"!^(.*)$!https://h.example/%d/\\1!" % i, ".") for i in range(3)]
    counts = Counter(sticky(walked(f"ark:12345/x{i}", *rules)).target[18] for i in range(300))
    assert min(counts.values()) > 70
    for i in range(50):
        spellings = (f"ark:12345/x{i}/c", f"ark:/12345/x-{i}/c/", f"https://n2t.net/ark:12345/x{i}//c?info")
        assert len({sticky(walked(text, *rules)).target[18] for text in spellings}) == 1


def test_sticky_is_the_same_in_every_process() -> None:
    """The choices are part of this test, because a cluster may run several versions."""
    crowd = [(f"h{i}.example", 0, i) for i in range(5)]
    assert "".join(sticky(discovery(*crowd, ark=f"ark:12345/x{i}")).host[1] for i in range(12)) == "002232120020"
