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
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

import click

from maptr.ark import Profile
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import LookupOptions
from maptr.cli.options import input_name, output_option, refuse_input
from maptr.cli.output import counted
from maptr.discovery import Discovery, DiscoveryError, NoMappingAuthority
from maptr.errors import NOT_UTF8, SCHEMA, ArkSyntaxError, ConfigError, cell, printable
from maptr.resolver.call import as_ark, prefer
from maptr.resolver.servers import HTTPS

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.client import Client

COLUMNS = ("line", "status", "ark", "url", "note")
FOUND, NONE, UNKNOWN, BAD = STATUSES = "found", "none", "unknown", "bad"

MAX_SHOWN = 20  # bad lines reported on stderr; every bad line has its row
CHOOSING = 16  # threads for a chooser that connects to servers
MAX_HELD = 100_000  # discoveries that wait for the chooser; beyond this, DNS waits too
PARTIAL = ".partial"  # suffix of the file that will replace OUT
DELIMITERS = ("\t", ",", ";")  # between columns, in the order in which they are tried
MAX_LINE = 1 << 16  # bytes; the rest of a longer line is ignored
_HEADER = ",".join(COLUMNS).encode() + b"\n"
_DOCUMENT = json.dumps({"schema": SCHEMA}).encode()[:-1]

Row = dict[str, object]
Line = tuple[int, bytes]
"""The number of a line, from 1, and its text: the line, or its cell in the column with ARKs."""


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
@click.option(
    "--resume",
    is_flag=True,
    help="Keep the rows in OUT, and add those of the other lines. The exit code counts all rows.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT once all rows are written.")
