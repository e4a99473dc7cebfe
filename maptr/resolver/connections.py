"""TCP and TLS connections with many queries on each: sent at once, answered in any order, reused (RFC 7766).

Each outstanding query has a unique ID on its connection, which passes a response to the query with its ID; the exchange
decides whether it is about the same question. A response with an ID that no query has or had is an error for all. A
server that closes a connection with outstanding queries, or stops answering, gets fewer on the next ones, down to one
each. If it closes one with a single query, or the process may not open another, fewer connections are open at a time.
Both numbers grow again slowly, with each response.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from maptr.protocol.numbers import MAX_MESSAGE
from maptr.resolver.servers import Server

if TYPE_CHECKING:
    import ssl

MAX_CONNECTIONS = 8  # at a time; Unbound allows 10 in all (incoming-num-tcp), maptr serve 50 per client
MAX_OUTSTANDING = 32  # queries on one connection
MAX_USES = 10_000  # queries on one connection, one after the other
GROWTH = 0.01  # by which a limit that was lowered grows with each response
IDLE_SECONDS = 5.0  # without a query, after which a shared connection is closed (RFC 7766 6.2.3)

CLOSED_EARLY = "the server closes the connection early"
OTHER_QUESTION = "a TCP response to another question"
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
CLOSED = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)

Ready = Callable[[], object]
Reply = Callable[[bytes | OSError], None]
"""Receives the response to a query, or what went wrong."""
Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after that many seconds, as ``call_later`` of an event loop does."""


class Waiter(Protocol):
    """Calls ``ready`` when a socket can be read, or written to. ``wake`` ends a wait, as such a call does."""

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None: ...
    def unwatch(self, sock: socket.socket) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class UnansweredError(ConnectionResetError):
    """The server closed a connection with several queries before it answered this one: it is to be sent again."""


