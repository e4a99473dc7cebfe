"""The look-up API: discoveries, records of the table, and drift, as JSON.

``openapi.json`` describes it, and requests are checked against that description. The documents have the same fields as
the command line's (docs/reference.md).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import quote, unquote

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.errors import SCHEMA, ArkSyntaxError, MaptrError, error_fields, json_text, nearest
from maptr.gateway import objects, pages, suggest
from maptr.gateway.message import (
    HTML,
    JSON,
    JSON_LINES,
    LD,
    Answer,
    Headers,
    Lines,
    Lookup,
    Made,
    Request,
    Response,
    Work,
    not_kept,
    preflight,
    problem,
)
from maptr.gateway.objects import OWN, OwnDiscovery, withdrawal
from maptr.gateway.resolve import RETRY_AFTER, check_unread, look_up, missing, own_object, provenance, retry, why
from maptr.gateway.site import Site
from maptr.reconcile.probes import Liveness, servers_of
from maptr.reconcile.verdict import AGREES
from maptr.registry import json_records
from maptr.registry.table import Table, shown

METHODS = ("GET", "HEAD", "OPTIONS")
BASE = "/api/v1/"
OVERVIEW = "/api"
DISCOVER = f"{BASE}discover"
MAX_ARKS = 1_000  # per POST
MAX_BODY = 262_144  # bytes per POST, some 256 for each ARK
_NAAN = "naans/{naan}"

PAGE = 100  # records per page, unless the request says otherwise
FOUND = 20  # objects and records that a search returns, unless the request says otherwise
MAX_AGE = 60  # seconds for which a client may cache a page of the table, or the drift

_INTEGER = re.compile(r"-?[0-9]{1,9}")
_KEPT: Headers = (("Cache-Control", f"max-age={MAX_AGE}"),)
_NOT_KEPT: Headers = (("Cache-Control", "no-store"),)
_RETRY: Headers = (("Retry-After", str(RETRY_AFTER)), *_NOT_KEPT)


def respond(request: Request, site: Site) -> Answer:
    """Return the answer to a request below ``/api/``."""
    if request.path == f"{OVERVIEW}/":
        return Response(HTTPStatus.FOUND, (("Location", OVERVIEW),))
    path = request.path.removeprefix(BASE) if request.path.startswith(BASE) else ""
    values: tuple[str, ...] = ()
    if naan := re.fullmatch("naans/([^/]+)", path):
        path, values = _NAAN, naan.groups()
    if path not in OPERATIONS:
        return problem(HTTPStatus.NOT_FOUND, f"no such resource; {BASE}openapi.json describes those that exist")
    methods = (*METHODS, "POST") if request.path == DISCOVER else METHODS
    if request.method == "OPTIONS":
        return preflight(methods)
    if request.method not in methods:
        allow = (("Allow", ", ".join(methods)),)
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, f"the method {request.method} is not allowed", allow)
    try:
        if request.method == "POST":
            return _lines(request, site, _read_arks(request))
        given = _read_query(request.parameters, _parameters(path))
    except ValueError as error:
        return problem(HTTPStatus.BAD_REQUEST, str(error))
    return OPERATIONS[path](request, site, *map(unquote, values), **given)


# ---- discoveries


def _discover(request: Request, site: Site, ark: list[str]) -> Answer:
    """Return one discovery as a document, or several as lines."""
    if len(ark) == 1:
        try:
            parsed = Ark.parse(ark[0], bare=True).sent(site.hyphens)
        except ArkSyntaxError as error:
            meant = suggest.spelled(site, error.suggestion or ark[0])
            return problem(HTTPStatus.BAD_REQUEST, str(error), (), **_suggested(meant))
        return look_up(parsed, own_object(parsed, site), site, request.now, partial(_discovered, request, site))
    return _lines(request, site, ark)


def _lines(request: Request, site: Site, arks: list[str]) -> Lines:
    headers = (("Content-Type", JSON_LINES), *_NOT_KEPT)
    parts = Made(arks, partial(_part, request, site))
    return Lines(parts, Response(HTTPStatus.OK, headers), lambda index, error: _unread(arks[index], error))


def _read_arks(request: Request) -> list[str]:
    """Return the texts of a POST: ``{"ark": [...]}``. Raises ValueError."""
    if request.parameters:
        raise ValueError("a POST has its ARKs in the body and takes no parameters")
    try:
        document = json.loads(request.body)
    except (ValueError, RecursionError):
        raise ValueError('the body is not JSON: {"ark": ["ark:12345/x6np1wh8k"]}') from None
    arks = document.get("ark") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(arks, list) or not all(isinstance(ark, str) for ark in arks):
        raise ValueError('the body is not an object with an array of texts: {"ark": ["ark:12345/x6np1wh8k"]}')
    if not 1 <= len(arks) <= MAX_ARKS:
        raise ValueError(f"{len(arks)} ARKs: only 1 to {MAX_ARKS} are allowed")
    return arks


def _discovered(request: Request, site: Site, found: Discovery) -> Response:
    document = discovery(request, site, found)
    if document["error"] is None:
        return _json(document, provenance(found, request.now, site.settings))
    response = _nothing(document, found, site)
    return not_kept(response) if found.candidates and not site.settings.public_url else response  # Host decides


def _nothing(document: Mapping[str, Any], found: Discovery, site: Site) -> Response:
    if found.complete or found.candidates:
        is_gone, settings = found.source == OWN, site.settings
        seconds = settings.max_age_gone if is_gone else settings.max_age_missing
        status = HTTPStatus.GONE if is_gone else HTTPStatus.NOT_FOUND
        if isinstance(found, OwnDiscovery):
            members: dict[str, Any] = withdrawal(found.own.object, settings.name)
        else:
            members = _suggested(suggest.of(site, found.ark)) if found.ark.name else {}
        headers = (("Cache-Control", f"max-age={seconds}"),)
        return problem(status, document["error"], headers, **members, discovery=document)
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, document["error"], retry(found), discovery=document)


def _suggested(meant: str) -> dict[str, Any]:
    return {"suggestion": meant} if meant else {}


def _part(request: Request, site: Site, text: str) -> Lookup | Response:
    """Return one line of a response: the document for a text, as ``maptr discover --json`` prints it."""
    try:
        ark = Ark.parse(text, bare=True).sent(site.hyphens)
    except ArkSyntaxError as error:
        return _unread(text, error)
    return look_up(ark, own_object(ark, site), site, request.now, partial(_line, request, site))


def _line(request: Request, site: Site, found: Discovery) -> Response:
    return _json(discovery(request, site, found))


def _unread(text: str, error: MaptrError) -> Response:
    received = text.encode("utf-8", "replace").decode()
    return _json({"ark": received, "candidates": [], "age": None, **error_fields(error)})


def _json(document: Mapping[str, Any], headers: Headers = ()) -> Response:
    """Return a document on one line, which can also be a line of a ``Lines`` response."""
    text = json_text({"schema": SCHEMA, **document})
    return Response(HTTPStatus.OK, (("Content-Type", JSON), *headers), text.encode() + b"\n")


def discovery(request: Request, site: Site, found: Discovery) -> dict[str, Any]:
    """Return a discovery as ``maptr discover --json`` prints it, without candidates for an object that does not exist
    here."""
    if found.complete and not found.candidates and found.source != OWN:
        check_unread(site)
    shown = found.replace(age=found.age_at(request.now))
    if error := missing(found.ark, found, site, request):
        return {"schema": SCHEMA, **shown.replace(candidates=()).to_dict(), "error": error}
    return {"schema": SCHEMA, **shown.to_dict(), "error": why(found)}


# ---- the table and drift


def _naans(request: Request, site: Site, **parameters: Any) -> Work:
    return partial(_records, site, **parameters)  # searching a long table takes long


def _records(site: Site, limit: int = PAGE, after: str = "", q: str = "") -> Response:
    """Return a page of the table in its own order, or of the NAANs that match a search, best first."""
    every = [entry.naan for entry in site.search(q)] if q.strip() else [*site.table]
    if after and after not in every:
        return problem(HTTPStatus.NOT_FOUND, f"the table has no record {shown(after)}: start again without after")
    start = every.index(after) + 1 if after else 0
    keys = every[start : start + limit + 1]
    encoded = site.once("records", lambda: dict[str, str]())
    for key in keys[:limit]:
        if key not in encoded:
            encoded[key] = json_text(json_records.write_record(site.table[key]))
    search = f"&q={quote(q, safe='')}" if q.strip() else ""
    following = None
    if len(keys) > limit:
        following = f"{BASE}naans?limit={limit}{search}&after={quote(keys[limit - 1], safe='')}"
    state = site.table_state
    document = {"schema": SCHEMA, "total": len(every), "fetched": state.fetched, "date": state.date}
    links = (("Link", f'<{following}>; rel="next"'),) if following else ()
    records = ", ".join(encoded[key] for key in keys[:limit])
    body = f'{json_text(document)[:-1]}, "records": [{records}], "next": {json_text(following)}}}\n'
    return Response(HTTPStatus.OK, (("Content-Type", JSON), *links, *_KEPT), body.encode())


def _search(request: Request, site: Site, **parameters: Any) -> Work:
    return partial(_found, site, **parameters)


def _found(site: Site, q: str, limit: int = FOUND) -> Response:
    """Return the own objects and NAAN records that match a text, best first."""
    found = site.find(q)
    document = {
        "objects": [objects.listed(one, site.settings.name) for one in found.objects[:limit]],
        "complete": found.is_whole and len(found.objects) <= limit,
        "records": [json_records.write_record(entry) for entry in site.search(q)[:limit]],
    }
    return _json(document, _KEPT if found.is_whole else _NOT_KEPT)


def _naan(request: Request, site: Site, naan: str) -> Answer:
    """Return a NAAN: its records, what a discovery finds, drift and liveness."""
    if not re.fullmatch(_parameters(_NAAN, "path")["naan"]["schema"]["pattern"], naan):
        return problem(HTTPStatus.BAD_REQUEST, "not a NAAN: it has only betanumeric characters, such as 12345")
    ark = Ark.parse(f"ark:{naan}", bare=True)
    return look_up(ark, own_object(ark, site), site, request.now, partial(_described, request, site, ark))


def _described(request: Request, site: Site, ark: Ark, found: Discovery) -> Response:
    entry, shoulders = site.table.get(ark.naan), site.table.shoulders(ark.naan)
    document = discovery(request, site, found)
    if entry is None and not shoulders and not found.candidates:
        return _nothing(document, found, site)
    places = servers_of(Table([*([entry] if entry else []), *shoulders]))
    probed = [site.liveness[place] for place in places if place in site.liveness]
    verdicts = [one for one in site.drift.verdicts if one.naan == ark.naan]
    drift = {"at": site.drift.at, "records": [one.to_dict() for one in verdicts]}
    return _json(
        {
            "naan": ark.naan,
            "entry": json_records.write_record(entry) if entry else None,
            "shoulders": [json_records.write_record(each) for each in shoulders],
            "discovery": document,
            "drift": None if site.drift.at is None else drift,
            "liveness": [_liveness(one, request.now) for one in probed],
            "redirects": site.objects.naans.get(ark.naan, 0),
        },
        _KEPT if found.complete else _NOT_KEPT,
    )


def _liveness(known: Liveness, now: float) -> dict[str, Any]:
    return {**known.to_dict(), "suspect": known.is_suspect(now)}


def _drift(request: Request, site: Site) -> Response | Work:
    """Return the last comparison of table and DNS, as ``maptr table drift --json`` prints it."""
    if not site.has_drift:
        return problem(HTTPStatus.NOT_FOUND, "this gateway does not compare its table with DNS")
    if site.drift.at is None:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "the table has not been compared with DNS yet", _RETRY)
    return partial(_compared, site, request.now)  # a long table takes long


def _compared(site: Site, now: float) -> Response:
    verdicts = site.drift.verdicts
    counts = Counter(str(one.verdict) for one in verdicts)
    silent = [one for one in site.liveness.values() if one.failures]
    document = {
        "at": site.drift.at,
        "counts": dict(sorted(counts.items())),
        "records": [one.to_dict() for one in verdicts if one.verdict not in AGREES],
        "silent": [_liveness(one, now) for one in silent],
    }
    return _json(document, _KEPT)


def _stats(request: Request, site: Site, days: int | None = None, period: str = "") -> Response | Work:
    if (statistics := site.statistics_for(request)) is None:
        return problem(HTTPStatus.NOT_FOUND, "the statistics are at the operator's address")
    try:
        report = statistics(days, period)
    except ValueError as error:
        return problem(HTTPStatus.BAD_REQUEST, str(error))
    return lambda: _json(report().to_dict(), _NOT_KEPT)


def _status(request: Request, site: Site) -> Response:
    """Return what the page ``/status`` shows about the gateway itself."""
    if not request.is_admin:
        return problem(HTTPStatus.NOT_FOUND, "the status is at the operator's address")
    fetched = site.table_state.fetched
    document = {
        "sources": site.sources or (),
        "troubles": site.troubles,
        "alarms": dict(site.alarms),
        "table": {
            "records": len(site.table),
            "age": None if fetched is None else round(request.now - fetched, 3),
            "date": site.table_state.date,
            "pull_failed": site.pull_failed,
        },
        "own_objects": site.redirects.to_dict(request.now) if site.redirects.file else None,
        "links": None if site.links is None else site.links.counts._asdict(),
    }
    return _json(document, _NOT_KEPT)


def _openapi(request: Request, site: Site) -> Response:
    return Response(HTTPStatus.OK, (("Content-Type", JSON), *_KEPT), _file())


OPERATIONS: Mapping[str, Callable[..., Answer]] = {
    "discover": _discover,
    "naans": _naans,
    _NAAN: _naan,
    "search": _search,
    "drift": _drift,
    "stats": _stats,
    "status": _status,
    "openapi.json": _openapi,
}
"""The path of each operation below BASE, with its function, which takes the request, the site, the values in the path
and, by name, those in the query string."""


# ---- the description


def page(request: Request, site: Site) -> Response:
    """Return the page about the API, or its OpenAPI description."""
    if request.prefers(HTML, JSON) == JSON:
        made = _openapi(request, site)
        return made._replace(headers=(*made.headers, ("Vary", "Accept")))
    base, ark = site.settings.public_url, site.example
    examples = (
        f"curl '{base}{DISCOVER}?ark={ark}'",
        f"""curl --json '{{"ark": ["{ark}"]}}' {base}{DISCOVER}""",
        f"curl -H 'Accept: {LD}' '{base}/{ark}?info'",
        f"curl '{base}/{ark}?maptr=list'",
    )
    about = {"operations": _operations(), "examples": examples}
    return pages.page("api.html", request, site, HTTPStatus.OK, (("Vary", "Accept"),), **about)


@cache
def _operations() -> Sequence[tuple[str, str, str]]:
    """Return the method and path of each operation, and what it gives."""
    return [
        (method.upper(), path, operation["summary"])
        for path, operations in json.loads(_file())["paths"].items()
        for method, operation in operations.items()
        if method in ("get", "post")
    ]


@cache
def _file() -> bytes:
    return (files("maptr.gateway") / "openapi.json").read_bytes()


@cache
def _parameters(path: str, where: str = "query") -> dict[str, Any]:
    described = json.loads(_file())
    references = described["paths"][f"{BASE}{path}"]["get"].get("parameters", ())
    known = described["components"]["parameters"]
    found = [known[each["$ref"].rpartition("/")[2]] for each in references]
    return {each["name"]: each for each in found if each["in"] == where}


def _read_query(pairs: Iterable[tuple[str, str]], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query string's values, checked against their description. Raises ValueError with the reason."""
    given: dict[str, list[str]] = {}
    for name, value in pairs:
        if name not in known:
            near = nearest(name, known, likeness=0.5)
            raise ValueError(f"unknown parameter {shown(name)}" + (f": is it {near}?" if near else ""))
        given.setdefault(name, []).append(value)
    for name, parameter in known.items():
        if parameter["required"] and name not in given:
            raise ValueError(f"the parameter {name} is missing: {parameter['description']}")
    return {name: _read_value(name, values, known[name]["schema"]) for name, values in given.items()}


def _read_value(name: str, values: list[str], schema: Mapping[str, Any]) -> Any:
    if schema["type"] == "array":
        if len(values) > schema["maxItems"]:
            raise ValueError(f"{name} is given {len(values)} times, at most {schema['maxItems']} are allowed")
        return values
    if len(values) > 1:
        raise ValueError(f"the parameter {name} is given twice")
    if schema["type"] != "integer":
        return values[0]
    if not _INTEGER.fullmatch(values[0]) or not schema["minimum"] <= int(values[0]) <= schema["maximum"]:
        raise ValueError(f"{name} is not a number from {schema['minimum']} to {schema['maximum']}")
    return int(values[0])
