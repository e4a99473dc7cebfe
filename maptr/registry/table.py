"""The table into which every registry format is read: NAAN (or NAAN/shoulder) -> Entry, in the order of its source.

An Entry keeps everything that the registry says, so that it can be written back. A TableBuilder collects the entries
and the bad records of one file, within limits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from maptr.ark import BETANUMERIC, MAX_NAAN, Ark, each_ark
from maptr.errors import TableError, printable
from maptr.files import read_whole
from maptr.registry.target import DEFAULT_STATUS, as_format

MAX_TABLE = 64 << 20  # bytes of a registry file; the real one has 1.2 million, natab for 100,000 NAANs 8 million
MAX_SHOULDER = 63  # characters; the longest registered one has 8, and a regexp field of 255 bytes must hold it

MAX_EXAMPLE = 400  # characters of a record's text that are searched for an ARK

# A file is read in the process that answers queries. With these limits, a hostile source takes about a second
# and 210 MB (docs/security.md).
MAX_SOURCE = 10 << 20  # bytes of a file that is pulled
LOCAL = 10  # a local file may have this many times the lines, separators and records of a pulled one
MAX_LINES = 1 << 21  # lines; a natab of 100,000 NAANs has 400,000
MAX_PARTS = 100_000  # lines and separators of ANVL and prefixes, unusual lines of a natab; the real registry has 25,000
MAX_ENTRIES = 500_000  # records; the real registry has 2,232
MAX_PARSED = 40_000  # entries and NMAs that are parsed at once; a natab's are parsed when they are looked up
MAX_NMAS = 64  # NMAs of one record, as many as a walk has candidates
MAX_BAD = 10_000  # bad records of one file

_NAAN = re.compile(f"[{BETANUMERIC}]+\\Z")
_SHOULDER = re.compile(r"[A-Za-z0-9=~*+@_$.%-]+\Z")  # the characters of a name (ARK draft 2.4) except "/"
_PATH = re.compile(r"[A-Za-z0-9=~*+@_$.-]+(?:/[A-Za-z0-9=~*+@_$.-]+)*")  # a name and qualifiers, without %-encoding
_LABEL = re.compile(r"ark:/?", re.IGNORECASE)


def parse_key(text: str) -> tuple[str, str]:
    """Return NAAN and shoulder ("" if none) of ``12345``, ``12345/x6``, ``ark:12345`` or ``ark:/12345/x6``.

    The NAAN is lower-cased, the shoulder keeps its case. Raises ValueError with the reason for a NAAN that is not
    betanumeric (ARK draft 2.3) and for a shoulder with which no ARK can start.
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


def normal_key(text: str) -> str:
    """Return the key in the form of tables, such as ``12345/x6`` for ``ark:/12345/x6``; "" if it is not a key."""
    try:
        return "/".join(filter(None, parse_key(text)))
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class Nma:
    """A mapping authority of an entry.

    ``target`` is a URL template, ``where`` the registry's own text for it, ``status`` the HTTP redirect code that the
    registry asks for, ``acronym`` the NMA's operator (only natab has one, on each host line).

    >>> Nma("https://ark.example.org/${content}").url(Ark.parse("ark:12345/x1?info"))
    'https://ark.example.org/12345/x1?info'
    """

    target: str
    where: str = ""
    status: int = DEFAULT_STATUS
    acronym: str = ""

    def url(self, ark: Ark, shoulder: str = "") -> str:
        """Expand the target for an ARK in its resolution form, and append an inflection or query string."""
        return self.expanded(ark, shoulder) + ark.tail

    def expanded(self, ark: Ark, shoulder: str = "") -> str:
        """``url`` without the inflection or query string. A kept hyphen in the shoulder removes those of the suffix."""
        pid = ark.in_url
        name = pid.partition("/")[2]
        after = name if name.startswith(shoulder) else ark.without_hyphens.partition("/")[2].replace("#", "%23")
        values = {
            "content": pid.removeprefix("ark:"),
            "value": name,
            "pid": pid,
            "prefix": ark.naan,
            "suffix": after[len(shoulder) :],
        }
        return as_format(self.target) % values


@dataclass(frozen=True, slots=True)
class Who:
    """The organisation of an entry. None means that the record has no such field."""

    name: str
    name_native: str | None = None
    acronym: str | None = None


