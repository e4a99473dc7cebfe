"""ARK service requests: what a mapping authority says of an ARK when asked ``?info`` (draft-kunze-ark section 5).

    THUMP-Status: 0.6 200 OK             a header of the response
    Link: <...>; rel=...                 another

    erc:                                 the body: ANVL, in segments
    who:   Lederberg, Joshua
    what:  Studies of Human Families
    when:  1974
    where: https://ark.example.org/ark:12345/x6np1wh8k
    erc-support:
    what:  (:permanence) ...

An authority that answers with anything else does not speak it, and the Description says so.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from maptr.ark import INFLECTIONS, Ark
from maptr.choose import Chooser
from maptr.client.call import WalkOptions, as_ark
from maptr.client.sync import discover
from maptr.discovery import Candidate, Discovery
from maptr.errors import ConfigError, NmaError
from maptr.nma import erc
from maptr.nma.erc import Segment
from maptr.nma.reachable import Reachable
from maptr.web import connect as visit
from maptr.web.connect import Page

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.client.stub import Stub

__all__ = ["Description", "DiscoverOptions", "Segment", "describe", "read"]

SECONDS = 10.0  # for the questions to authorities, redirects included
MAX_SECONDS = 86_400.0  # a longer time is none that anybody waits; timers end somewhere, too
MAX_AUTHORITIES = 3  # asked in turn where the first cannot be reached
ACCEPT = "text/plain, text/anvl;q=0.9, */*;q=0.1"
# Codecs of Python that no page is written in: they fail in ways of their own, or make surrogates of octets.
NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})


class DiscoverOptions(WalkOptions, total=False):
    """What ``describe`` takes for ``discover``, which says what each means."""

    resolver: dns.resolver.Resolver | Stub | None
    nameservers: Iterable[str] | None


@dataclass(frozen=True, slots=True)
class Description:
    """What the authority said. ``spoken`` is False where that was no description; ``note`` then says what it was.

    ``url`` is where the answer came from, after redirects; ``status`` its HTTP status; ``thump`` and ``links`` are the
    values of the headers, ``HKMP-Status`` counting as ``THUMP-Status``.
    """

    ark: Ark
    asked: str
    url: str
    status: int
    thump: str = ""
    links: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()
    note: str = ""

    @property
    def spoken(self) -> bool:
        return bool(self.segments)

    def segment(self, name: str = "erc") -> Segment | None:
        return next((segment for segment in self.segments if segment.name == name), None)

    def to_text(self) -> str:
        """As ANVL again, decoded; further lines of a value begin with white space, so that none looks like a label."""
        blocks = []
        for segment in self.segments:
            lines = [f"{segment.name}:", *(f"{label}: {value}" for label, value in segment.elements)]
            blocks.append("\n".join("\n\t".join(line.splitlines()) for line in lines))
        return "\n\n".join(blocks)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ark": str(self.ark),
            "asked": self.asked,
            "url": self.url,
            "status": self.status,
            "thump_status": self.thump,
            "links": list(self.links),
            "spoken": self.spoken,
            "note": self.note,
            "segments": [segment.to_dict() for segment in self.segments],
        }


def describe(
    ark: Ark | str | bytes,
    *,
    discovery: Discovery | None = None,
    chooser: Chooser | None = None,
    inflections: Iterable[str] = ("?info",),
    seconds: float = SECONDS,
    allow_private: bool = False,
    **options: Unpack[DiscoverOptions],
) -> Description:
    """Ask the chosen mapping authority of an ARK to describe it; the next ones where it cannot be reached.

    ``inflections`` are asked in turn until one is understood: ``?info``, and ``?`` and ``??`` for older authorities.
    ``discovery`` is one made before; without it the ARK is discovered with ``options``, as ``discover`` takes them.
    An ``h`` candidate is asked by https, then by http. Redirects are limited, servers at addresses that are not public
    are refused unless ``allow_private``, and ``seconds`` bounds all of it after the discovery; half of what is left is
    for one place, where there is another. A ``Reachable`` chooser hears of those that fail.

    Raises as ``discover`` does, NmaError where no authority could be asked, and ConfigError for inflections or a time
    that are none.
    """
    if not seconds >= 0:  # NaN is neither
        raise ConfigError(f"{seconds} is no time in seconds", key="seconds")
    parsed = as_ark(ark, options.get("profile", "current"))
    wanted = tuple(inflections)
    if not wanted:
        raise ConfigError("one at least", key="inflections")
    if unknown := [text for text in wanted if text not in INFLECTIONS]:
        raise ConfigError(f"{unknown[0]!r} is none of {', '.join(INFLECTIONS)}", key="inflections")
    found = discovery if discovery is not None else discover(parsed, **options)
    chosen = found.choose(chooser)
    candidates = [chosen, *(candidate for candidate in found if candidate != chosen)][:MAX_AUTHORITIES]
    places = [(candidate, scheme) for candidate in candidates for scheme in _schemes(candidate, found.scheme)]
    deadline = time.monotonic() + min(seconds, MAX_SECONDS)
    failures: dict[str, None] = {}
    for number, (candidate, scheme) in enumerate(places, 1):
        now = time.monotonic()
        until = deadline if number == len(places) else now + (deadline - now) / 2
        try:
            return _ask(candidate, parsed, scheme, wanted, until, allow_private)
        except NmaError as error:
            failures[str(error)] = None
            if isinstance(chooser, Reachable):
                chooser.failed(candidate._replace(scheme=candidate.scheme or scheme), found)
    raise NmaError(f"{parsed} cannot be asked about: {'; '.join(failures)}")


def _schemes(candidate: Candidate, scheme: str) -> tuple[str, ...]:
    """What to ask a candidate by: an ``h`` record says no scheme, and https goes first. Port 80 is http."""
    if candidate.target or candidate.scheme or scheme != "https" or candidate.port == 80:
        return (scheme,)
    return "https", "http"


def _ask(
    candidate: Candidate, ark: Ark, scheme: str, inflections: tuple[str, ...], deadline: float, allow_private: bool
) -> Description:
    description: Description | None = None
    for inflection in inflections:
        asked = candidate.url(ark._replace(tail=inflection), scheme=scheme)
        left = deadline - time.monotonic()
        if left <= 0:
            break
        page = visit.get(asked, seconds=left, accept=ACCEPT, allow_private=allow_private)
        told = read(ark, asked, page)
        if told.spoken:
            return told
        description = description or told
    if description is None:
        raise NmaError(f"{candidate.host}: no answer in time")
    return description


def read(ark: Ark, asked: str, page: Page) -> Description:
    """A response as a description; whatever it holds, never an error."""
    kind, _, parameters = page.header("content-type").partition(";")
    text = page.body.decode(_charset(parameters), "replace")
    markup = kind.strip().lower() in ("text/html", "application/xhtml+xml")
    segments = () if markup or page.status >= 400 else erc.segments(text)
    note = ""
    if not segments:
        note = f"does not describe it: HTTP status {page.status}, {kind.strip() or 'no content type'}, no erc: record"
    elif page.cut:
        note = f"cut at {visit.MAX_BODY} octets"
    links = tuple(value for name, value in page.headers if name == "link")
    status = page.header("thump-status") or page.header("hkmp-status")  # its name in the 2002 draft, section 6
    return Description(ark, asked, page.url, page.status, status, links, segments, note)


def _charset(parameters: str) -> str:
    """That of a Content-Type, where it is one; else UTF-8."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.strip().lower() != "charset":
            continue
        try:
            found = codecs.lookup(value.strip('" ')).name
            b" ".decode(found, "replace")  # zlib and rot13 are codecs, too
        except (LookupError, ValueError):
            break
        return "utf-8" if found in NO_CHARSETS else found
    return "utf-8"
