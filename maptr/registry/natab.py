"""natab, the table of the ARK drafts (2002 and 2019 forms), read and written.

    # National Library of Examples
    12345:  https://nlex.example.org/policy.html
        ark.nlex.example.org        NLEX
        mirror.example.net:8080     MIRR
    #--- end of data ---

The comment above an entry names the organisation when it is one line on its own. What follows ``end of data``
(the drafts put a script there) is not looked at. An NMA is a host with an optional port and nothing else,
so it stands for ``https://host[:port]/ark:/${content}``, or for http where the port is 80, and the writer says what it
had to leave out.

**How it is read.** An entry is its line and the lines below it, up to the next that is neither indented, empty nor a
comment. One pattern tells the lines that cannot be wrong. The entry of such lines is made when it is first looked up,
any other at once, by the same function.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from maptr import url
from maptr.ark import BETANUMERIC, MAX_NAAN
from maptr.errors import TableError
from maptr.registry import where as where_
from maptr.registry.records import OnBad, Records, shown
from maptr.registry.table import DEFAULT_STATUS, NATAB_PATH, Entry, Nma, Policy, Table, Who, example_url

END = re.compile(r"[\s#-]*end\s+of\s+data[\s-]*\Z", re.IGNORECASE)
ENTRY = re.compile(r"(?P<naan>[0-9A-Za-z]+):(?:\s+(?P<policy>\S.*))?\Z")  # of a line without white space at its end

_HEADERS = ("Last change", "Reload from", "Mirrored at", "To register")
_HEADER = re.compile(rf"(?P<name>{'|'.join(_HEADERS)}):\s+(?P<value>\S.*)\Z")
_AT_MARGIN = re.compile(r"^[^ \t\n]", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?")

# Lines that need no second look: comments that are neither a header nor the end, entries, and NMAs whose hosts have no
# "_", only letters in their last label, and 60 characters at most, so that no label has more than 63.
_SOUND = re.compile(
    rf"(?:#(?![^\w\n]*+(?:(?i:end)\s|(?:{'|'.join(_HEADERS)}):)).*+"
    rf"|[{BETANUMERIC}]{{1,{MAX_NAAN}}}+:(?: .*+)?"
    r"|(?: ++(?![^ :]{61})(?:[0-9A-Za-z]++[-.])++(?<=[.])[A-Za-z]++(?::[1-9][0-9]{0,3}+)?(?: .*+)?)?)\Z"
)

_PREAMBLE = """\
# Name Assigning Authority / Name Mapping Authority lookup table
#
# Each entry: a NAAN and a colon at the start of a line, then the URL or ARK of a naming policy;
# below it, indented, one NMA on each line: host[:port] and the acronym of who runs it.
"""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a record held that natab has no room for."""

    record: str
    what: str

    def __str__(self) -> str:
        return f"{self.record}: {self.what}"


def read(text: str, *, filename: str = "", on_bad: OnBad | None = None, scheme: str = "https") -> Table:
    """The table in a natab text; TableError, by line, for each line that is neither comment, entry nor NMA.

    Copying has damaged the natabs printed in the drafts (a lost ``#``, tags around hosts): a line whose first word is
    no host is refused, and an entry line without a NAAN takes its NMAs with it. Policies and acronyms may be any text,
    as for the draft's script. Text indented as a whole, as the drafts print it, is read as if it were not. ``scheme``
    is that of every host without port 80.
    """
    records = Records(filename, on_bad)
    natab = _Lines(text, scheme)
    found: dict[str, Entry | int] = {}
    for start in natab.starts:
        made = natab.entry(start, records) if start in natab.odd else start
        if made is None:
            continue
        key = natab.lines[start].partition(":")[0] if isinstance(made, int) else made.key
        first = found.setdefault(key, made)
        if first is not made:
            line = first if isinstance(first, int) else first.line
            records.bad(f"is there twice, first on line {line}", line=start, record=key)
    records.check(len(found))
    return _LazyTable(found, natab.sound_entry, natab.metadata, unread=set(records.unread) - found.keys())


