"""The query log: one line for every nth query, at a limited rate."""

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
from maptr.server.log_limit import LogLimit

log = logging.getLogger("maptr.query")

SECOND = 1.0


class QueryLog:
    """For any thread. ``every`` is n, ``rate`` the maximum of lines a second."""

    def __init__(self, every: int, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._seen = 0
        self._limit = LogLimit(rate, clock, interval=SECOND)

    def pick(self, count: int) -> range:
        """The places of the queries to log among the next ``count``."""
        first = self._every - 1 - self._seen % self._every
        self._seen += count
        return range(first, count, self._every)

    def note(self, query: bytes, transport: Transport, client: str, reply: bytes | None) -> None:
        """Count a query, and log it if it is an nth one. ``reply`` is the first message of its response."""
        for _ in self.pick(1):
            self.write(query, transport, client, SILENCE if reply is None else result(reply))

    def write(self, query: bytes, transport: Transport, client: str, code: int) -> None:
        """Log a query that is counted under ``code``, if its question can be read."""
        try:
            message = Message.parse_header(query)
            message.parse_question()
        except DNSError:
            return
        if not message.questions or (left_out := self._limit.left_out()) is None:
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
