"""The literal examples of three versions of draft-kunze-ark and of Kernel Metadata."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from maptr.ark import Ark, find_arks
from maptr.errors import ArkSyntaxError
from maptr.nma.describe import normal_date, read
from maptr.web.http import Page

VECTORS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "vectors" / "drafts.toml").read_text("utf-8")
)
PARTS = ("nma", "naan", "name", "shoulder", "blade", "qualifier", "inflection", "in_url")


def cases(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["title"])


@cases("ark")
def test_ark(case: dict[str, Any]) -> None:
    profile, bare = case.get("profile", "current"), case.get("bare", False)
    if "prose" in case:
        found = find_arks(case["prose"], profile=profile)
        assert [str(ark) for ark in found] == case["found"]
        assert [ark.nma for ark in found] == case.get("found_nma", [""] * len(found))
        return
    if "refused" in case:
        with pytest.raises(ArkSyntaxError, match=case["refused"]):
            Ark.parse(case["received"], profile=profile, bare=bare)
        return
    ark = Ark.parse(case["received"], profile=profile, bare=bare)
    assert str(ark) == case["normal"]
    for part in PARTS:
        if part in case:
            assert getattr(ark, part) == case[part], part
    for part in ("components", "variants"):
        if part in case:
            assert list(getattr(ark, part)) == case[part], part
    if "implied" in case:
        assert [str(one) for one in ark.implied()] == case["implied"]
    if "check" in case:
        assert ark.check() is case["check"]
    if "notes" in case:
        assert len(ark.notes) == case["notes"]
    for text in case.get("same", ()):
        assert Ark.parse(text, profile=profile, bare=bare) == ark, text
    others = [ark, *(Ark.parse(text, profile=profile, bare=bare) for text in case.get("other", ()))]
    assert len(set(others)) == len(others)


@cases("erc")
def test_erc(case: dict[str, Any]) -> None:
    name, _, value = case.get("status", "").partition(":")
    page = Page("https://a.example/", 200, ((name.lower(), value.strip()),), case["body"].encode(), False)
    description = read(Ark.parse("ark:12345/x1"), "", page)
    assert {s.name: [list(pair) for pair in s.elements] for s in description.segments} == case["segments"]
    assert description.thump == case.get("thump", "")
    dates = [[segment["name"], date] for segment in description.to_dict()["segments"] for _, date in segment["dates"]]
    assert dates == case.get("dates", [])
    assert [code for segment in description.to_dict()["segments"] for code in segment["codes"]] == case.get("codes", [])
    for segment in description.segments:
        assert [segment.code(label) for label, _ in case.get("codes", ())] == [
            code for _, code in case.get("codes", ())
        ]


@cases("date")
def test_date(case: dict[str, Any]) -> None:
    assert {normal_date(value) for value in case["values"]} == {case.get("normal")}
