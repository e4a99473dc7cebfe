"""``maptr bulk``: a file of ARKs in, one row for each out, as many questions at once as servers bear."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import click

from maptr.ark import Ark, Profile
from maptr.cli import output, shared, through
from maptr.cli.asking import Options
from maptr.cli.completion import files
from maptr.cli.lines import Lines, source_of
from maptr.cli.rows import BAD, FOUND, NONE, UNKNOWN, Rows, writer
from maptr.errors import ConfigError, DiscoveryError

if TYPE_CHECKING:
    from maptr.bulk import Bulk
    from maptr.cache.cache import Cache
    from maptr.config import Config
    from maptr.discovery import Discovery


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
@click.option("--timeout", default=5.0, show_default=True, metavar="SECONDS", help="For each ARK, once it is asked.")
@click.option("--allow-private", is_flag=True, help="Take candidates on hosts that are not public.")
@click.option("--trust-ad", is_flag=True, help="Take the servers' word on DNSSEC: only for a validating one of yours.")
@click.option(
    "--trust-anchor", metavar="FILE", shell_complete=files, help="Validate DNSSEC from these DS or DNSKEY records."
)
@click.option("--require", type=click.Choice(["secure"]), help="What is not signed throughout is unknown.")
@shared.SCHEME_OPTION
@shared.PROFILE_OPTION
@shared.cache_options
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
    require: Literal["secure"] | None,
    profile: Profile,
    natab: str | None,
    policy: str | None,
    no_cache: bool,
    choose: str | None,
    scheme: str | None,
) -> None:
    """Discover every ARK of FILE, one a line; - or nothing is stdin.

    Plain servers are asked; @tls:// and @https:// are for the other commands. Each name is asked once, however many
    ARKs share it. Where a table was pulled or a cache is configured, and no @SERVER is named, that answers what DNS
    does not, by the policy, and the note says so; what DNS said is not kept. Rows have line, status (found, none,
    unknown, bad), ark, url and note. A line that is no ARK has its row too, and does not stop the rest. Empty lines
    are passed over.

    \b
    Examples:
      maptr bulk arks.txt @127.0.0.1#5353 -o urls.csv
      maptr bulk arks.txt @127.0.0.1#5353 -o urls.csv --resume
      cut -f1 list.tsv | maptr bulk --jsonl @127.0.0.1#5353
    """
    servers = [word[1:] for word in words if word.startswith("@")]
    files = [word for word in words if not word.startswith("@")]
    if len(files) > 1:
        raise click.UsageError("one FILE at most")
    if resume and target is None:
        raise click.UsageError("--resume needs -o OUT")
    config = shared.configured()
    given = Options(
        origin,
        timeout,
        trust_ad,
        trust_anchor,
        require,
        allow_private,
        natab,
        policy,
        no_cache,
        choose=choose,
        scheme=scheme,
    )
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
            done = stack.enter_context(_resumed(target, jsonl)) if resume and target is not None else None
            source = stack.enter_context(source_of(files[0] if files else "-"))
            sink = stack.enter_context(output.stream(target, append=done is not None))
            advance = stack.enter_context(_progress(source, target))
            write = writer(sink, jsonl, header=done is None or (target is not None and not target.stat().st_size))
            rows = Rows(write, cache, ordered=not unordered, require=require, chooser=through.chooser(given, config))
            stack.callback(rows.close)
            asked = 0
            for lines in Lines(source, done or bytearray(), rows, advance, profile).parts():
                for number, discovery in engine.run(lines, ordered=not unordered) if engine else _nobody(lines):
                    rows.found(number, discovery)
                asked += engine.questions if engine else 0
            rows.finish()
        except OSError as error:
            if target is None and error.filename is None:
                raise  # stdout is full, or its reader has read enough: the same for every command
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
    from maptr.bulk import Bulk

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
