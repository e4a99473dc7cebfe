"""Own objects: single ARKs that a gateway redirects (draft 3.4), describes (5.1), or reports as gone.

An ARK that extends a registered one is passed on to its URL, with the rest appended (suffix passthrough, as in N2T and
EZID). The longest registered ARK that ends before a ``/`` or ``.`` of the requested one counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from maptr import url
from maptr.ark import Ark
from maptr.config.model import GatewayConfig
from maptr.discovery import Candidate, Discovery
from maptr.errors import ArkSyntaxError, LocatedError
from maptr.gateway.message import Unreadable
from maptr.registry.target import DEFAULT_STATUS

WITHDRAWAL = ("replaced_by", "authority", "withdrawn")
"""The columns of an object that is gone: the ARK or URL that replaces it, who withdrew it, and when."""
COLUMNS = ("ark", "url", "status", "reason", "who", "what", "when", "suffix", *WITHDRAWAL)
"""The columns that have a meaning; any other column is kept."""
REDIRECTING, GONE = (302, 303, 307), 410
STATUSES = tuple(map(str, (*REDIRECTING, GONE)))
SWITCH = dict.fromkeys(("", "yes", "true", "t", "1"), True) | dict.fromkeys(("no", "false", "f", "0"), False)
OWN = "redirects"  # the source of a discovery that an own object makes
UNREADABLE = "the own objects of this gateway cannot be read now"
MAX_CUTS = 32  # shorter ARKs looked up for one ARK


class RowError(LocatedError):
    """A bad row, with its file and line."""


class OwnObject(NamedTuple):
    """One row of the file of redirects. ``ark`` is in normal form, ``url`` empty for an object that is gone (410).

    ``who``, ``what`` and ``when`` describe the object (draft 5.1), ``reason`` says why it is gone, ``replaced_by`` what
    replaces it (an ARK or a URL), ``authority`` who withdrew it, and ``withdrawn`` when. ``suffix``: longer ARKs are
    passed on. ``more`` has all other columns; the fields before it are in the order of COLUMNS.
    """

    ark: str
    url: str = ""
    status: int = DEFAULT_STATUS
    reason: str = ""
    who: str = ""
    what: str = ""
    when: str = ""
    suffix: bool = True
    replaced_by: str = ""
    authority: str = ""
    withdrawn: str = ""
    more: Mapping[str, str] = MappingProxyType({})

    @property
    def naan(self) -> str:
        return self.ark.removeprefix("ark:").partition("/")[0]

    @property
    def has_query(self) -> bool:
        return "?" in self.url.partition("#")[0]

    @property
    def is_gone(self) -> bool:
        return self.status == GONE

    @property
    def successor(self) -> str:
        """The URL of what replaces an object that is gone, relative if it is an ARK; "" if there is none, or if it is
        not valid, because the row may have been edited."""
        with suppress(ValueError):
            if "://" in self.replaced_by:
                url.parse(self.replaced_by)
                return self.replaced_by
            if 0 < len(self.replaced_by) <= url.MAX_URL:
                ark = Ark.parse(self.replaced_by)
                return f"/{ark.in_url}{ark.tail}"
        return ""

    @property
    def is_described(self) -> bool:
        """Whether the row says anything about the object itself."""
        return bool(self.who or self.what or self.when)


class Match(NamedTuple):
    """The own object that serves an ARK, and what follows the object's ARK in it."""

    object: OwnObject
    rest: str = ""


class OwnDiscovery(Discovery):
    """A discovery made from the row ``own`` of an own object."""

    own: Match

    def __init__(
        self, ark: Ark, own: Match, candidates: tuple[Candidate, ...] = (), *, ttl: int, now: float, reason: str = ""
    ) -> None:
        super().__init__(ark, candidates, source=OWN, reason=reason, ttl=ttl, expiration=now + ttl)
        self.__dict__["own"] = own


class FoundObjects(NamedTuple):
    """The objects that a search finds, best first, withdrawn ones last. ``is_whole``: there are no others."""

    objects: Sequence[OwnObject] = ()
    is_whole: bool = True


