"""The state folder (``serve.state``): its lock, serials, signed zones, and each zone's last good version.

It stores the last published serial of each zone whose serials the server chooses, the last version, as text, of each
zone that it signs, and the last published version of every zone (``daemon/kept.py``). A damaged file is reported and
ignored: a zone can always be made again from its zone file and key folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import pwd
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from maptr.config import Config, ZoneConfig
from maptr.config.model import signed_path
from maptr.daemon import kept
from maptr.daemon.kept import Kept, Tell, log_trouble
from maptr.errors import json_text, reason_of
from maptr.files import MAX_WHOLE, name_for, opened, read_whole, write_private
from maptr.protocol.names import Folded, Labels, to_text
from maptr.zone.diff import Published
from maptr.zone.masterfile import read_master_file
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

LOCK = ".lock"
LOCK_TIMEOUT = 2.0  # seconds to wait for an earlier server to end
LOCK_INTERVAL = 0.05  # seconds between attempts
SERIAL_SUFFIX = ".serial"
SIGNED_SUFFIX = ".signed"
MAX_RECORD = 4096  # bytes; a record has about 100
MAX_SIGNED = 8 * MAX_WHOLE  # bytes of a signed zone, whose signatures take more space than its records

_SIGNED_HEAD = re.compile(r"; signed by maptr from serial (?P<serial>\d{1,10}), SHA-256 (?P<digest>[0-9a-f]{64})")


def make(config: Config) -> None:
    """Create the folder if it does not exist. If that fails, ``fault`` has the reason; the zones are still served."""
    if config.serve.state is not None:
        with contextlib.suppress(OSError):
            config.serve.state.mkdir(mode=0o700, parents=True, exist_ok=True)


def fault(folder: Path) -> str:
    """Return why nothing can be kept in the folder, with the remedy; "" if it can be used."""
    try:
        if not folder.is_dir():
            found = "is not a directory: remove it" if os.path.lexists(folder) else "does not exist: make or mount it"
            return f"{folder} {found}"
        status = os.statvfs(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}: let this user reach it"
    is_root = os.geteuid() == 0  # which may use the reserved blocks
    if status.f_flag & os.ST_RDONLY:
        return f"{folder} is on a read-only file system: remount it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written to by {_user()}: chown it"
    # A file system without a limit reports no number of blocks or files.
    if status.f_blocks and not (status.f_bfree if is_root else status.f_bavail):
        return f"{folder} has no space left: free some"
    if status.f_files and not (status.f_ffree if is_root else status.f_favail):
        return f"{folder} can have no more files: remove some"
    return ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def lock(config: Config) -> int | None:
    """Lock the folder, because two servers would overwrite each other's files. Raises ConfigError if it is in use.

    Returns the file descriptor, to be closed when the server ends; the end of the process also releases the lock.
    Returns None if there is no folder, or if no file can be created in it, because then no server can write there.
    """
    folder = config.serve.state
    if folder is None:
        return None
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe must not block
    try:
        handle = os.open(folder / LOCK, flags, 0o600)
    except OSError:
        return None
    end = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < end:
                time.sleep(LOCK_INTERVAL)
                continue
            os.close(handle)
            raise config.error("serve.state", f"{folder} is in use by another server: each needs its own") from None
        except OSError:  # the file system does not support locks
            pass
        return handle


class StoredSerial(NamedTuple):
    """A zone's last published version before the server signed it, and as signed, None if it did not sign it."""

    published: Published
    signed: Published | None = None


def read_serial(folder: Path, origin: Labels, tell: Tell = log_trouble) -> StoredSerial | None:
    """Return a zone's stored serial; None if there is none, or if it is unreadable, which is reported to ``tell``."""
    path = folder / (name_for(origin) + SERIAL_SUFFIX)
    try:
        with opened(path) as file:
            record = json.loads(file.read(MAX_RECORD))
        signed = record.get("signed")
        found = StoredSerial(published(record), None if signed is None else published(signed))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reason = "is damaged"
    except OSError as error:
        reason = str(error.strerror)
    else:
        return found
    tell(f"{path}: {reason}; the zone's serial may go backwards")
    return None


def published(record: Mapping[str, Any]) -> Published:
    """Read a serial with its digest. Raises ValueError, KeyError and TypeError."""
    serial, digest = record["serial"], record["digest"]
    if type(serial) is not int or not 0 <= serial < 1 << 32 or not isinstance(digest, str):
        raise ValueError("it has no serial, or no digest")
    return Published(serial, digest)


