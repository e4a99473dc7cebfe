"""HTML pages, made from the templates in this folder. They work without scripts, and load nothing from other sites.

``drift_file`` makes the one file of ``maptr table drift --html`` from the same templates. Texts of ARKs, of the
registry and of DNS may be hostile and of any length: the templates escape all of them, and long ones are shortened, so
that each page has less than 50 KB.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from importlib import resources
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from maptr import __version__, url
from maptr.ark import Ark, each_ark
from maptr.discovery import Discovery
from maptr.errors import ArkSyntaxError, time_text, visible
from maptr.gateway import drawing, servers
from maptr.gateway.drawing import AGREES, MARKS, RANKS, naan_of, shorten
from maptr.gateway.message import Headers, Request, Response, html, not_kept, text
from maptr.gateway.objects import OWN
from maptr.gateway.site import DriftReport, Site
from maptr.gateway.statistics import DAYS, DAYS_KEPT, INFLECTION, NAAN, REFERRER, SOURCE, STATUS
from maptr.nma.describe import Segment
from maptr.reconcile.probes import Liveness
from maptr.reconcile.verdict import Drift, Verdict
from maptr.registry.table import Entry, Nma, Table, normal_key
from maptr.registry.target import UNKNOWN, example_url

# It allows only the style, images and forms of the gateway itself.
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SAFE: Headers = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
)
_DAY: Headers = (("Cache-Control", "max-age=86400"),)
_MINUTES: Headers = (("Cache-Control", "max-age=300"),)
ATOM = "application/atom+xml"
_FILES = {"/style.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml"}
_MARK = b'<meta name="generator" content="maptr">'

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
MAX_SITEMAP = 50_000  # addresses of one sitemap
ROOM = 22_000  # bytes of one list on a page
MAX_NAANS = 100  # of one page of their list
MAX_SHOWN = 10  # deviating records on the first page, and changes of a record
MAX_LINK = 1_000  # characters of a URL or an ARK to which a page links
MINUTE = 60  # seconds for which a page may show the same time
STEPS_ROOM = 6_000  # bytes of the steps of a walk
MAX_URLS = 4  # of one side of a record
LONG, SHORT = 400, 120  # characters of a text

MEANINGS = {
    Verdict.DIFFERS: "Both sides have the record, and give different URLs.",
    Verdict.UNPUBLISHED: "No zone can hold the shoulder, and DNS gives its ARKs the URLs of another record.",
    Verdict.MISSING: "The table has the record, DNS says there is none.",
    Verdict.EXTRA: "DNS has the record, the table does not.",
    Verdict.STALE: "One side says what the other said earlier.",
    Verdict.UNKNOWN: "DNS did not answer.",
    Verdict.LOSSY: "Equal as far as an h record or a natab can tell.",
    Verdict.SAME: "Both sides give the same URLs.",
}
ORGANISATIONS = {"NP": "not for profit", "FP": "for profit"}
PRACTICES = {
    "NR": "no re-assignment: a published name keeps its object",
    "OP": "opacity: names carry no meaning that people would recognise",
    "CC": "check characters: names have one against errors of copying",
}

T = TypeVar("T")


class Part(NamedTuple, Generic[T]):
    """One page of a longer list, its number from 1, and that of the last one."""

    items: Sequence[T]
    number: int
    last: int


class Headline(NamedTuple):
    """The verdict on all records as a title, and a sentence of detail."""

    title: str
    detail: str


class PeriodBar(NamedTuple):
    """The requests of an hour or a day, and the height of its bar."""

    start: float
    requests: int
    high: int


class Fact(NamedTuple):
    """The verdict on a record, and its organisation."""

    drift: Drift
    name: str


# ---- texts


def number(value: int) -> str:
    return f"{value:,}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def period(seconds: float) -> str:
    """Return a time span in its largest unit."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= 2 * size or (seconds >= size and unit != "minute"):
            return plural(int(seconds // size), unit)
    return plural(max(0, int(seconds)), "second")


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"


def remedy(found: Discovery) -> str:
    """Return what helps where a mapping authority is not known, for people who are not its operator."""
    if found.may_pass:
        return "DNS gave no answer, and nothing is kept. Try again in half a minute."
    if found.missing_origin:
        return (
            f"The DNS that this gateway asks does not have {found.missing_origin}, and a table does not have this NAAN."
            " Only the operator of the gateway can change that."
        )
    return (
        f"Waiting alone does not help: the operator of this gateway, or the organisation of NAAN {found.ark.naan}, can."
    )


def is_link(text: str) -> bool:
    """Return True for a URL to which a page may link, and that is not too long for it."""
    if len(text) > MAX_LINK:
        return False
    try:
        url.parse(text)
    except ValueError:
        return False
    return True


@lru_cache
def _file(name: str) -> bytes:
    return resources.files("maptr.gateway").joinpath("templates", name).read_bytes()


_environment = Environment(
    loader=PackageLoader("maptr.gateway"),
    autoescape=True,
    finalize=lambda value: visible(value) if type(value) is str else value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "number": number,
    "plural": plural,
    "period": period,
    "moment": moment,
    "rfc3339": time_text,
    "milliseconds": milliseconds,
    "shorten": shorten,
}
_environment.tests["link"] = is_link
_environment.globals |= {
    "version": __version__,
    "style_version": hashlib.sha256(_file("style.css")).hexdigest()[:12],
    "marks": MARKS,
    "meanings": MEANINGS,
    "agrees": AGREES,
    "long": LONG,
    "short": SHORT,
    "max_urls": MAX_URLS,
    "max_shown": MAX_SHOWN,
    "square": drawing.SQUARE,
    "remedy": remedy,
}


# ---- the pages of the gateway


def prepare() -> None:
    """Compile the templates, which takes longer than a request may."""
    for name in _environment.list_templates(["html"]):
        _environment.get_template(name)


def respond(request: Request, site: Site) -> Response | None:
    """Return the page at a path; None if there is none."""
    path = request.path
    if kind := _FILES.get(path):
        return Response(HTTPStatus.OK, (("Content-Type", kind), ("Cache-Control", "max-age=86400")), _file(path[1:]))
    if path == "/drift":
        return _drift(request, site)
    if path == "/stats" and site.shows_statistics(request):
        return _statistics(request, site)
    if path == "/servers":
        return _servers(request, site)
    if path == "/servers.atom":
        feed = site.once((servers.feed, int(request.now) // MINUTE), lambda: servers.feed(site, request.now))
        return Response(HTTPStatus.OK, (("Content-Type", ATOM), *_MINUTES), feed)
    if path == "/favicon.ico":
        return Response(HTTPStatus.FOUND, (("Location", "/icon.svg"), ("Cache-Control", "max-age=86400")))
    if path == "/robots.txt":
        where = f"Sitemap: {site.public_url}/sitemap.xml\n" if site.public_url else ""
        return text(f"User-agent: *\nDisallow: /stats\nDisallow: /drift\nDisallow: /api/\n{where}", headers=_DAY)
    if path == "/sitemap.xml" and site.public_url:
        return site.once("sitemap", lambda: _sitemap(site))
    if path == "/naan/":
        return _naans(request, site)
    if path.startswith("/naan/"):
        return _naan(request, site)
    return None


def searched(text: str) -> Ark:
    """Return the ARK that a text is, or the only one that it holds. Raises ArkSyntaxError."""
    try:
        return Ark.parse(text, bare=True, wrapped=True)
    except ArkSyntaxError:
        found = list(islice(each_ark(text), 2))
        if len(found) != 1:
            raise
        return found[0]


def home(
    request: Request,
    site: Site,
    *,
    ark: Ark | None = None,
    answer: Response | None = None,
    found: Discovery | None = None,
    error: ArkSyntaxError | None = None,
) -> Response:
    """Return the first page. After a search: the ARK, the gateway's ``answer`` to a request for it, and the discovery
    that led to it if one was made; or the ``error``."""
    if ark is not None and answer is not None:
        return _page("search.html", request, **_result(request, site, ark, answer, found))
    problem = ""
    if error is not None:
        problem = str(error) if error.labelled else "There is no ARK in this text."
    return _page(
        "home.html",
        request,
        site=site,
        problem=problem,
        meant="" if error is None else error.suggestion,
        headline=_headline(site),
        traffic=site.traffic() if site.traffic is not None else None,
        **_overview(site.drift, site.table),
    )


def _result(request: Request, site: Site, ark: Ark, answer: Response, found: Discovery | None) -> dict[str, Any]:
    target = answer.header("Location")
    text = f"{ark.in_url if ark.name else ark}{ark.tail}"
    urls = [] if found is None else found.urls()
    if target:
        title = "goes to"
    elif answer.status == HTTPStatus.OK:
        title = "is described by this gateway"
    elif answer.status == HTTPStatus.NOT_FOUND:
        title = "has no mapping authority"
    elif answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        title = "is not looked up"
    else:
        title = "is not known at the moment"
    return {
        "site": site,
        "ark": ark,
        "target": target,
        "title": title,
        "answer": answer,
        "phrase": HTTPStatus(answer.status).phrase,
        "kept": int("".join(re.findall(r"max-age=(\d+)", answer.header("Cache-Control"))) or 0),
        "text": text,
        "is_long": len(text) > MAX_LINK,
        "others": _part([where for where in urls if where != target], _url_weight, room=STEPS_ROOM),
        **_walk(ark, found, target),
        "entry": site.entry(ark),
        "age": None if found is None else found.age_at(request.now),
        "is_single": found is not None and found.source == OWN,
    }


def _headline(site: Site) -> Headline:
    """Return the state of the gateway as a title."""
    if site.drift.at is not None:
        return headline(site.drift.verdicts)
    if site.table:
        return Headline(f"{plural(site.naan_count, 'NAAN')}, from a table", "The table was not compared with DNS.")
    return Headline("Every ARK, by DNS", "There is no table.")


def headline(verdicts: Sequence[Drift]) -> Headline:
    """Return the verdict on all records as a title."""
    records, counts = len(verdicts), Counter(one.verdict for one in verdicts)
    drifting = sum(count for verdict, count in counts.items() if verdict.is_drift)
    unknown = counts[Verdict.UNKNOWN]
    silence = f"For {plural(unknown, 'record')} DNS did not answer." if unknown else ""
    if not records:
        return Headline("There is nothing to compare", "")
    if drifting:
        return Headline(f"{drifting:,} of {plural(records, 'record')} deviate{'s' * (drifting == 1)}", silence)
    if unknown:
        return Headline("No record is known to deviate", silence)
    return Headline("All records agree", f"Table and DNS lead to the same places for {plural(records, 'record')}.")


@lru_cache(maxsize=1)
def _overview(report: DriftReport, table: Table) -> dict[str, Any]:
    """Return the map of a comparison, its counts, and its deviating records, worst first. Making them takes
    milliseconds, and they stay the same until the next comparison."""
    worst = drawing.worst_of(report.verdicts)
    return {
        "report": report,
        "map": drawing.drift_map(worst, partial(_name, table)) if worst else None,
        "counts": Counter(one.verdict for one in report.verdicts),
        "compared": len(worst),
        "deviating": _facts(table, [one for one in report.verdicts if one.verdict not in AGREES]),
    }


def _facts(table: Table, verdicts: Iterable[Drift]) -> list[Fact]:
    ordered = sorted(verdicts, key=lambda one: (RANKS[one.verdict], one.record))
    return [Fact(one, _name(table, one.record)) for one in ordered]


def _name(table: Table, record: str) -> str:
    """Return the organisation of a record; that of the NAAN for a shoulder that the table does not have."""
    entry = table.get(record) or table.get(naan_of(record))
    return "" if entry is None else entry.who.name or entry.who.acronym or ""


def _drift(request: Request, site: Site) -> Response:
    """Return the map, and the records of one verdict, or all that deviate."""
    report = site.drift
    named = request.parameter("verdict")
    verdict = next((one for one in Verdict if one == named), None)
    shown = [one for one in report.verdicts if one.verdict is verdict or (not verdict and one.verdict not in AGREES)]
    parts = site.once((_drift, verdict), lambda: _parts(_facts(site.table, shown), _fact_weight))
    listed = _one_of(parts, _page_number(request))
    make = partial(
        _page,
        "drift.html",
        request,
        site=site,
        headline=_headline(site),
        verdict=verdict,
        listed=listed,
        shown=len(shown),
        silent=[one for one in site.liveness.values() if one.failures],
        **_overview(report, site.table),
    )
    return site.once((_drift, verdict, listed.number, int(request.now) // MINUTE), make)


def _naans(request: Request, site: Site) -> Response:
    """Return a page of the NAANs of the table, or of those that match a search."""
    query, after = request.parameter("q"), request.parameter("after")
    keys = [entry.naan for entry in site.naans(query)] if query.strip() else site.table.naans()
    start = keys.index(after) + 1 if after in keys else 0
    shown = [site.table[key] for key in keys[start : start + MAX_NAANS]]
    more = urlencode({"q": query, "after": shown[-1].naan}) if start + MAX_NAANS < len(keys) else ""
    return _page("naans.html", request, site=site, query=query, total=len(keys), entries=shown, more=more)


def _servers(request: Request, site: Site) -> Response:
    """Return which mapping authorities answer, since when, and their outages."""
    listed = site.once(_servers, lambda: _parts(servers.in_order(site, request.now), _server_weight))
    return _page(
        "servers.html",
        request,
        site=site,
        probed=len(site.liveness),
        silent=sum(1 for one in site.liveness.values() if one.failures),
        listed=_one_of(listed, _page_number(request)),
        picture_of=servers.picture,
        days=servers.DAYS,
    )


def _sitemap(site: Site) -> Response:
    """Return the pages of the NAANs, as search engines read them (sitemaps.org)."""
    urls = [f"{site.public_url}/", *(f"{site.public_url}/naan/{naan}" for naan in site.table.naans())]
    rows = "".join(f"<url><loc>{escape(where)}</loc></url>\n" for where in urls[:MAX_SITEMAP])
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{SITEMAP}">\n{rows}</urlset>\n'
    return Response(HTTPStatus.OK, (("Content-Type", "application/xml"), *_DAY), body.encode())


def _statistics(request: Request, site: Site) -> Response:
    """Return what the gateway was asked, with a bar for each hour or day."""
    assert site.statistics is not None  # noqa: S101 - ``respond`` has looked
    wanted = request.parameter("days")
    days = int(wanted) if re.fullmatch("[0-9]{1,3}", wanted) and 1 <= int(wanted) <= DAYS_KEPT else DAYS
    report = site.statistics(days)
    most = max((count for _, count in report.periods), default=0)
    bars = [PeriodBar(start, count, round(60 * count / most) if most else 0) for start, count in report.periods]
    failed = [(f"{one.naan} {one.status}", one.requests) for one in report.failed]
    tables = [
        ("NAANs", report.values[NAAN]),
        ("What failed, by NAAN and status", failed),
        ("Status", report.values[STATUS]),
        ("Sources of the answers", report.values[SOURCE]),
        ("Inflections", report.values[INFLECTION]),
        ("Referring hosts", report.values[REFERRER]),
    ]
    about = {"days": days, "choices": (1, 7, 30, 365), "bars": bars, "most": most, "tables": tables}
    return not_kept(_page("stats.html", request, site=site, report=report, **about))


def _naan(request: Request, site: Site) -> Response | None:
    """Return the page of a NAAN: its record, its drift, and its history."""
    naan = normal_key(request.path.removeprefix("/naan/"))
    if not naan or "/" in naan:
        return None
    found = {one.record: one for one in site.drift.verdicts if naan_of(one.record) == naan}
    entry = site.table.get(naan)
    shared = Ark(naan, "").shared
    shoulders = sorted(site.table.shoulders(naan), key=lambda one: one.shoulder)
    if entry is None and not found and not shoulders and shared is None:
        detail = f"NAAN {naan} is not in the table, and the last comparison did not find it in DNS"
        return failure(request, HTTPStatus.NOT_FOUND, detail, (), None, None)
    entry = entry or Entry(naan)
    facts = _facts(site.table, found.values())
    return _page(
        "naan.html",
        request,
        site=site,
        naan=naan,
        entry=entry,
        shared=shared,
        known=naan in site.table,
        kind=ORGANISATIONS.get(entry.policy.orgtype or ""),
        practices=_policy(entry),
        authorities=[(nma, _liveness(nma, site)) for nma in entry.nmas],
        shoulders=_part(shoulders, _entry_weight, _page_number(request)),
        shoulder_count=len(shoulders),
        found=found,
        facts=_part(
            [fact for fact in facts if fact.drift.record == naan or fact.drift.verdict not in AGREES], _fact_weight
        ),
        report=site.drift,
        history=site.drift.history.get(naan, ())[:MAX_SHOWN],
        singles=site.objects.naans.get(naan, 0),
    )


def _liveness(nma: Nma, site: Site) -> Liveness | None:
    place = url.server_of(example_url(nma.target))
    return site.liveness.get(place) if place is not None else None


def _policy(entry: Entry) -> list[tuple[str, str]]:
    """Return the practices of an organisation, each with its meaning."""
    more = entry.extra.get("na_policy")
    codes = more.get("policy") if isinstance(more, Mapping) else None  # version 2 of the registry has a list
    if not isinstance(codes, list):
        codes = [code.strip() for code in (entry.policy.policy or "").split(",")]
    known = [str(code) for code in codes if code and not str(code).startswith(UNKNOWN)]
    return [(code[:SHORT], PRACTICES.get(code, "")) for code in known[:MAX_SHOWN]]


def failure(
    request: Request, status: HTTPStatus, detail: str, headers: Headers, ark: Ark | None, found: Discovery | None
) -> Response:
    """Return an error, with the walk if an ARK was looked up."""
    return _page("failure.html", request, status, headers, detail=detail, status=status, ark=ark, **_walk(ark, found))


def authorities(request: Request, ark: Ark, found: Discovery, site: Site, headers: Headers) -> Response:
    """Return all mapping authorities of an ARK, best first."""
    listed = _part(found.urls(), _url_weight)
    return _page(
        "authorities.html", request, HTTPStatus.OK, headers, site=site, ark=ark, listed=listed, **_walk(ark, found)
    )


def description(
    request: Request, ark: Ark, erc: tuple[Segment, ...], site: Site, headers: Headers, *, is_object: bool
) -> Response:
    """Return the description of a record, or of an own object."""
    about = {"ark": ark, "erc": erc, "is_object": is_object, "known": ark.naan in site.table}
    return _page("description.html", request, HTTPStatus.OK, headers, site=site, **about)


def _page(
    name: str, request: Request, status: int = HTTPStatus.OK, headers: Headers = (), /, **values: Any
) -> Response:
    made = _environment.get_template(name).render(now=request.now, **values)
    kept = () if any(header == "Cache-Control" for header, _ in headers) else (("Cache-Control", "no-cache"),)
    return html(made, status, (*_SAFE, *kept, *headers))


class Line(NamedTuple):
    """A query of a walk in words, or a record of its answer, whether it counts, and why."""

    text: str
    is_query: bool = False
    counted: bool = True
    why: str = ""


def _walk(ark: Ark | None, found: Discovery | None, target: str = "") -> dict[str, Any]:
    """Return a discovery, its graph, the lines of its walk that a page has room for, and how many it leaves out."""
    lines: list[Line] = []
    for step in found.trace if found is not None else ():
        lines.append(Line(str(step), is_query=True))
        for reading in step.readings:
            lines.append(Line(reading.naptr.to_text(), False, reading.counted, "; ".join(reading.reasons)))
        for record in step.table_records:
            lines.append(Line(f"record {record.key}", why="; ".join(record.leads_to)))
    shown = _part(lines, lambda line: _weight(80, line.text, line.why), room=STEPS_ROOM).items
    graph = drawing.walk(ark, found, target) if ark is not None and found is not None and found.trace else None
    return {"found": found, "graph": graph, "steps": shown, "left": len(lines) - len(shown)}


# ---- lists that are too long for one page


def _page_number(request: Request) -> int:
    text = request.parameter("page")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 1


def _part(items: Sequence[T], weigh: Callable[[T], int], number: int = 1, *, room: int = ROOM) -> Part[T]:
    return _one_of(_parts(items, weigh, room), number)


def _parts(items: Sequence[T], weigh: Callable[[T], int], room: int = ROOM) -> list[list[T]]:
    """Return a list in parts; each has at most ``room`` bytes, or one item."""
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
    """Return the part with this number, from 1, or the nearest one."""
    number = min(max(1, number), len(parts))
    return Part(parts[number - 1], number, len(parts))


def _weight(markup: int, *texts: str) -> int:
    """Return about how many bytes an item of a list has."""
    return markup + sum(len(escape(shorten(text, LONG)).encode("utf-8", "replace")) for text in texts)


def _fact_weight(fact: Fact) -> int:
    one = fact.drift
    if one.verdict in AGREES:
        return _weight(150, fact.name)
    urls = (*one.table[:MAX_URLS], *one.dns[:MAX_URLS], *one.records[:MAX_URLS])
    return _weight(700, fact.name, one.reason, one.probe, *urls)


def _server_weight(one: Liveness) -> int:
    outages = (len(one.history) + 1) // 2  # each has 120 bytes in the picture
    return _weight(600 + 120 * outages, one.place, one.note)


def _url_weight(text: str) -> int:
    return _weight(100 + (len(escape(text)) if is_link(text) else 0), text)


def _entry_weight(entry: Entry) -> int:
    return _weight(250, entry.who.name, entry.nmas[0].target if entry.nmas else "")


# ---- the one file of ``maptr table drift --html``


def is_page(content: bytes) -> bool:
    """Return True for the content of a file that ``drift_file`` made."""
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
    """Return a whole comparison as one page. ``file``, ``asked`` and ``origin`` name the table, the servers and the
    zone that were compared.

    ``silent`` are the mapping authorities that did not answer their last probe.
    """
    style = _file("style.css").decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    report = DriftReport(verdicts, now)
    return _environment.get_template("drift_file.html").render(
        now=now,
        style=Markup(style),  # noqa: S704 - our own file
        style_hash=digest,
        headline=headline(verdicts),
        file=file,
        asked=asked,
        origin=origin,
        silent=silent,
        agreeing=_facts(table, [one for one in verdicts if one.verdict in AGREES]),
        **_overview(report, table),
    )
