"""The pages without a browser: their structure, their sizes, and hostile texts from people, registries and DNS.

``tests/browser`` checks them in Chromium.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from maptr import __version__, registry
from maptr.ark import Ark
from maptr.config.model import GatewayConfig
from maptr.errors import Fault
from maptr.gateway import drawing, pages
from maptr.gateway.message import Response
from maptr.gateway.metrics import Metrics
from maptr.gateway.objects import OwnObject
from maptr.gateway.site import DriftReport, Traffic
from maptr.naptr.record import Naptr
from maptr.reconcile.probes import Liveness, Period
from maptr.reconcile.verdict import AGREES, Drift, PastVerdict, Verdict
from maptr.registry.table import Entry, NaanPolicy, Nma, Table, Who
from maptr.walk import Answer
from tests.support.caching import HOME, SILENT, dns_answer, host, redirect
from tests.support.gateway import Gateway, objects

NOW = 1_700_000_000.0
MAX_PAGE = 50_000  # bytes
VOID = {"meta", "link", "input", "br", "path", "circle", "rect"}  # without an end, or ended at once
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}&<!--"
URL = "https://h.example/ark:/12345/x"
SILENT_ONE = {
    one.place: one
    for one in [Liveness.of("https://h.example", [Period(NOW - 900, NOW, 2, Fault.TIMEOUT, "no <answer>")])]
}


class Page(HTMLParser):
    """A page whose elements must be closed in order."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        assert response.header("Content-Type") == "text/html; charset=utf-8"
        assert len(response.body) < MAX_PAGE
        self.source = response.body.decode()
        self.feed(self.source)
        self.close()
        assert not self._open
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for known, attributes in self.tags if known == tag]

    def hrefs(self) -> list[str]:
        return [attributes["href"] for attributes in self.all("a")]

    def title(self) -> str:
        found = re.search(r"<title>(.*?)</title>", self.source)
        assert found is not None
        return found[1]


