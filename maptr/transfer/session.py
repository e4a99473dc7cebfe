"""The response to one query: zone transfers (RFC 5936, RFC 1995), and the general path for other queries.

The second step of a query's path: verify (``tsig.check_query``), answer, limit, sign (``CheckedQuery.sign``). Pure: no
socket, thread, clock, log or file. Over UDP a response is one message. Over TCP and TLS a transfer has many messages,
made one at a time on demand, so a slow secondary keeps one message in memory, not the zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple

from dnslib import DNSQuestion
from dnslib.dns import RR

from maptr.answer.context import PLAIN, Context, Transport
from maptr.answer.message import MAX_POINTER, Message, MessageBuffer, Reply
from maptr.answer.respond import (
    EDE_INVALID_DATA,
    EDE_NOT_READY,
    EDE_PROHIBITED,
    make_reply,
    read_question,
)
from maptr.errors import ZoneError
from maptr.protocol import numbers
from maptr.protocol.names import Folded, Labels, fold, is_below, to_text
from maptr.protocol.serial import is_newer
from maptr.transfer.acl import Secondaries, TsigKey
from maptr.transfer.journal import Journal
from maptr.transfer.tsig import CheckedQuery
from maptr.zone.diff import SERIAL, ZoneRecord, records, soa_of
from maptr.zone.snapshot import Snapshot, ZoneView

# The largest message of a transfer in bytes: compression pointers reach no further (RFC 1035 4.1.4), and other queries
# wait while it is made.
MESSAGE_SIZE = MAX_POINTER
MIN_SOA = 22  # bytes of SOA rdata: two root names and five numbers (RFC 1035 3.3.13)


@dataclass(frozen=True, slots=True)
class Access:
    """Keys, secondaries and journals for the zones of a snapshot. A reload replaces the whole object.

    Only clients that may transfer the ``catalog`` zone may query it (RFC 9432 7).
    """

    keys: Mapping[Labels, TsigKey] = field(default_factory=lambda: MappingProxyType({}))
    secondaries: Mapping[Folded, Secondaries] = field(default_factory=lambda: MappingProxyType({}))
    journals: Mapping[Folded, Journal] = field(default_factory=lambda: MappingProxyType({}))
    catalog: ZoneView | None = None

    def secondaries_of(self, origin: Folded) -> Secondaries:
        return self.secondaries.get(origin, Secondaries())


class TransferEvent(NamedTuple):
    """A zone transfer that begins or is refused, for the log. ``result`` has its serials or the reason, or is "".

    ``client`` includes the key's name, and the transport unless it is TCP.
    """

    kind: str  # AXFR or IXFR
    zone: str
    client: str
    result: str
    refused: bool


class Answered(NamedTuple):
    """The response to a query, before it is limited and signed.

    ``reply`` is the general path's, None if the server sends no response. ``messages`` are to be sent: the one of
    ``reply``, or a transfer's, which have its header and question. ``event`` is for the log.
    """

    reply: Reply | None
    messages: Iterable[bytes] = ()
    event: TransferEvent | None = None


def answer(checked: CheckedQuery, snapshot: Snapshot, access: Access, context: Context = PLAIN) -> Answered:
    """Return the response to a query whose signature is checked.

    Raises nothing; the messages of a transfer raise ZoneError for a record that is too large for a message.
    """
    query, catalog = checked.query, access.catalog
    message = read_question(query.wire)
    if message is None:
        return Answered(None)
    question = message.questions[0] if message.questions else None
    if (
        catalog is not None
        and question is not None
        and is_below(question.qname.label, catalog.origin)
        and access.secondaries_of(catalog.origin).allows(query.client, checked.key)
    ):
        snapshot = Snapshot.of((catalog,))
    make = partial(make_reply, query, snapshot, context, message=message, reserve=checked.size)
    if checked.rcode is not None or question is None or not _is_transfer(message):
        return _one_message(make(rcode=checked.rcode))
    origin = fold(question.qname.label)
    kind, key = "AXFR" if question.qtype == numbers.AXFR else "IXFR", checked.key
    secondary = query.client if key is None else f"{query.client} key {to_text(key)}"
    secondary += "" if query.transport is Transport.TCP else f" by {query.transport.value}"
    event = partial(TransferEvent, kind, to_text(origin), secondary)
    refusal = _refuse(question, origin, checked, snapshot, access)
    if refusal is not None:
        rcode, ede, reason = refusal
        return _one_message(make(rcode=rcode, ede=ede), None if reason is None else event(reason, refused=True))
    reply = make(rcode=numbers.NOERROR)
    if reply is None or not int.from_bytes(reply.wire[2:4], "big") & numbers.AA:  # an error
        return _one_message(reply)
    content = _content(message, query.transport, snapshot.zones[origin], access)
    if content is None:
        return _one_message(make(rcode=numbers.FORMERR))
    records, result = content
    sent = messages(reply.wire, question, records, reserve=checked.size)
    return Answered(reply, sent, event(result, refused=False) if result else None)


def _one_message(reply: Reply | None, event: TransferEvent | None = None) -> Answered:
    return Answered(reply, () if reply is None else (reply.wire,), event)


def _is_transfer(message: Message) -> bool:
    """Return whether a message with a question asks for a zone transfer."""
    return message.header.opcode == numbers.QUERY and message.questions[0].qtype in (numbers.AXFR, numbers.IXFR)


def _refuse(
    question: DNSQuestion, origin: Folded, checked: CheckedQuery, snapshot: Snapshot, access: Access
) -> tuple[int, int | None, str | None] | None:
    """Return a refusal's rcode, its extended error (RFC 8914), and the reason for the log (None for no line); or None
    for an allowed transfer.

    NOTAUTH for a zone that is not served (RFC 5936 2.2.1), SERVFAIL for a zone that could not be loaded, REFUSED
    for a client that may not transfer it, and for AXFR over UDP, which is not defined (RFC 5936 4.2).
    """
    if question.qclass != numbers.IN:
        return numbers.REFUSED, None, None
    if question.qtype == numbers.AXFR and checked.query.transport is Transport.UDP:
        return numbers.REFUSED, None, None
    if snapshot.is_starting:
        return numbers.SERVFAIL, EDE_NOT_READY, "not loaded yet"
    if origin in snapshot.broken:
        return numbers.SERVFAIL, EDE_INVALID_DATA, "not loaded"
    if origin not in snapshot.zones:
        return numbers.NOTAUTH, None, "not served here"
    if not access.secondaries_of(origin).allows(checked.query.client, checked.key):
        return numbers.REFUSED, EDE_PROHIBITED, ""
    return None


def _content(
    query: Message, transport: Transport, view: ZoneView, access: Access
) -> tuple[Iterable[ZoneRecord], str] | None:
    """Return the records to send and the serials for the log, "" for no line; None for an IXFR query without serial."""
    question = query.questions[0]
    if question.qtype == numbers.AXFR:
        return axfr(view), f"serial {view.serial}"
    serials = (int.from_bytes(soa.rdata.data[SERIAL], "big") for soa in query.auth if _is_soa(soa, question))
    serial = next(serials, None)
    if serial is None:
        return None
    if transport is Transport.UDP:
        # To avoid amplification, send only the SOA record, so that the secondary retries over TCP (RFC 1995 2).
        return (soa_of(view),), ""
    changes = ixfr(view, access.journals.get(view.origin), serial)
    if changes is None:
        return axfr(view), f"the whole zone, serial {view.serial}, because the changes since serial {serial}"
    return changes, f"from serial {serial} to {view.serial}"


def _is_soa(record: RR, question: DNSQuestion) -> bool:
    return record.rtype == numbers.SOA and record.rname == question.qname and len(record.rdata.data) >= MIN_SOA


# ---- the records and messages of a transfer


def axfr(view: ZoneView) -> Iterator[ZoneRecord]:
    """Yield all records of the zone; the SOA record is the first and is repeated as the last (RFC 5936 2.2)."""
    soa = soa_of(view)
    yield soa
    yield from records(view)
    yield soa


def ixfr(view: ZoneView, journal: Journal | None, serial: int) -> Iterable[ZoneRecord] | None:
    """Return the changes since a serial (RFC 1995 4); None if they are unknown, or larger than the zone.

    For the current or a newer serial, returns only the SOA record (RFC 1995 2).
    """
    soa = soa_of(view)
    if serial == view.serial or is_newer(serial, view.serial):
        return (soa,)
    known = journal.since(serial) if journal is not None and journal.serial == view.serial else None
    # The zone's records are counted up to the number of changes: all of a large zone would hold up other queries.
    if known is None or next(islice(records(view), sum(map(len, known)) - 2, None), None) is None:
        return None
    return chain((soa,), *known, (soa,))


def messages(template: bytes, question: DNSQuestion, content: Iterable[ZoneRecord], *, reserve: int) -> Iterator[bytes]:
    """Yield the messages of a transfer, each with the header, question and OPT of ``template``, an empty response.

    ``reserve`` bytes are left free for a signature. The first record, the SOA, always fits. Raises ZoneError for a
    record that is too large for a message.
    """

    def begin() -> MessageBuffer:
        buffer = MessageBuffer(template[: numbers.HEADER_SIZE])
        buffer.offset = numbers.HEADER_SIZE
        buffer.put_question(question, len(question.qname.label))
        return buffer

    buffer, count = begin(), 0
    tail = template[buffer.offset :]

    def finished() -> bytes:
        buffer.update(6, "!H", count)
        return bytes(buffer.data) + tail

    most, largest = (size - reserve - len(tail) for size in (MESSAGE_SIZE, numbers.MAX_MESSAGE))
    for record in content:
        fields = record.owner, record.rdtype, numbers.IN, record.ttl, record.rdata
        mark = buffer.offset
        buffer.put_record(*fields)
        if buffer.offset > most:  # never for the first record, the SOA
            buffer.cut(mark)
            yield finished()
            buffer, count = begin(), 0
            buffer.put_record(*fields)
        if buffer.offset > largest:
            where = f"{to_text(record.owner)} type {record.rdtype}"
            raise ZoneError(f"{where}: {len(record.rdata)} bytes of rdata are too many for a message")
        count += 1
    yield finished()
