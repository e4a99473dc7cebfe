"""The response to one query: TSIG and zone transfers (RFC 5936, RFC 1995), and the general path for other queries.

Pure: no socket, thread, clock, log or file. Over UDP a response is one message. Over TCP and TLS a transfer has many
messages, made one at a time on demand, so a slow secondary keeps one message in memory, not the zone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from dnslib import DNSError, DNSQuestion
from dnslib.dns import RR

from maptr.answer.context import Transport
from maptr.answer.message import MAX_POINTER, Message, MessageBuffer
from maptr.errors import ZoneError
from maptr.protocol import numbers
from maptr.protocol.names import Labels, fold, read_name, to_text
from maptr.protocol.serial import is_newer
from maptr.transfer.acl import Secondaries, TsigKey
from maptr.transfer.journal import Journal
from maptr.transfer.tsig import CheckedQuery, check_query
from maptr.zone.diff import SERIAL, ZoneRecord, records, soa_of
from maptr.zone.snapshot import Snapshot, ZoneView

# The largest message of a transfer in bytes: compression pointers reach no further (RFC 1035 4.1.4), and other queries
# wait while it is made.
MESSAGE_SIZE = MAX_POINTER
MIN_SOA = 22  # bytes of SOA rdata: two root names and five numbers (RFC 1035 3.3.13)


Respond = Callable[[CheckedQuery, Snapshot, int | None], bytes | None]
"""The general path (``make_reply``) for one client and transport, with the rcode if it is decided."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog zone. Only clients that may transfer it may query it (RFC 9432 7)."""

    view: ZoneView
    secondaries: Secondaries


@dataclass(frozen=True, slots=True)
class Access:
    """Keys, secondaries and journals for the zones of a snapshot. A reload replaces the whole object."""

    keys: Mapping[Labels, TsigKey] = field(default_factory=lambda: MappingProxyType({}))
    secondaries: Mapping[Labels, Secondaries] = field(default_factory=lambda: MappingProxyType({}))
    journals: Mapping[Labels, Journal] = field(default_factory=lambda: MappingProxyType({}))
    catalog: Catalog | None = None

    def secondaries_of(self, origin: Labels) -> Secondaries:
        if self.catalog is not None and origin == self.catalog.view.origin:
            return self.catalog.secondaries
        return self.secondaries.get(origin, Secondaries())


def exchange(
    query: bytes,
    snapshot: Snapshot,
    access: Access,
    *,
    transport: Transport,
    client: str,
    now: int,
    reply: Respond,
    note: Callable[[str], None],
    note_refused: Callable[[Callable[[], str]], None],
) -> Iterator[bytes]:
    """Yield the messages of the response to a query; none if the server sends no response.

    ``now`` is the Unix time. ``reply`` is the general path. ``note`` gets a log line for each transfer.
    ``note_refused`` gets a function that returns a log line for each refused transfer and each invalid signature; any
    client can cause these, so the caller limits their rate. Raises only ZoneError, in the middle of a transfer, for a
    record that is too large for a message.
    """
    if len(query) < numbers.HEADER_SIZE or query[2] & 0x80:
        return
    checked = check_query(query, access.keys, now)
    if checked.error:
        note_refused(lambda: f"query from {client} with an invalid signature: {checked.fault}")
    question_type, name = _peek(checked.query)
    if access.catalog is not None and access.catalog.secondaries.allows(client, checked.key):
        origin = access.catalog.view.origin
        if name[-len(origin) :] == origin:
            snapshot = Snapshot.of((access.catalog.view,))

    if checked.rcode is None and question_type in (numbers.AXFR, numbers.IXFR) and query[2] >> 3 & 15 == numbers.QUERY:
        yield from _Transfer(checked, snapshot, access, transport, client, note, note_refused).messages(
            partial(reply, checked, snapshot)
        )
        return
    message = reply(checked, snapshot, checked.rcode)
    if message is not None:
        yield checked.sign(message)


def _peek(query: bytes) -> tuple[int, Labels]:
    """Return the type of the question and its folded name, or 0 and the root if the name is malformed."""
    try:
        name, offset = read_name(query, numbers.HEADER_SIZE)
    except ValueError:
        return 0, ()
    return int.from_bytes(query[offset : offset + 2], "big"), fold(name)