def sound(response: Response) -> Page:
    """The page, which has the landmarks and headings of every page, and no script."""
    page = Page(response)
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("footer")) == 1
    assert page.all("html") == [{"lang": "en"}]
    assert page.hrefs()[0] == "#main"
    assert page.all("main")[0]["id"] == "main"
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    pointers = [attributes.get(name) for _, attributes in page.tags for name in ("aria-labelledby", "for")]
    assert set(filter(None, pointers)) <= set(ids)
    assert not {"script", "img", "iframe", "object", "embed", "base", "style"} & {tag for tag, _ in page.tags}
    assert not {name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"}
    assert all(link["href"].startswith(("/style.css?", "/icon.svg")) for link in page.all("link"))
    assert all(not href or href.startswith(("#", "/", "?", "https://", "http://")) for href in page.hrefs())
    assert "unsafe" not in response.header("Content-Security-Policy")
    assert response.header("Content-Security-Policy").startswith("default-src 'none'; style-src 'self'")
    assert "alert(1)</script>" not in page.source
    assert "49" not in page.title()
    return page


def drift(record: str, verdict: Verdict = Verdict.SAME, **fields: object) -> Drift:
    return Drift(record, verdict, f"ark:{record}zzz", **fields)  # type: ignore[arg-type]


def library(key: str = "12345", **fields: object) -> Entry:
    naan, _, shoulder = key.partition("/")
    values = {"who": Who("National Library", "Bibliothek", "NL"), "nmas": (Nma("https://h.example/ark:/${content}"),)}
    return Entry(naan, shoulder, **{**values, **fields})  # type: ignore[arg-type]


def show(target: str, *entries: Entry, answers: dict[str, Answer] | None = None, **settings: Any) -> Page:
    policy = "natab-only" if answers is None else "dns-only"
    gateway = Gateway(Table(entries) if entries else None, answers, policy=policy, **settings)
    return sound(gateway.ask(target, accept="text/html"))


# ---- the first page


@pytest.mark.parametrize(
    ("verdicts", "title"),
    [
        ([], "There is nothing to compare"),
        ([Verdict.SAME, Verdict.LOSSY], "All records agree"),
        ([Verdict.SAME, Verdict.MISSING], "Deviating records: 1 of 2"),
        ([Verdict.MISSING], "Deviating records: 1 of 1"),
        ([Verdict.STALE, Verdict.EXTRA, Verdict.UNKNOWN, Verdict.SAME], "Deviating records: 2 of 4"),
        ([Verdict.UNKNOWN, Verdict.SAME], "No record is known to deviate"),
        ([Verdict.SAME] * 1862 + [Verdict.DIFFERS], "Deviating records: 1 of 1,863"),
    ],
)
def test_the_title_is_the_verdict_of_the_whole(verdicts: list[Verdict], title: str) -> None:
    report = DriftReport([drift(str(10_000 + n), one) for n, one in enumerate(verdicts)], NOW)
    for target in ("/status", "/drift"):
        page = show(target, library(), drift=report)
        assert page.title() == f"{title} – maptr"
        assert show(target, compares=True).title() == "Every ARK, by DNS – maptr"
        one_naan = show(target, library(), library("12345/x6"), compares=True)
        assert one_naan.title() == "1 NAAN, from a table – maptr"
    assert title in page.text
    assert ("DNS did not answer" in page.text) is (Verdict.UNKNOWN in verdicts)


def test_the_menu_has_the_pages_that_there_are() -> None:
    paths = ("/", "/naan/12345", "/ark:12345", "/?q=ark:12345/x", "/ark:12345/x?maptr=list")
    plain = [show(path, library()).hrefs() for path in paths]
    settings = GatewayConfig(public_stats=True)
    full: dict[str, Any] = {"compares": True, "liveness": SILENT_ONE, "statistics": lambda days: None}
    assert Gateway(Table([library()])).ask("/drift").status == 404
    assert "DNS and the table" not in show("/naan/12345", library()).text
    for path, hrefs in zip(paths, plain, strict=True):
        assert {*show(path, library(), settings=settings, **full).hrefs()} - {*hrefs} == {
            "/drift",
            "/servers",
            "/stats",
        }


def test_the_feed_is_valid_atom() -> None:
    """RFC 4287 4.1.2 and 4.2.6: an entry without content has a link, and identifiers are URIs."""
    for public_url, base in (("", "urn:maptr:My%20Library"), ("https://gw.example", "https://gw.example")):
        gateway = Gateway(liveness=SILENT_ONE, settings=GatewayConfig(name="My Library"), public_url=public_url)
        feed = gateway.ask("/servers.atom").body.decode()
        assert re.findall("<id>(.*?)</id>", feed)[0] == f"{base}/servers"
        assert feed.count(f'<link href="{public_url}/servers"/>') == 2, "the feed and its entry"
        assert f'<link rel="self" href="{public_url}/servers.atom"/>' in feed
    assert 'type="application/atom+xml" href="/servers.atom"' in gateway.ask("/servers").body.decode()


def test_pages_and_files_have_validators() -> None:
    """RFC 9110 8.8.3 and 13.1.2. A page is the same within a minute."""
    gateway = Gateway(Table([library()]), drift=DriftReport((), 1_699_999_950.0), inflections="describe")
    for path in ("/", "/drift", "/naan/12345", "/style.css", "/icon.svg"):
        first = gateway.ask(path, accept="text/html")
        tag = first.header("etag")
        assert tag, path
        for named in (tag, f'W/{tag}, "x"', "*"):
            again = gateway.ask(path, accept="text/html", if_none_match=named)
            assert (again.status, again.body, again.header("etag")) == (304, b"", tag)
            assert again.header("cache-control") == first.header("cache-control")
        assert gateway.ask(path, accept="text/html", if_none_match='"x"').status == 200
    assert gateway.ask("/ark:12345/x", if_none_match="*").status == 302


def test_no_control_character_of_the_registry_reaches_a_page() -> None:
    """Nor one that changes the direction of text (UAX 9)."""
    name = "a\u202eb\u2066c\x1b[31m\x85d\u200fe\x00f – é\u00a0g"
    entry = Entry("12345", "", (Nma("https://h.example/${content}"),), Who(name, acronym=name))
    gateway = Gateway(Table([entry]), inflections="describe")
    for path in ("/naan/12345", "/ark:12345", "/?q=ark:12345/x", "/drift"):
        page = gateway.ask(path, accept="text/html").body.decode()
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x09\x0b-\x1f\x7f-\x9f]", page)
        assert path in ("/drift", "/ark:12345") or "abc [31m de f – é\u00a0g" in page


def test_a_list_is_made_once_for_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = pages.page

    def page(name: str, *rest: Any, **values: Any) -> Response:
        made.append(name)
        return real(name, *rest, **values)

    monkeypatch.setattr(pages, "page", page)
    gateway = Gateway(
        Table([library()]), drift=DriftReport((Drift("12345", Verdict.SAME, "ark:12345/x"),), 1_699_999_950.0)
    )
    for verdict in ("same", "missing", "same", "nonsense", ""):
        gateway.ask(f"/drift?verdict={verdict}&page=99")
    assert len(made) == 3
    gateway.site = replace(
        gateway.site, drift=DriftReport((Drift("12345", Verdict.SAME, "ark:12345/x"),), 1_699_999_960.0)
    )
    gateway.ask("/drift?verdict=same")
    assert len(made) == 4


def test_the_first_page_says_what_an_ark_is_and_has_the_search_first() -> None:
    page = show("/", library(), drift=DriftReport([drift("12345", Verdict.MISSING)], NOW - 90), troubles=("gone",))
    assert page.title() == "Where does an ARK lead? – maptr"
    assert [one["name"] for one in page.all("input")] == ["q"]
    assert page.source.index("<form") < page.source.index("What is an ARK?")
    assert "gone" not in page.text.split()
    assert page.all("svg") == []


