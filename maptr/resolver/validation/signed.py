"""Signed RRsets: read from messages, and their signatures verified (RFC 4035 5.3), within limits for each question.

A response may be hostile, and dnspython takes seconds for one that is full of names of a hundred labels. Therefore it
parses only the types that validation needs, and the number of RRsets and the cost of names are limited. A response full
of keys with one tag and signatures that do not verify (KeyTrap, CVE-2023-50387) is bogus after a bounded time, as is
one that needs too many hashes (CVE-2023-50868). dnspython verifies the bytes of the signatures that count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dns.dnssec
import dns.dnssecalgs
import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.rrset
from dns.rdataclass import IN
from dns.rdatatype import CNAME, DNAME, DNSKEY, DS, NAPTR, NONE, NSEC, NSEC3, OPT, RRSIG, SOA, RdataType

from maptr.errors import time_text
from maptr.protocol.names import Labels, fold, read_name
from maptr.protocol.numbers import DNSSEC_PROTOCOL, HEADER_SIZE, RCODE_BITS, REVOKED, ZONE_KEY
from maptr.protocol.serial import is_newer
from maptr.resolver.message import WireRecord, read_sections

MAX_RRSETS = 256  # of one response; sixteen aliases by DNAME and wildcard, signed and proven, have about ninety
MAX_NAME_COST = 1_000_000  # sum of squares of the numbers of labels, dnspython's cost: 2048 names of 22 labels
TOO_MANY_RRSETS = f"more than {MAX_RRSETS} RRsets"

# The types that are parsed, and which of their fields are names.
_NAMES = {
    NAPTR: ("replacement",),
    CNAME: ("target",),
    DNAME: ("target",),
    DS: (),
    DNSKEY: (),
    RRSIG: ("signer",),
    SOA: ("mname", "rname"),
    NSEC: ("next",),
    NSEC3: (),
}

MAX_CHECKS = 64  # signature checks for one question, its chain of keys included; an honest chain from the root has 10
MAX_CHECKS_RRSET = 8  # for one RRset, as in Unbound since KeyTrap
MAX_HASHES = 20_000  # rounds of hashing for one question: 127 labels (RFC 1035) of an NSEC3 zone with 150 iterations

RRSIG_FIXED = 18  # bytes of an RRSIG before the signer's name (RFC 4034 3.1)
ALGORITHMS = frozenset({5, 7, 8, 10, 13, 14, 15, 16})  # those for validators in RFC 9904 that dnspython supports
DIGESTS = frozenset({1, 2, 4})  # SHA-1, SHA-256, SHA-384: what RFC 9905 lets validators accept
SHA1 = 1

_HEADER = struct.Struct("!6H")
_FIXED = struct.Struct("!HHI")
_LENGTH = struct.Struct("!H")

Rdata: TypeAlias = Any  # dnspython's classes have no typed attributes


# ---- messages


def parse(packet: bytes) -> dns.message.Message:
    """Return a message with one question, without the additional section and without other types.

    Raises ValueError for a malformed message, and for one above the limits.
    """
    try:
        ident, flags, questions, *counts = _HEADER.unpack_from(packet)
        if questions != 1:
            raise ValueError(f"{questions} questions")
        qname, at = read_name(packet, HEADER_SIZE)
        sections = read_sections(packet, at + 4, counts, qname)
        message = dns.message.QueryMessage(id=ident)
        message.flags = flags
        extended = next((record.ttl >> 24 << 4 for record in sections.additional if record.rdtype == OPT), 0)
        message.set_rcode(dns.rcode.Rcode(flags & RCODE_BITS | extended))  # RFC 6891 6.1.3
        message.answer, message.authority = _read_rrsets(packet, sections.answer, sections.authority)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return message


def _read_rrsets(packet: bytes, *sections: Sequence[WireRecord]) -> Iterator[list[dns.rrset.RRset]]:
    """Yield the RRsets of each section, in order. Raises ValueError above the limits, and dnspython's errors."""
    count = cost = 0
    for records in sections:
        found: dict[tuple[Labels, int, int], dns.rrset.RRset] = {}
        for record in records:
            if record.rdtype not in _NAMES:
                continue
            rdtype = RdataType(record.rdtype)
            rdata = dns.rdata.from_wire(IN, rdtype, packet, record.start, record.end - record.start)
            cost += sum(len(getattr(rdata, field)) ** 2 for field in _NAMES[rdtype])
            if cost > MAX_NAME_COST:
                raise ValueError("too many names with too many labels")
            key = fold(record.owner), rdtype, rdata.covers()
            if key not in found:
                count += 1
                if count > MAX_RRSETS:
                    raise ValueError(TOO_MANY_RRSETS)
                # Folded, because a server may write an owner in the random case of the query.
                found[key] = dns.rrset.RRset(dns.name.Name((*key[0], b"")), IN, rdtype, rdata.covers())
            found[key].add(rdata, record.ttl)
        yield list(found.values())


