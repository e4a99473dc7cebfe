"""One query and all that is sent back for it: TSIG around whatever ``respond`` says, and zone transfers.

Pure, like what it calls. A reply to UDP is one message at most; over TCP and TLS a transfer is many, made lazily.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from dnslib import DNSError, DNSQuestion
from dnslib.dns import RR

from maptr.answer.context import Transport
from maptr.answer.message import Message
from maptr.answer.respond import make_reply
from maptr.protocol.names import Labels, fold, to_text
from maptr.protocol.numbers import (
    AA,
    AXFR,
    FORMERR,
    HEADER_SIZE,
    IN,
    IXFR,
    NOERROR,
    NOTAUTH,
    QUERY,
    REFUSED,
    SERVFAIL,
    SOA,
)
from maptr.transfer.acl import Acl, Key, Secondaries
from maptr.transfer.journal import Journal
from maptr.transfer.tsig import Opened, may_be_signed, open_query
from maptr.transfer.xfr import axfr, ixfr, messages
from maptr.zone.diff import Record, serial_of, soa_of
from maptr.zone.snapshot import Snapshot, ZoneView

_AXFR, _IXFR = AXFR.to_bytes(2, "big"), IXFR.to_bytes(2, "big")
MIN_SOA = 22  # octets of SOA rdata: two root names and five numbers (RFC 1035 3.3.13)

NOBODY = Secondaries()


class Respond(Protocol):
    """``maptr.answer.respond.make_reply`` with its context set; ``verified`` where a key showed who the client is."""

    def __call__(
        self,
        query: bytes,
        snapshot: Snapshot,
        *,
        transport: Transport,
        client: str,
        reserve: int,
        rcode: int | None,
        verified: bool,
    ) -> bytes | None: ...


def plain(
    query: bytes,
    snapshot: Snapshot,
    *,
    transport: Transport,
    client: str,
    reserve: int,
    rcode: int | None,
    verified: bool,
) -> bytes | None:
    """A ``Respond`` with nothing configured and no limit."""
    made = make_reply(query, snapshot, transport=transport, client=client, reserve=reserve, rcode=rcode)
    return None if made is None else made.wire


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog zone as it is served: to those who may transfer it, and to nobody else (RFC 9432 7)."""

    view: ZoneView
    secondaries: Secondaries = NOBODY


@dataclass(frozen=True, slots=True)
class Access:
    """Keys, who may have which zone, and the journals that go with a snapshot. Replaced as a whole."""

    keys: Mapping[Labels, Key] = field(default_factory=lambda: MappingProxyType({}))
    secondaries: Mapping[Labels, Secondaries] = field(default_factory=lambda: MappingProxyType({}))
    journals: Mapping[Labels, Journal] = field(default_factory=lambda: MappingProxyType({}))
    catalog: Catalog | None = None

    def acl(self, origin: Labels) -> Acl:
        if self.catalog is not None and origin == self.catalog.view.origin:
            return self.catalog.secondaries.transfer
        return self.secondaries.get(origin, NOBODY).transfer


def _ignore(_: object) -> None:
    pass


def exchange(
    query: bytes,
    snapshot: Snapshot,
    access: Access,
    *,
    transport: Transport,
    client: str,
    now: int,
    reply: Respond = plain,
    note: Callable[[str], None] = _ignore,
    note_refused: Callable[[Callable[[], str]], None] = _ignore,
) -> Iterator[bytes]:
    """Every message of the reply to a query, none where it gets silence.

    ``now`` is in seconds since 1970. ``note`` is told, in a line for the log, of transfers made; ``note_refused`` of
    those that were not, and of signatures that do not hold: anybody can cause such lines with a packet, so it gets what
    makes one, for it to call or not.
    Raises nothing, whatever the octets; ZoneError in the middle of a transfer, for a record that fits no message.
    """
    if len(query) < HEADER_SIZE or query[2] & 0x80:
        return
    if is_plain(query, access):
        answer = reply(query, snapshot, transport=transport, client=client, reserve=0, rcode=None, verified=False)
        if answer is not None:
            yield answer
        return
    opened = open_query(query, access.keys, now)
    if opened.error:
        note_refused(lambda: f"query of {client} with a signature that does not hold: {opened.fault}")
    question_type, name = _peek(opened.query, access.catalog is not None)
    if access.catalog is not None and access.catalog.secondaries.transfer.allows(client, opened.key):
        origin = access.catalog.view.origin
        if name[-len(origin) :] == origin:
            snapshot = Snapshot.of((access.catalog.view,))

    def ask(rcode: int | None) -> bytes | None:
        return reply(
            opened.query,
            snapshot,
            transport=transport,
            client=client,
            reserve=opened.size,
            rcode=rcode,
            verified=opened.key is not None,
        )

    if opened.rcode is None and question_type in (AXFR, IXFR) and query[2] >> 3 & 15 == QUERY:
        yield from _Transfer(opened, snapshot, access, transport, client, note, note_refused).messages(ask)
        return
    message = ask(opened.rcode)
    if message is not None:
        yield opened.seal(message)


