"""The lines that ``maptr bulk`` reads: ARKs, or not; those that a table answers have their rows before DNS is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from maptr.ark import MAX_TEXT, Ark, Profile
from maptr.cli import output
from maptr.cli.rows import Rows, bad_row
from maptr.client.call import as_ark
from maptr.errors import ArkSyntaxError

if TYPE_CHECKING:
    from maptr.cli.resume import Kept

PART = 2_000  # lines read at a time where the table answers some: meanwhile nobody listens to DNS


class Lines:
    """The ARKs of a file that DNS has to be asked for, by line number; the other lines have their rows at once."""

    def __init__(
        self, source: IO[bytes], done: Kept, rows: Rows, advance: Callable[[int], None], profile: Profile
    ) -> None:
        self._source = source
        self._done = done
        self._rows = rows
        self._advance = advance
        self._profile = profile

    def parts(self) -> Iterator[Iterator[tuple[int, Ark]]]:
        """Those of all lines, or of so many lines at a time."""
        lines = enumerate(read_lines(self._source, self._advance), 1)
        if not self._rows.may_be_answered:
            yield self._to_be_asked(lines)
            return
        while part := list(islice(lines, PART)):
            yield self._to_be_asked(part)

    def _to_be_asked(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Ark]]:
        for number, line in lines:
            if not line.strip() or number in self._done:
                continue
            try:
                ark = as_ark(line, self._profile)
            except ArkSyntaxError as error:
                self._rows.put(number, bad_row(number, line, str(error)))
                continue
            if not self._rows.answered(number, ark):
                yield number, ark


def read_lines(source: IO[bytes], advance: Callable[[int], None] = lambda octets: None) -> Iterator[bytes]:
    """Lines without the rest of those that are longer than any ARK may be, so that memory is bounded."""
    while line := source.readline(MAX_TEXT + 2):
        advance(len(line))
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(MAX_TEXT)
            advance(len(rest))
        yield line


@contextmanager
def source_of(name: str, *, twice: bool = False) -> Iterator[IO[bytes]]:
    """The file, or stdin for ``-``; one that can be read ``twice`` is a copy where it is a pipe."""
    with nullcontext(output.standard_input()) if name == "-" else Path(name).open("rb") as file:
        if not twice or file.seekable():
            yield file
            return
        with TemporaryFile() as copy:
            copyfileobj(file, copy)
            copy.seek(0)
            yield copy
