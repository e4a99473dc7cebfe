"""Chromium, headless and controlled by its DevTools protocol, with axe-core."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.peers import find, skip_or_fail
from tests.support.waiting import PATIENCE, until

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = "browser: Chromium is not installed; run scripts/test as root on Debian"


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

    def wait(self, loads: int) -> None:
        """Wait until that many documents have been loaded in this window."""

        def is_loaded() -> bool:
            self.browser.call("Browser.getVersion")  # a script would fail while one page replaces another
            return self._count("Page.loadEventFired") >= loads

        until(is_loaded, "the page is loaded")

    def troubles(self) -> list[str]:
        """What the browser reports: script and network errors, refused styles, dialogs, and warnings."""
        methods = (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(event) for event in self.events(*methods)]

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        shot = self.browser.call("Page.captureScreenshot", self.session, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def faults(self, *impacts: str) -> list[str]:
        """axe-core's findings with these impacts, by default serious and critical ones."""
        axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
        self.value(f"{axe}; 0")
        found = self.value("axe.run().then(found => found.violations)")
        return [
            f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
            for one in found
            if one["impact"] in (impacts or ("serious", "critical"))
            for node in one["nodes"]
        ]

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """The parameters of events of these methods, the earliest first."""
        self.value("0")  # its answer comes after all earlier events
        return [event["params"] for event in self._mine() if event["method"] in methods]

    def _mine(self) -> Iterator[dict[str, Any]]:
        return (event for event in self.browser.events if event.get("sessionId") == self.session)

    def _count(self, method: str) -> int:
        return sum(event["method"] == method for event in self._mine())


class Chromium:
    """A headless Chromium with a temporary profile, controlled over a pipe by its DevTools protocol.

    Messages are JSON, each ended by a NUL, on the descriptors 3 and 4 of the browser.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers = count(1)
        self._rest = b""

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="maptr-chromium-")
        command = [
            next(filter(None, map(find, BROWSERS)), None) or skip_or_fail(MISSING),
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

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser exits when the pipe is closed
        os.close(self._in)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, where: Path | str, *, width: int = 1280, dark: bool = False) -> Page:
        """Load a file or a URL in a window of this width in CSS pixels."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable", session)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        page = Page(self, session)
        self.call("Page.navigate", session, url=where if isinstance(where, str) else where.resolve().as_uri())
        page.wait(1)
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

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            assert ready, "the browser does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, f"the browser exited with {self._process.poll()}"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
