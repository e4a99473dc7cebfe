"""Descriptions of ARKs: requests to mapping authorities, ERC records, and the command ``maptr info``."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from maptr import Client, Settings, sticky
from maptr.discovery import Discovery, DiscoveryError, NoMappingAuthority
from maptr.errors import ConfigError, NmaError
from maptr.nma.describe import Description, describe, normal_date, read, segments
from maptr.nma.reachable import Reachable
from maptr.web import http
from maptr.web.http import Page
from tests.support.answers import load_vectors
from tests.support.authority import ARK, ERC, TEXT, discovery_at, erc
from tests.support.command_line import run
from tests.support.hostile import hostile, hosts, naptr
from tests.support.http_server import pages, raw_server
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

DRAFTS = load_vectors("drafts")


def described(*urls: str, **options: Any) -> Description:
    """The description by the first of these authorities that answers."""
    return describe(discovery_at(*urls), allow_private=True, **{"seconds": PATIENCE} | options)


def test_a_record_in_segments() -> None:
    with pages(erc) as running:
        description = described(running.url)
    assert running.asked == ["/ark:12345/x1?info"]
    assert description.spoken
    assert (description.status, description.thump, description.links) == (200, "0.6 200 OK", ('<a>; rel="describes"',))
    first, support = description.segments
    assert first.name == "erc"
    assert first.elements[:2] == (("who", "Lederberg, Joshua"), ("what", "Studies of Human Families \u2014 1"))
    assert first.get("note") is None
    assert support.elements == (("who", "Example"), ("who", "Another"))
    assert description.segment("erc-support") == support
    assert description.to_text().startswith("erc:\nwho: Lederberg, Joshua\n")


EZID = """success: ark:/99999/fk4cz3dh0
_owner: apitest
_target: https://ezid.example/id/ark:/99999/fk4cz3dh0
{erc}
dc.title: Another title
_status: public
"""


@pytest.mark.parametrize(
    "erc",
    [
        "erc:\n who: Proust, Marcel\n what: Remembrance of\n   Things Past\n when: 1922",
        "erc:\n\twho: Proust, Marcel\n\twhat: Remembrance of Things Past\n\twhen: 1922",
        "erc: \n    Who: Proust, Marcel\n    WHAT: Remembrance of Things Past\n    When: 1922",
        "erc.who: Proust, Marcel\nerc.what: Remembrance of Things Past\nerc.when: 1922",
        "ERC.Who: Proust, Marcel\nErc.What: Remembrance of Things Past\nerc.WHEN: 1922",
        "ERC:\nWho: Proust, Marcel\nWhat: Remembrance of Things Past\nWhen: 1922",
    ],
)
def test_the_records_of_ezid(erc: str) -> None:
    found = {segment.name: segment for segment in segments(EZID.format(erc=erc))}
    assert found["erc"].elements == (
        ("who", "Proust, Marcel"),
        ("what", "Remembrance of Things Past"),
        ("when", "1922"),
    )
    assert found["dc"].elements == (("title", "Another title"),)
    assert [label for label, _ in found["_"].elements] == ["_owner", "_target", "_status"]


def test_a_section_of_another_schema_is_not_part_of_the_erc() -> None:
    found = segments("erc:\n who: A\ndc:\n creator: B\n title: C\nwhat: D\n")
    assert [(segment.name, segment.elements) for segment in found] == [
        ("erc", (("who", "A"), ("what", "D"))),
        ("dc", (("creator", "B"), ("title", "C"))),
    ]
    assert segments("success: ark:/1/x\n_owner: apitest\ndc.title: no ERC\n") == ()
    assert segments("erc:\nwho: A\nfoo.bar: B\n")[0].elements == (("who", "A"), ("foo.bar", "B")), "no known schema"
    assert segments("erc:\n!contact: B\nwho: A\n")[0].elements == (("who", "A"),), "internal, as in the registry"
    assert segments("erc:\nwhere:\n  https://h.example/a\n  /b\n")[0].elements == (("where", "https://h.example/a/b"),)


def test_the_short_form_and_other_encodings() -> None:
    page = Page(
        "http://a/", 200, (("content-type", "text/plain;charset=latin-1"),), b"erc: M\xfcller | T | 1 | w\n", False
    )
    (segment,) = read(ARK, "", page).segments
    assert segment.elements == (("who", "Müller"), ("what", "T"), ("when", "1"), ("where", "w"))
    unknown = page._replace(headers=(("content-type", "text/plain; charset=nonsense"),), body=b"erc: \xff|b\n")
    assert read(ARK, "", unknown).spoken


@pytest.mark.parametrize(
    "charset", ["idna", "punycode", "undefined", "unicode_escape", "utf-7", "zlib", "a\0b", "../x"]
)
def test_an_unusable_charset_means_utf_8(charset: str) -> None:
    headers = (("content-type", f"text/plain; charset={charset}"),)
    description = read(ARK, "", Page("http://a/", 200, headers, "erc: é+2AA-\\ud800|b".encode(), False))
    assert description.segments[0].elements[0] == ("who", "é+2AA-\\ud800")


def test_a_line_end_in_a_value_does_not_make_a_label() -> None:
    page = Page("http://a/", 200, (), "erc:\nwho: a\x85erc-support:\u2028what: b\x0bx\n".encode(), False)
    description = read(ARK, "", page)
    assert description.to_text() == "erc:\nwho: a\n\terc-support:\n\twhat: b\n\tx"
    (again,) = read(ARK, "", page._replace(body=description.to_text().encode())).segments
    assert again.elements == (("who", "a erc-support: what: b x"),)


@pytest.mark.parametrize(("status", "kind"), [(200, "text/html"), (404, "text/plain")])
def test_a_response_that_is_no_description_has_a_note(status: int, kind: str) -> None:
    with pages(lambda path: (status, {"Content-Type": kind}, ERC)) as running:
        description = described(running.url)
    assert not description.spoken
    assert f"HTTP status {status}, {kind}, no erc: record" in description.note


def test_the_next_inflection_is_asked_after_one_without_a_description() -> None:
    with pages(lambda path: (200, TEXT, ERC) if path.endswith("x1?") else (404, {}, b"")) as running:
        assert described(running.url, inflections=("?info", "?", "??")).spoken
        assert running.asked == ["/ark:12345/x1?info", "/ark:12345/x1?"]


def test_redirects_are_followed() -> None:
    with pages(erc) as target:
        away = f"{target.url}/ark:12345/x1?info"
        with pages(lambda path: (302, {"Location": away}, b"")) as running:
            assert described(running.url).url == away


@pytest.mark.parametrize(
    ("away", "reason"),
    [
        *(("/again", "redirects"), ("http://[", "redirects"), ("file:///etc/passwd", "is refused")),
        *(("http://user@h.example/", "is refused"), ("gopher://h.example/", "is refused")),
        ("http://h.example:0/", "is refused"),
    ],
)
def test_redirects_are_limited(away: str, reason: str) -> None:
    with pages(lambda path: (302, {"Location": away}, b"")) as running, pytest.raises(NmaError, match=reason):
        described(running.url)


def test_a_long_description_is_cut() -> None:
    with pages(lambda path: (200, TEXT, b"erc:\nwho: " + b"x" * 1_000_000)) as running:
        description = described(running.url)
    assert "cut at" in description.note
    assert len(description.to_text()) <= http.MAX_PAGE


def test_the_next_authority_is_asked_if_one_is_down() -> None:
    with pages(erc) as running:
        description = described(f"http://127.0.0.1:{free_port()}", running.url)
    assert description.spoken
    with pytest.raises(NmaError, match="no mapping authority could be asked"):
        described(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(NoMappingAuthority):
        describe(Discovery(ARK))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"inflections": ("?x",)}, r"inflections: '\?x' is not one of \?info, \?, \?\?"),
        ({"inflections": ()}, "inflections: must have at least one"),
        ({"seconds": -1.0}, "seconds: -1.0 is not a number of seconds"),
        ({"seconds": float("nan")}, "seconds: nan is not a number of seconds"),
    ],
)
def test_invalid_options(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        describe(Discovery(ARK), **options)


def test_an_h_record_is_asked_by_https_and_then_by_http() -> None:
    with pages(erc) as running:
        description = describe(discovery_at(running.url).replace(scheme="https"), allow_private=True)
        assert description.url == f"{running.url}/ark:12345/x1?info"
        found = discovery_at(running.url).replace(scheme="https")
        by_rule = found.replace(candidates=(found[0].replace(target=f"https://127.0.0.1:{running.port}/", ark=ARK),))
        with pytest.raises(NmaError):
            describe(by_rule, allow_private=True)  # the rule sets the scheme


def test_a_chooser_is_told_of_an_authority_that_fails() -> None:
    chooser = Reachable(probe=lambda where, seconds: None, allow_private=True)  # always succeeds
    with raw_server(b"garbage", b"") as mute, pages(erc) as running:
        found = discovery_at(f"http://127.0.0.1:{mute}", running.url).replace(scheme="https")
        assert chooser(found).port == mute
        assert describe(found, chooser=chooser, allow_private=True).spoken
        assert [chooser(found).scheme for _ in range(2)] == ["http", "http"]  # https failed just now
        assert describe(found, chooser=chooser, allow_private=True).spoken
        assert chooser(found).port == running.port


def test_silent_authorities_leave_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets half of the time that is left, the last one all of it."""
    now, given = 0.0, []

    def silent(target: str, *, seconds: float, **_: object) -> Page:
        nonlocal now
        now += seconds
        given.append(seconds)
        raise NmaError("no answer in time")

    monkeypatch.setattr("maptr.nma.describe.time", Mock(monotonic=lambda: now))
    monkeypatch.setattr(http, "get", silent)
    with pytest.raises(NmaError, match="no mapping authority could be asked"):
        describe(discovery_at("http://a.example", "http://b.example", "http://c.example"), seconds=8.0)
    assert given == [4.0, 2.0, 2.0]


