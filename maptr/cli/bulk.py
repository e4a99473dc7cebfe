"""``maptr bulk``: a file of ARKs in, one row for each out, as many questions at once as servers bear."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

from maptr.ark import Ark
from maptr.cli import output, shared, through
from maptr.cli.asking import Options
from maptr.cli.completion import files
from maptr.cli.lines import Lines, source_of
from maptr.cli.resume import Kept, kept_rows
from maptr.cli.rows import BAD, FOUND, NONE, UNKNOWN, Rows, writer
from maptr.cli.target import output_option, overwrite_option, refuse_input
from maptr.discovery import DiscoveryError
from maptr.errors import ConfigError

if TYPE_CHECKING:
    from maptr.cache.cache import Cache
    from maptr.client.bulk import Bulk
    from maptr.config import Config
    from maptr.discovery import Discovery

PARTIAL = ".partial"  # beside an OUT that is replaced


@click.command(
    epilog="""
\b
Exit codes:
  0  found, for every ARK
  1  nobody serves one of them, or a line is no ARK
  2  bad usage
  8  a file cannot be read or written
  9  DNS did not say, and no table, for one of them
"""
)
@click.argument("words", nargs=-1, metavar="[FILE] [@SERVER[#PORT]]...", shell_complete=files)
@output_option("Write here, not stdout.", "OUT")
@click.option("--resume", is_flag=True, help="Keep the rows that OUT has, and go on with the other lines.")
@overwrite_option("Replace OUT, whatever it is, when all rows are written.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line, instead of CSV.")
@click.option("--unordered", is_flag=True, help="Rows as they are ready, not in the order of the file.")
@click.option(
    "--concurrency", default=256, show_default=True, type=click.IntRange(1, 10_000), help="Questions at once."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Packets a second to each server.")
@shared.discovery_options("For each ARK, once it is asked.")
def bulk(
    words: tuple[str, ...],
    target: Path | None,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    unordered: bool,
    concurrency: int,
    rate: float | None,
    **options: Any,
) -> None:
    """Discover every ARK of FILE, one a line; - or nothing is stdin.

    Plain servers are asked; @tls:// and @https:// are for the other commands. Each name is asked once, however many
    ARKs share it. Where a table was pulled or a cache is configured, and no @SERVER is named, that answers what DNS
    does not, by the policy, and the note says so; what DNS said is not kept. Rows have line, status (found, none,
    unknown, bad), ark, url and note. A line that is no ARK has its row too, and does not stop the rest. Empty lines
    are passed over.

    An OUT that exists needs --resume, or --overwrite, which replaces it when all rows are there: until then they are
    in OUT.partial. --resume first checks that each row of OUT is that of its line.

    \b
    Examples:
      maptr bulk arks.txt @127.0.0.1#5300 -o urls.csv
      maptr bulk arks.txt @127.0.0.1#5300 -o urls.csv --resume
      cut -f1 list.tsv | maptr bulk --json @127.0.0.1#5300
    """
    servers = [word[1:] for word in words if word.startswith("@")]
    files = [word for word in words if not word.startswith("@")]
    if len(files) > 1:
        raise click.UsageError("one FILE at most")
    source_name = files[0] if files else "-"
    if (resume or overwrite) and target is None:
        raise click.UsageError("--resume and --overwrite need -o OUT")
    if resume and overwrite:
        raise click.UsageError("--resume keeps OUT, --overwrite does not: give one of them")
    given = Options(**options)
    refuse_input(target, [source_name, given.table, given.trust_anchor, given.config])
    if target is not None and target.is_file() and not (resume or overwrite):
        raise click.UsageError(f"{target}: exists: --resume goes on with it, --overwrite replaces it")
    config = shared.configured(given.config)
    with ExitStack() as stack:
        try:
            cache = through.cache_for(servers, given, config)
            if cache is not None:
                stack.enter_context(cache)
            engine = _engine(servers, given, config, cache, concurrency=concurrency, rate=rate)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        except DiscoveryError as error:
            output.fail(str(error), output.EXIT_NO_ANSWER)
        try:
            source = stack.enter_context(source_of(source_name, twice=resume))
            kept = (
                kept_rows(target, source, as_json=as_json, profile=given.profile)
                if resume and target is not None
                else None
            )
            sink = stack.enter_context(_sink(target, kept, overwrite=overwrite))
            advance = stack.enter_context(_progress(source, target))
            write = writer(sink, as_json, header=not (kept and kept.whole))
            chooser = through.chooser(given, config)
            rows = Rows(write, cache, ordered=not unordered, require=given.require, chooser=chooser)
            stack.callback(rows.close)
            asked = 0
            for lines in Lines(source, kept or Kept(), rows, advance, given.profile).parts():
                for number, discovery in engine.run(lines, ordered=not unordered) if engine else _nobody(lines):
                    rows.found(number, discovery)
                asked += engine.questions if engine else 0
            rows.finish()
        except OSError as error:
            if target is None and error.filename is None:
                raise  # stdout is full, or its reader has read enough: the same for every command
            if isinstance(error, FileExistsError):
                raise click.UsageError(
                    f"{error.filename}: exists: a run that was interrupted left it; go on with"
                    f" -o {error.filename} --resume, or remove it"
                ) from None
            output.fail(f"{error.filename or target}: {error.strerror}", output.EXIT_UNREADABLE)
    counts = rows.counts
    table = f", {counts['table']} from the table" if counts["table"] else ""
    output.talk(
        f"maptr: {sum(counts[status] for status in (FOUND, NONE, UNKNOWN, BAD))} lines: {counts[FOUND]} found, "
        f"{counts[NONE]} none, {counts[UNKNOWN]} unknown, {counts[BAD]} bad; "
        f"{asked} names asked{table}"
    )
    if rows.advice:
        output.talk(f"maptr: {rows.advice}")
    if counts[UNKNOWN]:
        sys.exit(output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if counts[NONE] or counts[BAD] else output.EXIT_OK)


def _engine(
    servers: list[str],
    given: Options,
    config: Config | None,
    cache: Cache | None,
    *,
    concurrency: int,
    rate: float | None,
) -> Bulk | None:
    """What asks DNS; None where there is nobody to ask, but a table that may answer. Raises as ``Bulk`` does."""
    from maptr.client.bulk import Bulk

    servers = through.servers_of(servers, config)
    if url := next((server for server in servers if "://" in server), None):
        raise click.UsageError(f"@{url}: maptr bulk asks plain servers only")
    try:
        return Bulk(
            nameservers=servers or None,
            origin=through.origin_of(given.origin, config),
            lifetime=given.timeout,
            settings=through.settings_of(given, config),
            concurrency=concurrency,
            rate=rate,
            trust_ad=given.trust_ad,
            trust_anchors=given.trust_anchor,
        )
    except DiscoveryError:
        if cache is None or servers:
            raise
        return None


def _nobody(lines: Iterable[tuple[int, Ark]]) -> Iterator[tuple[int, Discovery]]:
    """What DNS says where this machine has no resolver."""
    from maptr.discovery import Discovery

    for number, ark in lines:
        yield number, Discovery(ark, (), (), complete=False)


@contextmanager
def _sink(target: Path | None, kept: Kept | None, *, overwrite: bool) -> Iterator[TextIO]:
    """Where rows go: after those that are ``kept``, or beside a file that they replace when all are written.

    What an interruption leaves is said, and how to go on.
    """
    if target is None:
        with _said(None, None), output.stream(None) as sink:
            yield sink
        return
    if kept is not None and target.exists():
        os.truncate(target, kept.whole)
    if not overwrite or not target.is_file():
        with _said(target, None), target.open("w" if kept is None else "a", encoding="utf-8", newline="") as sink:
            yield sink
        return
    target = Path(os.path.realpath(target))
    partial = target.with_name(f"{target.name}{PARTIAL}")
    with _said(partial, target):
        with partial.open("x", encoding="utf-8", newline="") as sink:
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        partial.replace(target)


@contextmanager
def _said(written: Path | None, old: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stays = f"{old} stays as it was; " if old is not None else ""
        if written is None:
            output.interrupted("rows so far were written; with -o OUT it could go on later, by --resume")
        output.interrupted(f"{stays}{written} has the rows so far; go on with: -o {written} --resume")


@contextmanager
def _progress(source: IO[bytes], target: Path | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where there can be one; otherwise nothing."""
    if not output.shows_progress(target):
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
