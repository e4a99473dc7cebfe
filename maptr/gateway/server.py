"""The HTTP server: connections, limits, time and logs around ``route``, on aiohttp's low-level server.

aiohttp keeps the raw target, so that a final ``?`` is an inflection. A connection is *waiting* until it has sent a
whole request with its body, at its start and after each response. It is closed if that takes too long or if its client
does not read; at the limit of connections, the one that waits for longest makes room. A client has a limit of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import re
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import InvalidURLError, LineTooLong

from maptr.ark import Ark
from maptr.cache.sources import Sources
from maptr.choose import Chooser
from maptr.config.model import GatewayConfig, TcpConfig
from maptr.daemon.sockets import ClientCounts, limits_within_descriptors
from maptr.discovery import Discovery, DiscoveryError
from maptr.errors import printable
from maptr.gateway.limits import BURST, FREE_WORK, NAAN_WORK, Clients
from maptr.gateway.message import Lines, Lookup, Response, problem, text
from maptr.gateway.metrics import MALFORMED, Metrics, kind_of
from maptr.gateway.proxies import Proxies, read_proxy_header
from maptr.gateway.route import MAX_BODY, route
from maptr.gateway.site import Site
from maptr.rate_limit import TokenBuckets

log = logging.getLogger("maptr.gateway")
access_log = logging.getLogger("maptr.gateway.access")

MAX_TARGET = 16_384  # bytes: an ARK of 8,192 in a query string, where many octets take three
MAX_HEADER = 8190  # bytes of one header
MAX_HEADERS = 100  # of a request, as many as Apache takes; aiohttp itself ends at 128, in early releases nowhere
BODY_TIMEOUT = 10.0  # seconds for the body of a POST
LINGER_TIMEOUT = 2.0  # seconds for which the rest of a refused body is read, so that the client reads the response
QUIET_TIMEOUT = 0.5  # seconds for which a stopping server answers requests on open connections
DRAIN_TIMEOUT = 10.0  # seconds for the requests under way when the server stops: longer than a lookup
DRAIN_INTERVAL = 0.02  # seconds between two looks at them
CHECK_INTERVAL = 1.0  # seconds between two checks for connections that wait for too long
ACCEPT_AT_ONCE = 16  # connections accepted before others are answered, and before those that make room are closed
ACCEPT_PAUSE = 1.0  # seconds without accepting when the process has no more file descriptors
PIECE = 65_536  # bytes of a long response for which the client has the idle timeout to read
AT_ONCE = 32  # ARKs of one request that are looked up at the same time

MAX_PARTS = 64  # pieces in which the parser gets what a client sends at once

_FIXED = ((hdrs.SERVER, "maptr"), ("X-Content-Type-Options", "nosniff"))  # headers of every response
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_HOST = re.compile(r"(?a)(?:\[[0-9A-Fa-f:.]+\]|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::\d*)?\Z")  # RFC 9110 7.2
_SPOKEN = "spoken"  # the version of HTTP in a request


class HttpServer:
    """Answers HTTP requests on bound sockets. ``site`` is asked for the state to answer from, at each request."""

    def __init__(
        self,
        sources: Sources,
        site: Callable[[], Site],
        settings: GatewayConfig,
        *,
        metrics: Metrics,
        chooser: Chooser | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._chooser = chooser
        self._sources = sources
        self._site = site
        self._metrics = metrics
        self._start_id = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._sockets: Sequence[socket.socket] = ()
        self._handshakes: dict[asyncio.Task[None] | None, tuple[socket.socket, str]] = {}  # with clients, oldest first
        self._per_client = ClientCounts()  # of connections and handshakes
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, float] = {}  # since when, longest first
        self._stopping = False
        self.configure(settings, tls)

    def configure(self, settings: GatewayConfig, tls: ssl.SSLContext | None) -> None:
        """Use these settings from now on, and the certificate for new connections."""
        self._settings = settings
        self.tls = tls
        self._clients = Clients(settings.rate, time.monotonic)
        self._naans = TokenBuckets(NAAN_WORK, NAAN_WORK * BURST, time.monotonic)
        self._proxies = Proxies(settings.proxies, settings.client_header)
        self._silent: set[str] = set()  # proxies that named no client, and were warned of
        limits = limits_within_descriptors(TcpConfig(settings.max_connections), len(settings.listen))
        self._max_connections = limits.max_connections

    def start(self, sockets: Sequence[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        self._manager = web.Server(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,  # when the client has gone
        )
        self._sockets = sockets
        for sock in sockets:
            self._listen(sock)
        self._check_waiting()

    async def stop(self) -> None:
        """Accept no more connections, and answer the requests under way.

        A client that sends a request on an open connection meanwhile gets its response, which closes the connection.
        """
        if not self._sockets:  # never started
            return
        self._stopping = True
        self._check.cancel()
        for sock in self._sockets:
            self._accept(sock)  # the connections that the kernel has accepted
            self._loop.remove_reader(sock)
            sock.close()
        started = self._loop.time()
        while (self._open or self._handshakes) and (passed := self._loop.time() - started) < DRAIN_TIMEOUT:
            if passed > QUIET_TIMEOUT:
                for connection in [each for each in self._waiting if not each.link.get_write_buffer_size()]:
                    connection.link.abort()
            await asyncio.sleep(DRAIN_INTERVAL)
        for connection in self._open:
            connection.link.abort()
        for sock, _ in self._handshakes.values():
            _shut_down(sock)
        await asyncio.gather(*filter(None, self._handshakes), return_exceptions=True)
        await self._manager.shutdown(1.0)

    # ---- connections

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._open) + len(self._handshakes)

    def _listen(self, sock: socket.socket) -> None:
        if not self._stopping:
            self._loop.add_reader(sock, self._accept, sock)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, ConnectionError):
                return  # closed before it was accepted
            except OSError as error:
                log.warning("no connection accepted for %g s: %s", ACCEPT_PAUSE, error.strerror or error)
                self._make_room()
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_PAUSE, self._listen, listening)
                return
            address = peer[0].removeprefix("::ffff:") if "." in peer[0] else peer[0]
            is_full = self.connections >= self._max_connections
            if not self._has_room(address) or (is_full and not self._make_room()):
                self._metrics.refused.inc()
                sock.close()
                continue
            sock.setblocking(False)
            task = self._loop.create_task(self._connect(sock, address))
            self._handshakes[task] = sock, address
            self._per_client.add(address)
            task.add_done_callback(self._forget_handshake)

    def _has_room(self, address: str) -> bool:
        """Return whether a client may have one more connection. A proxy has no limit."""
        return self._per_client.of(address) < self._settings.max_per_client or self._proxies.trusts(address)

    def _forget_handshake(self, task: asyncio.Task[None] | None) -> None:
        """A second call does nothing."""
        if handshake := self._handshakes.pop(task, None):
            self._per_client.remove(handshake[1])

    def _make_room(self) -> bool:
        """Close the connection that waits for longest, or the oldest handshake; False if there is none."""
        if longest := next(iter(self._waiting), None):
            self.closed(longest)
            longest.link.abort()
        elif task := next(iter(self._handshakes), None):
            _shut_down(self._handshakes[task][0])
            self._forget_handshake(task)
        else:
            return False
        self._metrics.shed.inc()
        return True

    async def _connect(self, sock: socket.socket, peer: str) -> None:
        """Start a connection, after the header of the PROXY protocol and with TLS after the handshake."""
        task, timeout = asyncio.current_task(), self._settings.idle_timeout if self.tls else None
        client = peer
        try:
            if self._settings.proxy_protocol and self._proxies.trusts(peer):
                async with asyncio.timeout(self._settings.idle_timeout):
                    client = await read_proxy_header(functools.partial(self._read, sock)) or peer
            if client != peer and not self._has_room(client):
                self._metrics.refused.inc()
                sock.close()
                return
            await self._loop.connect_accepted_socket(
                lambda: Connection(self, self._manager, self._loop, task, client),
                sock,
                ssl=self.tls,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=timeout,
            )
        except OSError:  # such as ssl.SSLError of a failed handshake
            sock.close()
        except ValueError as error:
            log.warning("connection of %s closed: %s", peer, error)
            sock.close()

    async def _read(self, sock: socket.socket, size: int) -> bytes:
        """Read that number of bytes from a new connection, or fewer at its end."""
        received = b""
        while len(received) < size and (more := await self._loop.sock_recv(sock, size - len(received))):
            received += more
        return received

    def opened(self, connection: Connection) -> None:
        self._forget_handshake(connection.handshake)  # its task ends later, and would be counted too
        self._open.add(connection)
        self._per_client.add(connection.client)
        self._waiting[connection] = self._loop.time()
        self._metrics.connections.inc()

    def is_answering(self, connection: Connection) -> bool:
        return connection in self._open and connection not in self._waiting

    def closed(self, connection: Connection) -> None:
        """A second call does nothing."""
        if connection in self._open:
            self._open.remove(connection)
            self._per_client.remove(connection.client)
            self._waiting.pop(connection, None)
            self._metrics.connections.dec()

    def _check_waiting(self) -> None:
        """Close the connections that wait for too long, now and at an interval."""
        limit = self._settings.idle_timeout
        latest = self._loop.time() - limit
        for connection in list(itertools.takewhile(lambda each: self._waiting[each] < latest, self._waiting)):
            connection.link.abort()
        self._check = self._loop.call_later(min(CHECK_INTERVAL, limit / 2), self._check_waiting)

    # ---- requests

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        """Make a request that is answered as HTTP/1.1, whatever it speaks itself (RFC 9110 2.5)."""
        self._waiting.pop(cast(Connection, protocol), None)
        spoken = message.version
        if spoken != HttpVersion11:
            message = message._replace(version=HttpVersion11)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, state={_SPOKEN: spoken})

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        connection = cast(Connection, request.protocol)
        client, number = connection.client, ""
        if self._proxies.trusts(client):
            client = self._client_of(client, request)
            number = request.headers.get("X-Request-Id", "")
        if not _REQUEST_ID.match(number):
            number = self._next_id()
        try:
            answer = await self._answer(request, connection, client)
            if isinstance(answer, Lines) and request[_SPOKEN] == HttpVersion10:  # which has no chunks
                answer = answer.response._replace(body=b"".join([line async for line in self._lines(answer)]))
            response = answer.response if isinstance(answer, Lines) else answer
            headers = _all_headers(response, number)
            if request[_SPOKEN] == HttpVersion10 and request.keep_alive:
                headers.append((hdrs.CONNECTION, "keep-alive"))
            made = await self._send(request, connection, answer, headers)
        finally:
            if connection in self._open:
                self._waiting[connection] = self._loop.time()
        seconds = time.perf_counter() - started
        self._metrics.count(kind_of(request.raw_path), response.status, seconds)
        if self._settings.access_log:
            self._log(client, request.method, request.raw_path, response.status, seconds, number)
        return made

    def _client_of(self, proxy: str, request: web.BaseRequest) -> str:
        """Return the client that a proxy names; the proxy itself if it names none that can be read."""
        header = self._proxies.header
        if values := request.headers.getall(header, None):
            return self._proxies.client(proxy, values)
        is_default = self._settings.proxies == GatewayConfig.proxies
        if not (is_default or self._settings.proxy_protocol):
            self._warn_of(proxy)
        return proxy

    def _warn_of(self, proxy: str) -> None:
        """Warn once of a proxy that names no client."""
        if proxy not in self._silent:
            self._silent.add(proxy)
            header = self._proxies.header
            log.warning("%s is in gateway.proxies and sends no %s: all its clients share one limit", proxy, header)

    def refuse(self, request: web.BaseRequest, status: int, error: BaseException | None) -> web.Response:
        """Return the response to a request that aiohttp cannot read. It has no detail of the error."""
        if isinstance(error, LineTooLong):
            is_target = str(MAX_TARGET) in map(str, error.args)
            status = HTTPStatus.REQUEST_URI_TOO_LONG if is_target else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        number, reason = self._next_id(), HTTPStatus(status).phrase.lower()
        if isinstance(error, InvalidURLError):
            reason = "the target has a character that must be %-encoded: é is %C3%A9, a blank is %20 (RFC 3986 2.1)"
        response = text(f"{reason}\n", status)
        headers = _all_headers(response, number)
        self._metrics.count(MALFORMED, status, 0.0)
        if self._settings.access_log:
            self._log(cast(Connection, request.protocol).client, "-", "-", status, 0.0, number)
        made = web.Response(status=status, headers=headers, body=response.body)
        made.force_close()
        return made

    async def _answer(self, request: web.BaseRequest, connection: Connection, client: str) -> Response | Lines:
        if not HttpVersion10 <= request[_SPOKEN] <= HttpVersion11:
            return text("only HTTP/1.1 and HTTP/1.0 are supported\n", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if len(request.headers) > MAX_HEADERS:
            return text("too many headers\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if not _HOST.match(request.headers.get(hdrs.HOST, "")):
            return text("the Host header cannot be read\n", HTTPStatus.BAD_REQUEST)
        if (wait := self._clients.wait(client)) > 0:
            if self._proxies.trusts(client):
                self._warn_of(client)
            retry = (("Retry-After", str(int(wait) + 1)),)
            if kind_of(request.raw_path) == "api":
                return problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests", retry)
            return text("too many requests\n", HTTPStatus.TOO_MANY_REQUESTS, retry)
        method, target, headers = request.method, request.raw_path, request.headers
        try:
            body = await self._body(request, connection) if method == "POST" else b""
            if isinstance(body, Response):
                return body
            began = time.thread_time()
            answer = route(method, target, headers, self._site(), body=body, now=time.time(), client=client)
            took = time.thread_time() - began
            if isinstance(answer, Lookup):
                found = await self._discover(answer.ark)
                began = time.thread_time()
                answer = answer.respond(found)
                took += time.thread_time() - began
            self._clients.spend(client, took)
            if isinstance(answer, Lines):
                self._clients.charge(client, len(answer.parts))
            return answer
        except Exception:
            log.exception("internal error, %s %s", method, _shown(target))
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the log of the server has the reason")

    async def _body(self, request: web.BaseRequest, connection: Connection) -> bytes | Response:
        if request.headers.get(hdrs.TRANSFER_ENCODING, "chunked").strip().lower() != "chunked":
            return text("the only transfer coding is chunked\n", HTTPStatus.NOT_IMPLEMENTED)  # RFC 9112 6.1
        if hdrs.CONTENT_ENCODING in request.headers:
            return text("the body must not be compressed\n", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        too_large = text(f"the body has more than {MAX_BODY} bytes\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if (request.content_length or 0) > MAX_BODY:
            return too_large
        expects = request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"
        if expects and request[_SPOKEN] == HttpVersion11:  # RFC 9110 10.1.1
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        self._waiting[connection] = self._loop.time()  # it can make room as one that waits for headers
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > MAX_BODY:
                        return too_large
        except TimeoutError:
            return text("the request took too long\n", HTTPStatus.REQUEST_TIMEOUT)
        except (web.RequestPayloadError, ConnectionError):
            return text("the body cannot be read\n", HTTPStatus.BAD_REQUEST)
        finally:
            self._waiting.pop(connection, None)
        return bytes(body)

    async def _discover(self, ark: Ark) -> Discovery:
        """Return the discovery, without candidates instead of an error."""
        if self._naans.wait(ark.naan) > 0:
            return self._sources.engine.not_asked(ark, "the rules of this NAAN take too long")
        try:
            # Without the URL before the label, which is the client's, and the inflection, which needs no look-up.
            found = await self._sources.discover_async(Ark(*ark[:4]), chooser=self._chooser)
        except DiscoveryError as error:
            found = error.discovery
        self._naans.charge(ark.naan, found.work - FREE_WORK)
        return found

    # ---- responses

    async def _send(
        self,
        request: web.BaseRequest,
        connection: Connection,
        answer: Response | Lines,
        headers: list[tuple[str, str]],
    ) -> web.StreamResponse:
        """Make a response, which aiohttp sends; send it if it is long or in lines."""
        made: web.StreamResponse
        if isinstance(answer, Lines):
            made = web.StreamResponse(status=answer.response.status, headers=headers)
            pieces = self._lines(answer)
        elif len(answer.body) > PIECE:
            made = web.StreamResponse(status=answer.status, headers=headers)
            made.content_length = len(answer.body)
            pieces = _pieces(answer.body)
        else:
            made, pieces = web.Response(status=answer.status, headers=headers, body=answer.body), None
        if self._stopping or connection.is_last():
            made.force_close()
        try:
            await made.prepare(request)
            if pieces is not None and request.method != hdrs.METH_HEAD:
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        async with asyncio.timeout(self._settings.idle_timeout):
                            await made.write(piece)
        except ConnectionError:  # the client has gone
            raise
        except Exception as error:  # a part of the response may be sent: its end must be missing
            if not isinstance(error, TimeoutError):
                log.exception("internal error, %s %s", request.method, _shown(request.raw_path))
            connection.link.abort()
        return made

    async def _lines(self, answer: Lines) -> AsyncGenerator[bytes, None]:
        """Look up many ARKs at a time, and give the line of each in their order."""

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

    # ---- log

    def _next_id(self) -> str:
        return f"{self._start_id}-{next(self._numbers)}"

    def _log(self, client: str, method: str, target: str, status: int, seconds: float, number: str) -> None:
        """A line of the access log; in JSON also as members."""
        shown = {"client": client, "method": method, "target": _shown(target), "status": status}
        members = {**shown, "seconds": round(seconds, 6), "id": number}
        line = '%(client)s "%(method)s %(target)s" %(status)d %(seconds).6f %(id)s'
        access_log.info(line, members, extra={"members": members})


class Connection(web.RequestHandler):
    """One connection, which reports its start and its end to the server."""

    link: asyncio.Transport

    def __init__(
        self,
        server: HttpServer,
        manager: web.Server,
        loop: asyncio.AbstractEventLoop,
        handshake: asyncio.Task[None] | None,
        client: str,
    ) -> None:
        self._server = server
        self.handshake = handshake
        self.client = client
        self._has_ended = self._is_wary = False
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            max_line_size=MAX_TARGET,
            max_field_size=MAX_HEADER,
            lingering_time=LINGER_TIMEOUT,
            auto_decompress=False,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.link = cast(asyncio.Transport, transport)
        self._server.opened(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give the parser each request alone once a client has asked for another protocol: it drops what follows such a
        request, although the request is answered as any other (RFC 9110 7.8)."""
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
        """The client sends no more, but may read: what it has asked for is answered first. TLS cannot do that."""
        super().eof_received()
        self._has_ended = True
        is_asked = bool(self._messages) or self._server.is_answering(self)
        return is_asked and self.link.get_extra_info("sslcontext") is None

    def is_last(self) -> bool:
        """Return whether the client sends no request after the ones that are answered now."""
        return self._has_ended and not self._messages

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Instead of aiohttp's pages and its log, which any client could fill."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the response is sent")
        return self._server.refuse(request, status, exc)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        log.error("internal error", exc_info=kw.get("exc_info", True))


def _shut_down(sock: socket.socket) -> None:
    """End a TLS handshake: asyncio has no other clean way."""
    with contextlib.suppress(OSError):  # the client has reset the connection
        sock.shutdown(socket.SHUT_RDWR)


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    view = memoryview(body)
    for start in range(0, len(body), PIECE):
        yield view[start : start + PIECE]  # type: ignore[misc]


def _shown(target: str) -> str:
    """Return a target for the log: printable, in ASCII, without a quotation mark."""
    return printable(target).replace('"', "%22").encode("ascii", "backslashreplace").decode()


def _all_headers(response: Response, number: str) -> list[tuple[str, str]]:
    """Return the headers of a response with those that every response has."""
    kept = () if response.header(hdrs.CACHE_CONTROL) else ((hdrs.CACHE_CONTROL, "no-store"),)
    return [*response.headers, *kept, *_FIXED, ("X-Request-Id", number)]
