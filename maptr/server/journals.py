"""The served zones' journals, from which IXFR is answered.

A zone's journal is one file, written atomically. The zone file is authoritative: if the journal is damaged or does not
end at the zone's version, secondaries get one AXFR.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from maptr.config import ZoneConfig
from maptr.daemon.background import Repetitions
from maptr.errors import JournalError
from maptr.files import name_for, read_whole, write_private
from maptr.protocol.names import Folded, to_text
from maptr.protocol.serial import is_newer
from maptr.server.responder import ServerState
from maptr.server.state import Served
from maptr.transfer.journal import MAX_BYTES, Journal, decode, encode
from maptr.transfer.session import Access
from maptr.zone.diff import ZoneDiff
from maptr.zone.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")

JOURNAL_SUFFIX = ".journal"
MAX_JOURNAL_FILE = 2 * MAX_BYTES  # bytes; a larger file is not a journal


def journals_of(
    zones: Iterable[ZoneConfig], served: Served, before: ServerState | None, logged: Repetitions
) -> dict[Folded, Journal]:
    """Return the journals of the zones that may be transferred, with the changes from ``before`` to the served zones.

    Reads and writes the journals: call it in a thread. ``logged`` has the journals that cannot be written.
    """
    access, old = (Access(), Snapshot.of(())) if before is None else (before.access, before.snapshot)
    journals: dict[Folded, Journal] = {}
    for zone in zones:
        state, known = served.get(zone.name), old.zones.get(zone.name)
        if state is None or state.view is None:
            continue
        view = state.view
        try:
            if known is not None and known is not view:
                _warn_of_serial(known, view)
            if not zone.transfer:
                continue
            path, last = journal_path(zone), access.journals.get(zone.name)
            if known is None or (last is None and known is view):
                journal = read_journal(path, view)
            else:
                last = last or Journal.start(known)
                journal = last if known is view else last.extend(known, view, state.changed)
                if journal is not last:
                    write_journal(path, journal, logged)
            journals[zone.name] = journal
        except Exception:  # in one zone: the rest go on, and its secondaries get AXFR
            log.exception("internal error, zone %s: its journal is not used", to_text(zone.name))
            journals[zone.name] = Journal.start(view)
    return journals


def _warn_of_serial(before: ZoneView, view: ZoneView) -> None:
    if is_newer(view.serial, before.serial) or not ZoneDiff.between(before, view):
        return
    log.warning(
        "zone %s changed, but its serial did not increase (%d, was %d): no secondary will follow until it does",
        to_text(view.origin),
        view.serial,
        before.serial,
    )


def journal_path(zone: ZoneConfig) -> Path:
    """Return the path of a zone's journal: in the state folder if there is one, otherwise beside the zone file."""
    if zone.state is None:
        return zone.file.with_name(zone.file.name + JOURNAL_SUFFIX)
    return zone.state / (name_for(zone.name) + JOURNAL_SUFFIX)


def read_journal(path: Path, view: ZoneView) -> Journal:
    """Read the journal of a zone that was just loaded. If the file is unusable, log why, and return a new journal."""
    try:
        journal = decode(read_whole(path, MAX_JOURNAL_FILE))
        if is_newer(view.serial, journal.serial):  # the zone was edited, or signed, while no server ran
            last = journal.serial
            log.info("journal %s ends at serial %d, not at %d: secondaries will get AXFR", path, last, view.serial)
            return Journal.start(view)
        if not journal.fits(view):
            raise JournalError(f"it leads to serial {journal.serial}, not to this zone of serial {view.serial}")
    except FileNotFoundError:
        return Journal.start(view)
    except (OSError, JournalError) as error:
        reason = getattr(error, "strerror", None) or error
        log.warning("journal %s is not used, secondaries will get AXFR: %s", path, reason)
        return Journal.start(view)
    log.info("journal %s: zone %s serials %d to %d", path, to_text(view.origin), journal.first_serial, journal.serial)
    return journal


def write_journal(path: Path, journal: Journal, logged: Repetitions) -> None:
    """Write the journal's file atomically. Logs an OSError, once while it lasts."""
    try:
        write_private(path, encode(journal))
        logged.forget(path)
    except OSError as error:
        if logged.is_new(path, error.errno):
            log.error("journal %s not written, after a restart secondaries will get AXFR: %s", path, error.strerror)
