"""``maptr table export``: nginx, Apache and Caddy redirect every ARK as the table says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from maptr import registry
from maptr.ark import Ark
from maptr.registry import export
from maptr.registry.table import Entry, Nma, Table
from maptr.registry.target import unusable
from tests.support.entries import hostile_tables
from tests.support.web_servers import WEB_SERVERS, Seen, WebServer

UNCHECKED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)  # the machine may be slow

# What follows the shoulder of a record, with an inflection or a query string.
NAMES = (
    "np1wh8k",
    "np1/c3/s5.v7.xsl?info",
    "%2F%2f%c3%A9%25/a//b/?a=b%20c&d=/e?f",
    "UPPER.case~_@$*+=!'(),;:?",
    "blade.%3F%23??",
    "x" * 255,
    "1%7e?q={x}|^`[]\\$1${maptr_name}%1%{ENV:PATH}{env.HOME}",
    "y/" * 1500 + "?" + "z=%41&" * 200,
)
ENCODED = "/ark%3A{}%2F{}"  # with it, maptr takes one layer of encoding off the name, which no web server does
PATHS = ("/ark:{}/{}", "/ark:/{}/{}", "/ARK:{}/{}", ENCODED, "/r/other.example//ark%3a%2f{}/{}")

# Every variable in every place, every character that a URL may have, and shoulders of special characters.
FORMS = [
    ("12345", "", "/ark:/${content}", 302),
    ("12345", "x6", "/a?x=${suffix}&y=${value}", 303),
    ("12345", "x60", "/${prefix}/${prefix}${suffix}${suffix}", 301),
    ("12345", "x6=~*+@_$1.%2F", "/${pid}", 302),
    ("12346", "x6$", ":8443/%2F$1$maptr_naan&%1%/;#!'()*,[]@=~+?${pid}", 302),
    ("302", "", "/${pid}?", 303),
    ("303", "b1", "/fixed", 302),
    ("b5072", "", "/${value}/$/%/$$/$0", 302),
    ("c5072", "w4", "/${value}/%C3%A9/" + "${suffix}/" * 6, 302),
    ("c5072", "", "/c", 303),
    ("b" * 63, "k" * 62 + "1", "/${suffix}", 302),
    ("b" * 62 + "c", "", "/${value}", 302),
    ("77", "", "/" + "a" * 2000 + "/${value}", 302),
]
TABLE = Table(
    [
        Entry("12345", "q1", (Nma("http://10.0.0.1/${pid}"),)),  # not redirected by the rule of the NAAN either
        Entry("12345", "q12"),
        *(
            Entry(naan, shoulder, (Nma(f"https://h{number}.example.org{rest}", status=status),))
            for number, (naan, shoulder, rest, status) in enumerate(FORMS)
        ),
    ]
)


def targets(table: Table, *, every: bool) -> list[str]:
    """ARKs of each record: two, with each name and each path in turn, or with every name in every path."""
    steps = range(len(NAMES) * len(PATHS)) if every else (0, len(NAMES) // 2)

    def made() -> Iterator[str]:
        for number, entry in enumerate(table.values()):
            naan = entry.naan.upper() if number % 2 else entry.naan
            for at in (number + step for step in steps):
                path, name = PATHS[at % len(PATHS)], entry.shoulder + NAMES[at % len(NAMES)]
                has_layer = path == ENCODED and "%" in re.split("[/?]", name)[0]
                yield (PATHS[0] if has_layer else path).format(naan, name)

    return list(made())


def expected(table: Table, target: str) -> Seen:
    """The redirect that the table says; without one, the first digit of the status.

    The tail is as received: in the table's own URL, some of its characters are ``%`` pairs.
    """
    ark = Ark.parse(target)
    entry = table.lookup(ark)
    if entry is None or not entry.nmas or unusable(entry.nmas[0].target):
        return Seen(4, None)
    path, mark, query = target.partition("?")
    nma = entry.nmas[0]
    return Seen(303 if nma.status == 303 else 302, nma.url(Ark.parse(path), entry.shoulder) + mark + query)


def check(server: type[WebServer], table: Table, *, every: bool = False) -> None:
    text, _ = export.write(table, server.name)
    asked = targets(table, every=every)
    with server(text) as running:
        found = running.ask(asked)
    wrong = [
        (target, seen, wanted)
        for target, seen in zip(asked, found, strict=True)
        if (seen if seen.location else Seen(seen.status // 100, None)) != (wanted := expected(table, target))
    ]
    assert not wrong, wrong[:3]


@pytest.fixture(params=WEB_SERVERS, ids=lambda server: server.name)
def server(request: pytest.FixtureRequest) -> type[WebServer]:
    kind: type[WebServer] = request.param
    return kind


def test_every_form_of_a_target(server: type[WebServer]) -> None:
    check(server, TABLE, every=True)


def test_every_record_of_the_registry(server: type[WebServer], real_data: Path) -> None:
    check(server, registry.read((real_data / "naan_records.json").read_bytes()))


@given(table=hostile_tables())
@settings(max_examples=15, phases=[Phase.generate], suppress_health_check=UNCHECKED)
def test_the_check_of_each_server_accepts_hostile_text(
    server: type[WebServer], table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every server's own check accepts the file."""
    text, _ = export.write(table, server.name)
    checked = server(text).checked(tmp_path_factory.mktemp(server.name))
    assert checked.accepted, checked.output


