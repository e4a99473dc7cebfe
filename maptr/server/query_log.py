"""The query log: one line for every nth query, and no more lines a second than wanted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import dns.rdataclass
import dns.rdatatype
from dnslib import DNSError

from maptr.answer.context import Transport
from maptr.answer.message import Message
from maptr.protocol.names import to_text
from maptr.server.counters import SILENCE, rcode_text, result
from maptr.server.log_limit import Seldom

log = logging.getLogger("maptr.query")

SECOND = 1.0


class QueryLog:
    """For the threads of one process. ``every`` is n; ``rate`` the most lines a second."""

    def __init__(self, every: int, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._seen = 0
        self._seldom = Seldom(rate, clock, interval=SECOND)

    def pick(self, count: int) -> range:
        """Which of so many queries are to be noted, by their places."""
        first = self._every - 1 - self._seen % self._every
        self._seen += count
        return range(first, count, self._every)

    def note(self, query: bytes, transport: Transport, client: str, reply: bytes | None) -> None:
        """Count one query, and write its line where it is an nth one. ``reply``: the first message of its response."""
        for _ in self.pick(1):
            self.write(query, transport, client, SILENCE if reply is None else result(reply))

    def write(self, query: bytes, transport: Transport, client: str, code: int) -> None:
        """Write the line of a query that is counted under ``code``, if its question can be read."""
        try:
            message = Message.parse_header(query)
            message.parse_question()
        except DNSError:
            return
        if not message.questions or (left_out := self._seldom.left_out()) is None:
            return
        question, rcode = message.questions[0], rcode_text(code)
        log.info(
            "query %s %s %s from %s by %s: %s%s",
            to_text(question.qname.label),
            dns.rdataclass.to_text(dns.rdataclass.RdataClass.make(question.qclass)),
            dns.rdatatype.to_text(dns.rdatatype.RdataType.make(question.qtype)),
            client,
            transport.value,
            rcode,
            f", and {left_out} more before" if left_out else "",
            extra={"rcode": rcode},
        )
