"""Pulling a table from its source: what would change first, then the file, whole or not at all.

    pull = look(path, sources)      what the first good source has, and the plan from the file to it
    apply(pull)                     the file replaced, its last good states kept beside it

Checksum and signature are verified before anything parses the content, and a child process with limits parses it.
A source that sends anything but a registry, or one that lost too much of it, is passed over for the next; when none
is left the old file stays. A record that was usable and cannot be read any more keeps its last good entry. Order is by
content, never by a date.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from maptr import registry
from maptr.errors import FetchError, ParserFailed, PullFailed, SignatureError, TableError, UnsafePlan
from maptr.files import write_atomically
from maptr.registry import backups, sandbox
from maptr.registry.followed_file import pull_file, read_pull_file
from maptr.registry.minisign import MAX_FILE, SUFFIX, PublicKey, Signed, verify
from maptr.registry.plan import REMOVAL_LIMIT, Plan
from maptr.registry.table import MAX_TABLE, Table, parse_key
from maptr.web.fetch import SECONDS, Fetched, fetch

JITTER = 0.1  # of the interval between pulls, in both directions
OFFICIAL = "https://cdluc3.github.io/naan_reg_priv/naan_records.json"
"""The public NAAN registry, from where the central resolver (n2t.net) loads it (its public code, 2026)."""

Read = Callable[..., tuple[Table, list[TableError]]]
"""``sandbox.read``, or that of a Parser which can be stopped."""


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
    """What a source has, held against the file. ``bad`` are records of it that cannot be read and that the file lacks;
    ``passed_over`` says why earlier sources were not taken.

    ``content`` is what the file is to be: what the source sent; where entries are kept, all of them in the registry's
    JSON; None where the source said that nothing changed. ``sha256`` is of what the source sent.
    """

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
    read: Read = sandbox.read,
) -> Pull:
    """The plan that would make the file at ``path`` what its source has. Sources, URLs or files, are tried in order.

    ``force`` takes the source as it is: a plan beyond the limit, what may have been signed earlier than what is there,
    and no entry kept. Raises UnsafePlan where a plan beyond it was all that was on offer, PullFailed where there was
    nothing, and OSError or ParserFailed where the file that is there cannot be read. One that is no registry any more
    is ``broken``, and held against is the last good state kept.
    """
    there = _There.read(path, read)
    note = read_pull_file(path)
    reasons: list[str] = []
    unsafe: UnsafePlan | None = None
    for source in sources:
        known = note if note.get("sha256") == there.held and note.get("source") == source else {}
        try:
            got = _get(source, str(known.get("etag", "")), str(known.get("modified", "")), cafile, seconds)
            signed = _verify(there, source, got, demands, note, cafile, seconds, force=force)
            pull = _judge(there, source, got, read, force=force)
            return replace(pull, signed=signed, passed_over=tuple(reasons))
        except UnsafePlan as error:
            unsafe = UnsafePlan(f"{source}: {error}")
            reasons.append(str(unsafe))
        except (FetchError, ParserFailed, TableError) as error:
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
    def read(cls, path: Path, read: Read) -> _There:
        """Raises OSError and ParserFailed."""
        if not path.exists():
            return cls(path, None, "", Table(), "")
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            return cls(path, content, sha256, read(content, filename=str(path))[0], "")
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
        return Fetched(source, _read_file(source, MAX_TABLE))
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


def _verify(
    there: _There,
    source: str,
    got: Fetched,
    demands: Demands,
    note: Mapping[str, object],
    cafile: str | None,
    seconds: float,
    *,
    force: bool,
) -> int | None:
    """When a source's content was signed, None where that is not demanded; nothing has parsed it yet. Raises FetchError
    where it is not as demanded, or where ``FILE.pull`` does not show that it is no older than the file."""
    digest = _digest(there, got)
    if demands.sha256 is not None and digest != demands.sha256.lower():
        raise FetchError(f"{source}: its SHA-256 is {digest}, not {demands.sha256.lower()}")
    if demands.public_key is None:
        return None
    content = there.content if got.content is None else got.content
    where = demands.signature or source + SUFFIX
    signed = _signed(source, where, demands.public_key, content or b"", cafile, seconds)
    before = note.get("signed")
    if force:
        return signed.at
    if isinstance(before, int):
        if signed.at is None:  # it may be of any time
            raise FetchError(f"{source}: its signature has no time, and that of the table that is there has")
        if signed.at < before:
            raise FetchError(f"{source}: signed earlier than the table that is there: an old one is sent again")
    elif there.content is not None and not note and digest != there.sha256:
        raise FetchError(
            f"{source}: {pull_file(there.path)} is missing, which says when the table that is there was signed:"
            " this one may be older (--force takes it)"
        )
    return signed.at


def _digest(there: _There, got: Fetched) -> str:
    return there.held if got.content is None else hashlib.sha256(got.content).hexdigest()


def _judge(there: _There, source: str, got: Fetched, read: Read, *, force: bool) -> Pull:
    """The pull that a source's content makes. Raises TableError, ParserFailed and UnsafePlan."""
    digest, content, etag, modified = _digest(there, got), got.content, got.etag, got.modified
    bad: list[TableError] = []
    if content is None:
        plan = Plan(size=len(there.table))
    else:
        table, bad = read(content, filename=source)
        kept = {} if force else _unreadable(there.table, table, bad)
        if kept:
            entries = {**table, **{key: there.table[key] for key in kept}}
            table = Table(entries.values(), metadata=table.metadata)
            content = registry.write_json(table).encode()
            etag = modified = ""  # they are of another content, and all of it is needed each time
            bad = [error for error in bad if _key(error) not in kept]
        plan = replace(Plan.between(there.table, table), kept=tuple(sorted(kept.items())))
        if not force:
            check(plan)
    return Pull(
        there.path,
        source,
        plan,
        content,
        digest,
        etag,
        modified,
        tuple(bad),
        broken=there.broken,
        before=there.sha256,
    )