class _LazyTable(Table):
    """A table whose entries are numbers of lines until they are looked up."""

    __slots__ = ("_found", "_make")

    def __init__(
        self,
        found: dict[str, Entry | int],
        make: Callable[[int], Entry],
        metadata: Mapping[str, Any],
        *,
        unread: set[str],
    ) -> None:
        super().__init__(metadata=metadata, unread=unread)
        self._found = found
        self._make = make

    def __getitem__(self, key: str) -> Entry:
        entry = self._found[key]
        if isinstance(entry, int):
            entry = self._found[key] = self._make(entry)
        return entry

    def __contains__(self, key: object) -> bool:
        return key in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Lines:
    """The lines of a natab by number, up to its end: comments begin with ``#``, NMAs with a space. Line 0 is empty.

    ``starts`` are the lines that begin an entry, and 0 for what stands before them; ``odd`` those of them whose entry
    cannot wait.
    """

    def __init__(self, text: str, scheme: str) -> None:
        self._scheme = scheme
        if "\t" in text:
            text = text.expandtabs()
        if not _AT_MARGIN.search(text):  # the drafts print natab indented
            text = textwrap.dedent(text)
        self.lines = ["", *(_LINE_END.sub("\n", text) if "\r" in text else text).split("\n")]
        self.metadata: dict[str, str] = {}
        odd = []
        for number in [number for number, match in enumerate(map(_SOUND.match, self.lines)) if match is None]:
            line = self.lines[number].rstrip()
            if END.match(line):
                del self.lines[number:]
                break
            if line.lstrip()[:1] in ("", "#"):
                line = line.lstrip()
                if header := _HEADER.match(line.lstrip("#").lstrip()):
                    self.metadata[header["name"]] = header["value"]
            else:
                odd.append(number)
            self.lines[number] = line
        self.starts = [0, *(number for number, line in enumerate(self.lines) if line and line[0] not in " #")]
        self.odd = {0} | {self.starts[bisect_right(self.starts, number) - 1] for number in odd}

    def sound_entry(self, start: int) -> Entry:
        """The entry of lines that are not odd."""
        entry = self.entry(start, Records())
        if entry is None:
            raise ValueError(f"line {start} begins no entry")
        return entry

    def entry(self, start: int, records: Records) -> Entry | None:
        """The entry that a line and the lines below it make; None if they make none. ``records`` is told why."""
        head = self.lines[start].rstrip()
        match = ENTRY.match(head)
        naan, policy = "", None
        try:
            if match:
                naan, policy = records.key(match["naan"], line=start)[0], match["policy"]
            elif head:
                raise records.error(f"neither comment, entry nor NMA: {shown(head)}", line=start)
        except TableError as error:
            records.refuse(error)
            if match:
                return None  # its NMAs belong to no entry; those below stray text are judged line by line
        nmas = []
        for number in range(start + 1, len(self.lines)):
            line = self.lines[number]
            if line and line[0] == " ":
                try:
                    nmas.append(self._nma(line, number, naan, records))
                except TableError as error:
                    records.refuse(error)
            elif line and line[0] != "#":
                break
        if not naan:
            return None
        return Entry(naan, nmas=tuple(nmas), who=Who(self._name_above(start)), policy=Policy(url=policy), line=start)

    def _nma(self, line: str, number: int, naan: str, records: Records) -> Nma:
        """The NMA of an indented line below the entry of a NAAN."""
        host, *words = line.split()
        try:
            place, port = host_port(host)
        except ValueError as error:
            text = shown(" ".join(line.split()))
            raise records.error(f"no NMA ({error}): {text}", line=number, record=naan) from None
        if not naan:
            raise records.error(f"an NMA before any entry: {shown(host)}", line=number)
        acronym = "" if words and words[0].startswith("#") else " ".join(words)
        return Nma(f"{url.at(place, port, self._scheme)}{NATAB_PATH}", host, acronym=acronym)

    def _name_above(self, start: int) -> str:
        """The comment above a line, if it is one line on its own."""
        name = _comment_text(self.lines[start - 1])
        return "" if name and _comment_text(self.lines[start - 2]) else name


def _comment_text(line: str) -> str:
    """The text of a comment line; empty for any other line and for a header."""
    text = line.lstrip("#").strip() if line[:1] == "#" else ""
    return "" if _HEADER.match(text) else text


def host_port(text: str) -> tuple[str, int | None]:
    """The host and port of an NMA line's first word; ValueError if it is none.

    A lone word without a dot is more likely prose that lost its ``#`` than a host; only with a port, or as
    ``localhost``, is it taken for one.
    """
    parsed = url.parse(f"https://{text}")
    if parsed.rest or text.endswith((".", ":")):
        raise ValueError("not host or host:port")
    named = parsed.host.address is None and "." not in text
    if named and parsed.port is None and text.lower() != "localhost":
        raise ValueError("a host without a domain")
    return parsed.host.in_url, parsed.port


