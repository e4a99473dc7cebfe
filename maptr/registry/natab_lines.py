"""The lines of a natab: what each may be, and the reader that takes one after the other.

This is the one truth of how natab is read; ``natab_blocks`` only puts off what it would find.
"""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from maptr import url
from maptr.errors import TableError
from maptr.registry.records import Records, shown
from maptr.table import NATAB_PATH, Entry, Nma, Policy, Who

END = re.compile(r"[\s#-]*end\s+of\s+data[\s-]*\Z", re.IGNORECASE)
ENTRY = re.compile(r"(?P<naan>[0-9A-Za-z]+):(?:\s+(?P<policy>\S.*))?\Z")  # of a line without white space at its end
POLICY = re.compile(r"(?:https?://|ftp://|mailto:|urn:|ark:/?)[^\s<>\"]+\Z", re.IGNORECASE)
ACRONYM = re.compile(r"[A-Z0-9][A-Z0-9&_.-]*\Z")  # capitals, as all of the registry's are: prose is not
HEADERS = ("Last change", "Reload from", "Mirrored at", "To register")
HEADER = re.compile(rf"(?P<name>{'|'.join(HEADERS)}):\s+(?P<value>\S.*)\Z")

_AT_MARGIN = re.compile(r"^[^ \t\n]", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?")


def plain(text: str) -> str:
    """The text with line feeds alone ending its lines, without tabs, and without an indentation of the whole.

    The drafts print natab indented.
    """
    if "\t" in text:
        text = text.expandtabs()
    if not _AT_MARGIN.search(text):
        text = textwrap.dedent(text)
    return _LINE_END.sub("\n", text) if "\r" in text else text


class _Begun(NamedTuple):
    """An entry line."""

    naan: str
    name: str
    policy: str | None
    line: int


class Reader:
    """Where the reading of a natab stands: the entry begun, its NMAs, the comments above it."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.metadata: dict[str, str] = {}
        self._begun: _Begun | None = None
        self._nmas: list[Nma] = []
        self._comments: list[str] = []
        self._refused = False  # the entry line was bad: its NMAs belong to nobody

    def read(self, text: str, number: int = 1) -> bool:
        """Take plain lines, the first of which has this number, and close; False where the data ended among them."""
        ended = False
        for at, line in enumerate(text.split("\n"), number):
            if END.match(line):
                ended = True
                break
            self.take(at, line.rstrip())
        self.close()
        return not ended

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
        begun, self._begun = self._begun, None
        if begun is not None:
            nmas, self._nmas = tuple(self._nmas), []
            self.records.add(
                Entry(begun.naan, nmas=nmas, who=Who(begun.name), policy=Policy(url=begun.policy), line=begun.line)
            )

    def _comment(self, line: str) -> None:
        text = line.lstrip("#").strip()
        if header := HEADER.match(text):
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
        if policy and not POLICY.match(policy):
            raise self.records.error(f"the policy is neither URL nor ARK: {shown(policy)}", line=number, record=naan)
        self._refused = False
        name = self._comments[0] if len(self._comments) == 1 else ""
        self._begun = _Begun(naan, name, policy, number)

    def _nma(self, number: int, words: list[str]) -> None:
        if self._refused:
            return
        record = self._begun.naan if self._begun else ""
        try:
            host = host_port(words)
        except ValueError as error:
            text = shown(" ".join(words))
            raise self.records.error(f"no NMA ({error}): {text}", line=number, record=record) from None
        if self._begun is None:
            raise self.records.error(f"an NMA before any entry: {shown(host)}", line=number)
        acronym = words[1] if len(words) == 2 else ""
        self._nmas.append(Nma(f"https://{host}{NATAB_PATH}", host, acronym=acronym))


def host_port(words: list[str]) -> str:
    """The first of the words of an NMA line; ValueError if they are none.

    A lone word without a dot is more likely prose that lost its ``#`` than a host; only with a port, or as
    ``localhost``, is it taken for one.
    """
    if len(words) > 2:
        raise ValueError("more than a host and an acronym")
    if len(words) == 2 and not ACRONYM.match(words[1]):
        raise ValueError("the acronym is not in capitals")
    parsed = url.parse(f"https://{words[0]}")
    if parsed.rest or words[0].endswith((".", ":")):
        raise ValueError("not host or host:port")
    named = parsed.host.address is None and "." not in words[0]
    if named and parsed.port is None and words[0].lower() != "localhost":
        raise ValueError("a host without a domain")
    return words[0]
