"""``maptr zone sign``: sign a zone with the keys in a folder. The folder is looked after in ``keys.py``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr.cli import output
from maptr.cli.completion import files, folders
from maptr.duration import read_duration
from maptr.errors import SigningError, ZoneError
from maptr.finding import Severity

if TYPE_CHECKING:
    import dns.zone

    from maptr.dnssec import Policy
    from maptr.zonekeys import Key


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else read_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@contextmanager
def told() -> Iterator[None]:
    """Errors of files and keys as one line and an exit code."""
    try:
        yield
    except (SigningError, ZoneError) as error:
        output.fail(str(error), output.EXIT_NONE)
    except OSError as error:
        output.fail(f"{error.filename}: {error.strerror}", output.EXIT_UNREADABLE)


@click.command()
@click.argument("file", metavar="FILE", shell_complete=files)
@click.argument("keys", metavar="KEYS", shell_complete=folders, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "target", metavar="OUT", shell_complete=files, help="Write OUT, whole or not at all; else stdout."
)
@click.option("--origin", metavar="NAME", help="The zone's name.  [default: the owner of its SOA]")
@click.option("--lifetime", type=_Duration(), default="14d", show_default=True, help="How long signatures last.")
@click.option("--inception", type=_Duration(), default="1h", show_default=True, help="How long ago they begin.")
@click.option(
    "--refresh", type=_Duration(), default="7d", show_default=True, help="How long before their end OUT is signed anew."
)
@click.option("--zonemd/--no-zonemd", default=True, show_default=True, help="A digest of the whole zone (RFC 8976).")
@click.option(
    "--cds",
    type=click.Choice(["publish", "none", "delete"]),
    default="publish",
    show_default=True,
    help="What CDS and CDNSKEY tell the parent: the active keys, nothing, or to remove the DS.",
)
@click.option("--dnskey-ttl", type=_Duration(), help="Of DNSKEY, CDS and CDNSKEY.  [default: that of the SOA]")
@click.option(
    "--force", is_flag=True, help="Make every signature anew, even where OUT is good for longer than --refresh."
)
@click.option(
    "--at",
    type=click.IntRange(0, 2**32 - 1),
    metavar="SECONDS",
    help="Sign as at this Unix time: the same input gives the same OUT.",
)
def sign(
    file: str,
    keys: Path,
    target: str | None,
    origin: str | None,
    lifetime: int,
    inception: int,
    refresh: int,
    zonemd: bool,
    cds: str,
    dnskey_ttl: int | None,
    force: bool,
    at: int | None,
) -> None:
    """Sign the zone in FILE with the keys in the folder KEYS, with NSEC.

    Run it after each change, and once a day besides: where OUT has the same records, signed by the same keys, its
    signatures last longer than --refresh, and FILE's serial is not beyond its own, nothing is written. The serial is
    that of FILE; where this is not greater than that of OUT, it is the one after OUT's, so that secondaries follow.
    Signatures in OUT that are new enough are kept. FILE may be OUT. DNSKEY, CDS, CDNSKEY and whatever else signing
    makes are taken from KEYS alone, not from FILE.

    \b
    Exit codes:
      0  signed, or OUT is good
      1  FILE has errors, or the keys make no chain, are open to others, or the
         package to sign with is missing
      2  bad usage
      8  FILE or KEYS cannot be read, or OUT cannot be written
    """
    from maptr import dnssec, keyfolder, zonetext
    from maptr.resign import renew

    now = int(time.time()) if at is None else at
    with told():
        policy = dnssec.Policy(lifetime, inception, refresh, zonemd, dnssec.Children(cds), dnskey_ttl)
        files = keyfolder.read_keys(keys)
        zone = _read_zone(file, origin)
        old = _read_old(target, zone)
        signers = [found.key for found in files]
        signed = renew(zone, old, signers, now=now, policy=policy, force=force)
    if signed is old:
        _tell_unchanged(old, target, now, policy)
        return
    text = zonetext.to_text(signed)
    if target is None:
        click.echo(text, nl=False)
    else:
        try:
            output.write_atomically(Path(target), text)
        except OSError as error:
            output.fail(f"{target}: {error.strerror}", output.EXIT_UNREADABLE)
    _tell_signed(signed, signers, now, policy)


def _read_zone(file: str, origin: str | None) -> dns.zone.Zone:
    """The zone, free of what zone check calls an error; else the program ends."""
    import dns.zone

    from maptr.masterfile import soa_owner
    from maptr.zonecheck import check_zone

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        output.fail(f"{file}: not UTF-8: {error}", output.EXIT_UNREADABLE)
    origin = origin or soa_owner(text)
    findings = [f for f in check_zone(text, origin=origin, filename=file) if f.severity is Severity.ERROR]
    for finding in findings:
        output.talk(f"{file}: {finding}")
    if findings:
        output.fail(f"{file} is not signed: it has errors", output.EXIT_NONE)
    return dns.zone.from_text(text, origin=origin, relativize=False)


def _read_old(target: str | None, zone: dns.zone.Zone) -> dns.zone.Zone | None:
    """What was signed before; None where there is nothing, or nothing that is a zone of this name."""
    import dns.exception
    import dns.zone

    if target is None or not Path(target).exists():
        return None
    try:
        return dns.zone.from_file(target, origin=zone.origin, relativize=False)
    except (dns.exception.DNSException, KeyError, ValueError) as error:
        output.talk(f"{target} is no zone and is replaced, its serial not known: {error}")
        return None


def _tell_unchanged(old: dns.zone.Zone, target: str | None, now: int, policy: Policy) -> None:
    from maptr.resign import due
    from maptr.snapshot import view_zone

    view = view_zone(old)
    when = due(view, policy, now)
    until = _date(when + policy.refresh)
    output.talk(f"unchanged: {target} keeps serial {view.serial}, is good until {until}, due {_date(when)}")


def _tell_signed(signed: dns.zone.Zone, keys: list[Key], now: int, policy: Policy) -> None:
    from maptr import zonekeys
    from maptr.resign import due
    from maptr.snapshot import view_zone

    until = due(view_zone(signed), policy, now) + policy.refresh
    names = [key for key in zonekeys.zone_signers(keys) if key not in zonekeys.dnskey_signers(keys)]
    shown = ", ".join(map(str, [*zonekeys.dnskey_signers(keys), *names]))
    serial = signed.get_soa().serial
    output.talk(f"zone {signed.origin} serial {serial} signed until {_date(until)} by {shown}")
    longest = max(rdataset.ttl for _, rdataset in signed.iterate_rdatasets())
    output.talk(f"in a rollover, the next step is for {longest} s after the last server has this serial (longest TTL)")


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
