"""A headless Chromium, controlled over a pipe by its DevTools protocol.

    with Chromium() as browser:
        page = browser.open(path, width=400, dark=True)
        page.value("document.title")

Messages are JSON, each ended by a NUL, on the descriptors 3 and 4 of the browser.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.support.peers import find, skip_or_fail

COMMANDS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0  # for one answer on a busy machine; usually milliseconds
HEIGHT = 900


def program() -> str:
    """The path of the browser. Without one the test is skipped, or fails if MAPTR_REQUIRE_PEERS=1."""
    path = next(filter(None, map(find, COMMANDS)), None)
    return path or skip_or_fail("browser: Chromium is not installed; run scripts/test as root on Debian")


class Page(NamedTuple):
    """A loaded page and its events."""

    browser: Chromium
    session: str

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        done = self.browser.call(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """The parameters of events of these methods, the earliest first."""
        self.value("0")  # its answer comes after all earlier events
        mine = (event for event in self.browser.events if event.get("sessionId") == self.session)
        return [event["params"] for event in mine if event["method"] in methods]


class Chromium:
    """A browser with a temporary profile."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers = count(1)
        self._rest = b""

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="maptr-chromium-")
        command = [
            program(),
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",  # not available to root and in many containers; the pages are the tests' own
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={self._profile}",
            "about:blank",
        ]
        its_in, self._out = os.pipe()
        self._in, its_out = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{its_in} 4>&{its_out}', "bash", *command],
            pass_fds=(its_in, its_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_in)
        os.close(its_out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        os.close(self._out)  # the browser exits when the pipe is closed
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> Page:
        """Load a file in a window of this width in CSS pixels."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable", session)
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        page = Page(self, session)
        self.call("Page.navigate", session, url=path.resolve().as_uri())
        self._until(lambda: bool(page.events("Page.loadEventFired")))
        return page

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of one command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, happened: Any) -> None:
        deadline = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < deadline, "the browser does not answer"
            time.sleep(0.01)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], SECONDS)
            assert ready, "the browser does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, f"the browser exited with {self._process.poll()}"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
