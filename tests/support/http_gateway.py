"""The HTTP gateway on real sockets: in a thread of the test, or as a process; and clients that send any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import io
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import pytest

from maptr.client import Client
from maptr.config import Config, parse
from maptr.config.model import GatewayConfig
from maptr.daemon.connections import Counts
from maptr.gateway.metrics import Metrics
from maptr.gateway.server import HttpServer
from maptr.gateway.service import Service
from maptr.gateway.site import Site
from maptr.gateway.statistics import Statistics
from maptr.protocol.address import Address
from maptr.registry.followed_file import TableState
from maptr.registry.table import Table
from tests.support.caching import ONE_HOST, Rig, table
from tests.support.peers import Maptr
from tests.support.running import Running
from tests.support.waiting import PATIENCE

LOOPBACK = Address("127.0.0.1", 0)
TABLE = table(("12345", "t.example"))


class Reply(NamedTuple):
    """A response as received. ``headers`` have their names in lower case; a repeated one has its last value."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class HttpClient:
    """A connection on which a test sends bytes and reads responses."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, receive_buffer: int = 0) -> None:
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(PATIENCE)
        try:
            self.sock.connect(("127.0.0.1", port))
            if tls is not None:
                self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        except BaseException:
            self.sock.close()
            raise
        self._stream = _Stream(_Received(self.sock))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, content: bytes) -> Self:
        self.sock.sendall(content)
        return self

    def get(self, target: bytes | str, *headers: str, method: str = "GET", body: bytes = b"") -> Reply:
        """Send a request and read its response."""
        self.send(request(target, *headers, method=method, body=body))
        return self.reply(method)

    def reply(self, method: str = "GET") -> Reply:
        """The next response. Raises EOFError if the connection ends before its end."""
        response = http.client.HTTPResponse(self._stream, method=method)  # type: ignore[arg-type]
        try:
            response.begin()
            body = response.read()
        except (http.client.IncompleteRead, http.client.RemoteDisconnected) as error:
            raise EOFError from error
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def ended(self) -> bool:
        """Wait until the server closes the connection; False if it sends something first."""
        try:
            return self._stream.read(1) == b""
        except ConnectionError:
            return True


class _Received(io.RawIOBase):
    """What a socket receives. Unlike the socket's own files, it does not keep the socket open."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer)


class _Stream(io.BufferedReader):
    """Not closed by a response, so that the next one can be read."""

    def makefile(self, _: str) -> Self:
        return self

    def close(self) -> None:
        pass


