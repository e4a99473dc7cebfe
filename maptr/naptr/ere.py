"""POSIX extended regular expressions, the subset that ``regexp`` documents: from text to a program.

How a program matches is the business of ``nfa``.
"""

from __future__ import annotations

from typing import NamedTuple

from maptr.naptr import automaton
from maptr.naptr.automaton import (
    EMPTY,
    END,
    MATCH,
    SAVE,
    SET,
    START,
    Budget,
    Groups,
    Instruction,
    Node,
    Program,
    either,
    link,
    repeat,
    sequence,
    single,
)

MAX_BOUND = 255  # RE_DUP_MAX of POSIX, and BIND's limit
MAX_DEPTH = 64  # of groups; a field of 255 octets has room for 127
MAX_PROGRAM = 2000  # instructions; our own rules compile to fewer than 100

_CLASSES = {
    b"alnum": bytes(c for c in range(128) if chr(c).isalnum()),
    b"alpha": bytes(c for c in range(128) if chr(c).isalpha()),
    b"blank": b" \t",
    b"cntrl": bytes([*range(32), 127]),
    b"digit": b"0123456789",
    b"graph": bytes(range(33, 127)),
    b"lower": bytes(range(97, 123)),
    b"print": bytes(range(32, 127)),
    b"punct": bytes(c for c in range(33, 127) if not chr(c).isalnum()),
    b"space": b" \t\n\v\f\r",
    b"upper": bytes(range(65, 91)),
    b"xdigit": b"0123456789ABCDEFabcdef",
}


_DIGITS = frozenset(b"%d" % digit for digit in range(10))
_NAMED = frozenset(b".=:")
_REPEATS = frozenset(b"*+?")
_ANCHORS = frozenset(b"^$")
_ALL = frozenset(range(256))


class RegexpError(ValueError):
    """A regexp field that cannot be used; ``refused`` is True where BIND refuses it too."""

    def __init__(self, reason: str, *, refused: bool = True) -> None:
        super().__init__(reason)
        self.refused = refused


class Expression(NamedTuple):
    """One compiled expression."""

    program: Program

    @classmethod
    def parse(
        cls, ere: bytes, *, ignore_case: bool = False, groups_used: int = 0, budget: Budget | None = None
    ) -> Expression:
        """The expression as a program; RegexpError otherwise, also where it has fewer groups than are used.

        Writing the program costs a step of the budget for each instruction: 20 octets may ask for 2000 of them.
        """
        parser = _Parser(ere)
        tree = parser.parse()
        if groups_used > parser.groups:
            raise RegexpError(f"the replacement asks for group {groups_used}, there are {parser.groups}")
        if parser.unsupported:
            raise RegexpError(parser.unsupported, refused=False)
        if tree.size > MAX_PROGRAM:
            raise RegexpError(f"compiles to more than {MAX_PROGRAM} instructions", refused=False)
        if budget is not None:
            budget.spend(tree.size)
        return cls(link([*tree.write(ignore_case), Instruction(MATCH)]))

    @property
    def size(self) -> int:
        """Its instructions."""
        return len(self.program)

    def match(self, text: bytes, budget: Budget) -> Groups | None:
        """Positions by slot (2n and 2n+1 bound group n, 0 and 1 the match), or None; raises BudgetSpent."""
        return automaton.match(self.program, text, budget)


