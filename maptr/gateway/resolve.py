"""From an ARK and its discovery to a response: a redirect, the list of mapping authorities, or why there is none.

ARK draft sections 2.1 (mapping authorities are replaceable, so no redirect is permanent), 3.3 and 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from operator import is_not
from typing import Any

from maptr.ark import Ark
from maptr.config.model import GatewayConfig
from maptr.discovery import GIVEN, TABLE, Discovery, DiscoveryError, Outcome, Step
from maptr.errors import printable
from maptr.gateway import describe, objects, pages, suggest
from maptr.gateway.message import (
    HTML,
    JSON,
    LD,
    LINKSET,
    LINKSET_TEXT,
    PROBLEM,
    TEXT,
    Headers,
    Lookup,
    Request,
    Response,
    Unreadable,
    as_json,
    kept,
    not_kept,
    problem,
    text,
)
from maptr.gateway.objects import OWN, Match, OwnDiscovery, OwnObject
from maptr.gateway.site import Site
from maptr.registry.dates import day
from maptr.url import MAX_URL

STATUSES = (HTTPStatus.FOUND, HTTPStatus.SEE_OTHER)  # what a record may ask for
STALE_AGE = 30  # seconds; RFC 8767 section 4: the TTL of a stale answer
RETRY_AFTER = 30  # seconds until a client should ask again if DNS did not answer
LIST = "list"  # the value of the parameter ``maptr`` that asks for all mapping authorities
MAX_ARK = MAX_URL - 512  # bytes, to leave space for the rest of its URL at a mapping authority

_REASONS = {
    HTTPStatus.BAD_REQUEST: "not-an-ark",
    HTTPStatus.NOT_FOUND: "no-page",
    HTTPStatus.GONE: "gone",
    HTTPStatus.REQUEST_URI_TOO_LONG: "too-long",
}
CENTRAL = "https://n2t.net"  # the resolver of all ARKs
NOT_OURS = "this gateway does not answer for ARKs of NAAN {}"
_VARIES: Headers = (("Vary", "Accept"),)
_LABELLED = re.compile("(?i)/ark(?::|%3A)")  # the path of a request for an ARK and nothing else
Respond = Callable[[Discovery], Response]
"""Makes the response from a discovery."""

_PARAMETER = re.compile(r"(?:^|&)maptr=(list|hkmp)(?=&|\Z)")


def split_parameter(ark: Ark) -> tuple[Ark, str]:
    """Return the ARK without the parameter ``maptr`` of its query string, and that parameter's value."""
    if "maptr=" not in ark.tail:
        return ark, ""
    query = ark.tail[1:]
    found = _PARAMETER.search(query)
    if found is None:
        return ark, ""
    rest = (query[: found.start()] + query[found.end() :]).lstrip("&")
    return ark.with_received(tail=f"?{rest}" if rest else ""), found[1]


def own_object(ark: Ark, site: Site) -> Match | None:
    """Return the own object that answers for an ARK."""
    return objects.match(site.objects, ark) if site.answers_for(ark.naan) else None


def look_up(ark: Ark, own: Match | None, site: Site, now: float, respond: Respond) -> Response | Lookup:
    """Return the response for an ARK: from its own object ``own`` at once, else from its discovery.

    Pages, lists, redirects and the API all answer from that discovery.
    """
    if not site.answers_for(ark.naan):
        return respond(Discovery(ark, source="natab"))
    if own is not None:
        return respond(objects.discovery_of(own, ark, site.settings, now))
    return Lookup(ark, partial(_respond, ark, site, now, respond))


def _respond(ark: Ark, site: Site, now: float, respond: Respond, found: Discovery) -> Response:
    """Respond with the candidates in the order of the gateway's redirects, and without its servers."""
    ranked, trace = site.ranked(found, now), tuple([_for_public(step) for step in found.trace])
    is_changed = any(map(is_not, trace, found.trace))  # equal steps may have other servers
    if found.ark is not ark or ranked is not found.candidates or is_changed:
        found = found.replace(ark=ark, trace=trace, candidates=ranked)
    return respond(found)