def test_the_status_is_for_the_operator() -> None:
    for has_admin, status in ((True, 404), (False, 200)):
        gateway = Gateway(Table([library()]), has_admin=has_admin)
        assert gateway.ask("/status", accept="text/html").status == status
        for link in ("/status", "/metrics", "/ready"):
            assert (f'href="{link}"' in gateway.ask("/").body.decode()) is not has_admin


def test_the_page_of_the_operator_shows_the_state() -> None:
    report = DriftReport([drift("12345", Verdict.MISSING)], NOW - 90, serial=2026112301)
    traffic = Traffic(1234, 0.0005, None)
    page = show("/status", library(), drift=report, traffic=lambda: traffic, troubles=("table: <gone>",))
    for text in ("Age of the table 16 minutes", "2026112301", "1,234", "≤ 0.5 ms", "> 5 s", "compared 90 seconds ago"):
        assert text in page.text
    assert "table: <gone>" in page.text
    assert "National Library missing" in page.text.replace("− ", "")
    assert "/naan/12345" in page.hrefs()
    assert show("/status", traffic=lambda: Traffic(0, None, None)).text.count("atency") == 0


def test_the_example_is_an_ark_that_the_registry_has_for_tests() -> None:
    entry = library(extra={"test_identifier": "see https://n2t.net/ark:/12345/b6 for it"})
    assert f"/?q={quote('ark:12345/b6')}" in show("/", entry).hrefs()
    assert f"/?q={quote('ark:12345')}" in show("/", library(extra={"test_identifier": ["x"]})).hrefs()


# ---- a search


def search(text: str) -> str:
    return f"/?q={quote(text, safe='')}"


def test_a_text_with_an_ark_in_it_is_explained() -> None:
    page = show(search("(see https://n2t.net/ark:/12345/x6-np1, page 4)"), library())
    assert page.title() == "ark:12345/x6np1 goes to – maptr"
    assert "https://h.example/ark:/12345/x6np1" in page.hrefs()
    assert "/ark:12345/x6np1" in page.hrefs(), "to follow"
    assert "/naan/12345" in page.hrefs()
    assert page.all("input")[0]["value"] == "ark:12345/x6np1"
    assert "302 Found" in page.text
    assert "The table answered" in page.text
    (graph,) = [one for one in page.all("svg") if one["class"] == "walk"]
    assert graph["role"] == "img"
    assert "Graph of the walk" in graph["aria-label"]


@pytest.mark.parametrize("excess", [0, 1])
def test_a_url_that_is_too_long_is_no_link(excess: int) -> None:
    start = "https://h.example/ark:/12345/"
    name = "x" * (pages.MAX_LINK - len(start) + excess)
    hrefs = show(search(f"ark:12345/{name}"), library()).hrefs()
    assert (f"{start}{name}" in hrefs) is (excess == 0)


@pytest.mark.parametrize("tail", ["?info", "?", "??", "?a=1&b=2"])
def test_inflections_and_query_strings_are_carried_along(tail: str) -> None:
    page = show(search(f"ark:12345/x6np1{tail}"), library())
    assert f"https://h.example/ark:/12345/x6np1{tail}" in page.hrefs()
    assert f"/ark:12345/x6np1{tail}" in page.hrefs()


def test_the_search_reads_a_text_as_a_request_does() -> None:
    page = show(search("ark:12345/x%20y%2Dz%25?maptr=list"), library())
    assert page.all("input")[0]["value"] == "ark:12345/xyz%25"
    assert "https://h.example/ark:/12345/xyz%25" in page.hrefs()


def test_the_graph_marks_the_authority_that_is_used() -> None:
    gateway = Gateway(Table([library(nmas=(Nma("https://a.example/${pid}"), Nma("https://b.example/${pid}")))]))
    ark = Ark.parse("ark:12345/x1")
    found = gateway.discover(ark)
    for target in ("https://a.example/ark:12345/x1", "https://b.example/ark:12345/x1"):
        graph = drawing.walk(ark, found, target)
        assert [node.text for node in graph.nodes if node.kind == "chosen"] == [target]
        assert [node.text for node in graph.nodes if node.is_used] == ["ark:12345/x1", "table of NAANs", target]