@pytest.mark.parametrize("seconds", [float("inf"), 1e300])
def test_any_number_of_seconds_is_allowed(seconds: float) -> None:
    with pages(erc) as running:
        assert described(running.url, seconds=seconds).spoken


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
ODD: dict[str, tuple[bytes, bytes]] = {  # the first bytes, and what follows without end
    "a body without end": (HEAD + b"\r\nerc:\nwho: x\n", b"what: " + b"x" * 1000 + b"\n"),
    "chunks without end": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nerc:\n\r\n",
        b"3e8\r\nwhat: " + b"x" * 993 + b"\n\r\n",
    ),
    "a length of thousands of digits": (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nerc:\nwho: x\n", b""),
    "what gzip would make long": (
        HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"erc:\nwho: " + b"a" * 9_000_000),
        b"",
    ),
    "control characters": (
        b"HTTP/1.1 200 OK\r\nContent-Type: a\0b\x1b[31m\r\nTHUMP-Status: \x1b]0;x\x07\r\nLink: \xff<\x9b\r\n\r\n"
        b"erc:\nwho: \x1b[31m\xc2\x9b31m\xe2\x80\xae\n",
        b"",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_a_hostile_response_is_bounded_and_printed_safely(case: str) -> None:
    target = "!^ark:/?12345/(.*)$!http://127.0.0.1:%d/\\1!"
    with raw_server(*ODD[case]) as port:
        tracemalloc.start()
        description = described(f"http://127.0.0.1:{port}")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40_000_000
        assert description.spoken is ("gzip" not in case)
        script = hosts({"12345.ark.arpa.": [naptr(flags=b"u", regexp=(target % port).encode())]})
        with hostile(script) as server:
            arguments = ["info", "ark:12345/x1", f"@{server.name}", "--allow-private", "--timeout", "60"]
            shown, document = run(*arguments), run(*arguments, "--json")
    assert shown.exit_code == document.exit_code == (0 if description.spoken else 1)
    assert json.loads(document.stdout)["segments"] == description.to_dict()["segments"]
    for text in (shown.stdout, shown.stderr, document.stdout, document.stderr):
        assert all(character.isprintable() or character in "\n\t" for character in text)


def test_the_command() -> None:
    with pages(erc) as running:
        target = f"!^ark:/?12345/(.*)$!{running.url}/ark:12345/\\1!".encode()
        with hostile(hosts({"12345.ark.arpa.": [naptr(flags=b"u", regexp=target)]})) as server:
            arguments = ["info", "ark:12345/x1", f"@{server.name}", "--allow-private", "--timeout", "60"]
            shown = run(*arguments)
            assert shown.exit_code == 0, shown.output
            assert shown.stdout.startswith("erc:\nwho: Lederberg, Joshua\n")
            assert "THUMP status 0.6 200 OK" in shown.stderr
            document = json.loads(run(*arguments, "--json").stdout)
            assert document["segments"][0]["name"] == "erc"
            mute = run(*arguments[:1], "ark:12345/x1?", *arguments[2:])
            assert mute.exit_code == 1
            assert "no erc: record" in mute.stderr
            assert running.asked[-1] == "/ark:12345/x1?"
            assert run("info", "ark:1/x", f"@{server.name}").exit_code == 1
            assert run(*arguments[:3]).exit_code == 1  # the host is not public
    assert run("info", "nonsense").exit_code == 2


def by_await(client: Client, ark: str, **options: Any) -> Description:
    return asyncio.run(client.describe_async(ark, **options))


@pytest.mark.parametrize("ask", [Client.describe, by_await])
def test_a_client_describes_what_it_discovers(ask: Callable[..., Description]) -> None:
    with pages(erc) as running:
        target = f"!^ark:/?12345/(.*)$!{running.url}/ark:12345/\\1!".encode()
        with hostile(hosts({"12345.ark.arpa.": [naptr(flags=b"u", regexp=target)]})) as server:
            client = Client(server.name, settings=Settings(allow_private=True))
            assert ask(client, "ark:12345/x1", chooser=sticky).spoken
            with pytest.raises(NoMappingAuthority):
                ask(client, "ark:1/x")
            with pytest.raises(DiscoveryError):
                ask(Client(server.name), "ark:12345/x1")


@pytest.mark.parametrize("case", DRAFTS["erc"], ids=lambda case: case["title"])
def test_records_of_the_drafts(case: dict[str, Any]) -> None:
    name, _, value = case.get("status", "").partition(":")
    page = Page("https://a.example/", 200, ((name.lower(), value.strip()),), case["body"].encode(), False)
    description = read(ARK, "", page)
    assert {s.name: [list(pair) for pair in s.elements] for s in description.segments} == case["segments"]
    assert description.thump == case.get("thump", "")
    dates = [[part["name"], date] for part in description.to_dict()["segments"] for _, date in part["dates"]]
    assert dates == case.get("dates", [])
    assert [code for part in description.to_dict()["segments"] for code in part["codes"]] == case.get("codes", [])
    for part in description.segments:
        assert [part.code(label) for label, _ in case.get("codes", ())] == [code for _, code in case.get("codes", ())]


@pytest.mark.parametrize("case", DRAFTS["date"], ids=lambda case: case["title"])
def test_dates_of_the_drafts(case: dict[str, Any]) -> None:
    assert {normal_date(value) for value in case["values"]} == {case.get("normal")}