class _Parser:
    """Recursive descent over one expression. Constructs that BIND takes and we do not are noted, not raised,
    so that a real error after them is still found."""

    def __init__(self, ere: bytes) -> None:
        self.ere = ere
        self.at = 0
        self.groups = 0
        self.unsupported = ""

    def parse(self) -> Node:
        return self._alternatives(depth=0)

    def _peek(self) -> int:
        return self.ere[self.at] if self.at < len(self.ere) else -1

    def _next(self, what: str) -> int:
        if self.at >= len(self.ere):
            raise RegexpError(f"ends inside {what}")
        self.at += 1
        return self.ere[self.at - 1]

    def _alternatives(self, depth: int) -> Node:
        branches = [self._branch(depth)]
        while self._peek() == 0x7C:  # |
            self.at += 1
            branches.append(self._branch(depth))
        node = branches[-1]
        for branch in reversed(branches[:-1]):
            node = either(branch, node)
        return node

    def _branch(self, depth: int) -> Node:
        items: list[Node] = []
        while (octet := self._peek()) not in (-1, 0x7C) and not (octet == 0x29 and depth):
            items.append(self._repeated(depth))
        if not items:
            raise RegexpError("an empty alternative" if self.ere else "an empty expression")
        return sequence(items)

    def _repeated(self, depth: int) -> Node:
        if self._peek() in _ANCHORS:
            node = single(Instruction(START if self._next("") == 0x5E else END))
            repeatable = False
        else:
            node = self._atom(depth)
            repeatable = True
        while (bound := self._bound()) is not None:
            if not repeatable:
                raise RegexpError("a repeat of a repeat, or of an anchor")
            node = repeat(node, *bound)
            repeatable = False
        return node

    def _bound(self) -> tuple[int, int | None] | None:
        octet = self._peek()
        if octet in _REPEATS:
            self.at += 1
            return {0x2A: (0, None), 0x2B: (1, None), 0x3F: (0, 1)}[octet]
        if octet != 0x7B or self.ere[self.at + 1 : self.at + 2] not in _DIGITS:
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

    def _atom(self, depth: int) -> Node:
        octet = self._next("an atom")
        if octet in _REPEATS or (octet == 0x7B and self.ere[self.at : self.at + 1] in _DIGITS):
            raise RegexpError("a repeat of nothing")
        if octet == 0x28:
            return self._group(depth)
        if octet == 0x29:
            self.unsupported = self.unsupported or "a ) that closes nothing"
        elif octet == 0x5B:
            return self._bracket()
        elif octet == 0x2E:
            return single(Instruction(SET, octets=_ALL))
        elif octet == 0x5C:
            octet = self._next("an escape")
            if octet in b"123456789":
                if octet - 0x30 > self.groups:
                    raise RegexpError("a back-reference to no group")
                self.unsupported = self.unsupported or "a back-reference"
        return single(Instruction(SET, octets=frozenset((octet,))))

    def _group(self, depth: int) -> Node:
        self.groups += 1
        number = self.groups
        if depth >= MAX_DEPTH:
            raise RegexpError(f"groups nested more than {MAX_DEPTH} deep", refused=False)
        inner = EMPTY if self._peek() == 0x29 else self._alternatives(depth + 1)
        if self._peek() != 0x29:
            raise RegexpError("an open group")
        self.at += 1
        return sequence(
            [single(Instruction(SAVE, first=2 * number)), inner, single(Instruction(SAVE, first=2 * number + 1))]
        )

    def _bracket(self) -> Node:
        """``[...]``. A range that BIND would refuse is refused; ``-`` is literal first, last, or as an end."""
        negated = self._peek() == 0x5E
        self.at += negated
        octets: set[int] = set()
        start: int | None = None  # what a following '-' would make a range from
        ranged = False  # directly after a range, where '-' is an error
        first = True
        while (octet := self._next("a bracket")) != 0x5D or first:
            if octet == 0x5B and self._peek() in _NAMED:
                octets |= self._named(self._next("a bracket"))
                start, ranged, first = None, False, False
                continue
            if octet == 0x2D and not first:
                if ranged:
                    raise RegexpError("a bad range")
                if self._peek() == 0x5D:
                    octets.add(octet)
                    continue
                if self.ere[self.at : self.at + 2] in (b"[=", b"[:"):
                    raise RegexpError("a class as the end of a range")
                if start is None or self.ere[self.at : self.at + 2] == b"[.":
                    self.unsupported = self.unsupported or "a range with a class"
                    start = 0
                    continue
                last = self._next("a range")
                if last < start:
                    raise RegexpError("a range out of order")
                octets |= set(range(start, last + 1))
                start, ranged = None, True
                continue
            octets.add(octet)
            start, ranged, first = octet, False, False
        return single(Instruction(SET, octets=_ALL - octets if negated else frozenset(octets)))

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
        return frozenset(_CLASSES[name])
