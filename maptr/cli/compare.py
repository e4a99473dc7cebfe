"""``maptr redirects compare``: a running resolver's answers for own objects, and those that a gateway would give."""

from __future__ import annotations

import csv
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

import click

from maptr import url
from maptr.ark import Ark
from maptr.cli import options, output
from maptr.cli.group import command
from maptr.cli.output import counted
from maptr.cli.redirects import read_good
from maptr.errors import NmaError, cell, printable
from maptr.files import write_atomically
from maptr.gateway.objects import GONE, OwnObjects, match, target_of
from maptr.web.http import REDIRECTS, ask

SECONDS = 20.0  # for one answer
MAX_SILENT = 10  # requests in a row without an answer, after which the command gives up
SUFFIX, QUERY = "/part.1", "?part=1"
COLUMNS = ("asked", "expected", "answered", "reason")


class ResolverAnswer(NamedTuple):
    """The answer to a request for an ARK: its status and where it leads, or why there is none."""

    status: int
    location: str
    reason: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.status or ""), self.location)))

    def is_as(self, expected: ResolverAnswer) -> bool:
        """Return whether it leads to the same place; the statuses of redirects count as equal."""
        if expected.status == GONE:
            return self.status == GONE
        return self.status in REDIRECTS and url.normalized(self.location) == url.normalized(expected.location)


@dataclass
class Comparison:
    """The progress of a comparison: the last ARK, and the requests so far."""

    resolver: str
    sample: int
    after: str = ""
    asked: int = 0
    different: int = 0


@command(
    exits={
        0: "all answers are equal",
        1: "some differ",
        8: "a file cannot be used",
        9: "the resolver does not answer: --resume continues later",
    }
)
@click.argument("file", type=options.FILE_PATH)
@click.argument("resolver", metavar="URL")
@options.output_option("Write the differences to FILE.  [default: standard output]")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Ask for only N of the ARKs, the same in each run.")
@click.option(
    "--rate", type=options.Amount(0, min_open=True), default=5.0, metavar="N", help="Send at most N requests a second."
)
@click.option("--resume", is_flag=True, help="Continue where a run with the same -o FILE ended.")
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
def compare(
    file: Path, resolver: str, target: Path | None, sample: int | None, rate: float, resume: bool, overwrite: bool
) -> None:
    """Ask the resolver at URL for each ARK in FILE, and compare its answers with those that a gateway would give.

    Each ARK is requested as it is, with a suffix, and with a query. No redirect is followed. URL may be on a private
    host, and goes before the ARK: https://n2t.net requests https://n2t.net/ark:12345/k1.

    \b
    Example:
      maptr redirects compare own.sqlite https://old.example.org --sample 500
    """
    try:
        url.parse(resolver)
    except ValueError as error:
        raise click.UsageError(f"{resolver}: {error}") from None
    if resume and target is None:
        raise click.UsageError("--resume needs -o FILE")
    store = read_good(file, allow_private=True)
    arks = [one.ark for one in store.every()]
    if sample is not None and sample < len(arks):
        arks = sorted(random.Random(0).sample(arks, sample))
    state = None if target is None else target.with_name(f"{target.name}.state")
    done = Comparison(resolver, sample or 0)
    if resume and state is not None:
        done = _resumed(state, done)
    elif not overwrite:
        options.refuse_foreign(target, overwrite=False)
    with ExitStack() as stack:
        out: TextIO = sys.stdout
        if target is not None:
            out = stack.enter_context(target.open("a" if resume else "w", encoding="utf-8", newline=""))
        lines = csv.writer(out, lineterminator="\n")
        if not resume:
            lines.writerow(COLUMNS)
        update = stack.enter_context(output.progress("comparing", len(arks)))
        pace = _Pace(1 / rate)
        silent = 0
        for number, ark in enumerate(arks, 1):
            if ark <= done.after:
                continue
            for asked, expected in _requests(store, ark):
                pace.wait()
                answer = _ask(f"{resolver.rstrip('/')}/{asked}")
                silent = silent + 1 if answer.reason else 0
                if silent > MAX_SILENT:
                    output.fail(f"{resolver} does not answer: {answer.reason}", output.EXIT_NO_ANSWER)
                done.asked += 1
                if not answer.is_as(expected):
                    done.different += 1
                    cells = (asked, str(expected), str(answer), answer.reason)
                    lines.writerow([cell(printable(text)) for text in cells])
            out.flush()
            done.after = ark
            update(completed=number)
            if state is not None:
                write_atomically(state, json.dumps(asdict(done)).encode())
    if state is not None:
        state.unlink(missing_ok=True)
    output.inform(f"{counted(done.asked, 'request')}, {counted(done.different, 'difference')}")
    sys.exit(output.EXIT_NONE if done.different else output.EXIT_OK)


def _resumed(state: Path, given: Comparison) -> Comparison:
    try:
        found = Comparison(**json.loads(state.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        raise click.UsageError(f"{state}: there is nothing to resume") from None
    if (found.resolver, found.sample) != (given.resolver, given.sample):
        raise click.UsageError(f"{state}: belongs to a run with {found.resolver} and --sample {found.sample or 'none'}")
    return found


def _requests(objects: OwnObjects, ark: str) -> Iterator[tuple[str, ResolverAnswer]]:
    """Yield each request for an ARK, with a gateway's answer; none with a suffix that the gateway does not pass on."""
    for added in ("", SUFFIX, QUERY):
        asked = Ark.parse(f"{ark}{added}")
        found = match(objects, asked)
        if found is not None and (found.object.is_gone or not found.rest or found.object.suffix):
            where = "" if found.object.is_gone else target_of(found, asked)
            yield f"{ark}{added}", ResolverAnswer(found.object.status, where)


def _ask(where: str) -> ResolverAnswer:
    try:
        found = ask(url.parse(where), "GET", SECONDS, allow_private=True)
        return ResolverAnswer(found.status, found.headers.get("Location") or "")
    except NmaError as error:
        return ResolverAnswer(0, "", str(error))


class _Pace:
    """Lets requests through at equal intervals."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = time.monotonic()

    def wait(self) -> None:
        now = time.monotonic()
        time.sleep(max(0.0, self._next - now))
        self._next = max(now, self._next) + self._seconds
