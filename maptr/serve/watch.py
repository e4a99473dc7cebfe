"""Sockets on which something may come, and what is called then: one reader to the event loop, however many they are.

asyncio's own readers are a handle with a copy of the context each, and cost a connection with one query more than its
answer does. What is called here must not mind that nothing has come after all.
"""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import Callable

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
AT_ONCE = 64  # sockets that have their turn before others of the event loop do


class Watch:
    """READ, WRITE or both are ``wanted`` of a socket. ``fileno`` can be read when ``turn`` has something to call."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        return self._selector.fileno()

    def add(self, sock: socket.SocketType, wanted: int, call: Callable[[], object]) -> None:
        self._selector.register(sock, wanted, call)

    def change(self, sock: socket.SocketType, wanted: int) -> None:
        self._selector.modify(sock, wanted, self._selector.get_key(sock).data)

    def remove(self, sock: socket.SocketType) -> None:
        self._selector.unregister(sock)

    def forget(self, sock: socket.SocketType) -> None:
        """As ``remove``, of one that nobody else has and that is closed next."""
        self._selector.unregister(sock)

    def turn(self) -> None:
        for key, _ in self._selector.select(0):
            key.data()

    def close(self) -> None:
        self._selector.close()


class EpollWatch(Watch):
    """The same by Linux' own means, which ``selectors`` takes its time for: an end costs no call, for one."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], object]] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def add(self, sock: socket.SocketType, wanted: int, call: Callable[[], object]) -> None:
        descriptor = sock.fileno()
        self._epoll.register(descriptor, _EPOLL[wanted])
        self._calls[descriptor] = call

    def change(self, sock: socket.SocketType, wanted: int) -> None:
        self._epoll.modify(sock, _EPOLL[wanted])

    def remove(self, sock: socket.SocketType) -> None:
        # Not by closing it: what another process has as well, epoll does not forget then (epoll(7), questions).
        self._epoll.unregister(sock)
        self.forget(sock)

    def forget(self, sock: socket.SocketType) -> None:
        del self._calls[sock.fileno()]

    def turn(self) -> None:
        for descriptor, _ in self._epoll.poll(0, AT_ONCE):
            call = self._calls.get(descriptor)
            if call is not None:  # one that was called before it in this turn may have closed it
                call()

    def close(self) -> None:
        self._epoll.close()


if hasattr(select, "epoll"):
    _EPOLL = (0, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT)
make_watch: Callable[[], Watch] = EpollWatch if hasattr(select, "epoll") else Watch
