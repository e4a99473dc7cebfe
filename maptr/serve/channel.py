"""A connected socket as a transport of asyncio, for a fraction of what asyncio's own costs a short connection.

What has come is read before anybody waits for more, so a query that came with its connection is answered without
that. Who waits does so in a selector of the listener's, which is one reader to the event loop, however many there are:
it keeps neither a handle for each nor a copy of the context, and starts no task to open one. Ends are told at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
from selectors import EVENT_READ, EVENT_WRITE

SEND_BUFFER = 128 * 1024  # octets of replies waiting for a slow reader: two of the largest
RESUME_BUFFER = SEND_BUFFER // 4  # octets left of them when it gets more, as asyncio has it
RECEIVE = 64 * 1024  # octets taken at a time: a message of the largest


class Channel(asyncio.Transport):
    """One client's socket, which is ours from now on; ``open`` begins, and ``ready`` is for the selector's events."""

    __slots__ = ("_closing", "_eof", "_protocol", "_reading", "_selector", "_sock", "_unread", "_waiting", "_watched")

    def __init__(self, sock: socket.socket, protocol: asyncio.Protocol, selector: selectors.BaseSelector) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._protocol = protocol
        self._selector = selector
        self._waiting = bytearray()  # for the client to read
        self._watched = 0  # events that the selector has
        self._reading = True
        self._unread = False  # more waits than the protocol may add to
        self._eof = False  # our direction ends when all is sent
        self._closing = False

    def open(self) -> None:
        self._protocol.connection_made(self)
        self.ready(EVENT_READ)
        self._watch()

    def ready(self, events: int) -> None:
        """Something came, or there is room for more; that it is no longer so does no harm."""
        if events & EVENT_WRITE and self._waiting:
            self._flush()
        if events & EVENT_READ and self._reading:
            self._read()

    def _read(self) -> None:
        try:
            octets = self._sock.recv(RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            self.abort()
            return
        if octets:
            self._protocol.data_received(octets)
        else:
            self._reading = False
            self._protocol.eof_received()
            self._watch()

    def pause_reading(self) -> None:
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        self._reading = not self._closing
        self._watch()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        if not self._waiting:
            sent = self._send(data)
            if sent == len(data) or self._closing:
                return
            data = data[sent:]
        self._waiting += data
        self._watch()
        if len(self._waiting) > SEND_BUFFER and not self._unread:
            self._unread = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        """End our direction once all is sent."""
        self._eof = True
        if not self._waiting and not self._closing:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Read no more, and end once all is sent."""
        self._closing, self._reading = True, False
        if self._waiting:
            self._watch()
        else:
            self._lose()

    def abort(self) -> None:
        self._closing, self._reading = True, False
        self._waiting.clear()
        self._lose()

    def _send(self, octets: bytes | bytearray | memoryview) -> int:
        try:
            return self._sock.send(octets)
        except BlockingIOError:
            return 0
        except OSError:  # it is gone
            self.abort()
            return 0

    def _flush(self) -> None:
        del self._waiting[: self._send(self._waiting)]
        if self._unread and len(self._waiting) <= RESUME_BUFFER:
            self._unread = False
            self._protocol.resume_writing()
        if self._waiting:
            return
        if self._closing:
            self._lose()
            return
        self._watch()
        if self._eof:
            self.write_eof()

    def _watch(self) -> None:
        """Have the selector watch for what we want, if anything."""
        wanted = (EVENT_READ if self._reading else 0) | (EVENT_WRITE if self._waiting else 0)
        if wanted == self._watched or self._sock.fileno() == -1:
            return
        if not self._watched:
            self._selector.register(self._sock, wanted, self.ready)
        elif wanted:
            self._selector.modify(self._sock, wanted, self.ready)
        else:
            self._selector.unregister(self._sock)
        self._watched = wanted

    def _lose(self) -> None:
        if self._sock.fileno() == -1:
            return
        if self._watched:
            self._selector.unregister(self._sock)
        self._sock.close()
        self._protocol.connection_lost(None)
