"""``maptr redirects probe``: whether the URLs of own objects answer."""

from __future__ import annotations

import csv
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.output import Painted, counted
from maptr.cli.own_object import store_of
from maptr.cli.redirects import read_good
from maptr.errors import ConfigError, cell, printable, time_text
from maptr.gateway.links.check import LINK_COLUMNS, LinkCounts, LinkRow, LinkState, link_cells
from maptr.gateway.links.checker import LinkChecker
from maptr.gateway.links.monitor import SUFFIX
from maptr.gateway.links.store import Due, LinkStore, alone
from maptr.gateway.redirects.following import KeptStores
from maptr.gateway.redirects.store import NotAStoreError, ObjectStore, open_store

TURN = 1.0  # seconds between updates of the progress
LONGEST_REST = 300.0  # seconds that the end of a round waits for a host that asked to be left alone
FAILED = (LinkState.DEAD, LinkState.FAILING)
NAMES = {"unknown": "not known", "answers": "answer", "failing": "failed, not dead yet", "dead": "dead"}
COLORS = {LinkState.DEAD: output.BAD, LinkState.FAILING: output.DOUBTFUL}


@command(
    exits={
        0: "no link has failed",
        1: "a link is dead, or has failed",
        8: "a file cannot be read or written",
        9: "no server answers, or one asked to be left alone for longer: run it again",
    }
)
@click.argument("file", required=False, metavar="[STORE]", type=options.FILE_PATH)
@options.CONFIG_OPTION
@click.option("--again", is_flag=True, help="Begin anew, instead of continuing an interrupted round.")
@click.option("--allow-private", is_flag=True, help="Also ask hosts that are not public.")
@options.JSON_OPTION
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def probe(file: Path | None, config: str | None, again: bool, allow_private: bool, as_json: bool, as_csv: bool) -> None:
    """Check once each URL of the own objects in STORE, or in the configured gateway.redirects.

    It sends HEAD, or GET if the server has no HEAD, and follows at most five redirects; it requests eight URLs at a
    time, and each host once in two seconds. Equal URLs are requested once, and withdrawn objects are left out. A link
    is dead if it was not found (404, 410), its server failed (500 and above) or gave no answer, in three checks over
    two days: run it once a day, or set gateway.check_every. The results are kept beside the cache; the next run
    continues an interrupted round. The User-Agent has gateway.public_url or gateway.contact of the configuration.

    Prints "STATE STATUS SINCE ARK URL" for each object whose link has failed.

    \b
    Examples:
      maptr redirects probe own.sqlite
      maptr redirects probe --config maptr.toml --csv
    """
    if as_json and as_csv:
        raise click.UsageError("give one of --json and --csv")
    try:
        settings = lookup.read_config(config)
        file = store_of(file, config, "STORE")
        store = _opened(file, allow_private=allow_private)
        cache = lookup.cache_file(settings)
        if cache is None:
            output.warning("there is no cache, so the results are not kept")
        files = KeptStores(None if cache is None else Path(cache).parent)  # it removes a temporary folder at its end
        path = files.path(file, SUFFIX)
        kept = LinkStore(path, time.time())
        click.get_current_context().call_on_close(kept.close)
        contact = settings.gateway.asks_as if settings is not None else ""
        checker = LinkChecker(None, kept, contact=contact, allow_private=allow_private)
        left = ""
        with alone(path) as is_alone:
            if is_alone:
                with output.progress("reading the redirects"):
                    checker.follow(store)
                left = _check(checker, kept.begin_round(time.time(), anew=again))
            else:
                output.inform("another process is checking these links: its results so far")
        counts = kept.counts()
        _report(kept.failed(FAILED), counts, as_json=as_json, as_csv=as_csv)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    except sqlite3.Error as error:
        output.fail(f"{file}: {error}", output.EXIT_UNREADABLE)
    if left:
        output.fail(left, output.EXIT_NO_ANSWER)
    sys.exit(output.EXIT_NONE if counts.dead or counts.failing else output.EXIT_OK)


def _opened(file: Path, *, allow_private: bool) -> ObjectStore:
    try:
        return open_store(file, allow_private=allow_private)
    except NotAStoreError:  # a CSV
        return read_good(file, allow_private=allow_private)


def _check(checker: LinkChecker, start: float) -> str:
    """Check all links that were not checked since the start of the round. Returns why some are left; "" for none."""
    kept, due = checker.kept, Due(start, start)
    total, done = kept.checked_since(start)
    if done:
        output.inform(f"continuing the round of {time_text(start)}: {done} of {counted(total, 'link')} checked")
    try:
        with output.progress("checking", total) as update:
            while True:
                update(completed=kept.checked_since(start)[1])
                if checker.work(TURN, lambda wall: due):
                    if checker.lacks_network:
                        return "no server answers, perhaps because of this machine's network: run it again"
                    continue
                links, until = kept.resting(due, time.time())
                if not links:
                    break
                if until > time.time() + LONGEST_REST:
                    named = f"{counted(links, 'link')} not checked: their hosts asked to be left alone"
                    return f"{named} until {time_text(until)}: run it again then"
                time.sleep(TURN)
    except KeyboardInterrupt:
        total, done = kept.checked_since(start)
        output.interrupted(
            f"checked {done} of {counted(total, 'link')}, and kept the results; run it again for the others"
        )
    kept.end_round()
    return ""


def _report(rows: Sequence[LinkRow], counts: LinkCounts, *, as_json: bool, as_csv: bool) -> None:
    if as_json:
        output.json_data({"objects": counts._asdict(), "links": [row.to_dict() for row in rows]})
    elif as_csv:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(LINK_COLUMNS)
        lines.writerows([cell(printable(text)) for text in link_cells(row)] for row in rows)
    else:
        for row in rows:
            state = row.link.state
            words = f" {row.status:11} {time_text(row.link.since)} {row.ark} {row.url}"
            output.data(Painted(f"{state.name.lower():7}", COLORS[state]), words)
    numbers = ", ".join(f"{count} {NAMES[name]}" for name, count in counts._asdict().items())
    output.inform(f"{counted(sum(counts), 'object')}: {numbers}")
