"""From a discovery to a response: sources and their age, several authorities, own URLs, single redirects, none."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from maptr.ark import SHARED_NAANS, Ark
from maptr.discovery import Link, Outcome
from maptr.gateway.message import Lookup
from maptr.gateway.objects import OwnObject
from maptr.gateway.route import route
from maptr.naptr.record import Naptr
from maptr.reconcile.probes import SUSPECT_AFTER, Liveness
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Answer
from tests.support.caching import HOME, ONE_HOST, SILENT, dns_answer, host, table
from tests.support.gateway import Gateway, objects

ARK = "/ark:12345/x1"
TABLE = table(("12345", "natab.example"))


def test_the_source_says_how_old_it_is_and_why_it_was_used() -> None:
    gateway = Gateway(TABLE, dict(ONE_HOST), policy="dns-first")
    assert gateway.ask(ARK).header("maptr-source") == "dns"
    gateway.rig.pass_time(100)
    kept = gateway.ask(ARK)
    assert (kept.header("maptr-source"), kept.header("cache-control")) == ("memory;age=100", "max-age=200")
    gateway.rig.dns.answers[HOME] = SILENT
    gateway.rig.pass_time(1000)
    stale = gateway.ask(ARK)
    assert stale.header("location") == "https://h.example/ark:12345/x1"
    assert stale.header("maptr-source").startswith('memory;stale;age=1100;reason="DNS does not say; ')
    assert stale.header("cache-control") == "max-age=30"
    gateway.rig.pass_time(100_000)
    from_table = gateway.ask(ARK)
    assert from_table.header("location") == "https://natab.example/ark:/12345/x1"
    assert (
        from_table.header("maptr-source")
        == 'natab;age=102100;reason="DNS: does not say; the table has it: record 12345"'
    )
    assert from_table.header("cache-control") == "max-age=300"


def test_a_redirect_is_cached_for_at_most_a_day() -> None:
    gateway = Gateway(answers={HOME: dns_answer(host("h.example"), ttl=604_800)}, policy="dns-only")
    assert gateway.ask(ARK).header("cache-control") == "max-age=86400"


def test_an_unknown_answer_is_503_and_none_is_404() -> None:
    """503 where nothing is known, 404 where DNS or the table said that there is none."""
    silent = Gateway(answers={HOME: SILENT}, policy="dns-first", root="https://root.example").ask(ARK)
    assert (silent.status, silent.header("retry-after"), silent.header("cache-control")) == (503, "30", "no-store")
    assert "no mapping authority known for ark:12345/x1" in silent.body.decode()
    none = Gateway(answers={}, policy="dns-first").ask(ARK)
    assert (none.status, none.header("retry-after"), none.header("cache-control")) == (404, "", "max-age=30")


def test_503_advises_to_wait_only_where_that_helps() -> None:
    """RFC 9110 10.2.3. The advice is for the public: it has no options of a command line."""
    missing = {name: Answer(Outcome.NXDOMAIN) for name in (HOME, "ark.arpa.")}
    for gateway, helps in (
        (Gateway(answers={HOME: SILENT}, policy="dns-first"), "Try again in half a minute"),
        (Gateway(answers=missing, policy="dns-first"), r"Only (the|its) operator( of the gateway)? can change that"),
        (Gateway(policy="natab-only"), "[wW]aiting (alone )?does not help"),
    ):
        for kind in ("text/plain", "text/html", "application/json"):
            refused = gateway.ask(ARK, accept=kind)
            assert refused.status == 503
            assert re.search(helps, refused.body.decode())
            assert (refused.header("retry-after") == "30") is helps.startswith("Try")
            assert not re.search("@SERVER|maptr up|--", html.unescape(refused.body.decode()))
        assert re.search(helps, gateway.ask("/?q=ark:12345/x1", accept="text/html").body.decode())
        refused = gateway.ask("/api/v1/discover?ark=ark:12345/x1")
        assert (refused.status, refused.header("retry-after") == "30") == (503, helps.startswith("Try"))


def test_a_record_without_a_usable_url_is_404_with_the_reason() -> None:
    gateway = Gateway(table(("12345", "127.0.0.1")))
    for kind in ("text/plain", "application/json"):
        refused = gateway.ask(ARK, accept=kind)
        assert (refused.status, refused.header("cache-control")) == (404, "max-age=30")
        assert "record 12345: 127.0.0.1 is not a public host" in refused.body.decode()
    assert gateway.ask("/api/v1/discover?ark=ark:12345/x1").status == 404


def test_no_response_names_the_dns_servers() -> None:
    """They may be internal ones."""
    failures = set(Outcome) - {Outcome.BOGUS, Outcome.LIMIT, Outcome.NO_ORIGIN}
    silent = [Answer(one, note="192.0.2.53#53: lame", server="192.0.2.53") for one in failures if not one.answered]
    said = dns_answer(host("h.example"))._replace(
        server="192.0.2.53#53", links=(Link("x.", "DS", "secure", server="192.0.2.53"),)
    )
    for answer in (*silent, said):
        gateway = Gateway(answers={HOME: answer}, policy="dns-first")
        for target in (ARK, f"{ARK}?maptr=list", "/?q=ark:12345/x1", "/api/v1/discover?ark=ark:12345/x1"):
            for kind in ("text/plain", "text/html", "application/json"):
                response = gateway.ask(target, accept=kind)
                assert "192.0.2" not in f"{response.headers}{response.body.decode()}"
        asked = route("GET", f"{ARK}?maptr=list", {"accept": "text/html"}, gateway.site)
        assert isinstance(asked, Lookup)
        assert b"192.0.2" not in asked.respond(gateway.discover(asked.ark).replace(ark=asked.ark)).body


@pytest.mark.parametrize("naan", SHARED_NAANS)
def test_shared_naans_redirect_like_any_other(naan: str) -> None:
    """Draft 2.3: 12345 and 99999 need not resolve. Their records redirect like any other."""
    found = Gateway(table((naan, "h.example"))).ask(f"/ark:{naan}/x1")
    assert found.header("location") == f"https://h.example/ark:/{naan}/x1"
    none = Gateway(Table()).ask(f"/ark:{naan}/x1").body.decode()
    assert ("need not resolve" in none) == (naan in ("12345", "99999"))


# ---- several mapping authorities


def liveness(*places: str, at: float = 1_700_000_000.0) -> dict[str, Liveness]:
    return {place: Liveness(place, at, failures=SUSPECT_AFTER) for place in places}


TWO = {HOME: dns_answer(host("a.example"), host("b.example", 1))}


def test_authorities_that_do_not_answer_come_last() -> None:
    assert Gateway(answers=TWO, policy="dns-only").location(ARK) == "https://a.example/ark:12345/x1"
    dead = Gateway(answers=TWO, policy="dns-only", liveness=liveness("https://a.example"))
    assert dead.location(ARK) == "https://b.example/ark:12345/x1"
    listed = dead.ask(f"{ARK}?maptr=list", accept="text/plain").body.decode().split()
    assert listed == ["https://b.example/ark:12345/x1", "https://a.example/ark:12345/x1"]
    document = json.loads(dead.ask("/api/v1/discover?ark=ark:12345/x1").body)
    assert [one["url"] for one in document["candidates"]] == listed
    both = Gateway(answers=TWO, policy="dns-only", liveness=liveness("https://a.example", "https://b.example"))
    assert both.location(ARK) == "https://a.example/ark:12345/x1"
    old = Gateway(answers=TWO, policy="dns-only", liveness=liveness("https://a.example", at=0.0))
    assert old.location(ARK) == "https://a.example/ark:12345/x1"


def test_the_list_is_a_link_set() -> None:
    """RFC 9264 4.2."""
    gateway = Gateway(answers=TWO, policy="dns-only", public_url="https://gw.example")
    links, *cited = json.loads(gateway.ask(f"{ARK}?maptr=list").body)["linkset"]
    assert links["anchor"] == "https://gw.example/ark:12345/x1"
    assert [link["href"] for link in links["alternate"]] == [
        "https://a.example/ark:12345/x1",
        "https://b.example/ark:12345/x1",
    ]
    assert links["describedby"][0] == {"href": "https://gw.example/ark:12345/x1?info", "type": "text/plain"}
    assert [(one["anchor"], one["cite-as"]) for one in cited] == [
        (f"https://{name}.example/ark:12345/x1", [{"href": "https://gw.example/ark:12345/x1"}]) for name in "ab"
    ]


def test_the_link_set_as_text_has_the_same_links() -> None:
    """RFC 9264 4.1: the form of the Link header."""
    gateway = Gateway(answers=TWO, policy="dns-only", public_url="https://gw.example")
    response = gateway.ask(ARK, accept="application/linkset")
    assert response.header("content-type") == "application/linkset"
    links = response.body.decode().split(",\n")
    assert links[0] == '<https://a.example/ark:12345/x1>; rel="alternate"; anchor="https://gw.example/ark:12345/x1"'
    assert len(links) == 8
    assert [link for link in links if "text/plain" in link] == [
        '<https://gw.example/ark:12345/x1?info>; rel="describedby"; anchor="https://gw.example/ark:12345/x1";'
        ' type="text/plain"'
    ]


def test_the_anchor_of_a_link_set_is_absolute() -> None:
    """Without public_url the Host header gives it, and the answer is not kept."""
    for certificate, scheme in ((None, "http"), (Path("tls.pem"), "https")):
        gateway = Gateway(answers=TWO, policy="dns-only", certificate=certificate)
        listed = gateway.ask(f"{ARK}?maptr=list", host="gw.example:81")
        assert json.loads(listed.body)["linkset"][0]["anchor"] == f"{scheme}://gw.example:81/ark:12345/x1"
        assert listed.header("cache-control") == "no-store"


def test_the_links_of_a_redirect_name_the_ark_once_at_most() -> None:
    for public_url, cited in (("", ""), ("https://gw.example", ', <https://gw.example/ark:12345/x1>; rel="cite-as"')):
        gateway = Gateway(TABLE, public_url=public_url)
        links = (
            '<?info>; rel="describedby"; type="text/plain", '
            f'<?maptr=list>; rel="linkset"; type="application/linkset+json"{cited}'
        )
        assert gateway.ask(f"{ARK}?a=b").header("link") == links
        posted = gateway.ask("/", "POST", body="ark:12345/x1").header("link")
        assert posted == '</ark:12345/x1?info>; rel="describedby"; type="text/plain"'
        within = gateway.ask("/https://n2t.net/ark:12345/x1").header("link")
        assert within == posted


def rule(target: str, status: int = 302) -> Table:
    return Table([Entry("12345", nmas=(Nma(target, status=status),))])


@pytest.mark.parametrize(("status", "sent"), [(302, 302), (303, 303), (301, 302), (308, 302), (307, 302), (200, 302)])
@pytest.mark.parametrize("policy", ["natab-only", "dns-first"])
def test_the_status_of_the_record(status: int, sent: int, policy: str) -> None:
    """Draft 2.1: never a permanent one. A NAPTR record has no status, so that the record of the table has it."""
    naptr = Naptr(0, 0, b"u", b"ark", rb"!^ark:/?(12345/.*)$!https://h.example/ark:/\1!", ())
    gateway = Gateway(rule("https://h.example/ark:/${content}", status), {HOME: dns_answer(naptr)}, policy=policy)
    found = gateway.ask(ARK)
    assert (found.status, found.header("location")) == (sent, "https://h.example/ark:/12345/x1")


# ---- the gateway's own URLs, and the root resolver

OWN = [
    "https://gw.example/${pid}",
    "http://gw.example/${pid}",
    "https://GW.example:443/ark:/${content}",
    "https://gw.example./p/${pid}",
]


@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("settings", [{"public_url": "https://gw.example"}, {}], ids=["public_url", "Host"])
def test_the_gateway_never_redirects_to_itself(target: str, settings: dict[str, Any]) -> None:
    """Draft 3.3: the record is described instead. Without a public URL, the request says where the gateway is."""
    if not settings and "/p/" in target:
        return  # another service of the same host
    found = Gateway(rule(target), **settings).ask(ARK, host="gw.example")
    assert (found.status, found.header("thump-status")) == (200, "0.6 200 OK")
    assert "# This describes NAAN 12345, not ark:12345/x1." in found.body.decode()
    assert Gateway(rule(target), **settings).ask(f"{ARK}?maptr=list", host="gw.example").status == 200


@pytest.mark.parametrize(
    "target", ["https://gw.example.org/${pid}", "https://gw.example:8443/${pid}", "https://other.example/gw.example/"]
)
def test_other_servers_are_not_the_gateway(target: str) -> None:
    assert Gateway(rule(target), public_url="https://gw.example").ask(ARK, host="gw.example").status == 302
    assert Gateway(rule(target)).ask(ARK, host="gw.example").status == 302
    below = Gateway(rule("https://gw.example/arks/${pid}"), public_url="https://gw.example/ark")
    assert below.ask(ARK).status == 302
    assert Gateway(rule(target)).ask(ARK, host="x y/\x00").status == 302


def test_an_object_that_the_gateway_would_have_does_not_exist() -> None:
    """If its NAAN leads to the gateway, and that has own objects of the NAAN, which ?info does not describe instead."""
    one = objects(OwnObject("ark:12345/x2", "https://h.example/2"))
    for public_url in ("https://gw.example", ""):
        gateway = Gateway(rule(OWN[0]), objects=one, root="https://root.example", public_url=public_url)
        found = gateway.ask(ARK, host="gw.example")
        assert (found.status, found.reason) == (404, "no-object")
        assert b"no object is registered as ark:12345/x1, and this gateway alone answers for NAAN 12345" in found.body
        assert found.header("cache-control") == ("max-age=30" if public_url else "no-store")
        for form in ("?info", "?", "?maptr=list", "/c"):
            assert gateway.ask(f"{ARK}{form}", host="gw.example").status == 404, form
        problem = gateway.ask("/api/v1/discover?ark=ark:12345/x1", host="gw.example")
        assert (problem.status, problem.header("cache-control")) == (404, found.header("cache-control"))
        document = json.loads(problem.body)["discovery"]
        assert (document["candidates"], document["error"] in found.body.decode()) == ([], True)
        assert gateway.ask("/ark:12345/", host="gw.example").status == 200
        assert gateway.ask("/ark:12345/x2", host="gw.example").status == 302
        for asked, title in (
            (ARK, "There is no object with this identifier"),
            ("/?q=ark:12345/x1", "There is no object ark:12345/x1"),
        ):
            page = gateway.ask(asked, host="gw.example", accept="text/html").body.decode()
            assert f"<title>{title} – maptr</title>" in page


def test_a_url_of_the_gateway_is_told_by_its_host_in_any_case_and_by_its_path() -> None:
    gateway = Gateway(rule("https://GW.example/Ark/${pid}"), public_url="https://gw.example/Ark")
    assert gateway.ask(ARK).status == 200


def test_the_next_authority_if_the_first_is_the_gateway() -> None:
    gateway, other = Gateway(answers=TWO, policy="dns-only", public_url="https://a.example"), "https://b.example"
    assert gateway.location(ARK) == f"{other}{ARK}"
    assert gateway.ask(f"{ARK}?maptr=list", accept="text/plain").body.decode() == f"{other}{ARK}\n"
    assert "Other mapping authorities" not in gateway.ask(f"/?q={ARK}").body.decode()


def test_arks_without_an_authority_go_to_the_root_resolver() -> None:
    gateway = Gateway(TABLE, root="https://root.example/r")
    assert gateway.location("/ark:/54321/x-1/c.v2?a=b") == "https://root.example/r/ark:54321/x1/c.v2?a=b"
    assert gateway.location("/ark:54321/x1?info") == "https://root.example/r/ark:54321/x1?info"
    assert gateway.location("/ark:54321") == "https://root.example/r/ark:54321"
    assert gateway.ask("/ark:54321/x1").header("cache-control") == "max-age=300"


@pytest.mark.parametrize(
    ("target", "root"),
    [
        ("https://root.example/${pid}", "https://root.example"),
        ("http://root.example/x", "https://root.example"),
        ("https://gw.example/${pid}", "https://root.example"),
        ("https://h.example/${pid}", "https://gw.example"),
        ("https://h.example/${pid}", "http://gw.example/x"),
    ],
)
def test_the_root_resolver_never_causes_a_loop(target: str, root: str) -> None:
    """DNS says none, and the table is too old to overrule it: the ARK is not sent to where it may come back from."""
    gateway = Gateway(rule(target), {}, policy="dns-only", root=root, public_url="https://gw.example")
    assert gateway.ask(ARK).status == 404
    if "/x" not in root:  # which is not this gateway, but another service of its host
        unnamed = Gateway(rule(target), {}, policy="dns-only", root=root)
        assert unnamed.ask(ARK, host="GW.example:80").status == 404


# ---- descriptions instead of redirects


def test_descriptions_may_have_their_own_target() -> None:
    gateway = Gateway(TABLE, metadata="https://meta.example/?id=${pid}&as=${inflection}")
    assert gateway.location(f"{ARK}?info") == "https://meta.example/?id=ark:12345/x1&as=?info"
    assert gateway.location(f"{ARK}??") == "https://meta.example/?id=ark:12345/x1&as=??"
    assert gateway.location(f"{ARK}?a=b") == "https://natab.example/ark:/12345/x1?a=b"
    own = Gateway(TABLE, metadata="https://gw.example/${pid}${inflection}", public_url="https://gw.example")
    assert own.location(f"{ARK}?info") == "https://natab.example/ark:/12345/x1?info"


@pytest.mark.parametrize("tail", ["?info", "?", "??"])
def test_the_gateway_answers_inflections_that_an_authority_does_not_support(tail: str) -> None:
    silent = Gateway(TABLE, inflections="describe")
    assert silent.ask(f"{ARK}{tail}").header("thump-status") == "0.6 200 OK"
    assert silent.ask(ARK).status == 302
    dead = Gateway(TABLE, liveness=liveness("https://natab.example"))
    assert dead.ask(f"{ARK}{tail}").header("thump-status") == "0.6 200 OK"
    assert dead.ask(ARK).status == 302


# ---- single ARKs


def single(target: str = "https://one.example/1", status: int = 302, **settings: Any) -> Gateway:
    return Gateway(TABLE, objects=objects(OwnObject(str(Ark.parse(ARK[1:])), target, status)), **settings)


@pytest.mark.parametrize("status", [302, 303, 307])
def test_single_redirects_precede_all_rules(status: int) -> None:
    """Draft 3.4."""
    found = single(status=status).ask("/ark:/12345/x-1/")
    assert (found.status, found.header("location")) == (status, "https://one.example/1")
    assert (found.header("maptr-source"), found.header("cache-control")) == ("redirects", "max-age=300")
    assert single().location("/ark:12345/x1/c2") == "https://one.example/1/c2"
    assert single().location("/ark:12345/x2") == "https://natab.example/ark:/12345/x2"


def test_the_operator_says_how_long_each_kind_of_answer_is_kept() -> None:
    gone = OwnObject("ark:12345/x7", "", 410)
    ages: dict[str, Any] = {"max_age": 60, "max_age_missing": 5, "max_age_gone": 7}
    found = Gateway(TABLE, objects=objects(OwnObject("ark:12345/x1", "https://one.example/1"), gone), **ages)
    for target, status, seconds in (("x1", 302, 60), ("x2", 302, 60), ("x7", 410, 7), ("", 200, 60)):
        response = found.ask(f"/ark:12345/{target}")
        assert (response.status, response.header("cache-control")) == (status, f"max-age={seconds}")
        asked = found.ask(f"/api/v1/discover?ark=ark:12345/{target}")
        assert asked.header("cache-control") == f"max-age={seconds}"
    assert found.ask("/ark:54321/x1").header("cache-control") == "max-age=5"
    assert found.ask("/api/v1/discover?ark=ark:54321/x1").header("cache-control") == "max-age=5"
    to_root = Gateway(TABLE, root="https://root.example", **ages).ask("/ark:54321/x1")
    assert (to_root.status, to_root.header("cache-control")) == (302, "max-age=60")
    from_dns = Gateway(answers=ONE_HOST, policy="dns-only", **ages).ask(ARK)
    assert from_dns.header("cache-control") == "max-age=300", "the TTL of DNS is that of its owner"


def test_a_cache_need_not_tell_requests_for_an_own_object_apart() -> None:
    """Its redirect is the same whatever the client accepts, so that it has no Vary; its list has an address of its
    own."""
    for accept in ("*/*", "text/html", "application/linkset+json", "application/linkset"):
        found = single().ask(ARK, accept=accept)
        assert (found.status, found.header("location"), found.header("vary")) == (302, "https://one.example/1", "")
        listed = single().ask(f"{ARK}?maptr=list", accept=accept)
        assert (listed.status, listed.header("vary").partition(",")[0]) == (200, "Accept")
        assert b"https://one.example/1" in listed.body
        other = single().ask("/ark:12345/x2", accept=accept)
        assert other.header("vary").partition(",")[0] == "Accept"
    gone = single("", 410).ask(ARK)
    assert (gone.status, gone.header("vary")) == (410, "Accept"), "a page or a text"


def test_single_redirects_carry_inflection_and_query_string_along() -> None:
    assert single().location(f"{ARK}?info") == "https://one.example/1?info"
    assert single("https://one.example/1#top").location(f"{ARK}?a=b") == "https://one.example/1?a=b#top"
    merged = single("https://one.example/?id=5#top")
    assert merged.location(f"{ARK}?x=1&y=2") == "https://one.example/?id=5&x=1&y=2#top"
    assert merged.location(ARK) == "https://one.example/?id=5#top"
    listed = single().ask(f"{ARK}?maptr=list", accept="text/plain")
    assert listed.body == b"https://one.example/1\n"


@pytest.mark.parametrize("inflection", ["?info", "?", "??"])
def test_an_inflection_of_a_single_redirect_is_that_of_any_ark(inflection: str) -> None:
    """It is never added to a query string, where it would be part of a value."""
    queried = single("https://one.example/?id=5", metadata="https://m.example/${pid}${inflection}")
    assert queried.location(f"{ARK}{inflection}") == f"https://m.example{ARK}{inflection}"
    assert single("https://one.example/?id=5").ask(f"{ARK}{inflection}").status == 200
    assert single(inflections="describe").ask(f"{ARK}{inflection}").status == 200


def test_a_single_redirect_is_the_answer_of_every_door() -> None:
    """Redirect, list, search page, and API give one answer."""
    gateway = single("https://one.example/?id=5")
    target = "https://one.example/?id=5&x=1"
    assert gateway.location(f"{ARK}?x=1") == target
    assert gateway.ask(f"{ARK}?x=1&maptr=list", accept="text/plain").body.decode() == f"{target}\n"
    assert target.replace("&", "&amp;") in gateway.ask("/?q=ark:12345/x1%3Fx=1", accept="text/html").body.decode()
    for asked in ("ark:12345/x1?x=1", "https://n2t.net/ark:/12345/x-1?x=1"):
        found = gateway.ask(f"/api/v1/discover?ark={quote(asked, safe='')}")
        document = json.loads(found.body)
        assert (document["source"], document["complete"], document["error"]) == ("redirects", True, None)
        assert [one["url"] for one in document["candidates"]] == [target]
        assert found.header("maptr-source") == "redirects"
    lines = gateway.lines("/api/v1/discover?ark=ark:12345/x1&ark=ark:12345/x2")
    assert [line["source"] for line in lines] == ["redirects", "natab"]
    assert json.loads(gateway.ask("/api/v1/naans/12345").body)["redirects"] == 1
    assert "1 ARK of this NAAN has a redirect of its own" in gateway.ask("/naan/12345").body.decode()


def test_a_shoulder_with_a_redirect_of_its_own_is_redirected() -> None:
    shoulder = Ark.parse("ark:12345/x1")
    rules = objects(OwnObject(str(shoulder), "https://one.example/x1"))
    gateway = Gateway(Table([Entry("12345", "x1", (Nma("https://h.example/${content}"),))]), objects=rules)
    assert gateway.location(ARK) == "https://one.example/x1"


# ---- what the Host header decides


def test_an_answer_that_the_host_header_decides_is_not_kept() -> None:
    """A client writes the header, and a shared cache in front may keep the answer for others (RFC 9110 7.2)."""
    for gateway in (Gateway(TABLE), single("https://natab.example/ark:12345/y")):
        assert gateway.ask(ARK, host="natab.example").header("cache-control") == "no-store"
        assert gateway.ask(ARK, host="natab.example").header("expires") == ""
        assert gateway.ask(ARK, host="gw.example").header("cache-control") == "max-age=300"
    rooted = Gateway(TABLE, root="https://root.example")
    assert rooted.ask("/ark:54321/x1", host="root.example").header("cache-control") == "no-store"
    described = Gateway(TABLE, metadata="https://m.example/${pid}${inflection}")
    assert described.ask(f"{ARK}?info", host="m.example").header("cache-control") == "no-store"
    named = Gateway(TABLE, public_url="https://gw.example")
    assert named.ask(ARK, host="natab.example").header("cache-control") == "max-age=300"


def test_a_single_redirect_to_the_gateway_is_described() -> None:
    assert single("https://gw.example/x", public_url="https://gw.example").ask(ARK).status == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("ark:12345/new", 302),
        ("ark:/12345/n-ew/c1", 302),
        ("ark:12345/next", 302),
        ("ark:12345/gone", 302),
        ("ark:12345/round", 200),
        ("ark:12345/x1", 200),
        ("ark:12345/none", 200),
    ],
)
def test_a_single_redirect_to_another_own_object_is_followed_unless_it_leads_back(target: str, status: int) -> None:
    rows = {"x1": target, "next": "ark:12345/new", "round": "ark:12345/x1"}
    own = [OwnObject(f"ark:12345/{name}", f"https://gw.example/{where}") for name, where in rows.items()]
    new = OwnObject("ark:12345/new", "https://h.example/", who="A. Author")
    for public_url in ("https://gw.example", ""):
        every = objects(*own, new, OwnObject("ark:12345/gone", status=410))
        gateway = Gateway(rule("https://t.example/${pid}"), objects=every, public_url=public_url)
        for tail in ("", "?info"):
            found = gateway.ask(f"{ARK}{tail}", host="gw.example")
            location = f"https://gw.example/{target}{tail}" if status == 302 else ""
            assert (found.status, found.header("location")) == (status, location)