def write_serial(folder: Path, origin: Labels, published: Published, signed: Published | None = None) -> None:
    """Store a serial atomically, before the zone is served, so that every served serial is stored. Raises OSError."""
    record: dict[str, Any] = published._asdict()
    if signed is not None:
        record["signed"] = signed._asdict()
    _write(folder / (name_for(origin) + SERIAL_SUFFIX), json_text(record).encode())


def last_version(zone: ZoneConfig, tell: Tell = log_trouble, *, is_signed: bool | None = None) -> Kept | None:
    """Return a zone's last good version; None without one, and for a signed zone whose keys were removed.

    ``is_signed``: whether the version may be one that the server signed; None: if the zone has keys. For a signed zone,
    it is the signed version if that is newer than the kept one, as after a crash between the two writes.
    """
    if zone.state is None:
        return None
    version = kept.read(zone.state, zone.name, tell)
    if not (zone.keys is not None if is_signed is None else is_signed):
        return None if version is not None and version.unsigned is not None else version
    if version is not None and version.signed == kept.signed_head(zone.state, zone.name):
        return version
    path = signed_path(zone.state, zone.name)
    instead = "the zone is signed anew, its serial may go backwards" if version is None else "the kept version is used"
    signed = read_signed(zone.state, zone.name, instead=instead, tell=tell)
    if signed is None:
        return version
    return Kept(signed[0], path.stat().st_mtime, unsigned=signed[1], signed=kept.signed_head(zone.state, zone.name))


def read_signed(
    folder: Path,
    origin: Folded,
    *,
    path: Path | None = None,
    instead: str = "the zone's serial may go backwards",
    tell: Tell = log_trouble,
) -> tuple[ZoneView, int] | None:
    """Return the last signed version, and its unsigned zone file's serial; None if there is none.

    ``path`` is for a version under another name. If it is unusable, ``tell`` gets the reason and what is done
    ``instead``, and the result is None.
    """
    path = path or signed_path(folder, origin)
    try:
        head, _, text = read_whole(path, MAX_SIGNED).decode().partition("\n")
        match = _SIGNED_HEAD.fullmatch(head)
        if match is None or match["digest"] != _digest(text, int(match["serial"])):
            raise ValueError("is damaged: its checksum is wrong")
        return read_master_file(str(path), text.encode(), origin), int(match["serial"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error)
        tell(f"{path}: {reason}; {instead}")
    return None


def mend_signed(zone: ZoneConfig, version: Kept) -> None:
    """Rewrite the signed version from the kept one, if its file does not have it. An OSError is logged."""
    from maptr.zone import text  # late, for a fast start

    assert zone.state is not None  # noqa: S101 - something is kept
    if version.unsigned is None or version.signed == kept.signed_head(zone.state, zone.name):
        return
    try:
        write_signed(zone.state, zone.name, text.to_text(version.view), version.unsigned)
    except OSError as error:
        log.warning("zone %s: cannot rewrite its signed version: %s", to_text(zone.name), reason_of(error))


def last_removed(folder: Path, origin: Folded) -> ZoneView | None:
    """Return the signed version of a zone that was removed from the configuration: its serials continue from there."""
    try:
        path = kept.last_set_aside(folder, signed_path(folder, origin).name)
    except OSError:
        return None
    found = None if path is None else read_signed(folder, origin, path=path)
    return None if found is None else found[0]


def tidy(config: Config, now: float) -> None:
    """Set aside the kept files of zones that are no longer configured, and delete what was set aside long ago."""
    folder, catalog = config.serve.state, config.serve.catalog.name
    if folder is None:
        return
    origins = [zone.name for zone in config.zones] + ([] if catalog is None else [catalog])
    try:
        for path in kept.set_aside(folder, origins, now, suffixes=(kept.SUFFIX, SIGNED_SUFFIX)):
            log.info("%s belongs to a zone that is not configured: set aside, deleted in %d days", path, kept.AGE)
        for path in kept.count_days(folder, now):
            log.info("%s deleted, %d days after it was set aside", path, kept.AGE)
    except OSError as error:
        if not fault(folder):  # that is an alarm
            log.warning("versions of zones that are not configured cannot be set aside: %s", reason_of(error))


def write_signed(folder: Path, origin: Labels, text: str, unsigned: int) -> None:
    """Store a version atomically, before it is served, so that no serial has two contents. Raises OSError.

    The file has a first line with the serial of the zone file and a checksum, then the text of the signed zone.
    """
    head = f"; signed by maptr from serial {unsigned}, SHA-256 {_digest(text, unsigned)}\n"
    _write(signed_path(folder, origin), (head + text).encode())


def _digest(text: str, unsigned: int) -> str:
    return hashlib.sha256(f"{unsigned}\n{text}".encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, data)
