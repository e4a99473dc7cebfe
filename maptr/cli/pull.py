"""``maptr table pull``: the registry from its source, planned first, applied whole or not at all."""

from __future__ import annotations

import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr.cli import output
from maptr.errors import MaptrError, TableError, UnsafePlan

if TYPE_CHECKING:
    from maptr.pull import Pull

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
JITTER = 0.1  # of the interval, either way, so that many daemons do not come at once


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is no time: write 90s, 15m, 1h or 1d", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "s"]


@click.command(short_help="Get the registry from its source, safely.")
@click.argument("sources", nargs=-1, required=True, metavar="URL|FILE...")
@click.option(
    "--into",
    "target",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The table to compare with and, with --apply, to replace.",
)
@click.option("--apply", "act", is_flag=True, help="Do it; without, only the plan is shown.")
@click.option("--force", is_flag=True, help="Even if more than 30 % of the records go or change.")
@click.option("--sha256", metavar="HEX", help="What the content must hash to.")
@click.option("--cafile", metavar="FILE", help="Trust the certificates in FILE instead of the system's.")
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS", help="For each source, all in all.")
@click.option(
    "--every", type=_Duration(), metavar="TIME", help="Go on for ever, pulling every 1h or 15m; needs --apply."
)
@click.option("--json", "form", flag_value="json", help="The plan as one JSON document.")
@click.option("--markdown", "form", flag_value="markdown", help="The plan as a Markdown table.")
def pull(
    sources: tuple[str, ...],
    target: Path,
    act: bool,
    force: bool,
    sha256: str | None,
    cafile: str | None,
    timeout: float,
    every: float | None,
    form: str | None,
) -> None:
    """Get the registry from the first source that has one: a URL (http, https) or a file, in any format.

    Shows what would change, one record a line ("+" added, "~" changed, "-" removed). With --apply it replaces
    FILE, whole or not at all, and keeps the last three states as FILE.1 to FILE.3. A source that is down, sends a
    web page, half a file or a third of the registry less is passed over, and FILE stays as it is.

    \b
    Examples:
      maptr table pull https://n2t.net/naans.json --into natab
      maptr table pull https://one.example/naans https://two.example/naans --into natab --apply --every 1h

    \b
    Exit code  0  nothing to do, or done
               1  the plan is not empty and was not applied; or it was refused, being too much
               8  no source had a registry; or FILE cannot be read or written
    """
    if every is not None and not act:
        raise click.UsageError("--every needs --apply")
    if sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", sha256):
        raise click.UsageError("--sha256 wants 64 hexadecimal digits")

    def once() -> int:
        return _once(sources, target, act, force, sha256, cafile, timeout, form)

    if every is None:
        sys.exit(once())
    while True:
        once()
        time.sleep(every * random.uniform(1 - JITTER, 1 + JITTER))


def _once(
    sources: tuple[str, ...],
    target: Path,
    act: bool,
    force: bool,
    sha256: str | None,
    cafile: str | None,
    timeout: float,
    form: str | None,
) -> int:
    """One pull; the exit code, everything said."""
    from maptr.pull import PullFailed, apply, look

    try:
        found = look(target, sources, sha256=sha256, cafile=cafile, force=force, seconds=timeout)
        _tell(found, form)
        if act:
            apply(found, wall=time.time)
            output.talk(f"{target}: {'replaced' if found.plan else 'up to date'}, from {found.source}")
            return output.EXIT_OK
        return output.EXIT_NONE if found.plan else output.EXIT_OK
    except UnsafePlan as error:
        output.talk(f"maptr: {error}; {target} stays as it is (--force overrides)")
        return output.EXIT_NONE
    except PullFailed as error:
        for reason in error.reasons:
            output.talk(f"maptr: {reason}")
        output.talk(f"maptr: no source had a registry; {target} stays as it is")
    except TableError as error:
        output.talk(f"maptr: the table that is there: {error}")
    except MaptrError as error:
        output.talk(f"maptr: {error}")
    except OSError as error:
        output.talk(f"maptr: {error.filename or target}: {error.strerror or error}")
    return output.EXIT_UNREADABLE


def _tell(found: Pull, form: str | None) -> None:
    from maptr.pull import to_markdown

    for reason in found.passed_over:
        output.talk(f"maptr: passed over: {reason}")
    for error in found.bad:
        output.talk(f"left out: {error}")
    if form == "json":
        lines = found.plan.to_text().splitlines()
        output.json_data(
            {"source": found.source, "sha256": found.sha256, "plan": {**found.plan.to_dict(), "text": lines}}
        )
    elif form == "markdown":
        output.data(to_markdown(found.plan).rstrip("\n"))
    elif found.plan:
        output.data(found.plan.to_text().rstrip("\n"))
    plan = found.plan
    output.talk(
        f"{len(plan.added)} to add, {len(plan.changed)} to change, {len(plan.removed)} to remove of {plan.size}"
    )
