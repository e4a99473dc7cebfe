"""A channel on real sockets, whichever watch it has: what it reads, what waits, and how it ends."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from maptr.serve.channel import RESUME_BUFFER, SEND_BUFFER, Channel
from maptr.serve.watch import READ, EpollWatch, Watch, make_watch

RESET = struct.pack("ii", 1, 0)  # SO_LINGER of a socket whose close is a reset


class Listener(asyncio.Protocol):
    """Keeps what it is told; ``on_data`` is what it does then."""

    def __init__(self, on_data: Callable[[Channel], object] = lambda _: None) -> None:
        self.on_data = on_data
        self.said: list[str] = []
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Channel)
        self.channel = transport
        self.said.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.on_data(self.channel)

    def eof_received(self) -> bool:
        self.said.append("eof")
        return True

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.said.append("lost")


@pytest.fixture(params=[EpollWatch, Watch])
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    watch: Watch = request.param()
    yield watch
    watch.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.SocketType, socket.socket]]:
    """The server's end of a TCP connection and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    client.settimeout(5)
    yield server, client
    server.close()
    client.close()


Pair = tuple[socket.SocketType, socket.socket]


def has_come(watch: Watch, seconds: float = 5) -> bool:
    return bool(select.select([watch], [], [], seconds)[0])


def turn(watch: Watch) -> None:
    assert has_come(watch)
    watch.turn()


def test_what_came_first_is_read_at_once_and_an_end_leaves_nothing_behind(pair: Pair, watch: Watch) -> None:
    server, client = pair
    client.sendall(b"query")
    select.select([server], [], [], 5)

    def answer(channel: Channel) -> None:
        channel.write(b"reply")
        channel.close()

    protocol = Listener(answer)
    Channel(server, protocol, watch).open()
    assert (protocol.data, protocol.said) == (b"query", ["made", "lost"])
    assert client.recv(100) == b"reply"
    assert client.recv(100) == b""
    assert not has_come(watch, 0)


def test_what_comes_later_and_the_end_of_the_clients_side(pair: Pair, watch: Watch) -> None:
    server, client = pair
    protocol = Listener()
    Channel(server, protocol, watch).open()
    for octet in b"query":
        client.sendall(bytes((octet,)))
        turn(watch)
    client.shutdown(socket.SHUT_WR)
    turn(watch)
    assert (protocol.data, protocol.said) == (b"query", ["made", "eof"])
    assert not has_come(watch, 0), "an end is told once"
    protocol.channel.write(b"reply")
    protocol.channel.close()
    protocol.channel.close()
    protocol.channel.abort()
    protocol.channel.write(b"nothing")
    assert client.recv(100) == b"reply"
    assert client.recv(100) == b""
    assert protocol.said == ["made", "eof", "lost"]


def test_what_the_client_does_not_read_waits_and_goes_in_order(pair: Pair, watch: Watch) -> None:
    server, client = pair
    protocol = Listener()
    Channel(server, protocol, watch).open()
    written = b""
    while "pause" not in protocol.said:
        part = os.urandom(RESUME_BUFFER // 2)
        protocol.channel.write(part)
        written += part
    assert len(written) > SEND_BUFFER
    received = b""
    while "resume" not in protocol.said:
        received += client.recv(1 << 16)
        watch.turn()
    assert len(received) < len(written)
    protocol.channel.write(b"last")
    protocol.channel.write_eof()
    protocol.channel.close()
    while part := client.recv(1 << 16):
        received += part
        watch.turn()
    assert received == written + b"last"
    assert protocol.said == ["made", "pause", "resume", "lost"]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_reset_ends_it_once(pair: Pair, watch: Watch, waiting: bool) -> None:
    server, client = pair
    protocol = Listener()
    Channel(server, protocol, watch).open()
    while waiting and "pause" not in protocol.said:
        protocol.channel.write(bytes(SEND_BUFFER))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    while protocol.said[-1] != "lost":
        turn(watch)
    assert protocol.said.count("lost") == 1
    assert server.fileno() == -1
    assert not has_come(watch, 0)


def test_a_reset_that_is_met_while_writing(pair: Pair, watch: Watch) -> None:
    server, client = pair
    protocol = Listener()
    Channel(server, protocol, watch).open()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    select.select([server], [], [], 5)
    protocol.channel.write(b"reply")
    assert protocol.said == ["made", "lost"]
    watch.turn()
    assert protocol.said == ["made", "lost"]


def test_one_that_reads_no_more_is_called_for_nothing(pair: Pair, watch: Watch) -> None:
    server, client = pair
    protocol = Listener()
    Channel(server, protocol, watch).open()
    protocol.channel.pause_reading()
    client.sendall(b"query")
    assert not has_come(watch, 0.05)
    protocol.channel.resume_reading()
    turn(watch)
    assert protocol.data == b"query"
    watch.turn()
    protocol.channel.abort()
    protocol.channel.resume_reading()
    assert protocol.said == ["made", "lost"]


def test_one_may_end_another_that_has_its_turn_next(watch: Watch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        clients = [socket.create_connection(listening.getsockname()) for _ in range(2)]
        servers = [listening.accept()[0] for _ in range(2)]
    protocols: list[Listener] = []
    protocols += [Listener(lambda _: protocols[1].channel.abort()), Listener(lambda _: protocols[0].channel.abort())]
    for server, protocol in zip(servers, protocols, strict=True):
        Channel(server, protocol, watch).open()
    for client in clients:
        client.sendall(b"query")
    select.select([servers[0]], [], [], 5)
    select.select([servers[1]], [], [], 5)
    watch.turn()
    assert sorted(protocol.said[-1] for protocol in protocols) == ["lost", "made"]
    assert sorted(protocol.data for protocol in protocols) == [b"", b"query"]
    for sock in (*clients, *servers):
        sock.close()


def test_a_listening_socket_that_another_process_has_as_well_is_watched_no_more(watch: Watch) -> None:
    """Otherwise a worker that gives way would turn for each connection to the next one, and never sleep."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = os.dup(listening.fileno())  # the same open file, as a forked process has it
        watch.add(listening, READ, lambda: None)
        watch.remove(listening)
        place = listening.getsockname()
        listening.close()
        with socket.create_connection(place):
            assert not has_come(watch, 0.05)
        os.close(other)


def test_linux_has_its_own_watch() -> None:
    watch = make_watch()
    assert isinstance(watch, EpollWatch)
    watch.close()
