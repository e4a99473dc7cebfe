"""The HTTP server, on aiohttp's low-level server: receives, times, limits and logs the requests that ``route`` answers.

aiohttp keeps the raw target, so that a final ``?`` is an inflection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from typing import cast

from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import InvalidURLError, LineTooLong
from multidict import CIMultiDict, CIMultiDictProxy

from maptr.ark import Ark
from maptr.cache.sources import Sources
from maptr.choose import Chooser
from maptr.config.model import GatewayConfig
from maptr.daemon.connections import Counts
from maptr.daemon.hosts import REFUSED, is_for_operators
from maptr.daemon.process import in_thread
from maptr.daemon.sockets import bound_at, explained, open_tcp
from maptr.discovery import Discovery, DiscoveryError
from maptr.errors import printable
from maptr.gateway import api, pages
from maptr.gateway.connections import MAX_TARGET, HttpConnection, HttpListener
from maptr.gateway.message import (
    HTML,
    JSON,
    PROBLEM,
    TEXT,
    Answer,
    Busy,
    Headers,
    Lines,
    Lookup,
    Request,
    Response,
    Unreadable,
    problem,
    text,
)
from maptr.gateway.metrics import MALFORMED, RESOLVE, Metrics, kind_of
from maptr.gateway.patience import PATIENCE, Allowance, WaitingThreads
from maptr.gateway.proxies import Proxies
from maptr.gateway.resolve import failure
from maptr.gateway.route import CORS, ORIGIN, finished, route
from maptr.gateway.site import Site
from maptr.gateway.statistics import Statistics, naan_in
from maptr.protocol.address import Address, client_of
from maptr.rate_limit import TokenBuckets
from maptr.resolver.call import Options

access_log = logging.getLogger("maptr.gateway.access")

MAX_BODY = 65_536  # bytes per POST: one DNS message, or one ARK of at most 8,192
BODY_TIMEOUT = 10.0  # seconds for the body of a POST
ALWAYS = ("/health", "/ready")  # paths that are answered for any Host, such as a load balancer's
UNREADABLE_FOR = 10  # seconds until a client should ask again if an own object could not be read
PIECE = 65_536  # bytes of a long response that a client must read within the idle timeout
AT_ONCE = 32  # ARKs of one request that are looked up at the same time

# Token bucket limits: a client (an address or IPv6 network) pays for its requests and for the event loop's time that
# they take; a NAAN pays for the work that its rules cause (``Discovery.work``).
BURST = 2  # seconds' worth of its rate that a client may use at once
COST = 0.001  # seconds that one token buys; a redirect takes less
NAAN_WORK = 400_000  # steps per second and NAAN, some 100 ms
FREE_WORK = 5_000  # steps per ARK that are not counted; a record takes some hundred

_FIXED = ((hdrs.SERVER, "maptr"), ("X-Content-Type-Options", "nosniff"))  # headers of every response
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_HOST = re.compile(r"(?a)(?:\[[0-9A-Fa-f:.]+\]|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::(\d*))?\Z")  # RFC 9110 7.2
_MAX_PORT = 65_535
_MAPTR_LINE = '%(client)s "%(method)s %(target)s" %(status)d %(seconds).6f %(id)s'
_COMBINED_LINE = '%(client)s - - [%(at)s] "%(method)s %(target)s %(http)s" %(status)d %(size)d "%(from)s" "%(agent)s"'


Ask = Callable[[Site], Answer]
"""Calls ``route`` for one request."""

Pieces = AsyncGenerator[bytes, None]


class HttpRequest(web.BaseRequest):
    """A request with its connection. It is answered as HTTP/1.1, whatever its version (RFC 9110 2.5)."""

    connection: HttpConnection
    spoken: HttpVersion


class HttpServer:
    """Answers HTTP requests on bound sockets. ``site`` gives the state to answer each request from.

    ``is_admin``: the sockets are the operator's. ``is_local``: only this machine's users may reach them. Both reject
    requests for another host's name. ``bound`` has the addresses with their actual ports.
    """

    def __init__(
        self,
        sources: Sources,
        site: Callable[[], Site],
        settings: GatewayConfig,
        *,
        metrics: Metrics,
        statistics: Statistics,
        chooser: Chooser | None = None,
        tls: ssl.SSLContext | None = None,
        is_admin: bool = False,
        is_local: bool = False,
    ) -> None:
        self._is_admin = is_admin
        self._checks_host = is_admin or is_local
        self._options = Options(chooser=chooser)
        self._sources = sources
        self._site = site
        self._metrics = metrics
        self._statistics = statistics
        self._ids = map(f"{secrets.token_hex(4)}-{{}}".format, itertools.count(1))
        self._sockets: dict[Address, socket.socket] = {}
        self._waiting = WaitingThreads()
        counts = Counts() if is_admin else metrics.connections
        self._listener = HttpListener(counts, self._refuse, is_admin=is_admin)
        self.configure(settings, tls)

    @property
    def bound(self) -> list[Address]:
        return list(self._sockets)

    def configure(self, settings: GatewayConfig, tls: ssl.SSLContext | None) -> None:
        """Use these settings from now on; the certificate applies to new connections."""
        self._settings = settings
        self._clients = TokenBuckets(settings.rate, settings.rate * BURST, time.monotonic)
        self._naans = TokenBuckets(NAAN_WORK, NAAN_WORK * BURST, time.monotonic)
        self._proxies = Proxies(settings.proxies, settings.client_header)
        self._listener.configure(settings, self._proxies, tls)

    def bind(self, addresses: Sequence[Address], key: str) -> None:
        """Bind the sockets. Raises ConfigError that names the setting ``key``."""
        for address in addresses:
            with explained(address, key=key):
                sock = open_tcp(*address)
            self._sockets[bound_at(address, sock)] = sock

    def close(self) -> None:
        """Close the sockets if the server was not started."""
        for sock in self._sockets.values():
            sock.close()

    def start(self) -> None:
        manager = web.Server(
            self._handle,  # type: ignore[arg-type]
            request_factory=self._make_request,  # type: ignore[arg-type]
            handler_cancellation=True,  # when the client disconnects
        )
        self._listener.start(list(self._sockets.values()), manager)

    async def stop(self) -> None:
        """Accept no more connections, and answer pending requests."""
        await self._listener.stop()
        await self._waiting.stop()

    # ---- requests

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: HttpConnection,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> HttpRequest:
        spoken = message.version
        if spoken != HttpVersion11:
            message = message._replace(version=HttpVersion11)
        made = HttpRequest(message, payload, protocol, writer, task, task.get_loop())
        made.spoken = spoken
        made.connection = protocol
        self._listener.connections.busy(protocol)
        return made

    async def _handle(self, request: HttpRequest) -> web.StreamResponse:
        started = time.perf_counter()
        connection, received = request.connection, request.headers
        client, number = connection.client, ""
        if self._proxies.trusts(client):
            client = self._client_of(client, received, request.raw_path)
            number = received.get("X-Request-Id", "")
        if not number or not _REQUEST_ID.match(number):
            number = next(self._ids)
        try:
            answer, pieces = await self._answer(request, client)
            if pieces is not None and request.spoken == HttpVersion10:  # has no chunks
                answer, pieces = answer._replace(body=b"".join([line async for line in pieces])), None
            response = finished(answer, request.method, request.raw_path, received, self._settings)
            headers = _all_headers(response, number)
            if request.spoken == HttpVersion10 and request.keep_alive:
                headers[hdrs.CONNECTION] = "keep-alive"
            if pieces is not None or len(response.body) > PIECE:
                made = await self._send(request, response, pieces or _pieces(response.body), headers)
            else:
                made = web.Response(status=int(response.status), headers=headers, body=response.body)
                if connection.is_last():
                    made.force_close()
        finally:
            self._listener.connections.idle(connection)
        seconds = time.perf_counter() - started
        target = request.raw_path
        kind = kind_of(target)
        self._metrics.count(kind, response.status, seconds)
        naan = naan_in(target) if kind == RESOLVE or self._settings.access_log else ""
        if kind == RESOLVE:
            source, referrer = headers.get("Maptr-Source", ""), received.get(hdrs.REFERER, "")
            agent = received.get(hdrs.USER_AGENT, "")
            self._statistics.count(naan, target, response.status, source, referrer, response.reason, agent)
        if self._settings.access_log:
            self._log(client, request, response, seconds, number, naan)
        return made

    def _client_of(self, proxy: str, headers: CIMultiDictProxy[str], target: str) -> str:
        """Return the client that a proxy names; the proxy itself if it names no valid client."""
        header = self._proxies.header
        if values := headers.getall(header, None):
            return self._proxies.client(proxy, values)
        is_default = self._settings.proxies == GatewayConfig.proxies
        is_check = kind_of(target) == "operator"  # a proxy checks the gateway's health for itself
        if not (is_default or is_check or self._settings.proxy_protocol):
            self._proxies.warn_of(proxy)
        return proxy

    def _refuse(self, request: web.BaseRequest, status: int, error: BaseException | None) -> web.Response:
        """Return the response to a request that aiohttp cannot read, without details of the error."""
        if isinstance(error, LineTooLong):
            is_target = str(MAX_TARGET) in map(str, error.args)
            status = HTTPStatus.REQUEST_URI_TOO_LONG if is_target else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        number, reason = next(self._ids), HTTPStatus(status).phrase.lower()
        if isinstance(error, InvalidURLError):
            reason = "the target has a character that must be %-encoded: é is %C3%A9, a blank is %20 (RFC 3986 2.1)"
        response = text(f"{reason}\n", status, CORS)
        self._metrics.count(MALFORMED, status, 0.0)
        if self._settings.access_log:
            self._log(cast(HttpConnection, request.protocol).client, None, response, 0.0, number)
        made = web.Response(status=status, headers=_all_headers(response, number), body=response.body)
        made.force_close()
        return made

    async def _answer(self, request: HttpRequest, client: str) -> tuple[Response, Pieces | None]:
        """Return the response and, if it has lines, its body in pieces."""
        target = request.raw_path
        if (refused := self._refusal(request, client)) is not None:
            return refused, None
        try:
            body = await self._body(request) if request.method == "POST" else b""
            if isinstance(body, Response):
                return body, None
            ask = partial(
                route,
                request.method,
                target,
                request.headers,
                body=body,
                now=time.time(),
                client=client,
                is_admin=self._is_admin,
            )
            site = self._site()
            try:
                answer = await self._at_once(ask, site, client_of(client))
            except Busy:
                answer = await self._patiently(ask, replace(site, patience=PATIENCE))
            if not isinstance(answer, Lines):
                return answer, None
            self._clients.charge(client_of(client), len(answer.parts))
            return answer.response, self._lines(answer, ask, site)
        except Unreadable as error:  # such as own objects: a redirect by the table would be wrong, and cached
            self._metrics.unavailable.inc()
            retry = (("Retry-After", str(UNREADABLE_FOR)),)
            return self._failure(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error), retry), None
        except Exception as error:
            self._listener.log_error(error, f", {request.method} {_shown(target)}")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return self._failure(request, status, "the log of the server has the reason"), None

    def _refusal(self, request: HttpRequest, client: str) -> Response | None:
        """Return the refusal of a request because of its version, its Host, or its client's limit."""
        if not HttpVersion10 <= request.spoken <= HttpVersion11:
            return text("only HTTP/1.1 and HTTP/1.0 are supported\n", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        target, headers = request.raw_path, request.headers
        named = ORIGIN.match(target)
        if not all(map(_is_host, (headers.get(hdrs.HOST, ""), named[1] if named else ""))):
            return text("the Host header cannot be read\n", HTTPStatus.BAD_REQUEST)
        if self._checks_host and not self._is_for_operators(target, headers):
            return text(f"{REFUSED.format('gateway.admin_hosts')}\n", HTTPStatus.MISDIRECTED_REQUEST)
        if target.partition("?")[0] == pages.STYLE or (wait := self._clients.wait(client_of(client))) <= 0:
            return None  # also for the style sheet of a 429 page
        if self._proxies.trusts(client):
            header = self._proxies.header
            names_none = f"{header} names no client outside gateway.proxies: all its clients share one limit"
            self._proxies.warn_of(client, names_none if header in headers else "")
        retry = (("Retry-After", str(int(wait) + 1)),)
        return self._failure(request, HTTPStatus.TOO_MANY_REQUESTS, "too many requests", retry)

    def _failure(self, request: HttpRequest, status: HTTPStatus, detail: str, headers: Headers = ()) -> Response:
        """Return an error that does not depend on the target; a browser gets a page, made once a minute, because it
        must cost less than what it refuses."""
        headers = (*headers, ("Cache-Control", "no-store"))
        if kind_of(request.raw_path) == "api":
            return problem(status, detail, headers)
        now, site = time.time(), self._site()
        named = {name: request.headers.get(name, "") for name in ("accept", "accept-language")}
        asked = Request("GET", "/", named, now=now)
        if asked.prefers(TEXT, HTML, PROBLEM, JSON) != HTML:
            return failure(asked, site, status, detail, headers)
        key = (HttpServer._failure, status, detail, pages.language_of(asked, site), int(now) // pages.MINUTE)
        made = site.once(key, lambda: failure(asked, site, status, detail))
        return made._replace(headers=(*(pair for pair in made.headers if pair[0] != "Cache-Control"), *headers))

    def _is_for_operators(self, target: str, headers: CIMultiDictProxy[str]) -> bool:
        """Return whether the request names this machine, or is only a health check."""
        named, path = "", target
        if origin := ORIGIN.match(target):
            named, path = origin[1], target[origin.end() :]
        if path.partition("?")[0] in ALWAYS:
            return True
        names = self._settings.admin_hosts
        return all(is_for_operators(host, names) for host in (named, *headers.getall(hdrs.HOST, ())))

    async def _at_once(self, ask: Ask, site: Site, payer: str) -> Response | Lines:
        """Return the answer, and charge the client for the event loop's time. Raises Busy if it would have to wait for
        a file."""
        began = time.perf_counter()
        answer = ask(site)
        if isinstance(answer, Lookup) and (at_once := self._from_table(answer.ark)) is not None:
            answer = answer.respond(at_once)
        elif callable(answer):
            answer = await in_thread(answer)
        took = time.perf_counter() - began
        if isinstance(answer, Lookup):
            found = await self._discover(answer.ark)
            began = time.perf_counter()
            answer = answer.respond(found)
            took += time.perf_counter() - began
        self._clients.charge(payer, took / COST - 1)
        return answer

    async def _patiently(self, ask: Ask, site: Site) -> Response | Lines:
        """Return the answer, made in a thread that may wait. Raises Unreadable."""
        allowance = Allowance(self._waiting)
        answer = await allowance.run(lambda: ask(site))
        if isinstance(answer, Lookup):
            answer = await self._finish(answer, allowance)
        return await in_thread(answer) if callable(answer) else answer

    async def _finish(self, lookup: Lookup, allowance: Allowance) -> Response:
        found = self._from_table(lookup.ark) or await self._discover(lookup.ark)
        return await allowance.run(lambda: lookup.respond(found))

    async def _body(self, request: HttpRequest) -> bytes | Response:
        if request.headers.get(hdrs.TRANSFER_ENCODING, "chunked").strip().lower() != "chunked":
            return text("chunked is the only transfer coding supported\n", HTTPStatus.NOT_IMPLEMENTED)  # RFC 9112 6.1
        if hdrs.CONTENT_ENCODING in request.headers:
            return text("the body must not be compressed\n", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        most = api.MAX_BODY if request.raw_path == api.DISCOVER else MAX_BODY
        too_large = text(f"the body has more than {most} bytes\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if (request.content_length or 0) > most:
            return too_large
        expects = request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"
        if expects and request.spoken == HttpVersion11:  # RFC 9110 10.1.1
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        self._listener.connections.idle(request.connection)  # may be closed, as one that waits for headers
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > most:
                        return too_large
        except TimeoutError:
            return text("the request took too long\n", HTTPStatus.REQUEST_TIMEOUT)
        except (web.RequestPayloadError, ConnectionError):
            return text("the body cannot be read\n", HTTPStatus.BAD_REQUEST)
        finally:
            self._listener.connections.busy(request.connection)
        return bytes(body)

    def _from_table(self, ark: Ark) -> Discovery | None:
        return None if self._options.chooser else self._sources.from_table(ark)

    async def _discover(self, ark: Ark) -> Discovery:
        """Return the discovery; one without candidates instead of an error."""
        if self._naans.wait(ark.naan) > 0:
            return self._sources.engine.not_asked(ark, "the rules of this NAAN take too long")
        try:
            # Without the client's URL before the label, and without the inflection, which needs no look-up.
            found = await self._sources.discover_async(ark.with_received(tail="", nma=""), self._options)
        except DiscoveryError as error:
            found = error.discovery
        self._naans.charge(ark.naan, found.work - FREE_WORK)
        return found

    # ---- responses

    async def _send(
        self, request: HttpRequest, response: Response, pieces: Pieces, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        """Send a response in pieces. Without a body, its length is not known."""
        made = web.StreamResponse(status=response.status, headers=headers)
        made.content_length = len(response.body) or None
        if request.connection.is_last():
            made.force_close()
        try:
            await made.prepare(request)
            if request.method != hdrs.METH_HEAD:
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        async with asyncio.timeout(self._settings.idle_timeout):
                            await made.write(piece)
        except ConnectionError:  # the client has disconnected
            raise
        except Exception as error:  # part of the response may have been sent: its end must be missing
            if not isinstance(error, TimeoutError):
                self._listener.log_error(error, f", {request.method} {_shown(request.raw_path)}")
            request.connection.abort()
        return made

    async def _lines(self, lines: Lines, ask: Ask, site: Site) -> Pieces:
        """Look up several ARKs at a time, and yield their lines in order."""
        allowance = Allowance(self._waiting)
        patient: list[Lines] = []

        async def one(index: int) -> bytes:
            try:
                part = lines.parts[index]
                if isinstance(part, Response):
                    return part.body
                at_once = self._from_table(part.ark)
                return part.respond(await self._discover(part.ark) if at_once is None else at_once).body
            except Busy:
                return await one_patiently(index)
            except Unreadable as error:
                return unreadable(index, error)

        async def one_patiently(index: int) -> bytes:
            try:
                if not patient:
                    made = ask(replace(site, patience=PATIENCE))
                    assert isinstance(made, Lines)  # noqa: S101 - as the first time
                    patient.append(made)
                part = await allowance.run(lambda: patient[0].parts[index])
                return (part if isinstance(part, Response) else await self._finish(part, allowance)).body
            except Unreadable as error:
                return unreadable(index, error)

        def unreadable(index: int, error: Unreadable) -> bytes:
            self._metrics.unavailable.inc()
            return lines.unreadable(index, error).body

        waiting = iter(range(len(lines.parts)))
        tasks = deque(asyncio.ensure_future(one(index)) for index in itertools.islice(waiting, AT_ONCE))
        try:
            while tasks:
                yield await tasks[0]
                tasks.popleft()
                tasks += [asyncio.ensure_future(one(index)) for index in itertools.islice(waiting, 1)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- log

    def _log(
        self,
        client: str,
        request: HttpRequest | None,
        response: Response,
        seconds: float,
        number: str,
        naan: str = "",
    ) -> None:
        """Write a line of the access log; in JSON also as members. ``request`` is None if it cannot be read."""
        method, target = ("-", "-") if request is None else (request.method, _shown(request.raw_path))
        members = {
            "client": client,
            "method": method,
            "target": target,
            "status": int(response.status),
            "seconds": round(seconds, 6),
            "id": number,
            "naan": naan,
            "source": response.header("Maptr-Source").partition(";")[0],
            "location": _shown(response.header("Location")),
        }
        line, values = _MAPTR_LINE, members
        is_combined = self._settings.access_log_format == "combined"
        if is_combined:
            headers, spoken = ({}, HttpVersion11) if request is None else (request.headers, request.spoken)
            line, values = (
                _COMBINED_LINE,
                members
                | {
                    "at": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime()),
                    "http": f"HTTP/{spoken.major}.{spoken.minor}",
                    "size": 0 if method == "HEAD" else len(response.body),
                    "from": _shown(headers.get(hdrs.REFERER, "-")),
                    "agent": _shown(headers.get(hdrs.USER_AGENT, "-")),
                },
            )
        access_log.info(line, values, extra={"members": members, "is_whole": is_combined})


@lru_cache(maxsize=64)  # nearly all clients send the gateway's name
def _is_host(text: str) -> bool:
    """Return whether a Host header is valid: a host, perhaps with a port."""
    found = _HOST.match(text)
    return found is not None and (not found[1] or (len(found[1]) <= 5 and int(found[1]) <= _MAX_PORT))


async def _pieces(body: bytes) -> Pieces:
    view = memoryview(body)
    for start in range(0, len(body), PIECE):
        yield view[start : start + PIECE]  # type: ignore[misc]


def _shown(target: str) -> str:
    """Return a target for the log: printable, in ASCII, without a quotation mark."""
    return printable(target).replace('"', "%22").encode("ascii", "backslashreplace").decode()


def _all_headers(response: Response, number: str) -> CIMultiDict[str]:
    headers = CIMultiDict(response.headers)
    headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    headers.extend(_FIXED)
    headers["X-Request-Id"] = number
    return headers
