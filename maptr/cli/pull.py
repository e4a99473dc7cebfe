"""``maptr table pull``: the registry, fetched with a plan that is shown first and applied atomically."""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from maptr import paths, registry
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.options import FILE_PATH, Parsed, refuse_foreign, setting_option
from maptr.cli.output import Painted
from maptr.config.model import read_sha256
from maptr.errors import MissingExtra, SignatureError, TableError, UnsafePlan
from maptr.registry import dates
from maptr.registry.followed_file import TableSource, pull_file
from maptr.registry.minisign import PublicKey
from maptr.registry.pull import OFFICIAL, Pull, PullSources, Requirements, jittered, pull_table

STDIN = "/dev/stdin"


@command(
    exits={
        0: "nothing to change, or applied",
        1: "the plan is not empty and was not applied, or it was refused because it removes or changes too much",
        8: "no source has a registry, or FILE or the key cannot be read, or FILE cannot be written",
    }
)
@click.argument("sources", nargs=-1, metavar="[URL|FILE]...", type=options.PATH)
@click.option(
    "--table",
    "named",
    type=options.FilePath(dir_okay=False),
    help="Compare with this table and, with --apply, replace it.  [default: the user's table, or configured]",
)
@click.option("--apply", "act", is_flag=True, help="Apply the plan.  [default: only show it]")
@click.option("--overwrite", is_flag=True, help="Replace FILE even if it is not a registry and was not pulled before.")
@click.option(
    "--force",
    is_flag=True,
    help="Accept the source as it is, even if it removes or changes more than 30 %, or has older data; unreadable "
    "records are not kept.",
)
@setting_option("table.sha256", "--sha256", type=Parsed("hex", read_sha256))
@setting_option("table.public_key", "--public-key", type=FILE_PATH)
@click.option(
    "--signature",
    metavar="URL|FILE",
    type=options.PATH,
    help="Read the signature from there.  [default: the source with .minisig after its path]",
)
@setting_option("table.cafile", "--cafile", type=FILE_PATH)
@options.timeout_option(60.0, "Give up a source after this time.")
@options.CONFIG_OPTION
@options.time_option(
    "--every", least=1, help="Repeat for ever after this time, such as 1h or 15m; needs --apply.  [default: pull once]"
)
@click.option("--json", "form", flag_value="json", help="Print the plan as one JSON document.")
@click.option("--markdown", "form", flag_value="markdown", help="Print the plan as a Markdown table.")
def pull(
    sources: tuple[str, ...],
    named: str | None,
    act: bool,
    overwrite: bool,
    force: bool,
    sha256: str | None,
    public_key: Path | None,
    signature: str | None,
    cafile: Path | None,
    timeout: float,
    config: str | None,
    every: int | None,
    form: str | None,
) -> None:
    """Pull the registry from the first source that has one: a URL (http, https) or a file, in any format.

    Shows what would change, one record a line: + added, ~ changed, - removed. --apply replaces FILE atomically and
    keeps its last three states as FILE.1 to FILE.3. A source is skipped if it is down, or sends a web page, a
    truncated file, or a registry that lost more than 30 % of its records or has older data; FILE then stays as it is. A
    record that was usable and is not readable in the source is kept (!). The first pull of the public registry, or into
    the table that maptr discover uses, is compared with the table in use. Any other file that does not exist yet is a
    new table; the plan says how many NAANs of the table in use it does not have.

    Without a source, those of [table] in the configuration are used, with its checksum, key and certificates; else
    the public NAAN registry. Without --table, FILE is that of [table], else the table that maptr discover uses.

    \b
    Examples:
      maptr table pull --apply
      maptr table pull https://registry.example/naans.json --apply
      maptr table pull https://one.example/naans https://two.example/naans \\
          --table natab --apply --every 1h
      maptr table pull https://one.example/naans --public-key registry.pub
    """
    if every is not None and not act:
        raise click.UsageError("--every needs --apply")
    if named == paths.BUILT_IN:
        raise click.UsageError(f"the built-in registry is not written: --table ./{named} would be a file")
    target = None if named is None else Path(named)
    if signature is not None and public_key is None:
        raise click.UsageError("--signature needs --public-key")
    if "-" in sources:
        if every is not None:
            raise click.UsageError("--every cannot read standard input again")
        sources = tuple(STDIN if source == "-" else source for source in sources)
    configured = lookup.read_config(config)
    known = configured.table if configured is not None else None
    if not sources and known is not None and known.sources:
        sources = known.sources
        sha256 = sha256 or known.sha256
        public_key = public_key or known.public_key
        cafile = cafile or known.cafile
    sources = sources or (OFFICIAL,)
    if cafile is not None and not any("://" in where for where in (*sources, signature or "")):
        raise click.UsageError("--cafile is not used: all sources are files")
    into = target or (known.file if known is not None else None)
    if into is None:  # the table that ``maptr discover`` uses
        into = Path(paths.table_file(os.environ))
        if act:
            paths.make_parent(str(into))
    if act and not pull_file(into).exists():  # a pulled table may be replaced even if damaged
        refuse_foreign(into, _is_registry, overwrite=overwrite)
    try:
        key = None if public_key is None else PublicKey.parse(public_key.read_text("utf-8", "replace"))
    except MissingExtra:
        raise
    except SignatureError as error:
        output.fail(f"{public_key}: {error}", output.EXIT_UNREADABLE)
    given = PullSources(tuple(sources), Requirements(sha256 or None, key, signature), cafile, timeout)
    in_use = lookup.found_table(configured)
    once = partial(_pull, into, given, act=act, force=force, in_use=in_use, form=form)
    try:
        while every is not None:
            with suppress(OSError):  # a full disk behind standard output stops no later pull
                once()
            time.sleep(jittered(every, random.uniform))
        sys.exit(once())
    except KeyboardInterrupt:
        output.interrupted(f"{into} is as it was last pulled; run it again")