def write(table: Table) -> tuple[str, list[Loss]]:
    """The table as natab text, and everything that natab cannot hold: each loss names its record."""
    losses: list[Loss] = []
    lines = [_PREAMBLE, *(f"# {name}: {value}\n" for name, value in _header(table))]
    for entry in table.values():
        if entry.shoulder:
            losses.append(Loss(entry.key, "the whole record: natab knows no shoulders"))
            continue
        name = _comment(entry.who.name)
        lines.append(f"#\n# {name}\n" if name else "#\n#\n")
        lost = [] if name == entry.who.name else [f"the organisation's name {entry.who.name!r}"]
        lines.append(f"{entry.naan}:  {_words(entry.policy.url)}".rstrip() + "\n")
        for nma in entry.nmas:
            host, gone = _host(nma)
            lost += gone
            if host:
                acronym = _acronym(nma.acronym) or _acronym(entry.who.acronym)
                lines.append(f"    {host:<32}  {acronym}".rstrip() + "\n")
        losses += [Loss(entry.key, " ".join(what.split())) for what in (*lost, *_lost(entry))]
    lines.append("#\n#--- end of data ---\n")
    return "".join(lines), losses


def _host(nma: Nma) -> tuple[str, list[str]]:
    """What natab can say of an NMA ("" if nothing), and what it cannot."""
    try:
        parsed = url.parse(example_url(nma.target))
        authority = nma.target[nma.target.index("//") + 2 :]
        place, port = host_port(re.split(r"[/?#]", authority, maxsplit=1)[0])
    except ValueError as error:
        return "", [f"the NMA {nma.target} ({error})"]
    port = 80 if parsed.scheme == "http" and port is None else port
    if (parsed.scheme, port) == ("https", 80):
        return "", [f"the NMA {nma.target} (port 80 means http)"]
    lost = [f"the scheme http of {nma.target}"] if parsed.scheme == "http" and port != 80 else []
    if not nma.target.endswith(NATAB_PATH):
        lost.append(f"the template of {nma.target}")
    elif parsed.rest != example_url(NATAB_PATH):
        lost.append(f"the path of {nma.target}")
    if nma.status != DEFAULT_STATUS:
        lost.append(f"the status {nma.status}")
    host = place if port is None else f"{place}:{port}"
    if nma.where and nma.where != host and where_.to_target(nma.where) != nma.target:
        lost.append(f"where: {nma.where}")
    if _acronym(nma.acronym) != nma.acronym:
        lost.append(f"the acronym {nma.acronym!r}")
    return host, lost


def _lost(entry: Entry) -> list[str]:
    """The fields of an entry, its NMAs and name aside, that natab cannot hold."""
    lost = []
    if _words(entry.policy.url) != (entry.policy.url or ""):
        lost.append(f"the policy {entry.policy.url!r}")
    acronym = entry.who.acronym or ""
    written = {_acronym(nma.acronym) or _acronym(acronym) for nma in entry.nmas}
    if acronym and acronym not in written:
        lost.append(f"the acronym {acronym!r}")
    fields = {
        "native name": entry.who.name_native,
        "when": entry.when,
        "orgtype": entry.policy.orgtype,
        "policy": entry.policy.policy,
        "tenure": entry.policy.tenure,
        **entry.extra,
    }
    return lost + [f"{name}: {value}" for name, value in fields.items() if value not in (None, "")]


def _header(table: Table) -> list[tuple[str, str]]:
    return [(name, _comment(str(table.metadata[name]))) for name in _HEADERS if name in table.metadata]


def _comment(text: str) -> str:
    """Text that stays one comment line, and cannot be taken for a header or the end of the data."""
    line = _words(text).lstrip("#").strip()
    return "" if END.match(line) or _HEADER.match(line) else line


def _words(text: str | None) -> str:
    """Text as it can stand on a line."""
    return " ".join("".join(filter(str.isprintable, " ".join((text or "").split()))).split())


def _acronym(text: str | None) -> str:
    """An acronym as it can stand behind a host; what looks like a comment cannot."""
    words = _words(text)
    return "" if words.startswith("#") else words
