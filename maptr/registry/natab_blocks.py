"""A natab read in one pass and parsed where it is looked up.

One regular expression cuts the text into tokens. An *ordinary block* is an entry line with the NMA lines, comments and
empty lines below it, each of which it proves to be one that the reader takes. Anything else comes line by line and
is *odd*: capitals in a NAAN, an address for a host, the end of the data, damage. Blocks are only listed by NAAN, and
the reader (``natab_lines``) makes the entry when somebody asks. Odd tokens go to the reader at once, with the block
before, whose lines they may be, and the one after, to which a comment among them may belong. So there
is one truth: what the pattern is too strict for costs time, and what it would be too lax for a property test finds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from maptr.ark import BETANUMERIC, MAX_NAAN
from maptr.errors import TableError
from maptr.registry.natab_lines import HEADERS, Reader
from maptr.registry.records import Records
from maptr.table import Entry, Table

_CHUNK = 64  # blocks whose lines are counted together

_NAAN = f"[{BETANUMERIC}]{{1,{MAX_NAAN}}}+"
# Hosts without "_" whose last label has only letters, 60 characters at most, so that no label has more than 63.
_HOST = r"(?![^ :\n]{61})(?:[0-9A-Za-z]++[-.])++(?<=[.])[A-Za-z]++(?::[1-9][0-9]{0,3}+)?"
_POLICY = r"(?:https?://|ftp://|mailto:|urn:|ark:/?)[^\s<>\"]++"
_ACRONYM = r"[A-Z0-9][A-Z0-9&_.-]*+"
_COMMENT = rf"#(?![^\w\n]*+(?:(?i:end)\s|(?:{'|'.join(HEADERS)}):))[^\n]*+"
_TOKEN = re.compile(
    rf"{_NAAN}:(?: ++{_POLICY})? *+\n(?: ++{_HOST}(?: ++{_ACRONYM})? *+\n|{_COMMENT}\n|\n)*+"
    r"|[^\n]++|\n++"
)


class _BlockTable(Table):
    """A table whose entries are numbers of blocks until they are looked up."""

    __slots__ = ("_found", "_make")

    def __init__(
        self, found: dict[str, Entry | int], make: Callable[[int], Entry], metadata: Mapping[str, Any]
    ) -> None:
        super().__init__(metadata=metadata)
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


class _Blocks:
    """The tokens of a text, and the line on which each begins."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _TOKEN.findall(text)
        chunks = range(0, len(self.tokens), _CHUNK)
        self._lines = list(accumulate((self._count(at, at + _CHUNK) for at in chunks), initial=1))

    def _count(self, start: int, stop: int) -> int:
        return "".join(self.tokens[start:stop]).count("\n")

    def odd_runs(self) -> Iterator[tuple[int, int]]:
        """The tokens, from and to, that cannot wait: the odd ones, each with its neighbours."""
        odd = (at for at, token in enumerate(self.tokens) if token[-1] != "\n" or token[0] == "\n")
        start = stop = 0
        for at in odd:
            if at - 1 > stop:
                if stop:
                    yield start, stop
                start = at - 1
            stop = min(at + 2, len(self.tokens))
        if stop:
            yield start, stop

    def naans(self, start: int, stop: int) -> Iterator[tuple[str, int]]:
        """The NAAN of each of some blocks."""
        return zip([token.partition(":")[0] for token in self.tokens[start:stop]], range(start, stop), strict=True)

    def take(self, reader: Reader, start: int, stop: int) -> bool:
        """Have some tokens read; False where the data ended among them."""
        above = self._comments_above(start)
        number = self._lines[start // _CHUNK] + self._count(start - start % _CHUNK, start)
        return reader.read(above + "".join(self.tokens[start:stop]), number - above.count("\n"))

    def _comments_above(self, at: int) -> str:
        """The comments that end the block before: two lines tell whether it is one on its own, and so a name."""
        above = ""
        for line in reversed(self.tokens[at - 1].rsplit("\n", 3)[1:-1] if at else ()):
            if line and line[0] != "#":
                break
            above = f"{line}\n{above}"
        return above

    def entry(self, at: int) -> Entry:
        """The entry of an ordinary block."""
        reader = Reader(Records())
        self.take(reader, at, at + 1)
        return reader.records.entries[0]


def read(text: str, records: Records) -> Table | None:
    """The table in a plain natab text; None where a NAAN is there twice, which has to be seen in order.

    ``records`` is told the errors, as it would be by the reader.
    """
    blocks = _Blocks(text)
    found: dict[str, Entry | int] = {}
    metadata: dict[str, Any] = {}
    errors: list[TableError] = []
    number = at = 0
    for start, stop in blocks.odd_runs():
        found.update(blocks.naans(at, start))
        reader = Reader(Records(records.filename, errors.append))
        goes_on = blocks.take(reader, start, stop)
        records.check(len(found), len(errors))
        entries = reader.records.entries
        found.update((entry.key, entry) for entry in entries)
        number += start - at + len(entries)
        metadata |= reader.metadata
        at = stop
        if not goes_on:
            break
    else:
        found.update(blocks.naans(at, len(blocks.tokens)))
        number += len(blocks.tokens) - at
    records.check(len(found))
    if len(found) < number:
        return None
    for error in errors:
        records.refuse(error)
    return _BlockTable(found, blocks.entry, metadata)
