"""The state folder (``serve.state``): its lock, and the serial last published of each zone that the server numbers."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from maptr.config import Config
from maptr.files import keep, name_for
from maptr.protocol.names import Labels
from maptr.zone.publish import Published

LOCK = ".lock"
LOCK_TIMEOUT = 2.0  # seconds for an earlier server to end, if one starts as another stops
LOCK_INTERVAL = 0.05  # seconds between two attempts
SERIAL_SUFFIX = ".serial"
MAX_RECORD = 4096  # bytes; a record has about 100


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
        except OSError:  # a file system without locks
            pass
        return handle


def read_serial(folder: Path, origin: Labels) -> Published | None:
    """The record of a zone; None if there is none, or if it cannot be understood. Raises OSError."""
    try:
        with _serial_path(folder, origin).open("rb") as file:
            record = json.loads(file.read(MAX_RECORD))
        serial, digest = record["serial"], record["digest"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if type(serial) is not int or not 0 <= serial < 1 << 32 or not isinstance(digest, str):
        return None
    return Published(serial, digest)


def write_serial(folder: Path, origin: Labels, published: Published) -> None:
    """Write the record atomically, before the zone is served: a served serial is always on record. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = {"serial": published.serial, "digest": published.digest}
    keep(_serial_path(folder, origin), json.dumps(record).encode())


def _serial_path(folder: Path, origin: Labels) -> Path:
    return folder / (name_for(origin) + SERIAL_SUFFIX)
