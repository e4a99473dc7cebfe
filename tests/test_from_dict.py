"""``Discovery.from_dict``: a discovery read from its own JSON equals the original, and invalid JSON is an error that
names the member."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr import (
    Ark,
    ArkSyntaxError,
    Candidate,
    Discovery,
    DiscoveryError,
    Entry,
    Nma,
    Policy,
    Profile,
    Table,
    sticky,
)
from maptr.ark import PROFILES
from maptr.discovery import Limit, Link, Outcome, Step
from maptr.naptr.record import Naptr
from maptr.protocol.extended_error import ExtendedError
from maptr.registry.table import parse_key
from maptr.states import Dns, Natab, States
from maptr.testing import offline_client
from maptr.walk import Answer, Settings, Walk
from tests.support.answers import load_vectors

RULES = {
    "12345": ["https://a.example/x?id=${content}", "http://b.example:8080/${value}"],
    "12345/x6": "https://six.example/${suffix}",
    "99999": "silent",
    "12148": "servfail",
    "13030": "bogus",
}
SPELLINGS = (
    "ark:12345/x5-4/",
    "https://n2t.net/ark:/12345/X1%2fa.v1?info",
    "ark:12345/x60?a=b",
    "ark:12345/x6#top",
    "ark:12345",
)


def again(found: Discovery) -> Discovery:
    """Return a discovery by way of its JSON, after comparing what ``==`` does not."""
    made = Discovery.from_dict(json.loads(found.to_json()))
    assert made == found
    assert made.to_json() == found.to_json()
    assert made.urls() == found.urls()
    assert (str(made), made.states, made.scheme, made.best, made.ttl) == (
        str(found),
        found.states,
        found.scheme,
        found.best,
        found.ttl,
    )
    assert (made.age, made.fetched, made.table) == (found.age and round(found.age, 3), found.fetched, found.table)
    return made


def walked(ark: Ark, *records: Naptr, scheme: str = "https") -> Discovery:
    walk = Walk(ark, Settings(scheme=scheme))
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, records, 60))
    return walk.result(1000.0)


TABLE = Table(
    Entry(*parse_key(key), nmas=tuple(map(Nma, [target] if isinstance(target, str) else target)))
    for key, target in RULES.items()
    if "://" in str(target)
)


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize("policy", ["dns-first", "natab-first", "natab-only"])
@pytest.mark.parametrize("cache", [None, ":memory:"])
def test_discoveries_of_every_source(text: str, policy: Policy, cache: str | None) -> None:
    with offline_client(RULES, table=TABLE, policy=policy, cache=cache) as client:
        for found in (client.discover(text), client.discover(text), client.discover(text, chooser=sticky)):
            made = again(found)
            for name in ("resolution", "tail", "nma", "notes", "hyphenated"):
                assert getattr(made.ark, name) == getattr(found.ark, name)
            assert [one.url() for one in made] == [one.url() for one in found]
            with pytest.raises(DiscoveryError, match="is not for ark:12345/other"):
                made[0].url("ark:12345/other")


@pytest.mark.parametrize("naan", ["00000", "99999", "12148", "13030"])
@pytest.mark.parametrize("table", [None, Table(), TABLE])
def test_discoveries_without_a_candidate(naan: str, table: Table | None) -> None:
    with offline_client(RULES, table=table) as client, pytest.raises(DiscoveryError) as raised:
        client.discover(f"ark:{naan}/x1")
    made = again(raised.value.discovery)
    with pytest.raises(type(raised.value), match=re.escape(str(raised.value))):
        made.raise_for_none()
    again(DiscoveryError("nothing began").discovery)


def test_items_of_a_stream_that_are_no_arks() -> None:
    with offline_client(RULES) as client:
        for found in client.discover_many(["ark:12345/x1", "12345/x1", 5, ""]):  # type: ignore[list-item]
            made = again(found)
            assert made.position == found.position
            if found.error is not None:
                assert made.error is not None
                assert made.error.suggestion == found.error.suggestion
                with pytest.raises(ArkSyntaxError, match=re.escape(str(found.error))):
                    _ = made.ark


@pytest.mark.parametrize("profile", PROFILES)
def test_every_ark_of_the_vectors(profile: Profile) -> None:
    seen = 0
    for case in load_vectors("ark")["ark"]:
        try:
            ark = Ark.parse(case.get("received", ""), profile=profile)
        except ArkSyntaxError:
            continue
        seen += 1
        rule = Naptr(1, 2, b"u", b"ark", rb"!^(.*)$!https://u.example/\1!", ())
        for scheme in ("http", "https"):
            found = walked(ark, Naptr(3, 4, b"h", b"ark", b"", (b"h", b"example")), rule, scheme=scheme)
            made = again(found)
            assert (made.ark.resolution, made.ark.tail) == (ark.resolution, ark.tail)
    assert seen > 20


def test_everything_that_a_trace_may_have() -> None:
    link = Link("ark.arpa.", "DNSKEY", "bogus", "odd \x1b \u2028 \udc80", "192.0.2.1#53", 0.25)
    odd = Naptr(65535, 0, b'"\\\x00', b"\xff065", b'\\065" x', (b"a.b", b"\x00 \\"))
    readings = walked(Ark("12345", "x1"), odd).trace[0].readings
    steps = tuple(
        Step(
            (b"a.b", b"\x00 \xff"),
            2,
            outcome,
            readings=readings,
            note="a note",
            ttl=5,
            links=(link,),
            limit=limit,
            extended=(ExtendedError(22, "why"), ExtendedError(60000)),
        )
        for outcome in Outcome
        for limit in (None, *Limit)
    )
    for dns, natab in product(Dns, Natab):
        again(Discovery(Ark("12345", "x1"), (), steps, complete=False, stale=True, states=States(dns, natab)))


def test_the_scheme_that_a_chooser_found_is_kept() -> None:
    found = walked(Ark("12345", "x1"), Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example")))
    made = again(found.preferring(lambda one: one[0].replace(scheme="http")))
    assert (made.url(), made[0].scheme) == ("http://h.example/ark:12345/x1", "http")
    whole = Candidate("own.example", None, 0, 0, "", source="own", target="https://own.example/?whole", ark=found.ark)
    assert again(found.replace(candidates=(whole,))).urls() == ["https://own.example/?whole"]


def test_a_time_until_which_it_may_be_kept_follows_from_the_others() -> None:
    with offline_client(RULES, cache=":memory:") as client:
        client.discover("ark:12345/x5")
        found = client.discover("ark:12345/x7")
    assert found.expiration is not None
    assert again(found).expiration == pytest.approx(found.expiration, abs=0.01)
    assert again(walked(Ark("12345", "x1"))).expiration is None


# ---- wrong JSON


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


with offline_client(RULES, table=TABLE) as _client:
    SAMPLE = _client.discover("ark:12345/x5?info").to_dict()
PLACES = [*places(SAMPLE)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@example(("received", "resolution"), "", False)
@example(("error",), "", False)
@given(st.sampled_from(PLACES), JSON, st.booleans())
def test_any_other_value_is_read_or_an_error_that_names_its_member(
    path: tuple[str | int, ...], value: Any, drop: bool
) -> None:
    document = deepcopy(SAMPLE)
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    if drop:
        del inner[path[-1]]
    try:
        Discovery.from_dict(document)
    except ValueError as error:
        named = str(error).partition(":")[0]
        assert named.split("[")[0].split(".")[0] == path[0] or named.startswith("candidates["), str(error)


@given(JSON)
def test_any_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^(the document|\w+): "):
        Discovery.from_dict(value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("complete",), "yes", "complete: 'yes' is not true or false"),
        (("age",), True, "age: True is not a number or null"),
        (("ark",), "ark:/12345/x5", "ark: 'ark:/12345/x5' is not an ARK in normal form"),
        (("received", "resolution"), "ark:12345/x6", "'ark:12345/x6' is another one"),
        (("states",), {"dns": "unasked"}, "states.table: is missing"),
        (("trace", 0, "outcome"), "silence", "trace[0].outcome: 'silence' is not one of answer, nodata, "),
        (("trace", 0, "name"), "a..b", "trace[0].name: empty label"),
        (
            ("trace", 0, "records", 1, "record"),
            "0 0 h",
            "trace[0].records[1].record: '0 0 h' is not the text of a NAPTR",
        ),
        (("trace", 0, "records", 0, "reasons"), [1], "trace[0].records[0].reasons[0]: 1 is not a text"),
        (("candidates", 1, "path"), [{"order": 1}], "candidates[1].path[0].preference: is missing"),
        (
            ("candidates", 0, "url"),
            "javascript:alert(1)",
            "candidates[0].url: 'javascript:alert(1)' is not a URL of http",
        ),
        (("candidates", 0, "url"), "https://evil.example/", "candidates[0].url: is not the URL of ark:12345/x5 at"),
    ],
)
def test_errors_name_the_member(path: tuple[str | int, ...], value: object, message: str) -> None:
    document = deepcopy(SAMPLE)
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        Discovery.from_dict(document)
