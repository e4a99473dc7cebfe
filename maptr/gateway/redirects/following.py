"""A running gateway's file of own objects, which is reread when it changes.

The gateway looks up each ARK in a store. A CSV is only followed: its rows are imported into a private store in the
gateway's cache folder. So nothing is lost if the CSV is truncated or has bad rows: objects that it lacks remain
unchanged, even after a restart, and raise an alarm until an operator imports the CSV into that store.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from maptr.daemon.background import Repetitions
from maptr.errors import ConfigError, MaptrError
from maptr.files import Followed, file_signature, signature_if_any
from maptr.gateway.message import published
from maptr.gateway.objects import UNREAD, OwnObjects, Redirects, RowError, UnreadObjects
from maptr.gateway.redirects.changes import RefusedError
from maptr.gateway.redirects.importing import Missing, Staged, Terms, fingerprint_of
from maptr.gateway.redirects.rows import LockedFileError, is_database, is_interrupted, unreadable
from maptr.gateway.redirects.store import NAMED, QUIET, ObjectStore, open_store, roll_back
from maptr.registry.plan import REMOVAL_LIMIT

log = logging.getLogger("maptr.gateway")

SAMPLED = 2_000  # ARKs of a long store that are looked up in its successor: gives the share to about 1 %


class KeptStores:
    """The stores that a gateway makes from CSVs, and its other data about own objects, in its cache folder, or in a
    temporary folder that is deleted at its end."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._temporary: Path | None = None
        self.making = threading.Lock()  # a reload waits for the store that is being made of a changed CSV

    def path(self, file: Path, suffix: str = ".sqlite") -> Path:
        """Return the path of a CSV's store, or, with another suffix, of other data about a file. Raises OSError."""
        name = f"{file.stem[:100]}-{sha256(os.fsencode(file.absolute())).hexdigest()[:8]}{suffix}"
        if self._folder is not None and os.access(self._folder, os.W_OK | os.X_OK):
            return self._folder / name
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="maptr-"))
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
            if self._folder is not None:
                log.warning("%s is not writable: the data kept about %s end with this process", self._folder, file)
        return self._temporary / name


def follow(
    path: Path,
    *,
    allow_private: bool,
    clock: Callable[[], float],
    is_required: bool = True,
    kept: KeptStores | None = None,
    public: Collection[str] = (),
    last: Redirects = UNREAD,
) -> Followed[Redirects]:
    """Read a file's own objects, and follow the file. Raises ConfigError if the first reading fails; without
    ``is_required``, the objects are UnreadObjects until the file can be read.

    ``public`` are a CSV's extra columns that are shown. ``last`` is the result of an earlier reading
    of the same file.
    """
    reading = _OwnFile(path, kept or KeptStores(), allow_private=allow_private, public=public)

    def keep(last: Redirects, error: MaptrError | OSError) -> Redirects:
        located = error if isinstance(error, ConfigError) else unreadable(path, error)
        if is_required and not reading.is_begun:
            raise located
        trouble = published(located)
        if last is UNREAD or not last.objects.is_read:
            last = reading.last_run() or Redirects(path.name, UnreadObjects())
        if trouble != last.trouble:
            stays = (
                "keeping the last good redirects" if last.objects.is_read else "ARKs that may be own objects get 503"
            )
            log.error("%s; %s", located, stays)
        return replace(last, trouble=trouble)

    file = _FollowedObjects(
        path,
        last,
        reading.load,
        keep,
        clock=clock,
        passing=lambda error: isinstance(error, LockedFileError),
    )
    file.is_overtaken = reading.is_overtaken
    file.refresh()
    reading.is_begun = True
    return file


class _FollowedObjects(Followed[Redirects]):
    """Also reread after a command has imported the CSV into the store that the gateway made from it."""

    is_overtaken: Callable[[], bool]

    def is_due(self) -> bool:
        return super().is_due() or self.is_overtaken()


