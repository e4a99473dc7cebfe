"""Descriptions of a NAAN or shoulder from the registry or DNS, as an ERC (ARK draft 5.1 to 5.3, 2002 draft 7.2 to 7.5).

The gateway describes the record, never the object that an ARK identifies, because it does not know the object. The
exception is the gateway's own objects, whose rows describe them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

from maptr import url
from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.errors import SCHEMA
from maptr.gateway import pages
from maptr.gateway.message import HTML, JSON, LD, TEXT, Headers, Request, Response, as_json, kept, text
from maptr.gateway.objects import OwnObject
from maptr.gateway.site import Site
from maptr.nma.describe import KERNEL, Segment, normal_date
from maptr.registry import anvl
from maptr.registry.table import Entry

STATUS = "0.6 200 OK"  # draft 5.1.1: version and status of THUMP
UNKNOWN = "(:unkn) unknown"  # Kernel Metadata 9.3

# What follows a date, or a date and time, in JSON. Midnight means that there is no time.
_DAY = re.compile("([0-9]{4})([0-9]{2})?([0-9]{2})?")  # as ``_date`` writes it
_UTC = re.compile(r"(?:(?:T00:00:00|(?<=:\d\d))(?:\.\d+)?)?(?:Z|\+00:00)?\Z")


def respond(
    request: Request,
    ark: Ark,
    site: Site,
    *,
    entry: Entry | None = None,
    found: Discovery | None = None,
    form: str = "",
    source: Headers = (),
) -> Response:
    """Return the description of the record that serves an ARK, or of what DNS says if the table has no record.

    It is plain text, a page or JSON. ``form="hkmp"`` names the status header as the 2002 draft does. ``source`` is the
    header ``Maptr-Source``.
    """
    entry = entry or site.table.lookup(ark) or Entry(ark.naan)
    linked = _linked("Organization", f"ark:{entry.key}", site, name=entry.who.name, url=entry.policy.url or "")
    described = Described(f"ark:{entry.key}", _what(entry), segments(entry, site, found), linked)
    return _respond(request, ark, site, described, form, (*source, *kept(int(request.now), site.settings.max_age)))


def own_object(request: Request, ark: Ark, one: OwnObject, site: Site, *, form: str, source: Headers) -> Response:
    """Return the description of an own object, in the same forms, from its row alone."""
    followed = f"; replaced by {one.replaced_by}" if one.successor else ""
    where = one.url or (f"(:unav) {one.reason}{followed}" if one.reason or followed else "(:unav)")
    erc = [_segment("erc", one.who, one.what, _date(one.when), where)]
    if site.settings.permanence:
        erc.append(_segment("erc-support", "", f"(:permanence) {site.settings.permanence}", "", ""))
    linked = _linked("CreativeWork", one.ark, site, name=one.what, creator=one.who, url=one.url)
    if (day := _DAY.fullmatch(_date(one.when))) is not None:
        linked["dateCreated"] = "-".join(filter(None, day.groups()))
    if one.is_gone and one.successor:
        base = "" if "://" in one.successor else site.settings.public_url
        linked["@context"] = ["https://schema.org", {"dcterms": "http://purl.org/dc/terms/"}]
        linked["dcterms:isReplacedBy"] = {"@id": f"{base}{one.successor}"}
        source = (*source, ("Link", f'<{one.successor}>; rel="successor-version"'))
    described = Described(one.ark, f"the object {one.ark}", tuple(erc), linked, is_object=True, more=one.more)
    return _respond(request, ark, site, described, form, source)


class Described(NamedTuple):
    """The described record or object: its ARK, its name, its ERC, the same as JSON-LD, and its row's other columns."""

    ark: str
    name: str
    erc: tuple[Segment, ...]
    linked: dict[str, Any]
    is_object: bool = False
    more: Mapping[str, str] = MappingProxyType({})

    def to_dict(self, ark: Ark) -> dict[str, Any]:
        """Return the description as JSON. ``ark`` is the requested one."""
        made = {
            "schema": SCHEMA,
            "ark": str(ark),
            "describes": self.ark,
            "segments": {segment.name: dict(segment.elements) for segment in self.erc},
        }
        return {**made, "more": dict(self.more)} if self.is_object else made


