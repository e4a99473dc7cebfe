"""``maptr stats``: what clients asked a gateway, from its statistics file."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import click

from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.output import Painted, counted
from maptr.errors import printable
from maptr.gateway import statistics
from maptr.gateway.message import Unreadable

SHOWN = 10  # values of one kind
_DAYS = click.IntRange(1, statistics.DAYS_KEPT)


@command(exits={0: "printed", 2: "bad usage, or the configuration names no file", 8: "the file cannot be read"})
@click.argument("file", type=options.FILE_PATH, required=False)
@click.option(
    "--days", type=_DAYS, metavar="N", help=f"Count the last N days, up to now.  [default: {statistics.DAYS}]"
)
@click.option("--period", metavar="PERIOD", help="Count a year, month or day, such as 2025-11, in UTC.")
@options.CONFIG_OPTION
@options.JSON_OPTION
def stats(file: Path | None, days: int | None, period: str | None, config: str | None, as_json: bool) -> None:
    """Show what clients asked a gateway: NAANs and shoulders, failures by reason, sources, inflections and referrers.

    The counts have no client addresses. Those of shoulders leave out crawlers, which are counted separately.

    FILE is the file of gateway.stats, by default the configured one. The gateway writes it once a minute, and has the
    current counts at /stats and /api/v1/stats.

    PERIOD is a year, month or day, or two of them with / between: from the start of the first to the end of the last.

    \b
    Examples:
      maptr stats /var/lib/maptr/stats.sqlite --days 30
      maptr stats --period 2025
      maptr stats --period 2025-07/2026-06 --json
    """
    known = lookup.read_config(config)
    path = file or (known.gateway.stats if known is not None else None)
    if path is None:
        raise click.UsageError("the configuration has no gateway.stats: name a FILE")
    if not path.is_file():
        output.fail(f"{path}: no such file: a gateway writes it if gateway.stats names it", output.EXIT_UNREADABLE)
    try:
        with closing(statistics.Statistics(path, wall=time.time, is_read_only=True)) as kept:
            report = kept.report(days, period or "")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except (Unreadable, sqlite3.Error) as error:
        output.fail(f"{path}: {error.__cause__ or error}", output.EXIT_UNREADABLE)
    if as_json:
        output.json_data(report.to_dict())
        sys.exit(output.EXIT_OK)
    if not report.requests:
        output.inform("a gateway writes its counts to this file once a minute; /stats has those up to now")
    since, until = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) for at in (report.since, report.until))
    length = period or counted(days or statistics.DAYS, "day")
    span = f"{length}, from {since} to {until} UTC"
    output.data(Painted(f"{counted(report.requests, 'request')} in {span}", output.STRONG))
    for month in report.months:
        said = f"{month.month}, {counted(month.crawlers, 'request')} of crawlers, {month.failed} failed"
        output.data(Painted(f"{'months':12}", output.MINOR), f"{month.requests:>10} {said}")
    for title, kind in (
        ("NAANs", statistics.NAAN),
        ("shoulders", statistics.SHOULDER),
        ("crawled", statistics.CRAWLED),
        ("failed", statistics.FAILED),
        ("reasons", statistics.REASON),
        ("status", statistics.STATUS),
        ("sources", statistics.SOURCE),
        ("inflections", statistics.INFLECTION),
        ("referrers", statistics.REFERRER),
    ):
        for label, count in report.values[kind][:SHOWN]:
            output.data(Painted(f"{title:12}", output.MINOR), f"{count:>10} {printable(label)}")
