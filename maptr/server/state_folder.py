"""The state folder (``serve.state``): its lock, serials and signed zones.

It keeps the serial last published of each zone that the server numbers, and the last version of each that it signs. A
damaged file is ignored: a zone can always be made again from its zone file and key folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import dns.exception

from maptr.config import Config
from maptr.files import keep, name_for
from maptr.protocol.names import Labels
from maptr.zone.diff import Published
from maptr.zone.reader import read_zone_file
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

LOCK = ".lock"
LOCK_TIMEOUT = 2.0  # seconds for an earlier server to end
LOCK_INTERVAL = 0.05  # seconds between two attempts
SERIAL_SUFFIX = ".serial"
MAX_RECORD = 4096  # bytes; a record has about 100
SIGNED_SUFFIX = ".signed"

_SIGNED_HEAD = re.compile(r"; signed by maptr from serial (?P<serial>\d{1,10}), SHA-256 (?P<digest>[0-9a-f]{64})")


def make(config: Config) -> None:
    """Create the folder if it does not exist. Raises ConfigError."""
    if config.serve.state is not None:
        try:
            config.serve.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise config.error("serve.state", f"{config.serve.state}: {error.strerror}") from None


def lock(config: Config, timeout: float = LOCK_TIMEOUT) -> int | None:
    """Lock the folder: two servers would overwrite each other's files. Raises ConfigError if another server has it.

    The result is the file descriptor to close when the server ends; the end of the process releases the lock too.
    None without a folder, or if no file can be created in it, as then no server can write there.
    """
    folder = config.serve.state
    if folder is None:
        return None
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < end:
                time.sleep(LOCK_INTERVAL)
                continue
            os.close(handle)
            raise config.error("serve.state", f"{folder} is in use by another server: each needs its own") from None
        except OSError:  # the file system has no locks
            pass
        return handle


def read_serial(folder: Path, origin: Labels) -> Published | None:
    """Return the record of a zone; None if there is none, or if it cannot be understood. Raises OSError."""
    try:
        with (folder / (name_for(origin) + SERIAL_SUFFIX)).open("rb") as file:
            record = json.loads(file.read(MAX_RECORD))
        serial, digest = record["serial"], record["digest"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if type(serial) is not int or not 0 <= serial < 1 << 32 or not isinstance(digest, str):
        return None
    return Published(serial, digest)


def write_serial(folder: Path, origin: Labels, published: Published) -> None:
    """Write the record atomically, before the zone is served: a served serial is always on record. Raises OSError."""
    record = {"serial": published.serial, "digest": published.digest}
    _write(folder / (name_for(origin) + SERIAL_SUFFIX), json.dumps(record).encode())


class SignedZone(NamedTuple):
    """A signed zone, and the serial that its zone file had."""

    view: ZoneView
    unsigned: int


def signed_path(folder: Path, origin: Labels) -> Path:
    """Return the file of a zone's signed version, as ``maptr zone sign`` writes it, after a first line.

    That line has the serial of the zone file, and the checksum of that and the text.
    """
    return folder / (name_for(origin) + SIGNED_SUFFIX)


def read_signed(folder: Path, origin: Labels) -> SignedZone | None:
    """Return the version signed last; None if there is none, or if it cannot be used, which is logged."""
    path = signed_path(folder, origin)
    try:
        head, _, text = path.read_bytes().decode().partition("\n")
        match = _SIGNED_HEAD.fullmatch(head)
        if match is None or match["digest"] != _digest(text, int(match["serial"])):
            raise ValueError("is damaged: its checksum is wrong")
        return SignedZone(read_zone_file(text.encode(), origin, path).view, int(match["serial"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, dns.exception.DNSException) as error:
        reason = getattr(error, "strerror", None) or str(error)
    log.warning("%s: %s; the zone is signed anew, and its serial may go back", path, reason)
    return None


def write_signed(folder: Path, origin: Labels, text: str, unsigned: int) -> None:
    """Write a version atomically, before it is served: no serial is served with two contents. Raises OSError."""
    head = f"; signed by maptr from serial {unsigned}, SHA-256 {_digest(text, unsigned)}\n"
    _write(signed_path(folder, origin), (head + text).encode())


def _digest(text: str, unsigned: int) -> str:
    return hashlib.sha256(f"{unsigned}\n{text}".encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep(path, data)
