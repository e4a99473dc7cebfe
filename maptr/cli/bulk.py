"""``maptr bulk``: one row of output for each ARK of a file. An interrupted run can be resumed."""

from __future__ import annotations

import csv
import heapq
import json
import math
import os
import re
import stat
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

import click

from maptr.ark import Ark, Profile
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import LookupOptions
from maptr.cli.options import output_option, refuse_input
from maptr.discovery import Discovery, DiscoveryError, NoMappingAuthority
from maptr.errors import ArkSyntaxError, cell, printable
from maptr.resolver.call import as_ark, prefer
from maptr.resolver.servers import HTTPS

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.client import Client

COLUMNS = ("line", "status", "ark", "url", "note")
FOUND, NONE, UNKNOWN, BAD = STATUSES = "found", "none", "unknown", "bad"

MAX_SHOWN = 20  # bad lines reported on stderr; every bad line has its row
CHOOSING = 16  # threads for a chooser that connects to servers
MAX_HELD = 100_000  # rows that wait for an earlier line; beyond this, rows are written out of order
PARTIAL = ".partial"  # suffix of the file that will replace OUT
DELIMITERS = ("\t", ",", ";")  # between columns, in the order in which they are tried
MAX_LINE = 1 << 16  # bytes; the rest of a longer line is ignored
_HEADER = ",".join(COLUMNS).encode() + b"\n"
_DOCUMENT = json.dumps({"schema": output.SCHEMA}).encode()[:-1]

Row = dict[str, object]


@command(
    exits={
        0: "every ARK has a URL",
        1: "an ARK has no mapping authority, or a line is not an ARK",
        8: "a file cannot be read or written",
        9: "DNS did not answer for an ARK, nor did a table",
    }
)
@click.argument("words", nargs=-1, metavar="[FILE] [@SERVER[#PORT]]...", type=options.PATH)
@output_option("Write the rows to OUT instead of standard output.", "OUT")
@click.option("--resume", is_flag=True, help="Keep the rows in OUT and add those of the other lines.")
@click.option("--overwrite", is_flag=True, help="Replace OUT once all rows are written.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document a line instead of CSV.")
@click.option(
    "--column",
    metavar="NAME|NUMBER",
    help="Read FILE as CSV, with commas or semicolons, or as TSV, and take the ARKs from this column: a name in its "
    "first line, or a number from 1 if it has no such line.",
)
@click.option("--unordered", is_flag=True, help="Write rows as they are ready, not in the order of FILE.")
@click.option(
    "--concurrency",
    default=256,
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Keep at most this many queries in flight.",
)
@click.option(
    "--max-connections",
    default=8,
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Keep at most this many TCP connections open; fewer if the server or the system does not allow so many.",
)
@options.RATE_OPTION
@options.discovery_options("Give up an ARK this long after its first query.")
def bulk(
    words: Sequence[str],
    target: Path | None,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    column: str | None,
    unordered: bool,
    concurrency: int,
    max_connections: int,
    rate: float | None,
    **given: Any,
) -> None:
    """Discover every ARK of FILE, which has one a line; - or no FILE is standard input.

    Writes a row for each line: line, status (found, none, unknown, bad), ark, url and note. A line that is not an ARK
    has the status bad. Blank lines and comments (#) are skipped and counted. Each name is queried once, even if many
    ARKs share it.

    @SERVER names the servers to ask, @tcp://HOST by TCP and @tls://HOST by TLS only; @https:// is refused. Without
    @SERVER, a pulled table or a configured cache answers as it does in maptr discover, and the note says so.

    An existing OUT needs --resume or --overwrite. --overwrite writes to OUT.partial and replaces OUT once all rows
    are written. --resume first checks that each row in OUT belongs to its line.

    \b
    Examples:
      maptr bulk arks.txt @127.0.0.1#5300 -o urls.csv
      maptr bulk arks.txt @127.0.0.1#5300 -o urls.csv --resume
      maptr bulk collection.csv --column identifier @127.0.0.1#5300 -o urls.csv
      cut -f1 list.tsv | maptr bulk --json @127.0.0.1#5300
    """
    words, options = lookup.with_plus(words, LookupOptions.of(given))
    named, servers = lookup.split_servers(words)
    if len(named) > 1:
        raise click.UsageError("give at most one FILE")
    source = named[0] if named else "-"
    out = Out(target, resume, overwrite, as_json)
    _check(source, out, options)
    config = lookup.read_config(options.config)
    lookup.refuse_schemes(lookup.servers_of(servers, config), servers, config, "maptr bulk asks servers", (HTTPS,))
    limits = {"concurrency": concurrency, "rate": rate, "max_connections": max_connections}
    with lookup.client_of(servers, options, config, **limits) as client:
        chooser = lookup.chooser_of(options, config, client)
        rows = _run(client, source, out, column, options, chooser, ordered=not unordered)
    _report(rows, client.resolver.questions, column, options, resume=resume)
    if rows.counts[UNKNOWN]:
        sys.exit(output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if rows.counts[NONE] or rows.counts[BAD] else output.EXIT_OK)


