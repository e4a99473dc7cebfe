"""Input lines and output rows of ``maptr bulk``: ARKs read, and their discoveries written as CSV or JSON."""

from __future__ import annotations

import csv
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, TextIO

from maptr.ark import MAX_TEXT, Ark, Profile
from maptr.cli import lookup, output
from maptr.client.call import as_ark, prefer
from maptr.discovery import DiscoveryError, NoMappingAuthority
from maptr.errors import ArkSyntaxError, printable

if TYPE_CHECKING:
    from maptr.cache.cache import Cache
    from maptr.choose import Chooser
    from maptr.discovery import Discovery

COLUMNS = ("line", "status", "ark", "url", "note")
FOUND, NONE, UNKNOWN, BAD = STATUSES = "found", "none", "unknown", "bad"

MAX_SHOWN = 20  # bad lines reported on stderr; each has its row
CHOOSING = 16  # threads for a chooser that connects
MAX_HELD = 100_000  # rows; those beyond are written out of order
PART = 2_000  # lines read at a time if the table answers some, because no DNS reply is read meanwhile

Row = dict[str, object]


# ---- input


@contextmanager
def open_input(name: str, *, twice: bool = False) -> Iterator[IO[bytes]]:
    """The file, or stdin for ``-``; a temporary copy if it is to be read ``twice`` and is a pipe."""
    with nullcontext(output.standard_input()) if name == "-" else Path(name).open("rb") as file:
        if not twice or file.seekable():
            yield file
            return
        with TemporaryFile() as copy:
            copyfileobj(file, copy)
            copy.seek(0)
            yield copy


def read_lines(source: IO[bytes], update: Callable[..., object] = lambda *, advance: None) -> Iterator[bytes]:
    """The lines of a file, each cut at the greatest length of an ARK, so that memory is bounded.

    ``update`` is called as that of ``output.progress``, with bytes.
    """
    while line := source.readline(MAX_TEXT + 2):
        rest, size = line, len(line)
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(MAX_TEXT)
            size += len(rest)
        update(advance=size)
        yield line


def read_arks(
    source: IO[bytes], done: Container[int], rows: Rows, update: Callable[..., object], profile: Profile
) -> Iterator[Iterator[tuple[int, Ark]]]:
    """The ARKs of the input that DNS is to be asked for, with their line numbers, in one or several parts.

    Lines in ``done`` are left out. Lines that are not ARKs, and those that the table answers, go to ``rows``.
    """
    lines = enumerate(read_lines(source, update), 1)
    if not rows.uses_table:
        yield _unanswered(lines, done, rows, profile)
        return
    while part := list(islice(lines, PART)):
        yield _unanswered(part, done, rows, profile)


def _unanswered(
    lines: Iterable[tuple[int, bytes]], done: Container[int], rows: Rows, profile: Profile
) -> Iterator[tuple[int, Ark]]:
    for number, line in lines:
        if not line.strip() or number in done:
            continue
        try:
            ark = as_ark(line, profile)
        except ArkSyntaxError as error:
            rows.put(number, {"line": number, "status": BAD, "ark": _text(line), "url": "", "note": str(error)})
            continue
        if not rows.answered(number, ark):
            yield number, ark


def ark_text(line: bytes, profile: Profile) -> str:
    """The ``ark`` of the row of a line."""
    try:
        return str(as_ark(line, profile))
    except ArkSyntaxError:
        return _text(line)


def _text(line: bytes) -> str:
    return line.strip()[:200].decode("utf-8", "backslashreplace")


# ---- output


def row_of(number: int, discovery: Discovery, require: str | None) -> Row:
    """The row of a discovery; its note says why there is no URL, or which source other than DNS has it."""
    row: Row = {"line": number, "status": FOUND, "ark": str(discovery.ark), "url": "", "note": ""}
    try:
        discovery.raise_for_security(require)
        row["url"] = discovery.url()
    except NoMappingAuthority as error:
        row |= {"status": NONE, "note": str(error)}
    except DiscoveryError as error:
        row |= {"status": UNKNOWN, "note": str(error)}
    else:
        if discovery.source != "dns" or discovery.stale:
            row["note"] = lookup.provenance(discovery, time.time())
            row |= {"source": discovery.source, "age": lookup.age_of(discovery), "stale": discovery.stale}
    if discovery.security != "indeterminate":
        row["security"] = discovery.security
    return row