class _Limit:
    """A limit that a server or the process may lower, to at least 1, and that grows again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = float(most)

    def is_reached(self, count: int) -> bool:
        return count >= int(self._allowed)

    def lower(self, to: int) -> None:
        self._allowed = float(max(1, min(int(self._allowed), to)))

    def grow(self) -> None:
        self._allowed = min(self._most, self._allowed + GROWTH)


class _Asked(NamedTuple):
    """An outstanding query: what receives its response, and the number of responses before it was sent."""

    reply: Reply
    answers: int


class TcpConnection:
    """One non-blocking connection, and the queries outstanding on it by ID. Raises OSError."""

    def __init__(self, server: Server, waiter: Waiter, pool: TcpPool) -> None:
        self.server = server
        self.pending: dict[bytes, _Asked] = {}
        self.uses = self.answers = 0
        self.used_at = time.monotonic()
        self.is_retired = False  # it takes no more queries
        self._late: set[bytes] = set()  # IDs of queries that were given up
        self._unsent = self._received = b""
        self._waiter, self._pool = waiter, pool
        self._writes = True  # what the waiter waits for
        self.sock = self._socket(server)
        try:
            code = self.sock.connect_ex(server.socket_address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            waiter.watch(self.sock, self._continue, write=True)
        except BaseException:
            self.sock.close()
            raise

    def is_free(self, ident: bytes) -> bool:
        """Return whether a query may have this ID."""
        return ident not in self.pending and ident not in self._late

    def ask(self, ident: bytes, packet: bytes, reply: Reply) -> None:
        """Send a query with its ID. ``reply`` is called once, unless it is withdrawn, and not from within here."""
        self.pending[ident] = _Asked(reply, self.answers)
        self.uses += 1
        self.used_at = time.monotonic()
        self._unsent += len(packet).to_bytes(2, "big") + packet  # in one segment (RFC 7766 8)
        self._watch(write=True)

    def withdraw(self, ident: bytes) -> None:
        """Give up a query. If nothing has arrived since it was sent, further ones get another connection."""
        asked = self.pending.pop(ident, None)
        if asked is None:
            return
        self._late.add(ident)
        if asked.answers == self.answers:
            self.is_retired = True
            self._pool.stalled(self)
        self._pool.settled(self)

    def close(self) -> None:
        """Close it, unless that was done. Its queries get no reply."""
        if self.sock.fileno() >= 0:
            self._waiter.unwatch(self.sock)
            self.sock.close()
            self._pool.removed(self)

    def _socket(self, server: Server) -> socket.socket:
        made = socket.socket(family(server), socket.SOCK_STREAM)
        made.setblocking(False)
        return made

    def _watch(self, *, write: bool) -> None:
        if write is not self._writes:
            self._writes = write
            self._waiter.unwatch(self.sock)
            self._waiter.watch(self.sock, self._continue, write=write)

    def _continue(self) -> None:
        if self.sock.fileno() < 0:
            return  # closed since the waiter saw it
        try:
            self._transfer()
        except OSError as error:
            write = self._needs_to_write(error)
            if write is None:
                self._fail(self._reason(error))
            else:
                self._watch(write=write)
                self._pool.settled(self)

    def _transfer(self) -> None:
        """Send queries and read responses. Raises OSError, even where it would block."""
        if self._unsent:
            self._check_connected()
        while self._unsent:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        while self.sock.fileno() >= 0:
            part = self.sock.recv(MAX_MESSAGE)
            if not part:
                raise ConnectionResetError(CLOSED_EARLY)
            self._received += part
            while len(self._received) >= (end := 2 + int.from_bytes(self._received[:2], "big")) > 2:
                message, self._received = self._received[2:end], self._received[end:]
                self._deliver(message)
            if self._received[:2] == b"\0\0":
                raise OSError(OTHER_QUESTION)

    def _deliver(self, message: bytes) -> None:
        ident = message[:2]
        asked = self.pending.pop(ident, None)
        if asked is None and ident not in self._late:
            raise OSError(OTHER_QUESTION)
        self.answers += 1
        self.used_at = time.monotonic()
        self._late.discard(ident)
        self._pool.answered(self)
        if asked is not None:
            asked.reply(message)

    def _fail(self, error: OSError) -> None:
        """Close it, and hand an error to all that wait for a response."""
        pending, self.pending = self.pending, {}
        if isinstance(error, CLOSED) and pending and self.uses > 1:
            error = UnansweredError(CLOSED_EARLY)
        self.close()
        if pending:
            self._pool.failed(self, error)
        for asked in pending.values():
            asked.reply(error)

    def _check_connected(self) -> None:
        if code := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))

    def _needs_to_write(self, error: OSError) -> bool | None:
        """Return whether to wait until the socket can be written to, or read; None for an error that ends it."""
        return bool(self._unsent) if isinstance(error, BlockingIOError) else None

    def _reason(self, error: OSError) -> OSError:
        return error


def refused_certificate(error: ssl.SSLCertVerificationError) -> OSError:
    """Return the error for a server, queried over TLS or HTTPS, whose certificate is not valid for its host."""
    return OSError(f"its certificate is refused: {error.verify_message}")


class TlsConnection(TcpConnection):
    """A TLS connection (RFC 7858), to a server with a certificate for its host."""

    def __init__(self, server: Server, waiter: Waiter, pool: TcpPool, context: ssl.SSLContext) -> None:
        self._context = context
        self._is_open = False  # the handshake is done
        super().__init__(server, waiter, pool)

    def _socket(self, server: Server) -> socket.socket:
        plain = super()._socket(server)
        try:
            self._tls = self._context.wrap_socket(plain, server_hostname=server.tls, do_handshake_on_connect=False)
        except ValueError as error:
            plain.close()
            raise OSError(str(error)) from None
        return self._tls

    def _transfer(self) -> None:
        self._check_connected()  # the TLS socket itself would only say that it is not connected
        if not self._is_open:
            self._tls.do_handshake()
            self._is_open = True
        super()._transfer()

    def _needs_to_write(self, error: OSError) -> bool | None:
        import ssl

        if isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
            return isinstance(error, ssl.SSLWantWriteError)
        return None

    def _reason(self, error: OSError) -> OSError:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return refused_certificate(error)
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return ConnectionResetError(CLOSED_EARLY)
        return error


class TcpPool:
    """The connections to all servers, ``most`` at a time. ``tls_context`` makes the context that verifies certificates.

    With ``later``, idle ones are closed after IDLE_SECONDS, and so are the sockets of a pool dropped without ``close``;
    else they remain open until ``close``.
    """

    def __init__(
        self, waiter: Waiter, most: int, tls_context: Callable[[], ssl.SSLContext], later: Later | None = None
    ) -> None:
        self._waiter = waiter
        self._tls_context = tls_context
        self._later = later
        self._connections: defaultdict[Server, list[TcpConnection]] = defaultdict(list)
        self._open = _Limit(most)
        self._uses: defaultdict[Server, _Limit] = defaultdict(lambda: _Limit(MAX_USES))
        self._sockets: set[socket.socket] = set()
        self._blocked: dict[Waiter, None] = {}
        self._is_closed = False
        if later is not None:
            weakref.finalize(self, _close_sockets, self._sockets)

    def has_room(self, server: Server) -> bool:
        """Return whether a query can be sent now, perhaps on a new connection."""
        return (
            self._usable(server) is not None
            or not self._open.is_reached(len(self._sockets))
            or self._idle() is not None
        )

    def wake_later(self, waiter: Waiter) -> None:
        """Wake a waiter when a query or a connection has ended."""
        self._blocked[waiter] = None

    def connection(self, server: Server) -> TcpConnection | None:
        """Return a connection for a query to this server; None if the process may not open one until another is closed.

        Raises OSError.
        """
        usable = self._usable(server)
        if usable is not None:
            return usable
        if self._is_closed:
            raise OSError("the client is closed")
        if self._open.is_reached(len(self._sockets)) and (idle := self._idle()) is not None:
            idle.close()
        try:
            made = (
                TlsConnection(server, self._waiter, self, self._tls_context())
                if server.tls
                else TcpConnection(server, self._waiter, self)
            )
        except OSError as error:
            if error.errno in TOO_MANY_FILES and self._sockets:
                self._open.lower(len(self._sockets))
                return None
            raise
        self._sockets.add(made.sock)
        self._connections[server].append(made)
        if self._later is not None:
            self._later(IDLE_SECONDS, lambda: self._close_if_idle(made))
        return made

    def close(self) -> None:
        """Close all connections. Their queries get an error, and so do later ones."""
        self._is_closed = True
        for one in self._all():
            pending, one.pending = one.pending, {}
            one.close()
            for asked in pending.values():
                asked.reply(OSError("the client is closed"))

    def abandon(self) -> None:
        """Close the sockets of an event loop that was closed."""
        _close_sockets(self._sockets)

    # ---- what connections report

    def answered(self, one: TcpConnection) -> None:
        self._open.grow()
        if one.server in self._uses:
            self._uses[one.server].grow()

    def settled(self, one: TcpConnection) -> None:
        """Close a connection without outstanding queries that takes no more, and wake those that wait for room."""
        if not one.pending and not self._takes_more(one):
            one.close()
        self._wake()

    def stalled(self, one: TcpConnection) -> None:
        """Send fewer queries on further connections: some servers answer the first one only."""
        if one.uses > 1:
            self._uses[one.server].lower(one.answers)

    def failed(self, one: TcpConnection, error: OSError) -> None:
        if isinstance(error, UnansweredError):
            self._uses[one.server].lower(one.answers)
        elif isinstance(error, CLOSED):
            self._open.lower(len(self._sockets))

    def removed(self, one: TcpConnection) -> None:
        self._wake()
        self._sockets.discard(one.sock)
        self._connections[one.server].remove(one)
        if not self._connections[one.server]:
            del self._connections[one.server]

    def _all(self) -> list[TcpConnection]:
        return [one for connections in self._connections.values() for one in connections]

    def _usable(self, server: Server) -> TcpConnection | None:
        """Return the first connection to this server that has room."""
        for one in self._connections.get(server, ()):
            if len(one.pending) < MAX_OUTSTANDING and self._takes_more(one):
                return one
        return None

    def _takes_more(self, one: TcpConnection) -> bool:
        limit = self._uses.get(one.server)
        return not one.is_retired and one.uses < MAX_USES and (limit is None or not limit.is_reached(one.uses))

    def _idle(self) -> TcpConnection | None:
        return next((one for one in self._all() if not one.pending), None)

    def _close_if_idle(self, one: TcpConnection) -> None:
        if one.sock.fileno() < 0 or self._later is None:
            return
        left = one.used_at + IDLE_SECONDS - time.monotonic()
        if not one.pending and left <= 0:
            one.close()
        else:
            self._later(max(left, IDLE_SECONDS / 10), lambda: self._close_if_idle(one))

    def _wake(self) -> None:
        blocked, self._blocked = self._blocked, {}
        for waiter in blocked:
            waiter.wake()


def _close_sockets(sockets: set[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def family(server: Server) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.address else socket.AF_INET
