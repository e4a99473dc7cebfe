"""``maptr zone sign``: sign a zone with the keys in a folder. The folder is looked after in ``keys.py``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr.cli import output
from maptr.cli.completion import files, folders
from maptr.cli.duration import Duration
from maptr.cli.source import examined, read_text
from maptr.cli.target import output_option, overwrite_option, refuse_input, write
from maptr.cli.zonetarget import existing_zone, guard
from maptr.errors import MissingExtra, SigningError, ZoneError, reason_of
from maptr.zone.finding import Severity

if TYPE_CHECKING:
    from maptr.dnssec.keys import KeySet
    from maptr.dnssec.policy import Policy
    from maptr.zone.plainzone import Plain
    from maptr.zone.snapshot import ZoneView


@contextmanager
def told() -> Iterator[None]:
    """Errors of files and keys as one line and an exit code."""
    try:
        yield
    except MissingExtra:
        raise  # the same for every command
    except (SigningError, ZoneError) as error:
        output.fail(str(error), output.EXIT_NONE)
    except OSError as error:
        output.fail(reason_of(error), output.EXIT_UNREADABLE)


@click.command()
@click.argument("file", metavar="FILE", shell_complete=files)
@click.argument("keys", metavar="KEYS", shell_complete=folders, type=click.Path(path_type=Path))
@output_option("Write OUT, whole or not at all; else stdout.", "OUT")
@overwrite_option("Replace OUT even if it is not a zone of this name.")
@click.option("--origin", metavar="NAME", help="The zone's name.  [default: the owner of its SOA]")
@click.option("--lifetime", type=Duration(), default="14d", show_default=True, help="How long signatures last.")
@click.option("--inception", type=Duration(), default="1h", show_default=True, help="How long ago they begin.")
@click.option(
    "--refresh", type=Duration(), default="7d", show_default=True, help="How long before their end OUT is signed anew."
)
@click.option("--zonemd/--no-zonemd", default=True, show_default=True, help="A digest of the whole zone (RFC 8976).")
@click.option(
    "--cds",
    type=click.Choice(["publish", "none", "delete"]),
    default="publish",
    show_default=True,
    help="What CDS and CDNSKEY tell the parent: the active keys, nothing, or to remove the DS.",
)
@click.option("--dnskey-ttl", type=Duration(), help="Of DNSKEY, CDS and CDNSKEY.  [default: that of the SOA]")
@click.option(
    "--force",
    is_flag=True,
    help="Make every signature anew, even where OUT is good for longer than --refresh; and even if more than 30 % of "
    "the names of OUT go.",
)
@click.option("--json", "as_json", is_flag=True, help="What was done as one JSON document; needs -o.")
@click.option(
    "--at",
    type=click.IntRange(0, 2**32 - 1),
    metavar="SECONDS",
    help="Sign as at this Unix time: the same input gives the same OUT.",
)
def sign(
    file: str,
    keys: Path,
    target: Path | None,
    overwrite: bool,
    origin: str | None,
    lifetime: int,
    inception: int,
    refresh: int,
    zonemd: bool,
    cds: str,
    dnskey_ttl: int | None,
    force: bool,
    as_json: bool,
    at: int | None,
) -> None:
    """Sign the zone in FILE with the keys in the folder KEYS, with NSEC.

    Run it after each change, and once a day besides: where OUT has the same records, signed by the same keys, its
    signatures last longer than --refresh, and FILE's serial is not beyond its own, nothing is written. The serial is
    that of FILE; where this is not greater than that of OUT, it is the one after OUT's, so that secondaries follow.
    Signatures in OUT that are new enough are kept. FILE cannot be OUT. DNSKEY, CDS, CDNSKEY and whatever else signing
    makes are taken from KEYS alone, not from FILE.

    \b
    Exit codes:
      0  signed, or OUT is good
      1  FILE has errors, or lost more than 30 % of OUT's names; or the keys make
         no chain or are open to others
      2  bad usage, or the package to sign with is not installed
      8  FILE or KEYS cannot be read, or OUT cannot be written
    """
    from maptr.dnssec import keyfolder

    with told():
        keyfolder.require_cryptography()
    from maptr.dnssec.policy import Children, Policy
    from maptr.dnssec.resign import Renewal
    from maptr.server.zones import uncollected
    from maptr.zone import text as zonetext

    if as_json and target is None:
        raise click.UsageError("--json needs -o OUT: standard output has the zone")
    refuse_input(target, [file, *keys.glob("*.pem")])
    now = int(time.time()) if at is None else at
    with told(), uncollected():
        policy = Policy(lifetime, inception, refresh, zonemd, Children(cds), dnskey_ttl)
        signers = keyfolder.read_key_set(keys)
        zone, included = _read_zone(file, origin)
        refuse_input(target, included)
        old = existing_zone(target, zone.origin, overwrite=overwrite)
        holds = _holds(old, target)
        renewal = Renewal(signers, policy, now, force=force or not holds)
        with _progress(target) as progress:
            signed = renewal.renew(zone, old, progress)
    if signed is old:
        _tell_unchanged(signed, target, now, policy)
    else:
        guard(target, old, signed, force=force)
        write(target, zonetext.to_text(signed))
        _tell_signed(signed, signers, now, policy)
    if as_json:
        output.json_data({**_report(signed, signers, now, policy), "file": str(target), "written": signed is not old})


@contextmanager
def _progress(target: Path | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where there can be one; otherwise nothing."""
    if not output.shows_progress(target):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("names signed", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _read_zone(file: str, origin: str | None) -> tuple[ZoneView, list[Path]]:
    """The zone in a file, free of what zone check calls an error, and the files it includes; else the program ends."""
    from maptr.zone.check import is_clean
    from maptr.zone.masterfile import soa_owner

    text = read_text(file)
    origin = origin or soa_owner(text)
    plain = _read_plain(text.encode(), origin)
    if plain is not None and is_clean(plain):
        return plain.view, []
    findings, view, included = examined(text, origin, file)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    for finding in errors:
        output.talk(str(finding))
    if errors or view is None:
        output.fail(f"{file} is not signed: it has errors", output.EXIT_NONE)
    return view, [path for path, _ in included]


def _read_plain(octets: bytes, origin: str) -> Plain | None:
    from maptr.protocol import names
    from maptr.server.zones import read_plain

    try:
        return read_plain(octets, names.fold(names.parse(origin)))
    except ValueError:
        return None  # whoever reads it in full says why


def _holds(old: ZoneView | None, target: Path | None) -> bool:
    """Whether what was signed before is as it was then."""
    from maptr.zone.integrity import check_digest

    try:
        if old is not None:
            check_digest(old)
    except ZoneError as error:
        output.talk(f"{target}: {error}; no signature in it is kept")
        return False
    return True


def _report(signed: ZoneView, keys: KeySet, now: int, policy: Policy) -> dict[str, object]:
    """For programs: what ``_tell_signed`` says."""
    from maptr.dnssec.resign import due
    from maptr.protocol import names
    from maptr.zone.packed import longest_ttl

    return {
        "zone": names.to_text(signed.soa.owner),
        "serial": signed.serial,
        "signed_until": _date(due(signed, policy, now) + policy.refresh),
        "keys": list(map(str, dict.fromkeys([*keys.dnskey_signers, *keys.zone_signers]))),
        "longest_ttl": longest_ttl(signed),
    }


def _tell_unchanged(view: ZoneView, target: Path | None, now: int, policy: Policy) -> None:
    from maptr.dnssec.resign import due

    when = due(view, policy, now)
    until = _date(when + policy.refresh)
    output.talk(f"unchanged: {target} keeps serial {view.serial}, is good until {until}, due {_date(when)}")


def _tell_signed(signed: ZoneView, keys: KeySet, now: int, policy: Policy) -> None:
    from maptr.dnssec.resign import due
    from maptr.protocol import names
    from maptr.zone.packed import longest_ttl

    until = due(signed, policy, now) + policy.refresh
    shown = ", ".join(map(str, dict.fromkeys([*keys.dnskey_signers, *keys.zone_signers])))
    origin = names.to_text(signed.soa.owner)
    output.talk(f"zone {origin} serial {signed.serial} signed until {_date(until)} by {shown}")
    longest = longest_ttl(signed)
    output.talk(f"in a rollover, the next step is for {longest} s after the last server has this serial (longest TTL)")


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
