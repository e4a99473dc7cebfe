"""Asking a mapping authority to describe an ARK (draft-kunze-ark section 5), and the ERC records in its response.

    THUMP-Status: 0.6 200 OK             a header of the response
    Link: <...>; rel=...                 another header

    erc:                                 the body: ANVL, in segments
    who:   Lederberg, Joshua
    what:  Studies of Human Families
    when:  1974
    where: https://ark.example.org/ark:12345/x6np1wh8k
    erc-support:
    what:  (:permanence) ...

Segments are Electronic Resource Citations (Kernel Metadata, 2002 draft section 7). Any other response becomes a
Description with a note and no segments.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from maptr.ark import INFLECTIONS, Ark
from maptr.choose import Chooser
from maptr.discovery import Candidate, Discovery
from maptr.errors import ConfigError, NmaError
from maptr.nma.reachable import Reachable, with_schemes
from maptr.registry import anvl
from maptr.resolver.call import checked
from maptr.web import http
from maptr.web.http import Page

SECONDS = 10.0  # for the requests to all authorities, redirects included
MAX_SECONDS = 86_400.0  # timers have a limit
MAX_AUTHORITIES = 3  # to try, one after the other
ACCEPT = "text/plain, text/anvl;q=0.9, */*;q=0.1"
# Python codecs that no page uses and that raise odd errors or produce surrogates.
NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})

_SCHEMAS = ("dc", "datacite", "crossref")  # EZID's, besides erc
KERNEL = ("who", "what", "when", "where")  # the four elements of an ERC written on one line

# From a year to a second; months 21 to 34 are seasons and quarters (2002 draft 7.6).
_MONTH, _DAY, _HOUR, _MINUTE = r"(?:0\d|1[0-2]|2[1-8]|3[1-4])", r"(?:[0-2]\d|3[01])", r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_DATE = rf"(?:BCE)?\d{{4}}(?:{_MONTH}(?:{_DAY}(?:{_HOUR}(?:{_MINUTE}(?:[0-6]\d)?)?)?)?)?~?"
_DATES = rf"{_DATE}(?:-{_DATE})?(?:,{_DATE}(?:-{_DATE})?)*"
_PUNCTUATED = r"(?a)(?<!\d)(\d{4})([.-])(\d\d)(?:\2(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d))?Z?)?)?(?!\d)"  # also W3CDTF


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment such as ``erc`` or ``erc-support``: its elements in order; a label may occur more than once.

    The four kernel elements are in lower case. EZID's other schemas are separate segments (``dc``); its internal
    elements, such as ``_owner``, are in the segment ``_``.
    """

    name: str
    elements: tuple[tuple[str, str], ...]

    def get(self, label: str) -> str | None:
        """Return the first value of a label."""
        return next((value for known, value in self.elements if known == label), None)

    def code(self, label: str) -> str | None:
        """Return the code that the value begins with, such as ``unkn`` for a missing value."""
        return anvl.code_of(self.get(label) or "")

    def date(self, label: str) -> str | None:
        """Return the value as a normalised date, or None."""
        return normal_date(self.get(label) or "")

    def to_dict(self) -> dict[str, Any]:
        """Elements, codes and dates, each as pairs of label and value."""
        dated = [(label, normal_date(value)) for label, value in self.elements if label.startswith("when")]
        coded = [(label, anvl.code_of(value)) for label, value in self.elements]
        return {
            "name": self.name,
            "elements": [list(pair) for pair in self.elements],
            "codes": [list(pair) for pair in coded if pair[1]],
            "dates": [list(pair) for pair in dated if pair[1]],
        }


