"""Own objects: single ARKs that a gateway redirects (draft 3.4), describes (5.1), or says are gone.

A longer ARK of a registered one is passed on to its URL, with the rest appended (suffix passthrough, as N2T and EZID do
it). The longest registered ARK counts that ends before a ``/`` or ``.`` of the asked one.
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
"""The columns that have a meaning; any other one is kept."""
REDIRECTING, GONE = (302, 303, 307), 410
STATUSES = tuple(map(str, (*REDIRECTING, GONE)))
SWITCH = dict.fromkeys(("", "yes", "true", "t", "1"), True) | dict.fromkeys(("no", "false", "f", "0"), False)
OWN = "redirects"  # the source of a discovery that an own object makes
UNREADABLE = "the own objects of this gateway cannot be read now"
MAX_CUTS = 32  # shorter ARKs that are looked for, of one ARK


class RowError(LocatedError):
    """A bad row, with its file and line."""


class OwnObject(NamedTuple):
    """One row of the file of redirects. ``ark`` is in normal form, ``url`` empty for an object that is gone (410).

    ``who``, ``what`` and ``when`` describe the object (draft 5.1), ``reason`` says why it is gone, ``replaced_by``
    what replaces it (an ARK or a URL), ``authority`` who withdrew it, and ``withdrawn`` when. ``suffix``: longer ARKs
    are passed on. ``more`` has the other columns; the fields before it are in the order of COLUMNS.
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
        """The URL of what replaces an object that is gone, relative if it is an ARK; "" without one that can be read,
        because the row may have been edited."""
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
        """Whether the row says anything of the object itself."""
        return bool(self.who or self.what or self.when)


class Match(NamedTuple):
    """The own object that serves an ARK, and what the ARK has after that of the object."""

    object: OwnObject
    rest: str = ""


class OwnDiscovery(Discovery):
    """The discovery that an own object makes, from its row ``own``."""

    own: Match

    def __init__(
        self, ark: Ark, own: Match, candidates: tuple[Candidate, ...] = (), *, ttl: int, now: float, reason: str = ""
    ) -> None:
        super().__init__(ark, candidates, source=OWN, reason=reason, ttl=ttl, expiration=now + ttl)
        self.__dict__["own"] = own


class FoundObjects(NamedTuple):
    """The objects that a search finds, best first, those that are gone last. ``is_whole``: there are no others."""

    objects: Sequence[OwnObject] = ()
    is_whole: bool = True


class OwnObjects:
    """Own objects by their ARK in normal form: here none. ``naans`` counts those of each NAAN."""

    naans: Mapping[str, int] = MappingProxyType({})
    samples: Mapping[str, Sequence[str]] = MappingProxyType({})  # some ARKs of each NAAN
    broken: Mapping[str, str] = MappingProxyType({})  # ARKs whose rows could not be served, with the reasons
    is_read = True
    unindexed = ""  # why a search does not find their words, but the beginnings of their ARKs only

    def get(self, ark: str) -> OwnObject | None:
        """Return the object of an ARK in normal form. Raises Unreadable."""
        return None

    def first(self, arks: Iterable[str], seconds: float) -> OwnObject | None:
        """Return the first of the ARKs that has an object that is not gone, as far as that is found so soon. Raises
        Unreadable."""
        until = time.monotonic() + seconds
        for ark in arks:
            if time.monotonic() > until:
                return None
            if (one := self.get(ark)) is not None and not one.is_gone:
                return one
        return None

    def search(self, text: str) -> FoundObjects:
        """Return the objects with all words of a text, or whose ARK begins with it. For threads that may wait."""
        return FoundObjects()

    def within(self, seconds: float) -> OwnObjects:
        """Return the same objects, of which all look-ups together wait at most so long; 0: none waits.

        A look-up that would have to wait although it must not raises Busy. The result is for one request.
        """
        return self

    def trouble(self) -> str:
        """Return why look-ups have failed for a while; "" if they do not. Called at intervals, by a thread."""
        return ""

    def __len__(self) -> int:
        return sum(self.naans.values())

    def urls(self) -> Iterator[str]:
        """Yield the URLs of all objects; "" for one that is gone."""
        return iter(())

    def other_columns(self) -> Mapping[str, bool]:
        """Return the columns of their file that have no meaning, and whether descriptions as JSON have them."""
        return {}


