"""Master files as they are written (RFC 1035 section 5): logical lines of raw tokens, and the names in them.

A reader of zones hides what this shows: whether a name was relative, and how it was escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import dns.exception
import dns.tokenizer

from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA

BYTE_ORDER_MARK = "\ufeff"
MARK_REFUSED = "begins with a byte order mark, which name servers take for a part of the first name: save it without"

# File names are the system's; an escape and what it escapes go together.
_NOT_ASCII = re.compile(rb"(?mi)^\$INCLUDE\b.*|\\(?s:.)|[\x80-\xff]")
MAX_GENERATED = 1_000_000  # records that the $GENERATE lines of a file may make: as many as a zone has that is large
TOO_MANY_GENERATED = f"its $GENERATE lines make more than {MAX_GENERATED} records"
_SPAN = re.compile(r"(\d{1,20})-(\d{1,20})(?:/(\d{1,20}))?")

CLASSES = ("IN", "CH", "HS", "CS")  # RFC 1035 section 3.2.4


def in_ascii(octets: bytes) -> bytes:
    """The same file with ``\\DDD`` for each octet that is not ASCII (RFC 1035 5.1). So name servers read them, in names
    too; dnspython, shown the characters, makes A-labels, and of some that look like ASCII just that. What is no UTF-8
    stays as it is, to be refused."""
    if octets.isascii():
        return octets
    try:
        octets.decode()
    except UnicodeDecodeError:
        return octets
    return re.sub(_NOT_ASCII, _escaped, octets)


def _escaped(found: re.Match[bytes]) -> bytes:
    octets = found[0]
    return octets if octets[:-1] not in (b"", b"\\") or octets[-1] < 0x80 else b"\\%03d" % octets[-1]


def logical_lines(text: str) -> Iterator[tuple[int, bool, list[str]]]:
    """Line number, whether it begins with white space, and raw tokens, of each logical line.

    A text whose tokens cannot be read ends early: whoever loads it says why.
    """
    tokenizer = dns.tokenizer.Tokenizer(text)
    try:
        while True:
            first = tokenizer.get(want_leading=True)
            line = tokenizer.line_number
            leading = first.is_whitespace()
            token = tokenizer.get() if leading else first
            tokens: list[str] = []
            while not token.is_eol_or_eof():
                tokens.append(token.value)
                token = tokenizer.get()
            yield line, leading, tokens
            if token.is_eof():
                return
    except dns.exception.DNSException:
        return


def generated(span: str) -> int:
    """How many records the range of a $GENERATE line makes, ``1-10`` or ``1-10/2``; 0 for what is no range.

    >>> generated("1-10/2")
    5
    """
    match = _SPAN.fullmatch(span)
    if match is None:
        return 0
    start, stop, step = (int(number or 1) for number in match.groups())
    return len(range(start, stop + 1, step)) if step else 0


def absolute(name: str, base: str) -> str:
    """A name as the file means it below an origin, both in presentation format."""
    if name == "@":
        return base
    return name if name.endswith(".") else f"{name}.{base}" if base != "." else f"{name}."


def type_and_rdata(tokens: list[str]) -> tuple[str, list[str]]:
    """Type, in upper case, and rdata of the tokens after an owner: before the type stand TTL and class, or not."""
    for at, token in enumerate(tokens):
        if not (token[:1].isdigit() or token.upper() in CLASSES):
            return token.upper(), tokens[at + 1 :]
    return "", []


def soa_owner(text: str) -> str:
    """The origin that a zone text says itself, ``ark.arpa.`` where it says none."""
    base = names.to_text(ARK_ARPA)
    for _, leading, tokens in logical_lines(text):
        if len(tokens) > 1 and tokens[0].upper() == "$ORIGIN":
            base = absolute(tokens[1], base)
        elif not leading and type_and_rdata(tokens[1:])[0] == "SOA":
            return absolute(tokens[0], base)
    return base