class OwnObjects:
    """Own objects by their normalized ARK: none, in this base class. ``naans`` counts the objects of each NAAN."""

    naans: Mapping[str, int] = MappingProxyType({})
    samples: Mapping[str, Sequence[str]] = MappingProxyType({})  # some ARKs of each NAAN
    broken: Mapping[str, str] = MappingProxyType({})  # ARKs whose rows cannot be served, with the reasons
    is_read = True
    unindexed = ""  # why a search finds only the beginnings of their ARKs, and no words

    def get(self, ark: str) -> OwnObject | None:
        """Return the object of an ARK in normal form. Raises Unreadable."""
        return None

    def first(self, arks: Iterable[str], seconds: float) -> OwnObject | None:
        """Return the first of these objects that exists and is not gone; None if it is not found within that many
        seconds. Raises Unreadable."""
        until = time.monotonic() + seconds
        for ark in arks:
            if time.monotonic() > until:
                return None
            if (one := self.get(ark)) is not None and not one.is_gone:
                return one
        return None

    def search(self, text: str) -> FoundObjects:
        """Return the objects that have all words of a text, or whose ARK begins with it. For threads that may wait."""
        return FoundObjects()

    def within(self, seconds: float) -> OwnObjects:
        """Return the same objects, whose look-ups together wait at most that long; 0: none waits.

        A look-up that must not wait but would have to raises Busy. The result is for one request.
        """
        return self

    def trouble(self) -> str:
        """Return why look-ups have been failing for a while; "" if they have not. A thread calls it at intervals."""
        return ""

    def __len__(self) -> int:
        return sum(self.naans.values())

    def urls(self) -> Iterator[str]:
        """Yield the URLs of all objects; "" for one that is gone."""
        return iter(())

    def other_columns(self) -> Mapping[str, bool]:
        """Return their file's extra columns, and whether JSON descriptions include them."""
        return {}


class UnreadObjects(OwnObjects):
    """The own objects of a file that has not been readable since the start. Any ARK of a NAAN in ``naans`` may be one
    of them; if no NAAN is known, any ARK may."""

    is_read = False

    def __init__(self, naans: Iterable[str] = ()) -> None:
        self.naans = dict.fromkeys(naans, 0)

    def get(self, ark: str) -> OwnObject | None:
        raise Unreadable(UNREADABLE)

    def search(self, text: str) -> FoundObjects:
        return FoundObjects(is_whole=False)

    @property
    def may_have_any(self) -> bool:
        return not self.naans


@dataclass(frozen=True, slots=True)
class Redirects:
    """The own objects of a file last written at ``written``, in seconds since 1970; 0 if it was never read.

    ``file`` is its name without the folder. ``left_out`` counts its bad rows, of which ``bad`` has the first.
    ``trouble`` is why its latest content is not used; it is safe to show to clients, because it does not name the
    folder. ``alarm`` is what the operator must fix although all of it is used.
    """

    file: str = ""
    objects: OwnObjects = field(default_factory=OwnObjects)
    written: float = 0.0
    left_out: int = 0
    bad: tuple[RowError, ...] = ()
    trouble: str = ""
    alarm: str = ""

    def to_dict(self, now: float) -> dict[str, Any]:
        """Return everything but the objects in JSON types, without the file's folder."""
        return {
            "file": self.file,
            "redirects": len(self.objects),
            "age": round(max(0.0, now - self.written), 3) if self.written else None,
            "left_out": self.left_out,
            "errors": [{"line": error.line, "reason": error.reason} for error in self.bad],
            "trouble": self.trouble,
            "unindexed": self.objects.unindexed,
        }


UNREAD = Redirects()


def match(objects: OwnObjects, ark: Ark) -> Match | None:
    """Return the own object that serves an ARK: its own row, or that of the longest ARK that it begins with.

    Raises Unreadable if it is not known whether the ARK is an own object.
    """
    if ark.naan not in objects.naans:
        return None
    if (found := objects.get(str(ark))) is not None:
        return Match(found)
    for base, rest in _shorter(ark):
        if (found := objects.get(base)) is not None:
            return Match(found, rest) if found.suffix else None
    return None


def _shorter(ark: Ark) -> Iterator[tuple[str, str]]:
    """Yield the normalized ARKs that an ARK begins with, longest first, each with the rest as received."""
    text = ark.resolution
    start = text.find("/") + 2  # a name has at least one character
    end = len(text)
    for _ in range(MAX_CUTS):
        end = max(text.rfind("/", start, end), text.rfind(".", start, end))
        if end < 0:
            return
        try:
            yield str(Ark.parse(text[:end])), text[end:]
        except ArkSyntaxError:
            continue


def target_of(found: Match, ark: Ark) -> str:
    """Return an ARK's URL at its own object: the rest is appended, and the query string inserted before a fragment.

    A URL with a query string takes no inflection. Raises ValueError if the URL would have another host.
    """
    whole = url.with_path(found.object.url)
    base, mark, fragment = whole.partition("#")
    added = ark.tail
    if found.object.has_query:
        added = f"&{ark.query}" if ark.query and not ark.inflection else ""
    made = f"{base}{found.rest.replace('#', '%23')}{added}{mark}{fragment}"
    if made != whole and not url.is_at(made[: url.MAX_URL], whole):
        raise ValueError(f"the URL of {ark} would not be at the host of {found.object.url}")
    return made


