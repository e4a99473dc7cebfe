"""A shared walk: a NAAN's other ARKs get what their own walks would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.discovery import Discovery, Outcome
from maptr.naptr.automaton import Budget
from maptr.naptr.record import Naptr, RuleCache
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.walk import Answer, Settings, SharedWalk, Walk

ROOT = names.parse("12345.ark.arpa.")
NEXT = names.parse("next.example.")
REGEXPS = (
    rb"!^ark:/?12345/(.*)$!https://h.example/\1!",
    rb"!^ark:/?12345/(.*)$!https://h.example/ark:12345/\1!",  # the URL of an h record
    rb"!^ark:/?12345/(x.*)$!HTTPS://U.Example.:443/p?q=\1#!",
    rb"!^(ark:/?12345/y.*)$!https://u.example:8443/\1!",
    rb"!^ark:/?12345/x!https://u.example!",  # the text after the match stays, here in the host
    rb"!12345/(.*)$!https://u.example/\1!",  # the text before the match stays
    rb"!^(ark:)/?(12345)/(.*)$!http://10.0.0.1/\3?a=\2!",
    rb"!^ark:/?12345/(.*)$!https://user@h.example/\1!",
    rb"!^ark:/?12345/(.*)$!ftp://h.example/\1!",
    rb"!^ark:/?12345/(.*)$!https://h.example/a b/\1!",
    rb"!^ark:/?12345/([a-z]*|[a-z0-9]+(x|y)?)*$!https://long.example/\1/\1/\1/\1/\1/\1!",
    rb"!.*!https://h.example/same!",
    rb"!^ark:/?12345/(.*)$!https://h.example/\1 x!",  # unsafe after a good start
    rb"!^ark:/?12345/(.*)$!https://h.example/" + b"p" * 200 + rb"/\1!i",
    rb"!bad(!",
)
pairs = st.integers(0, 2)
hosts = st.sampled_from(
    ["h.example.", "u.example.", "localhost.", "x.ark.arpa.", r"h.example\0588443.", r"h.example\05880."]
)
records = st.one_of(
    st.builds(lambda o, p, h: Naptr(o, p, b"h", b"ark", b"", names.parse(h)), pairs, pairs, hosts),
    st.builds(lambda o, p, r: Naptr(o, p, b"u", b"ark", r, ()), pairs, pairs, st.sampled_from(REGEXPS)),
    st.builds(lambda o, p: Naptr(o, p, b"", b"ark", b"", NEXT), pairs, pairs),
    st.builds(lambda r: Naptr(0, 0, b"", b"ark", r, ()), st.sampled_from([rb"!^(.*)$!next.example!", b"!x!y", b""])),
    st.just(Naptr(0, 0, b"x", b"ark", b"", ())),
)
arks = st.builds(
    lambda name, tail: Ark.parse(f"ark:12345/{name}{tail}"),
    st.one_of(
        st.from_regex(r"[xy]([a-z0-9./=-]|%2[0-9]){0,8}[a-z0-9]", fullmatch=True),
        st.sampled_from(["x" * 900, "y1" + "/z" * 1900, "x.pdf", "x%23", "y-1"]),
    ),
    st.sampled_from(["", "?info", "?q=1", "??"]),
)
settings = st.builds(
    lambda **some: Settings(**some),
    scheme=st.sampled_from(["https", "http"]),
    allow_private=st.booleans(),
    max_candidates=st.integers(1, 6),
    max_records=st.integers(1, 12),
    regexp_steps=st.sampled_from([20, 200, 20_000]),
    hyphens=st.sampled_from(["remove", "keep"]),
)


def walked(ark: Ark, zone: dict[Labels, list[Naptr]], settings: Settings) -> Walk:
    rules = RuleCache()
    walk = Walk(ark, settings, reader=rules)
    while questions := walk.next():
        for question in questions:
            found = zone.get(question.name)
            missing = Answer(Outcome.NXDOMAIN, ttl=30, zone=names.ARK_ARPA)
            walk.tell(question, missing if found is None else Answer(Outcome.ANSWER, found, ttl=60))
    return walk


def said(found: Discovery) -> tuple[object, ...]:
    trace = [step.to_dict() for step in found.trace]
    of_candidates = [(one.to_dict(), one.path, one.ark, one.substitution, one.status) for one in found]
    return found, trace, of_candidates, found.urls(), found.ttl, found.work, found.ark, found.ark.tail, found.scheme


@given(
    st.lists(records, max_size=7), st.lists(records, max_size=4), arks, st.lists(arks, min_size=1, max_size=4), settings
)
def test_a_shared_walk_finds_what_the_walk_of_each_ark_finds(
    root: list[Naptr], after: list[Naptr], first: Ark, others: list[Ark], settings: Settings
) -> None:
    zone = {ROOT: root, NEXT: after}
    walk = walked(first, zone, settings)
    shared = SharedWalk.of(walk, walk.result())
    for other in [*others, first]:
        ark = other.sent(settings.hyphens)
        if shared is not None and (found := shared.discovery(ark)) is not None:
            assert said(found) == said(walked(other, zone, settings).result())


def test_a_walk_is_not_shared_if_an_ark_chooses_its_questions_or_reaches_a_limit() -> None:
    chosen = Naptr(0, 0, b"", b"ark", rb"!^ark:/?12345/(.).*$!\1.example!", ())
    walk = walked(Ark.parse("ark:12345/x1"), {ROOT: [chosen]}, Settings())
    assert SharedWalk.of(walk, walk.result()) is None
    limited = Settings(max_candidates=1)
    url_rule = Naptr(0, 0, b"u", b"ark", REGEXPS[0], ())
    walk = walked(Ark.parse("ark:12345/x1"), {ROOT: [url_rule, url_rule._replace(order=1)]}, limited)
    assert SharedWalk.of(walk, walk.result()) is None


def test_an_ark_whose_own_walk_reaches_a_limit_has_no_shared_one() -> None:
    url_rule = Naptr(0, 0, b"u", b"ark", REGEXPS[0], ())
    walk = walked(Ark.parse("ark:12345/x1"), {ROOT: [url_rule]}, Settings())
    shared = SharedWalk.of(walk, walk.result())
    assert shared is not None
    assert shared.discovery(Ark.parse(f"ark:12345/{'x' * 5000}")) is None
    assert shared.discovery(Ark.parse("ark:12345/x2"), Budget(1)) is None
    budget = Budget(100)
    found = shared.discovery(Ark.parse("ark:12345/x2"), budget)
    assert found is not None
    assert found.urls() == ["https://h.example/x2"]
    assert budget.steps < 100


def test_a_url_with_a_good_start_is_read_to_its_end() -> None:
    rules = [Naptr(order, 0, b"u", b"ark", regexp, ()) for order, regexp in enumerate(REGEXPS)]
    first, other = Ark.parse("ark:12345/x1"), Ark.parse("ark:12345/x2?info")
    walk = walked(first, {ROOT: rules}, Settings())
    shared = SharedWalk.of(walk, walk.result())
    assert shared is not None
    found = shared.discovery(other)
    assert found is not None
    assert said(found) == said(walked(other, {ROOT: rules}, Settings()).result())
    assert "https://h.example/x2 x" not in found.urls()
