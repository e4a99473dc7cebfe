"""What the registry knows of a NAAN or a shoulder, as an ERC (ARK draft 5.1 to 5.3, 2002 draft 7.2 to 7.5).

The gateway describes the record and never the object of an ARK, which it does not know.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.gateway import pages
from maptr.gateway.message import HTML, JSON, TEXT, Headers, Request, Response, as_json, text
from maptr.gateway.site import Site
from maptr.nma.describe import Segment
from maptr.registry import anvl
from maptr.registry.table import Entry

THUMP = "0.6 200 OK"  # draft 5.1.1: version and status of the protocol
UNKNOWN = "(:unkn) unknown"  # Kernel Metadata 9.3


def respond(
    request: Request,
    ark: Ark,
    site: Site,
    *,
    entry: Entry | None = None,
    found: Discovery | None = None,
    wants: str = "",
) -> Response:
    """The description of the record that serves an ARK, or of what DNS says if the table has none.

    As plain text, as a page or as JSON. ``wants="hkmp"`` names the status header as the 2002 draft does.
    """
    entry = entry or site.entry(ark) or Entry(ark.naan)
    urls = [candidate.url(ark, scheme=found.scheme) for candidate in found] if found is not None else []
    erc = segments(entry, site, urls)
    status = "HKMP-Status" if wants == "hkmp" else "THUMP-Status"
    headers: Headers = (
        (status, THUMP),
        ("Link", f'</ark:{entry.key}>; rel="describes"'),
        ("Vary", "Accept"),
        ("Cache-Control", "max-age=300"),
    )
    kind = request.prefers(TEXT, HTML, JSON)
    if kind == HTML:
        return pages.description(request, ark, entry, erc, site, headers)
    if kind == JSON:
        return as_json(to_dict(entry, erc), HTTPStatus.OK, headers)
    return text(to_anvl(erc), HTTPStatus.OK, headers)


def segments(entry: Entry, site: Site, urls: list[str]) -> tuple[Segment, ...]:
    """The ERC of a record, the support that its organisation promises, and where this is known from."""
    what = f"shoulder ark:{entry.key}" if entry.shoulder else f"NAAN {entry.naan}"
    where = [nma.where or nma.target for nma in entry.nmas] or urls
    who = " (=) ".join(filter(None, (entry.who.name, entry.who.name_native, entry.who.acronym)))
    policy = entry.policy
    promise = ", ".join(filter(None, (policy.policy, policy.tenure and f"since {policy.tenure}")))
    state = site.table_state
    fetched = time.strftime("%Y%m%d%H%M%S", time.gmtime(state.fetched)) if state.fetched is not None else ""
    source = "DNS" if not entry.nmas else "the NAAN registry"
    return (
        _segment("erc", who, what, entry.when, "; ".join(where)),
        _segment("erc-support", who, f"(:permanence) {promise}" if promise else "", policy.tenure, policy.url),
        _segment("erc-from", source, f"record of {what}", fetched, site.public_url),
    )


def _segment(name: str, *values: str | None) -> Segment:
    """All four elements of the kernel, in their order; a missing value has a code for it."""
    return Segment(name, tuple(zip(("who", "what", "when", "where"), (v or UNKNOWN for v in values), strict=True)))


def to_anvl(erc: tuple[Segment, ...]) -> str:
    """The segments as ANVL, each value on one line."""
    blocks = [
        "".join(f"{line}\n" for line in (f"{segment.name}:", *(f"{k}: {anvl.encode(v)}" for k, v in segment.elements)))
        for segment in erc
    ]
    return "".join(blocks)


def to_dict(entry: Entry, erc: tuple[Segment, ...]) -> dict[str, Any]:
    return {
        "schema": "maptr/1",
        "describes": f"ark:{entry.key}",
        "segments": {segment.name: dict(segment.elements) for segment in erc},
    }
