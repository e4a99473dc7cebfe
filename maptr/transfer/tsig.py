"""TSIG (RFC 8945): the check of a query's signature, and the signing of responses.

Bytes in, bytes out; the time is an argument. ``dns.tsig`` computes the MACs. This module adds the order of checks that
the RFC requires, and truncated MACs, because ``dns.tsig`` has neither.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.TSIG
import dns.tsig

from maptr.answer.context import ReceivedQuery
from maptr.protocol.names import Labels, fold, read_name, to_text, to_wire, wire_length
from maptr.protocol.numbers import ANY_CLASS, FORMERR, HEADER_SIZE, NOTAUTH, RCODE_BITS, TSIG
from maptr.transfer.acl import DIGESTS, MIN_MAC, TsigKey

BADSIG, BADKEY, BADTIME, BADTRUNC = 16, 17, 18, 22  # RFC 8945 3
_ERRORS = {BADSIG: "BADSIG", BADKEY: "BADKEY", BADTIME: "BADTIME", BADTRUNC: "BADTRUNC"}
FUDGE = 300  # permitted difference between two clocks in seconds, "RECOMMENDED" (RFC 8945 10)

_TYPE = TSIG.to_bytes(2, "big")
_COUNTS = struct.Struct("!4H")  # record counts of the four sections, RFC 1035 4.1.1
_FIXED = 16  # bytes of TSIG rdata besides algorithm, MAC and other data, RFC 8945 4.2
_RECORD = struct.Struct("!HHIH")  # type, class, TTL and length of rdata, RFC 1035 4.1.3


class TsigRecord(NamedTuple):
    """The TSIG record of a message: its offset, the folded name of the key, and dnspython's rdata (RFC 8945 4.2)."""

    start: int
    key: Labels
    rdata: Any