def discovery_of(own: Match, ark: Ark, settings: GatewayConfig, now: float) -> OwnDiscovery:
    """Return the discovery for an own object, without candidates if it is gone. Raises Unreadable."""
    if own.object.is_gone:
        return OwnDiscovery(ark, own, reason=why_gone(own.object), ttl=settings.max_age_gone, now=now)
    try:
        target = target_of(own, ark)
        where = url.parse(own.object.url)  # a long ARK's may be too long, and the client is told
    except ValueError as error:
        raise Unreadable(f"{own.object.ark} cannot be followed: {error}") from None
    host, status = where.host.in_url.lower(), own.object.status
    one = Candidate(host, where.port, 0, 0, "", source=OWN, target=target, ark=ark, status=status)
    return OwnDiscovery(ark, own, (one,), ttl=settings.max_age, now=now)


def why_gone(one: OwnObject) -> str:
    """Return a tombstone's text: that the object is gone, why, and what it was."""
    was = "; ".join(filter(None, (one.what, one.who, one.when)))
    reason = f": {one.reason}" if one.reason else ""
    following = f"; it is replaced by {one.replaced_by}" if one.successor else ""
    return f"{one.ark} is gone{reason}" + (f" (it was: {was})" if was else "") + following


def listed(one: OwnObject, name: str) -> dict[str, Any]:
    """Return an object of a list in JSON types. ``name`` is the operator's."""
    about = {"ark": one.ark, "url": one.url, "status": one.status, "who": one.who, "what": one.what, "when": one.when}
    return {**about, **(withdrawal(one, name) if one.is_gone else {}), "more": dict(one.more)}


def withdrawal(one: OwnObject, name: str) -> dict[str, str]:
    """Return what programs get for an object that is gone: what replaces it, and when and by whom it was withdrawn, by
    default the operator ``name``."""
    authority = one.authority or (name if one.withdrawn else "")
    known = {"replaced_by": one.successor and one.replaced_by, "withdrawn": one.withdrawn, "authority": authority}
    return {key: value for key, value in known.items() if value}


def read_row(row: Mapping[str, str], *, allow_private: bool = False) -> OwnObject:
    """Return the object of a row. Raises ValueError (perhaps its subclass ArkSyntaxError) with what is wrong."""
    if not (named := row.get("ark", "")).strip():
        raise ValueError("the ark is missing")
    ark = Ark.parse(named)
    if ark.tail:
        raise ValueError(f"{ark} has {ark.tail!r} after it, which is not part of an ARK")
    try:
        return _read_row(str(ark), row, allow_private=allow_private)
    except ValueError as error:
        reason = str(error)
        raise ValueError(reason if reason.startswith(f"{ark} ") else f"{ark}: {reason}") from None


def _read_row(ark: str, row: Mapping[str, str], *, allow_private: bool) -> OwnObject:
    text = row.get("status", "").strip() or str(DEFAULT_STATUS)
    if text not in STATUSES:
        raise ValueError(f"the status {text} is not one of {', '.join(STATUSES)}")
    status, target = int(text), row.get("url", "").strip()
    if status == GONE and target:
        raise ValueError(f"{ark} is gone (410), and has the URL {target}: only one of the two is possible")
    if status != GONE:
        if not target:
            raise ValueError(f"{ark} has no URL, which only an object that is gone (410) lacks")
        url.parse_allowed(target, allow_private=allow_private)
        target = url.with_path(target)
    switch = row.get("suffix", "").strip().lower()
    if switch not in SWITCH:
        raise ValueError(f"suffix is {switch!r}, not yes or no")
    reason, who, what, when = (row.get(name, "") for name in ("reason", "who", "what", "when"))
    more = {name: value for name, value in row.items() if name not in COLUMNS and value}
    if "replaced_by" not in row and "authority" not in row and "withdrawn" not in row:  # as in most files
        return OwnObject(ark, target, status, reason, who, what, when, SWITCH[switch], more=more)
    by, authority, withdrawn = (row.get(name, "").strip() for name in WITHDRAWAL)
    by = successor(by, allow_private=allow_private)
    return OwnObject(ark, target, status, reason, who, what, when, SWITCH[switch], by, authority, withdrawn, more)


def successor(text: str, *, allow_private: bool = False) -> str:
    """Return the normalized ARK, or the URL, of what replaces an object; "" for none. Raises ValueError."""
    if text.lower().startswith(("http:", "https:")):
        url.parse_allowed(text, allow_private=allow_private)
        return url.with_path(text)
    if not text:
        return ""
    ark = Ark.parse(text)
    return f"{ark}{ark.tail}"


def to_row(one: OwnObject) -> dict[str, str]:
    """Return an object's row, in the form that ``read_row`` reads."""
    row = dict(zip(COLUMNS, map(str, one), strict=False))
    return {**row, "suffix": "yes" if one.suffix else "no", **one.more}
