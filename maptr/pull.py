"""Pulling a table from its source: what would change first, then the file, whole or not at all.

    pull = look(path, sources)      what the first good source has, and the plan from the file to it
    apply(pull)                     the file replaced, its last good states kept beside it

A source that sends anything but a registry, or one that lost too much of it, is passed over for the next; when none
is left the old file stays. Order is by content, never by a date.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from maptr import backups, registry
from maptr.cache.watched import pull_file, read_pull_file
from maptr.errors import FetchError, PullFailed, SignatureError, TableError, UnsafePlan
from maptr.fetch import MAX_OCTETS, SECONDS, Fetched, fetch
from maptr.files import write_atomically
from maptr.limits import REMOVAL_LIMIT
from maptr.minisign import MAX_FILE, SUFFIX, PublicKey, Signed, verify
from maptr.plan import Plan
from maptr.table import Table


@dataclass(frozen=True, slots=True)
class Demands:
    """What a source's content must be, beside a registry. ``sha256`` in hexadecimal. ``public_key`` is of minisign;
    its ``signature`` is looked for at that URL or file, by default at the source's name with ``.minisig``."""

    sha256: str | None = None
    public_key: PublicKey | None = None
    signature: str | None = None


NO_DEMANDS = Demands()


@dataclass(frozen=True, slots=True)
class Pull:
    """What a source has, held against the file. ``bad`` are records of it that cannot be read; ``passed_over``
    says why earlier sources were not taken. ``content`` is None where the source said that nothing changed."""

    path: Path
    source: str
    plan: Plan
    content: bytes | None
    sha256: str
    etag: str = ""
    modified: str = ""
    bad: tuple[TableError, ...] = ()
    passed_over: tuple[str, ...] = ()
    signed: int | None = None  # when, by its signer's word, in seconds since 1970
    broken: str = ""  # why the file that is there is no table, where it is none
    before: str = ""  # the SHA-256 of the file that is there, "" for none


def look(
    path: Path,
    sources: Sequence[str],
    *,
    demands: Demands = NO_DEMANDS,
    cafile: str | None = None,
    force: bool = False,
    seconds: float = SECONDS,
) -> Pull:
    """The plan that would make the file at ``path`` what its source has. Sources, URLs or files, are tried in order.

    ``force`` takes a plan beyond the limit, and what was signed earlier than what is there. Raises UnsafePlan where a
    plan beyond it was all that was on offer, PullFailed where there was nothing, and OSError where the file that is
    there cannot be read. One that is no registry any more is ``broken``, and held against is the last good state kept.
    """
    there = _There.read(path)
    note = read_pull_file(path)
    reasons: list[str] = []
    unsafe: UnsafePlan | None = None
    for source in sources:
        known = note if note.get("sha256") == there.held and note.get("source") == source else {}
        try:
            got = _get(source, str(known.get("etag", "")), str(known.get("modified", "")), cafile, seconds)
            pull = replace(_judge(there, source, got, demands, force=force), passed_over=tuple(reasons))
            if demands.public_key is None:
                return pull
            content = there.content if got.content is None else got.content
            where = demands.signature or source + SUFFIX
            signed = _signed(source, where, demands.public_key, content or b"", cafile, seconds)
            before = note.get("signed")
            if not force and isinstance(before, int):
                if signed.at is None:  # it may be of any time
                    raise FetchError(f"{source}: its signature has no time, and that of the table that is there has")
                if signed.at < before:
                    raise FetchError(f"{source}: signed earlier than the table that is there: an old one is sent again")
            return replace(pull, signed=signed.at)
        except UnsafePlan as error:
            unsafe = UnsafePlan(f"{source}: {error}")
            reasons.append(str(unsafe))
        except (FetchError, TableError) as error:
            reasons.append(str(error))
    if unsafe is not None:
        raise unsafe
    raise PullFailed(reasons)


@dataclass(frozen=True, slots=True)
class _There:
    """The file that a pull is held against; ``sha256`` is "" where there is none.

    Where its ``content`` is no table, ``broken`` says why, and ``table`` is the last good one kept beside it.
    """

    path: Path
    content: bytes | None
    sha256: str
    table: Table
    broken: str

    @classmethod
    def read(cls, path: Path) -> _There:
        """Raises OSError."""
        if not path.exists():
            return cls(path, None, "", Table(), "")
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            return cls(path, content, sha256, registry.read(content, filename=str(path), on_bad=lambda error: None), "")
        except TableError as error:
            return cls(path, content, sha256, backups.last_good(path), str(error))

    @property
    def held(self) -> str:
        """The SHA-256 of what a source need not send again, "" for nothing."""
        return "" if self.broken else self.sha256


