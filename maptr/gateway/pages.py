"""HTML pages, made from the templates in this folder. They need no scripts, and load nothing from other sites.

``drift_file`` makes the file of ``maptr table drift --html`` from the same templates. Texts from ARKs, the registry and
DNS may be hostile and of any length: the templates escape them all and shorten long ones, so that each page has less
than 50 KB.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from importlib import resources
from types import CodeType
from typing import Any, Generic, NamedTuple, TypeVar, cast
from urllib.parse import urlencode

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from maptr import __version__, url
from maptr.ark import Ark, first_arks
from maptr.config.colour import DARK, GOOD_CONTRAST, readable
from maptr.config.model import BROWSER
from maptr.discovery import Discovery
from maptr.errors import ArkSyntaxError, cell, json_text, time_text, visible
from maptr.gateway import drawing, servers
from maptr.gateway.drawing import MARKS, RANKS, shorten
from maptr.gateway.language import ENGLISH, Language, built_in, preferred
from maptr.gateway.links.check import LINK_COLUMNS, LinkReport, LinkRow, LinkState, link_cells
from maptr.gateway.message import HTML, Headers, Request, Response, Work, not_kept, text
from maptr.gateway.objects import FoundObjects, OwnDiscovery, OwnObject
from maptr.gateway.site import DriftReport, Site, Traffic
from maptr.gateway.statistics import DAYS, DAYS_KEPT, NAAN, TABLES_OF_REPORT, Readings, Report
from maptr.reconcile.probes import Liveness
from maptr.reconcile.verdict import AGREES, Drift, Verdict
from maptr.registry.dates import day
from maptr.registry.search import MAX_QUERY
from maptr.registry.table import Entry, Table, normal_key
from maptr.registry.target import UNKNOWN, example_url

# It allows only the gateway's own style, images and forms.
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# For a logo opened by itself: an SVG may contain styles and pictures, but no script.
LOGO_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
_SAFE: Headers = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
)
_DAY: Headers = (("Cache-Control", "max-age=86400"),)
_MINUTES: Headers = (("Cache-Control", "max-age=300"),)
ATOM, CSV = "application/atom+xml", "text/csv; charset=utf-8"
NAANS = "/naan/"  # the path of the list of NAANs, and of the page of each below it
STYLE, ICON, LOGO = "/style.css", "/icon.svg", "/logo"
_MARK = b'<meta name="generator" content="maptr">'

MAX_SITEMAP = 50_000  # addresses of one sitemap
ROOM = 22_000  # bytes of one list on a page
MAX_NAANS = 100  # on one page of their list
MAX_LINKS = 100  # on one page of failed links
MAX_LINK_LINES = 50_000  # of failed links as CSV; maptr redirects probe gives all
MAX_MONTH_SHOULDERS = 6  # columns in the table of months
MAX_SHOWN = 10  # deviating records on the first page, and changes to a record
MAX_LINK = 1_000  # characters of a URL or an ARK to which a page links
MINUTE = 60  # seconds for which a page may show the same time of day
STEPS_ROOM = 6_000  # bytes for the steps of a walk
MAX_URLS = 4  # on one side of a record
LONG, SHORT = 400, 120  # characters of a text

T = TypeVar("T")


class Part(NamedTuple, Generic[T]):
    """One page of a longer list, its number from 1, and the last page's number."""

    items: Sequence[T]
    number: int
    last: int


class Fact(NamedTuple):
    """The verdict on a record, and its organisation."""

    drift: Drift
    name: str


# ---- texts


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


TEMPORARY = "DNS gave no answer, and no earlier answer is cached. Try again in half a minute."
NO_ORIGIN = (
    "The DNS servers of this gateway do not have the zone %(origin)s, and no table has this NAAN. Only the operator of"
    " the gateway can change that."
)
PERMANENT = "Waiting alone does not help: ask the operator of this gateway or the organisation of NAAN %(naan)s."


def remedy(found: Discovery) -> str:
    """Return what helps a visitor if the mapping authority is not known, as a message with the placeholders ``origin``
    and ``naan``."""
    return TEMPORARY if found.may_pass else NO_ORIGIN if found.missing_origin else PERMANENT


def is_link(text: str) -> bool:
    """Return True for a URL that a page may link to, and that is not too long."""
    if len(text) > MAX_LINK:
        return False
    try:
        url.parse(text)
    except ValueError:
        return False
    return True


