"""``maptr table drift``: the table held against what DNS says, record by record."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr.cli import output, shared, through
from maptr.cli.asking import DEFAULTS
from maptr.cli.source import read_table
from maptr.cli.target import overwrite_option, refuse_foreign, refuse_input
from maptr.discovery import DiscoveryFailed
from maptr.errors import ConfigError

if TYPE_CHECKING:
    from maptr.cache.disk import Disk
    from maptr.cache.drift import Drift
    from maptr.registry.liveness import Liveness


@click.command(short_help="Compare a registry with what DNS says.")
@click.argument("what", nargs=-1, metavar="[NAAN]... [@SERVER[#PORT]]")
@shared.TABLE_OPTION
@shared.ORIGIN_OPTION
@shared.timeout_option(5.0, "For one record.")
@shared.CONFIG_OPTION
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Packets a second to each server at most."
)
@click.option("--history", metavar="FILE", type=click.Path(dir_okay=False), help="SQLite file that remembers verdicts.")
@click.option("--all", "everything", is_flag=True, help="Print records that agree, too.")
@overwrite_option("Replace the page even if it is not one of maptr's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--html", "page", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="A map of it all."
)
def drift(
    what: tuple[str, ...],
    file: str | None,
    origin: str | None,
    timeout: float,
    config: str | None,
    rate: float | None,
    history: str | None,
    everything: bool,
    overwrite: bool,
    as_json: bool,
    page: Path | None,
) -> None:
    """Compare the registry in FILE with what DNS says of each NAAN and shoulder; of all of them if none is named.

    @SERVER may be @tls://HOST or @https://HOST/PATH, which takes a connection for each record, and longer.

    Prints "verdict record: reason" for records that do not agree. The verdicts: same; lossy (equal as far as an
    h record or natab can say); missing (DNS says none); extra (only DNS has it); differs; unpublished (no
    zone can hold the shoulder, and DNS gives its ARKs the URLs of another record); stale (one side says what the
    other said earlier, by --history); unknown (DNS did not say).

    \b
    Examples:
      maptr table drift --table natab @127.0.0.1#5300
      maptr table drift --table naans.json --history h.sqlite --html drift.html

    \b
    Exit codes:
      0  the two sides agree
      1  they do not
      2  bad usage
      8  FILE cannot be read, or is no registry; or the page or the history
         cannot be written
      9  DNS did not say, for one record at least
    """
    from maptr.cache import DNS_ONLY
    from maptr.cache.cache import Cache
    from maptr.cache.disk import Disk
    from maptr.registry.liveness import places_of

    servers = [word[1:] for word in what if word.startswith("@")]
    if len(servers) > 1:
        raise click.UsageError("one @SERVER at most")
    naans = shared.parse_naans([word for word in what if not word.startswith("@")])
    known = shared.configured(config)
    named = shared.find_table(file, known)
    if page is not None:
        from maptr.cache.page import is_page

        refuse_input(page, [named, history])
        refuse_foreign(page, is_page, overwrite=overwrite)
    origin, servers = through.origin_of(origin, known), through.servers_of(servers, known)
    table, bad = read_table(named, through.settings_of(DEFAULTS, known).scheme)
    for record in bad:
        output.talk(f"left out: {record}")
    try:
        verdicts = Disk(history, wall=time.time) if history else None
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    try:
        cache = Cache(
            table,
            None,
            DNS_ONLY,
            nameservers=servers or None,
            origin=origin,
            lifetime=timeout,
            history=verdicts,
            rate=rate,
        )
        with cache:
            # A drift that nobody remembers is told again as if it were new.
            if cache.history is not None and not cache.history.can_write():
                output.fail(f"{history}: cannot be written", output.EXIT_UNREADABLE)
            try:
                found = _collect(cache.drift_many(naans or None), len(naans) or len(table.naans()))
            except KeyboardInterrupt:
                remembered = "verdicts so far are in the history" if cache.history is not None else "nothing was kept"
                output.interrupted(f"{remembered}; run it again")
            silent = _silent(found, places_of(table, naans), cache.history)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except DiscoveryFailed as error:
        output.fail(str(error), output.EXIT_NO_ANSWER)
    _report(found, named, everything, as_json, silent)
    if page is not None:
        from maptr.cache.page import render

        try:
            asked = " ".join(f"@{server}" for server in servers) or "the system's resolver"
            output.write_atomically(
                page, render(found, table=Path(named).name, asked=asked, origin=origin, silent=silent)
            )
        except OSError as error:
            output.fail(f"{page}: {error.strerror or error}", output.EXIT_UNREADABLE)
    codes = {output.EXIT_NONE for one in found if one.verdict.is_drift}
    codes |= {output.EXIT_NO_ANSWER for one in found if one.verdict == "unknown"}
    sys.exit(max(codes, default=output.EXIT_OK))


def _collect(verdicts: Iterable[list[Drift]], size: int) -> list[Drift]:
    """All verdicts, with a progress bar where a person may be looking."""
    if not output.watched():
        return [one for group in verdicts for one in group]
    with click.progressbar(verdicts, length=size, label="asking DNS", file=sys.stderr) as bar:
        return [one for group in bar for one in group]


def _silent(found: list[Drift], places: list[str], history: Disk | None) -> list[Liveness]:
    """The mapping authorities of these places and records that did not answer the last probe, by the history."""
    if history is None:
        return []
    import time

    from maptr.cache.probe_log import ProbeLog
    from maptr.registry.liveness import place_in

    known = ProbeLog(history, wall=time.time).all()
    said = (place_in(made) for one in found for made in one.dns)
    return [known[place] for place in dict.fromkeys([*places, *said]) if place in known and known[place].failures]


def _report(found: list[Drift], table: str, everything: bool, as_json: bool, silent: list[Liveness]) -> None:
    counts = Counter(str(one.verdict) for one in found)
    shown = [one for one in found if everything or one.verdict not in ("same", "lossy")]
    if as_json:
        output.json_data(
            {
                "table": str(Path(table)),
                "counts": dict(sorted(counts.items())),
                "records": [one.to_dict() for one in shown],
                "silent": [one.to_dict() for one in silent],
            }
        )
        return
    for one in shown:
        output.data(str(one))
    for one in found:
        if not (one.table or one.dns or one.verdict == "unknown"):
            output.talk(f"neither side has anything for {one.record}")
    for place in silent:
        output.talk(f"silent {place.place}: {place.failures} in a row when last probed: {place.note}")
    output.talk(
        f"{len(found)} records: " + (", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())) or "none")
    )
