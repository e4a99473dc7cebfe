"""``maptr zone sign`` and ``maptr zone keys``: signing a zone with the keys in a folder, and managing these keys."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from maptr.cli import options, output
from maptr.cli.group import Group, command
from maptr.cli.zone import examine_zone, existing_zone, refuse_shrinkage, without_errors
from maptr.dnssec import keys as zonekeys
from maptr.dnssec.policy import Children, SigningPolicy
from maptr.dnssec.sign import Renewal, due
from maptr.errors import ZoneError, time_text
from maptr.protocol import names
from maptr.protocol.numbers import DNSKEY, DS
from maptr.resolver.servers import Server, find_servers
from maptr.zone import text as zonetext
from maptr.zone.diff import ZoneDiff
from maptr.zone.zonemd import check_digest

if TYPE_CHECKING:
    import dns.rrset

    from maptr.dnssec.keys import KeyFile, KeyState, ZoneKey
    from maptr.protocol.names import Labels
    from maptr.zone.check import Examined
    from maptr.zone.snapshot import ZoneView


PARENT_SECONDS = 10.0  # for a server of the parent zone to answer


@command(
    exits={
        0: "signed, or OUT is still valid",
        1: "FILE has errors or lost more than 30 % of the names in OUT, or the keys make no chain of trust or other "
        "users can read them",
        2: "bad usage, or the package for signing is not installed",
        8: "FILE or KEYS cannot be read, or OUT cannot be written",
    }
)
@click.argument("file", type=options.PATH)
@click.argument("keys", type=options.FOLDER)
@options.output_option("Write the zone to OUT, atomically.  [default: standard output]", "OUT")
@click.option("--overwrite", is_flag=True, help="Replace OUT even if it is not a zone of this name.")
@options.zone_name_option()
@options.time_option("--lifetime", "14d", help="Make signatures valid for this time.")
@options.time_option("--inception", "1h", help="Make signatures valid from this long ago.")
@options.time_option("--refresh", "7d", help="Renew signatures this long before they expire.")
@click.option("--zonemd/--no-zonemd", default=True, help="Add a digest of the whole zone (RFC 8976), or leave it out.")
@click.option(
    "--cds",
    type=click.Choice(["publish", "none", "delete"]),
    default="publish",
    help="Publish CDS and CDNSKEY for the parent: those of the active keys, none, or those that delete the DS.",
)
@options.time_option("--dnskey-ttl", help="Give DNSKEY, CDS and CDNSKEY this TTL.  [default: the SOA's]")
@click.option(
    "--force",
    is_flag=True,
    help="Renew every signature, and replace OUT even if more than 30 % of its names would be removed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON document; needs -o.")
@click.option(
    "--at",
    type=click.IntRange(0, 2**32 - 1),
    metavar="SECONDS",
    help="Sign as if it were this Unix time, so that the same input gives the same OUT.  [default: now]",
)
def sign(
    file: str,
    keys: Path,
    target: Path | None,
    overwrite: bool,
    origin: str | None,
    cds: str,
    force: bool,
    as_json: bool,
    at: int | None,
    **given: Any,
) -> None:
    """Sign the zone in FILE with the keys in the folder KEYS, with NSEC.

    Run it after each change and once a day. Nothing is written if OUT has the same records signed by the same keys,
    its signatures are valid for longer than --refresh, and the serial of FILE is not greater. Otherwise signatures in
    OUT that are new enough are kept. The new serial is FILE's, or the one after OUT's if this is greater, so that
    secondaries follow.

    FILE cannot be OUT. DNSKEY, CDS, CDNSKEY and the other records that signing makes come from KEYS, not from FILE.

    \b
    Example:
      maptr zone sign ark.arpa.zone keys -o ark.arpa.signed
    """
    zonekeys.require_cryptography()
    if as_json and target is None:
        raise click.UsageError("--json needs -o OUT: standard output has the zone")
    options.refuse_input(target, [file, *keys.glob("*.pem")])
    now = int(time.time()) if at is None else at
    policy = SigningPolicy(cds=Children(cds), **given)
    signers = zonekeys.read_key_set(keys)
    examined = examine_zone(options.read_text(file), origin, file)
    zone = _content(examined, f"{file} was not signed: it has errors")
    options.refuse_input(target, examined.included)
    with output.progress("reading the signed zone"):
        old = existing_zone(target, zone.origin, overwrite=overwrite)
        renewal = Renewal(signers, policy, now, force=force or not _verifies(old, target))
    with output.progress("signing the names") as update:
        signed = renewal.renew(zone, old, lambda done, total: update(completed=done, total=total))
    when = due(signed, policy, now)
    until = time_text(when + policy.refresh)
    used = list(map(str, dict.fromkeys([*signers.dnskey_signers, *signers.zone_signers])))
    longest, name = signed.longest_ttl(), names.to_text(signed.soa.owner)
    if signed is old:
        output.inform(f"unchanged: {target} keeps serial {signed.serial}, is good until {until}, due {time_text(when)}")
    else:
        refuse_shrinkage(target, old, signed, force=force)
        text = zonetext.to_text(signed)
        # What was written must be what was signed, and pass the check: a secondary must not be the first to notice.
        back = examine_zone(text, name, str(target or "the signed zone"))
        read = _content(back, f"{file} was not signed: the signed zone has errors")
        if ZoneDiff.between(signed, read).names:
            output.fail(f"{file} was not signed: the signed zone is not read as it was written", output.EXIT_NONE)
        options.write(target, text)
        output.inform(f"zone {name} serial {signed.serial} signed until {until} by {', '.join(used)}")
        output.inform(
            f"in a rollover, take the next step {longest} s (the longest TTL) after all servers have this serial"
        )
    if as_json:
        report = {"zone": name, "serial": signed.serial, "signed_until": until, "keys": used, "longest_ttl": longest}
        output.json_data({**report, "file": str(target), "written": signed is not old})


def _verifies(old: ZoneView | None, target: Path | None) -> bool:
    """Return whether the ZONEMD of the old zone verifies, so that its signatures can be kept."""
    try:
        if old is not None:
            check_digest(old)
    except ZoneError as error:
        output.inform(f"{target}: {error}; no signature in it is kept")
        return False
    return True


def _content(examined: Examined, message: str) -> ZoneView:
    """Return a zone without errors, or end the command. BIND and dig write a port unescaped, which OUT never has."""
    return without_errors(examined.view, [each for each in examined.findings if each.code != "unescaped-port"], message)


# ---- keys


@click.group(cls=Group)
def keys() -> None:
    """Manage the keys of a zone, which are the files in its key folder.

    In a rollover, you add a key, change the states of keys from published to active to retired, and remove the old
    key; you sign the zone after each step. docs/admin.md has the steps and how long to wait between them.
    """


_BAD = "other users can read KEYS, or a key in it is bad"  # an exit code
_FOLDER = click.argument("folder", metavar="KEYS", type=options.FOLDER)
_TAG = click.argument("tag", type=click.IntRange(0, 65535))
_TTL = click.option(
    "--ttl",
    type=click.IntRange(0, 0x7FFFFFFF),
    metavar="SECONDS",
    help="The longest TTL of the zone, or the DS's TTL: caches may have old data for that long.  [default: a day]",
)
_ZONE = click.option(
    "--zone", "zone", metavar="FILE", type=options.PATH, help="Use the longest TTL of this zone: the signed one."
)
_PARENTS = click.argument("servers", nargs=-1, metavar="[@SERVER[#PORT]]...")
_FORCE = click.option("--force", is_flag=True, help="Change it now, even if caches need its old state.")
_STATES = click.Choice(["published", "active", "retired"])


@keys.command(short_help="Create a key.", exits={0: "created", 1: _BAD, 8: "KEYS cannot be read or written"})
@_FOLDER
@click.option(
    "--role",
    type=click.Choice(["csk", "ksk", "zsk"]),
    default="csk",
    help="Let the key sign everything (csk), the DNSKEY RRset (ksk), or the rest (zsk).",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ecdsap256sha256", "ed25519"]),
    default="ecdsap256sha256",
    help="Sign with this algorithm.",
)
@click.option(
    "--state",
    type=_STATES,
    help="Put the key in this state.  [default: active for the first key of its role and "
    "the first ZSK of its algorithm, else published]",
)
def add(folder: Path, role: str, algorithm: str, state: str | None) -> None:
    """Create a key in the folder KEYS, which may be missing or empty.

    Only their owner can read the folder and its files. Each run creates one more key: a second one begins a rollover.

    \b
    Example:
      maptr zone keys add keys
    """
    wanted = zonekeys.KeyState(state) if state else None
    _show(zonekeys.add_key(folder, zonekeys.Role(role), zonekeys.Algorithm(algorithm), wanted))


@keys.command("list", short_help="List the keys.", exits={0: "listed", 1: _BAD, 8: "KEYS cannot be read"})
@_FOLDER
@_ZONE
@_TTL
@options.JSON_OPTION
def list_keys(folder: Path, zone: str | None, ttl: int | None, as_json: bool) -> None:
    """List the keys in KEYS: tag, role, algorithm, state and file; and on stderr the next step of a rollover.

    A published key becomes active, then the old one is retired, then it is removed, each not before the time shown.

    \b
    Example:
      maptr zone keys list keys
    """
    files = zonekeys.read_keys(folder)
    waits = _Waits.of(zone, ttl)
    found = list(zip(files, zonekeys.key_steps(files, waits.ttl, waits.ds_ttl), strict=True))
    if as_json:
        output.json_data({"keys": [{**asdict(step), "file": str(file.path)} for file, step in found]})
    else:
        for file, step in found:
            _show(file)
            if step.advice:
                output.inform(f"{step.tag:05d} {step.advice}")


@keys.command(
    "set",
    short_help="Change the state of a key.",
    exits={
        0: "changed",
        1: f"it is too early, a SERVER lacks a DS, there is no such key, {_BAD}",
        8: "KEYS cannot be read or written",
        9: "a SERVER did not answer",
    },
)
@_FOLDER
@_TAG
@click.argument("state", type=_STATES)
@_PARENTS
@_ZONE
@_TTL
@_FORCE
def set_state(
    folder: Path, tag: int, state: str, servers: tuple[str, ...], zone: str | None, ttl: int | None, force: bool
) -> None:
    """Change the state of the key TAG, which renames its file.

    A published key becomes active only when every cache can have it, and a key is retired only while another one is
    active; otherwise, the command says when, and changes nothing. @SERVER is a server of the parent zone: a KSK or CSK
    is retired only if each SERVER has the DS of the others. It needs --zone.

    \b
    Example:
      maptr zone keys set keys 12345 retired --zone ark.example.signed @192.0.2.53
    """
    wanted = zonekeys.KeyState(state)
    if not force:
        _check_step(folder, tag, wanted, servers, zone, ttl)
    _show(zonekeys.set_state(folder, tag, wanted))


@keys.command(
    short_help="Delete a key.",
    exits={
        0: "removed",
        1: f"it is too early, a SERVER has its DS, the key is active, or there is none, {_BAD}",
        8: "KEYS cannot be used",
        9: "a SERVER did not answer",
    },
)
@_FOLDER
@_TAG
@_PARENTS
@_ZONE
@_TTL
@_FORCE
def remove(folder: Path, tag: int, servers: tuple[str, ...], zone: str | None, ttl: int | None, force: bool) -> None:
    """Delete the key TAG, which must not be active, unless it is a ZSK whose algorithm no longer has a KSK or CSK.

    A retired key is removed only when no cache needs it; otherwise, the command says when, and changes nothing.
    @SERVER is a server of the parent zone: a KSK or CSK is removed only if each SERVER has the DS of the active ones
    and none of this key, and caches can have forgotten it. It needs --zone.

    \b
    Example:
      maptr zone keys remove keys 12345 --zone ark.example.signed @192.0.2.53
    """
    if not force:
        _check_step(folder, tag, None, servers, zone, ttl)
    output.inform(f"removed {zonekeys.remove_key(folder, tag).path}")


@keys.command(
    short_help="Print the DS records of a zone, and compare the parent's.",
    exits={
        0: "printed, and each SERVER has these DS",
        1: f"a SERVER lacks a DS or has another one, no active KSK or CSK, {_BAD}",
        8: "KEYS cannot be read",
        9: "a SERVER did not answer",
    },
)
@_FOLDER
@click.argument("name", metavar="ORIGIN", type=options.NAME)
@_PARENTS
@click.option("--dnskey", is_flag=True, help="Print DNSKEY records, which some parents and validators need instead.")
def ds(folder: Path, name: Labels, servers: tuple[str, ...], dnskey: bool) -> None:
    """Print the DS records of the zone ORIGIN, for its parent zone.

    There is one for each active KSK or CSK, with SHA-256. @SERVER is a server of the parent zone, which is asked
    whether it has a DS for each of these keys and no other: name all such servers before the next step of a rollover.

    \b
    Example:
      maptr zone keys ds keys ark.example
    """
    parents = _parents(servers)
    entries = [file.key for file in zonekeys.read_keys(folder) if file.key.is_entry]
    if not entries:
        output.fail(f"{folder}: no active KSK or CSK", output.EXIT_NONE)
    for key in entries:
        kind, rdtype, rdata = ("DNSKEY", DNSKEY, key.rdata) if dnskey else ("DS", DS, zonekeys.ds_rdata(name, key))
        output.data(f"{names.to_text(name)} IN {kind} {zonetext.rdata_text(rdtype, rdata)}")
    if faults := [fault for server in parents for fault in _ds_faults(name, entries, server)]:
        output.fail("\n".join(faults), output.EXIT_NONE)


def _parents(words: tuple[str, ...]) -> list[Server]:
    given = options.plain_servers(words, "maptr zone keys asks servers")
    return [server for text in given for server in find_servers(text)]


def _ds_faults(origin: Labels, keys: Sequence[ZoneKey], server: Server) -> Iterator[str]:
    """Yield what is wrong with the DS records of a parent zone's server, which must be those of ``keys`` alone."""
    found = _ds_at(origin, server)
    yield from _lacking(origin, keys, server, found)
    for ds in found or ():
        if not any(zonekeys.is_ds_of(key, origin, ds) for key in keys):
            yield f"{server} has a DS of key {ds.key_tag:05d}, which is not an active one"


