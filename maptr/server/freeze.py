"""Frozen zones, which the server does not change by itself until an operator thaws them.

A freeze survives restarts: it is a file in the state folder.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from maptr.errors import ZoneError, reason_of, time_text
from maptr.files import read_whole, write_private
from maptr.protocol.names import Folded, fold, parse, to_text
from maptr.server.alarm import Alarm, AlarmKind

log = logging.getLogger("maptr.serve")

NAME = "frozen.json"
ALL = ""  # the key of all zones in the file
NOT_STORED = "the freezes last only until a restart, because they cannot be stored"
MAX_FILE = 1 << 22  # bytes: some 10,000 zones


@dataclass(frozen=True, slots=True)
class Frozen:
    """The times, in seconds since 1970, since when all zones, and single zones, have been frozen.

    ``is_unread``: the file could not be read, so everything is frozen until it can be. ``trouble`` says so, or that the
    file is damaged. ``unstored`` is why this is not in the file, so that a restart returns to the file's state; "" if
    it is.
    """

    everything: float | None = None
    zones: Mapping[Folded, float] = field(default_factory=dict)
    is_unread: bool = False
    trouble: str = ""
    unstored: str = ""

    def since(self, origin: Folded) -> float | None:
        """Return since when a zone has been frozen; None if it is not."""
        return self.zones.get(origin, self.everything)

    def freeze(self, origin: Folded | None, now: float) -> Frozen:
        """Return this with one zone frozen, or all with None. Zones that are already frozen keep their time."""
        if origin is None:
            return Frozen(now if self.everything is None else self.everything, self.zones)
        return Frozen(self.everything, {origin: now, **self.zones})

    def thaw(self, origin: Folded | None) -> Frozen:
        """Return this with one zone thawed, or all with None. Raises ZoneError."""
        if origin is None:
            return Frozen()
        if origin not in self.zones:
            name = to_text(origin)
            raise ZoneError(
                f"zone {name} is not frozen by itself"
                + ("" if self.everything is None else ": maptr control thaw thaws all zones")
            )
        return Frozen(self.everything, {name: since for name, since in self.zones.items() if name != origin})

    def table_reason(self, origins: Iterable[Folded]) -> str:
        """Return why these zones' table is not pulled; "" if it may be."""
        if self.everything is not None:
            return f"{_text(None, self.everything)}: {_command(None)}"
        found = next((origin for origin in origins if origin in self.zones), None)
        return "" if found is None else f"{_text(found, self.zones[found])}: {_command(found)}"

    def alarms(self, served: Iterable[Folded]) -> Iterator[Alarm]:
        """Yield an alarm for each freeze, and one if the file's state differs."""
        stops = "no change is published except by maptr reload ZONE"
        if self.everything is not None:
            text = self.trouble or f"{_text(None, self.everything)}, {stops}: {_command(None)}"
            level = logging.ERROR if self.trouble else logging.WARNING
            yield Alarm(AlarmKind.FROZEN, text, since=self.everything, level=level)
        for origin in served:
            if origin in self.zones:
                since = self.zones[origin]
                text = f"{_text(origin, since)}, {stops}: {_command(origin)}"
                yield Alarm(AlarmKind.FROZEN, text, to_text(origin), since=since, level=logging.WARNING)
        if text := self.not_stored():
            text += "; remove the cause: the server retries every minute"
            yield Alarm(AlarmKind.FREEZE_NOT_STORED, text)

    def not_stored(self) -> str:
        """Say that a restart forgets this; "" if it does not."""
        return f"{NOT_STORED}: {self.unstored}" if self.unstored else ""


def _text(origin: Folded | None, since: float) -> str:
    what = "all zones have" if origin is None else f"zone {to_text(origin)} has"
    return f"{what} been frozen since {time_text(since)}"


def _command(origin: Folded | None) -> str:
    return "maptr control thaw" + ("" if origin is None else f" {to_text(origin)}")


def read(folder: Path | None, now: float) -> Frozen:
    """Return the freezes, for a command, which has no alarms: trouble with the file is logged."""
    found = load(folder, now)
    if found.trouble:
        log.error("%s", found.trouble)
    return found


def load(folder: Path | None, now: float) -> Frozen:
    """Return the freezes. If the file cannot be read, everything is frozen, so that no accident undoes a freeze."""
    if folder is None:
        return Frozen()
    path = folder / NAME
    try:
        document = json.loads(read_whole(path, MAX_FILE))
        since = {str(name): float(at) for name, at in document.items()}
        for at in since.values():
            time_text(at)
        everything = since.pop(ALL, None)
        return Frozen(everything, {fold(parse(name)): at for name, at in since.items()})
    except (FileNotFoundError, NotADirectoryError):
        return Frozen()
    except OSError as error:
        trouble = f"{path} cannot be read, all zones are frozen until a reload can read it: {reason_of(error)}"
        return Frozen(now, is_unread=True, trouble=trouble)
    except Exception as error:  # damaged in any way
        trouble = f"{path} is damaged, all zones are frozen until maptr control thaw: {reason_of(error)}"
        return Frozen(now, trouble=trouble)


def stored(folder: Path, frozen: Frozen) -> Frozen:
    """Store the freezes; return them, with the reason if that fails."""
    try:
        write(folder, frozen)
    except OSError as error:
        return replace(frozen, unstored=reason_of(error))
    return replace(frozen, unstored="")


def write(folder: Path, frozen: Frozen) -> None:
    """Store the freezes atomically. Raises OSError."""
    path = folder / NAME
    single = {to_text(origin): since for origin, since in frozen.zones.items()}
    document = single if frozen.everything is None else {ALL: frozen.everything, **single}
    if document:
        write_private(path, json.dumps(document).encode() + b"\n")
        return
    try:
        path.lstat()  # first, because a read-only file system also refuses to remove a file that does not exist
    except (FileNotFoundError, NotADirectoryError):
        return
    path.unlink()