def _unreadable(old: Table, new: Table, bad: Sequence[TableError]) -> dict[str, str]:
    """The records that were usable and that a source has in a form that cannot be read, each with the reason.

    A record so damaged that it has no key may be any of those that are gone.
    """
    named = {key: error.reason for error in reversed(bad) if (key := _key(error))}
    nameless = next((f"a record without a key cannot be read: {error}" for error in bad if not _key(error)), "")
    found = {}
    for key, entry in old.items():
        if key not in new and (key in named or nameless):
            found[key] = named.get(key, nameless)
        elif key in named and entry.nmas and not new[key].nmas:
            found[key] = named[key]
    return found


def _key(error: TableError) -> str:
    """The key of the record that an error is of; "" where it has none."""
    try:
        return "/".join(filter(None, parse_key(error.record)))
    except ValueError:
        return ""


def check(plan: Plan, limit: float = REMOVAL_LIMIT) -> None:
    """UnsafePlan where a plan removes more than this part of the table; or removes, leads elsewhere or cannot read.

    What else a record says may change in all of them, as it does from one form of the registry to the next.
    """
    plan.check(limit)
    moved = sum(old.nmas != new.nmas for old, new in plan.changed)
    touched = len(plan.removed) + moved + len(plan.kept)
    if plan.size and touched / plan.size > limit:
        raise UnsafePlan(
            f"the plan removes, changes the target of, or cannot read {touched} of {plan.size} records"
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
    sha256 = pull.before if pull.content is None else hashlib.sha256(pull.content).hexdigest()
    if there not in (pull.before, sha256):
        raise TableError("was changed since the plan was made; pull again", filename=str(pull.path))
    if pull.content is not None and there != sha256:
        if there and not pull.broken:
            backups.rotate(pull.path, keep)
        write_atomically(pull.path, pull.content)
    note: dict[str, object] = {
        "source": pull.source,
        "sha256": sha256,
        "etag": pull.etag,
        "modified": pull.modified,
        "checked": wall(),
    }
    if pull.signed is not None:
        note["signed"] = pull.signed
    write_atomically(pull_file(pull.path), json.dumps(note, indent=1).encode() + b"\n")


def jittered(seconds: float, uniform: Callable[[float, float], float]) -> float:
    """An interval with a random difference, so that clients do not all pull at once. ``uniform`` is ``random``'s."""
    return seconds * uniform(1 - JITTER, 1 + JITTER)
