"""Atomic writing of files, bounded reading, files that are reread when they change, and a lock for forks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import BinaryIO, Generic, TypeVar

from maptr.errors import MaptrError
from maptr.protocol.names import Labels, to_text, to_wire

T = TypeVar("T")

PRIVATE = 0o600  # the mode of files in a state folder: zone data may be confidential
MAX_WHOLE = 1 << 28  # bytes that ``read_whole`` reads: 256 MiB, a zone of some two million names
CHUNK = 1 << 20  # bytes
LOOK_EVERY = 0.25  # seconds between two checks of a followed file's status
READ_EVERY = 60.0  # seconds after which such a file is read even if its status has not changed
TRY_AGAIN = 1.0  # seconds, if only a lock kept it from being read, which does not show in the file's status
# Windows has neither flag. AT_ONCE opens without waiting for the writer of a pipe.
AT_ONCE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
MAX_NAME = 200  # bytes of a zone's name in a file name, which may have 255 with prefix and suffix


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's path into an OSError, which otherwise names a temporary file or none."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises OSError, also for a pipe or a device, without waiting for it."""
    with naming(path), open(os.open(path, os.O_RDONLY | AT_ONCE), "rb") as file:  # noqa: PTH123
        mode = os.fstat(file.fileno()).st_mode
        if S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not S_ISREG(mode):
            raise OSError(errno.EINVAL, "Is not a regular file")
        yield file


def read_whole(path: Path, most: int = MAX_WHOLE) -> bytes:
    """Return the content of a regular file. Raises OSError, also for a pipe, a device, or more than ``most`` bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"Has more than {most} bytes", str(path))
        content: bytes | None = file.read(size + 1)  # one byte more shows that the file grows
        if content is None:  # some files of /proc would be waited for
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
        return content


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a file. Raises OSError."""
    made = hashlib.sha256()
    with opened(path) as file:
        while part := file.read(CHUNK):
            made.update(part)
    return made.digest()