@dataclass(frozen=True, slots=True)
class NaanPolicy:
    """The assignment policy: FP or NP, codes (``NR, OP, CC``), tenure, and the URL of its description."""

    orgtype: str | None = None
    policy: str | None = None
    tenure: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the registry: a NAAN, or a shoulder of a NAAN.

    ``when`` is in the source's notation. ``extra`` has the fields without an attribute here, by their names in the
    source. ``line`` is the record's first line in a line-based source (0 in others), which comparisons ignore.

    >>> entry = Entry("12345", "x6", (Nma("https://x6.example.org/${suffix}"),))
    >>> entry.key, entry.urls(Ark.parse("ark:12345/x6np1?info"))
    ('12345/x6', ['https://x6.example.org/np1?info'])
    """

    naan: str
    shoulder: str = ""
    nmas: tuple[Nma, ...] = ()
    who: Who = Who("")
    when: str = ""
    policy: NaanPolicy = NaanPolicy()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    line: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """``12345`` or ``12345/x6``: the record's name in tables, plans, findings and messages."""
        return f"{self.naan}/{self.shoulder}" if self.shoulder else self.naan

    @property
    def test_ark(self) -> Ark | None:
        """The ARK that the registrant offers for tests: an ARK of this record, or its name without the NAAN.

        None without one, and for examples in the registry's form, such as ``ark:00000/x8rd9``.
        """
        text = self.extra.get("test_identifier")
        text = text[:MAX_EXAMPLE].strip() if isinstance(text, str) else ""
        arks = each_ark(f"ark:{self.naan}/{text}" if _PATH.fullmatch(text) else text)
        return next((ark for ark in arks if ark.naan == self.naan and ark.name.startswith(self.shoulder)), None)

    def urls(self, ark: Ark) -> list[str]:
        """Return the URL of an ARK at each NMA, in order."""
        return [nma.url(ark, self.shoulder) for nma in self.nmas]


class Table(Mapping[str, Entry]):
    """An immutable mapping of keys (``12345``, ``12345/x6``) to entries, in the order of their source.

    Tables are equal if they have the same entries in the same order. ``read`` makes one from a file of any registry
    format. Raises ValueError if two entries have the same key.

    ``metadata`` is what the source says about itself (version, dates, description). ``unread`` has the keys of the
    records that could not be read.

    >>> table = Table([Entry("12345"), Entry("12345", "x6"), Entry("12345", "x60")])
    >>> [table.lookup(Ark.parse(text)).key for text in ("ark:12345/x6np1", "ark:12345/x601", "ark:12345/b1")]
    ['12345/x6', '12345/x60', '12345']
    """

    __slots__ = ("_entries", "_make", "_shoulders", "metadata", "unread")

    def __init__(
        self, entries: Iterable[Entry] = (), *, metadata: Mapping[str, Any] | None = None, unread: Iterable[str] = ()
    ) -> None:
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(metadata or {}))
        found: dict[str, Entry] = {}
        for entry in entries:
            if found.setdefault(entry.key, entry) is not entry:
                raise ValueError(f"two records have the key {entry.key}")
        self._hold(found, unread)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, on_bad: OnBad | None = None, scheme: str = "https") -> Table:
        """Read a registry file of any format, recognised by its content. Its options are those of ``registry.read``.

        Raises TableError with the line or the record, and OSError, as for anything but a regular file.
        """
        from maptr import registry  # late: its readers make tables

        return registry.read(read_whole(Path(path), MAX_TABLE), filename=str(path), on_bad=on_bad, scheme=scheme)

    @classmethod
    def lazy(
        cls,
        sources: dict[str, Any],
        make: Callable[[Any], Entry],
        *,
        metadata: Mapping[str, Any],
        unread: Iterable[str] = (),
    ) -> Table:
        """Return a table that makes an entry from its source when it is first looked up. Any thread may use it."""
        table = cls(metadata=metadata)
        table._hold(sources, unread, make)
        return table

    def _hold(
        self, entries: dict[str, Any], unread: Iterable[str], make: Callable[[Any], Entry] = lambda entry: entry
    ) -> None:
        self._entries = entries
        self._make = make
        self._shoulders: dict[str, list[str]] = {}
        for key in entries:
            if "/" in key:
                naan, _, shoulder = key.partition("/")
                self._shoulders.setdefault(naan, []).append(shoulder)
        for shoulders in self._shoulders.values():
            shoulders.sort(key=lambda shoulder: (-len(shoulder), shoulder))
        self.unread = frozenset(unread) - entries.keys()

    def __getitem__(self, key: str) -> Entry:
        entry = self._entries[key]
        if not isinstance(entry, Entry):
            entry = self._entries[key] = self._make(entry)
        return entry

    def __contains__(self, key: object) -> bool:  # Mapping's own would make the entry
        return key in self._entries

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

    def dates(self) -> set[object]:
        """Return the records' dates as in their source, except for records that were not made yet."""
        made = [entry for entry in self._entries.values() if isinstance(entry, Entry)]
        modified = (entry.extra.get(name) for entry in made for name in ("date_modified", "date_created"))
        return {entry.when for entry in made} | {text for text in modified if isinstance(text, str)}

    def naans(self) -> list[str]:
        """Return the keys of the NAAN records, in order."""
        return [key for key in self if "/" not in key]

    def shoulders(self, naan: str) -> list[Entry]:
        """Return the shoulder records of a NAAN in the order in which they match: longest first, then by text."""
        return [self[f"{naan}/{shoulder}"] for shoulder in self._shoulders.get(naan, ())]

    def lookup(self, ark: Ark) -> Entry | None:
        """Return the record that serves an ARK: its longest matching shoulder, or else its NAAN, or else None."""
        name = ark.without_hyphens.partition("/")[2]
        shoulders = self._shoulders.get(ark.naan, ())
        matching = (f"{ark.naan}/{shoulder}" for shoulder in shoulders if name.startswith(shoulder))
        return self.get(next(matching, ark.naan))

    def without(self, keys: Iterable[str]) -> Table:
        """Return a copy of the table without the records with these keys."""
        gone = frozenset(keys)
        return Table((self[key] for key in self if key not in gone), metadata=self.metadata, unread=self.unread)


