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
from dataclasses import dataclass

from maptr import url
from maptr.registry import natab_blocks, natab_lines
from maptr.registry import where as where_
from maptr.registry.records import OnBad, Records
from maptr.table import DEFAULT_STATUS, NATAB_PATH, Entry, Nma, Table, example_url

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
    whole, as the drafts print it, is read as if it were not. Entries are made when they are first looked up:
    reading 100,000 NAANs takes a tenth of a second.
    """
    lines = natab_lines.plain(text)
    table = natab_blocks.read(lines, Records(filename, on_bad))
    return read_in_order(lines, Records(filename, on_bad)) if table is None else table


def read_in_order(lines: str, records: Records) -> Table:
    """The same of plain lines, each entry made at once."""
    reader = natab_lines.Reader(records)
    reader.read(lines)
    return records.table(reader.metadata)


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
        policy = entry.policy.url if entry.policy.url and natab_lines.POLICY.match(entry.policy.url) else ""
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


def _host(nma: Nma) -> tuple[str, list[str]]:
    """What natab can say of an NMA ("" if nothing), and what it cannot."""
    try:
        parsed = url.parse(example_url(nma.target))
        authority = nma.target[nma.target.index("//") + 2 :]
        host = natab_lines.host_port([re.split(r"[/?#]", authority, maxsplit=1)[0]])
    except ValueError as error:
        return "", [f"the NMA {nma.target} ({error})"]
    lost = [f"the scheme {parsed.scheme} of {nma.target}"] if parsed.scheme != "https" else []
    if not nma.target.endswith(f"//{host}{NATAB_PATH}"):
        what = "path" if nma.target.endswith(NATAB_PATH) else "template"
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
    if entry.policy.url and not natab_lines.POLICY.match(entry.policy.url):
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
    return [(name, _comment(str(table.metadata[name]))) for name in natab_lines.HEADERS if name in table.metadata]


def _comment(text: str) -> str:
    """Text that stays one comment line, and cannot be taken for a header or the end of the data."""
    line = "".join(filter(str.isprintable, " ".join(text.split()))).lstrip("#").strip()
    return "" if natab_lines.END.match(line) or natab_lines.HEADER.match(line) else line


def _acronym(text: str) -> str:
    return text if natab_lines.ACRONYM.match(text) else ""
