"""``maptr table probe``: do the mapping authorities that a table names answer at all?"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from maptr import places
from maptr.cli import output, shared, through
from maptr.cli.asking import DEFAULTS
from maptr.cli.source import read_table
from maptr.errors import ConfigError

if TYPE_CHECKING:
    from maptr.registry.liveness import Probe

MAX_CONCURRENCY = 32


@click.command(short_help="See whether the registry's servers answer.")
@click.argument("naans", nargs=-1, metavar="[NAAN]...")
@shared.TABLE_OPTION
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="SQLite file that remembers; the one given to drift.  [default: the cache's]",
)
@click.option("--again", is_flag=True, help="Also those that were probed within the last hour.")
@click.option(
    "--concurrency", default=8, show_default=True, type=click.IntRange(1, MAX_CONCURRENCY), help="Probes at a time."
)
@shared.timeout_option(5.0, "For one server.")
@shared.CONFIG_OPTION
@click.option("--allow-private", is_flag=True, help="Probe servers that are not public, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def probe(
    naans: tuple[str, ...],
    file: str | None,
    history: str | None,
    again: bool,
    concurrency: int,
    timeout: float,
    config: str | None,
    allow_private: bool,
    as_json: bool,
) -> None:
    """Connect to each server that the registry names, of all NAANs or some, and hang up: does it answer?

    No page is asked for. A server is probed once, and not again within an hour; two probes of one address are two
    seconds apart. Prints "silent SERVER: reason" for those that do not answer. What was found is kept in the history:
    there table drift reports it, and a program's Reachable chooser tries servers last that were silent three times in a
    row. Nothing is ever removed for it. Nothing but this command probes.

    \b
    Exit codes:
      0  all of them answer
      1  some do not
      2  bad usage
      8  a file cannot be read or written
      9  none of several answers: this machine's network it may be, and
         nothing is kept
    """
    from maptr.cache.disk import Disk
    from maptr.cache.probe_log import ProbeLog
    from maptr.nma.probe import MIN_AGE, Prober
    from maptr.registry.liveness import ProbeResult, places_of

    settings = shared.configured(config)
    named = shared.find_table(file, settings)
    wanted = shared.parse_naans(naans)
    table, _ = read_table(named, through.settings_of(DEFAULTS, settings).scheme)
    try:
        default = places.cache_file(os.environ)
        path = history or through.disk(settings) or default
        disk = Disk(path, wall=time.time, own=path == default)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    remembered = ProbeLog(disk, wall=time.time)
    known, now = remembered.all(), time.time()
    found = places_of(table, wanted)
    due = [place for place in found if again or place not in known or not 0 <= now - known[place].at < MIN_AGE]
    random.shuffle(due)  # so that the names of one host do not stand in line
    prober = Prober(concurrency=concurrency, seconds=timeout, allow_private=allow_private)
    probes: list[Probe] = []
    try:
        _collect(prober.probe(due), probes, len(due), as_json)
    except KeyboardInterrupt:
        kept = remembered.record(probes)
        disk.close()
        so_far = f"{len(probes)} of {len(due)} servers were probed"
        output.interrupted(f"{so_far}{' and are remembered' if kept else ''}; run it again for the others")
    counts = Counter(one.outcome for one in probes)
    lost = counts[ProbeResult.SILENT] > 1 and not counts[ProbeResult.ANSWERED]
    kept = lost or remembered.record(probes)
    disk.close()
    if as_json:
        output.json_data({"table": named, "probes": [one.to_dict() for one in probes]})
    output.talk(
        f"{len(found)} servers: "
        + ", ".join(f"{counts[outcome]} {outcome}" for outcome in ProbeResult)
        + f", {len(found) - len(due)} probed within the hour"
    )
    if lost:
        output.fail("none of them answered: it may be this machine's network; nothing was kept", output.EXIT_NO_ANSWER)
    if not kept:
        output.fail(f"{disk.path}: cannot be written", output.EXIT_UNREADABLE)
    sys.exit(output.EXIT_NONE if counts[ProbeResult.SILENT] else output.EXIT_OK)


def _collect(probes: Iterable[Probe], found: list[Probe], size: int, quiet: bool) -> None:
    """Put all of them into ``found``, told as they come, with a progress bar where a person may be looking."""

    def tell(one: Probe) -> None:
        found.append(one)
        if one.outcome != "answered" and not quiet:
            output.data(f"{one.outcome} {one.place}: {one.note}")

    if output.watched():
        with click.progressbar(probes, length=size, label="probing", file=sys.stderr) as bar:
            for one in bar:
                tell(one)
    else:
        for one in probes:
            tell(one)
