"""Writing files so that a reader sees the old one or the new one, never half; and seeing whether one changed.

Locks that a forked child finds free, and objects that must be at rest while a process forks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Generic, Protocol, TypeVar

from maptr.protocol.names import Labels, to_text, to_wire

PRIVATE = 0o600  # what a server keeps holds what zone files hold, which may be for few to read
MAX_WHOLE = 1 << 28  # octets of a file that a server reads whole: 256 MiB, of a zone some two million names
MAX_NAME = 200  # octets of a zone's name in that of a file, which has 255 with what stands around it


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An OSError names the file that was meant: of a full disk it names none, else the half written one."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def read_whole(path: Path) -> bytes:
    """All of a regular file. Raises OSError, for what is none too, and for one longer than MAX_WHOLE.

    A pipe without a writer would hang whoever reads it, and a device has no end.
    """
    with _naming(path), open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        if S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Is no regular file")
        if status.st_size > MAX_WHOLE:
            raise OSError(errno.EFBIG, f"Has more than {MAX_WHOLE} octets")
        return file.read()


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, rename.

    A symbolic link stays, and the file it names is replaced; a device or a pipe is written to, for a rename would
    put a file in its place. Raises OSError; the old file is then untouched and nothing is left beside it.
    """
    with _naming(path):
        _write_atomically(path, content)


def _write_atomically(path: Path, content: bytes) -> None:
    import tempfile  # here, for a server that starts writes nothing

    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def keep(path: Path, *parts: bytes, sync: bool = True) -> None:
    """Replace a file that one process alone writes, mode 0600: a reader, or a crash, finds the old one or the new.

    What is half written has one name, so crashes leave one such file at most, and the next write takes it.
    ``sync``: it is on disk then. Raises OSError; nothing is left beside it.
    """
    with _naming(path):
        _keep(path, parts, sync)


def _keep(path: Path, parts: tuple[bytes, ...], sync: bool) -> None:
    half = path.with_name(f".{path.name}.new")
    try:
        half.unlink(missing_ok=True)
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        half.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise


def name_for(origin: Labels) -> str:
    """A zone's name as that of a file, no two alike: what no file name may hold is escaped, a long one is hashed."""
    name = to_text(origin).replace("\\", "%").replace("/", "%047").rstrip(".")
    if len(name) <= MAX_NAME:
        return name or "%root"  # a zone may be named root, and a % is always escaped
    import hashlib  # here, for hardly any name is so long

    return f"%{hashlib.blake2b(to_wire(origin), digest_size=32).hexdigest()}"


def stamp(path: Path) -> tuple[int, ...]:
    """What differs once the file was replaced or written to. Raises OSError."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


_getpid = os.getpid


class ForkLock:
    """``threading.Lock`` as a context, one for each process that has the object. What it guards must stay whole at
    any moment, for a fork may come in the midst of it."""

    __slots__ = ("_lock", "_locks", "_pid")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._locks = {self._pid: self._lock}

    def __enter__(self) -> None:
        if self._pid != _getpid():
            pid = _getpid()
            self._lock = self._locks.setdefault(pid, threading.Lock())  # the same for all threads of the child
            self._pid = pid
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        lock = self._locks.get(_getpid())
        return lock is not None and lock.locked()


class Suspendable(Protocol):
    def suspend(self) -> None:
        """Wait until no other thread uses it, and keep them out until ``resume``."""

    def resume(self) -> None: ...


T = TypeVar("T", bound=Suspendable)


class ForkGuard(Generic[T]):
    """Suspends the objects added to it before the process forks, and resumes them after it, in parent and child.

    ``lock`` is for what has to be at rest too and is no object's: a fork waits for it. Nothing else may be waited for
    by a thread that has it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant, as ``_fork``: a thread may fork in a signal handler
        self._fork = threading.RLock()  # one at a time
        self._all: weakref.WeakSet[T] = weakref.WeakSet()
        self._suspended: list[T] = []
        os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after)

    def add(self, one: T) -> None:
        with self.lock:
            self._all.add(one)

    def _before(self) -> None:
        self._fork.acquire()
        while True:
            self.lock.acquire()
            waiting = [one for one in self._all if one not in self._suspended]
            if not waiting:
                return
            self.lock.release()  # a thread that uses one of them may need it
            for one in waiting:
                one.suspend()
                self._suspended.append(one)

    def _after(self) -> None:
        while self._suspended:
            self._suspended.pop().resume()
        self.lock.release()
        self._fork.release()
