"""An HTTP server on loopback whose responses a test decides."""

from __future__ import annotations

import socketserver
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.scripted import running
from tests.support.waiting import PATIENCE

Handle = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def http_server(handle: Handle, *, certificate: Path | None = None) -> Iterator[str]:
    """The URL of a server that answers GET and HEAD by ``handle``; with TLS if there is a folder with a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def do_HEAD(self) -> None:
            handle(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server) as port:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{port}/naans"


def sends(content: bytes, status: int = 200, length: int | None = None, **headers: str) -> Handle:
    """A handler that sends this response; ``length`` overrides Content-Length."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(content) if length is None else length))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return handle


def holds(sent: bytes) -> Handle:
    """A handler that sends this, and nothing more until the client leaves."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        request.connection.settimeout(PATIENCE)
        with suppress(OSError):
            request.wfile.write(sent)
            request.rfile.read(1)

    return handle


@dataclass
class Pages:
    """A running web server, and the raw targets of its requests."""

    port: int
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


Respond = Callable[[str], tuple[int, dict[str, str], bytes]]


@contextmanager
def pages(respond: Respond, *, certificate: Path | None = None) -> Iterator[Pages]:
    """A server whose status, headers and body follow from the raw target."""
    running = Pages(0)

    def handle(request: BaseHTTPRequestHandler) -> None:
        running.asked.append(request.path)
        status, headers, body = respond(request.path)
        sends(body, status, None, **headers)(request)

    with http_server(handle, certificate=certificate) as url:
        running.port = int(url.rpartition(":")[2].partition("/")[0])
        yield running


@contextmanager
def raw_server(first: bytes, more: bytes) -> Iterator[int]:
    """The port of a server that answers any request with ``first`` and then ``more`` without end, if there is more."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(65536)
                self.request.settimeout(0.2)  # for more than fits the buffer: the end of a client may come unnoticed
                self.request.sendall(first)
                while more:
                    self.request.sendall(more)

    with running(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        yield port