T = TypeVar("T")

OnBad = Callable[[TableError], None]
"""A function that is called with each bad record, which is then left out."""


class TableBuilder:
    """The entries and the bad records of one file, collected by the reader of a format.

    A bad record is passed to ``on_bad``; without it, the first is raised. A file beyond a limit raises a TableError;
    unless it ``is_pulled``, it may have LOCAL times as much. ``metadata`` is what the file says about itself.
    """

    def __init__(self, filename: str = "", on_bad: OnBad | None = None, *, is_pulled: bool = False) -> None:
        self.filename = filename
        self.refused: set[str] = set()  # names of the bad records, as messages show them
        self.metadata: dict[str, Any] = {}
        self._on_bad = on_bad
        self._factor = 1 if is_pulled else LOCAL
        self._entries: dict[str, Any] = {}
        self._bad = self._parsed = 0

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def add(self, entry: Entry) -> None:
        """Add an entry. A second entry with the same key is a bad record."""
        self._parsed += 1 + len(entry.nmas)
        self.allow(self._parsed, MAX_PARSED, "records and mapping authorities")
        self.put(entry.key, entry, entry.line)

    def put(self, key: str, source: Entry | int, line: int) -> None:
        """Add an entry, or the line from which ``lazy_table`` makes it. A second one with its key is a bad record."""
        first = self._entries.setdefault(key, source)
        if first is not source:
            at = first.line if isinstance(first, Entry) else first
            where = f", first on line {at}" if at else ""
            self.refuse(self.error(f"duplicate record{where}", line=line, record=key))
        if len(self._entries) > MAX_ENTRIES:
            raise self._beyond(MAX_ENTRIES, "records")

    def take(self, make: Callable[[T, TableBuilder], Entry], source: T) -> None:
        """Add the entry that a function makes from a part of the file. A TableError that it raises is a bad record."""
        try:
            entry = make(source, self)
        except TableError as error:
            self.refuse(error)
        else:
            self.add(entry)

    def key(self, text: str, *, line: int) -> tuple[str, str]:
        """Parse a key into NAAN and shoulder. Raises TableError."""
        try:
            return parse_key(text)
        except ValueError as error:
            raise self.error(str(error), line=line, record=shown(text)) from None

    def error(self, reason: str, *, line: int = 0, record: str = "") -> TableError:
        return TableError(reason, filename=self.filename, line=line, record=record)

    def refuse(self, error: TableError) -> None:
        """Report a bad record or a stray line, or raise it."""
        if self._on_bad is None:
            raise error
        self._bad += 1
        if self._bad > MAX_BAD:
            raise self._beyond(MAX_BAD, "bad records")
        self.refused.add(error.record)
        self._on_bad(error)

    def limit(self, text: str, characters: str, most: int, what: str) -> None:
        """Raise TableError for the file if a text has too many of some characters, before they are parsed."""
        if len(text) > most:
            self.allow(sum(map(text.count, characters)), most, what)

    def allow(self, count: int, most: int, what: str) -> None:
        """Raise TableError for the file if it has more of something than is allowed."""
        if count > most * self._factor:
            raise self._beyond(most * self._factor, what)

    def _beyond(self, most: int, what: str) -> TableError:
        return self.error(f"not a registry: more than {most} {what}", line=1)

    def table(self) -> Table:
        return self.lazy_table(lambda entry: entry)

    def lazy_table(self, make: Callable[[Any], Entry]) -> Table:
        """Return the table; an entry put as a line is made when it is looked up."""
        unread = filter(None, map(normal_key, self.refused))
        return Table.lazy(self._entries, make, metadata=self.metadata, unread=unread)


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Number the lines of a text from 1. A line ends with CR, LF, or both."""
    return enumerate(re.split(r"\r\n|\r|\n", text), 1)


def shown(text: str) -> str:
    """Shorten text from a file for a message: one printable line of at most 60 characters."""
    plain = printable(text)
    return plain if len(plain) <= 60 else plain[:57] + "..."
