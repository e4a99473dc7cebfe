"""A lock that a forked child finds free: whoever held it in the parent is no thread of the child, and never lets go."""

from __future__ import annotations

import os
import threading

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