@options.json_option("Write one JSON document a line instead of CSV.")
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
    has the status bad. Blank lines and comments (#) are skipped and counted, and with --column rows without that cell.
    A row of several lines has the number of its first one. Each name is queried once, even if many ARKs share it.

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
        counts, advice = _run(client, source, out, column, options, chooser, ordered=not unordered)
    _report(counts, client.resolver.questions, column, options)
    if advice:
        options.inform(advice)
    if counts[UNKNOWN]:
        sys.exit(output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if counts[NONE] or counts[BAD] else output.EXIT_OK)


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
        size = 0
        done: Set[int] = frozenset()
        if out.resume and out.path is not None:
            size, done = kept_rows(out.path, lines, counts, as_json=out.as_json, profile=options.profile)
        sink = stack.enter_context(_sink(out.path, size if out.resume else None, overwrite=out.overwrite))
        hidden = options.quiet or (out.path is None and sys.stdout.isatty())  # the rows go to the same terminal
        update = stack.enter_context(output.progress("ARKs", _size(file), hidden=hidden))
        write = writer(sink, out.as_json, header=not size)
        wanted = _remaining(lines.read(update), done, counts)
        pairs = client.discover_pairs(wanted, ordered=ordered, profile=options.profile)
        for (number, text), found in stack.enter_context(closing(chosen(pairs, chooser))):
            row = row_of(number, text, found, require)
            write(row)
            status = str(row["status"])
            counts[status] += 1
            counts["table"] += row.get("source") == "natab"
            advice = advice or lookup.advice_of(found, options)
            if status == BAD:
                counts["with columns"] += any(mark.encode() in text.strip() for mark in DELIMITERS)
                reported += 1
                if reported <= MAX_SHOWN:
                    more = "; further bad lines are only in the output" if reported == MAX_SHOWN else ""
                    output.warning(f"line {number}: {row['note']}{more}")
    return counts, advice


def _remaining(lines: Iterable[Line], done: Set[int], counts: Counter[str]) -> Iterator[tuple[Line, bytes]]:
    """Yield each line that needs a row, with its text. Counts the blank lines and comments."""
    for number, text in lines:
        if is_skipped(text):
            counts["skipped"] += 1
        elif number not in done:
            yield (number, text), text


def chosen(pairs: Iterable[tuple[Line, Discovery]], chooser: Chooser | None) -> Generator[tuple[Line, Discovery]]:
    """Yield each discovery with the chooser's choice first, in the same order.

    A chooser that connects to servers runs in threads, while DNS is asked for other ARKs.
    """
    if not getattr(chooser, "waits", False):
        for line, found in pairs:
            yield line, prefer(found, chooser)
        return
    pool = ThreadPoolExecutor(CHOOSING, "maptr-choose")
    held: deque[tuple[Line, Future[Discovery]]] = deque()
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


def _report(counts: Counter[str], questions: int, column: str | None, options: LookupOptions) -> None:
    """Say how many lines of each kind there were, and what to do about those without an ARK."""
    rows = sum(counts[status] for status in STATUSES)
    kept = f" ({counts['kept']} kept)" if counts["kept"] else ""
    table = f", {counts['table']} from the table" if counts["table"] else ""
    skipped = f", {counted(counts['skipped'], 'line')} skipped as blank or a comment" if counts["skipped"] else ""
    options.inform(
        f"{counted(rows, 'line')}{kept}: {', '.join(f'{counts[status]} {status}' for status in STATUSES)}; "
        f"{counted(questions, 'name')} asked{table}{skipped}"
    )
    if column is not None and counts["skipped"] and not rows:
        output.warning(f"--column: no line has anything in the column {column}")
    if column is None and counts["with columns"]:
        output.warning("bad lines seem to have columns: name the one with the ARKs by --column NAME, or by its number")


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

    A record has the number of its first line: a cell in quotes may have line ends (RFC 4180 2.6). Raises UsageError
    for a ``column`` that is not in the header, which is the first line, and ConfigError for a file in UTF-16, as Excel
    writes "Unicode Text", and for a workbook.
    """

    def __init__(self, source: IO[bytes], column: str | None) -> None:
        self._source = source
        first = source.readline(MAX_LINE)
        self._ahead = [first]  # lines that are to be read again, the next one last
        if b"\0" in first or first.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
            raise ConfigError(NOT_UTF8, line=1)
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
            more = self._rest_of_record(header)
            self._before += len(more)
            self._column = self._find(column, b"".join((header, *more)))
        self._start = source.tell() - sum(map(len, self._ahead)) if source.seekable() else 0

    def read(self, update: Callable[..., object] = lambda *, advance: None) -> Iterator[Line]:
        """Yield the number and text of each line in bounded memory. ``update`` is from ``output.progress``."""
        number = self._before
        while line := self._next_line():
            rest, size = line, len(line)
            while rest and not rest.endswith(b"\n"):
                rest = self._source.readline(MAX_LINE)
                size += len(rest)
            number += 1
            more: list[bytes] = []
            if self._column is not None:
                is_cut = size > len(line)
                more = self._rest_of_record(line)
                size += sum(map(len, more))
                with suppress(csv.Error):  # the line has the status bad
                    cells = self._cells(record := b"".join((line, *more)))
                    # Not the cell where a long line was cut, and not one that a quotation mark has swallowed.
                    if self._column < len(cells) - is_cut or not (is_cut or record.count(b'"') % 2):
                        cell = "".join(cells[self._column : self._column + 1]).encode("utf-8", "surrogateescape")
                        if b"ark" in cell.lower() or not is_skipped(line):  # "#1,ark:12345/x1" is not a comment
                            line = cell
            update(advance=size)
            yield number, line
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
    if found.error is not None:
        return {"line": number, "status": BAD, "ark": _shown(text), "url": "", "note": str(found.error)}
    row: Row = {"line": number, "status": FOUND, "ark": str(found.ark), "url": "", "note": ""}
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


# ---- the rows of an earlier run


def kept_rows(
    target: Path, lines: NumberedLines, counts: Counter[str], *, as_json: bool, profile: Profile
) -> tuple[int, Set[int]]:
    """Read and count the rows in ``target``, check them against the lines of the input, and rewind the input.

    Returns the size of the complete rows in bytes, and the numbers of their lines. Raises UsageError if maptr bulk did
    not write ``target`` in this format from this input, and OSError.
    """
    if not target.exists():
        return 0, set()
    if not target.is_file():
        raise click.UsageError(f"{target}: is not a regular file, so it has no rows to keep")
    kept: dict[int, int] = {}  # line number -> hash of the ARK as CSV has it
    size = 0
    begins = _DOCUMENT if as_json else _HEADER
    with target.open("rb") as file:
        for record, row in enumerate(file, 1):
            is_whole = row.endswith(b"\n")
            if record == 1 and not (row.startswith(begins) or (not is_whole and begins.startswith(row))):
                raise _not_ours(target, 1, f"it does not begin with {begins.decode().strip()}")
            if not is_whole:
                break  # an interrupted run wrote only a part of the row
            size += len(row)
            if record == 1 and not as_json:
                continue
            try:
                number, ark, status = _read_row(row, as_json=as_json)
            except (ValueError, KeyError, TypeError, RecursionError, csv.Error):
                raise _not_ours(target, record, "not a row") from None
            found = hash(csv_text(ark))
            if number not in kept:
                counts.update((status, "kept"))
            if kept.setdefault(number, found) != found:
                raise _not_ours(target, record, f"line {number} has another row already")
    last = 0
    for last, line in lines.read():
        if last in kept and kept[last] != hash(csv_text(ark_text(line, profile))):
            raise click.UsageError(
                f"{target}: its row of line {last} has another ARK: it was written from another input"
            )
    if (beyond := max(kept, default=0)) > last:
        raise click.UsageError(f"{target}: has a row of line {beyond}, but the input has {counted(last, 'line')}")
    lines.rewind()
    return size, kept.keys()


def _read_row(row: bytes, *, as_json: bool) -> tuple[int, str, str]:
    """Return the line number, the ARK and the status of a row. Raises many errors if it is not a row of bulk."""
    if as_json:
        fields = json.loads(row)
    else:
        (values,) = csv.reader([row.decode()], strict=True)
        fields = dict(zip(COLUMNS, values, strict=True)) | {"schema": SCHEMA}
    number = int(fields["line"])
    known = fields["schema"] == SCHEMA and fields["status"] in STATUSES and fields.keys() >= set(COLUMNS)
    if not known or number < 1:
        raise ValueError
    return number, str(fields["ark"]), fields["status"]


def _not_ours(target: Path, record: int, why: str) -> click.UsageError:
    return click.UsageError(f"{target}: record {record} was not written by maptr bulk in this format: {why}")
