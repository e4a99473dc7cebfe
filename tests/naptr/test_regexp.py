"""Regexp fields: what is supported, what is refused, and the linear cost of every match."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.regexp import MAX_PROGRAM, MAX_RESULT, Expression, Prefix, RegexpError, Substitution, escape

PLENTY = 10_000_000
PLENTIFUL = Budget(10**12)


def substitute(field: bytes, text: bytes) -> bytes | None:
    return Substitution.parse(field).apply(text, Budget(PLENTY))


@pytest.mark.parametrize(
    ("field", "text", "result"),
    [
        (rb"!^ark:/?12345/(.*)$!https://h.example/\1!", b"ark:12345/x6/c", b"https://h.example/x6/c"),
        (rb"!^ark:/?12345/(.*)$!https://h.example/\1!", b"ark:/12345/x6", b"https://h.example/x6"),
        (rb"!^ark:/?12345/(.*)$!https://h.example/\1!", b"ark:123456/x6", None),
        (rb"!(a|ab)(c|bcd)(d*)!<\1,\2,\3>!", b"xabcdy", b"x<a,bcd,>y"),  # as in sed, text around the match stays
        (rb"!a|ab!x!", b"ab", b"x"),  # the longest, not the first alternative
        (rb"!b*!x!", b"abb", b"xabb"),  # the leftmost, though empty
        (rb"!(a)|(b)!<\1\2>!", b"b", b"<b>"),  # a group that did not match is empty
        (rb"!A(B)!\1!i", b"xab", b"xb"),
        (rb"!a{2,3}!x!", b"aaaa", b"xa"),
        (rb"!a{2}!x!", b"a", None),
        (rb"!a{2,}!x!", b"aaaa", b"x"),
        (rb"!a{x}!y!", b"a{x}", b"y"),  # a brace without a digit is a literal brace
        (rb"![]a]+!x!", b"]a]b", b"xb"),
        (rb"![^]a]+!x!", b"]ab", b"]ax"),
        (rb"![ac-]!x!", b"-", b"x"),
        (rb"![[:digit:][:upper:]]+!x!", b"a1B", b"ax"),
        (rb"!a\.b!x!", b"a.b", b"x"),
        (rb"!a\!b!x\!\\!", b"a!b", b"x!\\"),
        (rb"#a!b#x#", b"a!b", b"x"),
        (rb"!()!x!", b"a", b"xa"),
    ],
)
def test_substitution(field: bytes, text: bytes, result: bytes | None) -> None:
    assert substitute(field, text) == result


REFUSED = {
    "empty": [b""],
    "not delimiter": [b"USLC", b"!a!b"],
    "empty expression": [b"!!x!"],
    "delimiter too many": [b"!a!b!c!"],
    "cannot delimit": [b"1a1b1", b"iaibi", b"\\a\\b\\"],
    "flag": [b"!a!b!x"],
    "NUL": [b"!a\0!b!"],
    "ends inside": [b"!a\\", b"![a!b!"],
    "repeat of a repeat": [b"!a**!b!", b"!^*!b!"],
    "repeat of nothing": [b"!*a!b!", b"!{1}!b!"],
    "empty alternative": [b"!a|!b!", b"!(|a)!b!"],
    "open group": [b"!(a!b!"],
    "out of order": [b"![b-a]!b!"],
    "bad range": [b"![a-b-c]!b!"],
    "no character class": [b"![[:foo:]]!b!"],
    "bad bound": [b"!a{2,1}!b!", b"!a{256}!b!", b"!a{1!b!"],
    "back-reference to no group": [rb"!\1!b!"],
    "asks for group 1": [rb"!a!\1!"],
    r"\0": [rb"!(a)!\0!"],
}


@pytest.mark.parametrize(("reason", "field"), [(reason, field) for reason in REFUSED for field in REFUSED[reason]])
def test_refused_as_bind_does(reason: str, field: bytes) -> None:
    with pytest.raises(RegexpError, match=re.escape(reason)) as caught:
        Substitution.parse(field)
    assert caught.value.refused


DEEP = b"!" + b"(" * 100 + b")" * 100 + b"!x!"


@pytest.mark.parametrize(
    "field", [rb"!(a)\1!x!", b"![[.a.]]!x!", b"![[=a=]]!x!", b"!a)!x!", b"!(a{255}){255}!x!", DEEP]
)
def test_unsupported_although_bind_accepts_it(field: bytes) -> None:
    with pytest.raises(RegexpError) as caught:
        Substitution.parse(field)
    assert not caught.value.refused


@pytest.mark.parametrize("ere", [b"(((a{255}){255}){255})", b"(" * 60 + b"a" + b"){9}" * 60, b"(a|b){99}|" * 25 + b"c"])
def test_a_program_that_is_too_long_is_never_built(ere: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RegexpError, match=str(MAX_PROGRAM)):
            Expression.parse(ere)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ere", [rb"((a*)*(a*)*b)", rb"^((a*)*(a*)*b){20}", rb"(a|aa)*$b", rb"(a?){60}a{60}b"])
def test_a_hostile_pattern_costs_at_most_program_times_text(ere: bytes) -> None:
    expression = Expression.parse(ere)
    text = b"a" * 4000
    budget = Budget(PLENTY)
    assert expression.match(text, budget) is None
    assert PLENTY - budget.steps <= (expression.size + 2) * (len(text) + 1)


def test_a_spent_budget_is_not_a_mismatch() -> None:
    with pytest.raises(BudgetSpent):
        Substitution.parse(b"!(a*)*b!x!").apply(b"a" * 1000, Budget(500))


def test_a_result_has_a_limit() -> None:
    field = b"!(.*)!" + rb"\1" * 60 + b"!"
    with pytest.raises(ValueError, match=str(MAX_RESULT)):
        Substitution.parse(field).apply(b"a" * 255, Budget(PLENTY))


@given(st.binary(max_size=300) | st.text(alphabet="!ab()[]|*+?{}12,^$\\.:-ix", max_size=40).map(str.encode))
def test_any_field_parses_or_says_why(field: bytes) -> None:
    try:
        substitution = Substitution.parse(field)
    except RegexpError as error:
        assert str(error)
        return
    assert substitution.expression.size <= MAX_PROGRAM + 1
    substitution.apply(b"ark:12345/ab", Budget(PLENTY))


LITERALS = st.sampled_from(["a", "b", r"\.", "[.]", "[-]", r"\a", r"\0", "/", ":", "1", " ", "é", "\n"])
texts = st.lists(LITERALS, max_size=4).map("".join)
prefixes = st.builds(
    lambda before, maybe, after, inside, rest: f"^{before}{maybe}{after}" + rest.replace("T", inside),
    texts,
    st.sampled_from(["", "", "a?", "[.]?", "/?", r"\.?"]),
    texts,
    texts,
    st.sampled_from(["(T.*)$", "(T.*)", "T.*$", "T.*"]),
)


@given(
    prefixes | st.text(alphabet="^$ab()[]?*.\\1-", max_size=14).map("^{}".format),
    st.text(alphabet="ab./:1-0é\n", max_size=12),
    st.booleans(),
)
def test_a_prefix_matches_as_its_program_does(ere: str, text: str, likely: bool) -> None:
    if likely:  # so that most of them match
        text = re.sub(r"[][()^$?\\]|\.\*", "", ere) + text
    prefix = Prefix.parse(ere.encode())
    if prefix is not None:
        assert prefix.match(text.encode(), PLENTIFUL) == Expression.parse(ere.encode()).match(text.encode(), PLENTIFUL)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "c"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}"])).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=8,
)


@given(expressions, st.text(alphabet="abc", max_size=8), st.booleans(), st.booleans())
def test_the_match_is_the_leftmost_longest(body: str, text: str, start: bool, end: bool) -> None:
    """Compared with the standard library, which matches the same texts, but not the longest first."""
    pattern = ("^" if start else "") + f"({body})" + ("$" if end else "")
    groups = Expression.parse(pattern.encode()).match(text.encode(), Budget(PLENTY))
    spans = [
        (at, -to)
        for at in range(len(text) + 1)
        for to in range(at, len(text) + 1)
        if (not start or at == 0) and (not end or to == len(text)) and re.fullmatch(body, text[at:to])
    ]
    expected = min(spans, default=None)
    assert (groups is None) == (expected is None)
    if groups is not None and expected is not None:
        assert (groups[0], -groups[1]) == expected
        assert (groups[2], groups[3]) == (groups[0], groups[1])


@given(
    st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
    st.text(alphabet="ab.*", max_size=5),
)
def test_an_escaped_text_matches_only_itself(text: str, other: str) -> None:
    expression = Expression.parse(f"^{escape(text)}$".encode())
    assert expression.match(text.encode(), Budget(PLENTY)) is not None
    assert (expression.match(other.encode(), Budget(PLENTY)) is not None) == (other == text)