def read_up_to(file: BinaryIO, most: int) -> bytes:
    """Return the rest of a file; if it is longer than ``most`` bytes, one more than ``most``.

    Python's own ``read`` allocates memory for ``most`` bytes at once. Raises OSError.
    """
    parts, left = [], most + 1
    while left and (part := file.read(min(left, CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def sqlite_errors() -> Iterator[None]:
    """Raise Python's error for a message of SQLite that quotes a damaged schema as SQLite's own for a damaged file."""
    try:
        yield
    except UnicodeDecodeError:
        import sqlite3  # here, because most programs that import this module have no database

        error = sqlite3.DatabaseError("the database is damaged")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error from None


def secret_fault(status: os.stat_result, *, shared: bool = False, for_other: bool = False) -> str:
    """Return why a file must not hold a secret; "" if it may.

    A file of root may be readable by its group: Debian's daemons keep keys like this, and the access list of systemd's
    credentials appears as these bits. ``shared``: any file may, because several daemons use one TLS key. ``for_other``:
    root checks it for a server that runs as another user.
    """
    if not S_ISREG(status.st_mode):
        return "is not a regular file"
    root = getattr(os, "geteuid", lambda: -1)() == 0
    forbidden = 0o037 if shared or (status.st_uid == 0 and (for_other or not root)) else 0o077
    if status.st_mode & forbidden:
        return f"has mode {S_IMODE(status.st_mode):04o}: others can read or change the secret; chmod 600 it"
    return ""


def open_to_all(path: Path) -> str:
    """Return how everybody may read a file that has a secret; "" if not, or if that cannot be known."""
    with contextlib.suppress(OSError):
        mode = S_IMODE(path.stat().st_mode)
        if mode & 0o004:
            return (
                f"has mode {mode:04o}: everybody on this machine can read the secret in it; chmod {mode & ~0o007:o} it"
            )
    return ""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader sees the old or the new one: write beside it, flush, rename, flush the folder.

    Through a symbolic link, the file behind it is replaced. A device or a pipe is written to. Raises OSError; the old
    file is then unchanged and nothing is left beside it.
    """
    with naming(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode & 0o7777 if target.exists() else None
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        handle = os.open(temporary, _NEW, 0o666 if mode is None else PRIVATE)  # the umask applies
        _fill_and_rename(handle, temporary, target, (content,), mode)


def write_private(path: Path, *parts: bytes) -> None:
    """Atomically replace a file with mode 0600 that only one process writes, and flush it to disk.

    The temporary file always has the same name, so that a crash leaves at most one such file, which the next write
    removes. Raises OSError; nothing is then left beside the file.
    """
    write_private_parts(path, parts)


def write_private_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Do the same as ``write_private`` with parts that are made one after the other."""
    temporary = path.with_name(f".{path.name}.new")
    with naming(path):
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, _NEW, PRIVATE)
        _fill_and_rename(handle, temporary, path, parts, PRIVATE)


def _fill_and_rename(handle: int, temporary: Path, target: Path, parts: Iterable[bytes], mode: int | None) -> None:
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(handle)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(handle, mode)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(PermissionError):  # a folder that may be written to, but not read
        flush_to_disk(target.parent)


def flush_to_disk(path: Path) -> None:
    """Let a file, or the names in a folder, survive a power failure. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | AT_ONCE)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no way to do this
            raise
    finally:
        os.close(handle)


def name_for(origin: Labels) -> str:
    """Return a unique file name for a zone: special characters are escaped, and a long name is hashed."""
    name = to_text(origin).replace("\\", "%").replace("/", "%047").rstrip(".")
    if len(name) <= MAX_NAME:
        return name or "%root"  # unambiguous, because a % in a name is escaped
    return f"%{hashlib.blake2b(to_wire(origin), digest_size=32).hexdigest()}"


def file_signature(path: Path) -> tuple[int, ...]:
    """Return a value that changes if the file is replaced or written to. Raises OSError."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def signature_if_any(path: Path | None) -> tuple[int, ...]:
    """Return ``file_signature``; () without a file, or if it cannot be looked at."""
    with contextlib.suppress(OSError):
        return () if path is None else file_signature(path)
    return ()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Exclude other processes that lock the folder itself, which needs no file; yields its descriptor. Raises OSError.

    Windows cannot do this: nothing is excluded there, and the descriptor is -1.
    """
    try:
        import fcntl  # here, because Windows does not have it
    except ImportError:
        yield -1
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


class ForkLock:
    """A ``threading.Lock`` with a free lock in each forked child. A fork may happen while it is held, so what it guards
    must be consistent at any moment."""

    __slots__ = ("_lock", "_locks", "_pid")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._locks = {self._pid: self._lock}

    def __enter__(self) -> None:
        if self._pid != (pid := os.getpid()):
            self._lock = self._locks.setdefault(pid, threading.Lock())  # one for all threads of the child
            self._pid = pid
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        lock = self._locks.get(os.getpid())
        return lock is not None and lock.locked()


class Followed(Generic[T]):
    """A value read from a file, and reread when the file changes; ``value`` is the last result.

    ``read`` makes the next value from the last one. If it raises an exception, or if the file changes meanwhile, the
    next value comes from ``failed``, which gets the last one and the error, as a MaptrError or an OSError: the last
    good content, with the reason for keeping it. The file is stat'ed every LOOK_EVERY seconds. A file that could not be
    read is reread after a minute, as is any file with ``always``; after an error that is ``passing``, a second later.
    ``beside`` is another file that ``read`` may read. ``clock`` is monotonic. Thread-safe.
    """

    def __init__(
        self,
        path: Path,
        value: T,
        read: Callable[[T], T],
        failed: Callable[[T, MaptrError | OSError], T],
        *,
        clock: Callable[[], float],
        always: bool = False,
        beside: Path | None = None,
        passing: Callable[[Exception], bool] = lambda error: False,
    ) -> None:
        self.path = path
        self._passing = passing
        self._beside = beside
        self.value = value
        self._read = read
        self._failed = failed
        self._clock = clock
        self._always = always
        self._signature: tuple[int, ...] | None = None
        self._look_at = self._read_at = -math.inf
        self._lock = ForkLock()

    @property
    def is_read(self) -> bool:
        """Whether the file was read, with or without success."""
        return self._signature is not None

    def is_due(self) -> bool:
        """Return whether to read the file now. Looks at its status, unless it did so a moment ago."""
        now = self._clock()
        if now < self._look_at or self._lock.locked():
            return False
        self._look_at = now + LOOK_EVERY
        return now >= self._read_at or self._look() != self._signature

    def _look(self) -> tuple[int, ...]:
        return signature_if_any(self.path) + signature_if_any(self._beside)

    def current(self) -> T:
        """Return the value, and read the file first if that is due."""
        if self.is_due():
            self.refresh()
        return self.value

    def refresh(self) -> T:
        """Read the file now."""
        with self._lock:
            now = self._clock()
            self._look_at, self._read_at = now + LOOK_EVERY, now + READ_EVERY
            self._signature = self._look()
            try:
                value = self._read(self.value)
                if self._look() != self._signature:
                    raise OSError("the file changed while it was read")
                self.value = value
                if not self._always:
                    self._read_at = math.inf
            except (MaptrError, OSError) as error:
                self._read_at = now + (TRY_AGAIN if self._passing(error) else READ_EVERY)
                self.value = self._failed(self.value, error)
            except Exception as error:  # an unexpected error of one file must not stop the others
                self.value = self._failed(self.value, MaptrError(f"internal error: {error!r}"))
            return self.value
