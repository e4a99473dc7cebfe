"""The look-up API without sockets: its documents equal the command line's, and its description is correct."""

from __future__ import annotations

import asyncio
import gzip
import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import pytest

from maptr import registry
from maptr.ark import Ark
from maptr.cache import Policy
from maptr.client import Client
from maptr.config.model import LANGUAGES, GatewayConfig
from maptr.discovery import Discovery
from maptr.gateway.api import BASE, DISCOVER, MAX_BODY, OPERATIONS
from maptr.gateway.api import MAX_ARKS as MOST
from maptr.gateway.message import Response
from maptr.gateway.objects import OwnObject
from maptr.gateway.server import AT_ONCE
from maptr.gateway.site import DriftReport
from maptr.reconcile.probes import Liveness
from maptr.reconcile.verdict import Drift, Verdict
from maptr.registry import json_records
from maptr.registry.table import Entry, Nma, Table, Who
from maptr.resolver.call import Lifetime
from tests.support import command_line
from tests.support.caching import ONE_HOST, SILENT, FakeDns, Rig, dns_answer, host
from tests.support.entries import written
from tests.support.gateway import FETCHED, Gateway, objects
from tests.support.http_gateway import LOOPBACK, Reply, running_service
from tests.support.http_gateway import gateway as running_gateway
from tests.support.http_gateway import get as get_over_http
from tests.support.scripted import serving, zone
from tests.support.waiting import until

TABLE = Table(
    [
        Entry("12345", "", (Nma("https://main.example/ark:/${content}"),), Who("Main", acronym="M")),
        Entry("12345", "x6", (Nma("https://x6.example:8443/${suffix}"),), Who("Sixth")),
        Entry("67890", "", (Nma("https://other.example/${content}"),), Who("Other")),
        Entry("99999"),
    ]
)
DRIFTED = (
    Drift("12345", Verdict.SAME, "ark:12345/zzz"),
    Drift("12345/x6", Verdict.MISSING, "ark:12345/x6zzz", ("https://x6.example:8443/zzz",), (), "DNS says none"),
    Drift("123", Verdict.EXTRA, "ark:123/zzz"),
)
DEAD = Liveness("https://x6.example:8443", 1_699_999_900.0, None, 3, 1_699_000_000.0, "no answer")
WELL = Liveness("https://main.example", 1_699_999_900.0, 1_699_999_900.0)

MAX_ARKS, MAX_PAGE = 100, 250  # of one request, as described


def full(**settings: Any) -> Gateway:
    return Gateway(
        TABLE,
        drift=DriftReport(DRIFTED, 1_699_999_950.0),
        liveness={known.place: known for known in (DEAD, WELL)},
        **settings,
    )


def get(gateway: Gateway, path: str, method: str = "GET", **parameters: Any) -> tuple[Response, Any]:
    response = gateway.ask(BASE + path + (f"?{urlencode(parameters, doseq=True)}" if parameters else ""), method)
    return response, json.loads(response.body) if response.body else None


# ---- discoveries


def test_a_lookup_of_one_ark_returns_its_discovery() -> None:
    response, document = get(Gateway(TABLE), "discover", ark="ark:12345/x6np?info")
    assert (response.status, document["schema"], document["ark"]) == (200, "maptr/1", "ark:12345/x6np")
    assert document["candidates"][0]["url"] == "https://x6.example:8443/np?info"
    assert (document["source"], document["age"], document["error"]) == ("natab", 1000.0, None)
    assert response.header("maptr-source").startswith("natab;age=1000")
    assert response.header("cache-control").startswith("max-age=")


