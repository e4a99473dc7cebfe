"""ARKs: the vectors, and properties that hold for any text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr.ark import (
    BETANUMERIC,
    INFLECTIONS,
    MAX_COUNTED,
    MAX_TEXT,
    MAX_TRIED,
    PROFILES,
    SHARED_NAANS,
    Ark,
    Profile,
    find_arks,
    first_arks,
)
from maptr.errors import ArkSyntaxError, ConfigError
from tests.support.answers import load_vectors

VECTORS = [*load_vectors("ark")["ark"], *load_vectors("drafts")["ark"]]
NOTHING_ELSE = {"notes": [], "tail": "", "inflection": ""}  # of an ARK whose resolution form is given


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["title"])
def test_vector(case: dict[str, Any]) -> None:
    profile = case.get("profile", "current")
    parse = partial(Ark.parse, profile=profile, bare=case.get("bare", False), wrapped=case.get("wrapped", False))
    if "prose" in case:
        found = find_arks(case["prose"], profile=profile)
        assert [str(ark) + ark.tail for ark in found] == case["found"]
        assert [ark.nma for ark in found] == case.get("found_nma", [""] * len(found))
        if "found_notes" in case:
            assert ["; ".join(ark.notes) for ark in found] == case["found_notes"]
        return
    if "refused" in case:
        with pytest.raises(ArkSyntaxError) as caught:
            parse(case["received"])
        assert case["refused"] in str(caught.value)
        assert str(caught.value).isprintable()
        assert caught.value.suggestion == case.get("suggestion", caught.value.suggestion)
        return
    ark = parse(case["received"])
    parts = {
        **{name: getattr(ark, name) or "" for name in ("shoulder", "inflection", "query")},
        **{name: list(getattr(ark, name)) for name in ("components", "variants", "notes")},
        **{name: getattr(ark, name) for name in ("nma", "naan", "name", "blade", "qualifier", "tail", "resolution")},
        "normal": str(ark),
        "in_url": ark.in_url,
        "check": ark.check() is not None,
        "implied": [str(one) for one in ark.implied()],
    }
    for name, expected in ((NOTHING_ELSE if "resolution" in case else {}) | case).items():
        assert parts.get(name, expected) == expected, name
    assert ark != Ark(ark.naan, f"{ark.blade}other".translate({ord("#"): None}))
    others = [ark, *map(parse, case.get("other", ()))]
    assert len(set(others)) == len(others)
    for text in case.get("same", ()):
        again = parse(text)
        assert (again == ark, again != ark) == (True, False), text


def test_a_check_character_finds_a_wrong_character_and_two_swapped() -> None:
    right = "xf93gt2q"
    wrong = [right[:at] + other + right[at + 1 :] for at in range(len(right)) for other in BETANUMERIC]
    wrong += [right[:at] + right[at + 1] + right[at] + right[at + 2 :] for at in range(len(right) - 1)]
    for name in wrong:
        if name != right:
            assert not Ark.parse(f"ark:13030/{name}").check("naan"), name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ark:12345/x" + "1" * MAX_TEXT, f"longer than {MAX_TEXT} bytes"),
        (b"ark:12345/x\xff", "not UTF-8"),
        ("ark:12345/x\ud800", "not UTF-8"),
    ],
    ids=["long", "bytes", "surrogate"],
)
def test_text_that_is_too_long_or_not_utf8_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(ArkSyntaxError, match=reason):
        Ark.parse(text)


@pytest.mark.parametrize("given", [None, 12345, ["ark:12345/x1"], Path("ark:12345/x1"), object()])
@pytest.mark.parametrize("profile", PROFILES)
def test_other_types_are_a_type_error(given: Any, profile: Profile) -> None:
    with pytest.raises(TypeError, match=f"^an ARK is a str, bytes or an Ark, not {type(given).__name__}$"):
        Ark.parse(given, profile=profile)
    with pytest.raises(TypeError, match=f"^a text is a str, not {type(given).__name__}$"):
        find_arks(given, profile=profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_an_ark_is_returned_as_it_is(profile: Profile) -> None:
    for ark in (Ark.parse("https://n2t.net/ark:/12345/x5-4?info"), Ark.parse("ark:12345", bare=True)):
        assert Ark.parse(ark, profile=profile) is ark


def test_shared_naans_have_their_meaning() -> None:
    """Draft section 2.3, table 2: whether their ARKs resolve, and are meant for the long term."""
    assert {naan: (shared.resolves, shared.long_term) for naan, shared in SHARED_NAANS.items()} == {
        "12345": (None, False),
        "99152": (True, True),
        "99166": (True, True),
        "99999": (None, False),
    }
    assert Ark.parse("ark:99152/p0x").shared == SHARED_NAANS["99152"]
    assert Ark.parse("ark:13030/tf5").shared is None


def test_a_name_of_one_character_has_no_check_character() -> None:
    assert Ark("13030", "x").with_check_character(scope="naan").check("naan") == "naan"
    assert not any(Ark.parse(f"ark:13030/{one}").check() for one in BETANUMERIC)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match="'2003' is not one of current, 2019, 2002"):
        Ark.parse("ark:12345/x1", profile="2003")  # type: ignore[arg-type]


# ---- properties

HYPHENS = "-\u00ad\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"

names = st.text(alphabet="ab1X./-%=~*+@_$:", min_size=1, max_size=40)
naans = st.text(alphabet=BETANUMERIC, min_size=1, max_size=16)


@given(st.text() | st.binary() | names.map(lambda name: f"ark:12345/{name}") | st.text().map(lambda s: f"ark:1/{s}"))
def test_nothing_but_ark_syntax_error_escapes(text: str | bytes) -> None:
    for profile in PROFILES:
        try:
            ark = Ark.parse(text, profile=profile, bare=True)
        except ArkSyntaxError:
            continue
        again = Ark.parse(str(ark), profile=profile, bare=True)
        assert again == ark
        assert str(again) == str(ark)
        assert ark.resolution.isascii()
        assert ark.resolution.isprintable()
        assert Ark.parse(ark.resolution, profile=profile, bare=True) == ark
        assert ark.implied()[0] == ark


@given(naans, names, st.data())
def test_equivalent_spellings_are_equal(naan: str, name: str, data: st.DataObject) -> None:
    try:
        ark = Ark.parse(f"ark:{naan}/{name}")
    except ArkSyntaxError:
        return
    at = data.draw(st.integers(0, len(name)))
    mark = data.draw(st.sampled_from([*HYPHENS, "\n", " ", "\u200b", "-\n"]))
    nma = data.draw(st.sampled_from(["", "https://h.example/", "h.example:8080/p/", "http://[::1]/"]))
    label = data.draw(st.sampled_from(["ark:", "ark:/", "ARK:", "aRk:/", "ark%3A", "ark:%2F", "Ark%3a%2f"]))
    slash = data.draw(st.sampled_from(["/", "%2F", "%2f"]))
    tail = data.draw(st.sampled_from(["", *INFLECTIONS, "?q=1"]))
    end = data.draw(st.sampled_from(["", "/", ".", "/."]))
    fragment = data.draw(st.sampled_from(["", "#", "#top", "#?info"]))
    left, right = data.draw(st.sampled_from([("", ""), ("(", ")"), ("<", ">"), ("\u201c", "\u201d")]))
    text = f"{nma}{label}{naan.upper()}{slash}{name[:at]}{mark}{name[at:]}{end}{tail}{fragment}"
    other = Ark.parse(f"{left}{text}{right}", wrapped=True)
    assert other == ark
    assert hash(other) == hash(ark)
    assert other.tail == tail


@given(naans, names, st.sampled_from(["", "?info", "?q=1"]))
def test_an_ark_that_was_encoded_as_a_parameter_is_read_as_it_was(naan: str, name: str, tail: str) -> None:
    try:
        ark = Ark.parse(f"ark:/{naan}/{name}{tail}")
    except ArkSyntaxError:
        return
    encoded = quote(f"ark:/{naan}/{name}{tail}", safe="")
    for text in (encoded, f"https://h.example/r?ark={encoded}&x=1", f"%22{encoded}%22"):
        again = Ark.parse(text)
        assert (again, again.resolution, again.tail) == (ark, ark.resolution, ark.tail)
        if ark.resolution[-1].isalnum():  # what ends otherwise may be the end of a sentence
            assert find_arks(f"see {text} now") == [ark]


@given(naans, names)
def test_every_slash_and_period_of_the_normal_form_separates_two_parts(naan: str, name: str) -> None:
    try:
        text = str(Ark.parse(f"ark:{naan}/{name}"))
    except ArkSyntaxError:
        return
    rest = text.partition("/")[2]
    assert all(part for component in rest.split("/") for part in component.split("."))
    assert "." not in rest.rpartition("/")[0]


def test_an_ark_made_from_its_parts_has_a_resolution_form() -> None:
    ark = Ark("12345", "x54", "/c2.v1")
    assert (ark.resolution, ark) == ("ark:12345/x54/c2.v1", Ark.parse("ark:/12345/x5-4.v1/c2"))


PIECES = (
    *("ark:", "ARK:/", "ark%3A", "12345", "/", "%2F", "x5", "(", ")", ".", ",", "'s", "-", "-\n ", "?", "#", "%", "&"),
    *("https://", "\u2014", "\u200b", "\ud800", " ", "*", "=", "\u0131", "\u212a"),
)


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_find_arks_never_raises(text: str) -> None:
    for profile in PROFILES:
        for ark in find_arks(text, profile=profile):
            assert Ark.parse(str(ark), profile=profile) == ark
            assert Ark.parse(f"{ark.nma}{ark.in_url}", profile=profile) == ark or "#" in str(ark)


# ---- ARKs in other texts

FRAGMENTS = (
    *("ark:/12345/", "ARK:12345/", "ark%3A%2F12345%2F", "ark%253A%252F12345%252F", "info:ark/12345/", "ark+=12345="),
    *(
        "x5",
        "x-6",
        "x%2Fy",
        "y.v1",
        "/",
        "%2F",
        "?",
        "?info",
        "?a=1&b=2",
        "#p",
        "&",
        ";view=1",
        ".",
        ",",
        "-",
        "'",
        "%",
    ),
    *("https://n2t.net/", "https%3A%2F%2Fn2t.net%2F", "https://h.example/?u=", "mailto:?body=", "urldefense.com/v3/__"),
    *("%20", "%22", "%0A", "%3C", "%3E", "%26", "+", "$u", "$y", "|", "\u2021a", "\x1f", "__;!!a$", "ark__12345_x5"),
    *(
        " ",
        " ",
        "\n",
        "\t",
        '"',
        "(",
        ")",
        "[",
        "]",
        "<",
        ">",
        "^",
        "\u00e9",
        "\u0301",
        "\u2014",
        "\u200b",
        "\xa0",
        "ark:",
    ),
)
fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join)


@given(fragments)
@example("ark:/12345/x-6?a=1&b=2 and")
@example("12345/x-6?info")
def test_a_suggestion_is_an_ark_and_loses_nothing(text: str) -> None:
    try:
        Ark.parse(text)
    except ArkSyntaxError as error:
        if not error.suggestion:
            return
        meant = Ark.parse(error.suggestion)
        assert error.suggestion == (meant.hyphenated or meant.resolution) + meant.tail
        if found := find_arks(text):
            assert meant == found[0] or any("cut before" in note for note in found[0].notes)
            assert meant.tail.startswith(found[0].tail)


@given(fragments)
def test_no_text_is_cut_without_a_note_where_it_goes_on(text: str) -> None:
    """What follows an ARK without a note does not begin with a letter, a mark, ``^`` or a ``%`` without digits."""
    for wrong in ("\u00e9", "\u0301", "^max", "%zz"):
        for ark in find_arks(f"{text} https://n2t.net/ark:/12345/x1?r=th{wrong}tre")[-1:]:
            assert (str(ark), ark.tail) == ("ark:12345/x1", "?r=th")
            assert any(note.startswith("cut before") for note in ark.notes)


encoded_around = st.sampled_from(
    [("", ""), ("see%20", "%20via"), ("%22", "%22"), ("%3C", "%3E"), ("%0A", "%0A"), ("see+", "+via"), ("%28", "%29")]
)
in_urls = st.sampled_from(["https://wa.me/?text={}", "https://h.example/s?q={}&lang=fr", "mailto:?body={}&subject=a"])


@given(naans, names, encoded_around, in_urls, st.sampled_from(["", "https://n2t.net/"]))
def test_an_ark_in_encoded_text_is_the_ark_of_the_text(
    naan: str, name: str, around: tuple[str, str], url: str, nma: str
) -> None:
    try:
        ark = Ark.parse(f"ark:/{naan}/{name}")
    except ArkSyntaxError:
        return
    encoded = quote(f"{nma}ark:/{naan}/{name}", safe="")
    text = url.format(f"{around[0]}{encoded}{around[1]}")
    again = Ark.parse(text)
    assert (again, again.resolution, again.tail) == (ark, ark.resolution, ark.tail)
    if ark.resolution[-1].isalnum():
        assert find_arks(f"see {text} now") == [ark]
        both = url.format(f"{around[0]}{encoded}{around[1]}%20{around[0]}{encoded}{around[1]}")
        assert find_arks(f"see {both} now") == [ark, ark]


@given(naans, names)
def test_an_ark_that_was_encoded_twice_is_found_and_suggested(naan: str, name: str) -> None:
    try:
        ark = Ark.parse(f"ark:/{naan}/{name}")
    except ArkSyntaxError:
        return
    if not ark.resolution[-1].isalnum():
        return
    text = quote(quote(f"ark:/{naan}/{name}", safe=""), safe="")
    for twice in (text, f"https://iiif.example/iiif/2/{text}", f"https://h.example/?m={text}&a=1"):
        assert find_arks(twice) == [ark]
        with pytest.raises(ArkSyntaxError) as refused:
            Ark.parse(twice)
        assert Ark.parse(refused.value.suggestion) == ark


words = st.sampled_from(
    ["See", "voil\u00e0", "\u53c2\u7167", "\u0441\u043c.", "(e.g.", "\u00ab", "ibid.", "\u2014", "bark", "and"]
)
ends = st.sampled_from(
    ["", ".", ",", ";", ":", "!", "?", ")", ").", "\u3002", "\u00bb", "\u201d,", "'", "'s", "...", "]", "}", ">"]
)


@given(st.lists(st.tuples(words, st.integers(0, 99999), ends), max_size=8))
def test_every_ark_of_a_sentence_is_found(sentence: list[tuple[str, int, str]]) -> None:
    text = " ".join(f"{word} ark:/12345/x{number}{end}" for word, number, end in sentence)
    assert [str(ark) for ark in find_arks(text)] == [f"ark:12345/x{number}" for _, number, _ in sentence]


@pytest.mark.parametrize(
    "piece",
    [
        *("ark:", "ark:1/", "ark:1/x(", "ark:1/x)", "ark:1/x-\n", "ark:12345/\n ", "ark:\n/", "ark:" + "b" * 126),
        *("http://", "/", "\u2014", "%2", "(", "' "),
        *("https://urldefense.com/v3/__", "ark%253A", "info:ark/1/", "ark+=1=", "$uark:", "&b=ark:/12345/x"),
    ],
)
def test_a_long_text_is_read_in_linear_time(piece: str) -> None:
    """With quadratic time this test would not end."""
    find_arks("ark:12345/x" + piece * (100_000 // len(piece)) + " ark:12345/y")


def test_an_ark_in_prose_that_is_too_long_does_not_hide_the_next_one() -> None:
    longest = "ark:12345/" + "x" * (MAX_TEXT - 10)
    assert [str(ark) for ark in find_arks(f"{longest} {longest}x ark:12345/y")] == [longest, "ark:12345/y"]


@pytest.mark.parametrize("text", ["x" * 2000, "ark:" + "!" * 2000 + "/x", "ark:12345/x%" + "\u1234" * 2000])
def test_a_message_is_short_whatever_was_received(text: str) -> None:
    with pytest.raises(ArkSyntaxError) as caught:
        Ark.parse(text)
    assert len(str(caught.value)) < 200


# ---- the shortcut for ARKs in normal form

BLANKS = " " * 300  # stripped, and too long for the shortcut
SHORT_PIECES = (
    *("ark:", "ARK:", "/", "12345", "a", "B", "x6", ".", "..", "-", "%2f", "%"),
    *("?", "??", "?info", "é", "#", ":", " "),
)
ark_texts = st.lists(st.sampled_from(SHORT_PIECES), max_size=9).map("".join)
likely_texts = st.builds(
    "{}{}/{}".format,
    st.sampled_from(["ark:", "ark:/", "https://h:1/ark:"]),
    st.sampled_from(["12345", "b2"]),
    ark_texts,
)


def parsed(text: str | bytes) -> tuple[object, ...] | None:
    try:
        return Ark.parse(text).__reduce__()
    except ArkSyntaxError:
        return None


@given(ark_texts | likely_texts | st.text(max_size=20).map("ark:12345/{}".format))
@example("ark:/12345/x5/c2.fr.odf?info")
@example("ark:12345/x/ark:/12345/y\n")
@example("ark:12345/x.a/b")
@example("ark:12345/x?a-b")
def test_the_shortcut_reads_what_the_general_path_reads(text: str) -> None:
    general = parsed(text + BLANKS)
    assert parsed(text) == general
    assert parsed(text.encode()) == general


@pytest.mark.parametrize(
    "text",
    [
        *("12148/x/y", "ark/12148/x/y", "ARK 12148/x/y", "ark :12148/x/y", "ark12148/x/y", "arks:12148/x/y"),
        *("ark\uff1a12148/x/y", "ark:/ 12148/x/y", "https://example.org/ark/12148/x/y"),
    ],
)
def test_what_people_write_for_the_label_is_understood_but_not_taken(text: str) -> None:
    with pytest.raises(ArkSyntaxError) as refused:
        Ark.parse(text)
    assert refused.value.suggestion == "ark:12148/x/y"


@pytest.mark.parametrize("start", ["ark:12345/x5", "https://n2t.net/ark:/12345/x5"])
@pytest.mark.parametrize(
    ("ends", "read"),
    [
        ((".", "...", "?", "?info."), "ark:12345/x5"),
        ((",", ";", ":", "!", ")", ").", "'"), None),  # of RFC 3986, noted
        (("\u2026", '"', '."', "\u201d.", "\u00bb", "\u00a0\u00bb", "\u3002", "\u3002\u300d", "\uff09", "]", ">"), ""),
    ],
)
def test_the_end_of_a_sentence_is_dropped_noted_or_refused(start: str, ends: tuple[str, ...], read: str | None) -> None:
    for end in ends:
        assert [str(ark) for ark in find_arks(start + end)] == ["ark:12345/x5"]
        if read == "":
            with pytest.raises(ArkSyntaxError) as refused:
                Ark.parse(start + end)
            assert refused.value.suggestion == "ark:12345/x5"
        else:
            ark = Ark.parse(start + end)
            assert (str(ark), bool(ark.notes)) == (read or f"ark:12345/x5{end.rstrip('.')}", read is None)


@pytest.mark.parametrize(
    "text",
    ["Mark 12148/x", "shark 12148/x", "ark 12148/x and more", "12148/ x", "12148/\u00a0x", "12148/x|y", "ark 12148"],
)
def test_nothing_is_suggested_for_other_text(text: str) -> None:
    with pytest.raises(ArkSyntaxError) as refused:
        Ark.parse(text)
    assert refused.value.suggestion == ""


# ---- hostile text


@pytest.mark.parametrize("text", ["ark:\u2014/x", "see ark:\u2014//ark/", "ARK:\u2014/.\xa0ark"])
def test_a_label_before_a_dash_is_no_ark(text: str) -> None:
    assert find_arks(text) == []
    with pytest.raises(ArkSyntaxError):
        Ark.parse(text)


@pytest.mark.parametrize(
    ("blanks", "left"),
    [("\n", ""), (" \r\n\t", ""), ("\n\n", "\n"), ("\n \n", "\n"), ("\r\n\r\n ", "\r\n"), (" ", " ")],
)
def test_only_the_last_line_end_of_several_is_removed(blanks: str, left: str) -> None:
    if left:
        with pytest.raises(ArkSyntaxError, match="white space inside"):
            Ark.parse(f"ark:12345/x{blanks}y")
    else:
        assert str(Ark.parse(f"ark:12345/x{blanks}y")) == "ark:12345/xy"


def test_many_brackets_around_an_ark_are_removed() -> None:
    assert str(Ark.parse("( " * 1_000 + "ark:12345/x" + " )" * 1_000)) == "ark:12345/x"


@pytest.mark.parametrize(("host", "nma"), [("a.example", "a.example/"), ("a:80", "a:80/")])
def test_the_2002_draft_has_a_host_in_the_label(host: str, nma: str) -> None:
    ark = Ark.parse(f"ark:/{host}/12345/x", profile="2002")
    assert (ark.nma, str(ark)) == (nma, "ark:12345/x")


def test_of_a_text_that_should_be_one_ark_only_the_first_labels_are_read() -> None:
    """A request of 8 kB has hundreds, and each takes a server a part of a millisecond."""
    many = " ".join(f"ark:12345/x{number}" for number in range(500))
    assert [str(ark) for ark in first_arks(many, 2)] == ["ark:12345/x0", "ark:12345/x1"]
    with pytest.raises(ArkSyntaxError, match=f"^more than {MAX_COUNTED} ARKs, not one: ark:12345/x0, ark:12345/x1$"):
        Ark.parse(many)
    none = "ark:12345/. " * MAX_TRIED
    assert first_arks(f"{none}ark:12345/x", 1) == []
    assert [str(ark) for ark in first_arks(f"{none[12:]}ark:12345/x", 1)] == ["ark:12345/x"]
    assert [str(ark) for ark in find_arks(f"{none}ark:12345/x")] == ["ark:12345/x"]
    with pytest.raises(ArkSyntaxError) as refused:
        Ark.parse(f"{none}ark:12345/x")
    assert refused.value.suggestion == ""