def test_the_page_says_what_a_request_for_the_ark_would_get() -> None:
    none = show(search("ark:12345/x"), answers={HOME: dns_answer()})
    assert none.title() == "It is not known where ark:12345/x leads – maptr"
    assert "404 Not Found" in none.text
    silent = show(search("ark:12345/x"), answers={HOME: SILENT})
    assert silent.title() == "Where ark:12345/x leads is not known at the moment – maptr"
    assert "503 Service Unavailable" in silent.text
    assert "Neither DNS nor the table gave a usable answer" in silent.text
    assert "table: not asked; 12345.ark.arpa. NAPTR: no answer in time" in silent.text
    assert "DNS answered" not in silent.text
    assert "There may be more" not in silent.text
    partial = show(
        search("ark:12345/x"),
        answers={HOME: dns_answer(redirect("a.example."), host("h.example.")), "a.example.": SILENT},
    )
    assert "DNS answered" in partial.text
    assert "There may be more mapping authorities: a.example. NAPTR: no answer in time" in partial.text
    no_table = show(search("ark:12345/x"))
    assert "Neither DNS nor the table gave a usable answer. (DNS: not asked; the table: missing)" in no_table.text
    bare = show(search("12345 is at ark:12345"), library())
    assert "This is neither an ARK nor an organisation" in bare.text
    long = show(search(f"ark:12345/{'%2F' * 2700}"), library())
    assert "cannot be looked up" in long.text
    described = show(search("ark:12345"), library())
    assert described.title() == "ark:12345 is described by this gateway – maptr"
    assert "/ark:12345" in described.hrefs()
    single = show(search("ark:12345/x"), library(), objects=objects(OwnObject("ark:12345/x", "https://one.example/")))
    assert "https://one.example/" in single.hrefs()
    assert "its own redirect" in single.text
    gone = show(search("ark:12345/x/c2"), objects=objects(OwnObject("ark:12345/x", "", 410, "withdrawn", "A. Author")))
    assert gone.title() == "ark:12345/x is gone – maptr"
    assert "ark:12345/x is gone Why withdrawn who A. Author" in gone.text
    assert "410 Gone" in gone.text
    assert "redirect" not in gone.text
    assert "not accept" not in gone.text
    forwarded = show(search("ark:12345/x"), answers={HOME: dns_answer()}, root="https://root.example")
    assert "https://root.example/ark:12345/x" in forwarded.hrefs()


def test_a_text_without_an_ark_is_not_reflected() -> None:
    for text in ("hello", HOSTILE, "12345/x6np1", "x" * 5000):
        page = show(search(text), library())
        assert "This is neither an ARK nor an organisation" in page.text
        assert page.all("input")[0]["value"] == ""
        assert page.all("input")[0]["aria-invalid"] == "true"
    assert search("ark:12345/x6np1").replace("%2F", "/") in show(search("12345/x6np1"), library()).hrefs()


@pytest.mark.parametrize(
    "text",
    [
        *("12345", "nl", "NATIONAL  libráry", "bibliothek", f"{'national library ' * 4} the ninth word is not read"),
        *("naan 12345", "NAAN: 12345", "12345.", "12345/", "(NL)", "12345, NL", "library; national", "ark 12345"),
    ],
)
def test_a_search_for_one_organisation_leads_to_its_page(text: str) -> None:
    response = Gateway(Table([library(), library("67890", who=Who("Archive", None, "AR"))])).ask(search(text))
    assert (response.status, response.header("Location")) == (303, "/naan/12345")


def test_a_search_for_several_leads_to_their_list() -> None:
    entries = [library(), library("67890", who=Who("University Library", None, "UL")), library("12345/x6")]
    response = Gateway(Table(entries)).ask(search("library"))
    assert (response.status, response.header("Location")) == (303, "/naan/?q=library")
    page = show("/naan/?q=library", *entries)
    assert "2 NAANs for library" in page.text
    assert {"/naan/12345", "/naan/67890"} <= set(page.hrefs())
    assert "1 NAAN for ark:/12345/" in show(f"/naan/?q={quote('ark:/12345/')}", *entries).text


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/naan?q=a%20b", "/naan/?q=a%20b"),
        ("/naan/12345/", "/naan/12345"),
        ("/servers/", "/servers"),
        ("//naan", ""),
        ("/stats/?days=1", "/stats?days=1"),
        ("/nothing/", ""),
        ("//drift/", ""),
    ],
)
def test_a_slash_too_many_or_too_few_leads_to_the_page(target: str, location: str) -> None:
    response = Gateway(Table([library()])).ask(target)
    assert (response.status, response.header("Location")) == (302 if location else 404, location)


