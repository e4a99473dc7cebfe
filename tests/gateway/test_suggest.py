"""Suggestions for an ARK or a path that leads nowhere, which are never followed automatically."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import BETANUMERIC, SCOPES, Ark, Scope
from maptr.gateway import suggest
from maptr.gateway.message import Unreadable
from maptr.gateway.objects import OwnObject, OwnObjects
from maptr.gateway.suggest import MAX_LOOK_UPS
from maptr.registry.table import Entry, Nma, Table
from tests.gateway.test_pages import show
from tests.support.gateway import Gateway, Objects, objects
from tests.support.own_objects import imported, read
from tests.support.waiting import PATIENCE

HERE = "https://gw.example"
TABLE = Table(
    [Entry("12345", "", (Nma(f"{HERE}/ark:${{content}}"),)), Entry("54321", "", (Nma("https://h.example/"),))]
)
ONE = OwnObject("ark:12345/x5np1", "https://o.example/1")
UPPER = OwnObject("ark:12345/ABC", "https://o.example/2")
WITHDRAWN = OwnObject("ark:12345/x7", "", 410)


def gateway(own: OwnObjects | None = None, **settings: Any) -> Gateway:
    return Gateway(TABLE, objects=own or objects(ONE, UPPER, WITHDRAWN), public_url=HERE, **settings)


SPELLINGS = [
    *(
        f"/ark:12345/x5np1{after}"
        for after in (")", ",", ").", "%22", "%29", "%2C", ";", "'", "%E2%80%9D", "%C2%BB", "!")
    ),
    *("/ark:12345/x5np1%3E", "/ark:12345/x5np1&gt;", "/ark:12345/x5np1&quot;)", "/ark:12345/x5np1%5D"),
    *("/ark:12345/X5NP1", "/ark:12345/X5np1", "/ark:12345/X5NP1)", "/ARK:/12345/X5NP1%22."),
    *("/12345/x5np1", "/ark/12345/x5np1", "/arks/12345/x5np1", "/12345/X5NP1,", "/ark12345/x5np1"),
    *("/ark:/ark:12345/x5np1", "/ark:/ark:/12345/x5np1", "/ark:12345/ark:/12345/x5np1", "/ark:ark:ark:12345/x5np1"),
    *("/ark%253A12345%252Fx5np1", "/ark%253A/12345/x5np1", "/ark:12345%252Fx5np1", "/ark%25253A12345/x5np1"),
    "/ark%253A12345%252FX5NP1%2529",
]


@pytest.mark.parametrize("target", SPELLINGS)
def test_another_spelling_of_an_object_is_suggested(target: str) -> None:
    """On the page, in JSON and in plain text."""
    asked = gateway()
    document = asked.ask(target, accept="application/json")
    assert document.status in (400, 404)
    assert document.header("location") == ""
    assert json.loads(document.body)["suggestion"] == ONE.ark
    assert f"is it {ONE.ark}?" in asked.ask(target).body.decode()
    page = asked.ask(target, accept="text/html", accept_language="fr").body.decode()
    assert f'S’agit-il de celui-ci\u202f? <a class="code" href="/{ONE.ark}">{ONE.ark}</a>' in page
    assert asked.location(f"/{ONE.ark}") == ONE.url


@pytest.mark.parametrize(
    "target",
    [
        *(
            "/ark:12345/x6",
            "/ark:12345/x6)",
            "/2024/report",
            "/12345",
            "/nothing",
            "/99999/x1",
            "/ark:12345/%zz",
            "/ark:",
        ),
        *("/%25", "/%2525%2525", "/ark:" + "%25" * 500, "/ark:12345/" + "(" * 3000, "/" + ")" * 5000),
        "/ark:12345/x5np1/c2)",
    ],
)
def test_what_is_not_known_is_not_suggested(target: str) -> None:
    began = time.process_time()
    response = gateway(suggest="neighbours").ask(target, accept="application/json")
    assert response.status in (302, 400, 404)
    assert b"suggestion" not in response.body
    assert time.process_time() - began < 5, "the time is linear"


def test_the_spelling_of_an_ark_of_others_needs_no_object() -> None:
    for target in ("/54321/x1", "/ark/54321/x1,", "/ark%253A54321%252Fx1", "/ark:/ark:54321/x1"):
        document = json.loads(gateway().ask(target, accept="application/json").body)
        assert document["suggestion"] == "ark:54321/x1", target


def test_the_upper_case_of_an_object_and_one_that_is_gone() -> None:
    """A spelling leaves no doubt about which object is meant, so that of one that is gone helps, too."""
    for target, meant in (("/ark:12345/abc", UPPER.ark), ("/ark:12345/X7)", WITHDRAWN.ark)):
        assert json.loads(gateway().ask(target, accept="application/json").body)["suggestion"] == meant


def test_the_search_and_the_api_suggest_the_same() -> None:
    page = show("/?q=ark:12345/X5NP1)", *TABLE.values(), objects=objects(ONE), public_url=HERE)
    assert "Is it this one?" in page.text
    assert f"/{ONE.ark}" in page.hrefs()
    problem = gateway().ask("/api/v1/discover?ark=ark:12345/X5NP1)")
    assert (problem.status, json.loads(problem.body)["suggestion"]) == (404, ONE.ark)
    problem = gateway().ask("/api/v1/discover?ark=12345/x5np1")
    assert (problem.status, json.loads(problem.body)["suggestion"]) == (400, ONE.ark)


# ---- one wrong character


def noid(name: str, scope: Scope) -> OwnObject:
    return OwnObject(str(Ark("12345", name).with_check_character(scope=scope)), f"https://o.example/{name}")


def near(asked: str, own: OwnObjects, limit: float = PATIENCE) -> str:
    """Return the suggestion for an ARK. Its limit in seconds is high: a busy machine takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suggest, "MAX_SECONDS", limit)
        found = gateway(own, suggest="neighbours").ask(f"/{asked}", accept="application/json")
    return str(json.loads(found.body).get("suggestion", "")) if found.status == 404 else f"status {found.status}"


