"""Table pulls: fetch a table from a source, verify it, plan the changes, and replace the file atomically.

    pull = plan_pull(path, sources)     the first valid source's content, and the plan from the file to it
    apply_pull(pull)                    replaces the file; its last good states are kept beside it
    pull_table(path, sources)           both, with the lines that commands print and daemons log

Checksum and signature are verified before the content is parsed. If a source sends something that is not a registry, or
a registry that lost too many records, the next source is tried; if there is none, the old file is kept. A record that
was usable and can no longer be read keeps its last good entry. Content and signature, never file dates, decide whether
a content is newer. A source is refused if its data, by their metadata, are older than the file's.

The first pull into a file has nothing to compare with. If it writes the user's own table, or pulls the official
registry, the plan starts from the table in use; any other file is a new table, and the pull says what it will lack.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maptr import paths, registry
from maptr.discovery import BUILT_IN
from maptr.errors import (
    FetchError,
    MaptrError,
    PullFailed,
    SignatureError,
    TableError,
    UnsafePlan,
    json_text,
    reason_of,
)
from maptr.files import locked, read_up_to, read_whole, write_atomically
from maptr.registry import builtin, dates
from maptr.registry.followed_file import OFFICIAL as OFFICIAL
from maptr.registry.followed_file import TableSource, pull_file, read_pull_file
from maptr.registry.found import NAMES, FoundTable
from maptr.registry.minisign import MAX_FILE, SUFFIX, PublicKey, verify
from maptr.registry.plan import Plan, counts_text, kept_text
from maptr.registry.table import MAX_SOURCE, MAX_TABLE, Table, normal_key
from maptr.web import SECONDS

if TYPE_CHECKING:
    from maptr.web.http import Fetched

JITTER = 0.1  # the fraction by which the interval between pulls varies in either direction

KEEP = 3  # last good states beside the file: FILE.1 is the previous state, FILE.2 the one before it


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements for a source's content: its SHA-256 in hexadecimal, and the minisign key that signed it.

    ``signature`` is the signature's URL or file, by default the source's name with ``.minisig``, before any URL query.
    """

    sha256: str | None = None
    public_key: PublicKey | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class PullSources:
    """A table's sources: URLs or files, which are tried in order, each for that many ``seconds``."""

    places: tuple[str, ...]
    requirements: Requirements = Requirements()
    cafile: Path | None = None
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class FirstPull:
    """The table in use before a first pull: its kind, the date of its data, and its NAANs that the source lacks.

    ``is_compared``: the plan starts from that table; otherwise the file is a new table.
    """

    kind: str
    date: float | None
    unknown: tuple[str, ...]
    is_compared: bool

    def __str__(self) -> str:
        in_use = f"the table in use, the {NAMES[self.kind]} one of {dates.day(self.date)}"
        if self.is_compared:
            return f"the first pull: compared with {in_use}"
        new = f"a new table; it lacks {len(self.unknown)} NAANs of "
        return new + (in_use if self.kind else "the table in use: there is none")


@dataclass(frozen=True, slots=True)
class Pull:
    """A source's content, compared with the file.

    ``content`` is the file's new content: the source's own, or JSON if entries are kept, or None if the source answers
    that nothing changed. ``sha256`` is the hash of the source's content, ``before`` of the current file ("" if there is
    none). ``bad`` has the records that cannot be read and have no kept entry. ``skipped`` has the reasons why earlier
    sources were refused. ``signed`` is the signature's time in seconds since 1970. ``broken`` is the reason if the
    current file is not a table. ``date`` and ``date_before`` are the dates in the metadata of the source and of the
    table with which it was compared, None if they have none. ``first`` is the comparison of a first pull.
    """

    path: Path
    source: str
    plan: Plan
    content: bytes | None
    sha256: str
    etag: str = ""
    modified: str = ""
    bad: tuple[TableError, ...] = ()
    skipped: tuple[str, ...] = ()
    signed: int | None = None
    broken: str = ""
    before: str = ""
    date: float | None = None
    date_before: float | None = None
    first: FirstPull | None = None

    @property
    def changes(self) -> bool:
        """Whether the file's content will change, even if it becomes equal to the table in use."""
        return bool(self.plan or self.broken or self.first)

    @property
    def goes_back(self) -> str:
        """A text if the source's data are older than the current table's; "" if not."""
        return _goes_back(self.date_before, self.date)


