"""NAPTR records for entries: their targets, the shoulders that need rules, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.discovery import REGEXP_STEPS, Outcome
from maptr.errors import ZoneError
from maptr.naptr.automaton import Budget
from maptr.naptr.record import MAX_STRING, Naptr
from maptr.naptr.regexp import Substitution
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Answer, Walk
from maptr.zone import rules
from maptr.zone.rules import MAX_RECORDS, lay_out, needed_shoulders, records_by_name, regexp, unwritable
from tests.support.entries import records


def entry(target: str, shoulder: str = "", *more: str, naan: str = "12345") -> Entry:
    return Entry(naan, shoulder, tuple(Nma(t) for t in (target, *more)))


def urls(ark: Ark, table: Table) -> list[str]:
    walk = Walk(ark)
    (root,) = walk.next()
    found = records(table[ark.naan], table.shoulders(ark.naan))
    walk.tell(root, Answer(Outcome.ANSWER, found, 60))
    return walk.result().urls()


@pytest.mark.parametrize(
    ("target", "shoulder", "regexp"),
    [
        ("https://h.example/${value}", "", r"!^ark:/?12345/(.*)$!https://h.example/\1!"),
        ("https://h.example/?q=${pid}", "", r"!^(ark:/?12345/.*)$!https://h.example/?q=\1!"),
        ("https://h.example/${suffix}", "", r"!^ark:/?12345/(.*)$!https://h.example/\1!"),
        ("https://h.example/${suffix}", "x6", r"!^ark:/?12345/x6(.*)$!https://h.example/\1!"),
        ("https://h.example/${content}", "x6", r"!^ark:/?12345/(x6.*)$!https://h.example/12345/\1!"),
        ("https://h.example/${content}", "s6.c", r"!^ark:/?12345/(s6[.]c.*)$!https://h.example/12345/\1!"),
        ("https://h.example/", "", r"!^ark:/?12345/.*$!https://h.example/!"),
        ("https://h.example/${suffix}/${value}/${pid}", "x6", r"!^(ark:/?12345/(x6(.*)))$!https://h.example/\3/\2/\1!"),
        ("https://h.example/!/${value}", "", r"#^ark:/?12345/(.*)$#https://h.example/!/\1#"),
        ("https://h.example/!#~,;@%&=/", "", r"<^ark:/?12345/.*$<https://h.example/!#~,;@%&=/<"),
    ],
)
def test_each_variable(target: str, shoulder: str, regexp: str) -> None:
    assert records(entry(target, shoulder))[0].regexp.decode() == regexp


def test_several_nmas_keep_their_order() -> None:
    made = records(entry("https://a.example/${content}", "", "http://b.example:80/${value}", "https://A.example/"))
    u_rules = [(10, preference, b"u") for preference in (10, 20, 30)]
    assert [(r.order, r.preference, r.flags) for r in made] == [*u_rules, (100, 10, b"h"), (100, 20, b"h")]
    assert [r.replacement for r in made if r.flags == b"h"] == [(b"a", b"example"), (b"b", b"example:80")]


def test_shoulder_has_a_rule_only_if_its_target_differs_from_the_inherited_one() -> None:
    naan = entry("https://a.example/${content}")
    same = entry("https://a.example/${content}", "x1")
    other = entry("https://b.example/${content}", "x6")
    back = entry("https://a.example/${content}", "x66")
    needed = needed_shoulders(naan, [same, other, back])
    assert [shoulder.shoulder for shoulder in needed] == ["x66", "x6"]


def test_a_suffix_target_differs_below_a_shoulder() -> None:
    naan = entry("https://a.example/${suffix}")
    assert needed_shoulders(naan, [entry("https://a.example/${suffix}", "x6")])
    assert not needed_shoulders(naan, [entry("https://a.example/x6${suffix}", "x6")])


def test_there_may_be_more_shoulder_lengths_than_orders_below_the_naan() -> None:
    shoulders = [entry(f"https://s{n}.example/${{content}}", "x" * n) for n in range(1, 90)]
    made = records(entry("https://a.example/${content}"), shoulders)
    orders = [r.order for r in made]
    assert orders == sorted(orders)
    assert orders[0] >= 1
    assert [r.flags for r in made] == [b"u"] * 90 + [b"h"]


@pytest.mark.parametrize(
    ("target", "because"),
    [
        ("https://h.example/${foo}", "no ARK has"),
        ("https://h.example/ü${value}", "not ASCII"),
        ("https://h.example/!#~,;@%&=<", "delimit"),
    ],
)
def test_the_error_for_a_target_without_a_possible_rule_names_the_record(target: str, because: str) -> None:
    with pytest.raises(ZoneError, match="12345/x6") as caught:
        records(Entry("12345"), [entry(target, "x6")])
    assert because in str(caught.value)


SUFFIXES: list[Labels] = [(b"a" * 62, b"b" * 62, b"c" * 62, b"d" * number) for number in range(20, 55)]


@pytest.mark.parametrize("origins", [[ARK_ARPA], SUFFIXES], ids=["target", "origin"])
def test_a_record_is_left_out_exactly_if_a_string_of_its_rules_would_be_too_long(origins: list[Labels]) -> None:
    """By its target, or by the redirect to the name of its shoulder, which has the origin in it."""
    lengths = set()
    for size in range(180, 260) if len(origins) == 1 else [201]:
        for origin in origins:
            one = entry(f"https://x7.nlm.nih.gov/{'x' * size}/${{content}}", "x7")
            found = records_by_name(entry("https://main.nlm.nih.gov/${content}"), [one], origin)
            lengths.add(longest := max(len(naptr.regexp) for _, naptr in found))
            assert (unwritable(one, one.nmas[0], origin) is None) == (longest <= MAX_STRING)
    assert {MAX_STRING, MAX_STRING + 1} <= lengths


def test_ipv6_host_and_invalid_target_have_no_h_record() -> None:
    assert [r.flags for r in records(entry("https://[2001:db8::1]/${content}"))] == [b"u"]
    assert [r.flags for r in records(entry("nonsense/${content}"))] == [b"u"]


literals = st.text(alphabet="abXY/-._~$&'()*+,;=:@!#%", max_size=12).filter(lambda text: "${" not in text)
targets = st.lists(
    st.tuples(literals, st.sampled_from(["${content}", "${value}", "${pid}", "${suffix}", ""])), max_size=4
).map(lambda parts: "https://h.example/" + "".join(literal + variable for literal, variable in parts))
shoulders = st.text(alphabet="bx6.+*$", min_size=1, max_size=4)


@given(targets, st.dictionaries(shoulders, targets, max_size=4), shoulders, st.sampled_from(["", "/c2", ".v1/", "%7d"]))
def test_walk_over_records_gives_the_url_of_the_table(target: str, more: dict[str, str], name: str, tail: str) -> None:
    """For any targets and shoulders, the first URL from the records equals the URL from the table."""
    table = Table([entry(target), *(entry(other, shoulder) for shoulder, other in more.items())])
    ark = Ark.parse(f"ark:12345/b{name}{tail}?info") if "." in name[:1] else Ark.parse(f"ark:/12345/{name}b{tail}?info")
    served = table.lookup(ark)
    assert served is not None
    assert urls(ark, table)[0] == served.urls(ark)[0]


@given(targets, shoulders, st.sampled_from(["", "np1/c2.v1", "%7d"]))
def test_a_short_rule_makes_the_same_urls(target: str, shoulder: str, rest: str) -> None:
    for entry_ in (entry(target), entry(target, shoulder)):
        ark = Ark.parse(f"ark:12345/{entry_.shoulder}b{rest}")
        text, nma = ark.resolution.encode(), entry_.nmas[0]
        whole, short = (regexp(entry_, nma, short=short) for short in (False, True))
        assert len(short) <= len(whole)
        made = [Substitution.parse(field).apply(text, Budget(REGEXP_STEPS)) for field in (whole, short)]
        if ark.resolution.startswith(f"ark:12345/{entry_.shoulder}"):
            assert made[0] == made[1] == nma.url(ark, entry_.shoulder).encode()


def crowd(*shoulders: str, nmas: int = 1) -> Table:
    entries = [entry("https://main.example/${content}")]
    for number, shoulder in enumerate(shoulders):
        targets = [f"https://h{n}.s{number}.example/${{suffix}}" for n in range(nmas)]
        entries.append(entry(targets[0], shoulder, *targets[1:]))
    return Table(entries)


def walked(table: Table, ark: str) -> list[str]:
    """The URLs of an ARK in the zone of the table, by the rules at each name, without those of ``h`` records."""
    made = lay_out(table["12345"], table.shoulders("12345"), ARK_ARPA)
    found: dict[Labels, list[Naptr]] = {}
    for owner, naptr in made.records:
        found.setdefault(owner, []).append(naptr)
    assert all(len(some) <= MAX_RECORDS for some in found.values())
    walk = Walk(Ark.parse(ark))
    while asked := walk.next():
        for question in asked:
            some = [naptr for naptr in found.get(question.name, ()) if naptr.flags != b"h"]
            walk.tell(question, Answer(Outcome.ANSWER if some else Outcome.NXDOMAIN, tuple(some), 60))
    assert walk.result().complete
    return walk.result().urls()


NAMES = [f"{letter}{number}" for letter in "bcdfghjkmnpqrstvwxzBCDF" for number in range(20)]
CASES = {
    "400 of different letters": NAMES[:400],
    "400 of one letter": [f"x{number}" for number in range(400)],
    "long ones that begin alike": [f"{'b' * 40}{number}" for number in range(300)],
    "nested": ["x" * length for length in range(1, 64)] + [f"{'x' * length}7" for length in range(1, 63)],
    "upper and lower case": [f"{letter}{number}" for letter in "xX" for number in range(150)],
    "2,000": [f"{one}{two}{number}" for one in "bcdfg" for two in "bcdf" for number in range(100)],
}


@pytest.mark.parametrize("shoulders", CASES.values(), ids=CASES.keys())
def test_a_naan_with_many_shoulders_sends_groups_of_them_to_names_of_their_own(shoulders: list[str]) -> None:
    table = crowd(*shoulders)
    made = lay_out(table["12345"], table.shoulders("12345"), ARK_ARPA)
    assert made.left_out == ()
    owners = [owner for owner, _ in made.records]
    assert max(map(owners.count, set(owners))) <= MAX_RECORDS
    assert sum(naptr.flags == b"u" for _, naptr in made.records) == len(shoulders) + 1
    for shoulder in shoulders[:: len(shoulders) // 8]:
        for name in (f"{shoulder}np1", f"{shoulder[:-1]}z"):
            ark = Ark.parse(f"ark:12345/{name}")
            nested = sorted((s for s in shoulders if ark.name.startswith(s)), key=len, reverse=True)
            expected = [table[f"12345/{each}"].urls(ark)[0] for each in nested]
            assert walked(table, str(ark)) == [*expected, f"https://main.example/12345/{name}"][:64]


def test_the_naan_stays_whatever_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_RECORDS", 6)  # as if a name had room for few
    many = [f"{letter}{number}" for letter in "bcdfghjkmn" for number in range(5)]
    table = crowd(*many)
    made = lay_out(table["12345"], table.shoulders("12345"), ARK_ARPA)
    gone = {one.shoulder for one in made.left_out}
    assert 0 < len(gone) < len(many)
    assert sum(naptr.flags == b"u" for _, naptr in made.records) == len(many) - len(gone) + 1
    assert walked(table, "ark:12345/zzz") == ["https://main.example/12345/zzz"]
    lost = min(gone)
    assert walked(table, f"ark:12345/{lost}a") == [f"https://main.example/12345/{lost}a"]


def test_a_naan_with_many_authorities_keeps_their_rules_and_its_first_host() -> None:
    targets = [f"https://h{n}.example/${{content}}" for n in range(64)]
    whole = entry(targets[0], "", *targets[1:])
    shoulders = crowd(*NAMES[:200]).shoulders("12345")
    for some in ([], shoulders):
        made = lay_out(whole, some, ARK_ARPA)
        root = [naptr for owner, naptr in made.records if owner == (b"12345", b"ark", b"arpa")]
        assert len(root) <= MAX_RECORDS
        assert sum(naptr.flags == b"u" and naptr.order >= 10 for naptr in root) >= 64
        assert any(naptr.flags == b"h" for naptr in root)
        assert made.left_out == ()
