"""The control socket: one JSON request a line, one JSON reply a line, for whoever may open the socket (mode 0600).

What a request does is the daemon's business. Requests are bounded in size and time, and so is their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from maptr.errors import ConfigError
from maptr.server.bind import cannot_listen
from maptr.server.conversations import MAX_CONNECTIONS, Conversations

log = logging.getLogger("maptr.serve")

Request = dict[str, Any]
Handler = Callable[[Request], Awaitable[dict[str, Any]]]

KEY = "serve.control"  # the setting with the socket's path
MAX_REQUEST = 4096  # octets of a request: a command, a zone's name and a flag or two
REQUEST_SECONDS = 10.0  # for a whole request to come, and for a reply to be taken
MAX_SOCKET_PATH = 107  # octets of sun_path without the final NUL (unix(7))
CONNECT_SECONDS = 1.0  # to find out whether somebody listens on a socket that is there already


def bind(path: Path) -> socket.socket:
    """Listen on a socket at the path, mode 0600, in a directory made for it where there is none.

    A socket that nobody listens on any more is replaced. Raises ConfigError.
    """
    check_path(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            _make_way(path)
            return _bind(path)
    except OSError as error:
        raise cannot_listen(path, error, key=KEY) from error


def check_path(path: Path) -> None:
    """That a socket may have the path. Raises ConfigError."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise _error(f"{path} is longer than the {MAX_SOCKET_PATH} octets a socket's path may have")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Alone in the directory, so that of two that start at once one sees the other's socket."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            raise _error(f"others may write to {directory}, and could put a socket of their own there")
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make_way(path: Path) -> None:
    """Remove a socket that an earlier process left. Raises ConfigError for one in use, and for what is no socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _error(f"{path} is there and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_SECONDS)
        code = sock.connect_ex(str(path))
    if code != errno.ECONNREFUSED:
        raise _error(f"another maptr listens on {path}")
    log.info("control socket %s was left by an earlier process and is replaced", path)
    path.unlink()


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        # The mode of the descriptor is what bind gives the file: at no moment is it wider than this.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(MAX_CONNECTIONS)
    except BaseException:
        sock.close()
        raise
    return sock


def _error(message: str) -> ConfigError:
    return ConfigError(message, key=KEY)


class ControlServer:
    """Answers requests on a bound socket, and takes the socket's file away at the end."""

    def __init__(self, sock: socket.socket, handle: Handler) -> None:
        self._sock = sock
        self._path = Path(sock.getsockname())
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._conversations = Conversations(self._serve)

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._conversations.accept, sock=self._sock, limit=MAX_REQUEST)

    async def stop(self) -> None:
        if self._server is None:
            self._sock.close()
        else:
            self._server.close()
        with contextlib.suppress(OSError):
            self._path.unlink()
        await self._conversations.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its reply. What came in time and form is answered; the rest is hung up on."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(REQUEST_SECONDS):
                try:
                    line = await reader.readuntil(b"\n")
                except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    line = b""
            reply = await self._reply(line)
            writer.write(json.dumps(reply).encode() + b"\n")
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
                writer.close()
                await writer.wait_closed()

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            return {"error": f"a request is one JSON object on a line of at most {MAX_REQUEST} octets"}
        try:
            with self._conversations.answering():
                return await self._handle(request)
        except Exception:
            log.exception("internal error, request dropped: %.200r", line)
            return {"error": "internal error; the log has it"}