def test_a_lookup_returns_the_json_of_the_command_line() -> None:
    """Field by field, but for what differs from one query to the next."""
    records, arks = {"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']}, ("ark:12345/x1", "ark:67890/x1", "ark:12345")
    with serving(zone(records)) as port:
        printed = command_line.run("discover", *arks, f"@127.0.0.1#{port}", "--json").stdout
    gateway = Gateway(answers={"12345.ark.arpa.": dns_answer(host("h.example."))}, policy="dns-only")
    documents = gateway.lines(f"{BASE}discover?{'&'.join(f'ark={ark}' for ark in arks)}")
    for line, document in zip(printed.splitlines(), documents, strict=True):
        expected = json.loads(line)
        assert [*document] == [*expected]
        same = ("schema", "ark", "complete", "security", "stale")
        assert {name: document[name] for name in same} == {name: expected[name] for name in same}
        assert [candidate["url"] for candidate in document["candidates"]] == [
            candidate["url"] for candidate in expected["candidates"]
        ]
        assert (document["error"] is None) == (expected["error"] is None)


@pytest.mark.parametrize(
    ("gateway", "ark", "status", "reason"),
    [
        (Gateway(TABLE), "nonsense", 400, "no ark: label"),
        (Gateway(TABLE), "", 400, "no ark: label"),
        (Gateway(TABLE), "ark:12345/" + "x" * 9000, 400, "longer than"),
        (Gateway(TABLE), "ark:00000/x", 404, "no mapping authority for ark:00000/x"),
        (Gateway(answers={"12345.ark.arpa.": SILENT}, policy="dns-only"), "ark:12345/x", 503, "no answer in time"),
    ],
)
def test_a_failed_lookup_returns_problem_details(gateway: Gateway, ark: str, status: int, reason: str) -> None:
    response, document = get(gateway, "discover", ark=ark)
    assert response.status == status
    assert response.header("content-type") == "application/problem+json"
    assert document["status"] == status
    assert reason in document["detail"]
    assert ("discovery" in document) == (status != 400)
    assert bool(response.header("retry-after")) == (status == 503)
    assert (response.header("cache-control") == "no-store") == (status == 503)


def test_several_arks_are_lines_in_the_order_of_the_request() -> None:
    gateway = Gateway(TABLE, ONE_HOST)
    arks = ["ark:00000/x", "nonsense \udcff<b>", "ark:12345/x6np", "ark:00000/x"]
    target = f"{BASE}discover?" + "&".join(f"ark={quote(ark, errors='surrogateescape')}" for ark in arks)
    none, bad, found, again = gateway.lines(target)
    assert [document["ark"] for document in (none, found, again)] == ["ark:00000/x", "ark:12345/x6np", "ark:00000/x"]
    assert none["candidates"] == []
    assert none["error"].startswith("no mapping authority")
    assert found["candidates"][0]["url"] == "https://x6.example:8443/np"
    assert {*bad} == {"schema", "ark", "candidates", "age", "error", "suggestion"}  # † of docs/reference.md
    assert json.dumps(bad, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "the parameter ark is missing"),
        ("?", "the parameter ark is missing"),
        ("?arc=ark:12345/x", "unknown parameter arc: is it ark?"),
        ("?ark=ark:12345/x&naan=1", "unknown parameter naan"),
        ("?" + "&".join(["ark=a"] * (MAX_ARKS + 1)), f"is given {MAX_ARKS + 1} times, at most {MAX_ARKS} are allowed"),
    ],
)
def test_invalid_parameters_are_refused(query: str, reason: str) -> None:
    response = Gateway(TABLE).ask(f"{BASE}discover{query}")
    assert response.status == 400
    assert reason in json.loads(response.body)["detail"]


def test_a_request_may_have_the_maximum_number_of_arks() -> None:
    assert len(Gateway(TABLE).lines(f"{BASE}discover?" + "&".join(["ark=ark:12345/x"] * MAX_ARKS))) == MAX_ARKS


# ---- the table


def test_the_pages_have_every_record_once() -> None:
    for limit in (1, 2, 3, 4, 5, MAX_PAGE):
        found, target, gateway = [], f"{BASE}naans?limit={limit}", full()
        while target:
            response = gateway.ask(target)
            page = json.loads(response.body)
            assert (page["total"], page["fetched"]) == (4, FETCHED)
            assert len(page["records"]) <= limit
            found += page["records"]
            assert (f'<{page["next"]}>; rel="next"' == response.header("link")) == bool(page["next"])
            target = page["next"]
        assert found == [json_records.write_record(entry) for entry in TABLE.values()]


@pytest.mark.parametrize(
    ("parameters", "status", "reason"),
    [
        ({"limit": 0}, 400, "limit is not a number from 1 to 250"),
        ({"limit": MAX_PAGE + 1}, 400, "limit"),
        ({"limit": "\u0661"}, 400, "limit"),
        ({"limit": "1e1"}, 400, "limit"),
        ({"limit": ""}, 400, "limit"),
        ({"limit": [1, 2]}, 400, "given twice"),
        ({"after": "no"}, 404, "start again"),
    ],
)
def test_invalid_pages_are_refused(parameters: Mapping[str, Any], status: int, reason: str) -> None:
    response, document = get(full(), "naans", **parameters)
    assert response.status == status
    assert reason in document["detail"]