@given(table=hostile_tables(shoulders="0123bcxz=~*+@_$ABZ"))
@settings(max_examples=4, phases=[Phase.generate], suppress_health_check=UNCHECKED)
def test_hostile_targets_redirect_exactly_to_their_url(server: type[WebServer], table: Table) -> None:
    check(server, table)


OWN = {
    "12345/k1": ("https://own.example.org/1", 302, True),
    "12345/k1/f2": ("https://own.example.org/1-2", 303, True),
    "12345/k3": ("https://own.example.org/3?id=3", 302, True),
    "12345/k4": ("https://own.example.org/4", 307, False),
    "12345/k5": ("https://own.example.org/5#top", 302, True),
    "12345/k7": ("", 410, True),
    "12345/k8": ("https://own.example.org", 302, True),
    "12345/k9": ("https://own.example.org?a=b", 302, True),
    "12345/x6own": ("https://own.example.org/6", 302, True),
    "99991/k1": ("https://own.example.org/n1", 302, True),
}
OWN_ANSWERS = {
    "/ark:12345/k1": Seen(302, "https://own.example.org/1"),
    "/ark:/12345/k-1?info": Seen(302, "https://own.example.org/1?info"),
    "/ark:12345/k1/c3.pdf?a=b": Seen(302, "https://own.example.org/1/c3.pdf?a=b"),
    "/ark:12345/k1.v2": Seen(302, "https://own.example.org/1.v2"),
    "/ark:12345/k1/f2/g": Seen(303, "https://own.example.org/1-2/g"),
    "/ark:12345/k3?info": Seen(302, "https://own.example.org/3?id=3"),
    "/ark:12345/k4": Seen(307, "https://own.example.org/4"),
    "/ark:12345/k5": Seen(302, "https://own.example.org/5#top"),
    "/ark:12345/k7": Seen(410, None),
    "/ark:12345/k7/c2": Seen(410, None),
    "/ark:12345/k8": Seen(302, "https://own.example.org/"),
    "/ark:12345/k8.evil.example": Seen(302, "https://own.example.org/.evil.example"),
    "/ark:12345/k8.x@evil.example": Seen(302, "https://own.example.org/.x@evil.example"),
    "/ark:12345/k8.:80": Seen(302, "https://own.example.org/.:80"),
    "/ark:12345/k9.evil.example": Seen(302, "https://own.example.org/?a=b.evil.example"),
    "/ark:12345/x6own": Seen(302, "https://own.example.org/6"),
    "/ark:99991/k1": Seen(302, "https://own.example.org/n1"),
}


def test_own_objects_precede_the_table(server: type[WebServer]) -> None:
    rules = [export.own_rule(key, url, status, suffix=suffix)[0] for key, (url, status, suffix) in OWN.items()]
    text, _ = export.write(TABLE, server.name, rules)
    of_table = ["/ark:12345/k12", "/ark:12345/k4/c2", "/ark:12345/x6np1"]
    with server(text) as running:
        assert dict(zip(OWN_ANSWERS, running.ask(list(OWN_ANSWERS)), strict=True)) == OWN_ANSWERS
        assert running.ask(of_table) == [expected(TABLE, target) for target in of_table]
        assert running.ask(["/ark:99991/x2"])[0].location is None


def test_requests_without_an_ark_are_not_redirected(server: type[WebServer], sample: Path) -> None:
    text, _ = export.write(registry.read(sample.read_bytes()), server.name)
    others = [
        "/",
        "/index.html",
        "/ark:12345",
        "/ark:12345/",
        "/ark:00000/x6",
        "/ark:12-345/x6",
        "/ark:/",
        "/?ark:12345/x6np1",
        "/x?y=/ark:12345/x6np1",
        "/dark:12345/x6",
        "/ark:12345x/x6",
        '/ark:12345/x6"y',
        "/ark:12345/x6" + "/ark:12345/x6" * 500 + "{",
        "/ark:12345/x6<script>",
    ]
    with server(text) as running:
        assert {(seen.status // 100, seen.location) for seen in running.ask(others)} == {(4, None)}
        # A hyphen hides no shoulder, and HEAD equals GET.
        hyphens = ["/ark:12345/-x-6-0-abc?", "/ark:12345/x-6np1"]
        urls = ["https://x60.example.net/item/-abc?", "https://x6.example.net:8443/p/ark:/12345/x-6np1"]
        for method in ("GET", "HEAD"):
            assert running.ask(hyphens, method) == [Seen(302, url) for url in urls]
