"""An Ark is a value: it compares, sorts, formats, copies and serialises as ``ipaddress`` and ``pathlib`` values do."""

from __future__ import annotations

import copy
import json
import pickle
import random
import sqlite3
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import INFLECTIONS, Ark
from maptr.errors import ArkSyntaxError, ConfigError

SPELLINGS = (
    "ark:12345/x54.v1",
    "https://n2t.net/ark:/12345/x5-4.v1?info",
    "ark:/12345/x54.v1/",
    "ARK:12345/x54.v1#top",
)
ARKS = [Ark.parse(text) for text in SPELLINGS]


def test_all_spellings_are_one_value() -> None:
    assert len(set(ARKS)) == 1
    assert all(one == other and not one < other and one <= other and one >= other for one in ARKS for other in ARKS)
    assert {hash(ark) for ark in ARKS} == {hash(Ark("12345", "x54", ".v1"))}


def test_it_is_not_a_tuple_and_not_a_text() -> None:
    ark: Any = ARKS[0]
    assert not isinstance(ark, tuple | str)
    assert ark != str(ark)
    assert ark != ("12345", "x54", ".v1")
    with pytest.raises(TypeError):
        len(ark)
    for other in (str(ark), ("12345",), None):
        with pytest.raises(TypeError, match="not supported between"):
            ark < other  # noqa: B015


def test_the_order_is_that_of_the_code_points_of_the_text() -> None:
    texts = [f"ark:{naan}/{name}" for naan in ("9", "10", "b2") for name in ("x", "X", "x/c", "x.v", "~", "x0")]
    random.Random(1).shuffle(texts)
    assert [str(ark) for ark in sorted(map(Ark.parse, texts))] == sorted(texts)
    assert max(map(Ark.parse, texts)) == Ark.parse(max(texts))


def test_it_is_written_as_its_text() -> None:
    ark = ARKS[1]
    assert f"{ark:>20}|{ark}|%s|{ark!s:.5}" % ark == "    ark:12345/x54.v1|ark:12345/x54.v1|ark:12345/x54.v1|ark:1"
    assert repr(ark) == "Ark('12345', 'x54', '.v1')"
    assert repr(Ark("12345", "x54")) == "Ark('12345', 'x54')"
    assert eval(repr(ark)) == ark
    assert json.dumps([ark], default=str) == '["ark:12345/x54.v1"]'
    assert json.loads(ark.to_json())["ark"] == str(ark)