def test_a_naan_has_its_record_discovery_and_drift() -> None:
    _, document = get(full(), "naans/12345")
    assert document["naan"] == "12345"
    assert document["entry"] == json_records.write_record(TABLE["12345"])
    assert document["shoulders"] == [json_records.write_record(TABLE["12345/x6"])]
    assert document["discovery"]["candidates"][0]["host"] == "main.example"
    assert document["drift"] == {"at": 1_699_999_950.0, "records": [one.to_dict() for one in DRIFTED[:2]]}
    assert document["liveness"] == [{**WELL.to_dict(), "suspect": False}, {**DEAD.to_dict(), "suspect": True}]


def test_a_record_is_kept_only_with_a_complete_discovery() -> None:
    for answer, kept in ((SILENT, "no-store"), (dns_answer(), "max-age=60")):
        response, document = get(Gateway(TABLE, {"12345.ark.arpa.": answer}, policy="dns-only"), "naans/12345")
        assert (response.status, response.header("cache-control")) == (200, kept)
        assert document["entry"] is not None


def test_a_naan_that_only_dns_has() -> None:
    _, document = get(Gateway(answers=ONE_HOST, policy="dns-only"), "naans/12345")
    assert (document["entry"], document["shoulders"], document["drift"]) == (None, [], None)
    assert document["discovery"]["candidates"][0]["url"] == "https://h.example/ark:12345"


@pytest.mark.parametrize(
    ("gateway", "naan", "status"),
    [
        (full(), "99999", 200),  # a record without a mapping authority
        (full(), "BCDFG", 404),
        (full(), "00000", 404),
        (full(), "abc", 400),
        (full(), "12345%0A", 400),
        (full(), "12345%2Fx6", 400),
        (full(), "1" * 64, 400),
        (full(), "%ff", 400),
        (Gateway(answers={"00000.ark.arpa.": SILENT}, policy="dns-only"), "00000", 503),
    ],
)
def test_status_for_each_kind_of_naan(gateway: Gateway, naan: str, status: int) -> None:
    assert get(gateway, f"naans/{naan}")[0].status == status


def test_the_drift_report_has_counts_and_deviating_records() -> None:
    for compares, expected in ((True, (503, "30")), (False, (404, ""))):  # to wait helps only where one will be made
        response, _ = get(Gateway(TABLE, compares=compares), "drift")
        assert (response.status, response.header("retry-after")) == expected
    _, document = get(full(), "drift")
    assert (document["at"], document["counts"]) == (1_699_999_950.0, {"extra": 1, "missing": 1, "same": 1})
    assert document["records"] == [one.to_dict() for one in DRIFTED[1:]]
    assert document["silent"] == [{**DEAD.to_dict(), "suspect": True}]


def test_the_drift_is_that_of_the_command_line(tmp_path: Any) -> None:
    with serving(zone({})) as port:
        printed = command_line.run(
            "table", "drift", "--table", written(tmp_path / "t.json", TABLE), f"@127.0.0.1#{port}", "--json"
        )
    expected = json.loads(printed.stdout)
    _, document = get(full(), "drift")
    assert {*document} - {"at"} == {*expected} - {"table"}
    assert {*document["records"][0]} == {*expected["records"][0]}


# ---- every operation

PATHS = [path.format(naan="12345") for path in OPERATIONS]


@pytest.mark.parametrize("path", PATHS)
def test_other_methods_are_refused(path: str) -> None:
    gateway, parameters = full(), {"ark": "ark:12345/x"} if path == "discover" else {}
    whole, _ = get(gateway, path, **parameters)
    head, _ = get(gateway, path, "HEAD", **parameters)
    assert head == whole
    allowed = "GET, HEAD, OPTIONS" + (", POST" if path == "discover" else "")
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "QUERY"):
        if method in allowed:
            continue
        response, problem = get(gateway, path, method, **parameters)
        assert (response.status, response.header("allow")) == (405, allowed)
        assert problem["status"] == 405
    options, _ = get(gateway, path, "OPTIONS")
    assert (options.status, options.header("allow")) == (204, allowed)
    for response in (whole, options):
        assert response.header("access-control-allow-origin") == ("" if path in ("stats", "status") else "*")


