"""The progress bar of long work, on stderr.

The bar appears once the work has taken DELAY seconds, makes way for each line that goes to a terminal, and is cleared
at the end.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any, TextIO

    from rich.progress import Progress

DELAY = 0.3  # seconds

_bar: ContextVar[Bar | None] = ContextVar("bar", default=None)  # which is shown, or will be


class Bar:
    """A progress bar. A thread shows it, so that its owner need not call ``update``."""

    def __init__(self, label: str, total: float | None = None, *, colored: bool = True) -> None:
        from threading import RLock, Timer  # late: few command lines have a bar

        self._label, self._total, self._done = label, total, 0.0
        self._colored = colored
        self._lock = RLock()  # of what follows
        self._closed = False
        self._shown: Progress | None = None
        self._timer = Timer(DELAY, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Bar:
        _bar.set(self)
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        _bar.set(None)
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._shown is not None:
                self._shown.stop()

    def update(
        self, *, advance: float = 0, completed: float | None = None, total: float | None = None, label: str = ""
    ) -> None:
        """Take the work that was done since, or in all; a new total; a new label."""
        self._done = self._done + advance if completed is None else completed
        self._total = total or self._total
        self._label = label or self._label
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], **self._state())

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Without the bar on the terminal."""
        with self._lock:
            if self._shown is None:
                yield
                return
            self._shown.stop()
            try:
                yield
            finally:
                self._shown.start()

    def _show(self) -> None:
        from rich.console import Console  # late: they take a tenth of a second to import
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        shown = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[share]:>4}"),
            TimeElapsedColumn(),
            console=Console(stderr=True, force_terminal=True, no_color=not self._colored),
            transient=True,
            redirect_stdout=False,  # rich would write data to stderr
            redirect_stderr=False,
        )
        with self._lock:
            if not self._closed:
                shown.add_task(**self._state())
                shown.start()
                self._shown = shown

    def _state(self) -> dict[str, Any]:
        share = f"{100 * min(self._done / self._total, 1):.0f}%" if self._total else ""
        return {"description": self._label, "total": self._total, "completed": self._done, "share": share}


def aside(file: TextIO) -> AbstractContextManager[None]:
    """Without a bar on the terminal, if the file is one, while a line is written to it."""
    bar = _bar.get()
    return bar.aside() if bar is not None and file.isatty() else nullcontext()