def _for_public(step: Step) -> Step:
    """Return a step without the gateway's DNS servers: without their addresses and the notes that name them."""
    if step.rdtype == TABLE:
        return step
    links = tuple(link.replace(server="") for link in step.links)
    names_none = step.outcome.answered or step.outcome in (Outcome.LIMIT, Outcome.NO_ORIGIN, Outcome.BOGUS)
    return step.replace(server="", note=step.note if names_none else "", links=links)


def answer(request: Request, ark: Ark, found: Discovery, site: Site, form: str = "") -> Response:
    """Return the response to a request for an ARK. ``form`` is the request's parameter ``maptr``.

    A response that depends on the Host header must not be cached, because shared caches do not tell requests apart by
    it.
    """
    urls = found.urls()
    here = _own_urls(request, ark, urls, site)
    response = _answer(request, ark, found, urls, here, site, form)
    return not_kept(response) if here and not site.settings.public_url else response


def _answer(
    request: Request, ark: Ark, found: Discovery, urls: list[str], here: Collection[str], site: Site, form: str
) -> Response:
    """Return the response, which leads to none of the URLs ``here``."""
    if not site.answers_for(ark.naan):
        return _not_ours(request, ark, site)
    if not found.candidates and found.source != OWN:  # an own object that is gone is reported below
        return _none(request, ark, found, site) if found.complete else _unknown(request, ark, found, site)
    headers = provenance(found, request.now, site.settings)
    inflection = ark.inflection
    own = found.own.object if isinstance(found, OwnDiscovery) else None
    if own is not None and inflection and own.is_described:
        return describe.own_object(request, ark, own, site, form=form, source=headers)
    if own is not None and own.is_gone:
        succeeded = (("Link", f'<{own.successor}>; rel="successor-version"'),) if own.successor else ()
        return failure(request, site, HTTPStatus.GONE, found.reason, (*headers, *succeeded), ark, found)
    if detail := missing(ark, found, site, request):
        headers = (*headers[:1], *kept(int(request.now), site.settings.max_age_missing))
        meant = suggest.of(site, ark)
        return failure(request, site, HTTPStatus.NOT_FOUND, detail, headers, ark, found, meant=meant)
    if form == LIST or (own is None and wants_list(request, form)):
        return authorities(request, ark, found, site, headers, [where for where in urls if where not in here] or urls)
    if inflection and (metadata := _metadata(ark, site)) and metadata not in here:
        return redirect(request, site, ark, metadata, None, headers)
    describes = site.settings.inflections == "describe"
    for best, target in zip(found.candidates, urls, strict=True):
        if target in here:
            continue
        takes_none = own is not None and own.has_query  # no inflection can be added to it
        if inflection and (describes or takes_none or site.is_suspect(best, found, request.now)):
            break
        wanted = best.status or site.status(ark, target)
        is_allowed = wanted in (STATUSES if own is None else objects.REDIRECTING)
        return redirect(request, site, ark, target, wanted if is_allowed else None, headers, own=own)
    source = headers[:1] if own is None else table_source(site, ark, request.now)
    return describe.respond(request, ark, site, found=None if own else found, form=form, source=source)


def missing(ark: Ark, found: Discovery, site: Site, request: Request) -> str:
    """Return why an ARK has no object: its NAAN leads only to this gateway, which has others; "" if it may have one."""
    if not site.answers_for(ark.naan):
        return NOT_OURS.format(ark.naan)
    if not (ark.name and found.candidates) or found.source == OWN or ark.naan not in site.objects.naans:
        return ""
    host = request.headers.get("host", "")
    is_here = all(site.ends_here(where, host) for where in found.urls())
    return f"no object is registered as {ark}, and this gateway alone answers for NAAN {ark.naan}" if is_here else ""


