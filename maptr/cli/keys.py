"""``maptr zone keys``: the key folder of ``maptr zone sign`` and of a server that signs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from maptr.cli import output
from maptr.cli.group import Group
from maptr.cli.options import JSON_OPTION, parse_name
from maptr.dnssec import keys as zonekeys
from maptr.protocol import names
from maptr.protocol.numbers import DNSKEY, DS
from maptr.zone import text

if TYPE_CHECKING:
    from maptr.dnssec.keys import KeyFile


@click.group(cls=Group)
def keys() -> None:
    """Manage the keys of a zone, which are the files in its key folder.

    A rollover adds a key, changes the states of keys from published to active to retired, and removes the old key; the
    zone is signed after each step. docs/dnssec.md has the steps and how long to wait between them.
    """


_FOLDER = click.argument("folder", metavar="KEYS", type=click.Path(path_type=Path))
_TAG = click.argument("tag", metavar="TAG", type=click.IntRange(0, 65535))
_STATES = click.Choice(["published", "active", "retired"])


@keys.command()
@_FOLDER
@click.option(
    "--role",
    type=click.Choice(["csk", "ksk", "zsk"]),
    default="csk",
    show_default=True,
    help="csk signs everything; ksk signs the DNSKEY RRset, zsk the rest.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ecdsap256sha256", "ed25519"]),
    default="ecdsap256sha256",
    show_default=True,
    help="Algorithm of the signatures.",
)
@click.option(
    "--state", type=_STATES, help="State of the key.  [default: active for the first key of its role, else published]"
)
def add(folder: Path, role: str, algorithm: str, state: str | None) -> None:
    """Create a key in the folder KEYS, and the folder if it does not exist.

    Only their owner can read the folder and its files.

    \b
    Example:
      maptr zone keys add keys

    \b
    Exit codes:
      0  created
      1  other users can read KEYS, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read or written
    """
    wanted = zonekeys.Role(role)
    present = [file.key for file in zonekeys.read_keys(folder)] if folder.exists() else []
    first = not any(key.role is wanted and key.state is zonekeys.KeyState.ACTIVE for key in present)
    chosen = zonekeys.KeyState(state) if state else zonekeys.KeyState.ACTIVE if first else zonekeys.KeyState.PUBLISHED
    _show(zonekeys.add_key(folder, wanted, zonekeys.Algorithm(algorithm), chosen))


@keys.command("list")
@_FOLDER
@JSON_OPTION
def list_keys(folder: Path, as_json: bool) -> None:
    """List the keys in KEYS: tag, role, algorithm, state and file.

    \b
    Example:
      maptr zone keys list keys

    \b
    Exit codes:
      0  listed
      1  other users can read KEYS, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read
    """
    files = zonekeys.read_keys(folder)
    if as_json:
        output.json_data({"keys": [_as_dict(file) for file in files]})
        return
    for file in files:
        _show(file)


@keys.command("set")
@_FOLDER
@_TAG
@click.argument("state", type=_STATES)
def set_state(folder: Path, tag: int, state: str) -> None:
    """Change the state of the key TAG, which renames its file.

    \b
    Example:
      maptr zone keys set keys 12345 retired

    \b
    Exit codes:
      0  changed
      1  there is no such key, other users can read KEYS, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read or written
    """
    _show(zonekeys.set_state(folder, tag, zonekeys.KeyState(state)))


@keys.command()
@_FOLDER
@_TAG
def remove(folder: Path, tag: int) -> None:
    """Delete the key TAG, which must not be active.

    \b
    Example:
      maptr zone keys remove keys 12345

    \b
    Exit codes:
      0  removed
      1  the key is active or does not exist, other users can read KEYS, or a
         key in it is bad
      2  bad usage
      8  KEYS cannot be read or written
    """
    output.talk(f"removed {zonekeys.remove_key(folder, tag).path}")


@keys.command()
@_FOLDER
@click.argument("origin")
@click.option("--dnskey", is_flag=True, help="Print DNSKEY records, which some parents and validators need instead.")
def ds(folder: Path, origin: str, dnskey: bool) -> None:
    """Print the DS records of the zone ORIGIN, for its parent zone.

    There is one for each active KSK or CSK, with SHA-256.

    \b
    Example:
      maptr zone keys ds keys ark.example

    \b
    Exit codes:
      0  printed
      1  no active KSK or CSK, other users can read KEYS, or a key in it is bad
      2  bad usage
      8  KEYS cannot be read
    """
    entries = [file.key for file in zonekeys.read_keys(folder) if file.key.is_entry]
    if not entries:
        output.fail(f"{folder}: no active KSK or CSK", output.EXIT_NONE)
    name = parse_name("ORIGIN", origin)
    for key in entries:
        rdtype, rdata = (DNSKEY, key.rdata) if dnskey else (DS, zonekeys.ds_rdata(name, key))
        shown = text.rdata_text(rdtype, rdata)
        output.data(f"{names.to_text(name)} IN {'DNSKEY' if dnskey else 'DS'} {shown}")


def _show(file: KeyFile) -> None:
    output.data(f"{file.key.tag:05d} {file.key.role} {file.key.algorithm} {file.key.state} {file.path}")


def _as_dict(file: KeyFile) -> dict[str, object]:
    key = file.key
    texts = {"role": key.role, "algorithm": key.algorithm, "state": key.state, "file": file.path}
    return {"tag": key.tag, **{name: str(value) for name, value in texts.items()}}
