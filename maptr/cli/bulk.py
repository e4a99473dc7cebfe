"""``maptr bulk``: a file of ARKs in, one row for each out, as many questions at once as servers bear."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from maptr.ark import MAX_TEXT, Ark
from maptr.cli import output, shared, through
from maptr.errors import ArkSyntaxError, ConfigError, DiscoveryError, NoMappingAuthority
from maptr.printable import printable

if TYPE_CHECKING:
    from maptr.discovery import Discovery

COLUMNS = ("line", "status", "ark", "url", "note")
FOUND, NONE, UNKNOWN, BAD = "found", "none", "unknown", "bad"
MAX_SHOWN = 20  # bad lines told one by one on stderr; every one has its row

Row = dict[str, object]


@click.command(
    epilog="""
\b
Exit codes:
  0  found, for every ARK
  1  nobody serves one of them, or a line is no ARK
  2  bad usage
  8  a file cannot be read or written
  9  DNS did not say, for one of them
"""
)
@click.argument("words", nargs=-1, metavar="[FILE] [@SERVER[#PORT]]...")
@click.option(
    "-o", "--output", "target", type=click.Path(path_type=Path), metavar="OUT", help="Write here, not stdout."
)
@click.option("--resume", is_flag=True, help="Keep the rows that OUT has, and go on with the other lines.")
@click.option("--jsonl", is_flag=True, help="One JSON document a line, instead of CSV.")
@click.option("--unordered", is_flag=True, help="Rows as they are ready, not in the order of the file.")
@click.option(
    "--concurrency", default=256, show_default=True, type=click.IntRange(1, 10_000), help="Questions at once."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Packets a second to each server.")
@shared.ORIGIN_OPTION
@click.option("--timeout", default=5.0, show_default=True, metavar="SECONDS", help="For each question.")
@click.option("--allow-private", is_flag=True, help="Take candidates on hosts that are not public.")
@click.option("--trust-ad", is_flag=True, help="Take the servers' word on DNSSEC: only for a validating one of yours.")
@click.option("--trust-anchor", metavar="FILE", help="Validate DNSSEC from these DS or DNSKEY records.")
@click.option("--require", type=click.Choice(["secure"]), help="What is not signed throughout is unknown.")
def bulk(
    words: tuple[str, ...],
    target: Path | None,
    resume: bool,
    jsonl: bool,
    unordered: bool,
    concurrency: int,
    rate: float | None,
    origin: str | None,
    timeout: float,
    allow_private: bool,
    trust_ad: bool,
    trust_anchor: str | None,
    require: str | None,
) -> None:
    """Discover every ARK of FILE, one a line; - or nothing is stdin.

    DNS is asked directly, at plain servers: no table and no cache answers, whatever is set up, and @tls:// and
    @https:// are for the other commands. Each name is asked once, however many ARKs share it. Rows have line, status
    (found, none, unknown, bad), ark, url and note. A line that is no ARK has its row too, and does not stop the rest.
    Empty lines are passed over.

    \b
    Examples:
      maptr bulk arks.txt @127.0.0.1#5353 -o urls.csv
      maptr bulk arks.txt @127.0.0.1#5353 -o urls.csv --resume
      cut -f1 list.tsv | maptr bulk --jsonl @127.0.0.1#5353
    """
    from maptr.bulk import Bulk
    from maptr.walk import Settings

    servers = [word[1:] for word in words if word.startswith("@")]
    files = [word for word in words if not word.startswith("@")]
    if len(files) > 1:
        raise click.UsageError("one FILE at most")
    if resume and target is None:
        raise click.UsageError("--resume needs -o OUT")
    config = shared.configured()
    servers = through.servers_of(servers, config)
    if url := next((server for server in servers if "://" in server), None):
        raise click.UsageError(f"@{url}: maptr bulk asks plain servers only")
    try:
        engine = Bulk(
            nameservers=servers or None,
            origin=through.origin_of(origin, config),
            lifetime=timeout,
            settings=Settings(allow_private=allow_private),
            concurrency=concurrency,
            rate=rate,
            trust_ad=trust_ad,
            trust_anchors=trust_anchor,
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except DiscoveryError as error:
        output.fail(str(error), output.EXIT_NO_ANSWER)
    counts: Counter[str] = Counter()
    try:
        with ExitStack() as stack:
            done = stack.enter_context(_resumed(target, jsonl)) if resume and target is not None else None
            source = stack.enter_context(_source(files[0] if files else "-"))
            sink = stack.enter_context(output.stream(target, append=done is not None))
            advance = stack.enter_context(_progress(source, target))
            write = _writer(sink, jsonl, header=done is None or (target is not None and not target.stat().st_size))
            lines = _Lines(source, done or bytearray(), lambda row: _tell(row, counts, write), advance)
            for number, discovery in engine.run(lines, ordered=not unordered):
                _tell(_row(number, discovery, require), counts, write)
    except OSError as error:
        output.fail(f"{error.filename or target or 'output'}: {error.strerror}", output.EXIT_UNREADABLE)
    output.talk(
        f"maptr: {sum(counts.values())} lines: {counts[FOUND]} found, {counts[NONE]} none, "
        f"{counts[UNKNOWN]} unknown, {counts[BAD]} bad; {engine.questions} names asked"
    )
    if counts[UNKNOWN]:
        sys.exit(output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if counts[NONE] or counts[BAD] else output.EXIT_OK)


class _Lines:
    """The ARKs of a file by line number; what is none is told as a bad row at once."""

    def __init__(
        self, source: IO[bytes], done: bytearray, bad: Callable[[Row], None], advance: Callable[[int], None]
    ) -> None:
        self._source = source
        self._done = done
        self._bad = bad
        self._advance = advance

    def __iter__(self) -> Iterator[tuple[int, Ark]]:
        for number, line in enumerate(_read_lines(self._source, self._advance), 1):
            if not line.strip() or (number < len(self._done) and self._done[number]):
                continue
            try:
                ark = Ark.parse(line)
            except ArkSyntaxError as error:
                shown = line.strip()[:200].decode("utf-8", "backslashreplace")
                self._bad({"line": number, "status": BAD, "ark": shown, "url": "", "note": str(error)})
            else:
                yield number, ark


def _read_lines(source: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    """Lines without the rest of those that are longer than any ARK may be, so that memory is bounded."""
    while line := source.readline(MAX_TEXT + 2):
        advance(len(line))
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(MAX_TEXT)
            advance(len(rest))
        yield line


def _row(number: int, discovery: Discovery, require: str | None) -> Row:
    row: Row = {"line": number, "status": FOUND, "ark": str(discovery.ark), "url": "", "note": ""}
    try:
        discovery.raise_for_security(require)
        row["url"] = discovery.url()
    except NoMappingAuthority as error:
        row |= {"status": NONE, "note": str(error)}
    except DiscoveryError as error:
        row |= {"status": UNKNOWN, "note": str(error)}
    if discovery.security != "indeterminate":
        row["security"] = discovery.security
    return row


def _tell(row: Row, counts: Counter[str], write: Callable[[Row], None]) -> None:
    counts[str(row["status"])] += 1
    if row["status"] == BAD and counts[BAD] <= MAX_SHOWN:
        more = "; further bad lines are only in the output" if counts[BAD] == MAX_SHOWN else ""
        output.talk(f"maptr: line {row['line']}: {row['note']}{more}")
    write(row)


def _writer(sink: IO[str], jsonl: bool, *, header: bool) -> Callable[[Row], None]:
    if jsonl:
        return lambda row: _write_json(sink, row)
    rows = csv.DictWriter(sink, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        rows.writeheader()
    return lambda row: rows.writerow({key: printable(str(value)) for key, value in row.items()})


def _write_json(sink: IO[str], row: Row) -> None:
    sink.write(json.dumps({"schema": output.SCHEMA, **row}, ensure_ascii=False) + "\n")


@contextmanager
def _source(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file


@contextmanager
def _resumed(target: Path, jsonl: bool) -> Iterator[bytearray]:
    """One octet for each line of the input, 1 where the output has its row; a row cut short is taken off."""
    done = bytearray()
    if target.exists():
        _cut_last_row(target)
        with target.open(encoding="utf-8", newline="") as file:
            for number in _numbers(file, jsonl, target):
                if number >= len(done):
                    done.extend(bytes(max(number + 1 - len(done), len(done), 1024)))
                done[number] = 1
    yield done


def _numbers(file: Iterable[str], jsonl: bool, target: Path) -> Iterator[int]:
    for count, row in enumerate(map(json.loads, file) if jsonl else csv.DictReader(file), 1):
        try:
            number = int(row["line"])
            if not 0 < number < 1 << 31:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise click.UsageError(f"{target}: record {count} is none that maptr bulk wrote in this format") from None
        yield number


def _cut_last_row(target: Path) -> None:
    with target.open("rb+") as file:
        size = file.seek(0, 2)
        start = max(0, size - (1 << 20))
        file.seek(start)
        tail = file.read()
        file.truncate(start + tail.rfind(b"\n") + 1)


@contextmanager
def _progress(source: IO[bytes], target: Path | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal and the rows go elsewhere; otherwise nothing."""
    if not sys.stderr.isatty() or (target is None and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    try:
        size: int | None = Path(source.name).stat().st_size
    except (OSError, TypeError, AttributeError):
        size = None
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("ARKs", total=size)
        yield lambda octets: progress.advance(task, octets)