@dataclass(slots=True)
class Signer:
    """Signs the messages of one exchange; each MAC covers the previous one (RFC 8945 5.3.1).

    ``rdata`` has algorithm, time, fudge, error and other data of the records to make, and the MAC of the previous
    message; at first, of the query.
    """

    key: TsigKey
    rdata: Any
    mac_size: int
    first: bool = True

    @property
    def size(self) -> int:
        """The number of bytes that a signature adds to a message."""
        names = wire_length(self.key.name) + len(self.rdata.algorithm.to_wire())
        return names + _RECORD.size + _FIXED + self.mac_size + len(self.rdata.other)

    def sign(self, message: bytes) -> bytes:
        self.rdata = self.rdata.replace(original_id=int.from_bytes(message[:2], "big"))
        mac = _mac(self.key, message, self.rdata, after=self.rdata.mac, first=self.first)
        self.rdata = self.rdata.replace(mac=mac[: self.mac_size])
        self.first = False
        return attach(message, self.key.name, self.rdata)


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query without its TSIG record, and the result of checking that record.

    ``rcode`` is the rcode of the response, None if the checks succeeded. ``signer`` signs the response. ``unsigned`` is
    the TSIG record of a response with an error that cannot be signed (RFC 8945 5.3.2).
    """

    query: ReceivedQuery
    signer: Signer | None = None
    rcode: int | None = None
    unsigned: TsigRecord | None = field(default=None, repr=False)

    @property
    def key(self) -> Labels | None:
        """The name of the key if the query has a valid signature, otherwise None."""
        return self.signer.key.name if self.signer is not None and self.rcode is None else None

    @property
    def error(self) -> int:
        """The TSIG error (RFC 8945 3); 0 for a valid signature, and for a query without a signature."""
        made = self.unsigned or self.signer
        return 0 if made is None else int(made.rdata.error)

    @property
    def fault(self) -> str:
        """A text with the names of the key and the error."""
        key = self.unsigned.key if self.unsigned else self.signer.key.name if self.signer else ()
        return f"key {to_text(key)} {_ERRORS[self.error]}"

    @property
    def size(self) -> int:
        """The number of bytes to reserve for TSIG in each message of the response."""
        return self.signer.size if self.signer is not None else 0

    def sign(self, reply: bytes) -> bytes:
        """Return a message of the response, with a TSIG record if it needs one."""
        if self.signer is not None:
            return self.signer.sign(reply)
        return reply if self.unsigned is None else attach(reply, self.unsigned.key, self.unsigned.rdata)


def check_query(received: ReceivedQuery, keys: Mapping[Labels, TsigKey], now: int) -> CheckedQuery:
    """Check a query's TSIG: form, key, MAC, time and truncation, in the order of RFC 8945 5.2.

    A malformed query gets rcode FORMERR. ``now`` is the Unix time. The latest time signed by a key is not stored,
    because queries over UDP may arrive out of order. A response is not checked.
    """
    wire = received.wire
    # A quick test for queries without TSIG: the type does not occur, or there are no records.
    if wire.find(_TYPE, HEADER_SIZE) < 0 or not any(wire[6:HEADER_SIZE]) or wire[2] & 0x80:
        return CheckedQuery(received)
    try:
        record = find(wire)
    except ValueError:
        return CheckedQuery(received, rcode=FORMERR)  # RFC 8945 5.2
    if record is None:
        return CheckedQuery(received)
    stripped = _strip(wire, record)
    query = received._replace(wire=stripped)
    key = keys.get(record.key)
    rdata = record.rdata
    if key is None or rdata.algorithm not in _algorithms(key):
        return _not_signed(query, record, BADKEY)
    full = DIGESTS[key.digest]
    length = len(rdata.mac)
    if length > full or length < max(MIN_MAC, full // 2):
        # A missing MAC is invalid, a MAC of an impossible length is malformed (RFC 8945 5.2.2.1).
        return CheckedQuery(query, rcode=FORMERR) if length else _not_signed(query, record, BADSIG)
    if not _is_signed(stripped, record, key):
        return _not_signed(query, record, BADSIG)
    signer = Signer(key, rdata.replace(time_signed=now, error=0, other=b""), length)
    if abs(now - rdata.time_signed) > rdata.fudge:
        # The response has the client's time, and the server's time in the other data (RFC 8945 5.2.3).
        signer.rdata = rdata.replace(error=BADTIME, other=now.to_bytes(6, "big"))
        return CheckedQuery(query, signer, NOTAUTH)
    if length < key.mac_size:
        signer.rdata, signer.mac_size = signer.rdata.replace(error=BADTRUNC), key.mac_size
        return CheckedQuery(query, signer, NOTAUTH)
    return CheckedQuery(query, signer)


def find(message: bytes) -> TsigRecord | None:
    """Return the TSIG record of a message, or None.

    Raises ValueError for a malformed message, and for a TSIG record that is not the last record, or not of class ANY
    with TTL 0 (RFC 8945 4.2, 5.2).
    """
    if len(message) < HEADER_SIZE:
        raise ValueError("header cut short")
    questions, *counts = _COUNTS.unpack_from(message, 4)
    at = HEADER_SIZE
    for _ in range(questions):
        at = read_name(message, at)[1] + 4
    for left in reversed(range(sum(counts))):  # creates no objects: a hostile message may have thousands of records
        start = at
        name, at = read_name(message, at)
        try:
            rdtype, rdclass, ttl, size = _RECORD.unpack_from(message, at)
        except struct.error:
            raise ValueError("record cut short") from None
        at += _RECORD.size + size
        if at > len(message):
            raise ValueError("rdata cut short")
        if rdtype == TSIG:
            if left or not counts[2] or (rdclass, ttl) != (ANY_CLASS, 0):
                raise ValueError("TSIG is not last, or not of class ANY with TTL 0")
            if at != len(message):
                raise ValueError("bytes after TSIG")
            try:
                rdata = dns.rdata.from_wire(dns.rdataclass.ANY, dns.rdatatype.TSIG, message, at - size, size)
            except dns.exception.DNSException as error:
                raise ValueError(f"bad rdata of TSIG: {error}") from None
            return TsigRecord(start, fold(name), rdata)
    return None


def _strip(message: bytes, record: TsigRecord) -> bytes:
    """Return the message without its TSIG record."""
    count = int.from_bytes(message[10:12], "big") - 1
    return message[:10] + count.to_bytes(2, "big") + message[HEADER_SIZE : record.start]


def _algorithms(key: TsigKey) -> list[dns.name.Name]:
    """Return the names of a key's algorithm in messages, the shortest MAC first (RFC 8945 6)."""
    known = map(dns.name.from_text, (key.algorithm, f"hmac-{key.digest}"))
    return [name for name in known if name in dns.tsig.mac_sizes]


