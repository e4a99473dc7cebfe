"""Choosers: among the candidates of the lowest order, each by its own rule."""

from __future__ import annotations

import random
from collections import Counter

from maptr.ark import Ark
from maptr.choose import at_random, first, sticky, weighted
from maptr.discovery import Candidate, Discovery


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