def _lacking(origin: Labels, keys: Sequence[ZoneKey], server: Server, found: dns.rrset.RRset | None) -> Iterator[str]:
    for key in keys:
        if not any(zonekeys.is_ds_of(key, origin, ds) for ds in found or ()):
            yield f"{server} has no DS of {key}"


def _ds_at(origin: Labels, server: Server) -> dns.rrset.RRset | None:
    """Return the DS records that a server of the parent zone has. Exits if it does not answer."""
    import dns.query  # late: it takes 100 ms, and only this needs it

    name = dns.name.Name((*origin, b""))
    query = dns.message.make_query(name, "DS", flags=0)
    try:
        reply, _ = dns.query.udp_with_fallback(query, server.address, PARENT_SECONDS, server.port)
    except (OSError, dns.exception.DNSException) as error:
        output.fail(f"{server}: {error}", output.EXIT_NO_ANSWER)
    if reply.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        output.fail(f"{server}: {dns.rcode.to_text(reply.rcode())}", output.EXIT_NO_ANSWER)
    return reply.get_rrset(reply.answer, name, dns.rdataclass.IN, dns.rdatatype.DS)


class _Waits(NamedTuple):
    """How long caches may have old data of a zone, in seconds, and the zone if it is known."""

    ttl: int
    ds_ttl: int | None = None  # None: as ``ttl``
    origin: Labels = ()

    @classmethod
    def of(cls, zone: str | None, ttl: int | None) -> _Waits:
        if zone is None:
            return cls(zonekeys.MAX_TTL_OF_ZONE if ttl is None else ttl)
        if ttl is not None:
            raise click.UsageError("--zone and --ttl exclude each other")
        examined = examine_zone(options.read_text(zone), None, zone)
        view = _content(examined, f"the TTLs of {zone} are not known: it has errors")
        return cls(view.longest_ttl(), zonekeys.MAX_TTL_OF_ZONE, view.origin)