def test_the_list_has_every_naan_once_over_its_pages() -> None:
    entries = [library(str(number)) for number in range(10_000, 10_250)]
    target, seen = "/naan/", []
    while target:
        hrefs = show(target, *entries).hrefs()
        seen += [each for each in hrefs if re.fullmatch(r"/naan/\d+", each)]
        target = next((each.replace("&amp;", "&") for each in hrefs if each.startswith("/naan/?")), "")
    assert seen == [f"/naan/{entry.naan}" for entry in entries]


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        f"ark:12345/x{HOSTILE}",
        f"ark:{HOSTILE}/x",
        f"ark:12345/x?{HOSTILE}",
        "ark:12345/x?'\"><svg onload=alert(1)>",
        "ark:12345/" + "<" * 3000,
        "ark:12345/x?" + "&" * 7000,
        "ark:12345/" + "x" * 8000,
        "ark:12345/x\r\nSet-Cookie: a=b",
        "javascript:alert(1)//ark:12345/x",
        "\x00\x1b[31m\ud800ark:12345/x".encode("utf-8", "replace").decode(),
        "ark:12345/x?maptr=list",
        "a%FFark:12345/%",
    ],
)
def test_hostile_texts_are_escaped(text: str) -> None:
    gateway = Gateway(Table([library()]))
    for target in (
        search(text),
        f"/{text}".encode("ascii", "replace").decode(),
        f"/naan/{quote(text)}",
        f"/naan/?q={quote(text, safe='')}&after={quote(text, safe='')}",
        f"/drift?verdict={quote(text)}",
    ):
        response = gateway.ask(target, accept="text/html")
        if response.status not in (302, 303):
            sound(response)


# ---- the walk


def rows(ark: str, answers: dict[str, Answer]) -> list[tuple[str, str]]:
    gateway = Gateway(None, answers, policy="dns-only")
    parsed = Ark.parse(ark)
    return [(node.kind, node.text) for node in drawing.walk(parsed, gateway.discover(parsed)).nodes]


def test_the_graph_has_each_query_and_each_record() -> None:
    answers = {
        HOME: dns_answer(redirect("spct.org."), host("h.example."), host("localhost.")),
        "spct.org.": dns_answer(host("a.example.")),
    }
    assert rows("ark:12345/x1", answers) == [
        ("ark", "ark:12345/x1"),
        ("query", "12345.ark.arpa. NAPTR"),
        ("query", "spct.org. NAPTR"),
        ("chosen", "a.example"),
        ("found", "h.example"),
        ("skipped", "does not count"),
    ]


def test_the_graph_ends_where_the_walk_ends() -> None:
    assert rows("ark:12345/x1", {HOME: dns_answer()})[-1] == ("failed", "no mapping authority")
    assert rows("ark:12345/x1", {HOME: SILENT})[1:] == [("failed", "12345.ark.arpa. NAPTR"), ("failed", "not known")]


def test_a_loop_and_a_long_chain_are_drawn_once() -> None:
    names = [f"n{number}.example." for number in range(12)]
    chain = {HOME: dns_answer(redirect(names[0]))} | {
        name: dns_answer(redirect(following)) for name, following in zip(names, [*names[1:], names[0]], strict=True)
    }
    drawn = rows("ark:12345/x1", chain)
    assert len(drawn) <= drawing.MAX_ROWS
    assert len({text for kind, text in drawn if kind == "query"}) == 9, "the first name and eight redirects"
    loop = {HOME: dns_answer(redirect("a.example.")), "a.example.": dns_answer(redirect(HOME))}
    assert [text for kind, text in rows("ark:12345/x1", loop) if kind == "query"] == [
        "12345.ark.arpa. NAPTR",
        "a.example. NAPTR",
    ]


def test_a_graph_of_many_records_is_cut_and_says_so() -> None:
    many = {HOME: dns_answer(*(host(f"h{number}.example.", number) for number in range(60)))}
    drawn = rows("ark:12345/x1", many)
    assert len(drawn) == drawing.MAX_ROWS
    assert drawn[-1] == ("more", "and 43 more")
    page = show(search("ark:12345/x1"), answers=many)
    assert re.search(r"and \d\d more", page.text)


def test_the_steps_are_the_queries_with_their_records_and_those_of_the_table() -> None:
    ark, other = Ark("12345", "x1"), Naptr(0, 0, b"h", b"http", b"", (b"h", b"example"))
    found = Gateway(answers={HOME: dns_answer(host("h.example."), other)}, policy="dns-only").discover(ark)
    [query] = found.trace
    assert pages.walk(ark, found)["steps"] == [
        pages.Line(str(query), is_query=True),
        pages.Line('0 0 "h" "ark" "" h.example.', why="candidate h.example"),
        pages.Line('0 0 "h" "http" "" h.example.', counted=False, why=query.readings[1].reasons[0]),
    ]
    natab = Gateway(Table([library()])).discover(ark)
    made = pages.walk(ark, natab)
    [[record]] = [step.table_records for step in natab.trace]
    assert made["steps"][1:] == [pages.Line("record 12345", why=record.leads_to[0])]
    long = Gateway(answers={HOME: dns_answer(*(host(f"h{n}.example.") for n in range(60)))}, policy="dns-only")
    made = pages.walk(ark, long.discover(ark))
    assert (len(made["steps"]) + made["left"], made["left"] > 0) == (61, True)


