"""Zone transfers: the records of AXFR (RFC 5936) and IXFR (RFC 1995), and their messages.

Messages are made one at a time on demand, so a slow secondary keeps one message in memory, not the zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dnslib import DNSQuestion

from maptr.answer.message import MAX_POINTER, MessageBuffer
from maptr.errors import ZoneError
from maptr.protocol.names import to_text
from maptr.protocol.numbers import HEADER_SIZE, IN, MAX_MESSAGE
from maptr.protocol.serial import is_newer
from maptr.transfer.journal import Journal
from maptr.zone.diff import ZoneRecord, records, soa_of
from maptr.zone.snapshot import ZoneView

# Bytes of a message: no compression pointer reaches further (RFC 1035 4.1.4), and queries wait while it is made.
MESSAGE_SIZE = MAX_POINTER


def axfr(view: ZoneView) -> Iterator[ZoneRecord]:
    """The whole zone, between its SOA record and the SOA record again (RFC 5936 2.2)."""
    soa = soa_of(view)
    yield soa
    yield from records(view)
    yield soa


def ixfr(view: ZoneView, journal: Journal | None, serial: int) -> Iterator[ZoneRecord]:
    """The changes from a serial to the zone (RFC 1995 4), or the whole zone if they are unknown or larger.

    A secondary that has this serial or a later one gets only the SOA record (RFC 1995 2).
    """
    soa = soa_of(view)
    if serial == view.serial or is_newer(serial, view.serial):
        yield soa
        return
    known = journal.since(serial) if journal is not None and journal.serial == view.serial else None
    if known is None or sum(map(len, known)) > _count(view):
        yield from axfr(view)
        return
    yield soa
    for change in known:
        yield from change
    yield soa


def messages(
    template: bytes, question: DNSQuestion, content: Iterable[ZoneRecord], *, reserve: int = 0
) -> Iterator[bytes]:
    """The messages of a transfer. Each has the header, question and OPT of ``template``, a response without records.

    ``reserve`` bytes are left for a signature. Raises ZoneError for a record that is too large for a message.
    """
    writer = _Writer(template, question)
    for record in content:
        if writer.add(record, MESSAGE_SIZE - reserve):
            continue
        if writer.count:
            yield writer.message()
            writer = _Writer(template, question)
        if not writer.add(record, MAX_MESSAGE - reserve):
            where = f"{to_text(record.owner)} type {record.rdtype}"
            raise ZoneError(f"{where}: {len(record.rdata)} bytes of rdata are too many for a message")
    if writer.count:
        yield writer.message()


class _Writer:
    """One message being filled."""

    def __init__(self, template: bytes, question: DNSQuestion) -> None:
        self.count = 0
        self._buffer = MessageBuffer(template[:HEADER_SIZE])
        self._buffer.offset = HEADER_SIZE
        self._buffer.put_question(question, len(question.qname.label))
        self._tail = template[self._buffer.offset :]

    def add(self, record: ZoneRecord, limit: int) -> bool:
        """Append a record and return True, unless the message would exceed the limit."""
        buffer = self._buffer
        mark = buffer.offset
        buffer.put_record(record.owner, record.rdtype, IN, record.ttl, record.rdata)
        if buffer.offset + len(self._tail) > limit:
            buffer.cut(mark)
            return False
        self.count += 1
        return True

    def message(self) -> bytes:
        self._buffer.update(6, "!H", self.count)
        return bytes(self._buffer.data) + self._tail


def _count(view: ZoneView) -> int:
    """The number of records of a zone."""
    return sum(len(rrset.rdatas) for node in view.nodes.values() for rrset in node.values())