def is_plain(query: bytes, access: Access) -> bool:
    """Whether there is nothing here to say of a query: no signature, no transfer, no catalog."""
    # Octets that nobody took for a type may look like one; that costs the longer way and nothing else.
    return not (may_be_signed(query) or _AXFR in query or _IXFR in query or access.catalog)


def _peek(query: bytes, with_name: bool) -> tuple[int, Labels]:
    """The question's type, and its folded name if wanted, without a promise that it can be read."""
    offset = HEADER_SIZE
    labels: list[bytes] = []
    while offset < len(query) and 0 < query[offset] < 0x40:
        if with_name:
            labels.append(query[offset + 1 : offset + 1 + query[offset]].lower())
        offset += 1 + query[offset]
    return int.from_bytes(query[offset + 1 : offset + 3], "big"), tuple(labels)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A question for a zone or its changes."""

    opened: Opened
    snapshot: Snapshot
    access: Access
    transport: Transport
    client: str
    note: Callable[[str], None]
    note_refused: Callable[[Callable[[], str]], None]

    def messages(self, ask: Callable[[int | None], bytes | None]) -> Iterator[bytes]:
        refused = self._refuse()
        if refused is not None:
            refusal = ask(refused)
            if refusal is not None:
                yield self.opened.seal(refusal)
            return
        template = ask(NOERROR)
        if template is None:
            return
        if not int.from_bytes(template[2:4], "big") & AA:  # whatever is wrong with the query as such
            yield self.opened.seal(template)
            return
        query = Message.parse(self.opened.query)
        question = query.questions[0]  # or there were no template
        serials = (serial_of(Record((), SOA, 0, soa.rdata.data)) for soa in query.auth if _is_soa(soa, question))
        serial = next(serials, None)
        content = self._content(question, serial)
        if content is None:
            refusal = ask(FORMERR)
            if refusal is not None:
                yield self.opened.seal(refusal)
            return
        for message in messages(template, question, content, reserve=self.opened.size):
            yield self.opened.seal(message)

    def _refuse(self) -> int | None:
        """An rcode that settles it, unless the query is malformed: NOTAUTH for a zone that is not ours (RFC 5936
        2.2.1), REFUSED for one that this client may not have, and for AXFR by UDP, where it is not defined (4.2)."""
        query = Message.parse_header(self.opened.query)
        try:
            query.parse_question()
        except DNSError:
            return None
        if not query.questions:
            return None
        question = query.questions[0]
        if question.qclass != IN or (question.qtype == AXFR and self.transport is Transport.UDP):
            return REFUSED
        origin = fold(question.qname.label)
        if origin not in self.snapshot.zones:
            if origin in self.snapshot.broken:
                self.note_refused(lambda: f"{self._what(question)} refused: it is not loaded")
                return SERVFAIL
            self.note_refused(lambda: f"{self._what(question)} refused: not served here")
            return NOTAUTH
        if not self.access.acl(origin).allows(self.client, self.opened.key):
            self.note_refused(lambda: f"{self._what(question)} refused")
            return REFUSED
        return None

    def _what(self, question: DNSQuestion) -> str:
        kind = "AXFR" if question.qtype == AXFR else "IXFR"
        key = "" if self.opened.key is None else f" key {to_text(self.opened.key)}"
        return f"{kind} of zone {to_text(fold(question.qname.label))} to {self.client}{key}"

    def _content(self, question: DNSQuestion, serial: int | None) -> Iterator[Record] | None:
        """The records to send; None for a question for changes that says not since when."""
        view = self.snapshot.zones[fold(question.qname.label)]
        what = self._what(question)
        if question.qtype == AXFR:
            self.note(f"{what}: serial {view.serial}")
            return axfr(view)
        if serial is None:
            return None
        if self.transport is Transport.UDP:
            # One SOA, by which the secondary knows to come by TCP (RFC 1995 2): no amplification this way.
            return iter((soa_of(view),))
        self.note(f"{what}: from serial {serial} to {view.serial}")
        return ixfr(view, self.access.journals.get(view.origin), serial)


def _is_soa(record: RR, question: DNSQuestion) -> bool:
    return record.rtype == SOA and record.rname == question.qname and len(record.rdata.data) >= MIN_SOA