class PullLine(NamedTuple):
    """A line about the pull of a table, without the name of its file. ``level`` is one of ``logging``."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class PullResult:
    """A table pull, and the ``lines`` about it. ``pull`` is None if it failed because of ``error``.

    ``reason`` is the error's text, and what to do if the source is right.
    """

    pull: Pull | None
    lines: tuple[PullLine, ...]
    error: MaptrError | OSError | None = None
    reason: str = ""

    @classmethod
    def failed(cls, path: Path, error: MaptrError | OSError) -> PullResult:
        advice = "; if this is intended, run maptr table pull --force --apply" if isinstance(error, UnsafePlan) else ""
        reason = reason_of(error) + advice
        result = "keeping the old one" if path.exists() else "there is none"
        return cls(None, (PullLine(logging.ERROR, f"not pulled, {result}: {reason}"),), error, reason)

    @property
    def changes(self) -> bool:
        return self.pull is not None and self.pull.changes

    def checked(self) -> Pull:
        """Return the pull. If it failed, raises its error."""
        if self.pull is None:
            assert self.error is not None  # noqa: S101 - there is either a pull or an error
            raise self.error
        return self.pull


def _lines_about(pull: Pull, *, is_applied: bool) -> Iterator[PullLine]:
    """Yield the lines about a pull, and about the changes if it was applied."""
    for reason in pull.skipped:
        yield PullLine(logging.WARNING, f"source skipped: {reason}")
    if pull.broken:
        yield PullLine(logging.WARNING, f"it cannot be read, so it is replaced as a whole: {pull.broken}")
    if pull.first is not None:
        yield PullLine(logging.INFO, str(pull.first))
    if pull.goes_back:
        yield PullLine(logging.WARNING, pull.goes_back)
    if pull.plan.kept:
        yield PullLine(logging.ERROR, kept_text(pull.plan.kept))
    if is_applied and pull.plan:
        yield PullLine(logging.INFO, f"pulled from {pull.source}: {counts_text(pull.plan)}")
    elif is_applied:
        yield PullLine(logging.INFO, f"up to date with {pull.source}")


def pull_table(
    path: Path,
    sources: PullSources,
    *,
    act: bool = True,
    force: bool = False,
    in_use: TableSource | None = None,
    wall: Callable[[], float] = time.time,
) -> PullResult:
    """Plan a pull, and apply it if ``act`` is set. A failure is a result, not an exception, and the file is kept."""
    try:
        found = plan_pull(path, sources, force=force, in_use=in_use, wall=wall)
        if act:
            apply_pull(found, wall=wall)
    except (MaptrError, OSError) as error:
        return PullResult.failed(path, error)
    return PullResult(found, tuple(_lines_about(found, is_applied=act)))


def plan_pull(
    path: Path,
    sources: PullSources,
    *,
    force: bool = False,
    in_use: TableSource | None = None,
    wall: Callable[[], float] = time.time,
) -> Pull:
    """Plan to turn the file at ``path`` into a source's table.

    ``force`` accepts a plan beyond the removal limit, older data and an older signature, and keeps no entries. If the
    current file is not a table (``broken``), the plan starts from the last good state beside it. If there is none, or
    no file, this is a first pull (see above); ``in_use`` is the table in use, by default this machine's.

    Raises UnsafePlan if a source was refused only because of the limit or its date, PullFailed if no source is valid,
    and OSError if the current file cannot be read.
    """
    in_use = FoundTable(clock=time.monotonic, wall=wall) if in_use is None else in_use
    puller = _Puller(path, sources, force, in_use, wall)
    reasons: list[str] = []
    unsafe: UnsafePlan | None = None
    for source in sources.places:
        try:
            return replace(puller.pull(source), skipped=tuple(reasons))
        except UnsafePlan as error:
            unsafe = UnsafePlan(f"{source}: {error}")
            reasons.append(str(unsafe))
        except (FetchError, TableError) as error:
            reasons.append(str(error))
    if unsafe is not None:
        raise unsafe
    raise PullFailed(reasons)


class _Puller:
    """The current file, and a pull's options. Raises OSError if the file cannot be read."""

    def __init__(
        self, path: Path, sources: PullSources, force: bool, in_use: TableSource, wall: Callable[[], float]
    ) -> None:
        self._path, self._requirements, self._force = path, sources.requirements, force
        self._get = partial(_get, cafile=sources.cafile, seconds=sources.seconds)
        self._in_use, self._wall = in_use, wall
        self._table, self._broken, self._sha256 = Table(), "", ""
        self._content: bytes | None = None
        if path.exists():
            self._content = read_whole(path, MAX_TABLE)
            self._sha256 = hashlib.sha256(self._content).hexdigest()
            try:
                self._table, _ = _read(self._content, str(path))
            except TableError as error:
                self._table, self._broken = _last_good(path), str(error)
        self._note = read_pull_file(path)  # after the content: the note of a later pull only makes this one stricter
        self._held = "" if self._broken else self._sha256  # the content that a source need not resend
        self._is_first = self._content is None or (bool(self._broken) and not self._table)
        self._is_own = os.path.realpath(path) == os.path.realpath(paths.table_file(os.environ))

    def pull(self, source: str) -> Pull:
        """Pull from one source. Raises FetchError, TableError and UnsafePlan."""
        known = self._note if (self._note.get("sha256"), self._note.get("source")) == (self._held, source) else {}
        etag, modified = (str(known.get(name, "")) for name in ("etag", "modified"))
        got = self._get(source, max_bytes=MAX_SOURCE, etag=etag, modified=modified)
        digest = self._held if got.content is None else hashlib.sha256(got.content).hexdigest()
        signed = self._verify(source, got, digest)
        content, etag, modified = got.content, got.etag, got.modified
        bad: list[TableError] = []
        old, first, date, date_before = self._table, None, None, None
        if content is None:
            plan = Plan(size=len(old))
            date = date_before = dates.of_metadata(old.metadata, self._latest())
        else:
            table, bad = _read(content, source, is_pulled=True)
            if self._is_first:
                old, first = self._compared(source, table)
            until = self._latest()
            date_before, date = (dates.of_metadata(each.metadata, until) for each in (old, table))
            if not self._force and (older := _goes_back(date_before, date)):
                raise UnsafePlan(f"the plan goes back in time: {older}")
            kept = {} if self._force else _unreadable(old, table, bad)
            if kept:
                entries = {**table, **{key: old[key] for key in kept}}
                table = Table(entries.values(), metadata=table.metadata)
                content = registry.write_json(table).encode()
                _read(content, source, is_pulled=True)  # raises TableError for more records than JSON may have
                etag = modified = ""  # they describe the source's own content, which must be fetched in full next time
                bad = [error for error in bad if normal_key(error.record) not in kept]
            plan = replace(Plan.between(old, table), kept=tuple(sorted(kept.items())))
            if not self._force:
                plan.check()
        found = Pull(self._path, source, plan, content, digest, etag, modified, tuple(bad))
        return replace(
            found,
            signed=signed,
            broken=self._broken,
            before=self._sha256,
            date=date,
            date_before=date_before,
            first=first,
        )

    def _compared(self, source: str, table: Table) -> tuple[Table, FirstPull]:
        """Return the table from which a first pull is planned, and its comparison with the table in use."""
        state = self._in_use.current()
        in_use = Table() if state.table is None else state.table
        is_compared = state.table is not None and (self._is_own or source == OFFICIAL)
        mine = {key.partition("/")[0] for key in table}
        unknown = tuple(naan for naan in in_use.naans() if naan not in mine)
        kind = "" if state.table is None else state.kind
        return in_use if is_compared else Table(), FirstPull(kind, state.date, unknown, is_compared)

    def _latest(self) -> float:
        """Return the latest time that is not in the future, by this machine's clock and the last pull."""
        checked = self._note.get("checked")
        is_known = (
            self._note.get("sha256") == self._sha256
            and isinstance(checked, int | float)
            and 0 <= checked <= dates.LATEST
        )
        return builtin.latest(self._wall(), checked if is_known else None)

    def _verify(self, source: str, got: Fetched, digest: str) -> int | None:
        """Return the signature's time; None without a signature.

        Raises FetchError if the content does not meet the requirements, or if its signature may be older than the
        current one.
        """
        requirements = self._requirements
        if requirements.sha256 is not None and digest != requirements.sha256.lower():
            raise FetchError(f"{source}: its SHA-256 is {digest}, not {requirements.sha256.lower()}")
        if requirements.public_key is None:
            return None
        content = (self._content if got.content is None else got.content) or b""
        signature = self._get(requirements.signature or _signature_of(source), max_bytes=MAX_FILE).content or b""
        try:
            at = verify(requirements.public_key, content, signature.decode("utf-8", "surrogateescape"))
        except SignatureError as error:
            raise FetchError(f"{source}: the signature is not valid: {error}") from None
        before = self._note.get("signed")
        if self._force:
            return at
        if isinstance(before, int):
            if at is None:
                raise FetchError(f"{source}: its signature has no time, but that of the current table has")
            if at < before:
                raise FetchError(f"{source}: signed earlier than the current table")
        elif self._content is not None and not self._note and digest != self._sha256:
            raise FetchError(
                f"{source}: {pull_file(self._path)} is missing, which says when the current table was signed:"
                " this one may be older (--force takes it)"
            )
        return at


