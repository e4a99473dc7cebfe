"""A start's progress, which is logged each second while it lasts."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

log = logging.getLogger("maptr.daemon")

EVERY = 1.0  # seconds between log lines


class StartProgress:
    """Logs ``doing``, which its owner sets, after each second in the context. A later context continues the count."""

    def __init__(self) -> None:
        self.doing = ""
        self._began = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> StartProgress:
        self._ended = threading.Event()
        threading.Thread(target=self._log, args=(self._ended,), name="progress", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()

    def _log(self, ended: threading.Event) -> None:
        while not ended.wait(EVERY):
            log.info("starting for %.0f s: %s", time.monotonic() - self._began, self.doing)
