"""The HTTP server: sockets, limits, time and logs around ``route``, on aiohttp's low-level server.

aiohttp keeps the raw target, so that a final ``?`` is an inflection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from maptr.ark import Ark
from maptr.cache.cache import Cache
from maptr.cache.options import CacheOptions
from maptr.choose import Chooser
from maptr.discovery import Discovery, DiscoveryError
from maptr.gateway.limits import Clients
from maptr.gateway.message import Lines, Lookup, Response, problem, text
from maptr.gateway.metrics import Metrics
from maptr.gateway.route import MAX_BODY, route
from maptr.gateway.site import Site

log = logging.getLogger("maptr.gateway")
access_log = logging.getLogger("maptr.gateway.access")

MAX_TARGET = 16_384  # bytes: an ARK of 8,192 in a query string, where each octet may take three
MAX_HEADERS = 16_384  # bytes of one header
BODY_TIMEOUT = 10.0  # seconds for the body of a POST
SEND_TIMEOUT = 60.0  # seconds for a response in lines, which waits for DNS
DRAIN_TIMEOUT = 5.0  # seconds for the requests under way when the server stops
CHECK_INTERVAL = 1.0  # seconds between two checks for idle connections
AT_ONCE = 32  # ARKs of one request that are looked up at the same time

SERVER = "maptr"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """``idle_timeout``: seconds for the next request, or the rest of one, on an open connection."""

    max_connections: int = 1000
    idle_timeout: float = 15.0


class HttpServer:
    """Answers HTTP requests on bound sockets. ``site`` is asked for the state to answer from, at each request."""

    def __init__(
        self,
        cache: Cache,
        site: Callable[[], Site],
        *,
        limits: HttpLimits,
        clients: Clients,
        metrics: Metrics,
        chooser: Chooser | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # Without options a cache hands out what it has just made.
        self._options: CacheOptions = {} if chooser is None else {"chooser": chooser}
        self._cache = cache
        self._site = site
        self._limits = limits
        self._clients = clients
        self._metrics = metrics
        self.tls = tls
        self._numbers = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._busy: set[object] = set()  # connections with a request under way
        self._active_at: dict[object, float] = {}
        self._check: asyncio.TimerHandle | None = None

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        self._http = web.Server(
            self._handle,
            access_log=None,
            keepalive_timeout=self._limits.idle_timeout,
            max_line_size=MAX_TARGET,
            max_field_size=MAX_HEADERS,
            lingering_time=0,
        )
        loop = asyncio.get_running_loop()
        for sock in sockets:
            self._servers.append(await loop.create_server(self._accept, sock=sock, ssl=self.tls))
        self._close_idle()

    async def stop(self) -> None:
        """Accept no more connections, and answer the requests under way."""
        for server in self._servers:
            server.close()
        if self._check is not None:
            self._check.cancel()
        until = time.monotonic() + DRAIN_TIMEOUT
        while self._busy and time.monotonic() < until:
            await asyncio.sleep(0.02)
        await self._http.shutdown(1.0)

    def _accept(self) -> asyncio.BaseProtocol:
        if len(self._http.connections) >= self._limits.max_connections:
            self._metrics.refused.inc()
            return _Refused()
        return self._http()

    def _close_idle(self) -> None:
        """Close the connections that sent no whole request for too long, now and at an interval."""
        loop = asyncio.get_running_loop()
        connections = self._http.connections
        self._active_at = {each: self._active_at.get(each, loop.time()) for each in connections}
        for connection in connections:
            if connection not in self._busy and loop.time() - self._active_at[connection] > self._limits.idle_timeout:
                connection.force_close()
        self._check = loop.call_later(CHECK_INTERVAL, self._close_idle)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        connection = request.protocol
        self._busy.add(connection)
        status = 0
        number = next(self._numbers)
        client = self._clients.address(request.remote or "", request.headers)
        try:
            made = await self._respond(request, client)
            status = made.status
            made.headers["Server"] = SERVER
            return made
        finally:
            self._busy.discard(connection)
            self._active_at[connection] = asyncio.get_running_loop().time()
            took = time.perf_counter() - started
            self._metrics.count(request.raw_path, status, took)
            if access_log.isEnabledFor(logging.INFO):
                access_log.info(
                    "%s %s %s %d", client, request.method, request.raw_path, status, extra={"request": number}
                )

    async def _respond(self, request: web.BaseRequest, client: str) -> web.StreamResponse:
        if (wait := self._clients.wait(client)) > 0:
            headers = (("Retry-After", str(int(wait) + 1)),)
            return _http(text("too many requests\n", HTTPStatus.TOO_MANY_REQUESTS, headers))
        try:
            body = await self._body(request) if request.method == "POST" else b""
            site, now = self._site(), time.time()
            answer = route(request.method, request.raw_path, request.headers, site, body=body, now=now, client=client)
            if isinstance(answer, Lookup):
                answer = answer.respond(await self._discover(answer.ark))
            if isinstance(answer, Lines):
                return await self._send_lines(request, answer)
            return _http(answer)
        except web.HTTPException as error:
            return _http(text(f"{error.reason}\n", error.status))
        except (TimeoutError, ConnectionError):
            return _http(text("the request took too long\n", HTTPStatus.REQUEST_TIMEOUT))
        except Exception:
            log.exception("internal error, %s %s", request.method, request.raw_path)
            return _http(problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the log of the server has the reason"))

    async def _body(self, request: web.BaseRequest) -> bytes:
        body = bytearray()
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > MAX_BODY:
                    raise web.HTTPRequestEntityTooLarge(MAX_BODY, len(body))
        return bytes(body)

    async def _discover(self, ark: Ark) -> Discovery:
        """The discovery, without candidates instead of an error."""
        try:
            return await self._cache.discover_async(ark.resolution if ark.name else ark, **self._options)
        except DiscoveryError as error:
            if error.discovery is None:
                return Discovery(ark, complete=False, reason=str(error))
            return error.discovery

    async def _send_lines(self, request: web.BaseRequest, answer: Lines) -> web.StreamResponse:
        """Look up many ARKs at a time, and send each line. An error or a slow client cuts the response off."""
        response = web.StreamResponse(status=answer.response.status, headers=list(answer.response.headers))
        await response.prepare(request)
        try:
            if request.method != "HEAD":
                async with asyncio.timeout(SEND_TIMEOUT), contextlib.aclosing(self._lines(answer)) as lines:
                    async for line in lines:
                        await response.write(line)
            await response.write_eof()
        except (TimeoutError, ConnectionError):
            request.protocol.force_close()
        except Exception:
            log.exception("internal error, %s %s", request.method, request.raw_path)
            request.protocol.force_close()
        return response

    async def _lines(self, answer: Lines) -> AsyncGenerator[bytes, None]:
        async def one(part: Lookup | Response) -> bytes:
            return (part if isinstance(part, Response) else part.respond(await self._discover(part.ark))).body

        waiting = iter(answer.parts)
        tasks = deque(asyncio.ensure_future(one(part)) for part in itertools.islice(waiting, AT_ONCE))
        try:
            while tasks:
                yield await tasks[0]
                tasks.popleft()
                tasks += [asyncio.ensure_future(one(part)) for part in itertools.islice(waiting, 1)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Refused(asyncio.Protocol):
    """A connection over the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type
        transport.abort()


def _http(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=list(response.headers), body=response.body)
