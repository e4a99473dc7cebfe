r"""The regexp field of a NAPTR record (RFC 3402 section 3.2): its grammar, and matching in linear time.

A field is ``delim ere delim replacement delim flags``, for example ``!^ark:/?12345/(.*)$!https://h.example/\1!``.
The expression is a POSIX extended regular expression (ERE). What DNS returns may be hostile, so only a subset is
supported that needs no backtracking, and every step of a match is paid from a Budget.

Supported:      characters, ``.``, ``\c`` for a literal c, ``[...]`` with ranges, ``^`` negation and classes
                such as ``[:digit:]``, ``( )``, ``|``, ``* + ?``, ``{n} {n,} {n,m}`` up to 255, ``^``, ``$``,
                ``\1`` to ``\9`` in the replacement, the flag ``i``.
Refused:        what BIND refuses, in zone files and on the wire: an empty expression, an empty alternative, a
                repeat of nothing or of a repeat, a bad bound or range, an open group or bracket, a further
                delimiter, a flag other than ``i``, a digit, ``i`` or backslash as delimiter, a NUL, ``\0`` or a
                missing group in the replacement.
Unsupported:    back-references inside the expression, collating elements ``[.x.]``, equivalence classes
                ``[=x=]``, an unmatched ``)``, and expressions of more than MAX_PROGRAM instructions.
                BIND accepts these. Such a rule is skipped, and the trace says why.

The match is the leftmost, and of several the longest (POSIX). The groups inside it are those of the first alternatives
that lead to it. As with sed, the text around the match is kept.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from maptr.naptr import automaton
from maptr.naptr.automaton import END, MATCH, SAVE, SET, START, Budget, Groups, Instruction, Program, either, repeat

MAX_RESULT = 4096  # bytes of a substitution's result
MAX_BOUND = 255  # RE_DUP_MAX of POSIX, and the limit of BIND
MAX_DEPTH = 64  # of groups; a field of 255 bytes has room for 127
MAX_PROGRAM = 2000  # instructions; the rules that maptr writes have fewer than 100
PARSE_STEPS = 4  # what one search by ``re`` costs, in steps of a program


class RegexpError(ValueError):
    """A regexp field that cannot be used; ``refused`` is True where BIND refuses it too."""

    def __init__(self, reason: str, *, refused: bool = True) -> None:
        super().__init__(reason)
        self.refused = refused


class ResultTooLongError(ValueError):
    """A substitution made more than MAX_RESULT bytes."""


class Substitution(NamedTuple):
    """One regexp field, ready to apply. ``parse`` makes it and does all the checking."""

    expression: Expression | Prefix
    replacement: tuple[bytes | int, ...]  # literals and numbers of groups; two literals never follow each other

    @classmethod
    def parse(cls, field: bytes, budget: Budget | None = None) -> Substitution:
        """Read a field. Raises RegexpError with the reason, and BudgetSpent if compiling costs more than is left."""
        if budget is not None:
            budget.spend(0)  # raises at once if nothing is left: even reading the field takes time
        ere, replacement, flags = _split(field)
        groups = max((part for part in replacement if isinstance(part, int)), default=0)
        prefix = None if flags else Prefix.parse(ere, groups_used=groups, budget=budget)
        expression = prefix or Expression.parse(ere, ignore_case=bool(flags), groups_used=groups, budget=budget)
        return cls(expression, replacement)

    @property
    def fixes_host(self) -> bool:
        """Whether all URLs that it makes have one host: no group is in the replacement's scheme or authority, or
        directly after it. Also true if the replacement has no groups, or a scheme other than http and https."""
        first, *more = self.replacement or (b"",)
        if isinstance(first, int):
            return False
        return not more or bool(_WITH_PATH.match(first) or _OTHER_SCHEME.match(first))

    def apply(self, text: bytes, budget: Budget) -> bytes | None:
        """Return the text with its match replaced, None without a match. Raises BudgetSpent and ResultTooLongError."""
        groups = self.expression.match(text, budget)
        if groups is None:
            return None
        made = b"".join(  # of a list: join would make one of a generator
            [
                part if isinstance(part, bytes) else text[groups.get(2 * part, 0) : groups.get(2 * part + 1, 0)]
                for part in self.replacement
            ]
        )
        result = text[: groups[0]] + made + text[groups[1] :]
        if len(result) > MAX_RESULT:
            raise ResultTooLongError(f"makes {len(result)} bytes, {MAX_RESULT} at most")
        return result


def escape(text: str) -> str:
    """Return an expression for exactly this text, in a form that every reader accepts: a literal dot is ``[.]``."""
    return "".join(f"[{c}]" if c in ".*+?(){}|$[" else f"\\{c}" if c in "^\\" else c for c in text)


_WITH_PATH = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*[/?#]")
_OTHER_SCHEME = re.compile(rb"(?i)(?!https?:)[a-z][a-z0-9+.-]*:")
_UNIT = re.compile(rb"\\.?|[^\\]", re.DOTALL)  # one byte, or a backslash and the byte that it escapes
_RUN = re.compile(rb"([^\\]+)|\\(.)", re.DOTALL)  # unescaped bytes, or one escaped byte


def _split(field: bytes) -> tuple[bytes, tuple[bytes | int, ...], bytes]:
    """Expression, replacement as literals and group numbers, flags (RFC 3402 section 3.2)."""
    if not field:
        raise RegexpError("empty")
    if 0 in field:
        raise RegexpError("a NUL")
    delimiter = field[0]
    if delimiter in b"0123456789\\i":
        raise RegexpError(f"{chr(delimiter)!r} cannot be the delimiter")
    octets = _UNIT.findall(field, 1)
    try:
        first = octets.index(field[:1])
        second = octets.index(field[:1], first + 1)
    except ValueError:
        if octets[-1:] == [b"\\"]:
            raise RegexpError("ends inside an escape") from None
        raise RegexpError("not delimiter, expression, delimiter, replacement, delimiter, flags") from None
    flags = b"".join(octets[second + 1 :])
    if delimiter in flags:
        raise RegexpError("one delimiter too many")
    if flags.strip(b"i"):
        raise RegexpError("a flag other than i")
    return b"".join(octets[:first]), tuple(_replacement(b"".join(octets[first + 1 : second]))), flags


def _replacement(text: bytes) -> Iterator[bytes | int]:
    literal: list[bytes] = []
    for plain, escaped in _RUN.findall(text):
        if escaped == b"0":
            raise RegexpError(r"\0 in the replacement")
        if escaped.isdigit():
            if literal:
                yield b"".join(literal)
                literal = []
            yield int(escaped)
        else:
            literal.append(plain or escaped)
    if literal:
        yield b"".join(literal)


# ---- The usual shape: a fixed text and a rest

# A literal: a character that stands for itself, an escaped one (no back-reference), or one alone in a bracket.
_LITERAL = rb"(?:[^][()|*+?{}.^$\\]|\\[^1-9]|\[[^][^]\])"
_SHAPE = re.compile(
    rb"\^(?P<whole>\()?(?P<before>(?:%b)*?)(?:(?P<maybe>%b)\?(?P<after>(?:%b)*))?"
    rb"(?(whole)\.\*\)|(?:\((?P<inside>(?:%b)*)\.\*\)|\.\*))\$?" % ((_LITERAL,) * 4),
    re.DOTALL,
)
_PARTS = ("before", "maybe", "after", "inside")
_WRAPPED = re.compile(rb"\\(.)|\[(.)\]", re.DOTALL)  # a literal that is escaped, or in a bracket


class Prefix(NamedTuple):
    """A fixed text and a rest, such as ``^ark:/?12345/(x6.*)$``: the shape of nearly every rule, matched by comparison.

    ``prefixes`` are the texts that may come first, the preferred one first, each with the offset of the group, None
    without one. A property test shows that an Expression gives the same groups.
    """

    prefixes: tuple[tuple[bytes, int | None], ...]

    @classmethod
    def parse(cls, ere: bytes, *, groups_used: int = 0, budget: Budget | None = None) -> Prefix | None:
        """Compile an expression; None for another shape, or if a group is missing. Costs PARSE_STEPS of the budget."""
        found = _SHAPE.fullmatch(ere)
        grouped = found is not None and (found["whole"] or found["inside"]) is not None
        if found is None or groups_used > grouped:
            return None
        if budget is not None:
            budget.spend(PARSE_STEPS)
        groups = found.groupdict(b"")
        before, maybe, after, inside = (_WRAPPED.sub(rb"\1\2", groups[name]) for name in _PARTS)
        # A repeat takes as much as it can, so the text with the optional character comes first.
        stems = (before + maybe + after, before + after) if maybe else (before,)
        starts = [None if not grouped else 0 if found["whole"] else len(stem) for stem in stems]
        return cls(tuple((stem + inside, start) for stem, start in zip(stems, starts, strict=True)))

    @property
    def size(self) -> int:
        """Its memory use, counted in program instructions."""
        return sum(len(prefix) for prefix, _ in self.prefixes) // 10

    def match(self, text: bytes, budget: Budget) -> Groups | None:
        """Positions by slot, as ``Expression.match`` returns them, or None. Raises BudgetSpent."""
        for prefix, start in self.prefixes:
            budget.spend(1)
            if text.startswith(prefix):
                end = len(text)
                return {0: 0, 1: end} if start is None else {0: 0, 1: end, 2: start, 3: end}
        return None


# ---- Every other expression

_VISIBLE = string.ascii_letters + string.digits + string.punctuation
_CLASSES = {  # in the POSIX locale
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": _VISIBLE,
    b"lower": string.ascii_lowercase,
    b"print": _VISIBLE + " ",
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}

_NAMED = frozenset(b".=:")
_REPEATS = frozenset(b"*+?")
_ANCHORS = frozenset(b"^$")
_ALL = frozenset(range(256))
_OPEN, _CLASS, _RANGE = -1, -2, -3  # what a hyphen in a bracket may follow, besides a byte: its start, a class, a range


class Expression(NamedTuple):
    """An expression compiled to a program."""

    program: Program

    @classmethod
    def parse(
        cls, ere: bytes, *, ignore_case: bool = False, groups_used: int = 0, budget: Budget | None = None
    ) -> Expression:
        """Compile an expression. ``groups_used`` is the highest group that the replacement uses.

        Each instruction costs a step of the budget, because 20 bytes of text can compile to 2000 instructions. Raises
        RegexpError and BudgetSpent.
        """
        parser = _Parser(ere, ignore_case)
        program = [*parser.alternatives(), Instruction(MATCH)]
        if groups_used > parser.groups:
            raise RegexpError(f"the replacement uses group {groups_used} of {parser.groups}")
        if parser.unsupported:
            raise RegexpError(parser.unsupported, refused=False)
        if budget is not None:
            budget.spend(len(program))
        return cls(program)

    @property
    def size(self) -> int:
        return len(self.program)

    def match(self, text: bytes, budget: Budget) -> Groups | None:
        """Positions by slot (see ``automaton.Groups``), or None. Raises BudgetSpent."""
        return automaton.match(self.program, text, budget)


class _Parser:
    """A recursive-descent parser. It notes an unsupported construct that BIND accepts and goes on, to find later
    errors."""

    def __init__(self, ere: bytes, ignore_case: bool) -> None:
        self.ere = ere
        self.ignore_case = ignore_case
        self.at = 0
        self.groups = 0
        self.unsupported = ""

    def _fits(self, size: int) -> bool:
        """Return False if a program of this size is too long, or will not be used anyway."""
        if size > MAX_PROGRAM:
            self.unsupported = self.unsupported or f"compiles to more than {MAX_PROGRAM} instructions"
        return not self.unsupported

    def _set(self, octets: Iterable[int]) -> Program:
        """Return a program for one of these bytes, in both cases if case is ignored."""
        found = frozenset(octets)
        both = found.union(bytes(found).swapcase()) if self.ignore_case else found  # bytes: ASCII letters only
        return [Instruction(SET, octets=both)]

    def _peek(self) -> int:
        return self.ere[self.at] if self.at < len(self.ere) else -1

    def _next(self, what: str) -> int:
        if self.at >= len(self.ere):
            raise RegexpError(f"ends inside {what}")
        self.at += 1
        return self.ere[self.at - 1]

    def alternatives(self, depth: int = 0) -> Program:
        """Return the program of an expression, or of a group ``depth`` groups deep."""
        branches = [self._branch(depth)]
        size = len(branches[0])
        while self._peek() == 0x7C:  # |
            self.at += 1
            branch = self._branch(depth)
            size += len(branch) + 2  # with its SPLIT and JUMP
            branches += [branch] if self._fits(size) else []
        return functools.reduce(lambda right, left: either(left, right), reversed(branches))

    def _branch(self, depth: int) -> Program:
        start = self.at
        program: Program = []
        while (octet := self._peek()) not in (-1, 0x7C) and not (octet == 0x29 and depth):
            item = self._repeated(depth)
            program += item if self._fits(len(program) + len(item)) else []
        if self.at == start:
            raise RegexpError("an empty alternative" if self.ere else "an empty expression")
        return program

    def _repeated(self, depth: int) -> Program:
        repeatable = self._peek() not in _ANCHORS
        if repeatable:
            program = self._atom(depth)
        else:
            program = [Instruction(START if self._next("") == 0x5E else END)]
        while (bound := self._bound()) is not None:
            if not repeatable:
                raise RegexpError("a repeat of a repeat, or of an anchor")
            least, most = bound
            copies = least + 1 if most is None else most
            program = repeat(program, least, most) if self._fits(copies * (len(program) + 1)) else []
            repeatable = False
        return program

    def _bound(self) -> tuple[int, int | None] | None:
        octet = self._peek()
        if octet in _REPEATS:
            self.at += 1
            return {0x2A: (0, None), 0x2B: (1, None), 0x3F: (0, 1)}[octet]
        if octet != 0x7B or not self.ere[self.at + 1 : self.at + 2].isdigit():
            return None
        end = self.ere.find(b"}", self.at)
        low, comma, high = self.ere[self.at + 1 : max(end, self.at + 1)].partition(b",")
        if end < 0 or not low.isdigit() or not (high.isdigit() or not high):
            raise RegexpError("a bad bound")
        least = int(low)
        most = int(high) if high else None if comma else least
        if least > MAX_BOUND or (most is not None and (most > MAX_BOUND or most < least)):
            raise RegexpError("a bad bound")
        self.at = end + 1
        return least, most

    def _atom(self, depth: int) -> Program:
        octet = self._next("an atom")
        if octet in _REPEATS or (octet == 0x7B and self.ere[self.at : self.at + 1].isdigit()):
            raise RegexpError("a repeat of nothing")
        if octet == 0x28:
            return self._group(depth)
        if octet == 0x29:
            self.unsupported = self.unsupported or "a ) that closes nothing"
        elif octet == 0x5B:
            return self._bracket()
        elif octet == 0x2E:
            return self._set(_ALL)
        elif octet == 0x5C:
            octet = self._next("an escape")
            if octet in b"123456789":
                if octet - 0x30 > self.groups:
                    raise RegexpError("a back-reference to no group")
                self.unsupported = self.unsupported or "a back-reference"
        return self._set((octet,))

    def _group(self, depth: int) -> Program:
        self.groups += 1
        number = self.groups
        if depth >= MAX_DEPTH:
            raise RegexpError(f"groups nested more than {MAX_DEPTH} deep", refused=False)
        inner = [] if self._peek() == 0x29 else self.alternatives(depth + 1)
        if self._peek() != 0x29:
            raise RegexpError("an open group")
        self.at += 1
        return [Instruction(SAVE, first=2 * number), *inner, Instruction(SAVE, first=2 * number + 1)]

    def _bracket(self) -> Program:
        """``[...]``, with the ranges that BIND accepts. ``-`` is literal at the start, at the end, or as a bound."""
        negated = self._peek() == 0x5E
        self.at += negated
        octets: set[int] = set()
        before = _OPEN
        while (octet := self._next("a bracket")) != 0x5D or before == _OPEN:
            if octet == 0x5B and self._peek() in _NAMED:
                octets |= self._named(self._next("a bracket"))
                before = _CLASS
            elif octet != 0x2D or before == _OPEN:
                octets.add(octet)
                before = octet
            elif before == _RANGE:
                raise RegexpError("a bad range")
            elif self._peek() == 0x5D:
                octets.add(octet)
            else:
                before = self._range(before, octets)
        return self._set(_ALL - octets if negated else octets)

    def _range(self, first: int, octets: set[int]) -> int:
        """Read the end of a range after its hyphen, and add its bytes. Returns what a further hyphen would follow."""
        following = self.ere[self.at : self.at + 2]
        if following in (b"[=", b"[:"):
            raise RegexpError("a class as the end of a range")
        if first == _CLASS or following == b"[.":
            self.unsupported = self.unsupported or "a range with a class"
            return 0
        last = self._next("a range")
        if last < first:
            raise RegexpError("a range out of order")
        octets.update(range(first, last + 1))
        return _RANGE

    def _named(self, mark: int) -> frozenset[int]:
        end = self.ere.find(bytes((mark, 0x5D)), self.at)
        if end < 0:
            raise RegexpError("ends inside a bracket")
        name = self.ere[self.at : end]
        self.at = end + 2
        if mark != 0x3A:
            if not name:
                raise RegexpError("an empty collating element")
            self.unsupported = self.unsupported or "a collating element or equivalence class"
            return frozenset()
        if name not in _CLASSES:
            raise RegexpError(f"no character class [:{name.decode('ascii', 'replace')}:]")
        return frozenset(_CLASSES[name].encode())