class Out(NamedTuple):
    """Where the rows go: a file or, without ``path``, standard output."""

    path: Path | None
    resume: bool
    overwrite: bool
    as_json: bool


def _check(source: str, out: Out, options: LookupOptions) -> None:
    """Refuse options that contradict each other, and an OUT that is an input or exists. Raises UsageError."""
    if (out.resume or out.overwrite) and out.path is None:
        raise click.UsageError("--resume and --overwrite need -o OUT")
    if out.resume and out.overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other")
    table = options.client.get("table")
    table = table if isinstance(table, str | None) else "-"
    if source == table == "-":
        raise click.UsageError("only one of FILE and --table can be standard input")
    refuse_input(out.path, [source, table, options.client.get("trust_anchors"), options.config])
    if out.path is not None and out.path.is_file() and not (out.resume or out.overwrite):
        raise click.UsageError(f"{out.path}: exists: --resume continues it, --overwrite replaces it")


def _run(
    client: Client,
    source: str,
    out: Out,
    column: str | None,
    options: LookupOptions,
    chooser: Chooser | None,
    *,
    ordered: bool,
) -> Rows:
    """Discover the ARKs of a file, and write a row for each line."""
    with ExitStack() as stack:
        file = output.standard_input() if source == "-" else stack.enter_context(Path(source).open("rb"))
        if out.resume and not file.seekable():
            raise click.UsageError("--resume reads the input twice: give a FILE instead of a pipe")
        lines = NumberedLines(file, column)
        size = 0
        done: Set[int] = frozenset()
        if out.resume and out.path is not None:
            size, done = kept_rows(out.path, lines, as_json=out.as_json, profile=options.profile)
        sink = stack.enter_context(_sink(out.path, size if out.resume else None, overwrite=out.overwrite))
        hidden = out.path is None and sys.stdout.isatty()  # the rows go to the same terminal
        update = stack.enter_context(output.progress("ARKs", _size(file), hidden=hidden))
        write = writer(sink, out.as_json, header=not size)
        rows = Rows(write, ordered=ordered, require=options.client.get("require"), chooser=chooser)
        stack.callback(rows.close)
        arks = read_arks(lines.read(update), done, rows, options.profile)
        for number, found in client.discover_pairs(arks, ordered=ordered):
            rows.found(number, found)
        rows.write(wait=True)
    return rows


def _report(rows: Rows, questions: int, column: str | None, options: LookupOptions, *, resume: bool) -> None:
    """Say how many lines of each kind there were, and what to do about those without an ARK."""
    counts = rows.counts
    written = sum(counts[status] for status in STATUSES)
    table = f", {counts['table']} from the table" if counts["table"] else ""
    blank = "blank lines and comments" if column is None else "blank lines, comments and lines without the column"
    skipped = f", {counts['skipped']} {blank} skipped" if counts["skipped"] else ""
    options.inform(
        f"{written} lines: {counts[FOUND]} found, {counts[NONE]} none, {counts[UNKNOWN]} unknown, {counts[BAD]} bad; "
        f"{questions} names asked{table}{skipped}"
    )
    if column is not None and counts["skipped"] and not written and not resume:
        output.warning(f"--column: no line has anything in the column {column}")
    if column is None and counts["with columns"]:
        output.warning("bad lines seem to have columns: name the one with the ARKs by --column NAME, or by its number")
    if rows.advice:
        options.inform(rows.advice)


