"""A lock that a forked child finds free: whoever held it in the parent is no thread of the child, and never lets go."""

from __future__ import annotations

import os
import threading
from types import TracebackType


class ForkLock:
    """``threading.Lock`` as a context, one for each process that has the object. What it guards must stay whole at
    any moment, for a fork may come in the midst of it."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks = {os.getpid(): threading.Lock()}

    def __enter__(self) -> None:
        pid = os.getpid()
        lock = self._locks.get(pid) or self._locks.setdefault(pid, threading.Lock())
        lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._locks[os.getpid()].release()

    def locked(self) -> bool:
        lock = self._locks.get(os.getpid())
        return lock is not None and lock.locked()