NAMES = st.text(BETANUMERIC, min_size=2, max_size=30)


@given(NAMES, st.sampled_from(SCOPES), st.data())
def test_every_single_substitution_and_swap_is_found(name: str, scope: Scope, data: st.DataObject) -> None:
    one = noid(name, scope)
    ark = Ark.parse(one.ark)
    place = data.draw(st.integers(0, len(ark.name) - 2))
    if data.draw(st.booleans()):
        wrong = ark.name[:place] + ark.name[place + 1] + ark.name[place] + ark.name[place + 2 :]
    else:
        wrong = ark.name[:place] + data.draw(st.sampled_from(BETANUMERIC + "loaeiuy")) + ark.name[place + 1 :]
    asked = Ark("12345", wrong)
    position = place + 1 + (len("12345/") if scope == "naan" else 0)
    if wrong == ark.name or asked.check(scope) or position % len(BETANUMERIC) == 0:
        return  # no error, or one that the check character cannot show
    assert near(str(asked), objects(one)) == one.ark
    assert near(f"{asked}/c2.pdf", objects(one)) == f"{one.ark}/c2.pdf"


def test_no_neighbour_without_the_setting_or_a_check_character() -> None:
    own = objects(*(noid(f"x5np{number}", "naan") for number in range(20)))
    wrong = noid("x5np7", "naan").ark.replace("x5np", "x5nq")
    assert near(wrong, own) == noid("x5np7", "naan").ark
    assert b"suggestion" not in gateway(own).ask(f"/{wrong}", accept="application/json").body
    plain = objects(*(OwnObject(f"ark:12345/b{number}", "https://o.example/") for number in range(20)))
    assert near("ark:12345/b21", plain) == ""


def test_the_neighbours_of_a_store(tmp_path: Path) -> None:
    """Its names show which check characters a NAAN has."""
    rows = [noid(f"x5np{number}", "naan") for number in range(40)]
    rows[7] = rows[7]._replace(url="", status=410)
    text = "ark,url,status\n" + "".join(f"{one.ark},{one.url},{one.status}\n" for one in rows)
    own = read(imported(tmp_path / "own.sqlite", text)).objects.within(PATIENCE)
    assert near(rows[8].ark.replace("x5np", "x5nq"), own) == rows[8].ark
    assert near(rows[7].ark.replace("x5np", "x5nq"), own) == ""


def test_an_object_that_is_gone_is_no_neighbour() -> None:
    one = noid("x5np7", "naan")
    wrong = one.ark.replace("x5np", "x5nq")
    assert near(wrong, objects(one._replace(url="", status=410))) == ""


class Counted(Objects):
    """Objects that count what is looked up, and from then on take their time or cannot be read."""

    asked = 0
    seconds = 0.0
    is_broken = False

    def get(self, ark: str) -> OwnObject | None:
        self.asked += 1
        time.sleep(self.seconds)
        if self.is_broken and self.asked > 4:
            raise Unreadable("not now")
        return super().get(ark)


@pytest.mark.parametrize(("seconds", "is_broken"), [(0.0, False), (0.01, False), (0.0, True)])
def test_neighbours_cost_little_and_never_an_error(seconds: float, is_broken: bool) -> None:
    rows: Sequence[OwnObject] = [noid(f"x5np{number}", "name") for number in range(20)]
    own = Counted(rows)
    own.seconds, own.is_broken = seconds, is_broken
    wrong = str(Ark("12345", "bcdfghjk" * 4))
    assert Ark.parse(wrong).check("name") is None
    assert near(wrong, own, suggest.MAX_SECONDS) == ""
    assert own.asked <= (MAX_LOOK_UPS + 10 if seconds == 0 else 10)
    if not is_broken:
        assert near(f"{wrong}b", own, suggest.MAX_SECONDS) == "", "a longer name is not tried"


def test_a_hostile_suggestion_is_a_text() -> None:
    page = gateway().ask("/ark:12345/x5np1%22%3E%3Cscript%3E", accept="text/html").body.decode()
    assert "<script" not in page
    assert "script" not in html.unescape(page).partition("<title>")[0]
