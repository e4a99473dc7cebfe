"""The look-up API: discoveries, records of the table, and drift, as JSON. ``OPERATIONS`` describes all of it.

A request is checked by the description of its operation, and the OpenAPI document is made from the same descriptions.
The documents have the fields of the command line's (docs/reference.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.errors import ArkSyntaxError, json_text
from maptr.gateway import openapi
from maptr.gateway.message import (
    JSON,
    JSON_LINES,
    Answer,
    Headers,
    Lines,
    Lookup,
    Request,
    Response,
    as_json,
    preflight,
    problem,
)
from maptr.gateway.openapi import NAAN, STRING, Operation, parameter, ref, refusal, reply
from maptr.gateway.resolve import NONE_AGE, RETRY_AFTER, look_up, provenance, retry, why
from maptr.gateway.site import Site
from maptr.reconcile.probes import Liveness, places_of
from maptr.registry import json_records
from maptr.registry.table import Table, shown

SCHEMA = "maptr/1"
METHODS = ("GET", "HEAD", "OPTIONS")
BASE = "/api/v1/"

MAX_ARKS = 100  # of one request; the longest ARKs also reach the limit of the target
PAGE = 100  # records of a page, unless the request says otherwise
MAX_PAGE = 250  # some 600 bytes each; a page is made at once, while other requests wait
MAX_AGE = 60  # seconds for which a client may keep a page of the table, or the drift

_KEPT: Headers = (("Cache-Control", f"max-age={MAX_AGE}"),)
_NOT_KEPT: Headers = (("Cache-Control", "no-store"),)
_RETRY: Headers = (("Retry-After", str(RETRY_AFTER)), *_NOT_KEPT)


def respond(request: Request, site: Site) -> Answer:
    """Return the answer to a request below ``/api/``."""
    for operation in OPERATIONS:
        found = operation.match(request.path.removeprefix(BASE)) if request.path.startswith(BASE) else None
        if found is not None:
            break
    else:
        return problem(HTTPStatus.NOT_FOUND, f"no such resource; {BASE}openapi.json describes those that exist")
    if request.method == "OPTIONS":
        return preflight(METHODS)
    if request.method not in METHODS:
        allow = (("Allow", ", ".join(METHODS)),)
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, f"the method {request.method} is not allowed", allow)
    try:
        given = operation.read(request.parameters)
    except ValueError as error:
        return problem(HTTPStatus.BAD_REQUEST, str(error))
    return operation.respond(request, site, *map(unquote, found.groups()), **given)


# ---- discoveries


def _discover(request: Request, site: Site, ark: list[str]) -> Answer:
    """Return one discovery as a document, or several as lines."""
    if len(ark) == 1:
        try:
            parsed = Ark.parse(ark[0]).sent(site.hyphens)
        except ArkSyntaxError as error:
            return problem(HTTPStatus.BAD_REQUEST, str(error))
        return look_up(parsed, site, request.now, partial(_discovered, request))
    headers = (("Content-Type", JSON_LINES), *_NOT_KEPT)
    return Lines([_part(text, site, request.now) for text in ark], Response(HTTPStatus.OK, headers))


def _discovered(request: Request, found: Discovery) -> Response:
    document = discovery(found, request.now)
    if found.candidates:
        return _json(document, provenance(found, request.now))
    return _nothing(document, found)


def _nothing(document: Mapping[str, Any], found: Discovery) -> Response:
    """Return the problem of a discovery without candidates."""
    if found.complete:
        headers = (("Cache-Control", f"max-age={NONE_AGE}"),)
        return problem(HTTPStatus.NOT_FOUND, document["error"], headers, discovery=document)
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, document["error"], retry(found), discovery=document)


def _part(text: str, site: Site, now: float) -> Lookup | Response:
    """Return a line of a response: the document of a text, as ``maptr discover --json`` prints it."""
    try:
        ark = Ark.parse(text).sent(site.hyphens)
    except ArkSyntaxError as error:
        received = text.encode("utf-8", "replace").decode()
        return _json({"schema": SCHEMA, "ark": received, "candidates": [], "age": None, "error": str(error)})
    return look_up(ark, site, now, lambda found: _json(discovery(found, now)))


def _json(document: Mapping[str, Any], headers: Headers = ()) -> Response:
    """Return a document on one line, which also is a line of a response in lines."""
    return Response(HTTPStatus.OK, (("Content-Type", JSON), *headers), json_text(document).encode() + b"\n")


def discovery(found: Discovery, now: float) -> dict[str, Any]:
    """Return a discovery as ``maptr discover --json`` prints it."""
    age = found.age(now)
    age = None if age is None else round(age, 3)
    return {"schema": SCHEMA, **found.to_dict(), "age": age, "error": why(found)}


# ---- the table and drift


def _naans(request: Request, site: Site, limit: int = PAGE, after: str = "") -> Response:
    """Return a page of the table, in its order."""
    if after and after not in site.table:
        return problem(HTTPStatus.NOT_FOUND, f"the table has no record {shown(after)}: begin again without after")
    every = site.once("keys", lambda: tuple(site.table))
    places = site.once("places", lambda: {key: place for place, key in enumerate(every)})
    start = places[after] + 1 if after else 0
    keys = every[start : start + limit + 1]
    encoded = site.once("records", lambda: dict[str, str]())
    for key in keys[:limit]:
        if key not in encoded:
            encoded[key] = json_text(json_records.write_record(site.table[key]))
    following = f"{BASE}naans?limit={limit}&after={quote(keys[limit - 1], safe='')}" if len(keys) > limit else None
    document = {
        "schema": SCHEMA,
        "total": len(site.table),
        "fetched": site.table_state.fetched,
    }
    links = (("Link", f'<{following}>; rel="next"'),) if following else ()
    records = ", ".join(encoded[key] for key in keys[:limit])
    body = f'{json_text(document)[:-1]}, "records": [{records}], "next": {json_text(following)}}}\n'
    return Response(HTTPStatus.OK, (("Content-Type", JSON), *links, *_KEPT), body.encode())


def _naan(request: Request, site: Site, naan: str) -> Answer:
    """Return a NAAN: its records, what a discovery finds, drift and liveness."""
    if not re.fullmatch(NAAN["pattern"], naan):
        return problem(HTTPStatus.BAD_REQUEST, "not a NAAN: one has betanumeric characters only, such as 12345")
    ark = Ark.parse(f"ark:{naan}", bare=True)
    return look_up(ark, site, request.now, partial(_described, request, site, ark))


def _described(request: Request, site: Site, ark: Ark, found: Discovery) -> Response:
    entry, shoulders = site.table.get(ark.naan), site.table.shoulders(ark.naan)
    document = discovery(found, request.now)
    if entry is None and not shoulders and not found.candidates:
        return _nothing(document, found)
    places = places_of(Table([*([entry] if entry else []), *shoulders]))
    probed = [site.liveness[place] for place in places if place in site.liveness]
    verdicts = [one for one in site.drift.verdicts if one.record.partition("/")[0] == ark.naan]
    drift = {"at": site.drift.at, "records": [one.to_dict() for one in verdicts]}
    return _json(
        {
            "schema": SCHEMA,
            "naan": ark.naan,
            "entry": json_records.write_record(entry) if entry else None,
            "shoulders": [json_records.write_record(each) for each in shoulders],
            "discovery": document,
            "drift": None if site.drift.at is None else drift,
            "liveness": [_liveness(one, request.now) for one in probed],
            "redirects": site.singles.get(ark.naan, 0),
        },
        _KEPT if found.complete else _NOT_KEPT,
    )


def _liveness(known: Liveness, now: float) -> dict[str, Any]:
    return {**known.to_dict(), "suspect": known.is_suspect(now)}


def _drift(request: Request, site: Site) -> Response:
    """Return the last comparison of the table with DNS, as ``maptr table drift --json`` prints it."""
    if site.drift.at is None:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "the table was not compared with DNS yet", _RETRY)
    verdicts = site.drift.verdicts
    counts = Counter(str(one.verdict) for one in verdicts)
    silent = [one for one in site.liveness.values() if one.failures]
    document = {
        "schema": SCHEMA,
        "at": site.drift.at,
        "counts": dict(sorted(counts.items())),
        "records": [one.to_dict() for one in verdicts if one.verdict not in ("same", "lossy")],
        "silent": [_liveness(one, request.now) for one in silent],
    }
    return _json(document, _KEPT)


def _openapi(request: Request, site: Site) -> Response:
    return Response(HTTPStatus.OK, (("Content-Type", JSON), *_KEPT), _document())


@cache
def _document() -> bytes:
    return as_json(openapi.document(BASE, OPERATIONS)).body


# ---- the description

_NOT_FOUND, _UNAVAILABLE = HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE
_UNKNOWN = refusal(
    "DNS did not answer, and nothing is kept or in the table", "Cache-Control", sometimes=("Retry-After",)
)

OPERATIONS = (
    Operation(
        "discover",
        "The mapping authorities of one ARK, or of several",
        _discover,
        {
            HTTPStatus.OK: reply(
                "the discovery of one ARK; for several, that of each on a line",
                {JSON: ref("Discovery"), JSON_LINES: STRING},
                "Cache-Control",
                sometimes=("Expires", "Maptr-Source"),
            ),
            _NOT_FOUND: refusal("DNS or the table says that there is none", "Cache-Control"),
            _UNAVAILABLE: _UNKNOWN,
        },
        [
            parameter(
                "ark",
                {"type": "array", "items": STRING, "minItems": 1, "maxItems": MAX_ARKS},
                "an ARK in any notation, such as ark:12345/x6np1wh8k; repeated for several",
                ["ark:12345/x6np1wh8k"],
                required=True,
            )
        ],
        "The lines are in the order of the request, and each is sent when it and those before it are known. For a text"
        " that is not an ARK, one ARK alone gets 400; among several, its line has the error.",
    ),
    Operation(
        "naans",
        "The records of the table, page by page",
        _naans,
        {
            HTTPStatus.OK: reply("a page", {JSON: ref("Records")}, "Cache-Control", sometimes=("Link",)),
            _NOT_FOUND: refusal("the table does not have the record of after"),
        },
        [
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE}, "records", 2),
            parameter("after", STRING, "the record before the page, such as 12345 or 12345/x6", "12345"),
        ],
    ),
    Operation(
        "naans/{naan}",
        "A NAAN: its records, mapping authorities, drift and liveness",
        _naan,
        {
            HTTPStatus.OK: reply("the NAAN", {JSON: ref("Naan")}, "Cache-Control"),
            _NOT_FOUND: refusal("neither the table nor DNS has it", "Cache-Control"),
            _UNAVAILABLE: _UNKNOWN,
        },
        [parameter("naan", NAAN, "a NAAN, such as 12345", "12345", where="path", required=True)],
        "A record of the table is enough for 200; the field error of discovery says why there is no mapping authority.",
    ),
    Operation(
        "drift",
        "The last comparison of the table with DNS: the records that differ",
        _drift,
        {
            HTTPStatus.OK: reply("the comparison", {JSON: ref("DriftReport")}, "Cache-Control"),
            _UNAVAILABLE: refusal("they were not compared yet", "Cache-Control", "Retry-After"),
        },
    ),
    Operation(
        "openapi.json",
        "This description",
        _openapi,
        {HTTPStatus.OK: reply("an OpenAPI document", {JSON: {"type": "object"}}, "Cache-Control")},
    ),
)