def _own_urls(request: Request, ark: Ark, urls: list[str], site: Site) -> list[str]:
    """Return the URLs, among those that decide the answer, that lead to the gateway itself and nowhere else."""
    host, others = request.headers.get("host", ""), []
    if not urls:
        root, entry = site.settings.root, site.table.lookup(ark)
        others = [f"{root}/{_path(ark)}" if root else "", *(entry.urls(ark) if entry is not None else ())]
    if ark.tail:
        others.append(_metadata(ark, site))
    own = [where for where in urls if site.ends_here(where, host)]
    return own + [where for where in others if where and site.is_own(where, host)]


def _metadata(ark: Ark, site: Site) -> str:
    target = site.settings.metadata
    return target and target.replace("${pid}", _path(ark)).replace("${inflection}", ark.tail)


def wants_list(request: Request, form: str) -> bool:
    return form == LIST or request.names(LINKSET, LINKSET_TEXT)


def redirect(
    request: Request,
    site: Site,
    ark: Ark,
    target: str,
    status: int | None,
    headers: Headers,
    *,
    own: OwnObject | None = None,
) -> Response:
    """Return a temporary redirect. An ``own`` object's does not depend on the Accept header.

    After a POST of an ARK it is 303, so that the client continues with a GET. Any other request that is not a GET goes
    to the authority unchanged, with its body (RFC 9110 15.4.8).
    """
    if len(target) > MAX_URL:
        detail = f"the URL of the ARK has more than {MAX_URL} bytes"
        return failure(request, site, HTTPStatus.REQUEST_URI_TOO_LONG, detail)
    code = status or HTTPStatus.FOUND
    if request.method not in ("GET", "HEAD"):
        code = HTTPStatus.SEE_OTHER if request.path == "/" else HTTPStatus.TEMPORARY_REDIRECT
    # The references are relative to the request: several long ARKs do not fit in a header.
    here = "" if _LABELLED.match(request.path) else f"/{_path(ark)}"
    link = f'<{here}?info>; rel="describedby"; type="text/plain"'
    if not here:
        link += f', <?maptr=list>; rel="linkset"; type="{LINKSET}"'
        base = site.settings.public_url
        link += f', <{base}/{_path(ark)}>; rel="cite-as"' if base else ""
    varies = _VARIES if own is None else ()
    if own is not None and own.is_described:
        link += f', <{here}?info>; rel="describedby"; type="{LD}"'
    given = (("Content-Type", TEXT), ("Location", target), *varies, ("Link", link), *headers)
    return Response(code, given, f"{target}\n".encode("ascii", "replace"))


def provenance(found: Discovery, now: float, settings: GatewayConfig) -> Headers:
    """Return ``Maptr-Source``, and how long the response may be cached.

    ``Maptr-Source`` is a structured field (RFC 9651): dns, memory, disk or natab, with the parameters ``table`` (its
    kind, unless it was given by ``--table``), ``date`` of its data, ``stale``, ``age`` in seconds and ``reason``.
    """
    if isinstance(found, OwnDiscovery):
        return ("Maptr-Source", OWN), *kept(int(now), found.ttl or 0)
    value = found.source
    if found.table not in ("", GIVEN):
        value += f";table={found.table}"
    if found.table_date is not None:
        value += f';date="{day(found.table_date)}"'
    if found.stale:
        value += ";stale"
    age = found.age_at(now)
    if age is not None and (found.stale or found.source != "dns"):
        value += f";age={int(age)}"
    if found.reason and (found.stale or found.source == "natab"):
        value += f";{_reason(found.reason)}"
    if found.stale:
        seconds = STALE_AGE
    elif found.expiration is None:
        seconds = 0
    else:
        seconds = settings.max_age if found.source == "natab" else int(found.expiration - now)
    return ("Maptr-Source", value), *kept(int(now), seconds)


def table_source(site: Site, ark: Ark, now: float) -> Headers:
    """Return ``Maptr-Source`` for an answer from the table without a discovery."""
    state = site.table_state
    stale, reason = bool(state.trouble), state.trouble
    found = Discovery(
        ark,
        source="natab",
        stale=stale,
        reason=reason,
        fetched=state.fetched,
        table=state.kind,
        table_date=state.date,
    )
    return provenance(found, now, site.settings)[:1]