class UnreadObjects(OwnObjects):
    """The own objects of a file that could not be read since the start. They are of ``naans``, as far as is known: an
    ARK of these may be one of them. If no NAAN is known, any ARK may be."""

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
    """The own objects of a file, which was last written at ``written``, in seconds since 1970; 0 if it was never read.

    ``file`` is its name without the folder. ``left_out`` counts its bad rows, of which ``bad`` has the first.
    ``trouble`` is why its last content is not used, for clients too: it does not name the folder. ``alarm`` is what its
    operator must mend while all of it is used.
    """

    file: str = ""
    objects: OwnObjects = field(default_factory=OwnObjects)
    written: float = 0.0
    left_out: int = 0
    bad: tuple[RowError, ...] = ()
    trouble: str = ""
    alarm: str = ""

    def to_dict(self, now: float) -> dict[str, Any]:
        """Return all but the objects in the types of JSON, without the folder of the file."""
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
    """Return the own object that serves an ARK: its own row, or the longest one that it begins with.

    Raises Unreadable: whether an ARK is one of the own objects is then not known.
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
    """Yield the normal forms of the ARKs that an ARK begins with, longest first, each with the rest as it came."""
    text = ark.resolution
    start = text.find("/") + 2  # a name has one character at least
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
    """Return the URL of an ARK at its own object: the rest is appended, and the query string before a fragment.

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
    """Return the discovery that an own object makes. One that is gone has no candidate. Raises Unreadable."""
    if own.object.is_gone:
        return OwnDiscovery(ark, own, reason=why_gone(own.object), ttl=settings.max_age_gone, now=now)
    try:
        target = target_of(own, ark)
        where = url.parse(own.object.url)  # that of a long ARK may be too long to be read, and the client is told
    except ValueError as error:
        raise Unreadable(f"{own.object.ark} cannot be followed: {error}") from None
    host, status = where.host.in_url.lower(), own.object.status
    one = Candidate(host, where.port, 0, 0, "", source=OWN, target=target, ark=ark, status=status)
    return OwnDiscovery(ark, own, (one,), ttl=settings.max_age, now=now)


def why_gone(one: OwnObject) -> str:
    """Return what a tombstone says: that the object is gone, why, and what it was."""
    was = "; ".join(filter(None, (one.what, one.who, one.when)))
    reason = f": {one.reason}" if one.reason else ""
    following = f"; it is replaced by {one.replaced_by}" if one.successor else ""
    return f"{one.ark} is gone{reason}" + (f" (it was: {was})" if was else "") + following


def listed(one: OwnObject, name: str) -> dict[str, Any]:
    """Return an object of a list in the types of JSON. ``name`` is that of the operator."""
    about = {"ark": one.ark, "url": one.url, "status": one.status, "who": one.who, "what": one.what, "when": one.when}
    return {**about, **(withdrawal(one, name) if one.is_gone else {}), "more": dict(one.more)}


def withdrawal(one: OwnObject, name: str) -> dict[str, str]:
    """Return what programs get of an object that is gone: what replaces it, and when and by whom it was withdrawn, by
    default the operator ``name``."""
    authority = one.authority or (name if one.withdrawn else "")
    known = {"replaced_by": one.successor and one.replaced_by, "withdrawn": one.withdrawn, "authority": authority}
    return {key: value for key, value in known.items() if value}


def read_row(row: Mapping[str, str], *, allow_private: bool = False) -> OwnObject:
    """Return the object of a row. Raises ValueError, also as ArkSyntaxError, with what is wrong."""
    if not (named := row.get("ark", "")).strip():
        raise ValueError("the ark is missing")
    ark = Ark.parse(named)
    if ark.tail:
        raise ValueError(f"{ark} has {ark.tail!r} after it, which is no part of an ARK")
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
        raise ValueError(f"{ark} is gone (410), and has the URL {target}: only one of the two")
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
    """Return the ARK in normal form, or the URL, of what replaces an object; "" for none. Raises ValueError."""
    if text.lower().startswith(("http:", "https:")):
        url.parse_allowed(text, allow_private=allow_private)
        return url.with_path(text)
    if not text:
        return ""
    ark = Ark.parse(text)
    return f"{ark}{ark.tail}"


def to_row(one: OwnObject) -> dict[str, str]:
    """Return the row of an object, which ``read_row`` reads."""
    row = dict(zip(COLUMNS, map(str, one), strict=False))
    return {**row, "suffix": "yes" if one.suffix else "no", **one.more}