@dataclass(frozen=True, slots=True)
class Description:
    """The response of an authority. ``spoken`` is False if it was not a description; ``note`` then gives the reason.

    ``asked`` is the request's URL, ``url`` the response's, after redirects, and ``status`` its HTTP status. ``thump``
    is the header ``THUMP-Status`` (or ``HKMP-Status``), ``links`` are the values of ``Link``.
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
        """Decoded ANVL. Continuation lines begin with white space, so that none looks like a label."""
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
    found: Discovery,
    *,
    chooser: Chooser | None = None,
    inflections: Iterable[str] = ("?info",),
    seconds: float = SECONDS,
    allow_private: bool = False,
) -> Description:
    """Ask an ARK's chosen mapping authority to describe it, or the next ones if that cannot be reached.

    ``inflections`` are tried in turn until one is understood: ``?info``, and ``?`` and ``??`` for older authorities. An
    ``h`` candidate is asked over https, then over http. Redirects are limited, servers at addresses that are not public
    are refused unless ``allow_private``, and ``seconds`` is the limit for all requests. Each URL gets half of the
    remaining time, the last one all of it. A ``Reachable`` chooser is told which candidates failed.

    Raises what ``Discovery.choose`` raises, NmaError if no authority could be asked, and ConfigError for invalid
    ``inflections`` or ``seconds``.
    """
    checked(seconds, "seconds")
    wanted = tuple(inflections)
    if not wanted:
        raise ConfigError("must have at least one inflection", key="inflections")
    if unknown := [text for text in wanted if text not in INFLECTIONS]:
        raise ConfigError(f"{unknown[0]!r} is not one of {', '.join(INFLECTIONS)}", key="inflections")
    chosen = found.choose(chooser)
    candidates = [chosen, *(candidate for candidate in found if candidate != chosen)][:MAX_AUTHORITIES]
    schemes = ("https", "http") if found.scheme == "https" else (found.scheme,)
    tried = [each for candidate in candidates for each in with_schemes(candidate, schemes)]
    deadline = time.monotonic() + min(seconds, MAX_SECONDS)
    failures: dict[str, None] = {}
    for number, candidate in enumerate(tried, 1):
        now = time.monotonic()
        until = deadline if number == len(tried) else now + (deadline - now) / 2
        try:
            return _ask(candidate, found, wanted, until, allow_private)
        except NmaError as error:
            failures[str(error)] = None
            if isinstance(chooser, Reachable):
                chooser.failed(candidate, found)
    raise NmaError(f"no mapping authority could be asked for {found.ark}: {'; '.join(failures)}")


def _ask(
    candidate: Candidate, found: Discovery, inflections: tuple[str, ...], deadline: float, allow_private: bool
) -> Description:
    """Return the first response that is a description, else the first one."""
    ark = found.ark
    responses: list[Description] = []
    for inflection in inflections:
        asked = candidate.url(ark.with_received(tail=inflection), scheme=found.scheme)
        left = deadline - time.monotonic()
        if left <= 0:
            break
        responses.append(read(ark, asked, http.get(asked, seconds=left, accept=ACCEPT, allow_private=allow_private)))
        if responses[-1].spoken:
            return responses[-1]
    if not responses:
        raise NmaError(f"{candidate.host}: no answer in time")
    return responses[0]


def read(ark: Ark, asked: str, page: Page) -> Description:
    """Read any response as a description."""
    kind, _, parameters = page.header("content-type").partition(";")
    text = page.body.decode(_charset(parameters), "replace")
    markup = kind.strip().lower() in ("text/html", "application/xhtml+xml")
    found = () if markup or page.status >= 400 else segments(text)
    note = ""
    if not found:
        note = f"no description: HTTP status {page.status}, {kind.strip() or 'no content type'}, no erc: record"
    elif page.cut:
        note = f"cut at {http.MAX_PAGE} bytes"
    links = tuple(value for name, value in page.headers if name == "link")
    status = page.header("thump-status") or page.header("hkmp-status")  # its name in the 2002 draft, section 6
    return Description(ark, asked, page.url, page.status, status, links, found, note)


def _charset(parameters: str) -> str:
    """Return the charset of a Content-Type's parameters if Python knows it, else UTF-8."""
    parts = (parameter.partition("=") for parameter in reversed(parameters.split(";")))
    named = {name.strip().lower(): value.strip('" ') for name, _, value in parts}
    with suppress(LookupError, ValueError):
        found = codecs.lookup(named.get("charset", "utf-8")).name
        b" ".decode(found, "replace")  # raises LookupError for codecs such as zlib and rot13
        return "utf-8" if found in NO_CHARSETS else found
    return "utf-8"


# ---- Electronic Resource Citations


def segments(text: str) -> tuple[Segment, ...]:
    """Return the ``erc...:`` segments of an ANVL text, with or without empty lines between them, and EZID's.

    EZID indents the elements of a segment (``erc:``, then `` who: ...``), or names it in each label (``erc.who:``).
    Without an ERC there are none.
    """
    found: list[tuple[str, list[tuple[str, str]]]] = []
    current: list[tuple[str, str]] | None = None  # the segment of a label that names none

    def named(name: str) -> list[tuple[str, str]]:
        for known, elements in found:
            if known == name:
                return elements
        found.append((name, []))
        return found[-1][1]

    for block in anvl.blocks(text.lstrip("\ufeff")):
        for received, parts in block.pairs:
            label = _element(received)
            schema, dot, element = label.partition(".")
            schema = schema.lower()
            value = anvl.joined(label, parts)
            if label.startswith("!"):
                continue
            if not dot and (schema == "erc" or schema.startswith("erc-")):
                current = []
                found.append((schema, current))
                if not parts[0] and (inner := _indented(parts)):
                    current += inner
                elif value:  # the short form is ``erc: who | what | when | where``
                    short = [anvl.decode(part).strip() for part in value.split("|")]
                    current += zip(KERNEL, short, strict=False)
            elif not dot and schema in _SCHEMAS:
                named(schema).extend(_indented(parts))
            elif dot and schema in ("erc", *_SCHEMAS):
                named(schema).append((_element(element), anvl.decode(value)))
            elif label.startswith("_"):
                named("_").append((label, anvl.decode(value)))
            elif current is not None:
                current.append((label, anvl.decode(value)))
    if not any(name.startswith("erc") for name, _ in found):
        return ()
    return tuple(Segment(name, tuple(elements)) for name, elements in found)


def _element(label: str) -> str:
    """Return a label with a kernel element in lower case.

    Others keep their case, as does ``Reviewed`` in ``when/Reviewed``.
    """
    element, slash, story = label.partition("/")
    return f"{element.lower() if element.lower() in KERNEL else element}{slash}{story}"


def _indented(parts: Iterable[str]) -> list[tuple[str, str]]:
    """Return the elements in the indented lines below the label of a segment; [] if they have no labels."""
    folded: list[tuple[str, list[str]]] = []
    for part in filter(None, parts):
        if element := re.match(r"([A-Za-z_][^\s:]*)[ \t]*:(?:\s+|$)(.*)", part):
            folded.append((_element(element[1]), [element[2]]))
        elif folded:
            folded[-1][1].append(part)
    return [(label, anvl.decode(anvl.joined(label, lines))) for label, lines in folded]


def normal_date(value: str) -> str | None:
    """Return a date, range or list as digits, hyphens and commas, or None.

    >>> [normal_date(text) for text in ("2000 12 29 235955", "1952, 1958-1967", "2001.03.08", "1850~", "spring")]
    ['20001229235955', '1952,1958-1967', '20010308', '1850~', None]
    """
    squeezed = re.sub(_PUNCTUATED, r"\1\3\4\5\6\7", "".join(value.split()))
    return squeezed if re.fullmatch(f"(?a){_DATES}", squeezed) else None
