"""One NAPTR record, and how Maptr reads it (draft-kunze-ark appendix B; RFC 3403 section 4).

``Naptr`` is the rdata. ``Rule`` is its meaning: a host, a URL rule, a redirect, or a record that is not for Maptr,
with a note for everything unusual about it. ``RuleCache`` remembers rules. The walk follows them.
"""

from __future__ import annotations

import enum
import re
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from maptr import url
from maptr.naptr.automaton import Budget
from maptr.naptr.regexp import RegexpError, Substitution
from maptr.protocol import names
from maptr.protocol.names import Labels

SERVICE = b"ark"
MAX_STRING = 255  # bytes of a character-string (RFC 1035 3.3)
MAX_CACHED = 400_000  # instructions of regexps in a RuleCache, about 100 bytes each; a rule of maptr has up to 50

_unpack = struct.Struct("!HHB").unpack_from
_new = tuple.__new__  # faster than the class itself: scripts/bench client


class Naptr(NamedTuple):
    """NAPTR rdata (RFC 3403 section 4.1): character-strings as bytes, the replacement as labels."""

    order: int
    preference: int
    flags: bytes
    service: bytes
    regexp: bytes
    replacement: Labels

    @classmethod
    def read(cls, packet: bytes, start: int, end: int) -> Naptr:
        """Read the rdata between two offsets of a message; its name may be compressed (RFC 3597 4).

        Raises ValueError; IndexError or struct.error for a packet that ends too soon.
        """
        order, preference, size = _unpack(packet, start)
        service_at = start + 5 + size
        regexp_at = service_at + 1 + packet[service_at]
        name_at = regexp_at + 1 + packet[regexp_at]
        flags = packet[start + 5 : service_at]
        service = packet[service_at + 1 : regexp_at]
        regexp = packet[regexp_at + 1 : name_at]
        replacement, at = names.read_name(packet, name_at) if packet[name_at] else ((), name_at + 1)
        if at != end:
            raise ValueError("NAPTR rdata longer or shorter than its fields")
        return _new(cls, (order, preference, flags, service, regexp, replacement))

    @classmethod
    def from_text(cls, text: str) -> Naptr:
        """Read presentation format, as ``to_text`` writes it. Raises ValueError."""
        fields = re.fullmatch(_TEXT, text) if text.isascii() else None
        if fields is None:
            raise ValueError(f"{text!r:.60} is not the text of a NAPTR record")
        order, preference, *strings, replacement = fields.groups()
        if max(int(order), int(preference)) > 0xFFFF:
            raise ValueError("order or preference of more than 16 bits")
        flags, service, regexp = map(_unquoted, strings)
        return _new(cls, (int(order), int(preference), flags, service, regexp, names.parse(replacement)))

    @classmethod
    def from_wire(cls, rdata: bytes) -> Naptr:
        """Read uncompressed rdata. Raises ValueError if it is cut short, too long, or its name is compressed."""
        try:
            naptr = cls.read(rdata, 0, len(rdata))
        except (IndexError, struct.error):
            raise ValueError("NAPTR rdata cut short") from None
        strings = len(naptr.flags) + len(naptr.service) + len(naptr.regexp)
        if len(rdata) != 7 + strings + names.wire_length(naptr.replacement):
            raise ValueError("a compressed name in NAPTR rdata")
        return naptr

    def to_wire(self) -> bytes:
        """Uncompressed rdata with its case kept. Raises ValueError for a string of more than MAX_STRING bytes."""
        if max(len(self.flags), len(self.service), len(self.regexp)) > MAX_STRING:
            raise ValueError(f"more than {MAX_STRING} bytes in a character-string")
        return self._before_replacement() + names.to_wire(self.replacement)

    def canonical(self) -> bytes:
        """Rdata in canonical form (RFC 4034 sections 6.2 and 6.3): the replacement in lower case.

        A rule made from a table may have a regexp of more than MAX_STRING bytes: ``to_wire`` refuses that.
        """
        return self._before_replacement() + names.to_wire(self.replacement).lower()  # no label length is a letter

    def _before_replacement(self) -> bytes:
        strings = b"".join([bytes((min(len(s), MAX_STRING),)) + s for s in (self.flags, self.service, self.regexp)])
        return struct.pack("!HH", self.order, self.preference) + strings

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Presentation format that every zone reader accepts: special bytes escaped, the replacement absolute."""
        strings = " ".join(quote(s) for s in (self.flags, self.service, self.regexp))
        return f"{self.order} {self.preference} {strings} {names.to_text(self.replacement)}"


# The bytes that need no escape between quotes; and the escaped form of each byte.
_PLAIN = bytes(octet for octet in range(0x20, 0x7F) if octet not in b'"\\')
_QUOTED = [
    f"\\{chr(octet)}" if octet in b'"\\' else chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"
    for octet in range(256)
]


def quote(octets: bytes) -> str:
    r"""Return a quoted character-string (RFC 1035 5.1): ``"`` and ``\`` escaped, unprintable bytes as ``\DDD``."""
    if not octets.translate(None, _PLAIN):
        return f'"{octets.decode("ascii")}"'
    return f'"{"".join([_QUOTED[octet] for octet in octets])}"'


