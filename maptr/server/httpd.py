"""A small HTTP server for metrics and health: one request a connection, bounded in size, time and number.

Not for crowds, and for nobody's browser: GET and HEAD of two paths. What it says is told by a function.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from maptr.protocol.address import Address
from maptr.server.bind import cannot_listen, open_tcp_socket
from maptr.server.conversations import Conversations

log = logging.getLogger("maptr.serve")

MAX_REQUEST = 8192  # octets of request line and headers: what most servers take, and no scraper comes near it
REQUEST_SECONDS = 5.0  # for a whole request to come
REPLY_SECONDS = 10.0  # for a reply to be made and taken: Prometheus waits as long by default

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a path gives."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


Handler = Callable[[str], Awaitable[Reply | None]]  # of a path; None: there is nothing


def bind(address: Address) -> socket.socket:
    """Listen there. Raises ConfigError."""
    try:
        return open_tcp_socket(address.host, address.port)
    except OSError as error:
        raise cannot_listen(address, error, key="serve.metrics") from error


class HttpServer:
    """Answers requests on a bound socket."""

    def __init__(self, sock: socket.socket, handle: Handler) -> None:
        self._sock = sock
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._conversations = Conversations(self._serve)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._conversations.accept, sock=self._sock, limit=MAX_REQUEST)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._conversations.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return  # gone before it had asked
            except asyncio.LimitOverrunError:
                reply, is_head = _said(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
            else:
                async with asyncio.timeout(REPLY_SECONDS):
                    reply, is_head = await self._answer(head)
            async with asyncio.timeout(REPLY_SECONDS):
                writer.write(_octets(reply, is_head=is_head))
                await writer.drain()
                writer.write_eof()
                # What came beyond the request is read, for to close before that would reset the connection and
                # could take the reply with it.
                while await reader.read(MAX_REQUEST):
                    pass

    async def _answer(self, head: bytes) -> tuple[Reply, bool]:
        """The reply, and whether its body is left out."""
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _said(HTTPStatus.BAD_REQUEST), False
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED), False
        try:
            with self._conversations.answering():
                reply = await self._handle(target.partition("?")[0])
        except Exception:
            log.exception("internal error, no reply to an HTTP request")
            return _said(HTTPStatus.INTERNAL_SERVER_ERROR), method == "HEAD"
        return reply or _said(HTTPStatus.NOT_FOUND), method == "HEAD"


def _said(status: HTTPStatus) -> Reply:
    return Reply(f"{status.phrase}\n".encode(), status)


def _octets(reply: Reply, *, is_head: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(["Allow: GET, HEAD"] if reply.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else reply.body)
