"""Logical lines of master files (RFC 1035 5.1): their tokens, as they are spelled.

A checker needs the spelling, because a loaded zone does not show whether a name was relative or how it was escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.names import ARK_ARPA, to_text

CLASSES = ("IN", "CH", "HS", "CS")  # RFC 1035 3.2.4
UNBALANCED_QUOTES, UNBALANCED_GROUP = "unbalanced quotes", "unbalanced parentheses"

# A word may end with a quoted value directly after "=", as SvcParams do (RFC 9460 2.1).
_ESCAPED = r"\\(?s:.)"
_QUOTED = rf'"(?:[^"\\\n]|{_ESCAPED})*"'
_PART = re.compile(
    rf"(?P<blank>[ \t]+)|(?P<end>\r\n|[\r\n])|(?P<comment>;[^\r\n]*)|(?P<group>[()])|(?P<quoted>{_QUOTED})"
    rf'|(?P<word>(?:[^ \t\r\n;()"\\]|\\[^\r\n])+(?:(?<==){_QUOTED})?)'
)
_NOT_ASCII = re.compile(rb"\\(?s:.)|[\x80-\xff]")


class RecordLine(NamedTuple):
    """A logical line: its first line in the file, whether it begins with a blank, and its tokens with their quotes."""

    number: int
    is_indented: bool
    tokens: list[str]


def logical_lines(text: str) -> Iterator[RecordLine]:
    """Yield the logical lines that have a token. Raises ZoneError, with the line, for a text that cannot be split."""
    at, number, began, depth = 0, 1, 1, 0
    is_indented = False
    tokens: list[str] = []
    begins = True
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            reason = UNBALANCED_QUOTES if text[at] == '"' else "an escape at the end of a line"
            raise ZoneError(reason, line=began)
        kind, found, at = part.lastgroup, part[0], part.end()
        if begins:
            began, is_indented, begins = number, kind == "blank", False
        if kind in ("word", "quoted"):
            tokens.append(found)
        elif kind == "group":
            depth += 1 if found == "(" else -1
            if depth < 0:
                raise ZoneError(UNBALANCED_GROUP, line=began)
        elif kind == "end" and not depth:
            if tokens:
                yield RecordLine(began, is_indented, tokens)
            tokens, begins = [], True
        number += 1 if kind == "end" else found.count("\n")
    if depth:
        raise ZoneError(UNBALANCED_GROUP, line=began)
    if tokens:
        yield RecordLine(began, is_indented, tokens)


def readable_lines(text: str) -> Iterator[RecordLine]:
    """Yield the logical lines before the first that cannot be split; the reader of the zone reports that one."""
    with suppress(ZoneError):
        yield from logical_lines(text)


def is_quoted(token: str) -> bool:
    return token[:1] == '"'


def unquoted(token: str) -> str:
    """Return a token without the quotes around it."""
    return token[1:-1] if is_quoted(token) else token


def escaped(token: str) -> str:
    """Return a token with ``\\DDD`` for each byte that is not ASCII (RFC 1035 5.1), as name servers read it."""
    return token if token.isascii() else _NOT_ASCII.sub(_escape, token.encode()).decode()


def _escape(found: re.Match[bytes]) -> bytes:
    return found[0] if found[0][-1] < 0x80 else b"\\%03d" % found[0][-1]


def is_absolute(name: str) -> bool:
    """Return whether a name ends in a dot that is not escaped."""
    return name.endswith(".") and (len(name) - len(name[:-1].rstrip("\\")) - 1) % 2 == 0


def absolute(name: str, base: str) -> str:
    """Complete a name of the file with an absolute name, both in presentation format."""
    if name == "@":
        return base
    if is_absolute(name):
        return name
    return f"{name}.{base}" if base != "." else f"{name}."


def type_and_rdata(tokens: list[str]) -> tuple[str, list[str]]:
    """Return the type in upper case, and the rdata, from the tokens after an owner: TTL, class, type and rdata."""
    for at, token in enumerate(tokens):
        if not (token[:1].isdigit() or token.upper() in CLASSES):
            return token.upper(), tokens[at + 1 :]
    return "", []


def soa_owner(text: str) -> str:
    """Return the owner of the SOA in a zone text; ``ark.arpa.`` if it has none."""
    base = to_text(ARK_ARPA)
    for _, is_indented, tokens in readable_lines(text):
        if len(tokens) > 1 and tokens[0].upper() == "$ORIGIN":
            base = absolute(tokens[1], base)
        elif not is_indented and type_and_rdata(tokens[1:])[0] == "SOA":
            return absolute(tokens[0], base)
    return base
