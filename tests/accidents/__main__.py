"""Runs accidents and writes docs/accidents.md; see ``scripts/accidents``."""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.accidents.all import ACCIDENTS
from tests.accidents.outcome import WITH_CATALOG, Accident, Outcome, run
from tests.accidents.page import DATA, PAGE, Results, rendered

SHOWN = 160  # characters of an alarm in a row
WIDTH = 30  # of the progress bar
LONGEST = 3600  # seconds after which no further accident begins


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/accidents", description=(__doc__ or "").strip())
    parser.add_argument("names", metavar="NAME", nargs="*", help="an accident of the page; default: all")
    parser.add_argument(
        "--servers", default=",".join(("maptr", *WITH_CATALOG)), help="which servers, with commas between them"
    )
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.add_argument("--keep", action="store_true", help=f"keep the outcomes in {DATA.name} and write {PAGE.name}")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(ACCIDENTS):
        parser.error(f"no accident {', '.join(sorted(unknown))}; --list prints their names")
    chosen = [ACCIDENTS[name] for name in options.names or ACCIDENTS]
    if options.list:
        say("\n".join(f"{each.name:40} {each.title}" for each in chosen))
        return 0
    servers = options.servers.split(",")
    runs = [(each, server) for each in chosen for server in each.software if server in servers]
    outcomes = []
    if not options.json:
        say("| accident | server | outcome | first alarm or line of the log |\n|---|---|---|---|")
    for outcome in run_all(runs):
        outcomes.append(outcome)
        if options.keep:
            keep(outcomes)
        if not options.json:
            say(row(outcome))
    if options.json:
        say(json.dumps([each.to_json() for each in outcomes], indent=1))
    unmet = [each for each in outcomes if each.software == "maptr" and not each.is_met(ACCIDENTS[each.accident])]
    for each in unmet:
        complain(f"not met: {each.accident}: {each.text} {' '.join(each.alarms)}")
    return 1 if [each for each in unmet if not each.skipped] else 0


def keep(outcomes: Sequence[Outcome]) -> None:
    """Several runs may do this at once."""
    with Path(__file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = Results.load().with_outcomes(outcomes)
        results.save()
        PAGE.write_text(rendered(PAGE.read_text("utf-8"), results), "utf-8")


def run_all(runs: Sequence[tuple[Accident, str]]) -> Iterator[Outcome]:
    """Run accidents in turn. A run that fails is also an outcome."""
    begin = time.monotonic()
    for number, (accident, server) in enumerate(runs):
        if time.monotonic() - begin > LONGEST:
            complain(f"after {LONGEST} s, {len(runs) - number} were not run")
            break
        progress(number, len(runs), f"{accident.name}, {server}")
        try:
            outcome = run(accident, server)
        except Exception as error:
            said = " ".join(str(error).split())[-300:] or type(error).__name__
            outcome = Outcome(accident.name, server, wrong=(f"the run failed: {said}",))
        progress(number + 1, len(runs), "")
        yield outcome


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def progress(done: int, total: int, text: str) -> None:
    """Draw a progress bar over the last one on a terminal; do nothing elsewhere."""
    if sys.stderr.isatty():
        full = WIDTH * done // max(total, 1)
        sys.stderr.write(f"\r\033[K{'#' * full}{'.' * (WIDTH - full)} {done}/{total} {text}" if text else "\r\033[K")
        sys.stderr.flush()


def row(outcome: Outcome) -> str:
    first = outcome.skipped or next(iter(outcome.alarms), "").replace("|", "\\|")[:SHOWN]
    return f"| {outcome.accident} | {outcome.software} | {outcome.text} | {first} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
