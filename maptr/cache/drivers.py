"""Driving the steps of a call in a thread: the caller flies the question himself, or waits for whoever flies it."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable

from maptr.cache.engine import Answering, Steps, Wait
from maptr.discovery import Discovery

Ask = Callable[..., Discovery]


class Driver:
    """Asks by ``ask``, which takes an ARK and a request's ``ask`` options."""

    def __init__(self, answering: Answering, ask: Ask) -> None:
        self._answering = answering
        self._ask = ask

    def drive(self, steps: Steps) -> tuple[Discovery, float]:
        """The end of the steps. A question that the caller stops waiting for goes on in a thread of its own."""
        try:
            while True:
                wait = next(steps)
                if wait.fly and wait.inline:
                    self._fly(wait)
                elif wait.fly:
                    threading.Thread(target=self._fly, args=(wait,), name="maptr-ask", daemon=True).start()
                if wait.seconds:
                    concurrent.futures.wait([wait.flight.landed], timeout=wait.seconds)
        except StopIteration as done:
            end: tuple[Discovery, float] = done.value
        return end

    def _fly(self, wait: Wait) -> None:
        try:
            result = self._ask(wait.request.ark, **wait.request.ask)
        except BaseException as error:
            self._answering.failed(wait.flight, wait.request, error)
        else:
            self._answering.landed(wait.flight, wait.request, result)
