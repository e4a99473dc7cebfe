"""Private parts of other packages still exist, and no import changes them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from asyncio.sslproto import SSLProtocol

import pytest

from maptr.daemon import private


def test_asyncio_has_the_size_of_a_tls_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", 256 * 1024)
    private.shrink_tls_buffers()
    assert SSLProtocol.max_size == private.TLS_BUFFER
    assert "self.max_size" in inspect.getsource(SSLProtocol.__init__)  # each connection makes its buffer of that size


def test_an_import_of_the_servers_changes_nothing_of_asyncio() -> None:
    program = (
        "from asyncio.sslproto import SSLProtocol as P; import maptr.gateway.service, maptr.server.daemon;"
        " print(P.max_size)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "262144\n"


def test_aiohttp_has_the_requests_that_wait() -> None:
    web_protocol = pytest.importorskip("aiohttp.web_protocol")
    assert "_messages" in web_protocol.RequestHandler.__slots__
