"""natab, the table of the ARK drafts (2002 and 2019 forms), read and written.

    # National Library of Examples
    12345:  https://nlex.example.org/policy.html
        ark.nlex.example.org        NLEX
        mirror.example.net:8080     MIRR
    #--- end of data ---

The comment above an entry names the organisation when it is one line on its own. What follows ``end of data``
(the drafts put a script there) is not looked at. An NMA is a host with an optional port and nothing else,
so it stands for ``https://host[:port]/ark:/${content}``, and the writer says what it had to leave out.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from maptr import url
from maptr.errors import TableError
from maptr.registry import where as where_
from maptr.registry.records import OnBad, Records, shown
from maptr.table import DEFAULT_STATUS, Entry, Nma, Policy, Table, Who, example_url

END = re.compile(r"[\s#-]*end\s+of\s+data[\s-]*\Z", re.IGNORECASE)
ENTRY = re.compile(r"(?P<naan>[0-9A-Za-z]+):(?:\s+(?P<policy>\S.*))?\Z")  # of a line without white space at its end
_POLICY = re.compile(r"(?:https?://|ftp://|mailto:|urn:|ark:/?)[^\s<>\"]+\Z", re.IGNORECASE)
_ACRONYM = re.compile(r"[A-Z0-9][A-Z0-9&_.-]*\Z")  # capitals, as all of the registry's are: prose is not
_HEADERS = ("Last change", "Reload from", "Mirrored at", "To register")
_HEADER = re.compile(rf"(?P<name>{'|'.join(_HEADERS)}):\s+(?P<value>\S.*)\Z")
_PATH = "/ark:/${content}"

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


def read(text: str, *, filename: str = "", on_bad: OnBad | None = None) -> Table:
    """The table in a natab text; TableError, by line, for each line that is neither comment, entry nor NMA.

    Copying has damaged the natabs printed in the drafts (a lost ``#``, tags around URLs): a damaged line is
    refused, never read as an NMA, and a damaged entry line takes its NMAs with it. Text indented as a
    whole, as the drafts print it, is read as if it were not.
    """
    reader = _Reader(Records(filename, on_bad))
    for number, line in enumerate(re.split(r"\r\n|\r|\n", textwrap.dedent(text.expandtabs())), 1):
        if END.match(line):
            break
        reader.take(number, line.rstrip())
    reader.close()
    return reader.records.table(reader.metadata)


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
        policy = entry.policy.url if entry.policy.url and _POLICY.match(entry.policy.url) else ""
        lines.append(f"{entry.naan}:  {policy}".rstrip() + "\n")
        for nma in entry.nmas:
            host, gone = _host(nma)
            lost += gone
            if host:
                acronym = _acronym(nma.acronym or entry.who.acronym or "")
                lines.append(f"    {host:<32}  {acronym}".rstrip() + "\n")
        losses += [Loss(entry.key, " ".join(what.split())) for what in (*lost, *_lost(entry))]
    lines.append("#\n#--- end of data ---\n")
    return "".join(lines), losses


class _Reader:
    """Where the reading of one natab stands: the entry begun, its NMAs, the comments above it."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.metadata: dict[str, str] = {}
        self._entry: Entry | None = None
        self._nmas: list[Nma] = []
        self._comments: list[str] = []
        self._refused = False  # the entry line was bad: its NMAs belong to nobody

    def take(self, number: int, line: str) -> None:
        if not line or line.lstrip().startswith("#"):
            self._comment(line.strip())
            return
        try:
            if line[0] == " ":
                self._nma(number, line.split())
            else:
                self.close()
                self._begin(number, line)
        except TableError as error:
            self.records.refuse(error)
        self._comments = []

    def close(self) -> None:
        """Keep the entry begun, if there is one."""
        entry, self._entry = self._entry, None
        if entry is not None:
            nmas = tuple(self._nmas)
            self._nmas = []
            self.records.add(Entry(entry.naan, nmas=nmas, who=entry.who, policy=entry.policy, line=entry.line))

    def _comment(self, line: str) -> None:
        text = line.lstrip("#").strip()
        if header := _HEADER.match(text):
            self.metadata[header["name"]] = header["value"]
            text = ""
        if text:
            self._comments.append(text)
        else:
            self._comments = []

    def _begin(self, number: int, line: str) -> None:
        match = ENTRY.match(line)
        self._refused = False  # what follows stray text is judged line by line
        if match is None:
            raise self.records.error(f"neither comment, entry nor NMA: {shown(line)}", line=number)
        self._refused = True
        naan, _ = self.records.key(match["naan"], line=number)
        policy = match["policy"]
        if policy and not _POLICY.match(policy):
            raise self.records.error(f"the policy is neither URL nor ARK: {shown(policy)}", line=number, record=naan)
        self._refused = False
        name = self._comments[0] if len(self._comments) == 1 else ""
        self._entry = Entry(naan, who=Who(name), policy=Policy(url=policy), line=number)

    def _nma(self, number: int, words: list[str]) -> None:
        if self._refused:
            return
        record = self._entry.naan if self._entry else ""
        try:
            host = _host_port(words)
        except ValueError as error:
            text = shown(" ".join(words))
            raise self.records.error(f"no NMA ({error}): {text}", line=number, record=record) from None
        if self._entry is None:
            raise self.records.error(f"an NMA before any entry: {shown(host)}", line=number)
        acronym = words[1] if len(words) == 2 else ""
        self._nmas.append(Nma(f"https://{host}{_PATH}", host, acronym=acronym))


def _host_port(words: list[str]) -> str:
    """The first of the words of an NMA line; ValueError if they are none.

    A lone word without a dot is more likely prose that lost its ``#`` than a host; only with a port, or as
    ``localhost``, is it taken for one.
    """
    if len(words) > 2:
        raise ValueError("more than a host and an acronym")
    if len(words) == 2 and not _ACRONYM.match(words[1]):
        raise ValueError("the acronym is not in capitals")
    parsed = url.parse(f"https://{words[0]}")
    if parsed.rest or words[0].endswith((".", ":")):
        raise ValueError("not host or host:port")
    named = parsed.host.address is None and "." not in words[0]
    if named and parsed.port is None and words[0].lower() != "localhost":
        raise ValueError("a host without a domain")
    return words[0]


def _host(nma: Nma) -> tuple[str, list[str]]:
    """What natab can say of an NMA ("" if nothing), and what it cannot."""
    try:
        parsed = url.parse(example_url(nma.target))
        authority = nma.target[nma.target.index("//") + 2 :]
        host = _host_port([re.split(r"[/?#]", authority, maxsplit=1)[0]])
    except ValueError as error:
        return "", [f"the NMA {nma.target} ({error})"]
    lost = [f"the scheme {parsed.scheme} of {nma.target}"] if parsed.scheme != "https" else []
    if not nma.target.endswith(f"//{host}{_PATH}"):
        what = "path" if nma.target.endswith(_PATH) else "template"
        lost.append(f"the {what} of {nma.target}")
    if nma.status != DEFAULT_STATUS:
        lost.append(f"the status {nma.status}")
    if nma.where and nma.where != host and where_.to_target(nma.where) != nma.target:
        lost.append(f"where: {nma.where}")
    if _acronym(nma.acronym) != nma.acronym:
        lost.append(f"the acronym {nma.acronym!r}")
    return host, lost


def _lost(entry: Entry) -> list[str]:
    """The fields of an entry, its NMAs and name aside, that natab cannot hold."""
    lost = []
    if entry.policy.url and not _POLICY.match(entry.policy.url):
        lost.append(f"the policy {entry.policy.url!r}")
    acronym = entry.who.acronym or ""
    written = {_acronym(nma.acronym or acronym) for nma in entry.nmas}
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
    line = "".join(filter(str.isprintable, " ".join(text.split()))).lstrip("#").strip()
    return "" if END.match(line) or _HEADER.match(line) else line


def _acronym(text: str) -> str:
    return text if _ACRONYM.match(text) else ""
