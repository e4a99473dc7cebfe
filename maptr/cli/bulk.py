"""``maptr bulk``: one row of output for each ARK of a file. An interrupted run can be resumed."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeVar

import click

from maptr.ark import Ark, Profile, find_arks
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import LookupOptions
from maptr.cli.options import input_name, output_option, refuse_input
from maptr.cli.output import counted
from maptr.discovery import Discovery, DiscoveryError, NoMappingAuthority
from maptr.errors import NOT_UTF8, SCHEMA, ArkSyntaxError, ConfigError, cell, printable, text_of_cell
from maptr.resolver.call import as_ark, prefer
from maptr.resolver.servers import HTTPS

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.client import Client

COLUMNS = ("line", "status", "ark", "url", "note", "suggestion")
FIND_COLUMNS = tuple(f"maptr_{name}" for name in COLUMNS[1:5])  # after "row" and the columns of the input
TEXT = "text"  # the only column of an input without --column
FOUND, NONE, UNKNOWN, BAD = STATUSES = "found", "none", "unknown", "bad"

MAX_SHOWN = 20  # bad lines reported on stderr; every bad line has its row
CHOOSING = 16  # threads for a chooser that connects to servers
MAX_HELD = 100_000  # discoveries that wait for the chooser; beyond this, DNS also waits
PARTIAL = ".partial"  # suffix of the file that will replace OUT
DELIMITERS = ("\t", ",", ";")  # between columns, in the order in which they are tried
MAX_LINE = 1 << 16  # bytes; the rest of a longer line is ignored
MAX_BLANK = 1000  # blank lines before the row that shows the number of columns
_DOCUMENT = json.dumps({"schema": SCHEMA}).encode()[:-1]

Row = dict[str, object]
Line = tuple[int, bytes]
"""The number of a line, from 1, and its text: the line, or its cell in the column with ARKs."""
Token = TypeVar("Token")


class InputRow(NamedTuple):
    """A row of the input. ``number`` counts rows from 1, as spreadsheets do; ``line`` is the number of its first line.

    ``text`` is the line, or its cell in the column with ARKs. ``trouble`` says why cells are missing.
    """

    line: int
    number: int
    text: bytes
    cells: Sequence[str]
    trouble: str = ""


class Place(NamedTuple):
    """A row of the input, and one ARK in it; None if it has none."""

    record: InputRow
    ark: Ark | None


@command(
    exits={
        0: "every ARK has a URL",
        1: "an ARK has no mapping authority, or a line is not an ARK",
        8: "a file cannot be read or written",
        9: "neither DNS nor a table answered for an ARK",
    }
)
@click.argument("words", nargs=-1, metavar="[FILE] [@SERVER[#PORT]]...", type=options.PATH)
@output_option("Write the rows to OUT instead of standard output.", "OUT")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep the rows in OUT, and add those of the other lines. The exit code counts all rows.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT once all rows are written.")
@options.json_option("Write one JSON document per line instead of CSV.")
@click.option(
    "--column",
    metavar="NAME|NUMBER",
    help="Read FILE as CSV, with commas or semicolons, or as TSV, and take the ARKs from this column: a name in its "
    "first line, or a number from 1 if it has no such line.",
)
@click.option(
    "--find",
    is_flag=True,
    help="Find the ARKs in each line, or in its column: a row for each, with all columns of FILE.",
)
@click.option("--unordered", is_flag=True, help="Write rows as soon as they are ready, not in the order of FILE.")
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
    help="Keep at most this many TCP connections open; fewer if the server or the system does not allow that many.",
)
@options.RATE_OPTION
@options.discovery_options("It starts with the first query for the ARK.")
def bulk(
    words: Sequence[str],
    target: Path | None,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    column: str | None,
    find: bool,
    unordered: bool,
    concurrency: int,
    max_connections: int,
    rate: float | None,
    **given: Any,
) -> None:
    """Discover every ARK in FILE, which has one per line; - or no FILE means standard input.

    Writes a row for each line: line, status (found, none, unknown, bad), ark, url, note and suggestion. A line that is
    not an ARK has the status bad, and a suggestion if it seems to mean one. Blank lines and comments (#) are skipped
    and counted; with --column, so are rows without that cell. A row of several lines has the number of its first line.
    Each name is queried once, even if many ARKs share it.

    --find reads lines or cells with other text, such as "ark:12345/x5 (cover)" or "=HYPERLINK(...)". It writes a row
    for each ARK: row, its row number in FILE, then the unchanged columns of FILE (without --column only one, text),
    then maptr_status, maptr_ark, maptr_url and maptr_note. A row without an ARK gives one row with the status none; a
    row that cannot be read is bad. Two spellings of one ARK in one row count as one. No line is a comment.

    @SERVER asks this DNS server instead of the system's resolver; @tcp://HOST by TCP and @tls://HOST by TLS only.
    @https:// is refused. Without @SERVER, a table answers where DNS does not, as in maptr discover, and the note says
    so.

    An existing OUT needs --resume or --overwrite. --overwrite writes to OUT.partial and replaces OUT once all rows
    are written. --resume first checks that each row in OUT belongs to its line.

    \b
    Examples:
      maptr bulk arks.txt @127.0.0.1#5300 -o urls.csv
      maptr bulk arks.txt @127.0.0.1#5300 -o urls.csv --resume
      maptr bulk collection.csv --column identifier @127.0.0.1#5300 -o urls.csv
      maptr bulk collection.csv --find --column notes @127.0.0.1#5300 -o urls.csv
      cut -f1 list.tsv | maptr bulk --json @127.0.0.1#5300
    """
    words, options = lookup.with_plus(words, LookupOptions.of(given))
    named, servers = lookup.split_servers(words)
    if len(named) > 1:
        raise click.UsageError("give at most one FILE")
    source = named[0] if named else "-"
    out = Out(target, resume, overwrite, as_json, find)
    _check(source, out, options)
    config = lookup.read_config(options.config)
    lookup.refuse_schemes(lookup.servers_of(servers, config), servers, config, "maptr bulk asks servers", (HTTPS,))
    limits = {"concurrency": concurrency, "rate": rate, "max_connections": max_connections}
    with lookup.client_of(servers, options, config, **limits) as client:
        chooser = lookup.chooser_of(options, config, client)
        counts, advice = _run(client, source, out, column, options, chooser, ordered=not unordered)
    _report(counts, client.resolver.questions, column, options, find=find)
    if advice:
        options.inform(advice)
    if counts[UNKNOWN]:
        sys.exit(output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if counts[NONE] or counts[BAD] else output.EXIT_OK)


class Out(NamedTuple):
    """Where the rows go, a file or, without ``path``, standard output, and their form."""

    path: Path | None
    resume: bool
    overwrite: bool
    as_json: bool
    find: bool = False


def _check(source: str, out: Out, options: LookupOptions) -> None:
    """Refuse options that contradict each other, and an OUT that is an input or exists. Raises UsageError."""
    if (out.resume or out.overwrite) and out.path is None:
        raise click.UsageError("--resume and --overwrite need -o OUT")
    if out.resume and out.overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other")
    given = [options.client.get(name) for name in ("table", "trust_anchors")]
    inputs = [source, *(each if isinstance(each, str | None) else "-" for each in given)]
    if inputs.count("-") > 1:
        raise click.UsageError("only one of FILE, --table and --trust-anchor can be standard input")
    refuse_input(out.path, [*inputs, options.config])
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
) -> tuple[Counter[str], str]:
    """Write a row for each line of a file. Returns the numbers of rows and lines by kind, and advice."""
    counts: Counter[str] = Counter()
    reported, advice = 0, ""
    require = options.client.get("require")
    with ExitStack() as stack:
        file = output.standard_input() if source == "-" else stack.enter_context(Path(source).open("rb"))
        if out.resume and not file.seekable():
            raise click.UsageError("--resume reads the input twice: give a FILE instead of a pipe")
        try:
            lines = NumberedLines(file, column)
        except ConfigError as error:
            output.fail(f"{input_name(source)}:{error.line}: {error.reason}", output.EXIT_UNREADABLE)
        form = FindForm(lines.columns(), out.as_json) if out.find else LineForm(out.as_json)
        size = 0
        done: Set[int] = frozenset()
        if out.resume and out.path is not None:
            size, done = kept_rows(out.path, lines, form, counts, options.profile)
        sink = stack.enter_context(_sink(out.path, size if out.resume else None, overwrite=out.overwrite))
        hidden = options.quiet or (out.path is None and sys.stdout.isatty())  # the rows go to the same terminal
        update = stack.enter_context(output.progress("ARKs", _size(file), hidden=hidden))
        write = writer(sink, form, header=not size)
        wanted = _remaining(form.places(lines.records(update), options.profile, counts), done, form)
        pairs = client.discover_pairs(wanted, ordered=ordered, profile=options.profile)
        for place, found in stack.enter_context(closing(chosen(pairs, chooser))):
            row = form.fields(place, found, require)
            write(form.document(place, row))
            status = str(row["status"])
            counts[status] += 1
            counts["table"] += row.get("source") == "natab"
            advice = advice or lookup.advice_of(found, options)
            if status == BAD:
                counts["with columns"] += any(mark.encode() in place.record.text.strip() for mark in DELIMITERS)
                reported += 1
                if reported <= MAX_SHOWN:
                    more = "; further bad lines are only in the output" if reported == MAX_SHOWN else ""
                    output.warning(f"line {row['line']}: {row['note']}{more}")
    return counts, advice


def _remaining(places: Iterable[Place], done: Set[int], form: LineForm) -> Iterator[tuple[Place, Ark | bytes]]:
    """Yield each place that needs a row, with what to discover."""
    for place in places:
        if form.key(place) not in done:
            yield place, place.record.text if place.ark is None else place.ark


def chosen(pairs: Iterable[tuple[Token, Discovery]], chooser: Chooser | None) -> Generator[tuple[Token, Discovery]]:
    """Yield each discovery with the chooser's choice first, in the same order.

    A chooser that connects to servers runs in threads, while DNS is asked for other ARKs.
    """
    if not getattr(chooser, "waits", False):
        for line, found in pairs:
            yield line, prefer(found, chooser)
        return
    pool = ThreadPoolExecutor(CHOOSING, "maptr-choose")
    held: deque[tuple[Token, Future[Discovery]]] = deque()
    try:
        for line, found in pairs:
            held.append((line, pool.submit(prefer, found, chooser)))
            while held and (held[0][1].done() or len(held) > MAX_HELD):
                first, future = held.popleft()
                yield first, future.result()
        for line, future in held:
            yield line, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _report(counts: Counter[str], questions: int, column: str | None, options: LookupOptions, *, find: bool) -> None:
    """Say how many rows of each kind there are, and what to do about lines without an ARK."""
    rows = sum(counts[status] for status in STATUSES)
    kept = f" ({counts['kept']} kept)" if counts["kept"] else ""
    table = f", {counts['table']} from the table" if counts["table"] else ""
    skipped = f", {counted(counts['skipped'], 'line')} skipped as blank or a comment" if counts["skipped"] else ""
    noun = "row" if find else "line"
    options.inform(
        f"{counted(rows, noun)}{kept}: {', '.join(f'{counts[status]} {status}' for status in STATUSES)}; "
        f"{counted(questions, 'name')} asked{table}{skipped}"
    )
    if column is not None and counts["skipped"] and not rows:
        output.warning(f"--column: the column {column} is empty in every line")
    if counts["longer"]:
        output.warning(f"{counted(counts['longer'], 'row')} with more cells than the first one: the rest is left out")
    if column is None and counts["with columns"] and not find:
        output.warning("bad lines seem to have columns: choose the one with the ARKs by --column NAME or NUMBER")


@contextmanager
def _sink(target: Path | None, kept: int | None, *, overwrite: bool) -> Iterator[TextIO]:
    """Open the file for the rows: truncated to its ``kept`` bytes, or beside a file that it replaces at the end."""
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
    """The numbered texts of a file: its lines or, for CSV and TSV, one column of each record.

    A record has the number of its first line: a quoted cell may contain line ends (RFC 4180 2.6). Raises UsageError
    for a ``column`` that is not in the header, which is the first line, and ConfigError for a file in UTF-16, as Excel
    writes "Unicode Text", and for a workbook.
    """

    def __init__(self, source: IO[bytes], column: str | None) -> None:
        self._source = source
        first = source.readline(MAX_LINE)
        self._ahead = [first]  # lines to read again, the next one last
        if b"\0" in first or first.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
            raise ConfigError(NOT_UTF8, line=1)
        self._before = self._rows_before = 0  # numbers of lines and of rows up to the header
        self._header: list[str] = []
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
            more = self._rest_of_record(header)
            self._rows_before = self._before
            self._before += len(more)
            self._column = self._find(column, b"".join((header, *more)))
        self._start = source.tell() - sum(map(len, self._ahead)) if source.seekable() else 0

    def columns(self) -> list[str]:
        """Return the names of all columns: from the header, or numbers."""
        if self._column is None:
            return [TEXT]
        if self._header:
            return [name or str(number) for number, name in enumerate(self._header, 1)]
        width = self._column + 1
        read = [self._next_line()]
        while read[-1] and not read[-1].strip() and len(read) < MAX_BLANK:
            read.append(self._next_line())
        more = self._rest_of_record(read[-1])
        with suppress(csv.Error):
            width = max(width, len(self._cells(b"".join((read[-1], *more)))))
        self._ahead += reversed([*read, *more])
        return [str(number) for number in range(1, width + 1)]

    def read(self, update: Callable[..., object] = lambda *, advance: None) -> Iterator[Line]:
        """Yield the number and text of each line, as ``records`` does."""
        return ((record.line, record.text) for record in self.records(update))

    def records(self, update: Callable[..., object] = lambda *, advance: None) -> Iterator[InputRow]:
        """Yield each row in bounded memory. ``update`` is from ``output.progress``."""
        number, rows = self._before, self._rows_before
        while line := self._next_line():
            rest, size = line, len(line)
            while rest and not rest.endswith(b"\n"):
                rest = self._source.readline(MAX_LINE)
                size += len(rest)
            number, rows = number + 1, rows + 1
            more: list[bytes] = []
            is_cut = size > len(line)
            cells = [line.decode("utf-8", "surrogateescape").rstrip("\r\n")]
            trouble = f"longer than {MAX_LINE} bytes" if is_cut else ""
            if self._column is not None:
                more = self._rest_of_record(line)
                size += sum(map(len, more))
                try:
                    cells = self._cells(record := b"".join((line, *more)))
                except csv.Error as error:  # the line has the status bad
                    trouble = str(error)
                else:
                    # Not the cell where a long line was cut, and not one that a quotation mark has swallowed.
                    if self._column < len(cells) - is_cut or not (is_cut or record.count(b'"') % 2):
                        cell = "".join(cells[self._column : self._column + 1]).encode("utf-8", "surrogateescape")
                        if b"ark" in cell.lower() or not is_skipped(line):  # "#1,ark:12345/x1" is not a comment
                            line = cell
                    elif not is_cut:
                        trouble = "a quotation mark is not closed"
            update(advance=size)
            yield InputRow(number, rows, line, cells, trouble)
            number += len(more)

    def rewind(self) -> None:
        self._source.seek(self._start)
        self._ahead = []

    def _next_line(self) -> bytes:
        line = self._ahead.pop() if self._ahead else self._source.readline(MAX_LINE)
        return line.removeprefix(BOM_UTF8)

    def _rest_of_record(self, line: bytes) -> list[bytes]:
        """Read the further lines of the record that begins with this one; none if a quotation mark opens no cell."""
        lines, size, quotes = [line], len(line), line.count(b'"')
        while quotes % 2 and size < MAX_LINE and lines[-1].endswith(b"\n") and (more := self._next_line()):
            lines.append(more)
            size += len(more)
            quotes += more.count(b'"')
        try:
            if lines[1:]:
                self._cells(b"".join(lines), strict=True)
        except csv.Error:
            self._ahead += reversed(lines[1:])
            return []
        return lines[1:]

    def _find(self, column: str, header: bytes) -> int:
        """Return the index of the column with this name in the header, and set the delimiter of all lines."""
        names: list[str] = []
        for self._delimiter in DELIMITERS:
            with suppress(csv.Error):
                names = [name.strip() for name in self._cells(header)]
            if column in names:
                self._header = names
                return names.index(column)
        shown = header.decode("utf-8", "replace").strip()[:200]
        raise click.UsageError(f"--column: there is no {column!r} in the first line: {printable(shown)}")

    def _cells(self, line: bytes, *, strict: bool = False) -> list[str]:
        """Return the cells of a record. Raises csv.Error; if ``strict``, also for a cell that is not closed."""
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        self._delimiter = self._delimiter or next((mark for mark in DELIMITERS if mark in text), ",")
        if self._delimiter == "\t" and text.count('"') % 2:  # TSV without quoting has a quotation mark
            return text.split("\t")
        return next(csv.reader([text], delimiter=self._delimiter, strict=strict), [])


def is_skipped(line: bytes) -> bool:
    """Return whether a line, or the cell with its ARK, is blank or a comment."""
    return not line.strip() or line.lstrip().startswith(b"#")


# ---- rows


def ark_text(text: bytes, profile: Profile) -> str:
    """Return the ``ark`` column for the text of a line."""
    try:
        return str(as_ark(text, profile))
    except ArkSyntaxError:
        return _shown(text)


def _shown(text: bytes) -> str:
    return text.strip()[:200].decode("utf-8", "backslashreplace")


def row_of(number: int, text: bytes, found: Discovery, require: str | None) -> Row:
    """Make the row of a line. Its note has the reason if there is no URL, and the source if it is not DNS."""
    row: Row = {"line": number, "status": FOUND, "ark": "", "url": "", "note": "", "suggestion": ""}
    if found.error is not None:
        problem = {"note": str(found.error), "suggestion": found.error.suggestion}
        return row | {"status": BAD, "ark": _shown(text)} | problem
    row["ark"] = str(found.ark)
    try:
        found.raise_for_security(require)
        row["url"] = found.url()
    except NoMappingAuthority as error:
        row |= {"status": NONE, "note": str(error)}
    except DiscoveryError as error:
        row |= {"status": UNKNOWN, "note": str(error)}
    else:
        if found.source != "dns" or found.stale:
            row["note"] = lookup.provenance(found)
            row |= {"source": found.source, "age": found.age and round(found.age, 3), "stale": found.stale}
    if found.security != "indeterminate":
        row["security"] = found.security
    return row


class LineForm:
    """The form of the output for lines that are ARKs: a row for each line."""

    number, ark = "line", "ark"  # the columns that identify a row
    status = "status"
    columns: Sequence[str] = COLUMNS

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def places(self, records: Iterable[InputRow], profile: Profile, counts: Counter[str]) -> Iterator[Place]:
        """Yield each place that gets a row. Counts the blank lines and comments."""
        for record in records:
            if is_skipped(record.text):
                counts["skipped"] += 1
            else:
                yield Place(record, None)

    def fields(self, place: Place, found: Discovery, require: str | None) -> Row:
        return row_of(place.record.line, place.record.text, found, require)

    def document(self, place: Place, fields: Row) -> Row:
        return fields

    def cell(self, name: str, value: object) -> str:
        return csv_text(value)

    def number_of(self, record: InputRow) -> int:
        return record.line

    def key(self, place: Place) -> int:
        """Return what identifies the row of a place when a run is resumed."""
        return place.record.line

    def key_of(self, number: int, ark: str) -> int:
        return number

    def ark_of(self, place: Place, profile: Profile) -> str:
        return ark_text(place.record.text, profile)


class FindForm(LineForm):
    """The form of the output for rows with ARKs in other text: a row for each ARK, with the columns of the input.

    Columns of the input whose name is taken get a number after it: ``row_2``.
    """

    number, ark, status = "row", "maptr_ark", "maptr_status"

    def __init__(self, given: Sequence[str], as_json: bool) -> None:
        super().__init__(as_json)
        taken = {"row", "schema", *FIND_COLUMNS, *(f"maptr_{name}" for name in ("source", "age", "stale", "security"))}
        self._given: list[str] = []
        numbers: Counter[str] = Counter()  # the last one of each name: a header may repeat a name thousands of times
        for name in given:
            free = name
            while free in taken:
                numbers[name] += 1
                free = f"{name}_{numbers[name] + 1}"
            taken.add(free)
            self._given.append(free)
        self.columns = ("row", *self._given, *FIND_COLUMNS)
        self._verbatim = frozenset(self._given)

    def places(self, records: Iterable[InputRow], profile: Profile, counts: Counter[str]) -> Iterator[Place]:
        """Yield each ARK of each row, and each row without one. Counts the blank lines."""
        for record in records:
            if not record.text.strip() and not any(map(str.strip, record.cells)):
                counts["skipped"] += 1
                continue
            counts["longer"] += len(record.cells) > len(self._given) and not record.trouble
            arks = [] if record.trouble else find_arks(record.text.decode("utf-8", "replace"), profile=profile)
            yield from (Place(record, ark) for ark in dict.fromkeys(arks) or (None,))

    def fields(self, place: Place, found: Discovery, require: str | None) -> Row:
        record, ark = place
        if ark is None:
            status, note = (BAD, record.trouble) if record.trouble else (NONE, "no ARK in the row")
            return {"line": record.line, "status": status, "ark": "", "url": "", "note": note}
        row = super().fields(place, found, require)
        return row | {"note": "; ".join(filter(None, (str(row["note"]), *ark.notes)))}

    def document(self, place: Place, fields: Row) -> Row:
        cells = [without_bytes(cell) for cell in place.record.cells[: len(self._given)]]
        cells += [""] * (len(self._given) - len(cells))
        ours = {f"maptr_{name}": value for name, value in fields.items() if name not in ("line", "suggestion")}
        return {"row": place.record.number, **dict(zip(self._given, cells, strict=True)), **ours}

    def cell(self, name: str, value: object) -> str:
        """Write a value for CSV: columns of the input unchanged, so that a program can join the rows."""
        return str(value) if name in self._verbatim else csv_text(value)

    def number_of(self, record: InputRow) -> int:
        return record.number

    def key(self, place: Place) -> int:
        return self.key_of(place.record.number, "" if place.ark is None else str(place.ark))

    def key_of(self, number: int, ark: str) -> int:
        return hash((number, ark))

    def ark_of(self, place: Place, profile: Profile) -> str:
        return "" if place.ark is None else str(place.ark)


def without_bytes(text: str) -> str:
    r"""Return a text with ``\xe9`` for a byte that was not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def csv_text(value: object) -> str:
    """Write a value for CSV, without control characters and formulas."""
    return cell(printable(str(value)))


class _RowSink:
    """A file for rows of CSV, each of which ends with ``\\n``: csv quotes a CR only if its own line ends have one."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink
        self._is_terminal = sink.isatty()

    def write(self, row: str) -> int:
        row = row.removesuffix("\r\n")
        return self._sink.write(f"{printable(row) if self._is_terminal else row}\n")


def writer(sink: TextIO, form: LineForm, *, header: bool) -> Callable[[Row], object]:
    """Return a function that writes a row as CSV or JSON. ``header``: write the header of CSV now."""
    if form.as_json:
        return lambda row: sink.write(output.json_text(row, sink) + "\n")
    rows = csv.DictWriter(_RowSink(sink), form.columns, extrasaction="ignore")
    if header:
        rows.writeheader()
    return lambda row: rows.writerow({name: form.cell(name, value) for name, value in row.items()})


# ---- the rows of an earlier run


def kept_rows(
    target: Path, lines: NumberedLines, form: LineForm, counts: Counter[str], profile: Profile
) -> tuple[int, Set[int]]:
    """Read and count the rows in ``target``, check them against the rows of the input, and rewind the input.

    Returns the size of the complete rows in bytes, and the keys of their places. Raises UsageError if maptr bulk did
    not write ``target`` in this format from this input, and OSError.
    """
    if not target.exists():
        return 0, set()
    if not target.is_file():
        raise click.UsageError(f"{target}: is not a regular file, so it has no rows to keep")
    kept: dict[int, int] = {}  # key -> hash of the ARK
    size = last = 0
    begins = _DOCUMENT if form.as_json else _header(form)
    with target.open("rb") as file:
        for record, row in enumerate(_rows_in(file, form), 1):
            is_whole = row.endswith(b"\n")
            if record == 1 and not (row.startswith(begins) or (not is_whole and begins.startswith(row))):
                raise _not_ours(target, 1, f"it does not begin with {begins.decode().strip()}")
            if not is_whole:
                break  # an interrupted run wrote only part of the row
            size += len(row)
            if record == 1 and not form.as_json:
                continue
            try:
                number, ark, status = _read_row(row, form)
            except (ValueError, KeyError, TypeError, RecursionError, csv.Error):
                raise _not_ours(target, record, "not a row") from None
            last = max(last, number)
            key, found = form.key_of(number, ark), hash(ark)
            if key not in kept:
                counts.update((status, "kept"))
            if kept.setdefault(key, found) != found:
                raise _not_ours(target, record, f"line {number} already has a different row")
    seen = end = 0
    for read in lines.records():
        end = form.number_of(read)
        for place in form.places([read], profile, Counter()):
            key, found = form.key(place), hash(printable(form.ark_of(place, profile)))
            seen += key in kept
            if kept.get(key, found) != found:
                raise click.UsageError(
                    f"{target}: its row of line {end} has a different ARK: it was written from another input"
                )
    if last > end:
        raise click.UsageError(
            f"{target}: has a row for {form.number} {last}, but the input has {counted(end, form.number)}"
        )
    if seen < len(kept):
        raise click.UsageError(f"{target}: has a row that is not in the input: it was written from another input")
    lines.rewind()
    return size, kept.keys()


def _header(form: LineForm) -> bytes:
    text = StringIO()
    writer(text, form, header=True)
    return text.getvalue().encode()


def _rows_in(file: IO[bytes], form: LineForm) -> Iterator[bytes]:
    """Yield the rows of an output; a row of CSV may have several lines, because the input's cells may."""
    for line in file:
        row = line
        while not form.as_json and row.count(b'"') % 2 and (more := file.readline()):
            row += more
        yield row


def _read_row(row: bytes, form: LineForm) -> tuple[int, str, str]:
    """Return the number, the ARK and the status of a row. Raises many errors if it is not a row of bulk."""
    if form.as_json:
        fields = json.loads(row)
        ark = str(fields[form.ark])
    else:
        (values,) = csv.reader([row.decode()], strict=True)
        fields = dict(zip(form.columns, values, strict=True)) | {"schema": SCHEMA}
        ark = text_of_cell(fields[form.ark])
    number = int(fields[form.number])
    known = fields["schema"] == SCHEMA and fields[form.status] in STATUSES and fields.keys() >= set(form.columns)
    if not known or number < 1:
        raise ValueError
    return number, printable(ark), fields[form.status]


def _not_ours(target: Path, record: int, why: str) -> click.UsageError:
    return click.UsageError(f"{target}: record {record} was not written by maptr bulk in this format: {why}")
