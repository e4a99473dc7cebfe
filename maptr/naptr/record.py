"""One NAPTR record, and how Maptr reads it (draft-kunze-ark appendix B; RFC 3403 section 4).

``Naptr`` is the rdata as it is. ``Rule`` is the same record read: a host, a URL rule, a redirect, or none of ours,
with a note for everything about it that was odd. Nothing here follows a rule; that is the walk's business.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

from maptr import url
from maptr.protocol import names
from maptr.protocol.names import Labels

if TYPE_CHECKING:
    from maptr.naptr.automaton import Budget
    from maptr.naptr.regexp import Substitution

# The regexps are imported where a record has one: most have none, and a fresh process waits for what it imports.

_new = tuple.__new__  # half the time of a NamedTuple's own
SERVICE = b"ark"
MAX_STRING = 255  # octets of a character-string (RFC 1035 3.3)

Fields = tuple[int, int, bytes, bytes, bytes, Labels]
"""The rdata of a record, in the order of ``Naptr``."""


class Naptr(NamedTuple):
    """NAPTR rdata (RFC 3403 section 4.1): character-strings as octets, the replacement as labels."""

    order: int
    preference: int
    flags: bytes
    service: bytes
    regexp: bytes
    replacement: Labels

    @classmethod
    def from_wire(cls, rdata: bytes) -> Naptr:
        """From uncompressed rdata; ValueError if it is cut short, too long, or its name is compressed."""
        if len(rdata) < 4:
            raise ValueError("rdata cut short")
        order, preference = struct.unpack_from("!HH", rdata)
        at = 4
        strings: list[bytes] = []
        labels: list[bytes] = []
        while True:
            if at >= len(rdata):
                raise ValueError("rdata cut short")
            length = rdata[at]
            part = rdata[at + 1 : at + 1 + length]
            at += 1 + length
            if len(strings) == 3 and length == 0:
                break
            if len(part) < length or (len(strings) == 3 and length > names.MAX_LABEL):
                raise ValueError("rdata cut short, or its name compressed")
            (labels if len(strings) == 3 else strings).append(part)
        if at != len(rdata):
            raise ValueError("octets after the rdata")
        flags, service, regexp = strings
        return cls(order, preference, flags, service, regexp, names.check(tuple(labels)))

    def to_wire(self) -> bytes:
        """Uncompressed rdata, case kept; ValueError for a string that is longer than a character-string."""
        if max(len(self.flags), len(self.service), len(self.regexp)) > MAX_STRING:
            raise ValueError(f"more than {MAX_STRING} octets in a character-string")
        return self._before_replacement() + names.to_wire(self.replacement)

    def canonical(self) -> bytes:
        """Rdata in the form that sorts (RFC 4034 sections 6.2 and 6.3): the replacement in lower case.

        A table's own rule may have a regexp of more than 255 octets: it sorts, and has no ``to_wire``.
        """
        return self._before_replacement() + names.to_wire(self.replacement).lower()  # no length is a letter

    def _before_replacement(self) -> bytes:
        strings = b"".join([bytes((min(len(s), MAX_STRING),)) + s for s in (self.flags, self.service, self.regexp)])
        return struct.pack("!HH", self.order, self.preference) + strings

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Presentation format that every zone reader takes: octets escaped, the replacement absolute."""
        strings = " ".join(quote(s) for s in (self.flags, self.service, self.regexp))
        return f"{self.order} {self.preference} {strings} {names.to_text(self.replacement)}"


# What stays as it is between quotes; and what each octet is written as where one does not.
_PLAIN = bytes(octet for octet in range(0x20, 0x7F) if octet not in b'"\\')
_QUOTED = [
    f"\\{chr(octet)}" if octet in b'"\\' else chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"
    for octet in range(256)
]


def quote(octets: bytes) -> str:
    r"""A quoted character-string (RFC 1035 section 5.1): ``"`` and ``\`` escaped, unprintable octets ``\DDD``."""
    if not octets.translate(None, _PLAIN):
        return f'"{octets.decode("ascii")}"'
    return f'"{"".join([_QUOTED[octet] for octet in octets])}"'


class Kind(enum.Enum):
    """What a record means to Maptr."""

    HOST = "h"
    URL = "u"
    REDIRECT = "redirect"
    OTHER = "not ours"


class Rule(NamedTuple):
    """One record read. ``notes`` says what was odd about it, or why it is not ours.

    ``hosts`` is set for HOST: one host and port, or the two readings of a name that lacks its final dot, the
    likelier first. ``substitution`` is set for URL, and for REDIRECT where the next name is made from the ARK.
    """

    naptr: Naptr
    kind: Kind
    notes: tuple[str, ...] = ()
    hosts: tuple[tuple[url.Host, int | None], ...] = ()
    substitution: Substitution | None = None


