"""Waiting for the work of another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = 180.0  # seconds until a wait counts as failed: a machine may be slow, and busy with other work


def until(
    condition: Callable[[], Found], what: str | Callable[[], str], *, seconds: float = PATIENCE, pause: float = 0.005
) -> Found:
    """Wait until the condition is true, and return its value. Fails the test after some seconds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen: {what if isinstance(what, str) else what()}")
        time.sleep(pause)
    return found