def _goes_back(before: float | None, after: float | None) -> str:
    if before is None or after is None or after >= before:
        return ""
    return f"the source's data are from {dates.day(after)}, the current table's from {dates.day(before)}"


def _signature_of(source: str) -> str:
    """Return the URL or file of a source's signature: the name with SUFFIX and the same query."""
    if "://" not in source:
        return source + SUFFIX
    name, mark, query = source.partition("#")[0].partition("?")
    return f"{name}{SUFFIX}{mark}{query}"


def _read(content: bytes, filename: str, *, is_pulled: bool = False) -> tuple[Table, list[TableError]]:
    """Return the table without its bad records, and these. Raises TableError if the content is not a registry."""
    bad: list[TableError] = []
    return registry.read(content, filename=filename, on_bad=bad.append, is_pulled=is_pulled), bad


def _get(source: str, *, max_bytes: int, **options: Any) -> Fetched:
    """Read a URL, file or pipe. Raises FetchError, even for a file with too many bytes, because a device has no end."""
    from maptr.web.http import Fetched, fetch  # late: it imports HTTP, which a program that never pulls does not need

    if "://" in source:
        return fetch(source, max_bytes=max_bytes, **options)
    try:
        with Path(source).open("rb") as file:
            content = read_up_to(file, max_bytes)
    except OSError as error:
        raise FetchError(f"{source}: {error.strerror or error}") from None
    if len(content) > max_bytes:
        raise FetchError(f"{source}: more than {max_bytes} bytes")
    return Fetched(source, content)