_STRING = r'"((?:[^"\\]|\\.)*)"'
_TEXT = rf"(?a)(\d{{1,5}}) (\d{{1,5}}) {_STRING} {_STRING} {_STRING} (\S+)"


def _unquoted(text: str) -> bytes:
    """Return the bytes of a character-string that ``quote`` wrote, without its quotes. Raises ValueError."""
    plain = re.sub(r"\\(?:([0-9]{3})|(.))", lambda escape: chr(int(escape[1])) if escape[1] else escape[2], text)
    try:
        return plain.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r:.60} has a character of more than one byte") from None


class NaptrRRset(tuple[Naptr, ...]):
    """The records of a name in canonical order (RFC 4034 6.3), without duplicates; ``of`` makes it."""

    __slots__ = ()

    @classmethod
    def of(cls, records: Sequence[Naptr]) -> NaptrRRset:
        if len(records) < 2:
            return cls(records)
        unique = {naptr.canonical(): naptr for naptr in records}
        return cls([unique[key] for key in sorted(unique)])


HOST_VARIES = "a group is in the host of its URL, or directly after it, so each ARK would choose the host"


class Kind(enum.Enum):
    """What a record means to Maptr."""

    HOST = "h"
    URL = "u"
    REDIRECT = "redirect"
    OTHER = "not ours"


class Rule(NamedTuple):
    """The meaning of one record. ``notes`` say what is unusual about it, or why it is not for Maptr.

    ``hosts`` is set for HOST: one host and port, or both readings of a name that may lack its final dot, the
    likelier first. ``substitution`` is set for URL, and for REDIRECT if the next name is made from the ARK.
    """

    naptr: Naptr
    kind: Kind
    notes: tuple[str, ...] = ()
    hosts: tuple[tuple[url.Host, int | None], ...] = ()
    substitution: Substitution | None = None


def read(naptr: Naptr, *, undotted: Labels | None = None, budget: Budget | None = None) -> Rule:
    """Return the record as a rule. A record that cannot be used is a rule of kind OTHER, with the reason.

    Reading is liberal: flags and service in any case, both fields set (``h`` takes the replacement, ``u`` the
    regexp, an empty flag the regexp if valid), a port in the last label of a host. ``undotted`` is an origin that
    zone readers append to hosts without a final dot, as the draft prints them: below it, a host that looks complete
    without the origin is read both ways. Compiling the regexp is paid from the ``budget``.

    Raises nothing but BudgetSpent.
    """
    flags, service = naptr.flags.lower(), naptr.service.lower()
    if service != SERVICE:
        return Rule(naptr, Kind.OTHER, (f"service is {quote(naptr.service)}, not ark",))
    notes: list[str] = []
    if (flags, service) != (naptr.flags, naptr.service):
        notes.append("flags or service in upper case")
    if flags == b"h":
        return _read_host(naptr, notes, undotted)
    if flags == b"u":
        return _read_url(naptr, notes, budget)
    if flags == b"":
        return _read_redirect(naptr, notes, budget)
    return Rule(naptr, Kind.OTHER, (*notes, f"flags {quote(naptr.flags)} have no meaning in Maptr"))