@pytest.mark.parametrize("path", [*PATHS, "", "nothing", "discover/", "naans/", "naans/12345/x6", "../api"])
def test_unknown_parameters_and_paths_are_problems(path: str) -> None:
    response, document = get(full(), path, colour="red")
    assert response.status == (400 if path in PATHS else 404)
    assert response.header("content-type") == "application/problem+json"
    assert document["title"]


# ---- the description


def description() -> Any:
    return get(full(), "openapi.json")[1]


def resolved(document: Any, described: Any) -> Any:
    """A part of the document, or the component that it refers to."""
    if "$ref" not in described:
        return described
    _, _, kind, name = described["$ref"].split("/")
    return document["components"][kind][name]


def test_the_file_describes_each_operation_and_nothing_else() -> None:
    document = description()
    assert [path.removeprefix(BASE) for path in document["paths"]] == [*OPERATIONS]
    used = set(re.findall(r'"#/components/(\w+/[\w-]+)"', json.dumps(document)))
    assert used == {f"{kind}/{name}" for kind, parts in document["components"].items() for name in parts}


def own_objects() -> Gateway:
    """One that is found, one that is gone, and a NAAN that leads to the gateway."""
    own = objects(OwnObject("ark:12345/own", "https://o.example/1"), OwnObject("ark:12345/gone", "", 410, "why"))
    here = Table([Entry("12345", "", (Nma("https://gw.example/ark:${content}"),))])
    return Gateway(here, objects=own, public_url="https://gw.example")


CASES: list[tuple[Gateway, str, str]] = [
    (full(), "discover", "?ark=ark:12345/x6np"),
    (full(), "discover", "?ark=ark:00000/x"),
    (full(), "discover", "?ark=x"),
    (Gateway(answers={"12345.ark.arpa.": SILENT}, policy="dns-only"), "discover", "?ark=ark:12345/x"),
    (Gateway(answers=ONE_HOST, policy="dns-only"), "discover", "?ark=ark:12345/x"),
    *((own_objects(), "discover", f"?ark=ark:12345/{name}") for name in ("own", "own/c2.pdf", "gone", "OWN")),
    (full(), "naans", "?limit=2"),
    (full(), "naans", "?after=99999"),
    (full(), "naans", "?after=x"),
    (full(), "naans", "?q=library"),
    (full(), "search", "?q=main"),
    (full(), "search", ""),
    (full(), "naans/{naan}", "12345"),
    (full(), "naans/{naan}", "00000"),
    (full(), "naans/{naan}", "a"),
    (Gateway(answers=ONE_HOST, policy="dns-only"), "naans/{naan}", "12345"),
    (full(), "drift", ""),
    (Gateway(), "drift", ""),
    (Gateway(compares=True), "drift", ""),
    (Gateway(), "drift", "?a=b"),
    (Gateway(), "openapi.json", ""),
]