def _data(value: Any) -> Markup:
    """Return JSON for a ``script`` element, which no text in it can close."""
    text = json_text(value).replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
    return Markup(text)  # noqa: S704 - without markup


@lru_cache
def _file(name: str) -> bytes:
    return resources.files("maptr.gateway").joinpath("templates", name).read_bytes()


@lru_cache(maxsize=8)
def _style(accent: str, accent_dark: str) -> bytes:
    """Return the style sheet with these colours for links and buttons; the dark theme's default is lighter."""
    sheet = _file("style.css").decode()
    if accent:
        dark = accent_dark or readable(accent, DARK, GOOD_CONTRAST)
        sheet += f":root {{ --link: {accent}; }}\n"
        sheet += f"@media (prefers-color-scheme: dark) {{ :root {{ --link: {dark}; }} }}\n"
    return sheet.encode()


@lru_cache(maxsize=16)
def _version(content: bytes) -> str:
    """Return a version for a file's URL, which changes with its content."""
    return hashlib.sha256(content).hexdigest()[:12]


class _Compiled(BytecodeCache):
    """Compiles templates once for all languages."""

    def __init__(self) -> None:
        self._codes: dict[str, CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get(bucket.key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key] = cast(CodeType, bucket.code)


_compiled = _Compiled()


@lru_cache(maxsize=128)
def _environment(language: Language) -> Environment:
    made = Environment(
        loader=PackageLoader("maptr.gateway"),
        extensions=["jinja2.ext.i18n"],
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        optimized=False,  # no result of a filter is compiled in, because it depends on the language
        bytecode_cache=_compiled,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.newstyle_gettext = True  # type: ignore[attr-defined]
    made.filters |= {
        "number": language.number,
        "span": language.span,
        "day": day,
        "moment": moment,
        "rfc3339": time_text,
        "shorten": shorten,
        "data": _data,
    }
    made.tests["link"] = is_link
    made.globals |= {
        "_": language.gettext,
        "gettext": language.gettext,
        "ngettext": language.ngettext,
        "language": language.code,
        "version": __version__,
        "marks": MARKS,
        "agrees": AGREES,
        "long": LONG,
        "short": SHORT,
        "max_urls": MAX_URLS,
        "max_shown": MAX_SHOWN,
        "square": drawing.SQUARE,
    }
    return made


# ---- the pages of the gateway


def prepare(languages: Iterable[Language]) -> None:
    """Compile the templates, which takes longer than a request may."""
    for environment in map(_environment, languages):
        for name in environment.list_templates(["html", "atom", "xml"]):
            environment.get_template(name)


def respond(request: Request, site: Site) -> Response | Work | None:
    """Return the page at a path, or for a list of the whole table the work for a thread; None if there is none."""
    path = request.path
    logo = site.appearance.logo
    if path == STYLE:
        sheet = _style(site.settings.accent, site.settings.accent_dark)
        return Response(HTTPStatus.OK, (("Content-Type", "text/css; charset=utf-8"), *_DAY), sheet)
    if path == ICON:
        return Response(HTTPStatus.OK, (("Content-Type", "image/svg+xml"), *_DAY), _file("icon.svg"))
    if path == LOGO and logo is not None:
        about = ("Content-Type", logo.kind), ("Content-Security-Policy", LOGO_POLICY)
        return Response(HTTPStatus.OK, (*about, *_DAY), logo.content)
    if path == "/drift" and site.has_drift:
        return partial(_drift, request, site)
    if path == "/status" and request.is_admin:
        return partial(_status, request, site, site.traffic and site.traffic())
    if path in ("/links", "/links.csv") and request.is_admin and (links := site.links):
        return partial(_links if path == "/links" else _links_table, request, site, links)
    if path == "/stats" and (statistics := site.statistics_for(request)):
        days, period = _number(request, "days", DAYS, DAYS_KEPT), request.parameter("period")
        try:
            report = statistics(None if period else days, period)
        except ValueError:
            period, report = "", statistics(days, "")
        return lambda: _statistics(request, site, days, period, report())
    if path == "/stats.csv" and (statistics := site.statistics_for(request)):
        return _statistics_table(request, site, statistics)
    if path == "/servers":
        return partial(_servers, request, site)
    if path == "/servers.atom":
        key = servers.feed, int(request.now) // MINUTE
        feed = partial(servers.feed, site, request.now)
        return lambda: site.once(key, lambda: _document("servers.atom", ATOM, _MINUTES, feed()))
    if path == "/favicon.ico":
        return Response(HTTPStatus.FOUND, (("Location", LOGO if logo else ICON), *_DAY))
    base = site.settings.public_url
    if path == "/robots.txt":
        where = f"Sitemap: {base}/sitemap.xml\n" if base else ""
        hidden = "".join(f"Disallow: {each}\n" for each in ("/stats", "/status", "/links", "/drift", "/api/"))
        return text(f"User-agent: *\n{hidden}{where}", headers=_DAY)
    if path == "/sitemap.xml" and base:
        return lambda: site.once("sitemap", lambda: _document("sitemap.xml", "application/xml", _DAY, _sitemap(site)))
    if path == NAANS:
        return partial(_naans, request, site)
    if path.startswith(NAANS):
        return _naan(request, site)
    return None


def searched(text: str) -> Ark:
    """Return the ARK that a text is, or the only one in it. Raises ArkSyntaxError."""
    try:
        return Ark.parse(text, bare=True, wrapped=True)
    except ArkSyntaxError:
        found = first_arks(text, 2)
        if len(found) != 1:
            raise
        return found[0]


def home(request: Request, site: Site, error: ArkSyntaxError | None = None) -> Response:
    """Return the first page; with an ``error``, after a search for a text without an ARK."""
    return page(
        "home.html",
        request,
        site,
        is_error=error is not None,
        problem=str(error) if error is not None and error.labelled else "",
        meant="" if error is None else error.suggestion,
    )


def found(request: Request, site: Site, query: str, made: FoundObjects, naans: Sequence[Entry]) -> Response:
    """Return the page of the own objects and NAANs that match a text without an ARK."""
    return page(
        "found.html",
        request,
        site,
        query=query[:MAX_QUERY],
        total=len(made.objects),
        is_whole=made.is_whole,
        listed=_part(made.objects, _object_weight, _number(request, "page")),
        entries=naans[:MAX_SHOWN],
        entry_count=len(naans),
    )


def result(request: Request, site: Site, ark: Ark, answer: Response, found: Discovery | None) -> Response:
    """Return the page of a search: the ARK, the gateway's ``answer`` to it, and the discovery, if any, behind that."""
    ark = ark if found is None else found.ark
    target = answer.header("Location")
    text = f"{ark.in_url if ark.name else ark}{ark.tail}"
    urls = [] if found is None else found.urls()
    own = found.own.object if isinstance(found, OwnDiscovery) else None
    host = request.headers.get("host", "")
    others = [where for where in urls if where != target and not site.is_own(where, host)]
    return page(
        "search.html",
        request,
        site,
        ark=ark,
        target=target,
        answer=answer,
        phrase=HTTPStatus(answer.status).phrase,
        text=text,
        is_long=len(text) > MAX_LINK,
        others=_part(others, _url_weight, room=STEPS_ROOM),
        gone=own if own is not None and own.is_gone else None,
        entry=site.table.lookup(ark),
        age=None if found is None else found.age_at(request.now),
        is_single=own is not None,
        **walk(ark, found, target),
    )


@lru_cache(maxsize=1)
def _overview(report: DriftReport, table: Table) -> dict[str, Any]:
    """Return a comparison's map, its counts, and its deviating records, worst first. Making them takes milliseconds;
    they do not change until the next comparison."""
    worst = drawing.worst_of(report.verdicts)
    return {
        "report": report,
        "map": drawing.drift_map(worst, partial(_name, table)) if worst else None,
        "counts": Counter(one.verdict for one in report.verdicts),
        "records": len(report.verdicts),
        "drifting": sum(one.verdict.is_drift for one in report.verdicts),
        "compared": len(worst),
        "deviating": _facts(table, [one for one in report.verdicts if one.verdict not in AGREES]),
    }


def _facts(table: Table, verdicts: Iterable[Drift]) -> list[Fact]:
    ordered = sorted(verdicts, key=lambda one: (RANKS[one.verdict], one.record))
    return [Fact(one, _name(table, one.record)) for one in ordered]


def _name(table: Table, record: str) -> str:
    """Return a record's organisation; the NAAN's for a shoulder that is not in the table."""
    entry = table.get(record) or table.get(record.partition("/")[0])
    return "" if entry is None else entry.who.name or entry.who.acronym or ""


def _sitemap(site: Site) -> dict[str, Any]:
    return {"base": site.settings.public_url, "naans": site.table.naans()[: MAX_SITEMAP - 1]}


def _status(request: Request, site: Site, traffic: Traffic | None) -> Response:
    return page("status.html", request, site, traffic=traffic, **_overview(site.drift, site.table))


def _drift(request: Request, site: Site) -> Response:
    report = site.drift
    named = request.parameter("verdict")
    verdict = next((one for one in Verdict if one == named), None)
    shown = [one for one in report.verdicts if one.verdict is verdict or (not verdict and one.verdict not in AGREES)]
    parts = site.once((_drift, verdict), lambda: _parts(_facts(site.table, shown), _fact_weight))
    listed = _one_of(parts, _number(request, "page"))
    return site.once(
        (_drift, verdict, listed.number, int(request.now) // MINUTE, language_of(request, site), request.is_admin),
        lambda: page(
            "drift.html",
            request,
            site,
            verdict=verdict,
            listed=listed,
            shown=len(shown),
            silent=[one for one in site.liveness.values() if one.failures],
            **_overview(site.drift, site.table),
        ),
    )


def _naans(request: Request, site: Site) -> Response:
    query, after = request.parameter("q"), request.parameter("after")
    keys = [entry.naan for entry in site.search(query)] if query.strip() else site.table.naans()
    start = keys.index(after) + 1 if after in keys else 0
    shown = [site.table[key] for key in keys[start : start + MAX_NAANS]]
    more = urlencode({"q": query, "after": shown[-1].naan}) if start + MAX_NAANS < len(keys) else ""
    return page("naans.html", request, site, query=query, total=len(keys), entries=shown, more=more)


def _servers(request: Request, site: Site) -> Response:
    listed = site.once(_servers, lambda: _parts(servers.in_order(site, request.now), _server_weight))
    return page(
        "servers.html",
        request,
        site,
        probed=len(site.liveness),
        silent=sum(1 for one in site.liveness.values() if one.failures),
        listed=_one_of(listed, _number(request, "page")),
        picture_of=servers.picture,
        days=servers.DAYS,
    )


def _document(name: str, kind: str, kept: Headers, values: dict[str, Any]) -> Response:
    """Return a document for programs, which has no language."""
    made = _environment(built_in()[ENGLISH]).get_template(name).render(values)
    return Response(HTTPStatus.OK, (("Content-Type", kind), *kept), made.encode())


def _statistics(request: Request, site: Site, days: int, period: str, report: Report) -> Response:
    most = max((count for _, count in report.periods), default=0)
    year, month, *_ = time.gmtime(request.now)
    past = f"{year - (month == 1)}-{(month - 2) % 12 + 1:02}", f"{year - 1}"  # the previous calendar month and year
    names = {naan: _name(site.table, naan) for naan, _ in report.values[NAAN]}
    about = {"report": report, "days": days, "period": period, "past": past, "most": most, "names": names}
    about["month_shoulders"] = report.month_shoulders()[:MAX_MONTH_SHOULDERS]
    return not_kept(page("stats.html", request, site, **about))


def _csv(name: str, rows: Iterable[Iterable[object]]) -> Response:
    lines = _CsvLines()
    csv.writer(lines).writerows([cell(one) if isinstance(one, str) else one for one in row] for row in rows)
    kind = ("Content-Type", CSV), ("Content-Disposition", f'attachment; filename="{name}.csv"')
    return not_kept(Response(HTTPStatus.OK, kind, "".join(lines).encode("utf-8", "replace")))


class _CsvLines(list[str]):
    write = list.append  # a file's method, for ``csv.writer``


def _links(request: Request, site: Site, links: LinkReport) -> Response:
    shown = _states_of(request)
    rows = links.rows(shown, request.parameter("after"), MAX_LINKS + 1)
    part = _part(rows[:MAX_LINKS], _link_weight).items
    more = urlencode({"state": _named(shown), "after": part[-1].ark}) if len(part) < len(rows) else ""
    return not_kept(page("links.html", request, site, counts=links.counts, rows=part, more=more, state=_named(shown)))


def _links_table(request: Request, site: Site, links: LinkReport) -> Response:
    shown = _states_of(request)
    return _csv("links", (LINK_COLUMNS, *map(link_cells, links.rows(shown, "", MAX_LINK_LINES))))


def _states_of(request: Request) -> tuple[LinkState, ...]:
    """Return which links a request is for: dead ones, unless it asks for failed ones."""
    return (LinkState.FAILING,) if request.parameter("state") == "failing" else (LinkState.DEAD,)


def _named(states: tuple[LinkState, ...]) -> str:
    return states[0].name.lower()


def _statistics_table(request: Request, site: Site, statistics: Readings) -> Response | Work:
    """Return one table of the statistics as CSV."""
    table, period = request.parameter("table"), request.parameter("period")
    if table not in TABLES_OF_REPORT:
        return text(f"table must be one of {', '.join(TABLES_OF_REPORT)}\n", HTTPStatus.BAD_REQUEST)
    try:
        report = statistics(None if period else _number(request, "days", DAYS, DAYS_KEPT), period)
    except ValueError as error:
        return text(f"{error}\n", HTTPStatus.BAD_REQUEST)

    def made() -> Response:
        return _csv(table, report().rows(table, partial(_name, site.table)))

    return made


def _naan(request: Request, site: Site) -> Response | None:
    """Return a NAAN's page: its record, its drift, and its history; None if nothing is known about it."""
    naan = normal_key(request.path.removeprefix(NAANS))
    if not naan or "/" in naan:
        return None
    found = {one.record: one for one in site.drift.verdicts if one.naan == naan}
    entry = site.table.get(naan)
    shared = Ark(naan, "").shared
    shoulders = sorted(site.table.shoulders(naan), key=lambda one: one.shoulder)
    if entry is None and not found and not shoulders and shared is None:
        return None
    entry = entry or Entry(naan)
    facts = _facts(site.table, found.values())
    return page(
        "naan.html",
        request,
        site,
        naan=naan,
        entry=entry,
        shared=shared,
        known=naan in site.table,
        practices=_policy(entry),
        authorities=[(nma, site.liveness.get(url.server_of(example_url(nma.target)) or "")) for nma in entry.nmas],
        shoulders=_part(shoulders, _entry_weight, _number(request, "page")),
        shoulder_count=len(shoulders),
        found=found,
        facts=_part(
            [fact for fact in facts if fact.drift.record == naan or fact.drift.verdict not in AGREES], _fact_weight
        ),
        report=site.drift,
        history=site.drift.history.get(naan, ())[:MAX_SHOWN],
        singles=site.objects.naans.get(naan, 0),
    )


def _policy(entry: Entry) -> list[str]:
    """Return the codes of an organisation's policies."""
    more = entry.extra.get("na_policy")
    codes = more.get("policy") if isinstance(more, Mapping) else None  # a list in version 2 of the registry
    if not isinstance(codes, list):
        codes = [code.strip() for code in (entry.policy.policy or "").split(",")]
    return [str(code)[:SHORT] for code in codes if code and not str(code).startswith(UNKNOWN)][:MAX_SHOWN]


def language_of(request: Request, site: Site) -> str:
    """Return the language of the pages for a request."""
    fixed, codes = site.settings.language, tuple(site.appearance.languages)
    return preferred(request.headers.get("accept-language", ""), codes) if fixed == BROWSER else fixed


def page(
    name: str, request: Request, site: Site, status: int = HTTPStatus.OK, headers: Headers = (), /, **values: Any
) -> Response:
    """Return a page in the client's language, or in the site's if that is fixed."""
    code, settings, logo = language_of(request, site), site.settings, site.appearance.logo
    about = {
        "now": request.now,
        "site": site,
        "brand": settings.name or "maptr",
        "style": f"{STYLE}?{_version(_style(settings.accent, settings.accent_dark))}",
        "logo": f"{LOGO}?{_version(logo.content)}" if logo else "",
        "is_admin": request.is_admin,
        "has_statistics": site.statistics_for(request) is not None,
    }
    made = _environment(site.appearance.languages[code]).get_template(name).render(about, **values)
    varies = [value for header, value in headers if header == "Vary"] + ["Accept-Language"] * (
        settings.language == BROWSER
    )
    kept = () if any(header == "Cache-Control" for header, _ in headers) else (("Cache-Control", "no-cache"),)
    others = tuple(pair for pair in headers if pair[0] != "Vary")
    vary = (("Vary", ", ".join(varies)),) if varies else ()
    sent = (("Content-Type", HTML), *_SAFE, ("Content-Language", code), *vary, *kept, *others)
    return Response(status, sent, made.encode("utf-8", "replace"))


class Line(NamedTuple):
    """A walk's query in words, or a record in its answer, with whether it counts, and why."""

    text: str
    is_query: bool = False
    counted: bool = True
    why: str = ""


def walk(ark: Ark | None, found: Discovery | None, target: str = "") -> dict[str, Any]:
    """Return a discovery, its graph, the lines of its walk that fit on a page, and how many do not."""
    lines: list[Line] = []
    for step in found.trace if found is not None else ():
        lines.append(Line(str(step), is_query=True))
        for reading in step.readings:
            lines.append(Line(reading.naptr.to_text(), False, reading.counted, "; ".join(reading.reasons)))
        for record in step.table_records:
            lines.append(Line(f"record {record.key}", why="; ".join(record.leads_to)))
    shown = _part(lines, lambda line: _weight(80, line.text, line.why), room=STEPS_ROOM).items
    graph = None
    if ark is not None and found is not None and found.trace and (target or not found):  # not if it leads here
        graph = drawing.walk(ark, found, target)
    return {"found": found, "graph": graph, "steps": shown, "left": len(lines) - len(shown)}


# ---- lists that are too long for one page


def _number(request: Request, name: str, default: int = 1, most: int = 9_999) -> int:
    text = request.parameter(name)
    number = int(text) if re.fullmatch("[0-9]{1,4}", text) else 0
    return number if 1 <= number <= most else default


def listed(urls: Sequence[str]) -> Part[str]:
    """Return the URLs that fit on a page."""
    return _part(urls, _url_weight)


def _part(items: Sequence[T], weigh: Callable[[T], int], number: int = 1, *, room: int = ROOM) -> Part[T]:
    return _one_of(_parts(items, weigh, room), number)


def _parts(items: Sequence[T], weigh: Callable[[T], int], room: int = ROOM) -> list[list[T]]:
    """Return a list in parts of at most ``room`` bytes, or of one item."""
    parts: list[list[T]] = [[]]
    weight = 0
    for item in items:
        own = weigh(item)
        if parts[-1] and weight + own > room:
            parts.append([])
            weight = 0
        parts[-1].append(item)
        weight += own
    return parts


def _one_of(parts: list[list[T]], number: int) -> Part[T]:
    """Return the part with this number, from 1, or the nearest."""
    number = min(max(1, number), len(parts))
    return Part(parts[number - 1], number, len(parts))


def _weight(markup: int, *texts: str) -> int:
    """Return about how many bytes a list item takes."""
    return markup + sum(len(escape(shorten(text, LONG)).encode("utf-8", "replace")) for text in texts)


def _fact_weight(fact: Fact) -> int:
    one = fact.drift
    if one.verdict in AGREES:
        return _weight(150, fact.name)
    urls = (*one.table[:MAX_URLS], *one.dns[:MAX_URLS], *one.records[:MAX_URLS])
    return _weight(700, fact.name, one.reason, one.probe, *urls)


def _server_weight(one: Liveness) -> int:
    outages = (len(one.history) + 1) // 2  # each takes 200 bytes in the picture and its label
    return _weight(600 + 200 * outages, one.place, one.note)


def _url_weight(text: str) -> int:
    return _weight(100 + (len(escape(text)) if is_link(text) else 0), text)


def _object_weight(one: OwnObject) -> int:
    return _weight(200 + len(escape(one.ark)), one.what, one.who, one.when, one.ark)


def _link_weight(row: LinkRow) -> int:
    return _weight(500, row.ark, row.url) + (len(escape(row.url)) if is_link(row.url) else 0)


def _entry_weight(entry: Entry) -> int:
    return _weight(250, entry.who.name, entry.nmas[0].target if entry.nmas else "")


# ---- the one file of ``maptr table drift --html``


def is_page(content: bytes) -> bool:
    """Return True for the content of a file made by ``drift_file``."""
    return _MARK in content[:1000]


def drift_file(
    verdicts: Sequence[Drift],
    *,
    table: Table,
    file: str,
    asked: str,
    origin: str,
    now: float,
    silent: Sequence[Liveness] = (),
) -> str:
    """Return a whole comparison as one page. ``file``, ``asked`` and ``origin`` name its table, servers and zone.

    ``silent`` are the mapping authorities that did not answer their last probe.
    """
    style = _file("style.css").decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    report = DriftReport(verdicts, now)
    return (
        _environment(built_in()[ENGLISH])
        .get_template("drift_file.html")
        .render(
            now=now,
            brand="maptr",
            style=Markup(style),  # noqa: S704 - our own file
            style_hash=digest,
            file=file,
            asked=asked,
            origin=origin,
            silent=silent,
            agreeing=_facts(table, [one for one in verdicts if one.verdict in AGREES]),
            **_overview(report, table),
        )
    )