def rrset(
    section: Sequence[dns.rrset.RRset], name: dns.name.Name, rdtype: RdataType, covers: RdataType = NONE
) -> dns.rrset.RRset | None:
    """Return the RRset of a name and type; with ``covers``, the RRSIGs of that type."""
    return next((found for found in section if found.full_match(name, IN, rdtype, covers)), None)


def signatures(section: Sequence[dns.rrset.RRset], covered: dns.rrset.RRset) -> dns.rrset.RRset | None:
    return rrset(section, covered.name, RRSIG, covered.rdtype)


# ---- signatures


class Bogus(Exception):
    """The data is not validly signed, or does not prove what it has to; the text is the reason."""


class WorkBudget:
    """The work that one question may still cause. Raises Bogus."""

    __slots__ = ("_checks", "_hashes")

    def __init__(self, checks: int = MAX_CHECKS) -> None:
        self._checks = checks
        self._hashes = MAX_HASHES

    def check(self) -> None:
        self._checks -= 1
        if self._checks < 0:
            raise Bogus(f"more than {MAX_CHECKS} signatures to check")

    def hash(self, rounds: int = 1) -> None:
        self._hashes -= rounds
        if self._hashes < 0:
            raise Bogus(f"more than {MAX_HASHES} rounds of hashing")


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone, and the DNSKEY rdatas that may sign it, by algorithm and tag.

    It has no keys if it is provably unsigned, or if they are not known yet.
    """

    name: dns.name.Name
    keys: Mapping[tuple[int, int], tuple[Rdata, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: dns.name.Name, rdatas: Iterable[Rdata]) -> Zone:
        keys: dict[tuple[int, int], tuple[Rdata, ...]] = {}
        for rdata in rdatas:
            identity = int(rdata.algorithm), dns.dnssec.key_id(rdata)
            keys[identity] = (*keys.get(identity, ()), rdata)
        return cls(name, keys)


@dataclass(frozen=True, slots=True)
class VerifiedRRset:
    """An RRset with the tag of the key that signed it, and the seconds for which it may be cached (RFC 4035 5.3.3).

    ``encloser`` is set if the RRset comes from a wildcard: it is the name directly above the wildcard.
    """

    rrset: dns.rrset.RRset
    tag: int
    ttl: int
    encloser: dns.name.Name | None = None


def may_sign(key: Rdata) -> bool:
    """Return whether a DNSKEY may sign a zone, and its algorithm is supported."""
    for_zone = key.flags & ZONE_KEY and not key.flags & REVOKED
    return bool(for_zone and key.protocol == DNSSEC_PROTOCOL and key.algorithm in ALGORITHMS)


def is_usable(rdata: Rdata) -> bool:
    """Return whether a DS or DNSKEY has algorithms that are supported (RFC 4035 5.2, RFC 6840 5.2)."""
    if rdata.rdtype == DNSKEY:
        return may_sign(rdata)
    return bool(rdata.rdtype == DS and rdata.algorithm in ALGORITHMS and rdata.digest_type in DIGESTS)


def signers(signatures: dns.rrset.RRset | None) -> list[dns.name.Name]:
    """Return the signers in an RRset's signatures, each once, in order."""
    return list(dict.fromkeys(signature.signer for signature in signatures or ()))