def _respond(
    request: Request, ark: Ark, site: Site, described: Described, form: str, more_headers: Headers
) -> Response:
    headers: Headers = (
        ("HKMP-Status" if form == "hkmp" else "THUMP-Status", STATUS),
        ("Link", f'</{described.ark}>; rel="describes"'),
        ("Vary", "Accept"),
        *more_headers,
    )
    kind = request.prefers(TEXT, HTML, JSON, LD)
    if kind == HTML:
        about = {"ark": ark, "described": described}
        return pages.page("description.html", request, site, HTTPStatus.OK, headers, **about)
    if kind == LD:
        return as_json(described.linked, HTTPStatus.OK, headers, LD)
    if kind == JSON:
        return as_json(described.to_dict(ark), HTTPStatus.OK, headers)
    note = "" if str(ark) == described.ark else f"# This describes {described.name}, not {ark}.\n"
    return text(f"{to_anvl(described.erc)}{note}", HTTPStatus.OK, headers)


def _linked(kind: str, ark: str, site: Site, **known: str) -> dict[str, Any]:
    """Return a description in schema.org's vocabulary, without unknown values."""
    base = site.settings.public_url
    made: dict[str, Any] = {"@context": "https://schema.org", "@type": kind}
    made |= {"@id": f"{base}/{ark}"} if base else {}
    made["identifier"] = {"@type": "PropertyValue", "propertyID": "ARK", "value": ark}
    return made | {name: value for name, value in known.items() if value}


def segments(entry: Entry, site: Site, found: Discovery | None = None) -> tuple[Segment, ...]:
    """Return a record's ERC: the record, the support that its organisation promises, and the source of both."""
    who = " (=) ".join(filter(None, map(_known, (entry.who.name, entry.who.name_native, entry.who.acronym))))
    policy, permanence = entry.policy, _known(entry.policy.policy)
    where = [nma.where or nma.target for nma in entry.nmas] or _places(found)
    return (
        _segment("erc", who, _what(entry), _date(entry.when), "; ".join(where)),
        _segment(
            "erc-support",
            who,
            f"(:permanence) {permanence}" if permanence else "",
            _date(_known(policy.tenure)),
            _known(policy.url),
        ),
        _segment("erc-from", *_source(entry, site, found)),
    )


def _source(entry: Entry, site: Site, found: Discovery | None) -> tuple[str, str, str, str]:
    """Return a description's source: its name, its record, the record's time, and its URL (RFC 4501 for DNS)."""
    if not entry.nmas and found:
        owner = found[0].owner
        return "DNS", f"NAPTR records of {owner}", _time(found.fetched), f"dns:{owner}?type=NAPTR"
    state = site.table_state
    where = state.origin if "://" in state.origin else ""  # a path has no meaning on other machines
    return "NAAN registry", f"record of {_what(entry)}", _time(state.fetched), where


def _places(found: Discovery | None) -> list[str]:
    """Return the candidates' servers, each once; their URLs are for one ARK only."""
    urls = () if found is None else found.urls()
    return list(dict.fromkeys(url.parse(where).server for where in urls))


def _what(entry: Entry) -> str:
    return f"shoulder ark:{entry.key}" if entry.shoulder else f"NAAN {entry.naan}"


def _known(value: str | None) -> str:
    """Return a registry value; "" for a code that means it is missing."""
    return value if value and anvl.code_of(value) not in anvl.MISSING else ""


def _date(when: str) -> str:
    """Return a date as an ERC writes it (2002 draft 7.6), or the registry's own text."""
    return normal_date(_UTC.sub("", when)) or when


def _time(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y%m%d%H%M%S", time.gmtime(at))


def _segment(name: str, *values: str) -> Segment:
    """Return all four kernel elements in order; a code stands for a missing value."""
    plain = (anvl.one_line(value) or UNKNOWN for value in values)
    return Segment(name, tuple(zip(KERNEL, plain, strict=True)))


def to_anvl(erc: tuple[Segment, ...]) -> str:
    """Return the segments as ANVL, each value on one line."""
    lines: list[str] = []
    for segment in erc:
        lines += [f"{segment.name}:", *(f"{label}: {anvl.encode(value)}" for label, value in segment.elements)]
    return "".join(f"{line}\n" for line in lines)
