"""Some of the accidents, with maptr, and the page that lists them all."""

from __future__ import annotations

import re

import pytest

from tests.accidents.__main__ import main
from tests.accidents.all import ACCIDENTS
from tests.accidents.outcome import PEERS, Outcome, run
from tests.accidents.page import PAGE, Results, rendered


@pytest.mark.interop
@pytest.mark.parametrize("name", [each.name for each in ACCIDENTS.values() if each.in_ci])
def test_no_name_is_lost_and_an_alarm_is_there(name: str) -> None:
    outcome = run(ACCIDENTS[name], "maptr")
    if outcome.skipped:
        pytest.skip(f"interop: {outcome.skipped}")
    assert outcome.is_met(ACCIDENTS[name]), (outcome.text, outcome.alarms)


def test_the_page_has_every_accident_with_its_outcomes() -> None:
    """After a change to an accident, ``scripts/accidents --keep NAME`` rewrites the page."""
    results = Results.load()
    text = PAGE.read_text("utf-8")
    assert text == rendered(text, results)
    assert re.findall(r"\(`([\w-]+)`\) \|", text) == sorted(
        ACCIDENTS, key=lambda name: [each.kind for each in ACCIDENTS.values()].index(ACCIDENTS[name].kind)
    )
    assert {key for key in results.outcomes if key[1] == "maptr"} == {(name, "maptr") for name in ACCIDENTS}


def test_the_page_has_enough_accidents_of_maptr_and_of_others() -> None:
    results = Results.load()
    assert len(ACCIDENTS) >= 40
    of_all = [name for name in ACCIDENTS if all((name, peer) in results.outcomes for peer in PEERS)]
    assert len(of_all) >= 25
    assert all(results.versions.values())


def test_the_page_names_each_accident_that_is_not_met() -> None:
    results = Results.load()
    unmet = {name for name, each in ACCIDENTS.items() if not results.outcomes[name, "maptr"].is_met(each)}
    section = PAGE.read_text("utf-8").partition("## Not met")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\* `([\w-]+)`", section, re.MULTILINE)) == unmet


def test_the_outcome_of_a_server_in_words() -> None:
    assert Outcome("x", "maptr", alarms=("zone-refused: mend it, then maptr reload",)).text == "kept, alarm"
    assert Outcome("x", "maptr", {"primary": 0, "secondary": 0}).text == "kept, no alarm"
    assert Outcome("x", "nsd", {"primary": 20, "secondary": 0}).text == "**lost at primary**, silent"
    assert Outcome("x", "bind", {"primary": 1, "secondary": 2}, alarms=("error",)).text == (
        "**lost at primary and secondary**, logged"
    )
    assert Outcome("x", "knot", wrong=("bogus",)).text == "**bogus**, silent"
    assert Outcome("x", "knot", skipped="knotd is not installed").text == "not tried"


def test_the_script_lists_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ACCIDENTS)
    with pytest.raises(SystemExit):
        main(["no-such-accident"])
