"""Operations of an HTTP API as values, from which requests are checked and the OpenAPI 3.1 document is made.

The schemas are those of docs/reference.md and of the NAAN registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from maptr.ark import BETANUMERIC, MAX_NAAN
from maptr.errors import nearest
from maptr.gateway.message import PROBLEM, Answer
from maptr.registry.table import shown

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
NAAN: Schema = {"type": "string", "pattern": f"^[{BETANUMERIC}{BETANUMERIC[10:].upper()}]{{1,{MAX_NAAN}}}$"}

_INTEGER = re.compile(r"-?[0-9]{1,9}")


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def ref(name: str, kind: str = "schemas") -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}


def closed(texts: str = "", **fields: Schema) -> Schema:
    """Return an object with exactly these fields. ``texts`` are the names of those that are texts."""
    fields = {**dict.fromkeys(texts.split(), STRING), **fields}
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


_TIME = {"type": "number", "description": "seconds since 1970"}
_NUMBER_OR_NULL, _INTEGER_OR_NULL, _TIME_OR_NULL = nullable(NUMBER), nullable(INTEGER), nullable(_TIME)
_SCHEMA = {"const": "maptr/1"}
_SOURCE = {"enum": ["dns", "memory", "disk", "natab"]}
_SECURITY = {"enum": ["secure", "insecure", "indeterminate", "bogus"]}
_NEXT = {**nullable(STRING), "description": "the path of the next page; null on the last one"}

SCHEMAS: dict[str, Schema] = {
    "Candidate": closed(
        "url host owner source",
        port=_INTEGER_OR_NULL,
        order=INTEGER,
        preference=INTEGER,
        ttl=INTEGER,
        status=_INTEGER_OR_NULL,
    ),
    "Reading": closed("record kind", counted=BOOLEAN, reasons=array(STRING), leads_to=array(STRING)),
    "TableRecord": closed("key", leads_to=array(STRING)),
    "Link": closed("name type note server", security=_SECURITY, elapsed=_NUMBER_OR_NULL),
    "Step": closed(
        "name type outcome note server",
        limit=nullable(STRING),
        depth=INTEGER,
        ttl=_INTEGER_OR_NULL,
        elapsed=_NUMBER_OR_NULL,
        records=array(ref("Reading")),
        table_records=array(ref("TableRecord")),
        security=_SECURITY,
        chain=array(ref("Link")),
    ),
    "Discovery": closed(
        "ark reason",
        schema=_SCHEMA,
        complete=BOOLEAN,
        source=_SOURCE,
        security=_SECURITY,
        stale=BOOLEAN,
        states=nullable(closed("dns table")),
        fetched=_TIME_OR_NULL,
        ttl=_INTEGER_OR_NULL,
        candidates=array(ref("Candidate")),
        trace=array(ref("Step")),
        age=_NUMBER_OR_NULL,
        error=nullable(STRING),
    ),
    "Record": {
        "description": "a record of the NAAN registry, in the layout of its JSON, version 1",
        "type": "object",
        "properties": {"what": STRING},
        "required": ["what", "where", "target", "when", "who", "na_policy", "rtype"],
    },
    "Records": closed(schema=_SCHEMA, total=INTEGER, fetched=_TIME_OR_NULL, records=array(ref("Record")), next=_NEXT),
    "Drift": closed("record verdict reason probe", table=array(STRING), dns=array(STRING), records=array(STRING)),
    "Liveness": closed(
        "place note",
        at=_TIME,
        answered_at=_TIME_OR_NULL,
        failures=INTEGER,
        since=_TIME_OR_NULL,
        suspect=BOOLEAN,
    ),
    "DriftReport": closed(
        schema=_SCHEMA,
        at=_TIME,
        counts={"type": "object", "additionalProperties": INTEGER},
        records=array(ref("Drift")),
        silent=array(ref("Liveness")),
    ),
    "Naan": closed(
        "naan",
        schema=_SCHEMA,
        entry=nullable(ref("Record")),
        shoulders=array(ref("Record")),
        discovery=ref("Discovery"),
        drift=nullable(closed(at=_TIME, records=array(ref("Drift")))),
        liveness=array(ref("Liveness")),
        redirects=INTEGER,
    ),
    "Problem": {
        **closed("title detail", status=INTEGER, discovery=ref("Discovery")),
        "description": "problem details (RFC 9457), with the discovery if one was made",
        "required": ["title", "detail", "status"],
    },
}

HEADERS: dict[str, str] = {
    "Access-Control-Allow-Headers": "the request headers that scripts of any site may send",
    "Access-Control-Allow-Methods": "the methods that scripts of any site may use",
    "Access-Control-Allow-Origin": "always *",
    "Access-Control-Expose-Headers": "the response headers that scripts of other sites may read",
    "Access-Control-Max-Age": "seconds for which the permission may be kept",
    "Allow": "the methods of the resource",
    "Cache-Control": "how long the response may be kept",
    "Expires": "the same as a date",
    "Link": "the next page (RFC 8288)",
    "Maptr-Source": "where the answer comes from: dns, memory, disk, natab or redirects",
    "Retry-After": "seconds until another request makes sense",
    "X-Content-Type-Options": "always nosniff",
    "X-Request-Id": "names the request in the access log",
}


EVERY = ("X-Content-Type-Options", "X-Request-Id")  # headers of every response, which the server adds
_DETAILS = {PROBLEM: ref("Problem")}
_READABLE = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers")


class Reply(NamedTuple):
    """A response as the document describes it. ``headers`` are always there, those of ``sometimes`` not always."""

    description: str
    content: Mapping[str, Schema] = {}
    headers: Sequence[str] = ()
    sometimes: Sequence[str] = ()

    def described(self, *, body: bool) -> dict[str, Any]:
        headers: dict[str, Schema] = {name: ref(name, "headers") for name in self.sometimes}
        headers |= {name: {**_header(name), "required": True} for name in (*self.headers, *EVERY)}
        content = {kind: {"schema": schema} for kind, schema in self.content.items()}
        return {
            "description": self.description,
            **({"headers": headers} if headers else {}),
            **({"content": content} if content and body else {}),
        }


def reply(description: str, content: Mapping[str, Schema], *headers: str, sometimes: Sequence[str] = ()) -> Reply:
    """Return a response that scripts of other sites may read."""
    return Reply(description, content, (*_READABLE, *headers), sometimes)


def refusal(description: str, *headers: str, sometimes: Sequence[str] = ()) -> Reply:
    """Return an error as problem details."""
    return reply(description, _DETAILS, *headers, sometimes=sometimes)


class Operation(NamedTuple):
    """A resource that can be read: ``path`` with ``{name}`` for a parameter of the path.

    ``respond`` takes the request, the site, the values of the path, and the others by name. ``parameters`` are as in
    OpenAPI.
    """

    path: str
    summary: str
    respond: Callable[..., Answer]
    replies: Mapping[int, Reply]
    parameters: Sequence[dict[str, Any]] = ()
    description: str = ""

    def match(self, path: str) -> re.Match[str] | None:
        return re.fullmatch(re.sub(r"\{\w+\}", "([^/]+)", self.path), path)

    def read(self, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the values of a query string. Raises ValueError with the reason."""
        known = {each["name"]: each for each in self.parameters if each["in"] == "query"}
        given: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in known:
                near = nearest(name, known, likeness=0.5)
                raise ValueError(f"unknown parameter {shown(name)}" + (f": is it {near}?" if near else ""))
            given.setdefault(name, []).append(value)
        for name, parameter in known.items():
            if parameter["required"] and name not in given:
                raise ValueError(f"the parameter {name} is missing: {parameter['description']}")
        return {name: _read(name, values, known[name]["schema"]) for name, values in given.items()}


