"""Journals in files: one a zone, written whole and atomically; what cannot be used is set aside, not lost.

The zone file is the truth. A journal that is damaged or does not lead to it costs secondaries one AXFR.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from maptr.errors import JournalError
from maptr.files import keep, name_for
from maptr.protocol.names import Labels
from maptr.transfer.journal import MAX_OCTETS, Journal, decode, describe, encode
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

SUFFIX = ".journal"
ASIDE = ".bad"  # one is kept, the latest, for whoever wants to know
MAX_FILE = 2 * MAX_OCTETS  # more than we ever write: something else lies there


def journal_path(zone_file: Path, origin: Labels, state: Path | None) -> Path:
    """Beside the zone file, or in the state directory under the zone's name."""
    if state is None:
        return zone_file.with_name(zone_file.name + SUFFIX)
    return state / (name_for(origin) + SUFFIX)


def read_journal(path: Path, view: ZoneView) -> Journal:
    """The journal of a zone just loaded; an empty one where the file's is none, with the reason in the log."""
    try:
        with path.open("rb") as file:
            octets = file.read(MAX_FILE + 1)
        journal = decode(octets)
        if not journal.fits(view):
            raise JournalError(f"it leads to serial {journal.serial}, not to this zone of serial {view.serial}")
    except FileNotFoundError:
        return Journal.start(view)
    except OSError as error:
        log.warning("journal %s cannot be read, secondaries will get AXFR: %s", path, error.strerror)
        return Journal.start(view)
    except JournalError as error:
        aside = path.with_name(path.name + ASIDE)
        log.warning("journal %s set aside as %s, secondaries will get AXFR: %s", path, aside.name, error)
        with contextlib.suppress(OSError):
            path.replace(aside)
        return Journal.start(view)
    log.info("journal %s: %s", path, describe(journal))
    return journal


def write_journal(path: Path, journal: Journal) -> None:
    """Replace the file: a reader, or a crash, finds the old one or the new. Trouble is logged and harms no one else."""
    try:
        keep(path, encode(journal))
    except OSError as error:
        log.error("journal %s not written, after a restart secondaries will get AXFR: %s", path, error.strerror)