def _get(source: str, etag: str, modified: str, cafile: str | None, seconds: float) -> Fetched:
    if "://" in source:
        return fetch(source, etag=etag, modified=modified, cafile=cafile, seconds=seconds)
    try:
        return Fetched(source, _read_file(source, MAX_OCTETS))
    except OSError as error:
        raise FetchError(f"{source}: {error.strerror or error}") from None


def _read_file(path: str, most: int) -> bytes:
    """All of a file, a pipe too. Raises OSError, and FetchError for more than so many octets: a device has no end."""
    with Path(path).open("rb") as file:
        octets = file.read(most + 1)
    if len(octets) > most:
        raise FetchError(f"{path}: more than {most} octets")
    return octets


def _signed(source: str, where: str, key: PublicKey, content: bytes, cafile: str | None, seconds: float) -> Signed:
    """What the signer of a source's content says, the signature being at ``where``. Raises FetchError."""
    try:
        if "://" in where:
            octets = fetch(where, cafile=cafile, seconds=seconds, max_octets=MAX_FILE).content or b""
        else:
            octets = _read_file(where, MAX_FILE)
        return verify(key, content, octets.decode("utf-8", "surrogateescape"))
    except SignatureError as error:
        raise FetchError(f"{source}: not signed as demanded: {error}") from None
    except OSError as error:
        raise FetchError(f"{where}: {error.strerror or error}") from None


def _judge(there: _There, source: str, got: Fetched, demands: Demands, *, force: bool) -> Pull:
    """The pull that a source's content makes. Raises TableError, FetchError and UnsafePlan."""
    digest = there.held if got.content is None else hashlib.sha256(got.content).hexdigest()
    if demands.sha256 is not None and digest != demands.sha256.lower():
        raise FetchError(f"{source}: its SHA-256 is {digest}, not {demands.sha256.lower()}")
    bad: list[TableError] = []
    if got.content is None:
        plan = Plan(size=len(there.table))
    else:
        plan = Plan.between(there.table, registry.read(got.content, filename=source, on_bad=bad.append))
        if not force:
            check(plan)
    return Pull(
        there.path,
        source,
        plan,
        got.content,
        digest,
        got.etag,
        got.modified,
        tuple(bad),
        broken=there.broken,
        before=there.sha256,
    )


def check(plan: Plan, limit: float = REMOVAL_LIMIT) -> None:
    """UnsafePlan where a plan removes, or removes and changes, more than this part of the table."""
    plan.check(limit)
    touched = len(plan.removed) + len(plan.changed)
    if plan.size and touched / plan.size > limit:
        raise UnsafePlan(
            f"the plan removes or changes {touched} of {plan.size} records"
            f" ({touched / plan.size:.0%}, the limit is {limit:.0%})"
        )


def apply(pull: Pull, *, wall: Callable[[], float], keep: int = backups.KEEP) -> None:
    """Do what was planned: the old file becomes ``FILE.1``, older ones ``.2`` and so on; note when and from where.
    One that was broken is kept nowhere.

    Where the content is the file's own, only the note is written. Raises OSError, and TableError where the file is
    another one than the plan was made for; it is then as it was.
    """
    with _alone(pull.path.parent):
        _apply(pull, wall, keep)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time in a folder, of those that pull; no file is made for it."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _apply(pull: Pull, wall: Callable[[], float], keep: int) -> None:
    there = hashlib.sha256(pull.path.read_bytes()).hexdigest() if pull.path.exists() else ""
    if there not in (pull.before, pull.sha256):
        raise TableError("was changed since the plan was made; pull again", filename=str(pull.path))
    if pull.content is not None and there != pull.sha256:
        if there and not pull.broken:
            backups.rotate(pull.path, keep)
        write_atomically(pull.path, pull.content)
    note: dict[str, object] = {
        "source": pull.source,
        "sha256": pull.sha256,
        "etag": pull.etag,
        "modified": pull.modified,
        "checked": wall(),
    }
    if pull.signed is not None:
        note["signed"] = pull.signed
    write_atomically(pull_file(pull.path), json.dumps(note, indent=1).encode() + b"\n")
