"""A connected socket as a transport of asyncio, for a fraction of what asyncio's own costs a short connection.

What has come is read before anybody waits for more, so a query that came with its connection is answered without
that, and no task begins for it. Ends are told at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from maptr.serve.watch import READ, WRITE, Watch

SEND_BUFFER = 128 * 1024  # octets of replies waiting for a slow reader: two of the largest
RESUME_BUFFER = SEND_BUFFER // 4  # octets left of them when it gets more, as asyncio has it
RECEIVE = 64 * 1024  # octets taken at a time: a message of the largest
DONT_WAIT = int(socket.MSG_DONTWAIT)  # so that no call has to make a socket one that never waits


class Channel(asyncio.Transport):
    """One client's socket, which is ours from now on; ``open`` begins."""

    __slots__ = ("_closing", "_eof", "_protocol", "_reading", "_sock", "_unread", "_waiting", "_wanted", "_watch")

    def __init__(self, sock: socket.SocketType, protocol: asyncio.Protocol, watch: Watch) -> None:
        self._sock = sock
        self._protocol = protocol
        self._watch = watch
        self._waiting = bytearray()  # for the client to read
        self._wanted = 0  # that we watch for
        self._reading = True
        self._unread = False  # more waits than the protocol may add to
        self._eof = False  # our direction ends when all is sent
        self._closing = False

    def open(self) -> None:
        self._protocol.connection_made(self)
        self._read()
        self._want()

    def _ready(self) -> None:
        """Something came, or there is room for more."""
        if self._waiting:
            self._flush()
        if self._reading:
            self._read()

    def _read(self) -> None:
        try:
            octets = self._sock.recv(RECEIVE, DONT_WAIT)
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
            self._want()

    def pause_reading(self) -> None:
        self._reading = False
        self._want()

    def resume_reading(self) -> None:
        self._reading = not self._closing
        self._want()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        if not self._waiting:
            sent = self._send(data)
            if sent == len(data) or self._closing:
                return
            data = data[sent:]
        self._waiting += data
        self._want()
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
            self._want()
        else:
            self._lose()

    def abort(self) -> None:
        self._closing, self._reading = True, False
        self._waiting.clear()
        self._lose()

    def _send(self, octets: bytes | bytearray | memoryview) -> int:
        try:
            return self._sock.send(octets, DONT_WAIT)
        except BlockingIOError:
            return 0
        except OSError:  # it is gone
            self.abort()
            return 0

    def _flush(self) -> None:
        sent = self._send(self._waiting)
        if not self._waiting:
            return  # it is gone
        del self._waiting[:sent]
        if self._unread and len(self._waiting) <= RESUME_BUFFER:
            self._unread = False
            self._protocol.resume_writing()
        if self._waiting:
            return
        if self._closing:
            self._lose()
            return
        self._want()
        if self._eof:
            self.write_eof()

    def _want(self) -> None:
        """Watch for what there is to do, if anything."""
        wanted = (READ if self._reading else 0) | (WRITE if self._waiting else 0)
        if wanted == self._wanted or self._sock.fileno() == -1:
            return
        if not self._wanted:
            self._watch.add(self._sock, wanted, self._ready)
        elif wanted:
            self._watch.change(self._sock, wanted)
        else:
            self._watch.remove(self._sock)
        self._wanted = wanted

    def _lose(self) -> None:
        if self._sock.fileno() == -1:
            return
        if self._wanted:
            self._watch.forget(self._sock)
        self._sock.close()
        self._protocol.connection_lost(None)
