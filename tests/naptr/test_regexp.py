"""Regexp fields: what is supported, what is rejected, and the linear cost of every match."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.regexp import MAX_DEPTH, MAX_PROGRAM, MAX_RESULT, Expression, Prefix, RegexpError, Substitution, escape

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
        (rb"!a.B!x!i", b"Axb", b"x"),
        (rb"!b!!", b"abc", b"ac"),
        (b"!" + b"(" * MAX_DEPTH + b"b" + b")" * MAX_DEPTH + b"!x!", b"abc", b"axc"),
        (rb"!a{,2}!x!", b"a{,2}", b"x"),  # a bound begins with a digit
        (rb"!a{0}b!x!", b"ab", b"ax"),
        (rb"!(a){0,2}b!x!", b"aaab", b"ax"),
        (rb"!b$!x!", b"bab", b"bax"),
        (rb"!(a|b|c)d!<\1>!", b"cd", b"<c>"),
        (rb"!(((((((((z)))))))))y!\9\1\\!", b"zy", b"zz\\"),
        (rb"!^(a*)(b*)(.*)$!\3-\2-\1!", b"aabc", b"c-b-aa"),  # not of the usual shape
    ],
)
def test_substitution(field: bytes, text: bytes, result: bytes | None) -> None:
    assert substitute(field, text) == result


SPACES = b" \t\n\v\f\r"
VISIBLE = bytes(range(0x21, 0x7F))
LETTERS = bytes(octet for octet in VISIBLE if chr(octet).isalpha())
DIGITS = b"0123456789"
BRACKETS = {
    b"[[:alnum:]]": LETTERS + DIGITS,
    b"[[:alpha:]]": LETTERS,
    b"[[:blank:]]": b" \t",
    b"[[:cntrl:]]": bytes({*range(0x80)} - {*VISIBLE, 0x20}),
    b"[[:digit:]]": DIGITS,
    b"[[:graph:]]": VISIBLE,
    b"[[:lower:]]": LETTERS.lower(),
    b"[[:print:]]": VISIBLE + b" ",
    b"[[:punct:]]": bytes({*VISIBLE} - {*LETTERS, *DIGITS}),
    b"[[:space:]]": SPACES,
    b"[[:upper:]]": LETTERS.upper(),
    b"[[:xdigit:]]": DIGITS + b"abcdefABCDEF",
    b"[^[:space:]]": bytes({*range(0x100)} - {*SPACES}),
    b"[[:digit:]-]": DIGITS + b"-",
    b"[[:digit:]a-c]": DIGITS + b"abc",
    b"[a-cx[:digit:]]": DIGITS + b"abcx",
    b"[-a]": b"-a",
    b"[a-]": b"-a",
    b"[+--]": b"+,-",
    b"[--/]": b"-./",
    b"[]-a]": b"]^_`a",
    b"[]^-]": b"]^-",
    b"[^]-]": bytes({*range(0x100)} - {*b"]-"}),
    b"[^-a]": bytes({*range(0x100)} - {*b"-a"}),
    b"[[]": b"[",
    rb"[\]": b"\\",  # a backslash is no escape
    b"[.*^$]": b".*^$",
    b"[a-a]": b"a",
    b".": bytes(range(0x100)),
}


@pytest.mark.parametrize("ere", BRACKETS)
def test_posix_9_3_5_a_bracket_expression_matches_its_bytes(ere: bytes) -> None:
    expression = Expression.parse(b"^" + ere + b"$")
    matched = bytes(octet for octet in range(0x100) if expression.match(bytes((octet,)), Budget(PLENTY)) is not None)
    assert set(matched) == set(BRACKETS[ere])


REFUSED = {
    "empty": [b""],
    "not delimiter": [b"USLC", b"!a!b"],
    "empty expression": [b"!!x!"],
    "delimiter too many": [b"!a!b!c!"],
    "cannot be the delimiter": [b"1a1b1", b"iaibi", b"\\a\\b\\"],
    "flag": [b"!a!b!x"],
    "NUL": [b"!a\0!b!"],
    "ends inside": [b"!a\\", b"![a!b!", b"![!b!", b"![]!b!", b"![^]!b!", b"![a-!b!", b"![[:alpha!b!", b"![[.a.]!b!"],
    "repeat of a repeat": [b"!a**!b!", b"!^*!b!"],
    "repeat of nothing": [b"!*a!b!", b"!{1}!b!", b"!a|*b!x!", b"!(+a)!b!"],
    "empty alternative": [b"!a|!b!", b"!(|a)!b!", b"!|a!b!", b"!a||b!x!"],
    "open group": [b"!(a!b!"],
    "out of order": [b"![b-a]!b!", b"![a--]!b!"],
    "bad range": [b"![a-b-c]!b!", b"![a-b-]!b!"],
    "class as the end of a range": [b"![a-[:digit:]]!b!", b"![a-[=b=]]!x!"],
    "empty collating element": [b"![[..]]!b!", b"![[==]]!b!"],
    "no character class": [b"![[:foo:]]!b!"],
    "bad bound": [
        *(b"!a{2,1}!b!", b"!a{256}!b!", b"!a{1!b!", b"!a{1,256}!b!", b"!a{1,2!b!", b"!a{1x}!b!", b"!a{1,x}!b!"),
        b"!a{256,}!b!",
    ],
    "back-reference to no group": [rb"!\1!b!", rb"!(a)\2!b!", rb"!\1(a)!b!"],
    "uses group 1 of 0": [rb"!a!\1!", rb"!^a.*!\1!"],
    "uses group 2 of 1": [rb"!(a)!\1\2!", rb"!^a(.*)!\2!"],
    r"\0": [rb"!(a)!\0!"],
}


@pytest.mark.parametrize(("reason", "field"), [(reason, field) for reason in REFUSED for field in REFUSED[reason]])
def test_refused_as_bind_does(reason: str, field: bytes) -> None:
    with pytest.raises(RegexpError, match=re.escape(reason)) as caught:
        Substitution.parse(field)
    assert caught.value.refused


DEEP = b"!" + b"(" * (MAX_DEPTH + 1) + b")" * (MAX_DEPTH + 1) + b"!x!"


@pytest.mark.parametrize(
    "field",
    [
        *(rb"!(a)\1!x!", rb"!(((((((((a)))))))))\9!x!", b"![[.a.]]!x!", b"![[=a=]]!x!", b"![a-[.b.]]!x!"),
        *(b"![[:digit:]-z]!x!", b"![[.a.]-z]!x!", b"!a)!x!", b"!(a{255}){255}!x!", b"!" + b"a{255}" * 8 + b"!x!"),
        *(b"!" + b"|".join([b"a{255}"] * 8) + b"!x!", DEEP),
    ],
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


def test_a_budget_is_spent_to_its_last_step_and_charges_the_shared_one() -> None:
    """The shared budget does not pay for steps that a cache saved."""
    shared = Budget(10)
    budget = Budget(6, shared)
    budget.spend(4)
    budget.spend(2, taken=False)
    assert (budget.steps, shared.steps) == (0, 6)
    with pytest.raises(BudgetSpent):
        budget.spend(1)
    with pytest.raises(BudgetSpent):
        Budget(100, shared).spend(7)


def test_a_spent_budget_is_not_a_mismatch() -> None:
    with pytest.raises(BudgetSpent):
        Substitution.parse(b"!(a*)*b!x!").apply(b"a" * 1000, Budget(500))


def test_a_result_has_a_limit() -> None:
    field = b"!(.*)!" + rb"\1" * 60 + b"!"
    with pytest.raises(ValueError, match=str(MAX_RESULT)):
        Substitution.parse(field).apply(b"a" * 255, Budget(PLENTY))
    doubled = Substitution.parse(rb"!^(.*)$!\1\1!")
    assert doubled.apply(b"a" * (MAX_RESULT // 2), Budget(PLENTY)) == b"a" * MAX_RESULT


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
    lambda before, maybe, after, inside, form: form.replace("B", f"{before}{maybe}{after}").replace("T", inside),
    texts,
    st.sampled_from(["", "", "a?", "[.]?", "/?", r"\.?"]),
    texts,
    texts,
    st.sampled_from(["^B(T.*)$", "^B(T.*)", "^BT.*$", "^BT.*", "^(B.*)$", "^(B.*)"]),
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