def csv_text(value: object) -> str:
    """A value in CSV, without characters that other programs may obey."""
    return printable(str(value))


def writer(sink: TextIO, as_json: bool, *, header: bool) -> Callable[[Row], None]:
    """A function that writes a row as CSV or JSON; ``header``: CSV's first line is written at once."""
    if as_json:

        def write_json(row: Row) -> None:
            sink.write(output.json_text(row, sink) + "\n")

        return write_json
    rows = csv.DictWriter(sink, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        rows.writeheader()
    return lambda row: rows.writerow({key: csv_text(value) for key, value in row.items()})


class Rows:
    """The rows of a run: the cache judges each discovery, the chooser chooses, and the rows are counted and written.

    A chooser that connects to servers runs in threads, while DNS is asked for other ARKs. ``finish`` writes the last
    rows; ``close`` drops them.
    """

    def __init__(
        self,
        write: Callable[[Row], None],
        cache: Cache | None,
        *,
        ordered: bool,
        require: str | None,
        chooser: Chooser | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()  # by status, and those from the table
        self.advice = ""  # of the discoveries so far, to be printed once
        self.uses_table = cache is not None and not getattr(cache.policy, "takes_dns", False)
        self._write = write
        self._order = InOrder(write) if ordered else None
        self._cache = cache
        self._require = require
        self._chooser = chooser
        self._pool = ThreadPoolExecutor(CHOOSING, "maptr-choose") if getattr(chooser, "waits", False) else None
        self._choosing: deque[tuple[int, Future[Discovery]]] = deque()

    def answered(self, number: int, ark: Ark) -> bool:
        """True if the table answers, so that DNS is not asked; else the row of the line comes later."""
        found = self._cache.unasked(ark) if self._cache is not None and self.uses_table else None
        if self._order is not None:
            self._order.announce(number)
        if found is None:
            return False
        self._choose(number, found)
        return True

    def found(self, number: int, discovery: Discovery) -> None:
        """Take a discovery made by DNS."""
        if self._cache is not None:
            discovery = self._cache.judge(discovery)
        self.advice = self.advice or lookup.advice_of(discovery)
        self._choose(number, discovery)

    def _choose(self, number: int, found: Discovery) -> None:
        if self._pool is None or not found.candidates:
            self.put(number, row_of(number, prefer(found, self._chooser), self._require))
            return
        self._choosing.append((number, self._pool.submit(prefer, found, self._chooser)))
        while self._choosing and (self._choosing[0][1].done() or len(self._choosing) > MAX_HELD):
            self._put_chosen()

    def _put_chosen(self) -> None:
        number, chosen = self._choosing.popleft()
        self.put(number, row_of(number, chosen.result(), self._require))

    def finish(self) -> None:
        while self._choosing:
            self._put_chosen()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def put(self, number: int, row: Row) -> None:
        """Count a row and write it, or hold it until the rows before it are written."""
        self.counts[str(row["status"])] += 1
        self.counts["table"] += row.get("source") == "natab"
        if row["status"] == BAD and self.counts[BAD] <= MAX_SHOWN:
            more = "; further bad lines are only in the output" if self.counts[BAD] == MAX_SHOWN else ""
            output.talk(f"maptr: line {row['line']}: {row['note']}{more}")
        if self._order is not None:
            self._order.put(number, row)
        else:
            self._write(row)


class InOrder:
    """Writes rows in the order in which their lines were announced, holding those that come early."""

    def __init__(self, write: Callable[[Row], None], *, max_held: int = MAX_HELD) -> None:
        self._write = write
        self._max_held = max_held
        self._waiting: dict[int, Row | None] = {}

    def announce(self, number: int) -> None:
        """A line was read whose row comes later."""
        self._waiting[number] = None

    def put(self, number: int, row: Row) -> None:
        if number not in self._waiting and len(self._waiting) >= self._max_held:
            self._write(row)
            return
        self._waiting[number] = row
        while self._waiting:
            first = next(iter(self._waiting))
            ready = self._waiting[first]
            if ready is None:
                return
            del self._waiting[first]
            self._write(ready)
