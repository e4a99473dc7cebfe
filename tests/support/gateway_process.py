"""``maptr gateway`` as a process, and requests to it with raw targets, by a socket and by curl."""

from __future__ import annotations

import http.client
import sys
from contextlib import closing
from email.parser import Parser
from typing import NamedTuple

from tests.support.peers import HOST, Maptr, require, run

SECONDS = 30.0  # for one response on a busy machine


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: str


class GatewayProcess(Maptr):
    """A gateway on a free port, with more options of the command line."""

    name = "gateway"

    def __init__(self, *options: str) -> None:
        super().__init__({}, *options)

    def configure(self) -> list[str]:
        return [sys.executable, "-m", "maptr", "gateway", f"--listen={self.host}:{self.port}", *self.options]

    def ready(self) -> int:
        return int(self.wait_for(r"^maptr: ready, serving on https?://127\.0\.0\.1:(\d+)/")[1])

    def wait_until_ready(self) -> None:
        self.ready()

    def ask(self, target: str, method: str = "GET", *, body: str | None = None, **headers: str) -> Reply:
        """The response to a request on a connection of its own."""
        return request(self.port, target, method, body=body, **headers)

    def connect(self) -> http.client.HTTPConnection:
        """A connection for many requests."""
        return http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)

    def curl(self, target: str, method: str = "GET", *, body: str | None = None, **headers: str) -> Reply:
        """The response to curl."""
        require("curl")
        options = ["-I"] if method == "HEAD" else ["-i", "-X", method]
        options += [f"-H{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        options += [] if body is None else ["--data-binary", body]
        url = f"http://{self.host}:{self.port}{target}"
        done = run("curl", "-sS", "--path-as-is", "-g", "-m", f"{SECONDS:.0f}", *options, url)
        assert done.accepted, done.output
        head, _, text = done.output.replace("\r\n", "\n").partition("\n\n")
        status, _, lines = head.partition("\n")
        return Reply(int(status.split()[1]), _lower(Parser().parsestr(lines).items()), text)


def request(port: int, target: str, method: str = "GET", *, body: str | None = None, **headers: str) -> Reply:
    """The response to a request on a connection of its own. Underscores in names of headers stand for hyphens."""
    with closing(http.client.HTTPConnection(HOST, port, timeout=SECONDS)) as connection:
        return ask(connection, target, method, body=body, **headers)


def ask(
    connection: http.client.HTTPConnection, target: str, method: str = "GET", *, body: str | None = None, **headers: str
) -> Reply:
    """The response on an open connection."""
    content = None if body is None else body.encode()
    connection.request(method, target, content, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    return Reply(response.status, _lower(response.getheaders()), response.read().decode("utf-8", "replace"))


def _lower(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in pairs}