def test_hostile_answers_of_dns_are_texts_and_fit() -> None:
    regexp = f"!^ark:/?12345/(.*)$!https://h.example/{'&' * 150}\\\\1!".encode()
    hostile = HOSTILE.encode()
    records = [Naptr(n, 0, b"u", b"ark", regexp, ()) for n in range(40)]
    records += [Naptr(n, 1, hostile[:250], b"ark", hostile[:250], (b"<script>", b"a.b", b"\xff")) for n in range(40)]
    records += [Naptr(n, 2, b"", b"ark", hostile[:250], (b"<svg onload=1>", b"example")) for n in range(40)]
    answers = {HOME: dns_answer(*records)}
    for ark in ("ark:12345/x1", f"ark:12345/{'&' * 900}", f"ark:12345/{'&' * 3000}", f"ark:12345/x?{'&' * 3000}"):
        for target in (search(ark), f"/{ark}", f"/{ark}?maptr=list"):
            response = Gateway(None, answers, policy="dns-only").ask(target, accept="text/html")
            if response.status != 302:
                sound(response)


# ---- drift


def squares(drawn: drawing.Map) -> int:
    """The squares that the lines of a map have."""
    lengths = [int(length) for line in drawn.lines.values() for length in re.findall(r"h(\d+)", line)]
    return sum((length + drawing.GAP) // drawing.SQUARE for length in lengths)


@pytest.mark.parametrize("share", [0, 1, 7, 1863])
def test_the_map_has_one_square_for_each_naan(share: int) -> None:
    bad = [one for one in Verdict if one not in AGREES]
    verdicts = [drift(f"{10_000 + n}", bad[n % len(bad)] if n < share else Verdict.SAME) for n in range(1863)]
    verdicts += [drift("10000/x6", Verdict.DIFFERS), drift("11000/x6", Verdict.SAME)]
    drawn = drawing.drift_map(drawing.worst_of(verdicts), lambda record: f"name of {record}")
    assert squares(drawn) == 1863
    assert drawn.rows * drawn.columns >= 1863
    if share == 7:
        assert [(one.worst.record, one.worst.verdict) for one in drawn.squares][:2] == [
            ("10000/x6", Verdict.DIFFERS),
            ("10001", verdicts[1].verdict),
        ]
        assert drawn.squares[0].name == "name of 10000/x6"


def test_the_drift_page_lists_what_deviates_or_one_verdict() -> None:
    verdicts = [
        drift("12345", Verdict.DIFFERS, table=(URL,), dns=("https://other.example/",), records=('10 10 "u" "ark"',)),
        drift("12345/x6", Verdict.UNKNOWN, reason="12345.ark.arpa. NAPTR: timeout"),
        drift("20000"),
    ]
    silent = {"https://h.example": Liveness("https://h.example", NOW, failures=2, since=NOW, note="no <answer>")}
    settings: dict[str, Any] = {"drift": DriftReport(verdicts, NOW, 7), "liveness": silent}
    page = show("/drift", library(), **settings)
    for text in (
        "2 to look at",
        URL,
        "https://other.example/",
        '10 10 "u" "ark"',
        "NAPTR: timeout",
        "no <answer>",
        "serial 7",
    ):
        assert text in page.text
    assert "20000" not in page.text
    same = show("/drift?verdict=same", library(), **settings)
    assert "20000" in same.text
    assert "other.example" not in same.text
    assert show("/drift?verdict=nothing", library(), **settings).text == page.text
    assert "Nothing deviates" in show("/drift", library(), drift=DriftReport([drift("12345")], NOW)).text


def test_long_lists_are_in_parts_that_have_every_record_once() -> None:
    verdicts = [drift(f"{10_000 + n}") for n in range(1863)]
    gateway = Gateway(Table([library()]), drift=DriftReport(verdicts, NOW))
    seen: list[str] = []
    for number in count(1):
        page = sound(gateway.ask(f"/drift?verdict=same&page={number}", accept="text/html"))
        seen += [href for href in page.hrefs() if href.startswith("/naan/1")]
        if f"?verdict=same&page={number + 1}" not in page.hrefs():
            break
    assert seen == [f"/naan/{10_000 + n}" for n in range(1863)]
    for odd in ("0", "-1", "99999999999", "x", "²", ""):
        sound(gateway.ask(f"/drift?page={quote(odd)}", accept="text/html"))


# ---- a NAAN


def test_the_page_of_a_naan_has_everything_that_is_known() -> None:
    policy = NaanPolicy("NP", "NR, OP, XY", "2001", "https://policy.example/")
    entries = [library(policy=policy, when="2005-07-17T00:00:00+00:00"), library("12345/x6", who=Who("A Shoulder"))]
    verdicts = [
        drift("12345", Verdict.MISSING, table=(URL,)),
        drift("12345/x6", Verdict.DIFFERS, dns=("https://o.example/",)),
    ]
    history = {"12345": (PastVerdict(NOW - 60, Verdict.MISSING, "gone"), PastVerdict(NOW - 900, Verdict.SAME))}
    place = "https://h.example"
    page = show(
        "/naan/12345",
        *entries,
        drift=DriftReport(verdicts, NOW, history=history),
        liveness={place: Liveness(place, NOW - 120, failures=3, since=NOW - 900, note="no route")},
    )
    assert page.title() == "NAAN 12345 – National Library – maptr"
    for text in ("Bibliothek", "2005-07-17", "not for profit", "no re-assignment", "opacity", "XY", "tenure 2001"):
        assert text in page.text
    for text in (
        "${content}",
        "No answer to the last 3 probes, the latest 2 minutes ago: no route",
        "1 shoulder",
        "A Shoulder",
        "gone",
    ):
        assert text in page.text
    for text in (URL, "https://o.example/", "2023-11-14 22:12 UTC", "2023-11-14 21:58 UTC"):
        assert text in page.text
    assert "https://policy.example/" in page.hrefs()


def test_a_naan_that_only_dns_has_or_that_is_shared_has_a_page() -> None:
    extra = DriftReport([drift("55555", Verdict.EXTRA, dns=("https://o.example/",))], NOW)
    assert "https://o.example/" in show("/naan/55555", library(), drift=extra).text
    assert "test, development and experiment" in show("/naan/99999", library()).text
    assert show("/naan/ark:/12345", library()).title().startswith("NAAN 12345")


@pytest.mark.parametrize("path", ["/naan/77777", "/naan/12345/x6", "/naan/!", "/naan/<b>", "/nothing", "/style"])
def test_other_paths_are_404(path: str) -> None:
    response = Gateway(Table([library()])).ask(path, accept="text/html")
    assert response.status == 404
    assert ("NAAN 77777 is not in the table" in sound(response).text) is (path == "/naan/77777")
    problem = Gateway(Table([library()])).ask(path, accept="application/problem+json")
    assert problem.header("content-type") == "application/problem+json"
    assert ("NAAN 77777 is not in the table" in problem.body.decode()) is (path == "/naan/77777")


# ---- hostile registries, and sizes


def hostile_site() -> Gateway:
    """A table and a drift in which every text is hostile or long."""
    long = HOSTILE * 200
    who = Who(long, f"native {long}", long)
    policy = NaanPolicy(long, f"NR, {long}", long, "javascript:alert(1)")
    nmas = tuple(Nma(f"https://h{n}.example/{'x' * 2000}/${{content}}", long, acronym=long) for n in range(200))
    extra = {"na_policy": {"policy": [long, 7, None]}, "test_identifier": long}
    entry = Entry("12345", "", nmas, who, long, policy, extra)
    shoulders = [Entry("12345", f"x{n}", nmas[:3], who, long, policy) for n in range(300)]
    urls = tuple(f"https://h.example/{'&' * 3000}{n}" for n in range(64))
    verdicts = [drift("12345", Verdict.DIFFERS, table=urls, dns=urls, reason=long, records=(long,) * 40)]
    verdicts += [
        drift(f"12345/x{n}", Verdict.DIFFERS, table=urls, dns=urls, reason=long, records=(long,) * 40)
        for n in range(300)
    ]
    history = {"12345": tuple(PastVerdict(NOW - n, Verdict.DIFFERS, long) for n in range(50))}
    places = [f"https://{n}.example" for n in range(500)]
    silent = {place: Liveness(place, NOW, failures=4, since=NOW, note=long) for place in places}
    report = DriftReport(verdicts, NOW, history=history)
    return Gateway(Table([entry, *shoulders]), drift=report, liveness=silent, troubles=(long, long))


HOSTILE_SITE = hostile_site()


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/drift",
        "/drift?page=7",
        "/naan/12345",
        "/naan/12345?page=3",
        search("ark:12345/x7np"),
        "/ark:12345",
        "/ark:12345/x7",
        "/ark:12345/zz?maptr=list",
        search("ark:12345"),
        "/ark:99999/x",
        "/ark:12345/x7np?maptr=list",
    ],
)
def test_a_hostile_registry_is_shown_as_text_and_fits(target: str) -> None:
    page = sound(HOSTILE_SITE.ask(target, accept="text/html"))
    assert not any(href.startswith("javascript") for href in page.hrefs())


