"""Clients that ask without a pause: plain ones by UDP and TCP, and a flood by UDP from many ports."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

import dns.exception
import dns.message
import dns.query
import dns.rcode

from tests.server.test_daemon import PATIENCE

WINDOW = 8  # sockets a thread, each with one query under way


class _Clients:
    """Threads that ask until told to stop."""

    def __init__(self, asking: Iterable[Callable[[], None]]) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=ask) for ask in asking]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask no more; what was asked has its answer then, or is lost."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Load(_Clients):
    """Clients by UDP, and every second one by TCP; every query is answered and none fails, or ``faults`` says so."""

    def __init__(self, port: int, clients: int = 3, patience: float = PATIENCE) -> None:
        super().__init__(partial(self._ask, number % 2 == 1) for number in range(clients))
        self.port = port
        self.patience = patience
        self.asked = 0
        self.faults: list[str] = []

    def _ask(self, over_tcp: bool) -> None:
        query = dns.message.make_query("ns.a.test.", "A")
        ask: Callable[..., dns.message.Message] = dns.query.tcp if over_tcp else dns.query.udp
        while not self._stop.is_set():
            try:
                reply = ask(query, "127.0.0.1", self.patience, self.port)
            except (OSError, EOFError, dns.exception.DNSException) as error:
                self.faults.append(repr(error))
                continue
            self.asked += 1
            if reply.rcode() != dns.rcode.NOERROR or not reply.answer:
                self.faults.append(str(reply))


class Flood(_Clients):
    """Threads that ask one question over UDP, from many ports, so that the kernel spreads them over every worker;
    ``lost`` queries had no answer in ``patience`` seconds, ``check`` finds faults."""

    def __init__(
        self,
        port: int,
        wire: bytes,
        check: Callable[[bytes], bool] = lambda reply: not reply[3] & 15,
        *,
        threads: int = 2,
        patience: float = 20.0,
    ) -> None:
        super().__init__([self._ask] * threads)
        self.port = port
        self.answered = 0
        self.lost = 0
        self.faults: list[bytes] = []
        self._wire = wire
        self._check = check
        self._patience = patience
        self._lock = threading.Lock()

    def wait_for(self, answered: int) -> None:
        """Until so many more were answered. Raises AssertionError if that takes a minute."""
        goal, deadline = self.answered + answered, time.monotonic() + 60
        while self.answered < goal:
            assert time.monotonic() < deadline, (self.answered, self.lost)
            time.sleep(0.005)

    def _ask(self) -> None:
        socks = {}
        for _ in range(WINDOW):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(("127.0.0.1", self.port))
            socks[sock.fileno()] = sock
        poll = select.epoll()
        under_way: dict[int, tuple[bytes, float]] = {}
        number = 0
        for fileno in socks:
            poll.register(fileno, select.EPOLLIN)
        while under_way or not self._stop.is_set():
            now = time.monotonic()
            for fileno, sock in socks.items():
                if fileno in under_way and now - under_way[fileno][1] > self._patience:
                    del under_way[fileno]
                    with self._lock:
                        self.lost += 1
                if fileno not in under_way and not self._stop.is_set():
                    number = (number + 1) & 0xFFFF
                    identity = number.to_bytes(2, "big")
                    under_way[fileno] = identity, now
                    with contextlib.suppress(ConnectionRefusedError):  # nobody is there any more
                        sock.send(identity + self._wire[2:])
            answered = 0
            for fileno, _ in poll.poll(0.05):
                try:
                    reply = socks[fileno].recv(65535)
                except ConnectionRefusedError:
                    continue
                if fileno in under_way and reply[:2] == under_way[fileno][0]:
                    del under_way[fileno]
                    answered += 1
                    if not self._check(reply):
                        self.faults.append(reply)
            with self._lock:
                self.answered += answered
        poll.close()
        for sock in socks.values():
            sock.close()
