"""The table every format meets in: NAAN (or NAAN/shoulder) -> Entry, in the order of its source.

An Entry keeps what the registry says, so that a format able to hold it gets all of it back. Reading and
writing formats is the business of ``registry``; what is wrong with an entry is the business of ``lint``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any

from maptr import url
from maptr.ark import BETANUMERIC, MAX_NAAN, Ark

_VARIABLE = re.compile(r"\$\{([^}]*)\}")  # any name, so that a bad one is found and not sent to a server

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "content": "NAAN and name: `12345/x6np1`",
        "pid": "the whole ARK: `ark:12345/x6np1`",
        "value": "the name: `x6np1`",
        "prefix": "the NAAN: `12345`",
        "suffix": "what follows the record's shoulder, of a NAAN's record the name: `np1`",
    }
)
"""What a target may ask for as ``${name}``, and what that is, in a record 12345/x6 for ark:12345/x6np1."""

NATAB_PATH = "/ark:/${content}"  # what follows a natab's host or host:port in the target it stands for

MAX_TABLE = 64 << 20  # bytes of a registry file; the real one has 1.2 million, natab for 100,000 NAANs 8 million
DEFAULT_STATUS = 302  # what the central resolver answers where a record says nothing else

MAX_SHOULDER = 63  # the longest registered one has 8; a regexp field of 255 octets must hold it

_NAAN = re.compile(f"[{BETANUMERIC}]+\\Z")
_SHOULDER = re.compile(r"[A-Za-z0-9=~*+@_$.%-]+\Z")  # what a name may hold (ARK draft 2.4), less its "/"
_LABEL = re.compile(r"ark:/?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)")


def example_url(target: str) -> str:
    """The target with something harmless in place of each variable, whatever its name: a URL to judge."""
    return _VARIABLE.sub("x", target)


def variables(target: str) -> list[str]:
    """The names of the variables in a target, also those that nothing fills in."""
    return _VARIABLE.findall(target)


def parse_key(text: str) -> tuple[str, str]:
    """NAAN and shoulder ("" if none) of ``12345``, ``12345/x6``, ``ark:12345`` or ``ark:/12345/x6``.

    The NAAN is lower-cased, the shoulder keeps its case. ValueError, with the reason as its text, for
    a NAAN that is not betanumeric (ARK draft 2.3) or a shoulder that no ARK can start with.
    """
    label = _LABEL.match(text)
    naan, slash, shoulder = text[label.end() if label else 0 :].partition("/")
    naan = naan.lower()
    if not _NAAN.match(naan):
        raise ValueError("the NAAN is not betanumeric" if naan else "no NAAN")
    if len(naan) > MAX_NAAN:
        raise ValueError(f"the NAAN is longer than {MAX_NAAN} characters")
    if slash and not _SHOULDER.match(shoulder):
        raise ValueError("no ARK starts with this shoulder" if shoulder else "no shoulder after the slash")
    if len(shoulder) > MAX_SHOULDER:
        raise ValueError(f"the shoulder is longer than {MAX_SHOULDER} characters")
    return naan, shoulder


def template_parts(target: str) -> list[tuple[str, str]]:
    """A target as (literal text, variable that follows it); the last variable is empty.

    >>> template_parts("https://h.example/ark:/${content}")
    [('https://h.example/ark:/', 'content'), ('', '')]
    """
    pieces = _VARIABLE.split(target)
    return list(zip(pieces[::2], [*pieces[1::2], ""], strict=True))


@dataclass(frozen=True, slots=True)
class Nma:
    """One place that serves an entry.

    ``target`` is a URL template over VARIABLES, ready to expand. ``where`` is what the registry said in
    its own words. ``status`` is the HTTP redirect code the registry wants. ``acronym`` names who runs
    this NMA (natab has one on each host line); empty where the format has none.
    """

    target: str
    where: str = ""
    status: int = DEFAULT_STATUS
    acronym: str = ""

    def url(self, ark: Ark, shoulder: str = "") -> str:
        """The target expanded for an ARK in its resolution form, inflection or query string carried along."""
        pid = ark.resolution.replace("#", "%23")  # as ``Ark.in_url``
        name = pid.partition("/")[2]
        values = {
            "content": f"{ark.naan}/{name}",
            "value": name,
            "pid": pid,
            "prefix": ark.naan,
            "suffix": name[len(shoulder) :],
        }
        return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), self.target) + ark.tail


def unusable(nma: Nma, *, allow_private: bool = False) -> tuple[str, str] | None:
    """Why no client can use an NMA, as a code and a reason; None if one can."""
    for name in variables(nma.target):
        if name not in VARIABLES:
            return (
                "unknown-variable",
                f"the target asks for ${{{name}}}, which nothing fills in: {nma.target}",
            )
    if "${" in authority(nma.target):
        return "bad-target", f"a variable stands in the host: {nma.target}"
    try:
        parsed = url.parse(example_url(nma.target))
    except ValueError as error:
        code = "no-public-host" if str(error) == "no host" else "bad-target"
        return code, f"{error}: {nma.target}"
    host = parsed.host
    if allow_private:
        return None
    if host.is_local:
        return "no-public-host", f"{host.text} is not a public host: {nma.target}"
    if host.address is None and "." not in host.text.strip("."):
        return "no-public-host", f"{host.text} is a single label, not a public host: {nma.target}"
    return None


def authority(text: str) -> str:
    """The host and port of what may be no URL; empty where there is none."""
    match = _AUTHORITY.match(text)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Who:
    """The organisation; None means the registry's format has the field and says nothing."""

    name: str
    name_native: str | None = None
    acronym: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How the organisation assigns: FP or NP, codes (``NR, OP, CC``), tenure, and a URL that says more."""

    orgtype: str | None = None
    policy: str | None = None
    tenure: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the registry: a NAAN, or a shoulder under a NAAN.

    ``when`` is kept as the source writes it. ``extra`` holds, by the source's own names, the fields that
    the other attributes have no room for. ``line`` is where the record starts in a line-based source (0: no
    lines); it takes no part in comparison.

    >>> entry = Entry("12345", "x6", (Nma("https://x6.example.org/${suffix}"),))
    >>> entry.key, entry.urls(Ark.parse("ark:12345/x6np1?info"))
    ('12345/x6', ['https://x6.example.org/np1?info'])
    """

    naan: str
    shoulder: str = ""
    nmas: tuple[Nma, ...] = ()
    who: Who = Who("")
    when: str = ""
    policy: Policy = Policy()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled or deeply copied: the plain mapping takes its place on the way.
        values = (getattr(self, field.name) for field in fields(self) if field.name not in ("extra", "line"))
        return Entry, (*values, dict(self.extra), self.line)

    @property
    def key(self) -> str:
        """``12345`` or ``12345/x6``: the record's name in tables, plans, findings and messages."""
        return f"{self.naan}/{self.shoulder}" if self.shoulder else self.naan

    def urls(self, ark: Ark) -> list[str]:
        """What the registry means for an ARK of this record: the URL at each NMA, in order."""
        return [nma.url(ark, self.shoulder) for nma in self.nmas]


