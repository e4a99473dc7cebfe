"""The progress bar of a long task, on stderr.

The bar appears once the task has taken DELAY seconds, is hidden while a line is printed on a terminal, and is cleared
at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import count
from typing import Any, TextIO

DELAY = 0.3  # seconds
PAUSE = 0.2  # seconds between two pictures
CLEAR = "\r\x1b[2K\x1b[?25h"  # an empty line, and the cursor, which click hides

_bar: ContextVar[Bar | None] = ContextVar("bar", default=None)  # the bar of the current task


class Bar:
    """A progress bar. A thread draws it, even if ``update`` is never called."""

    def __init__(self, label: str, total: float | None) -> None:
        from threading import Event, RLock, Thread  # late: few command lines have a bar

        self._label, self._total, self._done = label, total, 0.0
        self._since = time.monotonic()
        self._ended = Event()
        self._lock = RLock()  # guards the next
        self._drawn: Any = None  # click's bar, if it is on the screen
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bar:
        _bar.set(self)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        _bar.set(None)
        self._ended.set()
        self._thread.join()
        self._clear()

    def update(self, *, advance: float = 0, completed: float | None = None, total: float | None = None) -> None:
        """Report the amount done, since the last call (``advance``) or in all (``completed``), or the total."""
        self._done = self._done + advance if completed is None else completed
        self._total = total or self._total

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar while the block runs."""
        with self._lock:
            self._clear()
            yield

    def _run(self) -> None:
        pause = DELAY
        while not self._ended.wait(pause):
            pause = PAUSE
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._drawn is None:
            from click import progressbar  # late: ``start`` runs without click

            self._drawn = progressbar(
                count(),
                label=self._label,
                show_eta=False,
                item_show_func=lambda _: f"{time.monotonic() - self._since:.0f} s",
                file=sys.stderr,
            )
        self._drawn.length = None if self._total is None else int(self._total)
        self._drawn.pos = int(self._done)
        self._drawn.render_progress()

    def _clear(self) -> None:
        if self._drawn is not None:
            self._drawn = None
            sys.stderr.write(CLEAR)
            sys.stderr.flush()


def aside(file: TextIO) -> AbstractContextManager[None]:
    """Hide the current bar while a line is written to the file, if the file is a terminal."""
    bar = _bar.get()
    return bar.aside() if bar is not None and file.isatty() else nullcontext()
