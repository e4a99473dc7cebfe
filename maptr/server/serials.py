"""The serial last published of each zone whose serial the server makes: one small file a zone, kept over restarts.

Written before the zone is served, so whatever was served is on record, whenever the process is killed.
"""

from __future__ import annotations

from pathlib import Path

from maptr.files import keep, name_for
from maptr.protocol.names import Labels
from maptr.zone.publish import Published

SUFFIX = ".serial"
MAX_RECORD = 4096  # octets; ours have about 100


def path_of(directory: Path, origin: Labels) -> Path:
    """Where the record of a zone is."""
    return directory / (name_for(origin) + SUFFIX)


def read(directory: Path, origin: Labels) -> Published | None:
    """The record of a zone; None where there is none, or none that can be understood. Raises OSError."""
    import json  # here and below, for most zones have a serial of their own

    try:
        with path_of(directory, origin).open("rb") as file:
            record = json.loads(file.read(MAX_RECORD))
        serial, digest = record["serial"], record["digest"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None  # not ours, or of another time: the zone file is the truth
    if type(serial) is not int or not 0 <= serial < 1 << 32 or not isinstance(digest, str):
        return None
    return Published(serial, digest)


def write(directory: Path, origin: Labels, published: Published) -> None:
    """Put the record on disk, whole or not at all. Raises OSError."""
    import json

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = {"serial": published.serial, "digest": published.digest}
    keep(path_of(directory, origin), json.dumps(record).encode())
