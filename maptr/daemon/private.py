"""Private parts of asyncio and aiohttp that servers use, because there is no public way. A test has each attribute."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

TLS_BUFFER = 1 << 14  # bytes; a record (RFC 8446 5.1)


def shrink_tls_buffers() -> None:
    """Have asyncio read a record at a time from the TLS connections of this process.

    Each open connection keeps a buffer of that size; by default 256 KB, which is most of its memory.
    """
    SSLProtocol.max_size = TLS_BUFFER


def has_further_requests(handler: object) -> bool:
    """Return whether aiohttp's handler of a connection has read requests that it has not begun to answer."""
    return bool(handler._messages)  # type: ignore[attr-defined]
