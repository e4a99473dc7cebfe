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
    ("answer", "oldest", "verdict"),
    [
        (Answer(NEW), 1, Verdict.RIGHT),
        (Answer(OLD), 0, Verdict.STALE),
        (Answer(OLD), 1, Verdict.WRONG),
        (Answer(OLD, source="memory", stale=True, age=60), 1, Verdict.STALE),
        (Answer(OLD, source="natab", age=20), 1, Verdict.STALE),
        (Answer(OLD, source="natab", age=2), 1, Verdict.WRONG),
        (Answer(OLD, source="natab"), 0, Verdict.WRONG),
        (Answer("https://evil.example/"), 0, Verdict.WRONG),
        (Answer(None), 0, Verdict.WRONG),
        (Answer(None, silent=True), 0, Verdict.SILENT),
    ],
)
def test_an_older_answer_is_stale_only_if_dns_or_the_response_says_so(
    truth: Truth, answer: Answer, oldest: int, verdict: Verdict
) -> None:
    assert truth.judge(CANARY_ARK, answer, oldest, CHANGED + 10) is verdict


@pytest.mark.parametrize(
    ("seen", "oldest"),
    [
        ([], 1),
        ([("a", 1), ("b", 1), ("b", None)], 1),
        ([("a", 0), ("a", 1), ("b", 1)], 0),
    ],
)
def test_dns_has_the_versions_since_the_oldest_that_a_secondary_served(
    truth: Truth, seen: list[tuple[str, int | None]], oldest: int
) -> None:
    for server, version in seen:
        truth.saw(server, version)
    assert truth.oldest_in_dns() == oldest


def test_a_version_that_nobody_saw_between_two_others_is_stale_not_wrong(sample: Path, truth: Truth) -> None:
    truth.advance(with_canary(json.loads(sample.read_bytes()), 2), CHANGED + 1)
    for version in (0, 2):
        truth.saw("a", version)
    assert truth.judge(CANARY_ARK, Answer(NEW), truth.oldest_in_dns(), CHANGED + 10) is Verdict.STALE


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
