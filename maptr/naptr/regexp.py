r"""The regexp field of a NAPTR record (RFC 3402 section 3.2): its grammar, and matching it in linear time.

A field is ``delim ere delim replacement delim flags``, for example ``!^ark:/?12345/(.*)$!https://h.example/\1!``.
What comes from DNS is hostile, so the grammar is a subset of POSIX extended regular expressions without
anything that needs backtracking, and every step of a match is paid from a Budget.

Understood:     characters, ``.``, ``\c`` for a literal c, ``[...]`` with ranges, ``^`` negation and classes
                such as ``[:digit:]``, ``( )``, ``|``, ``* + ?``, ``{n} {n,} {n,m}`` up to 255, ``^``, ``$``,
                ``\1`` to ``\9`` in the replacement, the flag ``i``.
Refused:        what BIND refuses, in zone files and on the wire: an empty expression, an empty alternative, a
                repeat of nothing or of a repeat, a bad bound or range, an open group or bracket, a further
                delimiter, a flag other than ``i``, a digit, ``i`` or backslash as delimiter, a NUL, ``\0`` or a
                group that is not there in the replacement.
Not understood: back-references inside the expression, collating elements ``[.x.]``, equivalence classes
                ``[=x=]``, a ``)`` that closes nothing, and expressions of more than MAX_PROGRAM instructions.
                BIND takes these; such a rule is skipped, and the trace says so.

The match is the leftmost, of these the longest (POSIX); groups inside it are those of the first alternatives that
reach it. As with sed, text around the match stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from maptr.naptr.automaton import Budget
from maptr.naptr.ere import Expression, RegexpError
from maptr.naptr.prefix import Prefix

MAX_RESULT = 4096  # octets of a substitution's result

_OCTET = re.compile(rb"\\.?|[^\\]", re.DOTALL)  # one octet, or two where the first escapes the second
_RUN = re.compile(rb"([^\\]+)|\\(.)", re.DOTALL)  # octets that stand for themselves, or one that is escaped


class ResultTooLongError(ValueError):
    """A substitution made more than MAX_RESULT octets."""


class Substitution(NamedTuple):
    """One regexp field, ready to apply. Made by ``parse``, which is where all checking happens."""

    expression: Expression | Prefix
    replacement: tuple[bytes | int, ...]  # literals, none beside another, and numbers of groups

    @classmethod
    def parse(cls, field: bytes, budget: Budget | None = None, *, shortcut: bool = True) -> Substitution:
        """The field as a substitution; RegexpError with the reason otherwise, BudgetSpent where it costs too much.

        ``shortcut=False`` compiles a program for every expression.
        """
        ere, replacement, flags = _split(field)
        if shortcut and not flags:
            prefix = Prefix.parse(ere, groups_used=_highest(replacement), budget=budget)
            if prefix is not None:
                return cls(prefix, replacement)
        expression = Expression.parse(ere, ignore_case=bool(flags), groups_used=_highest(replacement), budget=budget)
        return cls(expression, replacement)

    @classmethod
    def parse_prefix(cls, field: bytes) -> Substitution | None:
        """The field where its expression is a Prefix; None for any other. No program is compiled to find out."""
        try:
            ere, replacement, flags = _split(field)
        except RegexpError:
            return None
        prefix = None if flags else Prefix.parse(ere, groups_used=_highest(replacement))
        return None if prefix is None else cls(prefix, replacement)

    def apply(self, text: bytes, budget: Budget) -> bytes | None:
        """The text with its match replaced, None where nothing matches; raises BudgetSpent, and ResultTooLongError
        where the result is longer than MAX_RESULT."""
        groups = self.expression.match(text, budget)
        if groups is None:
            return None
        made = b"".join(
            part if isinstance(part, bytes) else text[groups.get(2 * part, 0) : groups.get(2 * part + 1, 0)]
            for part in self.replacement
        )
        result = text[: groups[0]] + made + text[groups[1] :]
        if len(result) > MAX_RESULT:
            raise ResultTooLongError(f"makes {len(result)} octets, {MAX_RESULT} at most")
        return result


def escape(text: str) -> str:
    """An expression that matches just this text, written as every reader takes it: a literal dot is ``[.]``."""
    return "".join(f"[{c}]" if c in ".*+?(){}|$[" else f"\\{c}" if c in "^\\" else c for c in text)


def _split(field: bytes) -> tuple[bytes, tuple[bytes | int, ...], bytes]:
    """Expression, replacement as literals and group numbers, flags (RFC 3402 section 3.2)."""
    if not field:
        raise RegexpError("empty")
    if 0 in field:
        raise RegexpError("a NUL")
    delimiter = field[0]
    if delimiter in b"0123456789\\i":
        raise RegexpError(f"{chr(delimiter)!r} cannot delimit")
    octets = _OCTET.findall(field, 1)
    try:
        first = octets.index(field[:1])
        second = octets.index(field[:1], first + 1)
    except ValueError:
        if octets[-1:] == [b"\\"]:
            raise RegexpError("ends inside an escape") from None
        raise RegexpError("not delimiter, expression, delimiter, replacement, delimiter, flags") from None
    flags = b"".join(octets[second + 1 :])
    if delimiter in flags:
        raise RegexpError("a delimiter too many")
    if flags.strip(b"i"):
        raise RegexpError("a flag other than i")
    return b"".join(octets[:first]), tuple(_replacement(b"".join(octets[first + 1 : second]))), flags


def _highest(replacement: tuple[bytes | int, ...]) -> int:
    return max((part for part in replacement if isinstance(part, int)), default=0)


def _replacement(text: bytes) -> Iterator[bytes | int]:
    literal = b""
    for plain, escaped in _RUN.findall(text):
        if escaped == b"0":
            raise RegexpError(r"\0 in the replacement")
        if escaped.isdigit():
            if literal:
                yield literal
                literal = b""
            yield int(escaped)
        else:
            literal += plain or escaped
    if literal:
        yield literal