def _check_step(
    folder: Path, tag: int, state: KeyState | None, servers: tuple[str, ...], zone: str | None, ttl: int | None
) -> None:
    """Exit if a step of a rollover is too early, or the parent is not ready for it. ``state`` None is the removal."""
    if servers and zone is None:
        raise click.UsageError("@SERVER needs --zone, whose DS it is asked for")
    waits = _Waits.of(zone, ttl)
    asked = {server: _ds_at(waits.origin, server) for server in _parents(servers)}
    if ttls := [found.ttl for found in asked.values() if found]:
        waits = waits._replace(ds_ttl=max(ttls))
    key, others = zonekeys.check_change(folder, tag, state, time.time(), waits.ttl, waits.ds_ttl)
    if key.role is zonekeys.Role.ZSK or state not in (None, zonekeys.KeyState.RETIRED):
        return
    faults: list[str] = []
    for server, found in asked.items():
        faults += _lacking(waits.origin, [each for each in others if each.is_entry], server, found)
        if state is None and any(zonekeys.is_ds_of(key, waits.origin, ds) for ds in found or ()):
            faults.append(f"{server} still has the DS of {key}")
    if faults:
        output.fail("\n".join(faults), output.EXIT_NONE)


def _show(file: KeyFile) -> None:
    output.data(f"{file.key.tag:05d} {file.key.role} {file.key.algorithm} {file.key.state} {file.path}")