@lru_cache(maxsize=10_000)
def _reason(text: str) -> str:
    """Return the parameter ``reason`` of a structured field: an ASCII string (RFC 9651 4.1.6)."""
    plain = printable(text).encode("ascii", "replace").decode()
    return 'reason="{}"'.format(plain.replace("\\", "\\\\").replace('"', '\\"'))


def _path(ark: Ark) -> str:
    """Return the ARK as the path of a URL; a bare NAAN without a slash (draft table 1)."""
    return ark.in_url if ark.name else str(ark)


def authorities(
    request: Request, ark: Ark, found: Discovery, site: Site, headers: Headers, urls: Sequence[str]
) -> Response:
    """Return ``urls``, the URLs at all mapping authorities, best first (the "discriminated list" of draft 5.1), as a
    link set (RFC 9264).

    Further links lead from the ARK to its description, and from each URL to the ARK as the one to cite
    (signposting.org).
    """
    headers = (*_VARIES, *headers)
    kind = request.prefers(LINKSET, LINKSET_TEXT, JSON, HTML, TEXT)
    if kind == HTML:
        about = {"ark": ark, "listed": pages.listed(urls), **pages.walk(ark, found)}
        return pages.page("authorities.html", request, site, HTTPStatus.OK, headers, **about)
    if kind == TEXT:
        return text("".join(f"{where}\n" for where in urls), headers=headers)
    base = site.settings.public_url or _base(request, site)
    itself = f"{base}/{_path(ark)}"
    described = [{"href": f"{itself}?info", "type": each} for each in ("text/plain", "text/html", JSON, LD)]
    links: list[dict[str, Any]] = [
        {"anchor": itself, "alternate": [{"href": where} for where in urls], "describedby": described},
        *({"anchor": where, "cite-as": [{"href": itself}]} for where in urls),
    ]
    if kind == LINKSET_TEXT:
        made = Response(HTTPStatus.OK, (("Content-Type", kind), *headers), _as_text(links).encode("ascii", "replace"))
    else:
        made = as_json({"linkset": links}, headers=headers, kind=kind)
    return made if site.settings.public_url else not_kept(made)


def _base(request: Request, site: Site) -> str:
    """Return the base URL at which the client reached the gateway, as far as the request says."""
    host = request.headers.get("host", "")
    return f"{'http' if site.settings.certificate is None else 'https'}://{host}" if host else ""


def _as_text(contexts: list[dict[str, Any]]) -> str:
    """Return a link set in the form of the Link header (RFC 9264 4.1)."""
    return ",\n".join(
        f'<{link["href"]}>; rel="{rel}"; anchor="{context["anchor"]}"'
        + (f'; type="{link["type"]}"' if "type" in link else "")
        for context in contexts
        for rel, links in context.items()
        if rel != "anchor"
        for link in links
    )


def _not_ours(request: Request, ark: Ark, site: Site) -> Response:
    """Return the response for a NAAN that is not the operator's: a redirect to ``root``, else 404."""
    settings, now = site.settings, int(request.now)
    if settings.root:
        headers = kept(now, settings.max_age)
        return redirect(request, site, ark, f"{settings.root}/{_path(ark)}{ark.tail}", None, headers)
    detail, headers = NOT_OURS.format(ark.naan), kept(now, settings.max_age_missing)
    return failure(request, site, HTTPStatus.NOT_FOUND, detail, headers, ark)


def _none(request: Request, ark: Ark, found: Discovery, site: Site) -> Response:
    """Return the response if DNS or the table denies the ARK: a redirect to ``root``, else an error."""
    settings, now = site.settings, int(request.now)
    source = provenance(found, request.now, settings)[:1]
    root, host = settings.root, request.headers.get("host", "")
    target = f"{root}/{_path(ark)}{ark.tail}"
    if root and not site.is_own(target, host) and not site.is_circular(ark, host):
        return redirect(request, site, ark, target, None, (*source, *kept(now, settings.max_age)))
    check_unread(site)
    detail = str(why(found))
    if ark.shared is not None and not ark.shared.resolves:
        detail += (
            f". NAAN {ark.naan} is shared by all organisations, for {ark.shared.meaning}: its ARKs need not resolve"
        )
    headers = (*source, *kept(now, settings.max_age_missing))
    return failure(request, site, HTTPStatus.NOT_FOUND, detail, headers, ark, found, meant=suggest.of(site, ark))


