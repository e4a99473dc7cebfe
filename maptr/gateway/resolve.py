"""From an ARK and its discovery to a response: a redirect, the list of mapping authorities, or why there is none.

ARK draft sections 2.1 (mapping authorities are replaceable, so no redirect is permanent), 3.3 and 5.1.
"""

from __future__ import annotations

import re
from email.utils import formatdate
from http import HTTPStatus

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.errors import printable
from maptr.gateway import describe, pages
from maptr.gateway.message import HTML, JSON, LINKSET, PROBLEM, TEXT, Headers, Request, Response, as_json, problem, text
from maptr.gateway.site import Redirect, Site

STATUSES = (HTTPStatus.FOUND, HTTPStatus.SEE_OTHER)  # what a record may ask for
MAX_AGE = 86_400  # seconds for which a client may keep a redirect
STALE_AGE = 30  # seconds; RFC 8767 section 4: the TTL of a stale answer
NONE_AGE = 300  # seconds for which a client may keep that there is none
RETRY_AFTER = 30  # seconds until a client should ask again where DNS did not answer

LIST = ("maptr", "list")  # the parameter that asks for all mapping authorities
_PARAMETER = re.compile(r"(?:^|&)maptr=(list|hkmp)(?=&|\Z)")


def own_parameter(ark: Ark) -> tuple[Ark, str]:
    """The ARK without the parameter ``maptr`` in its query string, and the value of that."""
    if "maptr=" not in ark.tail:
        return ark, ""
    found = _PARAMETER.search(ark.tail[1:])
    if found is None:
        return ark, ""
    rest = (ark.tail[1:][: found.start()] + ark.tail[1:][found.end() :]).lstrip("&")
    return ark._replace(tail=f"?{rest}" if rest else ""), found[1]


def answer(request: Request, ark: Ark, found: Discovery, site: Site, wants: str = "") -> Response:
    """The response to a request for an ARK. ``wants`` is its parameter ``maptr``."""
    if not found.candidates:
        return _none(request, ark, found, site) if found.complete else _unknown(request, ark, found)
    if wants == "list" or LINKSET in request.headers.get("accept", ""):
        return _list(request, ark, found, site)
    best = site.ranked(found, request.now)[0]
    target = best.url(ark, scheme=found.scheme)
    if ark.inflection and site.metadata:
        target = metadata_url(ark, site)
    elif site.is_own(target) or (ark.inflection and (site.describes or site.is_suspect(best, found, request.now))):
        return describe.respond(request, ark, site, found=found, wants=wants)
    return redirect(request, ark, target, best.status, provenance(found, request.now))


def metadata_url(ark: Ark, site: Site) -> str:
    """Where the configured target for descriptions sends an ARK."""
    return site.metadata.replace("${pid}", ark.in_url).replace("${inflection}", ark.tail)


def single(request: Request, ark: Ark, rule: Redirect) -> Response:
    """The redirect of a single ARK, which has its own table."""
    return redirect(request, ark, rule.url, rule.status, (("Maptr-Source", "redirects"), *_kept(request.now, NONE_AGE)))


def redirect(request: Request, ark: Ark, target: str, status: int | None, headers: Headers) -> Response:
    """A redirect that is not permanent. After a POST it is 303, so that the client goes on with a GET."""
    code = status if status in STATUSES else HTTPStatus.FOUND
    if request.method == "POST":
        code = HTTPStatus.SEE_OTHER
    label = str(ark) if ark.inflection is None else ark.in_url
    link = f'</{label}?info>; rel="describedby", </{label}?maptr=list>; rel="linkset"; type="{LINKSET}"'
    given = (("Content-Type", TEXT), ("Location", target), ("Vary", "Accept"), ("Link", link), *headers)
    return Response(code, given, f"{target}\n".encode("ascii", "replace"))


def provenance(found: Discovery, now: float) -> Headers:
    """``Maptr-Source``, and how long the response may be kept.

    ``Maptr-Source`` is a structured field (RFC 9651): dns, memory, disk or natab, with the parameters ``stale``,
    ``age`` in seconds and ``reason``.
    """
    parts = [found.source]
    if found.stale:
        parts.append("stale")
    age = found.age(now)
    if age is not None and (found.stale or found.source != "dns"):
        parts.append(f"age={int(age)}")
    if found.reason and (found.stale or found.source == "natab"):
        plain = printable(found.reason).encode("ascii", "replace").decode().replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'reason="{plain}"')
    seconds = STALE_AGE if found.stale else 0 if found.expiration is None else int(found.expiration - now)
    return ("Maptr-Source", ";".join(parts)), *_kept(now, seconds)


def _kept(now: float, seconds: int) -> Headers:
    seconds = max(0, min(seconds, MAX_AGE))
    return ("Cache-Control", f"max-age={seconds}"), ("Expires", formatdate(now + seconds, usegmt=True))


def _list(request: Request, ark: Ark, found: Discovery, site: Site) -> Response:
    """All mapping authorities, best first (the "discriminated list" of draft 5.1), as a link set (RFC 9264)."""
    urls = [candidate.url(ark, scheme=found.scheme) for candidate in site.ranked(found, request.now)]
    headers = (("Vary", "Accept"), *provenance(found, request.now))
    kind = request.prefers(LINKSET, JSON, HTML, TEXT)
    if kind == HTML:
        return pages.authorities(request, ark, found, urls, site, headers)
    if kind == TEXT:
        return text("".join(f"{where}\n" for where in urls), headers=headers)
    anchor = f"{site.public_url}/{ark}" if site.public_url else f"/{ark}"
    links = [{"href": where} for where in urls]
    return as_json({"linkset": [{"anchor": anchor, "alternate": links}]}, headers=headers, kind=kind)


def _none(request: Request, ark: Ark, found: Discovery, site: Site) -> Response:
    """DNS or the table said that there is none: forward the ARK to ``root``, or say so."""
    headers = (*provenance(found, request.now)[:1], *_kept(request.now, NONE_AGE))
    if site.root and not site.is_circular(ark):
        return redirect(request, ark, f"{site.root}/{ark.in_url}{ark.tail}", None, headers)
    detail = str(_why(found))
    if ark.shared is not None and not ark.shared.resolves:
        detail += f". NAAN {ark.naan} is shared by all organisations, for {ark.shared.meaning}"
    return failure(request, HTTPStatus.NOT_FOUND, detail, (("Vary", "Accept"), *headers), ark, found)


def _unknown(request: Request, ark: Ark, found: Discovery) -> Response:
    headers = (("Vary", "Accept"), ("Retry-After", str(RETRY_AFTER)), ("Cache-Control", "no-store"))
    return failure(request, HTTPStatus.SERVICE_UNAVAILABLE, str(_why(found)), headers, ark, found)


def _why(found: Discovery) -> Exception:
    """The error that ``discover`` would raise."""
    try:
        found.raise_for_none()
    except Exception as error:
        return error
    raise AssertionError("a discovery with candidates")


def failure(
    request: Request,
    status: HTTPStatus,
    detail: str,
    headers: Headers = (),
    ark: Ark | None = None,
    found: Discovery | None = None,
) -> Response:
    """An error as a page, as plain text or as problem details, whichever the client prefers."""
    kind = request.prefers(TEXT, HTML, PROBLEM, JSON)
    if kind == HTML:
        return pages.failure(request, status, detail, headers, ark, found)
    if kind == TEXT:
        return text(f"{status.value} {status.phrase}\n{detail}\n", status, headers)
    members = {} if ark is None else {"ark": str(ark)}
    return problem(status, detail, headers, **members)