def parameter(
    name: str, schema: Schema, description: str, example: Any, *, where: str = "query", required: bool = False
) -> dict[str, Any]:
    """Return a parameter of the query string, or of the path."""
    values = {"required": required, "schema": schema, "description": description, "example": example}
    return {"name": name, "in": where, **values}


def _read(name: str, values: list[str], schema: Schema) -> Any:
    """Return the value of a parameter by its schema. Raises ValueError."""
    if schema["type"] == "array":
        if len(values) > schema["maxItems"]:
            raise ValueError(f"{len(values)} times {name}, {schema['maxItems']} at most")
        return values
    if len(values) > 1:
        raise ValueError(f"the parameter {name} is given twice")
    if schema["type"] != "integer":
        return values[0]
    if not _INTEGER.fullmatch(values[0]) or not schema["minimum"] <= int(values[0]) <= schema["maximum"]:
        raise ValueError(f"{name} is not a number from {schema['minimum']} to {schema['maximum']}")
    return int(values[0])


# Any request may get these.
_ALWAYS: dict[int, Reply] = {
    HTTPStatus.BAD_REQUEST: refusal("a parameter is wrong, missing or unknown"),
    HTTPStatus.TOO_MANY_REQUESTS: Reply("too many requests of one client", _DETAILS, ("Retry-After",)),
    HTTPStatus.INTERNAL_SERVER_ERROR: Reply("an internal error", _DETAILS),
}
_PREFLIGHT = Reply(
    "which methods there are, also for scripts of other sites (CORS)",
    {},
    (
        "Allow",
        "Access-Control-Allow-Headers",
        "Access-Control-Allow-Methods",
        "Access-Control-Allow-Origin",
        "Access-Control-Max-Age",
    ),
)


def document(base: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of the operations, whose paths are below ``base``."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "maptr gateway",
            "version": "1",
            "description": "Look-up of ARKs and of the NAAN registry. Other methods than those described get 405."
            " What cannot be read as a request, or is too long, gets 400, 414, 431 or 505 as plain text.",
        },
        "paths": {f"{base}{operation.path}": _path(operation) for operation in operations},
        "components": {"schemas": SCHEMAS, "headers": {name: _header(name) for name in HEADERS}},
    }


def _path(operation: Operation) -> dict[str, Any]:
    name = re.sub(r"\W+", " ", operation.path).title().replace(" ", "")
    made: dict[str, Any] = {}
    for method in ("get", "head"):
        replies: dict[int, Reply] = {**operation.replies, **_ALWAYS}
        made[method] = {
            "summary": operation.summary,
            "description": operation.description,
            "operationId": method + name,
            "parameters": operation.parameters,
            "responses": {str(int(code)): each.described(body=method == "get") for code, each in replies.items()},
        }
    too_many = _ALWAYS[HTTPStatus.TOO_MANY_REQUESTS]
    responses = {"204": _PREFLIGHT.described(body=False), "429": too_many.described(body=True)}
    in_path = [{**each, "schema": STRING} for each in operation.parameters if each["in"] == "path"]
    made["options"] = {"operationId": f"options{name}", "parameters": in_path, "responses": responses}
    return made


def _header(name: str) -> dict[str, Any]:
    return {"description": HEADERS[name], "schema": STRING}
