"""The look-up API: discoveries, the table, and drift, as JSON."""

from __future__ import annotations

import json
from http import HTTPStatus

from maptr.discovery import Discovery
from maptr.gateway.message import JSON_LINES, Lines, Request, Response, problem
from maptr.gateway.site import Site


def respond(request: Request, site: Site) -> Response | Lines:
    if request.path == "/api/v1/discover":
        arks = [value for name, value in request.parameters if name == "ark"]
        return Lines(arks, _line, Response(HTTPStatus.OK, (("Content-Type", JSON_LINES),)))
    return problem(HTTPStatus.NOT_FOUND, "no such resource")


def _line(text: str, found: Discovery | Exception) -> bytes:
    if isinstance(found, Exception):
        return json.dumps({"ark": text, "error": str(found)}).encode() + b"\n"
    return json.dumps(found.to_dict()).encode() + b"\n"
