"""An HTTP server on loopback whose responses a test decides."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
