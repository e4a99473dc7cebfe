"""The pages, made from the templates beside this module: they work without scripts, and load nothing from elsewhere."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from maptr.ark import Ark, find_arks
from maptr.discovery import Discovery
from maptr.gateway.message import Headers, Request, Response, html
from maptr.gateway.site import Site
from maptr.nma.describe import Segment
from maptr.registry.table import Entry

# Nothing but the pages' own style, images and forms.
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_environment = Environment(loader=PackageLoader("maptr.gateway"), autoescape=True, undefined=StrictUndefined)


def respond(request: Request, site: Site) -> Response | None:
    """The page at a path; None if there is none."""
    return None


def searched(text: str) -> Ark:
    """The ARK that a text is or holds. Raises ArkSyntaxError."""
    found = find_arks(text)
    return found[0] if found else Ark.parse(text, bare=True)


def home(request: Request, site: Site, *, text: str = "", found: Discovery | None = None, error: str = "") -> Response:
    """The search page, with the result of a search if there was one."""
    return _page("home.html", site=site, text=text, found=found, error=error)


def failure(
    request: Request, status: HTTPStatus, detail: str, headers: Headers, ark: Ark | None, found: Discovery | None
) -> Response:
    """An error, with the walk if an ARK was looked up."""
    return _page("failure.html", status, headers, detail=detail, reason=status.phrase, ark=ark, found=found)


def authorities(
    request: Request, ark: Ark, found: Discovery | None, urls: list[str], site: Site, headers: Headers
) -> Response:
    """All mapping authorities of an ARK, best first."""
    return _page("authorities.html", headers=headers, ark=ark, urls=urls, found=found)


def description(
    request: Request, ark: Ark, entry: Entry, erc: tuple[Segment, ...], site: Site, headers: Headers
) -> Response:
    """The description of a record."""
    return _page("description.html", headers=headers, ark=ark, entry=entry, erc=erc)


def _page(name: str, status: int = HTTPStatus.OK, headers: Headers = (), **values: Any) -> Response:
    made = _environment.get_template(name).render(**values)
    return html(made, status, (("Content-Security-Policy", POLICY), *headers))
