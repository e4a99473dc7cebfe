"""From a request to its response, without I/O. If an ARK must be looked up first, ``route`` returns a ``Lookup``.

answer = route("GET", "/ark:12345/x6np1wh8k?info", {"accept": "*/*"}, site)
if isinstance(answer, Lookup):
    response = answer.respond(await cache.discover_async(answer.ark))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from urllib.parse import quote, unquote, unquote_plus

from maptr.ark import MAX_TEXT, Ark, first_arks
from maptr.config.model import GatewayConfig
from maptr.discovery import Discovery
from maptr.errors import ArkSyntaxError, printable
from maptr.gateway import api, describe, doh, objects, pages, resolve, suggest
from maptr.gateway.message import Answer, Headers, Request, Response, Unreadable, preflight, text, unchanged
from maptr.gateway.objects import FoundObjects
from maptr.gateway.resolve import failure
from maptr.gateway.site import Site
from maptr.registry.search import MAX_QUERY
from maptr.registry.table import normal_key

METHODS = ("GET", "HEAD", "OPTIONS", "POST")
ARK_METHODS = (*METHODS, "PUT", "DELETE")  # for an ARK in the path: those after METHODS are for its authority
METRICS = "/metrics"
INFO = "/.info/"  # before an ARK, it means ?info, as on n2t.net

_LABEL = re.compile(r"(?ai)(?:(?<![0-9a-z])|(?<=%[0-9a-f]{2}))ark(?::|%3A)")
ORIGIN = re.compile(r"(?i)https?://([^/?@]*)(?![^/?])")  # before the path, instead of the Host header (RFC 9112 3.2.2)
_OTHER = re.compile(r"(?i)/https?:/")  # another resolver's URL, which may have the ARK in its query string
# White space, dashes and invisible characters in a pasted text, as a browser encodes them. No ARK contains them.
_INERT = re.compile(
    "(?i)%(?:0[9A-D]|1[C-F]|20|2D)|%C2%(?:85|A0|AD)|%E1%9A%80|%E2%80%(?:8[0-9A-F]|9[0-5]|A[89A-F])|%E2%81%(?:9F|A[0-9])"
    "|%E2%88%92|%E3%80%80|%EF%BB%BF|%EF%B9%(?:98|A3)|%EF%BC%8D"
)

# Scripts of other sites may read public responses, because none depends on credentials. They may not read what is for
# operators, whose browsers reach addresses that others do not.
_FOR_OPERATORS = (METRICS, "/ready", "/status", f"{api.BASE}status", "/links", "/links.csv")
_PAGES = ("/drift/", "/links/", "/servers/", "/stats/", "/status/", pages.NAANS)  # with a surplus final slash
_STATISTICS = ("/stats", "/stats.csv", f"{api.BASE}stats")
CORS: Headers = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", "*"))


def route(
    method: str,
    raw_target: str,
    headers: Mapping[str, str],
    site: Site,
    *,
    body: bytes = b"",
    now: float = 0.0,
    client: str = "",
    is_admin: bool = False,
) -> Answer:
    """Return the response, the ARK to look up first, the ARKs of a response in lines, or the work for a thread.

    ``raw_target`` is as received. ``now`` is wall-clock time. ``client`` is the client's address, which the DNS rules
    need. ``is_admin``: the request came to an operator address, which alone answers what is for operators.
    """
    if raw_target[:1] != "/":
        if absolute := ORIGIN.match(raw_target):
            raw_target = raw_target[absolute.end() :]
            headers = {name.lower(): value for name, value in headers.items()} | {"host": absolute[1]}
        raw_target = "/" + raw_target.removeprefix("/")
    if "[" in raw_target or "]" in raw_target:  # browsers send them, although RFC 3986 does not allow it
        raw_target = raw_target.replace("[", "%5B").replace("]", "%5D")
    return _route(Request(method, raw_target, headers, body, now, client, is_admin or not site.has_admin), site)


def finished(
    response: Response, method: str, raw_target: str, headers: Mapping[str, str], settings: GatewayConfig
) -> Response:
    """Return a response as it is sent: scripts of other sites may read it, unless it is for operators, and it is 304
    for a client that still has it (RFC 9110 13.1.2)."""
    path = raw_target.partition("?")[0]
    if path[:1] == "/" and path not in _FOR_OPERATORS and (path not in _STATISTICS or settings.public_stats):
        response = response._replace(headers=response.headers + CORS)
    return unchanged(method, headers, response) if response.status == HTTPStatus.OK else response


def _route(request: Request, site: Site) -> Answer:
    path = request.path
    has_label = path.startswith("/ark:") or _LABEL.search(_as_pasted(path))
    if path.startswith("/api/") and not has_label:
        return api.respond(request, site)
    methods = ARK_METHODS if has_label else METHODS
    if request.method not in methods:
        headers = (("Allow", ", ".join(methods)),)
        return text(f"{request.method} is not allowed\n", HTTPStatus.METHOD_NOT_ALLOWED, headers)
    if request.method == "OPTIONS":
        return preflight(methods)
    if has_label and path.startswith(INFO):
        return _resolve(request, f"{path.removeprefix(INFO)}?info", site)
    if has_label:
        return _resolve(request, request.target, site)
    if _OTHER.match(path) and (found := first_arks(request.target, 1)):
        return _resolve(request, f"{found[0].resolution}{found[0].tail}", site)
    if path == api.OVERVIEW:
        return api.page(request, site)
    if path == doh.PATH:
        return doh.respond(request, site)
    if request.method == "POST":
        return _resolve(request, _posted(request), site) if path == "/" else _not_found(request, site)
    if path == "/health":
        return text("ok\n", headers=(("Cache-Control", "no-store"),))
    if path == "/ready":
        return _ready(site)
    if path == METRICS and site.metrics is not None and request.is_admin:
        return site.metrics()
    if path == "/":
        return _home(request, site)
    return pages.respond(request, site) or _slash(request) or _not_found(request, site)


def _posted(request: Request) -> str:
    """Return the ARK in the body of a POST: a form's only field ``ark``, or the whole text, as curl sends it."""
    body = request.body.decode("utf-8", "replace")
    is_form = request.media_type == "application/x-www-form-urlencoded"
    return unquote_plus(body[4:]) if is_form and body.startswith("ark=") and "&" not in body else body


