"""Private attributes of asyncio and aiohttp that servers use for lack of a public API. A test checks each of them."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

TLS_BUFFER = 1 << 14  # bytes; a record (RFC 8446 5.1)


def shrink_tls_buffers() -> None:
    """Have asyncio read one record at a time from this process's TLS connections.

    Each open connection keeps a buffer of that size, by default 256 KB, which is most of its memory.
    """
    SSLProtocol.max_size = TLS_BUFFER


def has_further_requests(handler: object) -> bool:
    """Return whether aiohttp's handler for a connection has read requests that it has not begun to answer."""
    return bool(handler._messages)  # type: ignore[attr-defined]
