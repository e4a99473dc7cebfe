"""A connected UDP socket in the event loop, for questions of the server's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from maptr.protocol.address import Address


class Datagrams(asyncio.DatagramProtocol):
    """The datagrams of one connected socket, a few of them; an ICMP error is raised to who waits."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | Exception] = asyncio.Queue(maxsize=16)

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._queue.full():
            self._queue.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        if not self._queue.full():
            self._queue.put_nowait(exc)

    async def next(self) -> bytes:
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found


@asynccontextmanager
async def open_datagrams(address: Address) -> AsyncIterator[tuple[asyncio.DatagramTransport, Datagrams]]:
    """A socket connected to the address, closed at the end. Raises OSError."""
    transport, answers = await asyncio.get_running_loop().create_datagram_endpoint(
        Datagrams, remote_addr=(address.host, address.port)
    )
    try:
        yield transport, answers
    finally:
        transport.close()
