"""Own objects: suffix passthrough, tombstones and descriptions, without files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import url
from maptr.ark import Ark
from maptr.errors import ArkSyntaxError
from maptr.gateway.objects import COLUMNS, OwnObject, match, read_row, target_of, to_row
from tests.gateway.test_resolve import TABLE
from tests.support.gateway import Gateway, objects

ONE = OwnObject("ark:12345/x1", "https://o.example/1")
PART = OwnObject("ark:12345/x1/f2", "https://o.example/1-2")
CLOSED = OwnObject("ark:12345/x9", "https://o.example/9", suffix=False)
GONE = OwnObject("ark:12345/x7", "", 410, "withdrawn by its author", "A. Author", "A report", "1999")
TOLD = OwnObject("ark:12345/x5", "https://o.example/5?id=5", 302, "", "Some One", "A thing", "1999-12-31")


def gateway(**settings: Any) -> Gateway:
    return Gateway(TABLE, objects=objects(ONE, PART, CLOSED, GONE, TOLD), **settings)


@pytest.mark.parametrize(
    ("ark", "target"),
    [
        ("ark:12345/x1", "https://o.example/1"),
        ("ark:12345/x9", "https://o.example/9"),
        ("ark:12345/x1/c3.pdf", "https://o.example/1/c3.pdf"),
        ("ark:12345/x1.v2", "https://o.example/1.v2"),
        ("ark:12345/x1/f2", "https://o.example/1-2"),
        ("ark:12345/x1/f2.pdf", "https://o.example/1-2.pdf"),
        ("ark:12345/x1/f2/g3.pdf?a=b", "https://o.example/1-2/g3.pdf?a=b"),
        ("ark:/12345/x-1/C%2Fc", "https://o.example/1/C%2Fc"),
        ("ark:12345/x1/", "https://o.example/1"),
        ("ark:12345/x5/c2", "https://o.example/5?id=5/c2"),
        ("ark:12345/x5/c2?a=b", "https://o.example/5?id=5/c2&a=b"),
    ],
)
def test_a_longer_ark_is_passed_on_with_its_rest(ark: str, target: str) -> None:
    response = gateway().ask(f"/{ark}")
    assert (response.status, response.header("location")) == (302, target)
    assert response.header("maptr-source") == "redirects"


BARE = (
    "https://o.example",
    "https://o.example:8443",
    "https://o.example?a=b",
    "https://o.example#a",
    "https://[2606:4700::1]",
)


@pytest.mark.parametrize("where", BARE)
@pytest.mark.parametrize(
    "rest",
    [
        *(".evil.example", ".x@evil.example", "/@evil.example", ".:80", "/..//evil.example", "//evil.example", ".%2fa"),
        *(
            "/%09evil.example",
            "/%5Cevil.example",
            ".x:@evil.example",
            "/[evil.example]",
            "/?a@evil.example",
            ".xn--e1a",
        ),
    ],
)
def test_the_rest_of_an_ark_never_changes_the_host(where: str, rest: str) -> None:
    asked = Gateway(TABLE, objects=objects(OwnObject("ark:12345/k1", where)))
    response = asked.ask(f"/ark:12345/k1{rest}")
    assert response.status in (302, 400)
    if response.status == 302:
        assert url.is_at(response.header("location"), where)


@pytest.mark.parametrize("where", BARE)
def test_a_url_gets_its_path_when_it_is_read(where: str) -> None:
    one = read_row({"ark": "ark:12345/k1", "url": where})
    assert url.parse(one.url).rest.startswith("/")
    assert url.server_of(one.url) == url.server_of(where)
    assert read_row(to_row(one)) == one


def test_a_url_that_gets_too_long_is_no_server_error() -> None:
    asked = Gateway(TABLE, objects=objects(OwnObject("ark:12345/k1", "https://o.example/" + "a" * 4_000)))
    assert asked.ask("/ark:12345/k1/" + "b" * 400).status == 414


@pytest.mark.parametrize("ark", ["ark:12345/x12", "ark:12345/x9/c2", "ark:12345/x", "ark:12345/zx1/f2"])
def test_others_are_those_of_the_table(ark: str) -> None:
    assert gateway().ask(f"/{ark}").header("maptr-source").startswith("natab")


@pytest.mark.parametrize("ark", ["ark:12345/x7", "ark:12345/x7/c2"])
def test_the_page_of_an_object_that_is_gone_is_in_the_language_of_the_reader(ark: str) -> None:
    page = gateway().ask(f"/{ark}", accept="text/html", accept_language="fr").body.decode()
    assert "Cet objet n’existe plus" in page
    assert '<p class="lede"><code>ark:12345/x7</code></p>' in page
    shown = {"Pourquoi": "withdrawn by its author", "qui": "A. Author", "quoi": "A report", "quand": "1999"}
    assert dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page)) == shown
    assert "is gone" not in page
    assert "Il était ici et n’est plus disponible." in page


def test_no_text_of_an_object_forges_a_line_of_a_response() -> None:
    evil = "a\r\n\r\nb\x1b[2J\x9b\u202ec\u2066\u2028d"
    gone = OwnObject("ark:12345/x7", "", 410, evil, evil, evil, evil)
    kept = OwnObject("ark:12345/x8", "https://o.example/8", 302, "", evil, evil, evil)
    found = Gateway(TABLE, objects=objects(gone, kept), trouble=evil, troubles=(evil,), sources=(evil,))
    for target, status in (("/ark:12345/x7", 410), ("/ark:12345/x8?info", 200), ("/ready", 503)):
        response = found.ask(target, accept="text/plain")
        assert response.status == status
        lines = response.body.decode().split("\n")
        assert all(line.isprintable() for line in lines)
        assert not [line for line in lines if line.startswith("b")]


@pytest.mark.parametrize("accept", ["text/plain", "application/json"])
@pytest.mark.parametrize("ark", ["ark:12345/x7", "ark:12345/x7/c2"])
def test_an_object_that_is_gone_says_what_it_was(accept: str, ark: str) -> None:
    response = gateway().ask(f"/{ark}", accept=accept)
    assert response.status == 410
    body = response.body.decode()
    assert "ark:12345/x7 is gone: withdrawn by its author (it was: A report; A. Author; 1999)" in body
    assert response.header("content-type").startswith(accept.replace("application/json", "application/problem+json"))
    assert gateway().ask(f"/{ark}", "HEAD").status == 410
    problem = gateway().ask(f"/api/v1/discover?ark={ark}")
    found = json.loads(problem.body)["discovery"]
    assert (problem.status, found["candidates"], found["complete"], found["source"]) == (410, [], True, "redirects")


@pytest.mark.parametrize("inflection", ["?info", "?", "??"])
def test_a_described_object_answers_every_inflection_before_metadata(inflection: str) -> None:
    asked = gateway(metadata="https://m.example/${pid}${inflection}", permanence="kept for ever")
    response = asked.ask(f"/ark:12345/x5{inflection}")
    assert response.status == 200
    assert response.body.decode() == (
        "erc:\nwho: Some One\nwhat: A thing\nwhen: 19991231\nwhere: https://o.example/5?id=5\n"
        "erc-support:\nwho: (:unkn) unknown\nwhat: (:permanence) kept for ever\nwhen: (:unkn) unknown\n"
        "where: (:unkn) unknown\n"
    )
    assert response.header("thump-status") == "0.6 200 OK"
    elsewhere = asked.location(f"/ark:12345/x1{inflection}")  # its row says nothing of the object
    assert elsewhere == f"https://m.example/ark:12345/x1{inflection}"


def test_a_description_as_json_and_as_a_page() -> None:
    own = objects(OwnObject("ark:12345/x5", "https://o.example/5", who="<b>", what="T & Co", more={"note": "kept"}))
    asked = Gateway(TABLE, objects=own)
    found = json.loads(asked.ask("/ark:12345/x5/c2?info", accept="application/json").body)
    assert (found["ark"], found["describes"], found["more"]) == ("ark:12345/x5/c2", "ark:12345/x5", {"note": "kept"})
    assert found["segments"] == {
        "erc": {"who": "<b>", "what": "T & Co", "when": "(:unkn) unknown", "where": "https://o.example/5"}
    }
    page = asked.ask("/ark:12345/x5?info", accept="text/html").body.decode()
    assert "Description of an object" in page
    assert "&lt;b&gt;" in page
    assert "unknown" not in page, "what is not known is for programs"
    nameless = objects(OwnObject("ark:12345/x6", "https://o.example/6", who="Me"))
    page = (
        Gateway(TABLE, objects=nameless, permanence="kept").ask("/ark:12345/x6?info", accept="text/html").body.decode()
    )
    assert "<h1>ark:12345/x6</h1>" in page
    assert "<dt>what</dt><dd>kept</dd>" in page
    note = "# This describes the object ark:12345/x5, not ark:12345/x5/c2.\n"
    assert asked.ask("/ark:12345/x5/c2?info").body.decode().endswith(note)


@pytest.mark.parametrize(
    ("by", "where"),
    [("ark:12345/x1/c2", "/ark:12345/x1/c2"), ("https://o.example/new?a=b", "https://o.example/new?a=b")],
)
def test_an_object_that_is_gone_leads_to_what_replaces_it(by: str, where: str) -> None:
    """On its page, in problem details, in its description, and as a link in a header (RFC 5829), with the date and the
    authority, by default the operator."""
    one = GONE._replace(replaced_by=by, withdrawn="2026-11-29")
    asked = Gateway(TABLE, objects=objects(ONE, one), name="Our Library", public_url="https://gw.example")
    page = asked.ask("/ark:12345/x7", accept="text/html", accept_language="es")
    link = f'<{where}>; rel="successor-version"'
    assert (page.status, page.header("link"), page.header("location")) == (410, link, "")
    body = page.body.decode()
    assert f'Lo sustituye <a class="code" rel="successor-version" href="{where}">{by}</a>' in body
    shown = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", body))
    assert (shown["Retirado el"], shown["por"]) == ("2026-11-29", "Our Library")
    for target in ("/ark:12345/x7", "/ark:12345/x7/c2", "/api/v1/discover?ark=ark:12345/x7"):
        document = json.loads(asked.ask(target, accept="application/json").body)
        known = [document[name] for name in ("replaced_by", "withdrawn", "authority")]
        assert known == [by, "2026-11-29", "Our Library"]
    assert f"it is replaced by {by}" in asked.ask("/ark:12345/x7").body.decode()
    described = asked.ask("/ark:12345/x7?info")
    assert f"where: (:unav) withdrawn by its author; replaced by {by}\n" in described.body.decode()
    assert link in [value for name, value in described.headers if name == "Link"]
    linked = json.loads(asked.ask("/ark:12345/x7?info", accept="application/ld+json").body)
    assert linked["dcterms:isReplacedBy"] == {"@id": where if "://" in where else f"https://gw.example{where}"}
    named = Gateway(TABLE, objects=objects(one._replace(authority="The Board"))).ask(
        "/ark:12345/x7", accept="text/html"
    )
    assert "<dd>The Board</dd>" in named.body.decode()


@pytest.mark.parametrize(
    "by",
    [
        "javascript:alert(1)",
        "nonsense",
        "https://",
        "http://[",
        "ark:12345/a ark:12345/b",
        "\r\nX: y",
        f"ark:12345/{9:08000}",
    ],
)
def test_what_replaces_an_object_is_a_link_only_if_it_can_be_read(by: str) -> None:
    """The row may have been edited by another program."""
    found = Gateway(TABLE, objects=objects(GONE._replace(replaced_by=by))).ask("/ark:12345/x7", accept="text/html")
    assert (found.status, found.header("link")) == (410, "")
    assert "successor-version" not in found.body.decode()


def test_a_description_as_linked_data() -> None:
    """JSON-LD of schema.org, at each inflection and in the page; the redirect of a described object leads there."""
    evil = "</script><b>&\u2028"
    own = objects(
        OwnObject("ark:12345/x5", "https://o.example/5", who=evil, what="T & Co", when="1999-12"),
        OwnObject("ark:12345/x6", "https://o.example/6"),
    )
    asked = Gateway(TABLE, objects=own, public_url="https://gw.example")
    expected = {
        "@context": "https://schema.org",
        "@type": "CreativeWork",
        "@id": "https://gw.example/ark:12345/x5",
        "identifier": {"@type": "PropertyValue", "propertyID": "ARK", "value": "ark:12345/x5"},
        "name": "T & Co",
        "creator": evil,
        "url": "https://o.example/5",
        "dateCreated": "1999-12",
    }
    for inflection in ("?info", "?", "??"):
        found = asked.ask(f"/ark:12345/x5{inflection}", accept="application/ld+json")
        assert (found.status, found.header("content-type")) == (200, "application/ld+json")
        assert json.loads(found.body) == expected
    page = asked.ask("/ark:12345/x5?info", accept="text/html").body.decode()
    (data,) = re.findall('<script type="application/ld\\+json">(.*?)</script>', page)
    assert json.loads(data) == expected
    assert "<b>" not in page
    link = '<?info>; rel="describedby"; type="application/ld+json"'
    plain = asked.ask("/ark:12345/x5", accept="application/ld+json")
    assert (plain.status, link in plain.header("link")) == (302, True)
    assert "ld+json" not in asked.ask("/ark:12345/x6").header("link"), "its row says nothing of the object"
    record = json.loads(asked.ask("/ark:12345", accept="application/ld+json").body)
    assert (record["@type"], record["identifier"]["value"]) == ("Organization", "ark:12345")


@pytest.mark.parametrize(
    ("when", "day"),
    [("1999-12-31", "1999-12-31"), ("1999", "1999"), ("about 1999", None), ("", None), ("19991231", "1999-12-31")],
)
def test_the_date_of_linked_data_is_one(when: str, day: str | None) -> None:
    own = objects(OwnObject("ark:12345/x5", "https://o.example/5", what="A thing", when=when))
    found = Gateway(TABLE, objects=own).ask("/ark:12345/x5?info", accept="application/ld+json")
    assert json.loads(found.body).get("dateCreated") == day


def test_a_tombstone_with_a_description_answers_an_inflection() -> None:
    response = gateway().ask("/ark:12345/x7?info")
    assert response.status == 200
    assert "where: (:unav) withdrawn by its author\n" in response.body.decode()


NAMES = st.text("bcdfghjk0123456789", min_size=1, max_size=4)
PATHS = st.lists(st.tuples(st.sampled_from("/."), NAMES), max_size=6).map(lambda parts: "".join(map("".join, parts)))


@given(NAMES, PATHS, PATHS)
def test_the_longest_registered_ark_counts(name: str, registered: str, rest: str) -> None:
    try:
        base = Ark.parse(f"ark:12345/{name}{registered}")
        ark = Ark.parse(f"ark:12345/{name}{registered}{rest}")
    except ArkSyntaxError:
        return
    one = OwnObject(str(base), "https://o.example/long")
    found = match(objects(one, OwnObject(f"ark:12345/{name}", "https://o.example/short")), ark)
    assert found is not None
    longer = found.object.url == "https://o.example/long" or base.qualifier == ""
    assert longer or str(ark) != str(base) + rest  # the normal form of a longer one may be in another order
    assert target_of(found, ark).startswith(found.object.url)


@given(st.text(max_size=40))
def test_any_ark_has_a_match_or_none(text: str) -> None:
    try:
        ark = Ark.parse(f"ark:12345/x1{text}")
    except ArkSyntaxError:
        return
    found = match(objects(ONE), ark)
    assert found is None or (found.object == ONE and ark.resolution.endswith(found.rest))


def test_a_row_is_written_as_it_is_read() -> None:
    for one in (ONE, PART, CLOSED, GONE, TOLD, OwnObject("ark:12345/x2", "https://o.example/", more={"note": "a"})):
        row = to_row(one)
        assert read_row(row) == one
        assert list(row)[: len(COLUMNS)] == list(COLUMNS)
