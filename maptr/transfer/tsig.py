"""TSIG (RFC 8945): a signed query opened, a reply signed, message after message where there are several.

Bytes in, bytes out. MACs are those of ``dns.tsig``; the order of checks and truncated MACs are not there, so they are
here. Keys and what they allow are in ``acl.py``; the time is an argument.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import dns.name
import dns.tsig

from maptr.protocol.names import Labels, fold, read_name, to_text, to_wire
from maptr.protocol.numbers import ANY_CLASS, FORMERR, HEADER_SIZE, NOTAUTH, TSIG
from maptr.transfer.acl import DIGESTS, MIN_MAC, Key

BADSIG, BADKEY, BADTIME, BADTRUNC = 16, 17, 18, 22  # RFC 8945 3
_ERRORS = {BADSIG: "BADSIG", BADKEY: "BADKEY", BADTIME: "BADTIME", BADTRUNC: "BADTRUNC"}
FUDGE = 300  # seconds between two clocks, "RECOMMENDED" (RFC 8945 10)

_TYPE = TSIG.to_bytes(2, "big")
_COUNTS = struct.Struct("!4H")  # of the four sections, RFC 1035 4.1.1
_RECORD = struct.Struct("!HHIH")  # type, class, TTL and length of rdata, RFC 1035 4.1.3
_TIMES = struct.Struct("!HIHH")  # the time, fudge and the length of the MAC (RFC 8945 4.2)
_END = struct.Struct("!HHH")  # what follows the MAC: original ID, error and the length of other data
# Names on the wire that also say how far MACs are cut (RFC 8945 6).
_CUT_NAMES = frozenset({"hmac-sha256-128", "hmac-sha384-192", "hmac-sha512-256"})


@dataclass(frozen=True, slots=True)
class Record:
    """The TSIG record of a message, as RFC 8945 4.2 lays it out. ``start`` is where it lies."""

    start: int
    key: Labels
    algorithm: Labels
    time: int
    fudge: int
    mac: bytes
    original_id: int
    error: int
    other: bytes


@dataclass(slots=True)
class Signer:
    """Signs the messages of one exchange, each covering the one before it (RFC 8945 5.3.1)."""

    key: Key
    algorithm: Labels  # as the other side wrote it
    mac_size: int
    time: int
    fudge: int = FUDGE
    error: int = 0
    other: bytes = b""
    previous: bytes = b""  # the MAC before, first the query's
    first: bool = True

    @property
    def size(self) -> int:
        """Octets that signing adds to a message."""
        names = len(to_wire(self.key.name)) + len(to_wire(self.algorithm))
        return names + 10 + 16 + self.mac_size + len(self.other)

    def sign(self, message: bytes) -> bytes:
        """The message with its TSIG record, which covers all of it."""
        ident = int.from_bytes(message[:2], "big")
        record = Record(
            len(message), self.key.name, self.algorithm, self.time, self.fudge, b"", ident, self.error, self.other
        )
        covered = message + (_variables(record) if self.first else _timers(record))
        self.previous = _mac(self.key, covered, after=self.previous)[: self.mac_size]
        self.first = False
        return attach(message, record, self.previous)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a query turned out to be: its octets without TSIG, and who signed it.

    Where ``rcode`` is set the query gets that and nothing else, signed if there is a signer, else with the
    ``unsigned`` record, which has the error, if that is there (RFC 8945 5.3.2).
    """

    query: bytes
    signer: Signer | None = None
    rcode: int | None = None
    unsigned: Record | None = field(default=None, repr=False)

    @property
    def key(self) -> Labels | None:
        """The key that signed the query; None too where that was in vain."""
        return self.signer.key.name if self.signer is not None and self.rcode is None else None

    @property
    def error(self) -> int:
        """What is wrong with the signature (RFC 8945 3); 0 for nothing, and where there is none."""
        told = self.unsigned or self.signer
        return 0 if told is None else told.error

    @property
    def fault(self) -> str:
        """The same for people, where there is an error: the key, and the error by its name."""
        key = self.unsigned.key if self.unsigned else self.signer.key.name if self.signer else ()
        return f"key {to_text(key)} {_ERRORS[self.error]}"

    @property
    def size(self) -> int:
        """Octets to leave for TSIG in each reply."""
        return self.signer.size if self.signer is not None else 0

    def seal(self, reply: bytes) -> bytes:
        """The reply as it is sent: signed, or with the unsigned record, or as it is."""
        if self.signer is not None:
            return self.signer.sign(reply)
        return reply if self.unsigned is None else attach(reply, self.unsigned, b"")