class Table(Mapping[str, Entry]):
    """Entries by key, in the order of their source; immutable, equal when the entries and their order are.

    ``metadata`` is what the source says of itself (version, dates, description). ``unread`` are the keys of records
    that stand in the source and could not be read.

    >>> table = Table([Entry("12345"), Entry("12345", "x6"), Entry("12345", "x60")])
    >>> [table.lookup(Ark.parse(text)).key for text in ("ark:12345/x6np1", "ark:12345/x601", "ark:12345/b1")]
    ['12345/x6', '12345/x60', '12345']
    """

    __slots__ = ("_entries", "_shoulders", "metadata", "unread")

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        metadata: Mapping[str, Any] | None = None,
        unread: Iterable[str] = (),
    ) -> None:
        self._entries: dict[str, Entry] = {}
        self._shoulders: dict[str, list[Entry]] = {}
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(metadata or {}))
        for entry in entries:
            if entry.key in self._entries:
                raise ValueError(f"{entry.key} stands in the table twice")
            self._entries[entry.key] = entry
            if entry.shoulder:
                self._shoulders.setdefault(entry.naan, []).append(entry)
        self.unread = frozenset(unread) - self._entries.keys()

    def __getitem__(self, key: str) -> Entry:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Table, metadata=dict(self.metadata), unread=self.unread), (tuple(self.values()),)

    def __repr__(self) -> str:
        return f"<Table of {len(self.naans())} NAANs, {len(self) - len(self.naans())} shoulders>"

    def naans(self) -> list[str]:
        """Keys of the NAAN records, in order."""
        return [key for key in self if "/" not in key]

    def shoulders(self, naan: str) -> list[Entry]:
        """Shoulder records of a NAAN, longest shoulder first, then by text: the order in which they match."""
        return sorted(self._shoulders.get(naan, ()), key=lambda entry: (-len(entry.shoulder), entry.shoulder))

    def lookup(self, ark: Ark) -> Entry | None:
        """The record that serves an ARK: its longest matching shoulder, else its NAAN, else None."""
        name = ark.resolution.partition("/")[2]
        for entry in self.shoulders(ark.naan):
            if name.startswith(entry.shoulder):
                return entry
        return self.get(ark.naan)

    def without(self, keys: Iterable[str]) -> Table:
        """The same table less some records."""
        gone = frozenset(keys)
        there = (entry for key, entry in self.items() if key not in gone)
        return Table(there, metadata=self.metadata, unread=self.unread)