def _is_registry(content: bytes) -> bool:
    try:
        registry.read(content, on_bad=lambda error: None)
    except TableError:
        return False
    return True


def _pull(target: Path, sources: PullSources, *, act: bool, force: bool, in_use: TableSource, form: str | None) -> int:
    """Pull once, and then report it: a full standard output does not keep the table old. Return the exit code."""
    with output.progress("pulling the registry"):
        result = pull_table(target, sources, act=act, force=force, in_use=in_use, wall=time.time)
    if result.pull is not None:
        _show_plan(result.pull, form)
    for line in result.lines:
        show = output.inform if line.level == logging.INFO else output.warning if result.pull else output.error
        show(f"{target}: {line.text}")
    if result.pull is not None:
        return output.EXIT_NONE if result.changes and not act else output.EXIT_OK
    if sources.places == (OFFICIAL,) and not target.exists():
        output.inform("maptr table shows the tables of this machine")
    return output.EXIT_NONE if isinstance(result.error, UnsafePlan) else output.EXIT_UNREADABLE


def _show_plan(found: Pull, form: str | None) -> None:
    for error in found.bad:
        output.inform(Painted("left out:", output.DOUBTFUL), f" {error}")
    if form == "json":
        shown = {**found.plan.to_dict(), "text": found.plan.to_text().splitlines()}
        first = None if found.first is None else asdict(found.first) | {"text": str(found.first)}
        document = {"source": found.source, "sha256": found.sha256, "plan": shown, "first": first}
        output.json_data(document | {"date": found.date, "date_before": found.date_before})
    elif form == "markdown":
        output.data(found.plan.to_markdown().rstrip("\n"))
    elif found.plan or found.plan.kept:
        for line in found.plan.to_text().splitlines():
            output.data(*output.of_change(line))
    plan = found.plan
    counts = f"{len(plan.added)} to add, {len(plan.changed)} to change, {len(plan.removed)} to remove of {plan.size}"
    kept = f", {len(plan.kept)} kept because they cannot be read" if plan.kept else ""
    output.inform(counts + kept + ("" if found.date is None else f"; the data are of {dates.day(found.date)}"))
