"""What many questions go over: a TCP exchange in pieces, and ports that give way."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from maptr.client import multiplexer
from maptr.client.exchange import Server
from maptr.client.multiplexer import SOCKETS, Connection, Flight, Port, Ports, Ready

SECONDS = 10.0  # after which what should have come never will


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(SECONDS)
        yield sock


def server_of(sock: socket.socket) -> Server:
    return Server("127.0.0.1", sock.getsockname()[1])


def test_rfc1035_4_2_2_a_reply_in_pieces_is_whole_when_its_length_says_so(listener: socket.socket) -> None:
    connection = Connection(server_of(listener), b"query")
    with closing(connection.sock):
        peer, _ = listener.accept()
        with peer:
            assert connection.write()
            peer.settimeout(SECONDS)
            assert peer.recv(100) == b"\0\5query"
            assert connection.read() is None  # nothing has come yet
            connection.sock.settimeout(SECONDS)  # so that each piece is waited for
            for piece in (b"\0", b"\5r", b"epl"):
                peer.sendall(piece)
                assert connection.read() is None
            peer.sendall(b"y and more")
            assert connection.read() == b"reply"


def test_a_reply_cut_short_is_an_error(listener: socket.socket) -> None:
    connection = Connection(server_of(listener), b"query")
    with closing(connection.sock):
        peer, _ = listener.accept()
        peer.sendall(b"\0\5rep")
        peer.close()
        connection.sock.settimeout(SECONDS)
        assert connection.read() is None
        with pytest.raises(OSError, match="closes the TCP connection early"):
            connection.read()


def test_a_message_that_the_socket_takes_in_pieces_arrives_whole() -> None:
    packet = bytes(range(256)) * 255
    with socket.socket() as small:
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # before listen(), so that connections have it
        small.bind(("127.0.0.1", 0))
        small.listen()
        small.settimeout(SECONDS)
        connection = Connection(server_of(small), packet)
        with closing(connection.sock):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            peer, _ = small.accept()
            with peer:
                peer.settimeout(SECONDS)
                assert not connection.write()
                got = b""
                while len(got) < len(packet) + 2:
                    got += peer.recv(65536)
                    sent = connection.write()
                assert sent
                assert got == len(packet).to_bytes(2, "big") + packet


def test_a_server_that_does_not_listen_is_an_error(listener: socket.socket) -> None:
    server = server_of(listener)
    listener.close()

    def connect() -> None:  # the system may say so at once, or when it is written to
        connection = Connection(server, b"query")
        with closing(connection.sock):
            connection.write()

    with pytest.raises(ConnectionRefusedError):
        connect()


class Watched:
    """A waiter that only remembers what it watches."""

    def __init__(self) -> None:
        self.socks: list[socket.socket] = []

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        self.socks.append(sock)

    def unwatch(self, sock: socket.socket) -> None:
        self.socks.remove(sock)


def test_rfc5452_9_2_ports_are_several_and_each_gives_way_when_it_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexer, "REUSES", 2)
    watched = Watched()
    pool = Ports(watched, lambda port: False)
    server = Server("127.0.0.1", 9)
    first = [pool.next(server) for _ in range(SOCKETS)]
    assert len({port.sock.getsockname() for port in first}) == SOCKETS
    busy = first[0]
    busy.flights[b"id"] = Flight.__new__(Flight)  # a question outstanding there
    later: list[Port] = []
    for _ in range(3 * SOCKETS):
        later.append(pool.next(server))
    now = set(later[-SOCKETS:])
    assert busy in now
    assert now & set(first) == {busy}
    assert all(port.sock.fileno() == -1 for port in first if port is not busy)
    busy.flights.clear()
    assert busy not in [pool.next(server) for _ in range(SOCKETS)]
    assert len(watched.socks) == SOCKETS
    pool.close()
    assert watched.socks == []