@pytest.mark.parametrize(("gateway", "path", "rest"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_responses_are_as_described(gateway: Gateway, path: str, rest: str) -> None:
    """Status, media type, body and headers, of which none is undescribed."""
    document = description()
    target = BASE + (path.replace("{naan}", rest) if "{" in path else path + rest)
    response = gateway.ask(target)
    described = resolved(document, document["paths"][BASE + path]["get"]["responses"][str(int(response.status))])
    schema = described["content"][response.header("content-type")]["schema"]
    jsonschema_rs.validator_for({**schema, "components": document["components"]}).validate(json.loads(response.body))
    sent = {name for name, _ in response.headers} - {"Content-Type"}
    headers = {name: resolved(document, header) for name, header in described["headers"].items()}
    always = {name for name, header in headers.items() if header.get("required")}
    added = {"X-Content-Type-Options", "X-Request-Id"}  # by the server
    assert always - added <= sent <= {*headers}


def test_many_arks_are_posted_at_once() -> None:
    """Each has its line, in the order of the request, and each counts as a request."""
    arks = ["ark:12345/x", "nothing", "ark:00000/x", "ark:12345/x"]
    with running_gateway(Rig(natab=full().site.table, policy="natab-only"), rate=100) as server:

        def post(body: bytes, target: str = DISCOVER) -> Reply:
            return get_over_http(server.port, target, "Content-Type: application/json", method="POST", body=body)

        found = post(json.dumps({"ark": arks}).encode())
        assert (found.status, found.headers["content-type"]) == (200, "application/jsonl")
        lines = [json.loads(line) for line in found.body.splitlines()]
        assert [line["ark"] for line in lines] == arks
        assert [bool(line["candidates"]) for line in lines] == [True, False, False, True]
        asked = get_over_http(server.port, f"{DISCOVER}?" + "&".join(f"ark={ark}" for ark in arks))
        assert [json.loads(line)["candidates"] for line in asked.body.splitlines()] == [
            line["candidates"] for line in lines
        ]
        for body in BAD_BODIES:
            refused = post(body)
            assert (refused.status, refused.headers["content-type"]) == (400, "application/problem+json"), body[:50]
        assert post(b'{"ark": ["ark:12345/x"]}', f"{DISCOVER}?ark=ark:12345/x").status == 400
        assert post(b" " * (MAX_BODY + 1)).status == 413
        most = post(json.dumps({"ark": ["ark:12345/x"] * MOST}).encode())
        assert (most.status, len(most.body.splitlines())) == (200, MOST)
        assert post(b'{"ark": ["ark:12345/x"]}').status == 429


BAD_BODIES = [
    *(b"", b"{", b"[]", b"null", b'"ark"', b"{}", b'{"ark": []}', b'{"ark": [1]}', b'{"ark": "ark:12345/x"}', b"\xff"),
    *(b'{"ark": ["ark:12345/x"], "b": 1}', b'{"ark": {"a": "b"}}', b"[" * 50_000, b'{"ark": ' * 9_000),
    json.dumps({"ark": ["x"] * (MOST + 1)}).encode(),
]


def test_scripts_of_other_sites_may_send_any_header() -> None:
    """As viewers of IIIF and clients of linked data do, which also send credentials (a wildcard does not cover
    these)."""
    for target in ("/ark:12345/x", "/api/v1/discover", "/"):
        assert full().ask(target, "OPTIONS").header("access-control-allow-headers") == "*, Authorization"


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_api_has_a_page_for_people(code: str) -> None:
    page = full().ask("/api", accept="text/html", accept_language=code)
    text = page.body.decode()
    assert (page.status, page.header("content-language")) == (200, code)
    for path, operations in description()["paths"].items():
        for method in {"get", "post"} & operations.keys():
            assert f"{method.upper()} {path}" in text
            assert operations[method]["summary"] in html.unescape(text)
    described = full().ask("/api", accept="application/json")
    assert json.loads(described.body) == description()
    assert full().location("/api/") == "/api"


def test_a_line_is_as_described() -> None:
    document = description()
    schema = {"$ref": "#/components/schemas/Discovery", "components": document["components"]}
    found, none = full().lines(f"{BASE}discover?ark=ark:12345/x&ark=ark:00000/x")
    for line in (found, none):
        jsonschema_rs.validator_for(schema).validate(line)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["naan_records.json", "naan_records_2024-06-21.json.gz"])
def test_every_record_of_the_registry_is_as_described(name: str, real_data: Path) -> None:
    """Page by page, and the document of every NAAN."""
    content = (real_data / name).read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    table = registry.read(content, on_bad=lambda error: None)
    gateway, schemas = Gateway(table), description()["components"]
    pages = jsonschema_rs.validator_for({"$ref": "#/components/schemas/Records", "components": schemas})
    naans = jsonschema_rs.validator_for({"$ref": "#/components/schemas/Naan", "components": schemas})
    target, found = f"{BASE}naans?limit={MAX_PAGE}", 0
    while target:
        page = json.loads(gateway.ask(target).body)
        pages.validate(page)
        found += len(page["records"])
        target = page["next"]
    assert found == len(table)
    for naan in table.naans():
        naans.validate(get(gateway, f"naans/{naan}")[1])


# ---- on real sockets


EXAMPLE = f"{DISCOVER}?ark=ark:12345/x6np1wh8k"
SAMPLE = Path(__file__).resolve().parents[2] / "zones" / "sample.json"
RECORDS = {"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']}
SETTINGS = """\
[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", "503"]
positive_data_acceptance.enabled = false  # most texts are not ARKs
"""


@contextmanager
def gateway(policy: Policy, own: Path | None = None) -> Iterator[int]:
    """The port of a gateway with the sample; with DNS, after the first comparison."""
    here = "https://ark.example.org" if own is not None and not own.exists() else ""  # where 12345 of the sample leads
    settings = GatewayConfig(listen=(LOOPBACK,), redirects=own, rate=0, public_url=here)
    table = registry.read(SAMPLE.read_bytes())
    with serving(zone(RECORDS)) as port:
        client = Client([f"127.0.0.1#{port}"], table=table, policy=policy)
        with running_service(client, gateway=settings) as service:
            http = service.bound[0].port
            if policy != "natab-only":
                until(lambda: get_over_http(http, "/api/v1/drift").status == 200, "no comparison")
            yield http


@pytest.mark.parametrize(
    ("policy", "own"),
    [
        ("natab-only", ""),
        ("dns-only", ""),
        ("natab-only", "https://o.example/1,302"),
        ("natab-only", ",410"),
        ("natab-only", "missing"),
    ],
    ids=["table", "DNS", "own object", "gone", "unreadable"],
)
def test_every_operation_conforms_to_its_description(policy: Policy, own: str, tmp_path: Path) -> None:
    """``own`` is the row of the ARK of the examples."""
    rows = tmp_path / "own.csv"
    if own and own != "missing":
        rows.write_text(f"ark,url,status,what\nark:12345/x6np1wh8k,{own},A report\n")  # which the example finds
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    # The others differ from the first in a few responses, those without an object only in those of the examples.
    effort = ("15", "examples,coverage,fuzzing") if policy == "natab-only" and not own else ("5", "examples,fuzzing")
    if own in (",410", "missing"):
        effort = ("1", "examples")
    options = f"--max-examples {effort[0]} --phases {effort[1]} --seed 1 --warnings off --no-color"
    with gateway(policy, rows if own else None) as port:
        if own:
            expected = {"missing": 503, ",410": 410}.get(own, 200)
            until(lambda: get_over_http(port, EXAMPLE).status == expected, "the own object")
        location = f"http://127.0.0.1:{port}/api/v1/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={settings}", "run", location]
        done = subprocess.run(
            [*command, *options.split()], cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 selected" in done.stdout


def test_the_headers_of_a_running_gateway_are_described() -> None:
    """With those that the server adds; the other headers are HTTP's own."""
    with gateway("dns-only") as port:
        described = json.loads(get_over_http(port, "/api/v1/openapi.json").body)
        names = {name.lower().removeprefix("always-") for name in described["components"]["headers"]}
        for path in ("discover?ark=ark:12345/x", "discover?ark=a&ark=b", "naans?limit=1", "drift", "nothing"):
            reply = get_over_http(port, f"/api/v1/{path}")
            own = {"content-type", "content-length", "transfer-encoding", "date", "server"}
            assert {*reply.headers} - own <= names


def test_lines_are_in_order_though_the_first_is_the_slowest() -> None:
    """More than are looked up at a time; the first waits until all others of the first group were asked."""
    asked: list[str] = []

    class Slow(FakeDns):
        async def discover_async(self, ark: Ark, lifetime: Lifetime, *given: Any, **options: Any) -> Discovery:
            asked.append(ark.naan)
            while ark.naan == "12345" and len(asked) < AT_ONCE:
                await asyncio.sleep(0.001)
            return await super().discover_async(ark, lifetime)

    rig = Rig(policy="dns-only", dns=Slow({"12345.ark.arpa.": dns_answer(host("h.example."))}))
    arks = ["ark:12345/x", *(f"ark:{naan}/x" for naan in range(20000, 20000 + 2 * AT_ONCE)), "bad"]
    with running_gateway(rig) as server:
        reply = get_over_http(server.port, "/api/v1/discover?" + "&".join(f"ark={ark}" for ark in arks))
    documents = [json.loads(line) for line in reply.body.splitlines()]
    assert [document["ark"] for document in documents] == arks
    assert [bool(document["candidates"]) for document in documents] == [True, *[False] * (len(arks) - 1)]


def test_too_many_requests_are_a_problem() -> None:
    """Each ARK of a response in lines counts."""
    with running_gateway(rate=10) as server:
        whole = get_over_http(server.port, f"/api/v1/discover?{'&'.join(f'ark=ark:12345/x{n}' for n in range(100))}")
        reply = get_over_http(server.port, "/api/v1/openapi.json")
    assert (whole.status, len(whole.body.splitlines()), reply.status) == (200, 100, 429)
    assert reply.headers["content-type"] == "application/problem+json"
    assert int(reply.headers["retry-after"]) > 0
    assert reply.headers["access-control-allow-origin"] == "*"
    assert json.loads(reply.body) == {"title": "Too Many Requests", "status": 429, "detail": "too many requests"}
