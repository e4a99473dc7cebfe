"""An HTTP server on loopback whose responses a test decides."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Handle = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def http_server(handle: Handle, *, certificate: Path | None = None) -> Iterator[str]:
    """The URL of a server that answers each GET with ``handle``; with TLS if there is a folder with a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}/naans"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                continue
            with sock, suppress(OSError):
                sock.settimeout(10)
                sock.recv(65536)
                sock.settimeout(0.2)  # the client may not read all
                sock.sendall(first)
                while more and not over.is_set():
                    sock.sendall(more)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()
