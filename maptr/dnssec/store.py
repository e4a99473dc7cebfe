"""The store of signed zones, which the server keeps over a restart: one file a zone, as ``maptr zone sign`` writes it.

A file is written before its zone is served, so that no serial is served with two contents, whenever the process is
killed. The first line has the serial of the zone file, and the checksum of that and the text; a file with a wrong
checksum is ignored. The zone can always be made again from the zone file and the key folder.
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


class StoredZone(NamedTuple):
    """A signed zone, and the serial that its zone file had."""

    view: ZoneView
    unsigned: int


def path_of(directory: Path, origin: Labels) -> Path:
    """The file of a zone's signed version."""
    return directory / (name_for(origin) + SUFFIX)


def read(directory: Path, origin: Labels) -> StoredZone | None:
    """The version signed last; None if there is none, or if it cannot be used, which is logged."""
    path = path_of(directory, origin)
    try:
        data = path.read_bytes()
        head, _, text = data.decode().partition("\n")
        match = _HEAD.fullmatch(head)
        if match is None or match["digest"] != _digest(text, int(match["serial"])):
            raise ValueError("is damaged: its checksum is wrong")
        unsigned = int(match["serial"])
        view = read_zone_file(text.encode(), origin, path).view
        return StoredZone(view, unsigned)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, KeyError, dns.exception.DNSException) as error:
        reason = str(error)
    log.warning("%s: %s; the zone is signed anew, and its serial may go back", path, reason)
    return None


def write(directory: Path, origin: Labels, text: str, unsigned: int) -> None:
    """Write a version atomically. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    head = f"; signed by maptr from serial {unsigned}, SHA-256 {_digest(text, unsigned)}\n"
    keep(path_of(directory, origin), (head + text).encode())


def _digest(text: str, unsigned: int) -> str:
    return hashlib.sha256(f"{unsigned}\n{text}".encode()).hexdigest()
