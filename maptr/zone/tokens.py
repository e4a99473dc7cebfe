"""The text of a master file as it is written (RFC 1035 5): logical lines of raw tokens, and the names in them.

A reader of zones hides whether a name was relative, and how it was escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import dns.exception
import dns.tokenizer

from maptr.protocol.names import ARK_ARPA, to_text

MAX_GENERATED = 1_000_000  # records from the $GENERATE lines of a file: as many as a large zone has
TOO_MANY_GENERATED = f"its $GENERATE lines make more than {MAX_GENERATED} records"
BYTE_ORDER_MARK = "\ufeff"
MARK_REFUSED = "begins with a byte order mark, which name servers take for a part of the first name: save it without"

CLASSES = ("IN", "CH", "HS", "CS")  # RFC 1035 3.2.4
_SPAN = re.compile(r"(\d{1,20})-(\d{1,20})(?:/(\d{1,20}))?")


def logical_lines(text: str) -> Iterator[tuple[int, bool, list[str]]]:
    """The line number of each logical line, whether it begins with white space, and its raw tokens.

    Ends at the first token that cannot be read: ``read_master_file`` says why.
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
    """The number of records from the range of a $GENERATE line, ``1-10`` or ``1-10/2``; 0 for a bad range.

    >>> generated("1-10/2")
    5
    """
    match = _SPAN.fullmatch(span)
    if match is None:
        return 0
    start, stop, step = (int(number or 1) for number in match.groups())
    return len(range(start, stop + 1, step)) if step else 0


def absolute(name: str, base: str) -> str:
    """A name of the file made absolute, in presentation format."""
    if name == "@":
        return base
    return name if name.endswith(".") else f"{name}.{base}" if base != "." else f"{name}."


def type_and_rdata(tokens: list[str]) -> tuple[str, list[str]]:
    """Type, in upper case, and rdata from the tokens after an owner, which may begin with TTL and class."""
    for at, token in enumerate(tokens):
        if not (token[:1].isdigit() or token.upper() in CLASSES):
            return token.upper(), tokens[at + 1 :]
    return "", []


def soa_owner(text: str) -> str:
    """The owner of the SOA in a zone text; ``ark.arpa.`` if it has none."""
    base = to_text(ARK_ARPA)
    for _, leading, tokens in logical_lines(text):
        if len(tokens) > 1 and tokens[0].upper() == "$ORIGIN":
            base = absolute(tokens[1], base)
        elif not leading and type_and_rdata(tokens[1:])[0] == "SOA":
            return absolute(tokens[0], base)
    return base
