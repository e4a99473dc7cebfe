"""TLS over a plain stream, each direction of which ends by itself (RFC 8446 6.1).

asyncio's own answers the client's close_notify with an end of both directions, and drops what was asked before it and
has no reply yet. TLS 1.2 wants that of a server (RFC 5246 7.2.1), 1.3 does not, and no client of either minds replies.
What is read here and written is what ``tcp.converse`` needs of a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SHUTDOWN_TIMEOUT = 1.0  # seconds to wait for a client's own end of TLS, which tells us nothing
RECORD = 16 * 1024  # octets of plain text that a TLS record has at most (RFC 8446 5.1)


class _EndOfStreamError(ConnectionError):
    """The stream below ended without a close_notify."""


class TlsStream:
    """The server's end of TLS. Every method but ``write`` may raise OSError, which ssl.SSLError is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        self._reader, self._writer = reader, writer
        self.transport: asyncio.WriteTransport = writer.transport
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._plain = bytearray()

    async def handshake(self) -> None:
        await self._step(self._tls.do_handshake)

    async def readexactly(self, n: int) -> bytes:
        """So many octets. Raises asyncio.IncompleteReadError where the client's direction ends before."""
        while len(self._plain) < n:
            try:
                octets = await self._step(lambda: self._tls.read(RECORD))
            except (ssl.SSLZeroReturnError, _EndOfStreamError):
                octets = b""
            if not octets:
                partial = bytes(self._plain)
                self._plain.clear()
                raise asyncio.IncompleteReadError(partial, n)
            self._plain += octets
        found = bytes(self._plain[:n])
        del self._plain[:n]
        return found

    def write(self, data: bytes) -> None:
        self._tls.write(data)

    async def drain(self) -> None:
        self._flush()
        await self._writer.drain()

    def close(self) -> None:
        """End our direction."""
        with contextlib.suppress(ssl.SSLError):  # it wants to read the client's close_notify, which tells us nothing
            self._tls.unwrap()
        self._flush()
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def wait_closed(self) -> None:
        """Wait for the client to end its direction, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                # Unread octets would reset the connection, and what we sent last might never be seen.
                while await self._reader.read(RECORD):
                    pass
        self._writer.close()
        await self._writer.wait_closed()

    async def _step(self, step: Callable[[], T]) -> T:
        """What OpenSSL gives once it has read enough."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                self._flush()  # an alert too, for who began what is no TLS
            if octets := await self._reader.read(2 * RECORD):
                self._in.write(octets)
            else:
                # OpenSSL is not told: to it this is an attack, and it would write no more. Messages have their
                # length, so none can be cut unseen.
                raise _EndOfStreamError

    def _flush(self) -> None:
        if self._out.pending and not self._writer.is_closing():
            self._writer.write(self._out.read())