def request(target: bytes | str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    """A request. Without a Host among the headers it has one."""
    raw = target if isinstance(target, bytes) else target.encode()
    given = [each for each in headers if each]
    if not any(each.lower().startswith("host:") for each in given):
        given.append("Host: gateway")
    if body:
        given.append(f"Content-Length: {len(body)}")
    lines = "".join(f"{each}\r\n" for each in given).encode("latin-1")
    return method.encode() + b" " + raw + b" HTTP/1.1\r\n" + lines + b"\r\n" + body


def get(port: int, target: bytes | str, *headers: str, method: str = "GET", body: bytes = b"") -> Reply:
    """One request on its own connection."""
    with HttpClient(port) as client:
        return client.get(target, *headers, method=method, body=body)


@dataclass
class Gateway:
    """A running ``HttpServer``, its state, and the errors in its event loop."""

    port: int
    http: HttpServer
    rig: Rig
    running: Running
    site: Site
    connections: Counts

    def change(self, **changes: Any) -> None:
        self.site = replace(self.site, **changes)

    def configure(self, tls: ssl.SSLContext | None = None, **settings: Any) -> None:
        self.running.call(lambda: self.http.configure(settings_of(**settings), tls))

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric; 0 if there is none."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        page = get(self.port, "/metrics").body.decode()
        for line in page.splitlines():
            key, _, value = line.rpartition(" ")
            found, _, rest = key.partition("{")
            if found == name and wanted <= set(rest.rstrip("}").split(",")):
                return float(value)
        return 0.0


def settings_of(**settings: Any) -> GatewayConfig:
    """Settings, by default without a limit on clients and their time."""
    return GatewayConfig(**{"rate": 0, "max_per_client": 100_000, "idle_timeout": PATIENCE, "proxies": (), **settings})


@contextlib.contextmanager
def loop_for(close: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[Running]:
    """An event loop. At the end, after ``close``, no task may be left, and no exception unhandled."""
    faults: list[Mapping[str, Any]] = []
    running = Running()
    running.loop.set_exception_handler(lambda _, context: faults.append(context))
    try:
        yield running
    finally:
        asyncio.run_coroutine_threadsafe(close(), running.loop).result(PATIENCE)
        left = on_loop(running, lambda: [*map(str, asyncio.all_tasks() - {asyncio.current_task()})])
        gc.collect()  # reports exceptions that were never retrieved
        running.close()
    assert not left, str(left)
    assert not faults, str(faults)


@contextlib.contextmanager
def gateway(
    rig: Rig | None = None, site: Site | None = None, tls: ssl.SSLContext | None = None, **settings: Any
) -> Iterator[Gateway]:
    """An HTTP server over a scripted DNS, by default with the table ``TABLE`` and one host in DNS."""
    rig = rig or Rig(ONE_HOST, natab=TABLE)
    metrics = Metrics()
    http = HttpServer(
        rig.sources,
        lambda: found.site,
        settings_of(**settings),
        metrics=metrics,
        statistics=Statistics(wall=time.time),
        tls=tls,
    )
    http.bind([LOOPBACK], "gateway.listen")
    with loop_for(rig.sources.stop) as running:
        site = site or Site(table_state=TableState(TABLE))
        found = Gateway(http.bound[0].port, http, rig, running, site, metrics.connections)
        found.change(metrics=lambda: metrics.page(found.site))
        on_loop(running, http.start)
        try:
            yield found
        finally:
            asyncio.run_coroutine_threadsafe(http.stop(), running.loop).result(2 * PATIENCE)
    assert not metrics.connections.open, str(metrics.connections.open)


@contextlib.contextmanager
def serving(service: Service, client: Client) -> Iterator[Running]:
    """Run a service; its ``bound`` has the port. The time of its requests counts towards no limit."""
    service.bind()
    with pytest.MonkeyPatch.context() as patch, loop_for(client.aclose) as running:
        patch.setattr("maptr.gateway.server.COST", PATIENCE)
        future = asyncio.run_coroutine_threadsafe(service.run(), running.loop)
        try:
            yield running
        finally:
            running.call(service.stop)
            future.result(2 * PATIENCE)


@contextlib.contextmanager
def running_service(client: Client, *, reread: Callable[[], Config] | None = None, **tables: Any) -> Iterator[Service]:
    """A service on a free port. ``tables`` are those of the configuration, such as ``zones``."""
    settings = tables.pop("gateway", GatewayConfig(listen=(LOOPBACK,)))
    service = Service(Config(gateway=settings, **tables), client, reread=reread)
    with serving(service, client):
        yield service


@contextlib.contextmanager
def configured(text: str = "", table: Table | None = None) -> Iterator[Service]:
    """A service with these lines of ``[gateway]`` on a free port, with a table or without any, and without DNS."""
    client = Client(["127.0.0.1#9"], policy="natab-only", table=table)
    service = Service(parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{text}'), client)
    with serving(service, client):
        yield service


class ConfiguredGateway(Maptr):
    """``maptr gateway`` with only these options, such as a configuration that names its addresses."""

    name = "gateway"

    def __init__(self, *options: str) -> None:
        super().__init__({}, *options)

    def configure(self) -> list[str]:
        return [sys.executable, "-m", "maptr", "gateway", *self.options]

    def ready(self) -> int:
        return int(self.wait_for(r"ready, serving on https?://127\.0\.0\.1:(\d+)/")[1])

    def wait_until_ready(self) -> None:
        self.ready()


class GatewayProcess(ConfiguredGateway):
    """``maptr gateway`` on a free port, with more options, and without a limit that counts the time of requests."""

    environment = {"MAPTR_GATEWAY_RATE": "0"}  # noqa: RUF012 - as annotated in the base class

    def configure(self) -> list[str]:
        return [*super().configure(), f"--listen={self.host}:{self.port}"]

    def ask(self, target: str, *headers: str, method: str = "GET") -> Reply:
        return get(self.port, target, *headers, method=method)


def on_loop(running: Running, function: Callable[[], Any]) -> Any:
    """Call a function in the event loop, and give its result."""

    async def call() -> Any:
        return function()

    return asyncio.run_coroutine_threadsafe(call(), running.loop).result(PATIENCE)