def may_be_signed(message: bytes) -> bool:
    """False if a message certainly has no TSIG record, without reading its records."""
    return _TYPE in message and any(message[6:HEADER_SIZE])


def open_query(query: bytes, keys: Mapping[Labels, Key], now: int) -> Opened:
    """Check a query's TSIG: form, key, MAC, time and truncation, in the order of RFC 8945 5.2.

    A query whose octets cannot be read is given back as it is, for whoever answers it to say so. ``now`` is in
    seconds since 1970. The latest time of a key is not kept: over UDP, honest queries overtake each other.
    """
    if not may_be_signed(query):
        return Opened(query)
    try:
        record = find(query)
    except ValueError:
        # Either not a message at all, or TSIG out of place: FORMERR both ways (RFC 8945 5.2).
        return Opened(query, rcode=FORMERR)
    if record is None:
        return Opened(query)
    stripped = _strip(query, record)
    key = keys.get(record.key)
    if key is None or not _suits(key, record.algorithm):
        return _not_signed(stripped, record, BADKEY)
    full = DIGESTS[key.digest]
    length = len(record.mac)
    if length > full or length < max(MIN_MAC, full // 2):
        # No MAC at all proves nothing; one of a length that none may have is malformed (RFC 8945 5.2.2.1).
        return Opened(stripped, rcode=FORMERR) if length else _not_signed(stripped, record, BADSIG)
    if not _is_signed(stripped, record, key):
        return _not_signed(stripped, record, BADSIG)
    signer = Signer(key, record.algorithm, length, now, record.fudge, previous=record.mac)
    if abs(now - record.time) > record.fudge:
        # The client's time, which it can check against, and ours beside it (RFC 8945 5.2.3).
        signer.time, signer.error, signer.other = record.time, BADTIME, now.to_bytes(6, "big")
        return Opened(stripped, signer, NOTAUTH)
    if length < key.mac_size:
        signer.error, signer.mac_size = BADTRUNC, key.mac_size
        return Opened(stripped, signer, NOTAUTH)
    return Opened(stripped, signer)


def find(message: bytes) -> Record | None:
    """The TSIG record of a message, or None.

    Raises ValueError for one that is not last, not alone, or not of class ANY with TTL 0 (RFC 8945 4.2, 5.2), and for
    octets that cannot be read.
    """
    if len(message) < HEADER_SIZE:
        raise ValueError("no whole header")
    questions, *counts = _COUNTS.unpack_from(message, 4)
    at = HEADER_SIZE
    for _ in range(questions):
        at = read_name(message, at)[1] + 4
    for left in reversed(range(sum(counts))):  # without objects: a hostile message has thousands
        start = at
        name, at = read_name(message, at)
        try:
            rdtype, rdclass, ttl, size = _RECORD.unpack_from(message, at)
        except struct.error:
            raise ValueError("a record cut short") from None
        at += _RECORD.size + size
        if at > len(message):
            raise ValueError("rdata cut short")
        if rdtype == TSIG:
            if left or not counts[2] or (rdclass, ttl) != (ANY_CLASS, 0):
                raise ValueError("TSIG is not last, or not of class ANY with TTL 0")
            if at != len(message):
                raise ValueError("bytes after TSIG")
            return _read(message, start, fold(name), at - size)
    return None


def _read(message: bytes, start: int, key: Labels, at: int) -> Record:
    """The record that ends the message, whose rdata stand there."""
    name, at = read_name(message, at)
    try:
        high, low, fudge, length = _TIMES.unpack_from(message, at)
        at += _TIMES.size + length
        original_id, error, other = _END.unpack_from(message, at)
    except struct.error:
        raise ValueError("TSIG rdata cut short") from None
    end = at + _END.size
    if len(message) != end + other:
        raise ValueError("TSIG rdata of a wrong length")
    mac = message[at - length : at]
    return Record(start, key, fold(name), high << 32 | low, fudge, mac, original_id, error, message[end:])


def _strip(message: bytes, record: Record) -> bytes:
    """The message as it was signed, but for its ID: without the record, which the count no longer has."""
    count = int.from_bytes(message[10:12], "big") - 1
    return message[:10] + count.to_bytes(2, "big") + message[HEADER_SIZE : record.start]


def _suits(key: Key, algorithm: Labels) -> bool:
    if len(algorithm) != 1:
        return False
    name = algorithm[0].decode("latin-1")
    return name == f"hmac-{key.digest}" or (name == key.algorithm and name in _CUT_NAMES)


def _not_signed(stripped: bytes, record: Record, error: int) -> Opened:
    return Opened(stripped, rcode=NOTAUTH, unsigned=replace(record, error=error, other=b""))


def _is_signed(stripped: bytes, record: Record, key: Key, *, after: bytes = b"") -> bool:
    """True where the record has the MAC of the message that it was stripped from (RFC 8945 4.3)."""
    covered = record.original_id.to_bytes(2, "big") + stripped[2:] + _variables(record)
    return hmac.compare_digest(_mac(key, covered, after=after)[: len(record.mac)], record.mac)


def _mac(key: Key, covered: bytes, *, after: bytes = b"") -> bytes:
    """The whole MAC; that of the message before goes first, where there was one (RFC 8945 4.3.1)."""
    algorithm = dns.name.from_text(f"hmac-{key.digest}.")
    context = dns.tsig.get_context(  # type: ignore[no-untyped-call]
        dns.tsig.Key(dns.name.Name((*key.name, b"")), key.secret, algorithm)
    )
    if after:
        context.update(len(after).to_bytes(2, "big") + after)
    context.update(covered)
    return bytes(context.sign())


def _timers(record: Record) -> bytes:
    """What stands for the variables in every message but the first (RFC 8945 5.3.1)."""
    return struct.pack("!HIH", record.time >> 32 & 0xFFFF, record.time & 0xFFFFFFFF, record.fudge)


def _variables(record: Record) -> bytes:
    """The TSIG variables (RFC 8945 4.3.3)."""
    head = to_wire(record.key) + struct.pack("!HI", ANY_CLASS, 0) + to_wire(record.algorithm) + _timers(record)
    return head + struct.pack("!HH", record.error, len(record.other)) + record.other


def attach(message: bytes, record: Record, mac: bytes) -> bytes:
    """The message with a TSIG record as its last, whose original ID is the message's own."""
    rdata = to_wire(record.algorithm) + _timers(record) + struct.pack("!H", len(mac)) + mac
    rdata += message[:2] + struct.pack("!HH", record.error, len(record.other)) + record.other
    octets = to_wire(record.key) + struct.pack("!HHIH", TSIG, ANY_CLASS, 0, len(rdata)) + rdata
    count = int.from_bytes(message[10:12], "big") + 1
    return message[:10] + count.to_bytes(2, "big") + message[HEADER_SIZE:] + octets


def sign_query(message: bytes, key: Key, now: int) -> tuple[bytes, Signer]:
    """A query of our own, signed; the signer then has its MAC, by which ``check_reply`` knows the reply."""
    name = key.algorithm if key.algorithm in _CUT_NAMES else f"hmac-{key.digest}"
    signer = Signer(key, (name.encode(),), key.mac_size, now)
    return signer.sign(message), signer


def check_reply(reply: bytes, asked: Signer, now: int) -> bool:
    """True where a reply is signed for this query by its key, now (RFC 8945 5.3)."""
    try:
        record = find(reply)
    except ValueError:
        return False
    if record is None or record.key != asked.key.name or record.algorithm != asked.algorithm:
        return False
    if record.error or not asked.mac_size <= len(record.mac) <= DIGESTS[asked.key.digest]:
        return False
    is_signed = _is_signed(_strip(reply, record), record, asked.key, after=asked.previous)
    return is_signed and abs(now - record.time) <= record.fudge