def _not_signed(query: ReceivedQuery, record: TsigRecord, error: int) -> CheckedQuery:
    ident = int.from_bytes(query.wire[:2], "big")
    rdata = record.rdata.replace(mac=b"", original_id=ident, error=error, other=b"")
    return CheckedQuery(query, rcode=NOTAUTH, unsigned=record._replace(rdata=rdata))


def _is_signed(stripped: bytes, record: TsigRecord, key: TsigKey, *, after: bytes = b"") -> bool:
    """Return whether the record has the MAC of the message without this record (RFC 8945 4.3)."""
    mac = record.rdata.mac
    return hmac.compare_digest(_mac(key, stripped, record.rdata, after=after)[: len(mac)], mac)


def _mac(key: TsigKey, message: bytes, rdata: Any, *, after: bytes, first: bool = True) -> bytes:
    """Return the MAC, not truncated, which also covers ``after``, the MAC of the previous message (RFC 8945 4.3)."""
    shared = dns.tsig.Key(dns.name.Name((*key.name, b"")), key.secret, rdata.algorithm)
    context = None
    if not first:  # dns.tsig would cover the whole MAC, and not the truncated one that was sent
        context = dns.tsig.get_context(shared)  # type: ignore[no-untyped-call]
        context.update(len(after).to_bytes(2, "big") + after)
    signed, _ = dns.tsig.sign(message, shared, rdata, rdata.time_signed, after, context, not first)  # type: ignore[no-untyped-call]
    return bytes(signed.mac)


def attach(message: bytes, key: Labels, rdata: Any) -> bytes:
    """Return the message with a TSIG record."""
    data = rdata.to_wire()
    count = int.from_bytes(message[10:12], "big") + 1
    head = message[:10] + count.to_bytes(2, "big") + message[HEADER_SIZE:] + to_wire(key)
    return bytes(head + _RECORD.pack(TSIG, ANY_CLASS, 0, len(data)) + data)


def sign_query(message: bytes, key: TsigKey, now: int) -> tuple[bytes, Signer]:
    """Return the signed query, and the signer, which ``check_reply`` needs."""
    kind = dns.rdataclass.ANY, dns.rdatatype.TSIG
    rdata = dns.rdtypes.ANY.TSIG.TSIG(*kind, _algorithms(key)[0], now, FUDGE, b"", 0, 0, b"")  # type: ignore[no-untyped-call]
    signer = Signer(key, rdata, key.mac_size)
    return signer.sign(message), signer


def refusal(reply: bytes, asked: Signer) -> str:
    """Return the error of an unsigned response that refuses the signature of a query (RFC 8945 5.2, 5.3.2), or "".

    Anyone can forge one, so it only hints at what is wrong.
    """
    try:
        record = find(reply)
    except ValueError:
        return ""
    if record is None or record.key != asked.key.name or reply[3] & RCODE_BITS != NOTAUTH:
        return ""
    return _ERRORS.get(record.rdata.error, "")


def check_reply(reply: bytes, asked: Signer, now: int) -> bool:
    """Return whether a response to this query has a valid signature (RFC 8945 5.3)."""
    try:
        record = find(reply)
    except ValueError:
        return False
    if record is None or record.key != asked.key.name or record.rdata.algorithm != asked.rdata.algorithm:
        return False
    rdata = record.rdata
    if rdata.error or not asked.mac_size <= len(rdata.mac) <= DIGESTS[asked.key.digest]:
        return False
    is_signed = _is_signed(_strip(reply, record), record, asked.key, after=asked.rdata.mac)
    return is_signed and abs(now - rdata.time_signed) <= rdata.fudge
