"""``maptr zone build``, ``check`` and ``diff``: zones built from the registry, checked, and compared."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from maptr.cli import options, output
from maptr.cli.group import Group
from maptr.cli.lookup import ORIGIN
from maptr.cli.output import Painted, counted
from maptr.dnssec.expiry import signature_state
from maptr.errors import ZoneError
from maptr.files import read_whole
from maptr.protocol import names
from maptr.protocol.names import Labels, fold
from maptr.protocol.serial import next_serial
from maptr.zone import build as zones
from maptr.zone.check import Examined, examine, read_zone
from maptr.zone.diff import ZoneDiff, check_shrinkage
from maptr.zone.finding import Finding, Severity
from maptr.zone.masterfile import AS_TEXT, read_master_file, soa_owner
from maptr.zone.snapshot import ZoneView


@click.group(
    cls=Group,
    lazy={
        "sign": ("maptr.cli.sign", "sign", "Sign a zone with the keys in a folder."),
        "keys": ("maptr.cli.sign", "keys", "Manage the keys of a zone."),
    },
)
def zone() -> None:
    """Build the zone from the registry; check, compare and sign zones."""


@zone.command(
    short_help="Build the zone from a registry.",
    exits={
        0: "written",
        1: "written, but a shoulder was left out whose ARKs get the URLs of its NAAN (with --strict: any record was "
        "left out); or not written, because the new zone has errors or lost more than 30 % of the names in FILE",
        8: "SOURCE or an included file cannot be read, or FILE cannot be written",
    },
)
@options.source_argument("source")
@options.output_option("Write the zone to FILE, atomically.  [default: standard output]")
@click.option("--overwrite", is_flag=True, help="Replace FILE even if it is not a zone of this name.")
@click.option("--force", is_flag=True, help="Replace FILE even if more than 30 % of its names would be removed.")
@click.option("--origin", default=ORIGIN, metavar="NAME", type=options.NAME, help="Give the zone this name.")
@click.option(
    "--serial",
    default="date",
    metavar="date|unix|N",
    help="Make the serial of the SOA from the date or from the Unix time, or take N. With date and unix it follows the "
    "serial in FILE, and an unchanged zone keeps it.",
)
@click.option(
    "--ns",
    multiple=True,
    metavar="NAME[=ADDRESS,...]",
    help="Name this server in the NS records, with its addresses if NAME is in the zone. The option can be repeated.  "
    "[default: localhost]",
)
@click.option(
    "--contact",
    default="hostmaster",
    metavar="NAME",
    type=options.MAILBOX,
    help="Name this mailbox in the SOA: an e-mail address, or a domain name.",
)
@options.time_option("--ttl", "1d", help="Give every record this TTL.")
@click.option(
    "--include",
    multiple=True,
    type=options.PATH,
    help="Add the records of this zone file as they are. The option can be repeated.",
)
@options.NATAB_SCHEME_OPTION
@click.option("--strict", is_flag=True, help="Exit with 1 if any record of SOURCE is left out.")
@options.json_option("Print a summary as one JSON document; needs -o.")
def build(
    source: str,
    target: Path | None,
    overwrite: bool,
    force: bool,
    origin: Labels,
    serial: str,
    ns: tuple[str, ...],
    contact: Labels,
    ttl: int,
    include: tuple[str, ...],
    scheme: str,
    strict: bool,
    as_json: bool,
) -> None:
    """Build the zone from SOURCE: a registry in any format (JSON, ANVL, natab, prefixes), or - for standard input.

    The default SOURCE is the table in use, which maptr table shows.

    Records with errors are left out and listed on stderr; maptr table check explains them. The zone is checked before
    it is written. An existing FILE must be a zone of the same name.

    If a shoulder is left out, the zone is still written, because its NAAN must stay published, but the exit code is 1:
    the shoulder's ARKs get the NAAN's URLs.

    \b
    Example:
      maptr zone build naans.json -o ark.arpa.zone --ns ns1=192.0.2.1
    """
    options.refuse_input(target, [source, *include])
    if as_json and target is None:
        raise click.UsageError("--json needs -o FILE: standard output has the zone")
    with output.progress("reading the registry", hidden=source == "-"):
        old = existing_zone(target, origin, overwrite=overwrite)
        table, unread = options.read_table(source, scheme)
    try:
        settings = zones.ZoneSettings(
            origin=origin,
            servers=tuple(zones.NameServer.parse(text, origin) for text in ns),
            contact=contact,
            ttl=ttl,
            include=tuple((file, options.read_bytes(file)) for file in include),
        )
        before = target.read_text("utf-8", "replace") if target and target.is_file() else ""
        last = zones.serial_of(before)
        number = next_serial(serial, time.time(), last)
        with output.progress("building the zone"):
            built = zones.build(table, number if last is None else last, settings, unread=unread)
    except (ValueError, ZoneError) as error:
        if isinstance(error, ZoneError) and error.filename:  # an included file
            output.fail(str(error), output.EXIT_UNREADABLE)
        raise click.UsageError(str(error)) from None
    for finding in built.left_out:
        output.inform(Painted("left out:", output.DOUBTFUL), f" {finding}")
    for naan in built.delegated:
        output.inform(f"delegated: {naan} is left to the included records")
    name = names.to_text(origin)
    alone = "" if ns else "; its name server is localhost, for this machine alone: --ns names others"
    unchanged = built.text == before and not serial.isdigit()
    if unchanged:
        output.inform(f"unchanged: {target} keeps serial {built.serial}{alone}")
    else:
        built = built.with_serial(number)
        with output.progress("checking the zone"):
            shown = "<stdout>" if target is None else str(target)
            found, new, _ = examine(built.text, origin=name, filename=shown)
        places = [built.place(each.file, each.line) for each in found]
        findings = [replace(each, file=file, line=line) for each, (file, line) in zip(found, places, strict=True)]
        new = without_errors(new, findings, "the new zone has errors; nothing was written")
        refuse_shrinkage(target, old, new, force=force)
        options.write(target, built.text)
        counts = f"{counted(built.counts['naans'], 'NAAN')}, {counted(built.counts['rules'], 'rule')}"
        output.inform(f"zone {name} serial {built.serial}: {counts}{alone}")
    if as_json:
        lists = {"left_out": [*map(str, built.left_out)], "delegated": list(built.delegated)}
        report = {"zone": name, "file": str(target), "serial": built.serial, **built.counts, **lists}
        output.json_data({**report, "written": not unchanged})
    misled = built.left_out.answered_by_others or (strict and built.left_out.records)
    sys.exit(output.EXIT_NONE if misled else output.EXIT_OK)


@zone.command(
    short_help="Check a zone as servers and clients would read it.",
    exits={0: "no errors (with --strict: no findings)", 1: "errors", 8: "FILE cannot be read"},
)
@click.argument("file", type=options.PATH)
@options.zone_name_option()
@options.JSON_OPTION
@click.option("--strict", is_flag=True, help="Also exit with 1 for warnings.")
def check(file: str, origin: str | None, as_json: bool, strict: bool) -> None:
    """Check a zone FILE (- for standard input) as a server would load it and as a Maptr client would read it.

    It finds what name servers' checkers do not: regexps that make BIND reject the zone, hosts without a final
    dot, unescaped ports, redirect loops, names that are not NAANs, replies too big for UDP. Signatures that have
    expired, or expire within two days, are a warning.

    \b
    Example:
      maptr zone check ark.arpa.zone
    """
    findings, view, _ = examine_zone(options.read_text(file), origin, file)
    if view is not None and (found := signature_state(view, now := time.time())).is_alarm:
        owner, text = names.to_text(view.origin), found.text(now)
        findings.append(Finding(Severity.WARNING, "signatures", owner, text, file=options.input_name(file)))
    document = {"file": file, "findings": [finding.to_dict() for finding in findings]}
    output.end_with(findings, options.input_name(file), document if as_json else None, strict=strict)


@zone.command(
    short_help="Show what changes from one zone to another.",
    exits={0: "no differences", 1: "differences", 8: "a file cannot be read or is not a zone"},
)
@click.argument("old", type=options.PATH)
@click.argument("new", type=options.PATH)
@options.zone_name_option(" in OLD")
@options.JSON_OPTION
def diff(old: str, new: str, origin: str | None, as_json: bool) -> None:
    """Show what changes from zone file OLD to zone file NEW, one line for each RRset.

    + is added, ~ changed, - removed. The order of records does not matter.

    \b
    Example:
      maptr zone diff ark.arpa.zone.1 ark.arpa.zone
    """
    if old == new == "-":
        raise click.UsageError("only one of OLD and NEW can be standard input")
    contents = options.read_bytes(old), options.read_bytes(new)
    name: Labels = options.NAME.convert(origin or soa_owner(contents[0].decode(*AS_TEXT)), None, None)
    try:
        with output.progress("reading the zones"):
            paths = (Path(options.input_name(file)) for file in (old, new))
            views = [read_zone(data, fold(name), path).view for data, path in zip(contents, paths, strict=True)]
    except ZoneError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    found = ZoneDiff.between(*views)
    if as_json:
        serials = {"old": views[0].serial, "new": views[1].serial}
        output.json_data({"zone": names.to_text(name), "serial": serials, **found.to_dict()})
    else:
        for change in found.changes:
            output.data(*output.of_change(change.to_text()))
    sys.exit(output.EXIT_NONE if found else output.EXIT_OK)


# ---- shared with ``zone sign``


def examine_zone(text: str, origin: str | None, file: str) -> Examined:
    """Return the findings of ``zone.check`` for the text of a zone file and the files that it includes."""
    with output.progress("checking the zone"):
        return examine(text, origin=origin, filename=options.input_name(file))


def without_errors(view: ZoneView | None, findings: list[Finding], message: str) -> ZoneView:
    """Return the zone if it has no errors; otherwise end the command."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    for finding in errors:
        output.inform(*output.of_finding(finding))
    if errors or view is None:
        output.fail(message, output.EXIT_NONE)
    return view


def existing_zone(target: Path | None, origin: Labels, *, overwrite: bool) -> ZoneView | None:
    """Read the zone in the file to be replaced, or return None. Raises UsageError unless it is a zone of this name."""
    if target is not None and target.is_file():
        with suppress(ZoneError, OSError):
            return read_master_file(str(target), read_whole(target), fold(origin))
    options.refuse_foreign(target, overwrite=overwrite)
    return None


def refuse_shrinkage(target: Path | None, old: ZoneView | None, new: ZoneView, *, force: bool) -> None:
    """End the command if the new zone lacks too many names of the old one."""
    if old is None or force:
        return
    try:
        check_shrinkage(ZoneDiff.between(old, new))
    except ZoneError as error:
        output.fail(f"{target} is not replaced: {error.reason} (--force overrides)", output.EXIT_NONE)
