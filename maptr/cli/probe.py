"""``maptr table probe``: test whether the servers that a table names accept connections."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from maptr import places
from maptr.cache.probe_log import ProbeLog
from maptr.cli import lookup, options, output
from maptr.cli.drift import history_at
from maptr.cli.lookup import DEFAULTS
from maptr.cli.options import read_table
from maptr.nma.reachable import MIN_AGE, Prober
from maptr.registry.liveness import ProbeResult, places_of

if TYPE_CHECKING:
    from maptr.registry.liveness import Probe

MAX_CONCURRENCY = 32


@click.command()
@click.argument("naans", nargs=-1, metavar="[NAAN]...")
@options.TABLE_OPTION
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="SQLite file that keeps the results, as for drift.  [default: that of the cache]",
)
@click.option("--again", is_flag=True, help="Also probe servers that were probed within the last hour.")
@click.option(
    "--concurrency", default=8, show_default=True, type=click.IntRange(1, MAX_CONCURRENCY), help="Probes at a time."
)
@options.timeout_option(5.0, "Limit for one server.")
@options.CONFIG_OPTION
@click.option("--allow-private", is_flag=True, help="Also probe servers on hosts that are not public.")
@options.JSON_OPTION
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
    """Connect to each server that the registry names, for all NAANs or the given ones, and disconnect.

    No page is requested. A server is probed once, and not again within an hour; two probes of one address are two
    seconds apart. Prints "silent SERVER: reason" for servers that do not answer. The history keeps the results:
    table drift reports them, and the chooser "reachable" tries servers last that were silent three times in a row. No
    record is removed because of them. No other command probes.

    \b
    Example:
      maptr table probe 12345 --table naans.json

    \b
    Exit codes:
      0  all servers answer
      1  some servers do not answer
      2  bad usage
      8  a file cannot be read or written
      9  none of several servers answers, perhaps because of the network of
         this machine; nothing is kept
    """
    settings = lookup.read_config(config)
    named = options.find_table(file, settings)
    wanted = options.parse_naans(naans)
    table, _ = read_table(named, lookup.settings_of(DEFAULTS, settings).scheme)
    default = places.cache_file(os.environ)
    path = history or lookup.cache_file(settings) or default
    disk = history_at(path, own=path == default)
    remembered = ProbeLog(disk, wall=time.time)
    known, now = remembered.all(), time.time()
    found = places_of(table, wanted)
    due = [place for place in found if again or place not in known or not 0 <= now - known[place].at < MIN_AGE]
    random.shuffle(due)  # so that probes of one host do not follow each other
    prober = Prober(concurrency=concurrency, seconds=timeout, allow_private=allow_private)
    probes: list[Probe] = []
    try:
        with output.progress("probing", len(due)) as update:
            for one in prober.probe(due):
                probes.append(one)
                update(advance=1)
                if one.outcome != "answered" and not as_json:
                    output.data(f"{one.outcome} {one.place}: {one.note}")
    except KeyboardInterrupt:
        kept = remembered.record(probes)
        disk.close()
        so_far = f"{len(probes)} of {len(due)} servers were probed"
        output.interrupted(f"{so_far}{' and are kept' if kept else ''}; run it again for the others")
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
        output.fail(
            "no server answered, perhaps because of the network of this machine; nothing was kept",
            output.EXIT_NO_ANSWER,
        )
    if not kept:
        output.fail(f"{disk.path}: cannot be written", output.EXIT_UNREADABLE)
    sys.exit(output.EXIT_NONE if counts[ProbeResult.SILENT] else output.EXIT_OK)