@contextmanager
def _sink(target: Path | None, kept: int | None, *, overwrite: bool) -> Iterator[TextIO]:
    """Open the file for the rows: truncated to its ``kept`` bytes, or beside a file that it replaces at the end.

    On Ctrl-C, a message says what was written and how to resume. An OSError names the file.
    """
    if target is None:
        try:
            yield sys.stdout
            sys.stdout.flush()
        except KeyboardInterrupt:
            output.interrupted("rows so far were written; with -o OUT, --resume could continue")
        return
    replaced = Path(os.path.realpath(target)) if overwrite and target.is_file() else None
    written = target if replaced is None else replaced.with_name(f"{replaced.name}{PARTIAL}")
    mode: Literal["x", "w", "a"] = "x" if replaced is not None else "w" if kept is None else "a"
    try:
        if kept is not None and target.exists():
            os.truncate(target, kept)
        with written.open(mode, encoding="utf-8", newline="") as sink:
            if replaced is not None:
                written.chmod(stat.S_IMODE(replaced.stat().st_mode))
            yield sink
            sink.flush()
            if replaced is not None:
                os.fsync(sink.fileno())
        if replaced is not None:
            written.replace(replaced)
    except FileExistsError:
        reason = f"an interrupted run left it; continue with -o {written} --resume, or remove it"
        raise click.UsageError(f"{written}: exists: {reason}") from None
    except OSError as error:
        error.filename = error.filename or str(target)
        raise
    except KeyboardInterrupt:
        stays = f"{replaced} is unchanged; " if replaced is not None else ""
        output.interrupted(f"{stays}{written} has the rows so far; continue with: -o {written} --resume")


