"""TLS between octets that come and octets that go, each direction of which ends by itself (RFC 8446 6.1).

asyncio's own answers the client's close_notify with an end of both directions, and drops what was asked before it and
has no reply yet. TLS 1.2 wants that of a server (RFC 5246 7.2.1), 1.3 does not, and no client of either minds replies.
No socket is known here.
"""

from __future__ import annotations

import contextlib
import ssl

RECORD = 16 * 1024  # octets of plain text that a TLS record has at most (RFC 8446 5.1)


class Tls:
    """The server's end of one TLS connection. What is to be sent is in what ``sealed`` and ``closed`` give."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self.open = False  # after the handshake
        self.ended = False  # by the client's close_notify

    def received(self, octets: bytes) -> bytes:
        """The plain text of what came. Raises ssl.SSLError, an alert for the client being ready to be sent."""
        self._in.write(octets)
        plain: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            if not self.open:
                self._tls.do_handshake()
                self.open = True
            while part := self._tls.read(RECORD):
                plain.append(part)
            self.ended = True
        return b"".join(plain)

    def sealed(self, plain: bytes) -> bytes:
        """Records of this plain text, and what else is to be sent."""
        if plain:
            self._tls.write(plain)
        return self._out.read() if self._out.pending else b""

    def closed(self) -> bytes:
        """The end of our direction."""
        with contextlib.suppress(ssl.SSLError):  # it wants to read the client's close_notify, which tells us nothing
            self._tls.unwrap()
        return self._out.read()
