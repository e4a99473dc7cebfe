"""The HTTP connections of the gateway: accepting them, the PROXY protocol, TLS, and their limits.

A connection is *idle*, at its start and after each response, until it has sent a whole request with its body. It is
closed if that takes too long or if its client does not read; at the limit, the longest idle one is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from aiohttp import web

from maptr.config.model import ConnectionLimits, GatewayConfig
from maptr.daemon.background import Repetitions
from maptr.daemon.connections import Acceptor, Counts, OpenConnections
from maptr.daemon.private import has_further_requests, shrink_tls_buffers
from maptr.daemon.sockets import MAX_REQUESTS, limits_within_descriptors
from maptr.gateway.proxies import Proxies, read_proxy_header

log = logging.getLogger("maptr.gateway")

MAX_TARGET = 16_384  # bytes: an ARK of 8,192 in a query string, where many bytes take three
MAX_HEADER = 8190  # bytes of one header
LINGER_TIMEOUT = 2.0  # seconds to read the rest of a rejected body, so that the client reads the response
QUIET_TIMEOUT = 0.5  # seconds for which a stopping server still answers on open connections
DRAIN_TIMEOUT = 10.0  # seconds for pending requests when the server stops: longer than a look-up
DRAIN_INTERVAL = 0.02  # seconds between two looks at them
CHECK_INTERVAL = 1.0  # seconds between two checks for connections that are idle for too long
ACCEPT_AT_ONCE = 16  # connections accepted before others are answered, and before idle ones are closed for them
MAX_FOR_OPERATORS = 2 * MAX_REQUESTS  # operators' connections; their descriptors are reserved
MAX_PARTS = 64  # pieces in which the parser gets one read of a client's data

Refuse = Callable[[web.BaseRequest, int, BaseException | None], web.Response]


class HttpConnection(web.RequestHandler):
    """One connection, from when it is accepted. ``client`` is its client, which a proxy may name."""

    def __init__(self, listener: HttpListener, sock: socket.socket, client: str) -> None:
        self._listener = listener
        self._sock = sock
        self.client = client
        self.link: asyncio.Transport | None = None  # None until the handshake ends
        self._has_ended = self._is_wary = self._is_aborted = False
        super().__init__(
            listener.manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            max_line_size=MAX_TARGET,
            max_field_size=MAX_HEADER,
            lingering_time=LINGER_TIMEOUT,
            auto_decompress=False,
        )

    def abort(self) -> None:
        """Close the connection at once; during a TLS handshake through its socket: asyncio has no other clean way."""
        self._is_aborted = True
        if self.link is not None:
            self.link.abort()
        else:
            with contextlib.suppress(OSError):  # the client has reset the connection
                self._sock.shutdown(socket.SHUT_RDWR)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.link = cast(asyncio.Transport, transport)
        self._listener.connections.idle(self)
        super().connection_made(transport)
        if self._is_aborted:
            self.link.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._listener.connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Once a client has asked for another protocol, give the parser one request at a time: it drops what follows
        such a request, although we answer that like any other (RFC 9110 7.8)."""
        self._is_wary = self._is_wary or b"pgrade" in data or b"PGRADE" in data
        if self._is_wary:
            for _ in range(MAX_PARTS):
                head, end, data = data.partition(b"\r\n\r\n")
                if not data:
                    data = head + end
                    break
                super().data_received(head + end)
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more, but may still read: its pending requests are answered first. TLS cannot do that."""
        super().eof_received()
        self._has_ended = True
        is_asked = has_further_requests(self) or self._listener.connections.is_busy(self)
        return is_asked and self.link is not None and self.link.get_extra_info("sslcontext") is None

    def is_last(self) -> bool:
        """Return whether the client will send no more requests after those being answered."""
        return (self._has_ended and not has_further_requests(self)) or self._listener.is_stopping

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Replaces aiohttp's pages and its log, which any client could fill."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the response is sent")
        return self._listener.refuse(request, status, exc)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        if isinstance(error := kw.get("exc_info"), Exception):
            self._listener.log_error(error)


class HttpListener(Acceptor[HttpConnection]):
    """Accepts connections for ``manager``. ``refuse`` responds to requests that aiohttp cannot read.

    ``is_admin``: at most MAX_FOR_OPERATORS connections.
    """

    at_once = ACCEPT_AT_ONCE

    def __init__(self, counts: Counts, refuse: Refuse, *, is_admin: bool = False) -> None:
        super().__init__(OpenConnections(ConnectionLimits(), counts))
        self.refuse = refuse
        self._is_admin = is_admin
        self.is_stopping = False
        self.manager: web.Server
        self._errors = Repetitions()

    def configure(self, settings: GatewayConfig, proxies: Proxies, tls: ssl.SSLContext | None) -> None:
        """Use these from now on; the certificate applies to new connections."""
        self._settings = settings
        self._proxies = proxies
        self.tls = tls
        limits = ConnectionLimits(settings.max_connections, settings.max_per_client, settings.idle_timeout)
        if self._is_admin:
            self.connections.limits = replace(limits, max_connections=min(MAX_FOR_OPERATORS, limits.max_connections))
        else:
            listening = len(settings.listen) + len(settings.admin_listen)
            self.connections.limits = limits_within_descriptors(limits, listening)

    def log_error(self, error: Exception, what: str = "") -> None:
        """Log an internal error once per line that raises it, because every request may cause it."""
        *_, place = traceback.extract_tb(error.__traceback__)
        if self._errors.is_new((type(error), place.filename, place.lineno), True):
            log.error("internal error%s", what, exc_info=error)

    def start(self, sockets: Sequence[socket.socket], manager: web.Server) -> None:
        self.manager = manager
        shrink_tls_buffers()  # a reload may add a certificate
        self.accept_on(sockets)
        self._close_idle()

    async def stop(self) -> None:
        """Accept no more connections, and answer pending requests.

        A request that arrives on an open connection meanwhile is answered, and its connection then closed.
        """
        if not self._sockets:  # never started
            return
        self.is_stopping = True
        self._check.cancel()
        self.accept_waiting()
        self.accept_no_more()
        loop = asyncio.get_running_loop()
        started = loop.time()
        while self.connections and (passed := loop.time() - started) < DRAIN_TIMEOUT:
            for each in self.connections.idle_for(0) if passed > QUIET_TIMEOUT else ():
                if each.link is not None and not each.link.get_write_buffer_size():
                    each.abort()
            await asyncio.sleep(DRAIN_INTERVAL)
        for each in self.connections:
            each.abort()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.manager.shutdown(1.0)

    def exempts(self, client: str) -> bool:
        return self._proxies.trusts(client)

    def make(self, sock: socket.socket, client: str) -> HttpConnection:
        return HttpConnection(self, sock, client)

    async def connect(self, connection: HttpConnection, sock: socket.socket, client: str) -> None:
        """Start a connection, after the PROXY protocol header and, with TLS, after the handshake."""
        timeout = self._settings.idle_timeout
        if self._settings.proxy_protocol and self._proxies.trusts(connection.client):
            try:
                await self._read_proxy_header(connection, sock)
            except ValueError as error:
                self._proxies.warn_of(connection.client, f"its connection was closed: {error}")
                raise ConnectionError from None
        await self.begin(connection, sock, connection.client, tls=self.tls, handshake=timeout, shutdown=timeout)

    async def _read_proxy_header(self, connection: HttpConnection, sock: socket.socket) -> None:
        """Take the client that a proxy names. Raises ValueError, TimeoutError, and OSError for too many connections."""
        async with asyncio.timeout(self._settings.idle_timeout):
            client = await read_proxy_header(functools.partial(_read, sock))
        if client and client != connection.client:
            if not (self.connections.has_room(client) or self._proxies.trusts(client)):
                self.connections.counts.refused += 1
                raise ConnectionError("the client has too many connections")
            connection.client = client
            self.connections.rename(connection, client)

    def _close_idle(self) -> None:
        limit = self._settings.idle_timeout
        for each in self.connections.idle_for(limit):
            each.abort()
        self._check = asyncio.get_running_loop().call_later(min(CHECK_INTERVAL, limit / 2), self._close_idle)


async def _read(sock: socket.socket, size: int) -> bytes:
    """Read that many bytes from a new connection, or fewer at its end."""
    received, loop = b"", asyncio.get_running_loop()
    while len(received) < size and (more := await loop.sock_recv(sock, size - len(received))):
        received += more
    return received
