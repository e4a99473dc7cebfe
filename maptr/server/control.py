"""The control socket, for its owner and root (mode 0600). A request and its response are each one line of JSON.

Members of a configured group, such as a monitoring system's user, may ask for the status (mode 0660). The daemon
executes the requests. Their size, time and number are limited.
"""

from __future__ import annotations

import errno
import grp
import json
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from maptr.daemon.process import in_thread
from maptr.daemon.request_server import RequestServer
from maptr.daemon.sockets import MAX_REQUESTS, explained
from maptr.errors import ConfigError, MaptrError, json_text, reason_of
from maptr.files import locked

log = logging.getLogger("maptr.serve")

Execute = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

KEY = "serve.control"  # the setting with the socket's path
STATUS = "status"  # the command that changes nothing
_PEER = struct.Struct("=3i")  # struct ucred: process, user and group (unix(7))
MAX_REQUEST = 4096  # bytes of a request: a command, a zone name and options
MAX_SOCKET_PATH = 107  # bytes of sun_path without the final NUL (unix(7))
CONNECT_TIMEOUT = 1.0  # seconds to test whether a server listens on an existing socket


def bind(path: Path, group: str = "") -> socket.socket:
    """Listen on a socket at the path with mode 0600, or, if possible, with mode 0660 for a ``group``.

    Creates the directory, and replaces a socket on which no server listens. Raises ConfigError.
    """
    check_path(path)
    with explained(path, key=KEY):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(path.parent) as folder:  # if two servers start at once, the second must find the first's socket
            mode = os.fstat(folder).st_mode
            if mode & 0o022 and not mode & stat.S_ISVTX:
                raise _error(f"other users may write to {path.parent} and could replace the socket")
            _remove_stale(path)
            sock = _bind(path)
    if group and (reason := _share(path, group)):
        log.warning("control socket %s is not for the group %s: %s", path, group, reason)
    return sock


def _share(path: Path, group: str) -> str:
    """Let the members of a group connect. Returns the reason if that fails, or ""."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "this system does not tell who connects"
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
        path.chmod(0o660)
    except (KeyError, ValueError):
        return "there is no such group"
    except PermissionError:
        return "the user of the server is not a member of it"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check_path(path: Path) -> None:
    """Raise ConfigError if the path is too long for a socket."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise _error(f"{path} is longer than {MAX_SOCKET_PATH} bytes, the limit for the path of a socket")


def _remove_stale(path: Path) -> None:
    """Remove an earlier process's socket. Raises ConfigError if it is in use, or is another kind of file."""
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
    log.info("control socket %s, left by an earlier process, is replaced", path)
    path.unlink()


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        # The file gets the descriptor's mode, so other users never have access.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(MAX_REQUESTS)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_owner(sock: socket.socket) -> bool:
    """Return whether root or this process's user has connected. Without a group, no other user can."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, user, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return user in (0, os.geteuid())


def _error(message: str) -> ConfigError:
    return ConfigError(message, key=KEY)


class ControlServer(RequestServer):
    """Executes the requests on a bound socket."""

    def __init__(self, sock: socket.socket, execute: Execute) -> None:
        super().__init__(sock, self._answer, end=b"\n", limit=MAX_REQUEST)
        self._execute = execute

    async def respond(self, request: bytes, sock: socket.socket) -> bytes:
        if _is_owner(sock) or _command_of(request) == STATUS:
            return await self._answer(request)
        return _line({"error": "only root and the server's user may do more than ask for the status"})

    async def _answer(self, line: bytes) -> bytes:
        found = await self._result(line)
        return await in_thread(lambda: _line(found))  # it takes long with thousands of zones

    async def _result(self, line: bytes) -> dict[str, Any]:
        request = _read(line)
        if request is None:
            return {"error": "a request is one JSON object on a line"}
        try:
            return await self._execute(request)
        except MaptrError as error:  # the request cannot be fulfilled
            return {"error": reason_of(error)}
        except Exception:
            log.exception("internal error, request dropped: %.200r", line)
            return {"error": "internal error; see the log"}


def server(sock: socket.socket, execute: Execute) -> ControlServer:
    """Return a server that executes the requests on a bound socket."""
    return ControlServer(sock, execute)


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


def _command_of(line: bytes) -> object:
    return (_read(line) or {}).get("command")


def _line(document: dict[str, Any]) -> bytes:
    return json_text(document).encode() + b"\n"
