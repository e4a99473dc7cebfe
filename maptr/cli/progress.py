"""The progress bar of a long task, on stderr.

The bar appears once the task has taken DELAY seconds, is hidden while a line is printed on a terminal, and is cleared
at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

DELAY = 0.3  # seconds

_bar: ContextVar[Bar | None] = ContextVar("bar", default=None)  # the bar of the current task


class Bar:
    """A progress bar. A thread shows it when it is due, even if ``update`` is never called."""

    def __init__(self, label: str, total: float | None, *, colored: bool) -> None:
        from threading import RLock, Timer  # late: few command lines have a bar

        self._label, self._total, self._done = label, total, 0.0
        self._colored = colored
        self._lock = RLock()  # guards the next
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
        self._timer.join()
        if self._shown is not None:
            self._shown.stop()

    def update(self, *, advance: float = 0, completed: float | None = None, total: float | None = None) -> None:
        """Report the amount done, since the last call (``advance``) or in all (``completed``), or the total."""
        self._done = self._done + advance if completed is None else completed
        self._total = total or self._total
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], **self._state())

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar while the block runs."""
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
        from rich.console import Console  # late: rich takes a tenth of a second to import
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
            shown.add_task(**self._state())
            shown.start()
            self._shown = shown

    def _state(self) -> dict[str, Any]:
        share = f"{100 * min(self._done / self._total, 1):.0f}%" if self._total else ""
        return {"description": self._label, "total": self._total, "completed": self._done, "share": share}


def aside(file: TextIO) -> AbstractContextManager[None]:
    """Hide the current bar while a line is written to the file, if the file is a terminal."""
    bar = _bar.get()
    return bar.aside() if bar is not None and file.isatty() else nullcontext()
