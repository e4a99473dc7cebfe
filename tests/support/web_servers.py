"""nginx, Apache and Caddy with the redirects that ``maptr table export`` writes, used as their first comment says."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
from pathlib import Path
from typing import ClassVar, NamedTuple

from tests.support.peers import Checked, Peer, PeerError, run
from tests.support.waiting import until

MODULES = Path("/usr/lib/apache2/modules")


class Seen(NamedTuple):
    """The status of a response and its Location, None without one."""

    status: int
    location: str | None


class WebServer(Peer):
    """A web server with an exported file, on a port of 127.0.0.1. Its name is the format's."""

    check: ClassVar[str]  # the arguments that only check the configuration

    def __init__(self, exported: str) -> None:
        super().__init__({})
        self.exported = exported

    @property
    def usage(self) -> str:
        """The lines around the file, as in its first comment, for this port and file."""
        lines = [line[5:] for line in self.exported.splitlines() if line.startswith("#     ")]
        return re.sub(r"\bFILE\b", str(self.directory / "exported"), "\n".join(lines))

    def values(self) -> dict[str, object]:
        return {**super().values(), "usage": self.usage, "include": self.directory / "exported", "modules": MODULES}

    def configure(self) -> list[str]:
        self.directory.chmod(0o755)
        (self.directory / "exported").write_text(self.exported)
        (self.directory / "none").mkdir()
        return super().configure()

    def checked(self, directory: Path) -> Checked:
        """The result of the server's own configuration check."""
        self.directory = directory
        self.configure()
        return run(self.commands[0], *self.words(self.check), cwd=directory)

    def wait_until_ready(self) -> None:
        until(lambda: listens(self), self.log)

    def ask(self, targets: list[str], method: str = "GET") -> list[Seen]:
        """The responses to raw request targets, over one connection."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        with contextlib.closing(connection):
            return [self._ask(connection, method, target) for target in targets]

    def _ask(self, connection: http.client.HTTPConnection, method: str, target: str) -> Seen:
        connection.putrequest(method, target)
        connection.endheaders()
        response = connection.getresponse()
        response.read()
        return Seen(response.status, response.getheader("Location"))


def listens(peer: Peer) -> bool:
    """Whether it accepts connections. Raises PeerError if it has ended."""
    with contextlib.suppress(OSError), socket.create_connection((peer.host, peer.port), 1):
        return True
    if (code := peer.process.poll()) is not None:
        raise PeerError(f"{peer.name} ended with code {code}\n{peer.log()}")
    return False


class Nginx(WebServer):
    name = "nginx"
    commands = ("nginx",)
    files = ("nginx.conf",)
    arguments = "-p $directory -e $directory/log -c $directory/nginx.conf"
    check = arguments + " -t"
    settings = "user root;" if os.geteuid() == 0 else ""


class Apache(WebServer):
    name = "apache"
    commands = ("apache2",)
    files = ("apache.conf",)
    arguments = "-D FOREGROUND -f $directory/apache.conf"
    check = "-t -f $directory/apache.conf"

    @property
    def usage(self) -> str:
        return super().usage.replace("*:80", f"{self.host}:{self.port}")


class Caddy(WebServer):
    name = "caddy"
    commands = ("caddy",)
    files = ("Caddyfile",)
    arguments = "run --adapter caddyfile --config $directory/Caddyfile"
    check = "validate --adapter caddyfile --config $directory/Caddyfile"

    @property
    def usage(self) -> str:
        return super().usage.replace("ark.example.org", f"http://{self.host}:{self.port}")


WEB_SERVERS: tuple[type[WebServer], ...] = (Nginx, Apache, Caddy)
