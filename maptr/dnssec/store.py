"""Zones that the server signed, kept over a restart: one file a zone, its text as ``maptr zone sign`` writes it.

Written before the zone is served, so that a serial which anybody has seen never comes again with another content,
whenever the process is killed. The first line says of which serial the zone file was, and has the checksum of
that and the rest; a file that fails it counts as none. The zone file and the key folder are the truth.
"""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import NamedTuple

import dns.exception

from maptr.files import keep, name_for
from maptr.protocol.names import Labels
from maptr.zone.reader import read_zone_file
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

SUFFIX = ".signed"
_HEAD = re.compile(r"; signed by maptr from serial (?P<serial>\d{1,10}), SHA-256 (?P<digest>[0-9a-f]{64})")


class Kept(NamedTuple):
    """A signed zone, and the serial that its zone file had."""

    view: ZoneView
    unsigned: int


def path_of(directory: Path, origin: Labels) -> Path:
    """Where the signed version of a zone is."""
    return directory / (name_for(origin) + SUFFIX)


def read(directory: Path, origin: Labels) -> Kept | None:
    """The version last signed; None where there is none, or, with a line in the log, none that can be used."""
    path = path_of(directory, origin)
    try:
        octets = path.read_bytes()
        head, _, text = octets.decode().partition("\n")
        match = _HEAD.fullmatch(head)
        if match is None or match["digest"] != _digest(text, int(match["serial"])):
            raise ValueError("is damaged: its checksum is wrong")
        unsigned = int(match["serial"])
        view = read_zone_file(text.encode(), origin, path).view
        return Kept(view, unsigned)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, KeyError, dns.exception.DNSException) as error:
        reason = str(error)
    log.warning("%s: %s; the zone is signed anew, and its serial may go back", path, reason)
    return None


def write(directory: Path, origin: Labels, text: str, unsigned: int) -> None:
    """Put a version on disk, whole or not at all. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    head = f"; signed by maptr from serial {unsigned}, SHA-256 {_digest(text, unsigned)}\n"
    keep(path_of(directory, origin), (head + text).encode())


def _digest(text: str, unsigned: int) -> str:
    return hashlib.sha256(f"{unsigned}\n{text}".encode()).hexdigest()