@pytest.mark.parametrize("bad", [0.0, 0.002, 1.0])
def test_pages_of_the_real_registry_fit(real_data: Path, bad: float) -> None:
    table = registry.read((real_data / "naan_records.json").read_bytes())
    verdicts = [
        drift(key, Verdict.MISSING if n < bad * len(table) else Verdict.SAME, table=(URL,), dns=(URL,))
        for n, key in enumerate(table)
    ]
    gateway = Gateway(table, drift=DriftReport(verdicts, NOW))
    most = max(table.naans(), key=lambda naan: len(table.shoulders(naan)))
    for target in (
        "/",
        "/drift",
        "/drift?verdict=same",
        "/drift?verdict=missing&page=9",
        f"/naan/{most}",
        "/naan/12148",
    ):
        sound(gateway.ask(target, accept="text/html"))


# ---- other pages, and files


def test_the_pages_of_an_error_a_description_and_the_authorities() -> None:
    none = show("/ark:12345/x", answers={HOME: dns_answer()})
    assert "It is not known where this identifier leads" in none.text
    assert "12345.ark.arpa." in none.text, "the walk"
    assert "It is not known at the moment where this leads" in show("/ark:12345/x", answers={HOME: SILENT}).text
    assert "This identifier cannot be read" in show("/ark:!/x").text
    described = show("/ark:12345", library())
    for text in ("who", "what", "when", "where", "Support", "Source", "National Library"):
        assert text in described.text
    assert "/naan/12345" in described.hrefs()
    listed = show(
        "/ark:12345/x?maptr=list", library(nmas=(Nma("https://a.example/${pid}"), Nma("https://b.example/${pid}")))
    )
    assert [href for href in listed.hrefs() if ".example" in href] == [
        "https://a.example/ark:12345/x",
        "https://b.example/ark:12345/x",
    ]