def _as_pasted(path: str) -> str:
    """Return a path in which characters that no ARK contains are decoded, as they were pasted."""
    return _INERT.sub(lambda encoded: unquote(encoded[0]), path) if "%" in path else path


Show = Callable[[Response, Discovery | None], Response]


def _resolve(request: Request, received: str, site: Site, show: Show = lambda response, found: response) -> Answer:
    """Return the response to a text or target with an ARK in it.

    ``show`` makes a search's page from that response and the discovery that led to it.
    """
    if received.startswith("/ark:"):
        received = received[1:]  # the form of an ARK that is read fastest
    path, mark, query = received.partition("?")
    try:
        ark = Ark.parse(f"{_as_pasted(path)}{mark}{query}" if "%" in path else received, bare=True, wrapped=True)
        ark = ark.sent(site.hyphens)
    except ArkSyntaxError as error:
        is_long = len(received) > MAX_TEXT
        status = HTTPStatus.REQUEST_URI_TOO_LONG if is_long else HTTPStatus.BAD_REQUEST
        meant = "" if is_long else suggest.spelled(site, error.suggestion or received)
        return show(failure(request, site, status, str(error), meant=meant), None)
    if len(ark.in_url) > resolve.MAX_ARK:
        detail = f"an ARK of more than {resolve.MAX_ARK} bytes"
        return show(failure(request, site, HTTPStatus.REQUEST_URI_TOO_LONG, detail), None)
    ark, form = resolve.split_parameter(ark)
    key = ark.without_hyphens.removeprefix("ark:").rstrip("/")
    own = resolve.own_object(ark, site)
    is_record = key in site.table  # a bare NAAN or shoulder
    if is_record and own is None and not resolve.wants_list(request, form):
        entry = site.table[key]
        source = resolve.table_source(site, ark, request.now)
        return show(describe.respond(request, ark, site, entry=entry, form=form, source=source), None)
    return resolve.look_up(ark, own, site, request.now, partial(_answer, request, ark, site, form, show))


def _answer(request: Request, ark: Ark, site: Site, form: str, show: Show, found: Discovery) -> Response:
    return show(resolve.answer(request, ark, found, site, form), found)


def _home(request: Request, site: Site) -> Answer:
    """Return the search page. An ARK in the searched text is looked up and explained, not followed."""
    searched = request.parameter("q")
    if not searched.strip():
        return pages.home(request, site)
    try:
        ark, _ = resolve.split_parameter(pages.searched(searched))
    except ArkSyntaxError as error:
        return partial(_search, request, site, searched, error)
    ark = ark.sent(site.hyphens)
    target = f"/{ark.in_url if ark.name else ark}{ark.tail}"
    followed = request._replace(target=target, headers={"host": request.headers.get("host", "")})
    return _resolve(followed, target, site, partial(pages.result, request, site, ark))


def _search(request: Request, site: Site, searched: str, error: ArkSyntaxError) -> Response:
    """Return the page of the own objects and NAANs that match a text; a redirect to the NAANs if only these match; else
    the search page with the ``error``. Raises Unreadable if it is not known whether objects match."""
    found = FoundObjects() if error.labelled else site.find(searched)
    naans = [] if error.labelled or error.suggestion else site.search(searched)
    if found.objects:
        return pages.found(request, site, searched, found, naans)
    if not naans:
        if not found.is_whole:
            raise Unreadable(objects.UNREADABLE)
        return pages.home(request, site, error)
    where = f"/naan/{naans[0].naan}" if len(naans) == 1 else f"/naan/?q={quote(searched[:MAX_QUERY], safe='')}"
    return text("", HTTPStatus.SEE_OTHER, (("Location", where),))


def _ready(site: Site) -> Response:
    status = HTTPStatus.SERVICE_UNAVAILABLE if site.troubles else HTTPStatus.OK
    lines = [*(site.troubles or ("ready",)), *(f"source: {source}" for source in site.sources or ())]
    return text("".join(f"{printable(line)}\n" for line in lines), status, (("Cache-Control", "no-store"),))


def _slash(request: Request) -> Response | None:
    """Return a redirect for a page's path with a surplus final slash, or for that of the list of NAANs without one."""
    path, mark, query = request.target.partition("?")
    if f"{path}/" == pages.NAANS:
        path = pages.NAANS
    elif path.endswith("/") and path.startswith(_PAGES):
        path = path.rstrip("/")
    else:
        return None
    return text("", HTTPStatus.FOUND, (("Location", f"{path}{mark}{query}"),))


def _not_found(request: Request, site: Site) -> Response:
    detail = "there is nothing here: an ARK starts with /ark:"
    naan = normal_key(request.path.removeprefix(pages.NAANS)) if request.path.startswith(pages.NAANS) else ""
    if naan and "/" not in naan:
        detail = f"NAAN {naan} is not in the table, and the last comparison did not find it in DNS"
    return failure(request, site, HTTPStatus.NOT_FOUND, detail, meant=suggest.spelled(site, request.path))