def read(naptr: Naptr, *, undotted: Labels | None = None, budget: Budget | None = None) -> Rule:
    """The record as a rule; never raises, for a record that cannot be used is a rule of kind OTHER that says why.
    Only with a budget, which compiling its regexp is paid from, it may raise BudgetSpent.

    Reading is liberal: flags and service in any case, both fields set (``h`` takes the replacement, ``u`` the
    regexp, an empty flag the regexp if valid), a port in the last label of a host. ``undotted`` is an origin that
    zone readers have put behind hosts written without a final dot, as the draft prints them: below it, a host
    that looks whole without the origin is read both ways.
    """
    _, _, flags, service, _, _ = naptr
    flags = flags.lower()
    if service != SERVICE and service.lower() != SERVICE:
        return Rule(naptr, Kind.OTHER, (f"service is {quote(service)}, not ark",))
    notes: list[str] = []
    if service != SERVICE or naptr.flags != flags:
        notes.append("flags or service in upper case")
    if flags == b"h":
        return _read_host(naptr, notes, undotted)
    if flags == b"u":
        return _read_url(naptr, notes, budget)
    if flags == b"":
        return _read_redirect(naptr, notes, budget)
    return Rule(naptr, Kind.OTHER, (*notes, f"flags {quote(naptr.flags)} mean nothing to Maptr"))


def _read_host(naptr: Naptr, notes: list[str], undotted: Labels | None) -> Rule:
    _, _, _, _, regexp, replacement = naptr
    if regexp:
        notes.append(f"an h record with the regexp {quote(regexp)}, which it has no use for")
    readings = [replacement]
    if undotted and names.is_below(replacement, undotted):
        shorter = replacement[: -len(undotted)]
        if _looks_whole(shorter):
            readings.insert(0, shorter)
            notes.append(f"{names.to_text(replacement)} looks like a host whose final dot was forgotten")
    hosts: list[tuple[url.Host, int | None]] = []
    for labels in readings:
        try:
            hosts.append(host_port(labels))
        except ValueError as error:
            notes.append(f"{names.to_text(labels)} is no host: {error}")
    if not hosts:
        return Rule(naptr, Kind.OTHER, tuple(notes))
    return _new(Rule, (naptr, Kind.HOST, tuple(notes), tuple(hosts), None))


def _looks_whole(labels: Labels) -> bool:
    """True for two labels or more of which the last could be a top-level domain, a port put aside."""
    return len(labels) > 1 and labels[-1].partition(b":")[0].isalpha() and len(labels[-1].partition(b":")[0]) > 1


def _read_url(naptr: Naptr, notes: list[str], budget: Budget | None) -> Rule:
    if naptr.replacement:
        notes.append("a u record with a replacement, which it has no use for")
    from maptr.naptr.ere import RegexpError
    from maptr.naptr.regexp import Substitution

    try:
        substitution = Substitution.parse(naptr.regexp, budget)
    except RegexpError as error:
        return Rule(naptr, Kind.OTHER, (*notes, f"regexp {quote(naptr.regexp)} cannot be used: {error}"))
    return Rule(naptr, Kind.URL, tuple(notes), substitution=substitution)


def _read_redirect(naptr: Naptr, notes: list[str], budget: Budget | None) -> Rule:
    substitution = None
    if naptr.regexp:
        if naptr.replacement:
            notes.append("both regexp and replacement are set")
        from maptr.naptr.ere import RegexpError
        from maptr.naptr.regexp import Substitution

        try:
            substitution = Substitution.parse(naptr.regexp, budget)
        except RegexpError as error:
            notes.append(f"regexp {quote(naptr.regexp)} cannot be used: {error}")
    if substitution is None and not naptr.replacement:
        return Rule(naptr, Kind.OTHER, (*notes, "redirects to no name"))
    return Rule(naptr, Kind.REDIRECT, tuple(notes), substitution=substitution)


def host_port(labels: Labels) -> tuple[url.Host, int | None]:
    """Host and port of an ``h`` replacement, the port being a ``:port`` at the end of the last label.

    Raises ValueError where the labels are no host a URL could hold.
    """
    if not labels:
        raise ValueError("the root")
    joined = b".".join(labels)
    if joined.count(b".") >= len(labels):
        raise ValueError("a dot inside a label")
    if not joined.isascii():
        raise ValueError("octets beyond ASCII: a host is written in A-labels")
    host, colon, port = joined.decode().partition(":")
    return url.parse_host(host), url.parse_port(port) if colon else None
