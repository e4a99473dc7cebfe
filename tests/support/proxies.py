"""tinyproxy, an HTTP proxy, on a port of 127.0.0.1."""

from __future__ import annotations

import pytest

from tests.support.peers import Peer
from tests.support.waiting import until
from tests.support.web_servers import listens

VARIABLES = tuple(
    name for each in ("https", "http", "all", "no") for name in (f"{each}_proxy", f"{each}_proxy".upper())
)


class TinyProxy(Peer):
    """It accepts clients with the ``credentials``, USER:PASSWORD in an environment variable; without these, any
    client."""

    name = "tinyproxy"
    commands = ("tinyproxy",)
    files = ("tinyproxy.conf",)
    arguments = "-d -c $directory/tinyproxy.conf"

    def __init__(self, credentials: str = "") -> None:
        super().__init__({})
        self.settings = f"BasicAuth {credentials.replace(':', ' ')}" if credentials else ""
        self.url = f"http://{self.host}:{self.port}"
        self.with_credentials = self.url.replace("//", f"//{credentials}@") if credentials else self.url

    def wait_until_ready(self) -> None:
        until(lambda: listens(self), self.log)

    def passed(self) -> list[str]:
        """The targets of the requests so far."""
        log = (self.directory / "requests").read_text()
        return [line.split()[-2] for line in log.splitlines() if "Request (file descriptor" in line]


def set_proxies(patch: pytest.MonkeyPatch, **variables: str) -> None:
    """Set these environment variables, and remove all others about proxies."""
    for name in (*VARIABLES, "REQUEST_METHOD"):
        patch.delenv(name, raising=False)
    for name, value in variables.items():
        patch.setenv(name, value)
