"""Clients that query a server over UDP and TCP without a pause."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

import dns.exception
import dns.message
import dns.query
import dns.rcode

from tests.support.waiting import PATIENCE


class Load:
    """Some clients, every second one over TCP. ``asked`` counts the responses; ``faults`` lists failed queries."""

    def __init__(self, port: int, clients: int = 3, patience: float = PATIENCE) -> None:
        self.port = port
        self.patience = patience
        self.asked = 0
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number % 2 == 1,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more queries and wait for the responses."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

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