def verify(
    rrset: dns.rrset.RRset, signatures: dns.rrset.RRset | None, zone: Zone, now: float, budget: WorkBudget
) -> VerifiedRRset:
    """Return the RRset with a valid signature of the zone. Raises Bogus with the reason of the last failure."""
    shown = f"{rrset.name.canonicalize()} {dns.rdatatype.to_text(rrset.rdtype)}"
    reason = f"no signature of {zone.name}"
    checks = 0
    records: list[bytes] = []  # in canonical form and order; for many records this costs more than a check
    for signature in signatures or ():
        if signature.signer != zone.name:
            continue
        refusal = _refusal(rrset, signature, now)
        if refusal:
            reason = refusal
            continue
        candidates = zone.keys.get((signature.algorithm, signature.key_tag), ())
        if not candidates:
            reason = f"signed by key {signature.key_tag}, which {zone.name} does not have"
        for key in candidates:
            checks += 1
            if checks > MAX_CHECKS_RRSET:
                raise Bogus(f"{shown}: more than {MAX_CHECKS_RRSET} signatures to check")
            budget.check()
            records = records or sorted({rdata.to_digestable() for rdata in rrset})
            if _verifies(_signed_data(rrset, records, signature), signature.signature, key):
                left = (signature.expiration - int(now)) & 0xFFFF_FFFF
                ttl = min(int(rrset.ttl), int(signature.original_ttl), left)
                return VerifiedRRset(rrset, int(signature.key_tag), ttl, _encloser(rrset.name, signature))
            reason = f"the signature of key {signature.key_tag} does not verify"
    raise Bogus(f"{shown}: {reason}")


def _refusal(rrset: dns.rrset.RRset, signature: Rdata, now: float) -> str:
    """Return why a signature does not count, before its bytes are verified (RFC 4035 5.3.1); empty if it does."""
    if signature.type_covered != rrset.rdtype:
        return "a signature of another type"
    if not rrset.name.is_subdomain(signature.signer):
        return f"signed by {signature.signer}, which does not contain it"
    labels = len(rrset.name) - 1 - rrset.name.is_wild()  # without the root and a leading * (RFC 4034 3.1.3)
    if not len(signature.signer) - 1 <= signature.labels <= labels:
        return f"a signature of {signature.labels} labels"
    if signature.labels < labels and rrset.rdtype in (NSEC, NSEC3, DNSKEY):
        return "made from a wildcard, which is not valid for this type"
    # In serial number arithmetic of 32 bits (RFC 4034 3.1.5, RFC 1982).
    if is_newer(signature.inception, int(now)):
        return f"its signature begins at {time_text(signature.inception)}"
    if is_newer(int(now), signature.expiration):
        return f"its signature ended at {time_text(signature.expiration)}"
    if signature.algorithm not in ALGORITHMS:
        return f"signed by algorithm {signature.algorithm}, which is not supported"
    return ""


def _verifies(data: bytes, signature: bytes, key: Rdata) -> bool:
    try:
        dns.dnssecalgs.get_algorithm_cls_from_dnskey(key).public_cls.from_dnskey(key).verify(signature, data)
    except Exception:  # a hostile key may raise anything from deep inside a library
        return False
    return True


def _signed_data(rrset: dns.rrset.RRset, records: list[bytes], signature: Rdata) -> bytes:
    """Return the signed data (RFC 4034 3.1.8.1): names in lower case (6.2), ``records`` in order, each once (6.3).

    Not done by dnspython, whose times end in 2106 (RFC 4034 3.1.5 lets them wrap).
    """
    encloser = _encloser(rrset.name, signature)
    owner = rrset.name if encloser is None else dns.name.Name((b"*", *encloser.labels))
    fixed = owner.to_digestable() + _FIXED.pack(rrset.rdtype, rrset.rdclass, signature.original_ttl)
    head: bytes = signature.to_wire()[:RRSIG_FIXED] + signature.signer.to_digestable()
    return head + b"".join([fixed + _LENGTH.pack(len(record)) + record for record in records])


def _encloser(name: dns.name.Name, signature: Rdata) -> dns.name.Name | None:
    """Return the name directly above the wildcard that a name was made from; None without wildcard (RFC 4035 5.3.2)."""
    if signature.labels == len(name) - 1 - name.is_wild():
        return None
    return name.split(signature.labels + 1)[1]
