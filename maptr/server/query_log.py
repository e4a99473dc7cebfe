"""The query log, with a line for every nth query."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import dns.rdataclass
import dns.rdatatype
from dnslib import DNSError

from maptr.answer.context import ReceivedQuery
from maptr.answer.message import Message
from maptr.daemon.log_limit import LogLimit
from maptr.protocol.names import to_text
from maptr.server.counters import rcode_text

log = logging.getLogger("maptr.query")

SECOND = 1.0


class QueryLog:
    """Logs every nth query, at most ``rate`` lines per second. ``every`` is n. Thread-safe."""

    def __init__(self, every: int, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._seen = 0
        self._lock = threading.Lock()
        self._limit = LogLimit(rate, clock, interval=SECOND)

    def pick(self, count: int) -> range:
        """Return the indexes of the queries to log among the next ``count``."""
        with self._lock:
            first = self._every - 1 - self._seen % self._every
            self._seen += count
        return range(first, count, self._every)

    def write(self, query: ReceivedQuery, code: int) -> None:
        """Log a query, if its question can be read. ``code`` is the code under which its response is counted."""
        try:
            message = Message.parse_header(query.wire)
            message.parse_question()
        except DNSError:
            return
        if not message.questions or (suffix := self._limit.suffix()) is None:
            return
        question, rcode = message.questions[0], rcode_text(code)
        log.info(
            "query %s %s %s from %s by %s: %s%s",
            to_text(question.qname.label),
            dns.rdataclass.to_text(dns.rdataclass.RdataClass.make(question.qclass)),
            dns.rdatatype.to_text(dns.rdatatype.RdataType.make(question.qtype)),
            *(query.client, query.transport.value, rcode, suffix),
            extra={"rcode": rcode},
        )
