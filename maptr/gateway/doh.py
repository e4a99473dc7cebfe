"""DNS over HTTPS (RFC 8484), answered from the zones of the configuration."""

from __future__ import annotations

from http import HTTPStatus

from maptr.gateway.message import Request, Response, problem
from maptr.gateway.site import Site

PATH = "/dns-query"


def respond(request: Request, site: Site) -> Response:
    if site.dns is None:
        return problem(HTTPStatus.NOT_FOUND, "no zone is served here")
    return problem(HTTPStatus.NOT_IMPLEMENTED, "")
