"""natab, the table format of the ARK drafts of 2002 and 2019: reader and writer.

    # National Library of Examples
    12345:  https://nlex.example.org/policy.html
        ark.nlex.example.org        NLEX
        mirror.example.net:8080     MIRR
    #--- end of data ---

A one-line comment above an entry is the organisation's name. Text after ``end of data`` (a script in the drafts) is
ignored. An NMA is a host with an optional port, and means ``https://host[:port]/ark:/${content}``, or http if the port
is 80. The writer lists what it left out.

An entry is its line and the lines below it, up to the next line that is not indented, empty or a comment. Reading is
lazy: a pattern recognises lines that are certainly valid, and an entry that has only such lines is made when it is
first looked up. Any other entry is made at once, by the same function.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple, cast

from maptr import url
from maptr.ark import BETANUMERIC, MAX_NAAN
from maptr.errors import TableError
from maptr.registry.anvl import one_line
from maptr.registry.table import MAX_NMAS, MAX_PARTS, Entry, NaanPolicy, Nma, Table, TableBuilder, Who, shown
from maptr.registry.target import DEFAULT_STATUS, NATAB_PATH, authority, example_url, unusable, where_to_target

END = re.compile(r"[\s#-]*end\s+of\s+data[\s-]*\Z", re.IGNORECASE)
ENTRY = re.compile(r"(?P<naan>[0-9A-Za-z]+):(?:\s+(?P<policy>\S.*))?\Z")  # a line without trailing white space

_HEADERS = ("Last change", "Reload from", "Mirrored at", "To register")
_HEADER = re.compile(rf"(?P<name>{'|'.join(_HEADERS)}):\s+(?P<value>\S.*)\Z")
_AT_MARGIN = re.compile(r"^[^ \t\n]", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?")

# Lines that are certainly valid: comments that are neither a header nor the end, entries, and NMAs whose host has no
# "_", only letters in its last label, and at most 60 characters, so that no label is too long.
_VALID = re.compile(
    rf"(?:#(?![^\w\n]*+(?:(?i:end)\s|(?:{'|'.join(_HEADERS)}):)).*+"
    rf"|[{BETANUMERIC}]{{1,{MAX_NAAN}}}+:(?: .*+)?"
    r"|(?: ++(?![^ :]{61})(?>(?:[0-9A-Za-z]++[-.])+)(?<=[.])[A-Za-z]++(?::[1-9][0-9]{0,3}+)?(?: .*+)?)?)\Z"
)

_PREAMBLE = """\
# Name Assigning Authority / Name Mapping Authority lookup table
#
# Each entry: a NAAN and a colon at the start of a line, then the URL or ARK of a naming policy;
# below it, indented, one NMA on each line: host[:port] and the acronym of who runs it.
"""


class Loss(NamedTuple):
    """A part of a record that a format cannot hold."""

    record: str
    what: str


def read(text: str, builder: TableBuilder, *, scheme: str = "https") -> Table:
    """Read the table in a natab. A line that is not a comment, entry or NMA is a bad record, reported by line.

    Copies of the drafts' natabs are damaged (a lost ``#``, tags around hosts), so the first word of an NMA must be a
    host, and an invalid NAAN makes the NMAs below it invalid. Policies and acronyms may be any text, as for the script
    in the draft. Text that is indented as a whole, as in the drafts, is dedented. ``scheme`` applies to hosts without
    port 80.
    """
    natab = _Lines(text, scheme, builder)
    builder.metadata |= natab.metadata
    for start in natab.starts:
        if start not in natab.odd:
            builder.put(natab.lines[start].partition(":")[0], start, start)
        elif (entry := natab.entry(start, builder)) is not None:
            builder.add(entry)
    return builder.lazy_table(lambda start: cast("Entry", natab.entry(start, TableBuilder())))


class _Lines:
    """A natab's lines by number, up to its end. Comments begin with ``#``, NMAs with a space. Line 0 is empty.

    ``starts`` has the lines that begin an entry, and 0 for the lines before the first. ``odd`` has those of them whose
    entries have lines that may be invalid.
    """

    def __init__(self, text: str, scheme: str, builder: TableBuilder) -> None:
        self._scheme = scheme
        if "\t" in text:
            text = text.expandtabs()
        if not _AT_MARGIN.search(text):  # the drafts print natab indented
            text = textwrap.dedent(text)
        self.lines = ["", *(_LINE_END.sub("\n", text) if "\r" in text else text).split("\n")]
        self.metadata: dict[str, str] = {}
        unusual = [number for number, match in enumerate(map(_VALID.match, self.lines)) if match is None]
        builder.allow(len(unusual), MAX_PARTS, "unusual lines")
        odd = []
        for number in unusual:
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
        long = {start for start, end in pairwise(self.starts) if end - start > MAX_NMAS + 1}
        self.odd = {0, self.starts[-1]} | long | {self.starts[bisect_right(self.starts, number) - 1] for number in odd}

    def entry(self, start: int, builder: TableBuilder) -> Entry | None:
        """Make the entry that begins at a line; None if there is none. Bad lines are reported to ``builder``."""
        head = self.lines[start].rstrip()
        match = ENTRY.match(head)
        naan, policy = "", None
        if match:
            try:
                naan, policy = builder.key(match["naan"], line=start)[0], match["policy"]
            except TableError as error:
                builder.refuse(error)
                return None  # its NMAs belong to no entry; those below stray text are checked one by one
        elif head:
            builder.refuse(builder.error(f"neither comment, entry nor NMA: {shown(head)}", line=start))
        nmas: list[Nma] = []
        for number in range(start + 1, len(self.lines)):
            line = self.lines[number]
            if line and line[0] == " ":
                if len(nmas) == MAX_NMAS:
                    builder.refuse(builder.error(f"more than {MAX_NMAS} mapping authorities", line=start, record=naan))
                    return None
                try:
                    nmas.append(self._nma(line, naan))
                except ValueError as error:
                    builder.refuse(builder.error(str(error), line=number, record=naan))
            elif line and line[0] != "#":
                break
        if not naan:
            return None
        who, how = Who(self._name_above(start)), NaanPolicy(url=policy)
        return Entry(naan, nmas=tuple(nmas), who=who, policy=how, line=start)

    def _nma(self, line: str, naan: str) -> Nma:
        """Make the NMA of an indented line. Raises ValueError with the reason."""
        word, *words = line.split()
        try:
            host, port = parse_host_port(word)
        except ValueError as error:
            raise ValueError(f"not a valid NMA ({error}): {shown(' '.join(line.split()))}") from None
        if not naan:
            raise ValueError(f"an NMA before any entry: {shown(word)}")
        acronym = "" if words and words[0].startswith("#") else " ".join(words)
        return Nma(f"{url.at(host, port, self._scheme)}{NATAB_PATH}", word, acronym=acronym)

    def _name_above(self, start: int) -> str:
        """Return the comment above a line if it has one line, else ""."""
        name = _comment_text(self.lines[start - 1])
        return "" if name and _comment_text(self.lines[start - 2]) else name


def _comment_text(line: str) -> str:
    """Return the text of a comment line; empty for any other line and for a header."""
    text = line.lstrip("#").strip() if line[:1] == "#" else ""
    return "" if _HEADER.match(text) else text


def parse_host_port(text: str) -> tuple[str, int | None]:
    """Parse ``host`` or ``host:port``, the first word of an NMA. Raises ValueError if it is neither.

    A single label may be prose that lost its ``#``, so it needs a port, unless it is ``localhost``.
    """
    parsed = url.parse(f"https://{text}")
    if parsed.rest or text.endswith((".", ":")):
        raise ValueError("not host or host:port")
    label = parsed.host.address is None and "." not in text
    if label and parsed.port is None and text.lower() != "localhost":
        raise ValueError("a host without a domain")
    return parsed.host.in_url, parsed.port


def write(table: Table) -> tuple[str, list[Loss]]:
    """Write the table, and return a Loss for everything that natab cannot hold."""
    losses: list[Loss] = []
    lines = [_PREAMBLE]
    lines += [f"# {name}: {_comment(str(table.metadata[name]))}\n" for name in _HEADERS if name in table.metadata]
    for entry in table.values():
        if entry.shoulder:
            losses.append(Loss(entry.key, "the whole record: natab has no shoulders"))
            continue
        name = _comment(entry.who.name)
        lines.append(f"#\n# {name}\n" if name else "#\n#\n")
        lost = [] if name == entry.who.name else [f"the organisation's name {entry.who.name!r}"]
        lines.append(f"{entry.naan}:  {one_line(entry.policy.url or '')}".rstrip() + "\n")
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
    """Return an NMA as natab writes it ("" if it cannot), and the parts that are lost."""
    fault = unusable(nma.target, allow_private=True)
    if fault is not None and fault[0] == "unknown-variable":
        return "", [f"the NMA {nma.target} (an unknown variable)"]
    try:
        parsed = url.parse(example_url(nma.target))
        place, port = parse_host_port(authority(nma.target))
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
    if nma.where and nma.where != host and where_to_target(nma.where) != nma.target:
        lost.append(f"where: {nma.where}")
    if _acronym(nma.acronym) != nma.acronym:
        lost.append(f"the acronym {nma.acronym!r}")
    return host, lost


def _lost(entry: Entry) -> list[str]:
    """Return the fields of an entry that natab cannot hold, except its NMAs and its name."""
    lost = []
    if one_line(entry.policy.url or "") != (entry.policy.url or ""):
        lost.append(f"the policy {entry.policy.url!r}")
    acronym = entry.who.acronym or ""
    if acronym and acronym not in {_acronym(nma.acronym) or _acronym(acronym) for nma in entry.nmas}:
        lost.append(f"the acronym {acronym!r}")
    policy = entry.policy
    fields = {"native name": entry.who.name_native, "when": entry.when, "orgtype": policy.orgtype}
    fields |= {"policy": policy.policy, "tenure": policy.tenure, **entry.extra}
    return lost + [f"{name}: {value}" for name, value in fields.items() if value not in (None, "")]


def _comment(text: str) -> str:
    """Convert text to one comment line that is neither a header nor the end of the data."""
    line = one_line(text).lstrip("#").strip()
    return "" if END.match(line) or _HEADER.match(line) else line


def _acronym(text: str | None) -> str:
    """Convert an acronym to a form that fits after a host; empty if it looks like a comment."""
    words = one_line(text or "")
    return "" if words.startswith("#") else words
