"""The control socket, for its owner only (mode 0600). A request and its response are one line of JSON each.

The daemon executes the requests. Their size, time and number are limited.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from maptr.daemon.process import in_thread
from maptr.daemon.request_server import RequestServer
from maptr.daemon.sockets import MAX_REQUESTS, explained
from maptr.errors import ConfigError, json_text
from maptr.files import locked

log = logging.getLogger("maptr.serve")

Execute = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

KEY = "serve.control"  # the setting with the socket's path
MAX_REQUEST = 4096  # bytes of a request: a command, a zone name and options
MAX_SOCKET_PATH = 107  # bytes of sun_path without the final NUL (unix(7))
CONNECT_TIMEOUT = 1.0  # seconds for the test whether a server listens on an existing socket


def bind(path: Path) -> socket.socket:
    """Listen on a socket with mode 0600 at the path.

    Creates the directory, and replaces a socket on which no server listens. Raises ConfigError.
    """
    check_path(path)
    with explained(path, key=KEY):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(path.parent) as folder:  # if two servers start at once, the second must find the first's socket
            mode = os.fstat(folder).st_mode
            if mode & 0o022 and not mode & stat.S_ISVTX:
                raise _error(f"other users may write to {path.parent}, and could replace the socket")
            _remove_stale(path)
            return _bind(path)


def check_path(path: Path) -> None:
    """Raise ConfigError if the path is too long for a socket."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise _error(f"{path} is longer than the {MAX_SOCKET_PATH} bytes that the path of a socket may have")


def _remove_stale(path: Path) -> None:
    """Remove the socket of an earlier process. Raises ConfigError for one in use, and for another kind of file."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _error(f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_TIMEOUT)
        code = sock.connect_ex(str(path))
    if code != errno.ECONNREFUSED:
        raise _error(f"another maptr listens on {path}")
    log.info("control socket %s was left by an earlier process and is replaced", path)
    path.unlink()


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        # The file gets the mode of the descriptor, so other users never have access.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(MAX_REQUESTS)
    except BaseException:
        sock.close()
        raise
    return sock


def _error(message: str) -> ConfigError:
    return ConfigError(message, key=KEY)


def server(sock: socket.socket, execute: Execute) -> RequestServer:
    """Return a server that executes the requests on a bound socket."""

    async def result(line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            return {"error": "a request is one JSON object on a line"}
        try:
            return await execute(request)
        except Exception:
            log.exception("internal error, request dropped: %.200r", line)
            return {"error": "internal error; the log has it"}

    async def answer(line: bytes) -> bytes:
        found = await result(line)
        return await in_thread(lambda: json_text(found).encode() + b"\n")  # with thousands of zones it takes long

    return RequestServer(sock, answer, end=b"\n", limit=MAX_REQUEST)