@dataclass(frozen=True, slots=True)
class _Transfer:
    checked: CheckedQuery
    snapshot: Snapshot
    access: Access
    transport: Transport
    client: str
    note: Callable[[str], None]
    note_refused: Callable[[Callable[[], str]], None]

    def messages(self, ask: Callable[[int | None], bytes | None]) -> Iterator[bytes]:
        rcode = self._refuse()
        message = ask(numbers.NOERROR if rcode is None else rcode)
        if message is not None and int.from_bytes(message[2:4], "big") & numbers.AA:  # otherwise an error
            query = Message.parse(self.checked.query)
            question = query.questions[0]
            serials = (int.from_bytes(soa.rdata.data[SERIAL], "big") for soa in query.auth if _is_soa(soa, question))
            content = self._content(question, next(serials, None))
            if content is not None:
                yield from map(self.checked.sign, messages(message, question, content, reserve=self.checked.size))
                return
            message = ask(numbers.FORMERR)
        if message is not None:
            yield self.checked.sign(message)

    def _refuse(self) -> int | None:
        """Return the rcode of a refusal; None for an allowed transfer, and for a malformed query.

        NOTAUTH for a zone that is not served (RFC 5936 2.2.1), SERVFAIL for a zone that could not be loaded, REFUSED
        for a client that may not transfer it, and for AXFR over UDP, which is not defined (RFC 5936 4.2).
        """
        query = Message.parse_header(self.checked.query)
        try:
            query.parse_question()
        except DNSError:
            return None
        if not query.questions:
            return None
        question = query.questions[0]
        if question.qclass != numbers.IN or (question.qtype == numbers.AXFR and self.transport is Transport.UDP):
            return numbers.REFUSED
        origin = fold(question.qname.label)
        if origin not in self.snapshot.zones:
            if origin in self.snapshot.broken:
                self.note_refused(lambda: f"{self._what(question)} refused: not loaded")
                return numbers.SERVFAIL
            self.note_refused(lambda: f"{self._what(question)} refused: not served here")
            return numbers.NOTAUTH
        if not self.access.secondaries_of(origin).allows(self.client, self.checked.key):
            self.note_refused(lambda: f"{self._what(question)} refused")
            return numbers.REFUSED
        return None

    def _what(self, question: DNSQuestion) -> str:
        kind = "AXFR" if question.qtype == numbers.AXFR else "IXFR"
        key = "" if self.checked.key is None else f" key {to_text(self.checked.key)}"
        return f"{kind} of zone {to_text(fold(question.qname.label))} to {self.client}{key}"

    def _content(self, question: DNSQuestion, serial: int | None) -> Iterator[ZoneRecord] | None:
        """Return the records to send; None for an IXFR query without a serial."""
        view = self.snapshot.zones[fold(question.qname.label)]
        what = self._what(question)
        if question.qtype == numbers.AXFR:
            self.note(f"{what}: serial {view.serial}")
            return axfr(view)
        if serial is None:
            return None
        if self.transport is Transport.UDP:
            # To avoid amplification, send only the SOA record, so that the secondary retries over TCP (RFC 1995 2).
            return iter((soa_of(view),))
        self.note(f"{what}: from serial {serial} to {view.serial}")
        return ixfr(view, self.access.journals.get(view.origin), serial)


def _is_soa(record: RR, question: DNSQuestion) -> bool:
    return record.rtype == numbers.SOA and record.rname == question.qname and len(record.rdata.data) >= MIN_SOA


# ---- the records and messages of a transfer


def axfr(view: ZoneView) -> Iterator[ZoneRecord]:
    """Yield all records of the zone; the SOA record is the first and is repeated as the last (RFC 5936 2.2)."""
    soa = soa_of(view)
    yield soa
    yield from records(view)
    yield soa


def ixfr(view: ZoneView, journal: Journal | None, serial: int) -> Iterator[ZoneRecord]:
    """Yield the changes since a serial (RFC 1995 4), or the whole zone if the changes are unknown or larger.

    For the current or a newer serial, yields only the SOA record (RFC 1995 2).
    """
    soa = soa_of(view)
    if serial == view.serial or is_newer(serial, view.serial):
        yield soa
        return
    known = journal.since(serial) if journal is not None and journal.serial == view.serial else None
    if known is None or sum(map(len, known)) > 1 + sum(1 for _ in records(view)):
        yield from axfr(view)
        return
    yield soa
    for change in known:
        yield from change
    yield soa


def messages(template: bytes, question: DNSQuestion, content: Iterable[ZoneRecord], *, reserve: int) -> Iterator[bytes]:
    """Yield the messages of a transfer, each with the header, question and OPT of ``template``, an empty response.

    ``reserve`` bytes are left free for a signature. Raises ZoneError for a record that is too large for a message.
    """
    writer = _Writer(template, question)
    for record in content:
        if writer.add(record, MESSAGE_SIZE - reserve):
            continue
        if writer.count:
            yield writer.message()
            writer = _Writer(template, question)
        if not writer.add(record, numbers.MAX_MESSAGE - reserve):
            where = f"{to_text(record.owner)} type {record.rdtype}"
            raise ZoneError(f"{where}: {len(record.rdata)} bytes of rdata are too many for a message")
    if writer.count:
        yield writer.message()


class _Writer:
    """Writes the records of one message."""

    def __init__(self, template: bytes, question: DNSQuestion) -> None:
        self.count = 0
        self._buffer = MessageBuffer(template[: numbers.HEADER_SIZE])
        self._buffer.offset = numbers.HEADER_SIZE
        self._buffer.put_question(question, len(question.qname.label))
        self._tail = template[self._buffer.offset :]

    def add(self, record: ZoneRecord, limit: int) -> bool:
        """Append a record and return True; return False if the message would exceed the limit."""
        buffer = self._buffer
        mark = buffer.offset
        buffer.put_record(record.owner, record.rdtype, numbers.IN, record.ttl, record.rdata)
        if buffer.offset + len(self._tail) > limit:
            buffer.cut(mark)
            return False
        self.count += 1
        return True

    def message(self) -> bytes:
        self._buffer.update(6, "!H", self.count)
        return bytes(self._buffer.data) + self._tail
