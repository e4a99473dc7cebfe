"""Discoveries that can be handed out as they are, by the text of their ARK: what makes a hit cost a microsecond."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from maptr.discovery import Discovery
from maptr.files import ForkLock

MAX_READY = 10_000


class Ready:
    """For threads. ``clock`` is steady; what lies here past its time is as if it did not."""

    def __init__(self, clock: Callable[[], float], size: int = MAX_READY) -> None:
        self._clock = clock
        self._size = size
        self._kept: OrderedDict[str, tuple[float, Discovery]] = OrderedDict()
        self._lock = ForkLock()

    def get(self, ark: str) -> Discovery | None:
        ready = self._kept.get(ark)
        if ready is None or ready[0] <= self._clock():
            return None
        return ready[1]

    def put(self, ark: str, found: Discovery, until: float) -> None:
        """Keep a discovery until that time; handed out again it is of memory."""
        if until <= self._clock():
            return
        with self._lock:
            self._kept[ark] = (until, found if found.source != "dns" else found.replace(source="memory"))
            self._kept.move_to_end(ark)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
