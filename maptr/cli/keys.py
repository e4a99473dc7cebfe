"""``maptr zone keys``: look after the keys that ``maptr zone sign`` signs with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr.cli import output
from maptr.cli.completion import folders
from maptr.cli.group import Group
from maptr.cli.sign import told

if TYPE_CHECKING:
    from maptr.dnssec.keyfolder import KeyFile


@click.group(cls=Group)
def keys() -> None:
    """Look after the keys of a zone: the files in its key folder.

    A rollover is adding a key, signing, waiting, giving keys another state, signing, waiting, removing: published,
    active, retired, gone. docs/dnssec.md has the steps.
    """


_FOLDER = click.argument("folder", metavar="KEYS", shell_complete=folders, type=click.Path(path_type=Path))
_TAG = click.argument("tag", metavar="TAG", type=click.IntRange(0, 65535))
_STATES = click.Choice(["published", "active", "retired"])


@keys.command()
@_FOLDER
@click.option(
    "--role",
    type=click.Choice(["csk", "ksk", "zsk"]),
    default="csk",
    show_default=True,
    help="csk signs all; ksk the DNSKEY RRset, zsk the rest.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ecdsap256sha256", "ed25519"]),
    default="ecdsap256sha256",
    show_default=True,
    help="Of the signatures.",
)
@click.option("--state", type=_STATES, help="Default: active for the first key of its role, else published.")
def add(folder: Path, role: str, algorithm: str, state: str | None) -> None:
    """Make a key in KEYS, and KEYS where it is not.

    Nobody but their owner can read the folder and the files in it.

    \b
    Exit codes:
      0  made
      1  KEYS is open to others, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read or written
    """
    from maptr.dnssec import keyfolder
    from maptr.dnssec import keys as zonekeys

    with told():
        wanted = zonekeys.Role(role)
        present = [file.key for file in keyfolder.read_keys(folder)] if folder.exists() else []
        first = not any(key.role is wanted and key.state is zonekeys.State.ACTIVE for key in present)
        chosen = zonekeys.State(state) if state else zonekeys.State.ACTIVE if first else zonekeys.State.PUBLISHED
        _tell(keyfolder.add_key(folder, wanted, zonekeys.Algorithm(algorithm), chosen))


@keys.command("list")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_keys(folder: Path, as_json: bool) -> None:
    """List the keys in KEYS: tag, role, algorithm, state and file.

    \b
    Exit codes:
      0  listed
      1  KEYS is open to others, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read
    """
    from maptr.dnssec import keyfolder

    with told():
        files = keyfolder.read_keys(folder)
    if as_json:
        output.json_data({"keys": [_as_dict(file) for file in files]})
        return
    for file in files:
        _tell(file)


@keys.command("set")
@_FOLDER
@_TAG
@click.argument("state", type=_STATES)
def set_state(folder: Path, tag: int, state: str) -> None:
    """Give the key TAG another state: its file gets another name.

    \b
    Exit codes:
      0  done
      1  there is no such key, KEYS is open to others, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read or written
    """
    from maptr.dnssec import keyfolder
    from maptr.dnssec import keys as zonekeys

    with told():
        _tell(keyfolder.set_state(folder, tag, zonekeys.State(state)))


@keys.command()
@_FOLDER
@_TAG
def remove(folder: Path, tag: int) -> None:
    """Delete the key TAG, which must not be active.

    \b
    Exit codes:
      0  done
      1  the key is active or not there, KEYS is open to others, or a key in
         it is bad
      2  bad usage
      8  KEYS cannot be read or written
    """
    from maptr.dnssec import keyfolder

    with told():
        output.talk(f"removed {keyfolder.remove_key(folder, tag).path}")


@keys.command()
@_FOLDER
@click.argument("origin")
@click.option("--dnskey", is_flag=True, help="DNSKEY records, which some parents and validators want instead.")
def ds(folder: Path, origin: str, dnskey: bool) -> None:
    """Print the DS records of the zone ORIGIN.

    The parent zone needs them: one for each active KSK or CSK, with SHA-256.

    \b
    Exit codes:
      0  printed
      1  no active KSK or CSK, KEYS is open to others, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read
    """
    from maptr.dnssec import keyfolder
    from maptr.dnssec import keys as zonekeys
    from maptr.protocol import names
    from maptr.protocol.numbers import DNSKEY, DS
    from maptr.zone import text

    with told():
        entries = [file.key for file in keyfolder.read_keys(folder) if file.key.is_entry]
        if not entries:
            output.fail(f"{folder}: no active KSK or CSK", output.EXIT_NONE)
        try:
            name = names.parse(origin)
        except ValueError as error:
            raise click.UsageError(f"{origin!r} is no domain name: {error}") from None
    for key in entries:
        rdtype, rdata = (DNSKEY, key.rdata) if dnskey else (DS, zonekeys.ds_rdata(name, key))
        shown = text.rdata_text(rdtype, rdata)
        output.data(f"{names.to_text(name)} IN {'DNSKEY' if dnskey else 'DS'} {shown}")


def _tell(file: KeyFile) -> None:
    key = file.key
    output.data(f"{key.tag:05d} {key.role} {key.algorithm} {key.state} {file.path}")


def _as_dict(file: KeyFile) -> dict[str, object]:
    key = file.key
    return {
        "tag": key.tag,
        "role": str(key.role),
        "algorithm": str(key.algorithm),
        "state": str(key.state),
        "file": str(file.path),
    }