def _size(source: IO[bytes]) -> int | None:
    """Return the size of a regular file in bytes; None for anything else."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


# ---- input


class NumberedLines:
    """The numbered texts of a file: its lines or, for CSV and TSV, one column of each line.

    A record of CSV is one line. Raises UsageError for a ``column`` that is not in the header, which is the first line.
    """

    def __init__(self, source: IO[bytes], column: str | None) -> None:
        self._source = source
        self._before = 0  # number of lines up to the header
        self._column: int | None = None
        self._delimiter = ""  # known once the header is read
        if column is not None and re.fullmatch("[0-9]{1,9}", column):
            if not int(column):
                raise click.UsageError("--column: columns are numbered from 1")
            self._column = int(column) - 1
        elif column is not None:
            header = b"#"
            while header and is_skipped(header):
                header = self._next_line()
                self._before += 1
            self._column = self._find(column, header)
        self._start = source.tell() if source.seekable() else 0

    def read(self, update: Callable[..., object] = lambda *, advance: None) -> Iterator[tuple[int, bytes]]:
        """Yield the number and text of each line in bounded memory. ``update`` is from ``output.progress``."""
        number = self._before
        while line := self._next_line():
            rest, size = line, len(line)
            while rest and not rest.endswith(b"\n"):
                rest = self._source.readline(MAX_LINE)
                size += len(rest)
            update(advance=size)
            number += 1
            if self._column is not None and not is_skipped(line):
                with suppress(csv.Error):  # the line has the status bad
                    cells = self._cells(line)
                    if size == len(line) or self._column < len(cells) - 1:  # not the cell where a long line was cut
                        line = "".join(cells[self._column : self._column + 1]).encode("utf-8", "surrogateescape")
            yield number, line

    def rewind(self) -> None:
        self._source.seek(self._start)

    def _next_line(self) -> bytes:
        return self._source.readline(MAX_LINE).removeprefix(BOM_UTF8)

    def _find(self, column: str, header: bytes) -> int:
        """Return the index of the column with this name in the header, and set the delimiter of all lines."""
        names: list[str] = []
        for self._delimiter in DELIMITERS:
            with suppress(csv.Error):
                names = [name.strip() for name in self._cells(header)]
            if column in names:
                return names.index(column)
        shown = header.decode("utf-8", "replace").strip()[:200]
        raise click.UsageError(f"--column: there is no {column!r} in the first line: {printable(shown)}")

    def _cells(self, line: bytes) -> list[str]:
        """Return the cells of a line. Raises csv.Error."""
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        self._delimiter = self._delimiter or next((mark for mark in DELIMITERS if mark in text), ",")
        if self._delimiter == "\t" and text.count('"') % 2:  # TSV without quoting has a quotation mark
            return text.split("\t")
        return next(csv.reader([text], delimiter=self._delimiter), [])


def is_skipped(line: bytes) -> bool:
    """Return whether a line is blank or a comment."""
    return not line.strip() or line.lstrip().startswith(b"#")


def read_arks(
    lines: Iterable[tuple[int, bytes]], done: Set[int], rows: Rows, profile: Profile
) -> Iterator[tuple[int, Ark]]:
    """Yield the ARKs to look up, with their line numbers.

    Lines in ``done`` are skipped. A line that is not an ARK goes to ``rows``.
    """
    for number, line in lines:
        if is_skipped(line):
            rows.counts["skipped"] += 1
            continue
        if number in done:
            continue
        try:
            ark = as_ark(line, profile)
        except ArkSyntaxError as error:
            rows.counts["with columns"] += any(mark.encode() in line.strip() for mark in DELIMITERS)
            rows.put(number, {"line": number, "status": BAD, "ark": _text(line), "url": "", "note": str(error)})
            continue
        yield number, ark


def ark_text(line: bytes, profile: Profile) -> str:
    """Return the ``ark`` column for the text of a line."""
    try:
        return str(as_ark(line, profile))
    except ArkSyntaxError:
        return _text(line)


def _text(line: bytes) -> str:
    return line.strip()[:200].decode("utf-8", "backslashreplace")


# ---- rows


def row_of(number: int, discovery: Discovery, require: str | None) -> Row:
    """Make the row of a discovery. Its note has the reason if there is no URL, and the source if it is not DNS."""
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
            row["note"] = lookup.provenance(discovery)
            row |= {"source": discovery.source, "age": lookup.age_of(discovery), "stale": discovery.stale}
    if discovery.security != "indeterminate":
        row["security"] = discovery.security
    return row


def csv_text(value: object) -> str:
    """Write a value for CSV, without control characters and formulas."""
    return cell(printable(str(value)))


def writer(sink: TextIO, as_json: bool, *, header: bool) -> Callable[[Row], object]:
    """Return a function that writes a row as CSV or JSON. ``header``: write the header of CSV now."""
    if as_json:
        return lambda row: sink.write(output.json_text(row, sink) + "\n")
    rows = csv.DictWriter(sink, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        rows.writeheader()
    return lambda row: rows.writerow({key: csv_text(value) for key, value in row.items()})


class Rows:
    """The rows of a run. Each discovery passes the chooser; its row is then counted and written.

    A row is held until the rows of all earlier lines are written. If ``ordered``, discoveries come in the order of
    their lines. A chooser that connects to servers runs in threads, while DNS is asked for other ARKs. ``close`` drops
    the rows that are held.
    """

    def __init__(
        self,
        write: Callable[[Row], object],
        *,
        ordered: bool,
        require: str | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()  # rows by status, and rows from the table
        self.advice = ""  # printed once: what to do if the origin does not exist
        self._write = write
        self._ordered = ordered
        self._require = require
        self._chooser = chooser
        self._pool = ThreadPoolExecutor(CHOOSING, "maptr-choose") if getattr(chooser, "waits", False) else None
        self._held: list[tuple[int, Row | Future[Discovery]]] = []  # a heap by line number

    def found(self, number: int, discovery: Discovery) -> None:
        """Add the row of a discovery."""
        self.advice = self.advice or lookup.advice_of(discovery)
        if self._pool is not None and discovery.candidates:
            self.put(number, self._pool.submit(prefer, discovery, self._chooser))
        else:
            self.put(number, row_of(number, prefer(discovery, self._chooser), self._require))
        self.write(number)

    def put(self, number: int, row: Row | Future[Discovery]) -> None:
        """Hold the row of a line, or the future discovery of the row, and write the rows that are due."""
        heapq.heappush(self._held, (number, row))
        self.write(0 if self._ordered else math.inf)

    def write(self, last: float = math.inf, *, wait: bool = False) -> None:
        """Write the rows up to the line ``last``. Stop at a row whose chooser still runs, unless ``wait``."""
        while self._held and (self._held[0][0] <= last or len(self._held) > MAX_HELD):
            number, row = self._held[0]
            if isinstance(row, Future):
                if not (row.done() or wait or len(self._held) > MAX_HELD):
                    return
                row = row_of(number, row.result(), self._require)
            heapq.heappop(self._held)
            self.counts[str(row["status"])] += 1
            self.counts["table"] += row.get("source") == "natab"
            if row["status"] == BAD and self.counts[BAD] <= MAX_SHOWN:
                more = "; further bad lines are only in the output" if self.counts[BAD] == MAX_SHOWN else ""
                output.warning(f"line {row['line']}: {row['note']}{more}")
            self._write(row)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


# ---- the rows of an earlier run


def kept_rows(target: Path, lines: NumberedLines, *, as_json: bool, profile: Profile) -> tuple[int, Set[int]]:
    """Read the rows in ``target``, check them against the lines of the input, and rewind the input.

    Returns the size of the complete rows in bytes, and the numbers of their lines. Raises UsageError if maptr bulk did
    not write ``target`` in this format from this input, and OSError.
    """
    if not target.exists():
        return 0, set()
    if not target.is_file():
        raise click.UsageError(f"{target}: is not a regular file, so it has no rows to keep")
    kept: dict[int, int] = {}  # line number -> hash of the ARK as CSV has it
    with target.open("rb") as file:
        for record, number, ark in _rows(file, as_json, target):
            found = hash(csv_text(ark))
            if kept.setdefault(number, found) != found:
                raise _not_ours(target, record, f"line {number} has another row already")
        size = file.tell()
    last = 0
    for last, line in lines.read():
        if last in kept and kept[last] != hash(csv_text(ark_text(line, profile))):
            raise click.UsageError(
                f"{target}: its row of line {last} has another ARK: it was written from another input"
            )
    if (beyond := max(kept, default=0)) > last:
        raise click.UsageError(f"{target}: has a row of line {beyond}, but the input has {last} lines")
    lines.rewind()
    return size, kept.keys()


def _rows(file: IO[bytes], as_json: bool, target: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the record number, line number and ARK of each complete row. Leaves the file at the end of the last one."""
    record = whole = 0
    begins = _DOCUMENT if as_json else _HEADER
    while line := file.readline():
        if record == 0 and not (line.startswith(begins) or (not line.endswith(b"\n") and begins.startswith(line))):
            raise _not_ours(target, 1, f"it does not begin with {begins.decode().strip()}")
        if not line.endswith(b"\n"):
            break  # an interrupted run wrote only a part of the row
        whole += len(line)
        record += 1
        if record == 1 and not as_json:
            continue
        try:
            if as_json:
                row = json.loads(line)
            else:
                (fields,) = csv.reader([line.decode()], strict=True)
                row = dict(zip(COLUMNS, fields, strict=True)) | {"schema": output.SCHEMA}
            number = int(row["line"])
            known = row["schema"] == output.SCHEMA and row["status"] in STATUSES and row.keys() >= set(COLUMNS)
            if not known or number < 1:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError, csv.Error):
            raise _not_ours(target, record, "not a row") from None
        yield record, number, str(row["ark"])
    file.seek(whole)


def _not_ours(target: Path, record: int, why: str) -> click.UsageError:
    return click.UsageError(f"{target}: record {record} was not written by maptr bulk in this format: {why}")
