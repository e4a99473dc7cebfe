"""``maptr table drift`` and ``probe``: comparison of a table with DNS, and requests to its servers."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr import paths, url
from maptr.cache import DNS_ONLY
from maptr.cache.disk import Disk
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import LookupOptions
from maptr.cli.options import read_table, refuse_foreign, refuse_input, write
from maptr.cli.output import Painted, counted
from maptr.client import Client
from maptr.errors import ConfigError, MissingExtra, time_text
from maptr.reconcile import probes
from maptr.reconcile.probes import ProbeLog, Prober, ProbeResult
from maptr.reconcile.verdict import AGREES, Drift

if TYPE_CHECKING:
    from maptr.reconcile.probes import Liveness, Probe

MAX_CONCURRENCY = 32
PROBE_COLORS = {ProbeResult.FAILED: output.BAD, ProbeResult.NOT_ASKED: output.DOUBTFUL}


@command(
    exits={
        0: "the table and DNS agree",
        1: "a record differs",
        2: "bad usage, or --html without the extra maptr[gateway]",
        8: "the registry cannot be read, or the page or the history cannot be written",
        9: "DNS did not answer for a record",
    }
)
@click.argument("what", nargs=-1, metavar="[NAAN]... [@SERVER[#PORT]]")
@options.TABLE_OPTION
@options.ORIGIN_OPTION
@options.lifetime_option("Each record takes one discovery.")
@options.CONFIG_OPTION
@options.RATE_OPTION
@click.option(
    "--history", type=options.PATH, help="Keep the verdicts in this SQLite file, for later runs.  [default: none]"
)
@click.option("--all", "everything", is_flag=True, help="Also print records that agree.")
@click.option("--overwrite", is_flag=True, help="Replace the HTML page even if maptr did not write it.")
@options.JSON_OPTION
@click.option("--html", "page", type=options.FILE_PATH, help="Write an HTML page of the results.")
def drift(
    what: tuple[str, ...],
    file: str | None,
    origin: str | None,
    lifetime: float | None,
    config: str | None,
    rate: float | None,
    history: str | None,
    everything: bool,
    overwrite: bool,
    as_json: bool,
    page: Path | None,
) -> None:
    """Compare a registry with DNS, for the NAANs and shoulders given, or for all of them.

    @SERVER asks this DNS server instead of the system's resolver. @tcp://HOST is asked by TCP only. @tls://HOST and
    @https://HOST/PATH are slower, because they need a connection for each record.

    Prints "verdict record: reason" for records that do not agree. The verdicts are: same; lossy (equal as far as an
    h record or a natab can express it); missing (not in DNS); extra (only in DNS); differs; unpublished (no zone can
    hold the shoulder, and DNS gives its ARKs the URLs of another record); stale (one side has what the other side had
    earlier, according to --history); unknown (DNS did not answer).

    \b
    Examples:
      maptr table drift --table natab @127.0.0.1#5300
      maptr table drift --table naans.json --history h.sqlite --html drift.html
    """
    words, servers = lookup.split_servers(what)
    if len(servers) > 1:
        raise click.UsageError("give at most one @SERVER")
    naans = options.parse_naans(words)
    known = lookup.read_config(config)
    named = file or lookup.location_of_table(known).path
    if page is not None:
        if find_spec("jinja2") is None:
            raise MissingExtra("--html needs the package jinja2: pip install 'maptr[gateway]'")
        from maptr.gateway import pages  # late: an extra

        refuse_input(page, [named, history])
        refuse_foreign(page, pages.is_page, overwrite=overwrite)
    servers = lookup.servers_of(servers, known)
    table, bad = read_table(named, lookup.scheme_of(None, known))
    for record in bad:
        output.inform(Painted("left out:", output.DOUBTFUL), f" {record}")
    output.show_log()
    given = LookupOptions.of({"origin": origin, "lifetime": lifetime, "table": table, "policy": DNS_ONLY})
    disk = history_at(history) if history else None
    with Client(servers or None, **lookup.client_options(given, known), history=disk, rate=rate) as client:
        found: list[Drift] = []
        try:
            with output.progress("asking DNS", len(naans) or len(table.naans())) as update:
                for verdicts in client.drift_many(naans or None):
                    found += verdicts
                    update(advance=1)
        except KeyboardInterrupt:
            kept = "verdicts so far are in the history" if disk is not None else "nothing was kept"
            output.interrupted(f"{kept}; run it again")
        silent = _silent(found, probes.servers_of(table, naans), disk)
    _report(found, named, everything, as_json, silent)
    if page is not None:
        asked = " ".join(f"@{server}" for server in servers) or "the system's resolver"
        write(
            page,
            pages.drift_file(
                found,
                table=table,
                file=Path(named).name,
                asked=asked,
                origin=lookup.origin_of(origin, known),
                now=time.time(),
                silent=silent,
            ),
        )
    if any(one.verdict == "unknown" for one in found):
        sys.exit(output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if any(one.verdict.is_drift for one in found) else output.EXIT_OK)


def history_at(file: str, *, own: bool = False) -> Disk:
    """Open the SQLite file with earlier results. ``own``: replace a damaged file.

    Exits if it is not such a file or cannot be written, because the next run would report the same results as new.
    """
    try:
        disk = Disk(file, wall=time.time, own=own)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    if not disk.can_write():
        output.fail(f"{file}: cannot be written", output.EXIT_UNREADABLE)
    return disk


def _silent(found: list[Drift], servers: Iterable[str], history: Disk | None) -> list[Liveness]:
    """Return the mapping authorities that did not answer the last probe in the history."""
    if history is None:
        return []
    known = ProbeLog(history).all()
    places = dict.fromkeys([*servers, *(url.server_of(where) for one in found for where in one.dns)])
    return [known[place] for place in places if place in known and known[place].failures]


def _report(found: list[Drift], table: str, everything: bool, as_json: bool, silent: list[Liveness]) -> None:
    counts = Counter(str(one.verdict) for one in found)
    shown = [one for one in found if everything or one.verdict not in AGREES]
    if as_json:
        records, places = [one.to_dict() for one in shown], [one.to_dict() for one in silent]
        by_verdict = dict(sorted(counts.items()))
        output.json_data({"table": str(Path(table)), "counts": by_verdict, "records": records, "silent": places})
        return
    for one in shown:
        unsure = output.DOUBTFUL if one.verdict == "unknown" else output.GOOD
        output.data(*output.painted(str(one), one.verdict, output.BAD if one.verdict.is_drift else unsure))
    for one in found:
        if not (one.table or one.dns or one.verdict == "unknown"):
            output.inform(f"neither side has anything for {one.record}")
    for place in silent:
        output.inform(
            Painted("failed", output.BAD), f" {place.place}: {place.failures} in a row when last probed: {place.note}"
        )
    numbers = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    output.inform(f"{counted(len(found), 'record')}: {numbers or 'none'}")


# ---- probe


@command(
    exits={
        0: "every server answers",
        1: "a server does not answer",
        8: "a file cannot be read or written",
        9: "none of several servers answers, perhaps because of this machine's network; no result is kept",
    }
)
@click.argument("naans", nargs=-1, metavar="[NAAN]...")
@options.TABLE_OPTION
@click.option(
    "--history",
    type=options.PATH,
    help="Keep the results in this SQLite file, as for drift.  [default: the cache's]",
)
@click.option("--again", is_flag=True, help="Also probe servers that were probed within the last hour.")
@click.option(
    "--concurrency",
    default=probes.CONCURRENCY,
    metavar="N",
    type=click.IntRange(1, MAX_CONCURRENCY),
    help="Probe at most this many servers at a time.",
)
@options.timeout_option(probes.PROBE_SECONDS, "Give up a server after this time.")
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
    """Send a HEAD request to each server that the registry names, for all NAANs or the given ones.

    It requests the registry's test ARK, else the root of the server, and follows no redirect. Any response below 500 is
    an answer. A server is probed once, and not again within an hour; two probes of one address are two seconds apart.
    The User-Agent has gateway.public_url or gateway.contact of the configuration.

    Prints "failed SERVER: reason" for servers that do not answer, and the certificates that expire within 14 days. The
    history keeps the results: table drift reports them, and --choose reachable tries last the servers that failed three
    times in a row. They never remove a record. No other command probes.

    \b
    Example:
      maptr table probe 12345 --table naans.json
    """
    settings = lookup.read_config(config)
    named = file or lookup.location_of_table(settings).path
    wanted = options.parse_naans(naans)
    table, _ = read_table(named, lookup.scheme_of(None, settings))
    default = paths.cache_file(os.environ)
    output.show_log()
    path = history or lookup.cache_file(settings) or default
    disk = history_at(path, own=path == default)
    click.get_current_context().call_on_close(disk.close)
    probe_log = ProbeLog(disk)
    found = probes.servers_of(table, wanted)
    asked = dict(probes.due(found, probe_log, 0.0 if again else probes.MIN_AGE))
    contact = settings.gateway.asks_as if settings is not None else ""
    prober = Prober(concurrency=concurrency, seconds=timeout, allow_private=allow_private, contact=contact)
    done: list[Probe] = []
    try:
        with output.progress("probing", len(asked)) as update:
            for one in prober.probe(asked):
                done.append(one)
                update(advance=1)
                if one.outcome != "answered" and not as_json:
                    output.data(Painted(one.outcome, PROBE_COLORS[one.outcome]), f" {one.place}: {one.note}")
    except KeyboardInterrupt:
        results = " and kept the results" if probe_log.record(done) else ""
        so_far = f"probed {len(done)} of {counted(len(asked), 'server')}{results}"
        output.interrupted(f"{so_far}; run it again for the others")
    counts = Counter(one.outcome for one in done)
    offline = probes.is_offline(done)
    kept = offline or probe_log.record(done)
    if as_json:
        output.json_data({"table": named, "probes": [one.to_dict() for one in done]})
    now = time.time()
    for known in probe_log.all().values():
        if known.place in found and known.certificate_end is not None and known.certificate_ends_soon(now):
            ends = time_text(known.certificate_end)
            output.inform(Painted("certificate", output.DOUBTFUL), f" of {known.place}: until {ends}")
    numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ProbeResult)
    output.inform(f"{counted(len(found), 'server')}: {numbers}, {len(found) - len(asked)} probed within the hour")
    if offline:
        reason = "no server answered, perhaps because of this machine's network; nothing was kept"
        output.fail(reason, output.EXIT_NO_ANSWER)
    if not kept:
        output.fail(f"{disk.path}: cannot be written", output.EXIT_UNREADABLE)
    sys.exit(output.EXIT_NONE if counts[ProbeResult.FAILED] else output.EXIT_OK)