def _unknown(request: Request, ark: Ark, found: Discovery, site: Site) -> Response:
    return failure(request, site, HTTPStatus.SERVICE_UNAVAILABLE, str(why(found)), retry(found), ark, found)


def check_unread(site: Site) -> None:
    """Raise Unreadable if an ARK without a mapping authority may be an own object in a file that was never read."""
    if isinstance(site.objects, objects.UnreadObjects) and site.objects.may_have_any:
        raise Unreadable(objects.UNREADABLE)


def retry(found: Discovery) -> Headers:
    """Return the headers of a 503: when to ask again, but only if waiting helps (RFC 9110 10.2.3)."""
    wait = (("Retry-After", str(RETRY_AFTER)),) if found.may_pass else ()
    return (*wait, ("Cache-Control", "no-store"))


def why(found: Discovery) -> str | None:
    """Return the error that ``discover`` would raise for a discovery; None if it has candidates."""
    try:
        found.raise_for_none()
    except DiscoveryError as error:
        return str(error)
    return None


def failure(
    request: Request,
    site: Site,
    status: HTTPStatus,
    detail: str,
    headers: Headers = (),
    ark: Ark | None = None,
    found: Discovery | None = None,
    *,
    meant: str = "",
) -> Response:
    """Return an error as a page, as plain text or as problem details, whichever the client prefers.

    ``meant`` is the ARK that the client perhaps meant. The page says in the reader's language what happened and, for an
    own object that is gone, what it was.
    """
    gone = found.own.object if isinstance(found, OwnDiscovery) and status == HTTPStatus.GONE else None
    elsewhere = "" if ark is None or site.answers_for(ark.naan) else f"{CENTRAL}/{_path(ark)}"
    reason = "not-ours" if elsewhere else _reason_of(status, found)
    headers = (*_VARIES, *headers)
    kind = request.prefers(TEXT, HTML, PROBLEM, JSON)
    if kind == HTML:
        about = {"detail": detail, "status": status, "reason": reason, "ark": ark, "gone": gone, "meant": meant}
        about["elsewhere"] = elsewhere
        entry = None if ark is None else site.table.lookup(ark)
        about |= {"entry": entry, **pages.walk(ark, found)}
        made = pages.page("failure.html", request, site, status, headers, **about)
    else:
        detail = printable(detail) if kind == TEXT else detail
        if status == HTTPStatus.SERVICE_UNAVAILABLE and found is not None:  # the page has its own paragraph about it
            detail += f"\n{pages.remedy(found)}" % {"naan": found.ark.naan, "origin": found.missing_origin}
        if kind == TEXT:
            hint = f"is it {meant}?\n" if meant and f"is it {meant}?" not in detail else ""
            made = text(f"{status.value} {status.phrase}\n{detail}\n{hint}", status, headers)
        else:
            members = {"ark": "" if ark is None else str(ark), "suggestion": meant}
            members |= {} if gone is None else objects.withdrawal(gone, site.settings.name)
            made = problem(status, detail, headers, **{name: value for name, value in members.items() if value})
    return made._replace(reason=reason, meant=meant)


def _reason_of(status: HTTPStatus, found: Discovery | None) -> str:
    """Return why a request failed: one of the few words that the statistics count."""
    if found is None or status == HTTPStatus.GONE:
        return _REASONS.get(status, "")
    if found:
        return "no-object"
    if found.decisive is None:
        return "not-in-table" if found.complete else "not-asked"
    return found.decisive.outcome.name.lower().replace("_", "-")