def _unreadable(old: Table, new: Table, bad: Sequence[TableError]) -> dict[str, str]:
    """Return the keys of usable records in ``old`` that cannot be read in the source, each with the reason.

    A bad record without a key could be any of the missing ones.
    """
    named = {key: error.reason for error in reversed(bad) if (key := normal_key(error.record))}
    nameless = (f"a record without a key cannot be read: {error}" for error in bad if not normal_key(error.record))
    reason = next(nameless, "")
    found = {}
    for key, entry in old.items():
        if key not in new and (key in named or reason):
            found[key] = named.get(key, reason)
        elif key in named and entry.nmas and not new[key].nmas:
            found[key] = named[key]
    return found


def apply_pull(pull: Pull, *, wall: Callable[[], float]) -> None:
    """Replace the file. Unless it is broken, the old file becomes ``FILE.1``, the one before ``FILE.2`` and so on.

    ``FILE.pull`` notes the source and the time. If the content has not changed, only this note is written. Raises
    OSError, and TableError, leaving the file, if the file has changed since the plan was made.
    """
    with locked(pull.path.parent):  # against other processes that pull into the folder
        current = hashlib.sha256(read_whole(pull.path)).hexdigest() if pull.path.exists() else ""
        sha256 = pull.before if pull.content is None else hashlib.sha256(pull.content).hexdigest()
        if current not in (pull.before, sha256):
            raise TableError("has changed since the plan was made; pull again", filename=str(pull.path))
        known = {"source": pull.source, "sha256": sha256, "etag": pull.etag, "modified": pull.modified}
        note = known | {"checked": wall()} | ({} if pull.signed is None else {"signed": pull.signed})
        _write_note(pull.path, note)
        if pull.content is not None and current != sha256:
            if current and not pull.broken:
                _rotate(pull.path)
            write_atomically(pull.path, pull.content)


def begin_with_built_in(path: Path) -> None:
    """Write the built-in registry, with its date, to a file that a pull will replace.

    Raises OSError and ConfigError.
    """
    content, _ = builtin.content()
    with locked(path.parent):
        _write_note(
            path, {"source": BUILT_IN, "sha256": hashlib.sha256(content).hexdigest(), "checked": builtin.date()}
        )
        write_atomically(path, content)


def _write_note(path: Path, note: Mapping[str, Any]) -> None:
    """Write a table's note, before the table, so that a crash never leaves a table without its dates."""
    write_atomically(pull_file(path), json_text(note, indent=1).encode() + b"\n")


def _last_good(path: Path) -> Table:
    """Read the latest valid state beside the file, or return an empty table."""
    for kept in _states(path):
        with suppress(OSError, TableError):
            return _read(read_whole(kept, MAX_TABLE), str(kept))[0]
    return Table()


def _rotate(path: Path) -> None:
    """Keep the file's content as ``FILE.1`` and shift older states; the file itself remains. Raises OSError."""
    states = _states(path)
    for older, oldest in reversed([*pairwise(states)]):
        if older.exists():
            older.replace(oldest)
    last = states[0]
    last.unlink(missing_ok=True)
    try:
        os.link(path.resolve(), last)  # not a symbolic link, which would lead to the new content
    except OSError:  # a file system without links, or another user's file (fs.protected_hardlinks on Linux)
        write_atomically(last, path.read_bytes())


def _states(path: Path) -> list[Path]:
    """Return the paths of a file's last good states, latest first."""
    return [path.with_name(f"{path.name}.{number}") for number in range(1, KEEP + 1)]


def jittered(seconds: float, uniform: Callable[[float, float], float]) -> float:
    """Vary an interval randomly, so that clients do not all pull at once. ``uniform`` is ``random.uniform``."""
    return seconds * uniform(1 - JITTER, 1 + JITTER)