@pytest.mark.parametrize(
    ("path", "kind", "start"), [("/style.css", "text/css", ":root"), ("/icon.svg", "image/svg+xml", "<svg")]
)
def test_style_and_icon_are_served(path: str, kind: str, start: str) -> None:
    response = Gateway().ask(f"{path}?{__version__}")
    assert response.status == 200
    assert response.header("Content-Type").startswith(kind)
    assert response.body.decode().startswith(start)
    assert "url(" not in response.body.decode()
    assert "@import" not in response.body.decode()
    assert len(response.body) < MAX_PAGE


def test_traffic_is_read_from_the_metrics() -> None:
    metrics = Metrics()
    assert metrics.traffic() == Traffic(0, None, None)
    for status, seconds in [(302, 0.0004)] * 60 + [(303, 0.004)] * 39 + [(404, 0.9)]:
        metrics.count("resolve", status, seconds)
    metrics.count("page", 200, 9.0)
    assert metrics.traffic() == Traffic(99, 0.0005, 0.005)
    for _ in range(100):
        metrics.count("resolve", 302, 90.0)
    assert metrics.traffic() == Traffic(199, 1.0, None)


# ---- the file of ``maptr table drift --html``


def file_of(*verdicts: Drift, silent: tuple[Liveness, ...] = (), **texts: str) -> str:
    named = {"file": "naans.json", "asked": "@192.0.2.1", "origin": "ark.arpa."} | texts
    return pages.drift_file(verdicts, table=Table([library()]), now=NOW, silent=silent, **named)


def test_the_file_has_date_version_and_its_own_style() -> None:
    text = file_of(drift("12345"))
    assert f"2023-11-14 22:13 UTC by maptr {__version__}" in re.sub("<.*?>", "", text)
    assert "All records agree" in text
    assert "National Library" in text
    assert "<link" not in text
    assert 'href="/' not in text
    assert "<style>" in text
    assert re.search(r"default-src 'none'; style-src 'sha256-[\w+/]{43}='", text)
    assert pages.is_page(text.encode())
    assert not pages.is_page(b"<html>")


def test_every_deviating_square_of_the_file_links_to_its_evidence() -> None:
    bad = [one for one in Verdict if one not in AGREES]
    verdicts = [drift(f"2000{n}", one) for n, one in enumerate(bad)] + [drift("20000/x6.%2A", Verdict.DIFFERS)]
    text = file_of(*verdicts)
    ids = re.findall(r'id="(r-[^"]*)"', text)
    assert ids == [
        f"r-{one.record}" for one in sorted(verdicts, key=lambda one: (drawing.RANKS[one.verdict], one.record))
    ]
    links = [unquote(link) for link in re.findall(r'href="#(r-[^"]*)"', text)]
    assert len(links) == len(bad)
    assert set(links) <= set(ids)


def test_hostile_texts_of_the_file_are_escaped() -> None:
    silent = Liveness("https://<b>.example", 1.0, failures=1, since=1.0, note="<silence>")
    bad = drift("12345", Verdict.DIFFERS, table=(HOSTILE,), dns=(HOSTILE,), reason=HOSTILE, records=(HOSTILE,))
    text = file_of(bad, silent=(silent,), file=HOSTILE, asked=HOSTILE, origin=HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    assert "https://&lt;b&gt;.example" in text
    assert "1 time: &lt;silence&gt;" in text
    assert "There is nothing to compare" in file_of()
