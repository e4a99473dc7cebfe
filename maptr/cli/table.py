"""``maptr table check``, ``convert`` and ``export``. The other commands are in ``pull.py`` and ``drift.py``."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from maptr import entry_points, registry
from maptr.cli import lookup, options, output
from maptr.cli.group import Group
from maptr.cli.options import input_name, output_option, read_table, refuse_foreign, refuse_input, write
from maptr.cli.output import Painted, counted
from maptr.discovery import BUILT_IN
from maptr.errors import ConfigError, printable
from maptr.registry import builtin
from maptr.registry import export as exporting
from maptr.registry.followed_file import TableState, WatchedTable
from maptr.registry.found import FoundTable, TableLocation
from maptr.zone.finding import Finding, Severity
from maptr.zone.lint import lint

NAMED = 5  # own objects named in one line of losses
_REWRITE_EXITS = {
    0: "written, even if something was lost",
    1: "a record of SOURCE is bad; nothing is written",
    8: "SOURCE cannot be read or is not a registry, or FILE cannot be written",
}


@click.group(
    cls=Group,
    invoke_without_command=True,
    lazy={
        "pull": ("maptr.cli.pull", "pull", "Pull the registry from its source."),
        "drift": ("maptr.cli.drift", "drift", "Compare a registry with DNS."),
        "probe": ("maptr.cli.drift", "probe", "Test whether the servers in a registry answer."),
    },
)
@options.CONFIG_OPTION
@options.JSON_OPTION
@click.pass_context
def table(ctx: click.Context, config: str | None, as_json: bool) -> None:
    """Pull, check, convert and export the NAAN registry.

    Without a command, it shows where tables may be, and which one is in use.

    The first one that exists answers where DNS does not: the configured table, that of maptr table pull, /etc/natab,
    /etc/maptr/naans, or the built-in registry, which every installation has. The last is used for ark.arpa only, not if
    the configuration has another client.origin.

    A registry is the public JSON (version 1 or 2), the registry's ANVL text, a natab, or the central resolver's
    prefixes file. The format is recognised by the content, not by the file name.
    """
    if ctx.invoked_subcommand is None:
        known = lookup.read_config(config)
        _show_tables(lookup.found_table(known), lookup.origin_of(None, known), as_json=as_json)


def _show_tables(found: FoundTable, origin: str, *, as_json: bool) -> None:
    """Print each place for a table, with the state of the table there, and mark the one in use."""
    output.show_log()
    used = found.location
    rows = [(each, _state_at(each)) for each in found.locations]
    if as_json:
        listed = [
            {
                **each._asdict(),
                "used": each == used,
                "records": None if state.table is None else len(state.table),
                "fetched": state.fetched,
                "date": state.date,
                "source": state.origin or None,
                "trouble": state.trouble or None,
            }
            for each, state in rows
        ]
        output.json_data({"tables": listed})
        return
    for each, state in rows:
        text = state.trouble or "does not exist"
        if state.table is not None and state.fetched is not None:
            data = "an unknown date" if state.date is None else lookup.day_text(state.date)
            age = lookup.duration_text(max(0.0, time.time() - state.fetched))
            of_data = f"{counted(len(state.table), 'record')} of {data}"
            confirmed = f"confirmed {lookup.day_text(state.fetched)}, {age} ago"
            text = f"{of_data}, {confirmed if each.kind != BUILT_IN else f'{age} old'}"
        mark = Painted("*", output.GOOD) if each == used else " "
        output.data(mark, f" {each.kind_text:11} {each.path}: {text}")
    if used.kind:
        first = next(each for each, state in rows if state.table is not None or each == used)
        reason = "it is the first that exists" if first == used else f"its data are newer than those of {first.path}"
        output.inform(f"* is used: {reason}; maptr table pull --apply gets today's registry")
    else:
        output.inform(f"none is used: no file exists, and the built-in registry is not for {origin.rstrip('.')}")


def _state_at(location: TableLocation) -> TableState:
    if location.kind == BUILT_IN:
        try:
            return builtin.state()
        except ConfigError as error:
            return TableState(kind=BUILT_IN, trouble=error.reason)
    if not location.exists:
        return TableState(kind=location.kind)
    return WatchedTable(location.path, clock=time.monotonic, kind=location.kind).current()


@table.command(
    short_help="List the errors in a registry.",
    exits={
        0: "no errors (with --strict: no warnings either)",
        1: "errors",
        8: "FILE cannot be read or is not a registry",
    },
)
@options.source_argument("file")
@options.JSON_OPTION
@click.option("--strict", is_flag=True, help="Also exit with 1 for warnings.")
def check(file: str, as_json: bool, strict: bool) -> None:
    """List the errors and warnings in the registry in FILE (- for standard input), by default the table in use.

    Each finding is one line on standard output: "FILE:LINE: severity: record: code: reason". LINE is left out if it
    is not known; record is - if it has no key. A record with an error cannot be read, or has no usable public
    http or https host, and is not published. A record with a warning is published. A summary goes to standard error.

    \b
    Example:
      maptr table check naans.json
    """
    read, bad = read_table(file)
    findings = [replace(finding, file=input_name(file)) for finding in lint(read, unread=bad)]
    unread = [
        Finding(Severity.ERROR, "bad-record", one.record or "-", one.reason, file=input_name(file), line=one.line)
        for one in bad
    ]
    naans, listed = len(read.naans()), [finding.to_dict() for finding in findings]
    unreadable = [{"record": error.record, "line": error.line, "reason": error.reason} for error in bad]
    document = {"file": file, "records": len(read), "bad_records": unreadable, "findings": listed}
    found = f"{counted(naans, 'NAAN')}, {counted(len(read) - naans, 'shoulder')}"
    output.end_with([*unread, *findings], found, document if as_json else None, strict=strict)


@table.command(short_help="Write a registry in another format.", exits=_REWRITE_EXITS)
@options.source_argument("source")
@click.option("--to", "form", type=click.Choice(["json", "natab"]), required=True, help="Format to write.")
@output_option("Write to FILE, atomically.  [default: standard output]")
@click.option("--overwrite", is_flag=True, help="Replace FILE even if it is not what maptr table convert writes.")
@options.NATAB_SCHEME_OPTION
@options.QUIET_OPTION
def convert(source: str, form: str, target: Path | None, **given: Any) -> None:
    """Write the registry in SOURCE (- for standard input), by default the table in use, in another format.

    JSON holds everything. A natab holds hosts with their ports, acronyms, the name of the organisation and the policy
    URL; what it cannot hold is listed on standard error: "lost record: what; what". A host that is reached by http is
    written with port 80, which means http.

    \b
    Example:
      maptr table convert naans.json --to natab -o /etc/natab
    """
    _rewrite(source, form, target, **given)


@table.command(short_help="Write a registry as configuration of another server.", exits=_REWRITE_EXITS)
@options.source_argument("source")
@click.option(
    "--format",
    "form",
    type=options.NamedIn(entry_points.EXPORTS, exporting.FORMATS),
    required=True,
    help="Format to write.",
)
@output_option("Write to FILE, atomically.  [default: standard output]")
@click.option("--overwrite", is_flag=True, help="Replace FILE even if it is not what maptr table export writes.")
@click.option(
    "--redirects",
    type=options.FILE_OR_STDIN,
    help="Redirect the single ARKs in this file first, as gateway.redirects does; for nginx, apache and caddy.",
)
@options.NATAB_SCHEME_OPTION
@options.QUIET_OPTION
def export(source: str, form: str, target: Path | None, redirects: Path | None, **given: Any) -> None:
    """Write the registry in SOURCE (- for standard input), by default the table in use, for another server or program.

    nginx, apache and caddy are files to include, which redirect each ARK as maptr gateway does from a table alone; the
    comment at the top of each shows the lines around it. csv has one row for each mapping authority. json and natab
    are those of maptr table convert.

    What a format cannot hold is listed on standard error: "lost record: what; what". A server redirects to the first
    mapping authority of a record. The ARKs of a record without a usable target are not redirected.

    \b
    Example:
      maptr table export naans.json --format nginx -o /etc/nginx/ark.conf
    """
    if redirects is not None and form not in exporting.SERVERS:
        raise click.UsageError(f"--redirects is for {', '.join(exporting.SERVERS)}, not for {form}")
    _rewrite(source, form, target, redirects=redirects, **given)


def _own_rules(file: Path) -> tuple[list[exporting.RedirectRule], list[registry.Loss]]:
    """Return the rules of a file of redirects, and what they lose, each loss only once. Exits for a bad row."""
    from maptr.cli.redirects import read_good  # late: only these exports need it

    rules, losses = [], dict[str, list[str]]()
    for one in read_good(file).every():
        key = one.ark.removeprefix("ark:")
        rule, lost = exporting.own_rule(key, one.url, one.status, suffix=one.suffix)
        rules.append(rule)
        for what in filter(None, (lost, "its description" if one.is_described else "")):
            losses.setdefault(what, []).append(key)
    return rules, [registry.Loss(_some(keys), what) for what, keys in losses.items()]


def _some(keys: list[str]) -> str:
    """Return the first keys, and the number of the others."""
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"{', '.join(keys[:NAMED])}{more}"


def _rewrite(
    source: str,
    form: str,
    target: Path | None,
    *,
    overwrite: bool,
    scheme: str,
    quiet: bool,
    redirects: Path | None = None,
) -> None:
    """Write a registry in another format, and list what the format cannot hold, unless ``quiet``."""
    refuse_input(target, [source, redirects])
    if source == str(redirects) == "-":
        raise click.UsageError("only one of SOURCE and --redirects can be standard input")
    refuse_foreign(target, lambda content: exporting.is_written(content, form), overwrite=overwrite)
    read, bad = read_table(source, scheme)
    if bad:
        for error in bad:
            output.error(str(error))
        sys.exit(output.EXIT_NONE)
    own, lost = ([], []) if redirects is None else _own_rules(redirects)
    text, losses = exporting.write(read, form, own)
    for record, group in groupby([] if quiet else [*losses, *lost], key=attrgetter("record")):
        output.inform(f"lost {record}: {printable('; '.join(loss.what for loss in group))}")
    write(target, printable(text, keep="\n\t") if target is None else text)