class _OwnFile:
    """How one file is read."""

    def __init__(self, path: Path, kept: KeptStores, *, allow_private: bool, public: Collection[str]) -> None:
        self._path = path
        self._allow_private = allow_private
        self._public = public
        self._logged = Repetitions()
        self._inode = (0, 0)  # of the store in use
        self._made: tuple[int, ...] = ()  # the signature of the store that was made from a CSV
        self.kept = kept
        self.is_begun = False

    def load(self, last: Redirects) -> Redirects:
        """Return the file's current objects. Raises ConfigError."""
        path = self._path
        is_first = last is UNREAD or not last.objects.is_read
        if is_first:
            log.info("reading %s", path)  # the start waits for it
        try:
            status = path.stat()
            inode = status.st_dev, status.st_ino
            if inode == self._inode and isinstance(last.objects, ObjectStore):
                self._prepare(last.objects)  # a command has changed it
                return replace(last, written=status.st_mtime, trouble="")
            if is_database(path):
                made = self._opened(last)
                self._inode = inode
            else:
                with self.kept.making:
                    made = self._followed()
        except sqlite3.Error as error:
            raise unreadable(path, error) from None
        if not is_first:
            log.info("%s read: %d redirects", path, len(made.objects))
        return made

    def _prepare(self, store: ObjectStore) -> None:
        try:
            store.prepare()
        except sqlite3.Error as error:
            if not is_interrupted(error):
                raise
            roll_back(self._path)
            store.prepare()
        self._tell_unindexed(store)

    def _opened(self, last: Redirects) -> Redirects:
        store = open_store(self._path, allow_private=self._allow_private)
        store.quiet_after = QUIET
        check_loss(last.objects, store, self._path)
        self._tell_unindexed(store)
        return Redirects(self._path.name, store, self._path.stat().st_mtime)

    def _followed(self) -> Redirects:
        """Return a CSV's objects, from the store that is made from it."""
        path, kept, before = self._path, self.kept.path(self._path), file_signature(self._path)
        store = self._kept(kept)
        is_same = store is not None and store.facts.get("fingerprint") == self._fingerprint()
        if store is not None and is_same and not store.is_overruled:
            return self._told(store)
        bad: list[RowError] = []
        with Staged(path, kept, bad.append, allow_private=self._allow_private) as staged:
            if file_signature(path) != before:
                raise OSError("the file changed while it was read")
            report = {"left_out": len(bad), "bad": [(error.line, error.reason) for error in bad[:NAMED]]}
            terms = Terms(
                missing=Missing.KEEP,
                overwrite=True,
                only_public=self._public,
                follows=str(path.absolute()),
                note=path.name,
                report=report,
            )
            try:
                staged.put(terms, is_first=store is None)
            except RefusedError as error:
                raise ConfigError(str(error), filename=str(path)) from None
        if (store := self._kept(kept)) is None:
            raise ConfigError("the store that was made from it cannot be read", filename=str(path))
        return self._told(store)

    def last_run(self) -> Redirects | None:
        """Return the objects that the last run had for a CSV; None if it had none."""
        with suppress(OSError):
            if (store := self._kept(self.kept.path(self._path))) is not None:
                return self._told(store)
        return None

    def is_overtaken(self) -> bool:
        return bool(self._made) and self._made != signature_if_any(self.kept.path(self._path))

    def _fingerprint(self) -> str:
        return fingerprint_of(self._path, allow_private=self._allow_private)

    def _kept(self, kept: Path) -> ObjectStore | None:
        with suppress(ConfigError):
            self._made = signature_if_any(kept)
            store = open_store(kept, allow_private=self._allow_private, public=self._public)
            if store.facts.get("follows") == str(self._path.absolute()):
                store.quiet_after = QUIET
                return store
        return None

    def _told(self, store: ObjectStore) -> Redirects:
        """Return the objects of a store made from the CSV, with the CSV's faults, which are logged once."""
        path, report = self._path, json.loads(str(store.facts.get("report") or "{}"))
        bad = tuple(RowError(reason, filename=str(path), line=line) for line, reason in report.get("bad", ()))
        left_out, missing = int(report.get("left_out", 0)), int(report.get("missing", 0))
        if self._logged.is_new("bad", bad and (*map(str, bad), left_out)):
            for each in bad:
                log.error("%s; this row is left out", each)
            if left_out > NAMED:
                log.error("%s: %d rows are left out; maptr redirects check names all", path, left_out)
        alarm = ""
        if missing:
            named = ", ".join(report["first_missing"])
            alarm = f"{path.name}: {missing} ARKs missing from it are still served: {named}"
        if self._logged.is_new("missing", alarm):
            kept = self.kept.path(path)
            log.error("%s (maptr redirects import %s -o %s --remove removes them)", alarm, path, kept)
        self._tell_unindexed(store)
        written = path.stat().st_mtime if path.exists() else 0.0
        return Redirects(path.name, store, written, left_out, bad, alarm=alarm)

    def _tell_unindexed(self, store: ObjectStore) -> None:
        if self._logged.is_new("unindexed", store.unindexed):
            only = "a search finds its objects by the beginning of their ARK only"
            log.warning("%s: %s: %s", self._path, only, store.unindexed)


def check_loss(old: OwnObjects, new: ObjectStore, path: Path) -> None:
    """Raise ConfigError if a new store lacks more than REMOVAL_LIMIT of the old one's ARKs.

    Commands have already checked what they remove from a store. Of a long store, only a sample is compared, because a
    change must take effect within a second. An old store that was damaged meanwhile cannot be compared.
    """
    if not isinstance(old, ObjectStore) or new.comes_after(old):
        return
    try:
        looked_for = old.sample(SAMPLED)
    except sqlite3.Error as error:
        log.warning("%s: the current redirects cannot be compared with the new ones: %s", path, error)
        return
    try:
        lost = sum(ark not in new for ark in looked_for)
    except sqlite3.Error as error:
        raise unreadable(path, error) from None
    if lost > len(looked_for) * REMOVAL_LIMIT:
        share = f"more than {REMOVAL_LIMIT:.0%} of {len(old)} redirects would be lost"
        raise ConfigError(share, filename=str(path))
