"""Forks: locks that a forked child finds free, and objects that must be at rest while the process forks."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Generic, Protocol, TypeVar

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