def _read_host(naptr: Naptr, notes: list[str], undotted: Labels | None) -> Rule:
    if naptr.regexp:
        notes.append(f"an h record with the regexp {quote(naptr.regexp)}, which is ignored")
    readings = [naptr.replacement]
    if undotted and names.is_below(naptr.replacement, undotted):
        shorter = naptr.replacement[: -len(undotted)]
        if _looks_whole(shorter):
            readings.insert(0, shorter)
            notes.append(f"{names.to_text(naptr.replacement)} looks like a host whose final dot was forgotten")
    hosts: list[tuple[url.Host, int | None]] = []
    for labels in readings:
        try:
            hosts.append(host_port(labels))
        except ValueError as error:
            notes.append(f"{names.to_text(labels)} is not a valid host: {error}")
    return _new(Rule, (naptr, Kind.HOST if hosts else Kind.OTHER, tuple(notes), tuple(hosts), None))


def _looks_whole(labels: Labels) -> bool:
    """Return whether there are two labels or more and the last, without its port, could be a top-level domain."""
    return len(labels) > 1 and labels[-1].partition(b":")[0].isalpha() and len(labels[-1].partition(b":")[0]) > 1


def _read_url(naptr: Naptr, notes: list[str], budget: Budget | None) -> Rule:
    if naptr.replacement:
        notes.append("a u record with a replacement, which is ignored")
    substitution = _substitution(naptr, notes, budget)
    if substitution is not None and not substitution.fixes_host:
        notes.append(f"regexp {quote(naptr.regexp)} is not usable: {HOST_VARIES}")
        substitution = None
    return Rule(naptr, Kind.URL if substitution else Kind.OTHER, tuple(notes), substitution=substitution)


def _read_redirect(naptr: Naptr, notes: list[str], budget: Budget | None) -> Rule:
    if naptr.regexp and naptr.replacement:
        notes.append("both regexp and replacement are set")
    substitution = _substitution(naptr, notes, budget) if naptr.regexp else None
    if substitution is None and not naptr.replacement:
        return Rule(naptr, Kind.OTHER, (*notes, "a redirect without a name"))
    return Rule(naptr, Kind.REDIRECT, tuple(notes), substitution=substitution)


def _substitution(naptr: Naptr, notes: list[str], budget: Budget | None) -> Substitution | None:
    try:
        return Substitution.parse(naptr.regexp, budget)
    except RegexpError as error:
        notes.append(f"regexp {quote(naptr.regexp)} is not usable: {error}")
        return None


def host_port(labels: Labels) -> tuple[url.Host, int | None]:
    """Host and port of an ``h`` replacement. The port is ``:port`` at the end of the last label.

    Raises ValueError if a URL cannot hold the labels as a host.
    """
    if not labels:
        raise ValueError("the root")
    joined = b".".join(labels)
    if joined.count(b".") >= len(labels):
        raise ValueError("a dot inside a label")
    if not joined.isascii():
        raise ValueError("not ASCII: an international name is written in A-labels (xn--...)")
    host, colon, port = joined.decode().partition(":")
    return url.parse_host(host), url.parse_port(port) if colon else None


class RuleCache:
    """``read`` with a cache: many ARKs share few rules, and compiling a regexp costs more than matching it.

    A cached rule costs a walk's budget as much as a new one, so that each walk ends as it would alone. The oldest rules
    are dropped first.
    """

    def __init__(self) -> None:
        self._rules: OrderedDict[tuple[Naptr, Labels | None], tuple[Rule, int]] = OrderedDict()
        self._size = 0

    def __call__(self, naptr: Naptr, *, undotted: Labels | None, budget: Budget) -> Rule:
        if not naptr.regexp:
            return read(naptr, undotted=undotted, budget=budget)
        key = naptr, undotted
        known = self._rules.get(key)
        if known is not None:
            budget.spend(known[1], taken=False)
            return known[0]
        before = budget.steps
        rule = read(naptr, undotted=undotted, budget=budget)
        self._rules[key] = rule, before - budget.steps
        self._size += _size(rule)
        while self._size > MAX_CACHED:
            self._size -= _size(self._rules.popitem(last=False)[1][0])
        return rule


def _size(rule: Rule) -> int:
    return 10 + (rule.substitution.expression.size if rule.substitution is not None else 0)
