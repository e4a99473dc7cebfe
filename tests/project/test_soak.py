"""The verdicts and the timeline of scripts/soak. CI runs the soak itself (.ci/run)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.soak.clients import Answer
from tests.support.soak.timeline import Event, Timeline
from tests.support.soak.truth import CANARY_ARK, Truth, Verdict, with_canary

CHANGED = 2000.0  # the time of the second version
OLD, NEW = (f"https://v{number}.soak.example.org/ark:/99990/x1" for number in (0, 1))


@pytest.fixture
def truth(sample: Path) -> Truth:
    found = Truth()
    for version, now in enumerate((0.0, CHANGED)):
        found.advance(with_canary(json.loads(sample.read_bytes()), version), now)
    return found


@pytest.mark.parametrize(
    ("answer", "in_dns", "verdict"),
    [
        (Answer(NEW), {1}, Verdict.RIGHT),
        (Answer(OLD), {0, 1}, Verdict.STALE),
        (Answer(OLD), {1}, Verdict.WRONG),
        (Answer(OLD, source="memory", stale=True, age=60), {1}, Verdict.STALE),
        (Answer(OLD, source="natab", age=20), {1}, Verdict.STALE),
        (Answer(OLD, source="natab", age=2), {1}, Verdict.WRONG),
        (Answer(OLD, source="natab"), {0}, Verdict.WRONG),
        (Answer("https://evil.example/"), {0, 1}, Verdict.WRONG),
        (Answer(None), {0, 1}, Verdict.WRONG),
        (Answer(None, silent=True), {0, 1}, Verdict.SILENT),
    ],
)
def test_an_older_answer_is_stale_only_if_dns_or_the_response_says_so(
    truth: Truth, answer: Answer, in_dns: set[int], verdict: Verdict
) -> None:
    assert truth.judge(CANARY_ARK, answer, in_dns, CHANGED + 10) is verdict


def test_the_versions_in_dns_are_those_that_a_secondary_served(truth: Truth) -> None:
    for server, version in (("a", 0), ("a", 1), ("b", 0), ("b", None)):
        truth.saw(server, version)
    assert truth.in_dns() == {0, 1}


def test_the_timeline_is_one_svg_file() -> None:
    timeline = Timeline(("primary",), ("direct",))
    timeline.saw("primary", 0, 0, 2026112400)
    timeline.saw("primary", None, 1, None)
    timeline.events.append(Event("primary", "killed & <restarted>", 0.0, 0.5))
    timeline.rounds.append((0.5, "direct", Counter({Verdict.RIGHT: 2, Verdict.STALE: 1})))
    drawn = "".join(ElementTree.fromstring(timeline.svg("a soak")).itertext())
    assert "killed & <restarted>" in drawn
    assert "serial 2026112400" in drawn
    assert "direct: 1 stale" in drawn