def test_it_cannot_be_changed() -> None:
    ark: Any = ARKS[0]
    for name in ("name", "resolution", "tail", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(ark, name, "x")
        with pytest.raises(AttributeError, match="immutable"):
            delattr(ark, name)
    assert not hasattr(ark, "__dict__")


@pytest.mark.parametrize("ark", ARKS)
def test_copies_and_pickles_keep_what_was_received(ark: Ark) -> None:
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    made = [copy.copy(ark), copy.deepcopy([ark])[0], *(pickle.loads(pickle.dumps(ark, each)) for each in protocols)]
    for each in made:
        assert each == ark
        assert each.to_dict() == ark.to_dict()
        assert each.hyphenated == ark.hyphenated


def test_sqlite_stores_its_text() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (ark TEXT)")
        connection.execute("INSERT INTO t VALUES (?)", (ARKS[0],))
        assert connection.execute("SELECT ark FROM t WHERE ark = ?", (ARKS[1],)).fetchall() == [(str(ARKS[0]),)]
    connection.close()


def test_pandas_treats_equal_arks_as_one() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([*ARKS, Ark("12345", "a")])
    assert series.nunique() == 2
    assert len(series.drop_duplicates()) == 2
    assert series.groupby(series).size().to_dict() == {Ark("12345", "a"): 1, ARKS[0]: 4}
    assert pandas.Index(ARKS).nlevels == 1
    assert series.sort_values().iloc[0] == Ark("12345", "a")


def test_pydantic_reads_and_writes_it() -> None:
    pydantic = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(dict[str, Ark])
    made = adapter.validate_python({"a": SPELLINGS[1], "b": ARKS[0]})
    assert made == {"a": ARKS[0], "b": ARKS[0]}
    assert made["a"].tail == "?info"
    assert adapter.dump_json(made) == b'{"a":"ark:12345/x54.v1","b":"ark:12345/x54.v1"}'
    assert adapter.validate_json(adapter.dump_json(made)) == made
    assert adapter.dump_python(made)["a"] is made["a"]
    assert adapter.json_schema()["additionalProperties"] == {"type": "string"}
    for wrong in ("no ark", 7, None):
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python({"a": wrong})


def test_importing_maptr_imports_no_pydantic_and_no_sqlite() -> None:
    code = (
        "import sys, maptr; maptr.Ark; sys.exit(any(each in sys.modules for each in ('pydantic', 'pandas', 'sqlite3')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- made from parts


def test_parts_are_normalised() -> None:
    ark = Ark("B50-60", "x5\u201054", "/c%7d.v2")
    assert (str(ark), ark.resolution, ark.hyphenated) == ("ark:b5060/x554/c%7D.v2", "ark:b5060/x554/c%7d.v2", "")
    assert Ark("12345", "x", ".v7/c3") == Ark.parse("ark:12345/x.v7/c3")
    assert (Ark("12345", "").name, str(Ark("12345", ""))) == ("", "ark:12345")


@pytest.mark.parametrize(
    "parts",
    [
        *(
            ("", "x"),
            ("a", "x"),
            ("1" * 64, "x"),
            ("12345", "X 6"),
            ("12345", "X 6/../"),
            ("12345", "x?info"),
            ("12345", "x#a"),
        ),
        *(("12345", "x/c"), ("12345", "x.v"), ("12345", "x", "c"), ("12345", "x", "/"), ("12345", "x", "//c")),
        *(("12345", "x", "/.."), ("12345", "x", "/./c"), ("12345", "", "/c"), ("12345", "x%"), ("12345", "x\u00e9")),
        *(("12345", "x\n"), ("12345", "ark:1/x"), ("12345", "x", "/ark:1/x"), ("12345", "-"), ("12345", 'x"')),
    ],
)
def test_bad_parts_are_errors(parts: tuple[str, ...]) -> None:
    with pytest.raises(ArkSyntaxError):
        Ark(*parts)


@given(st.text(max_size=6), st.text(max_size=6))
def test_made_from_parts_it_is_what_its_text_is(name: str, qualifier: str) -> None:
    try:
        ark = Ark("12345", name, qualifier)
    except ArkSyntaxError:
        return
    again = Ark.parse(str(ark), bare=True)
    assert (again, again.naan) == (ark, "12345")
    assert Ark.parse(ark.resolution, bare=True) == ark


def test_replace_recomputes_everything() -> None:
    ark = Ark.parse("https://n2t.net/ark:/12345/x5-4/c3?info")
    other = ark.replace(name="x6")
    assert (str(other), other.resolution, other.tail, other.nma) == (
        "ark:12345/x6/c3",
        "ark:12345/x6/c3",
        "",
        "https://n2t.net/",
    )
    assert ark.replace(qualifier="").resolution == "ark:12345/x54"
    assert ark.replace(naan="2") == Ark("2", "x54", "/c3")
    with pytest.raises(ArkSyntaxError):
        ark.replace(name="x 6")
    if sys.version_info >= (3, 13):
        assert copy.replace(ark, name="x6") == other


# ---- components


def test_a_component_below() -> None:
    ark = Ark.parse("ark:/12345/x5-4/?info")
    below = ark / "c-3" / "s%7d/t5.pdf"
    assert (str(below), below.tail, below.notes) == ("ark:12345/x54/c3/s%7D/t5.pdf", "", ())
    assert (below.resolution, below.hyphenated) == ("ark:12345/x54/c3/s%7d/t5.pdf", "ark:12345/x5-4/c-3/s%7d/t5.pdf")
    assert Ark("12345", "") / "x54" == Ark("12345", "x54")


@pytest.mark.parametrize(
    "text",
    ["", "/", "/c", "c/", "c//d", ".", "..", "c/..", ".pdf", "c?", "c#d", "c d", "c\n", "a.b/c", "%zz", "ark:1/x"],
)
def test_what_is_not_a_component_is_an_error(text: str) -> None:
    with pytest.raises(ArkSyntaxError):
        Ark("12345", "x54") / text


def test_a_variant_has_no_components() -> None:
    with pytest.raises(ArkSyntaxError, match="parent"):
        Ark("12345", "x54", ".pdf") / "c3"
    with pytest.raises(TypeError):
        Ark("12345", "x54") / 3  # type: ignore[operator]


def test_the_parents() -> None:
    ark = Ark.parse("https://n2t.net/ark:12345/x54/c3/s5.v7.xsl?info")
    texts = ["ark:12345/x54/c3/s5", "ark:12345/x54/c3", "ark:12345/x54", "ark:12345"]
    assert [str(each) for each in ark.parents] == texts
    assert ark.parents[1:][0] == Ark("12345", "x54", "/c3")
    assert ark.parents[-1].parent == ark.parents[-1]
    assert ark.parents[-1].parents == ()
    assert (ark.parts, ark.variants) == (("12345", "x54", "c3", "s5"), ("v7", "xsl"))
    assert (Ark("12345", "").parts, Ark("12345", "x").parts) == (("12345",), ("12345", "x"))


@given(st.lists(st.text("abc123~*", min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_component_added_is_taken_away_by_parent(components: list[str]) -> None:
    ark = Ark("12345", "")
    for component in components:
        below = ark / component
        assert below.parent == ark
        assert below.parts == (*ark.parts, component)
        ark = below


def test_an_inflection() -> None:
    ark = Ark.parse("ark:12345/x54?lang=fr")
    for inflection in INFLECTIONS:
        assert (ark.with_inflection(inflection).inflection, ark.with_inflection(inflection)) == (inflection, ark)
    assert ark.with_inflection(None).tail == ""
    with pytest.raises(ArkSyntaxError):
        ark.with_inflection("info")


# ---- check characters

# Of the National Library of France, which leaves the NAAN out; then N2T, Internet Archive, SNAC and California.
OVER_THE_NAME = ["cb13988532q", "btv1b8449691v", "cb37469945w", "bpt6k5437287k"]
OVER_NAAN_AND_NAME = ["13960/t8cg89f76", "99166/w6ht2mtq", "13030/xf93gt2q"]


def test_the_scope_of_a_check_character() -> None:
    assert [Ark("12148", name).check() for name in OVER_THE_NAME] == ["name"] * 4
    assert [Ark.parse(f"ark:{text}").check() for text in OVER_NAAN_AND_NAME] == ["naan"] * 3
    both = Ark("13030", "tf5p30086k")
    assert (both.check(), both.check("name"), both.check_scope) == ("naan", "name", "both")
    france = Ark("12148", OVER_THE_NAME[0])
    assert (france.check("naan"), france.check_scope, france.replace(name="cb1").check()) == (None, "name", None)


def test_a_check_character_is_added() -> None:
    assert str(Ark("12148", "cb13988532").with_check_character(scope="name")) == "ark:12148/cb13988532q"
    assert Ark("13030", "xf93gt2", "/c3").with_check_character(scope="naan") == Ark("13030", "xf93gt2q", "/c3")
    with pytest.raises(ArkSyntaxError, match="no name"):
        Ark("12148", "").check_character(scope="name")
    with pytest.raises(ConfigError):
        Ark("12148", "x").check_character(scope="both")  # type: ignore[arg-type]


def test_seven_of_a_hundred_names_pass_by_chance() -> None:
    rng = random.Random(1)
    names = ["".join(rng.choices("0123456789bcdfghjkmnpqrstvwxz", k=9)) for _ in range(20_000)]
    assert 0.06 < sum(Ark("12345", name).check() is not None for name in names) / len(names) < 0.08
