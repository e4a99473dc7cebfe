"""POSIX extended regular expressions, the subset that ``regexp`` documents: expression to program, and its match.

All threads of a match run side by side (Thompson, Pike): time is program x text and no more, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MAX_BOUND = 255  # RE_DUP_MAX of POSIX, and BIND's limit
MAX_DEPTH = 64  # of groups; a field of 255 octets has room for 127
MAX_PROGRAM = 2000  # instructions; our own rules compile to fewer than 100

Groups = dict[int, int]
"""Positions by slot: 2n and 2n+1 bound group n, 0 and 1 the whole match."""

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


class RegexpError(ValueError):
    """A regexp field that cannot be used; ``refused`` is True where BIND refuses it too."""

    def __init__(self, reason: str, *, refused: bool = True) -> None:
        super().__init__(reason)
        self.refused = refused


class BudgetSpent(Exception):
    """A match needed more steps than were left; whether it would have matched is not known."""


@dataclass(slots=True)
class Budget:
    """Steps left for matching; one budget covers a whole walk, whatever its rules."""

    steps: int

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise BudgetSpent


@dataclass(frozen=True, slots=True)
class Expression:
    """One compiled expression."""

    program: tuple[_Instruction, ...]

    @classmethod
    def parse(cls, ere: bytes, *, ignore_case: bool = False, groups_used: int = 0) -> Expression:
        """The expression as a program; RegexpError otherwise, also where it has fewer groups than are used."""
        parser = _Parser(ere)
        tree = parser.parse()
        if groups_used > parser.groups:
            raise RegexpError(f"the replacement asks for group {groups_used}, there are {parser.groups}")
        if parser.unsupported:
            raise RegexpError(parser.unsupported, refused=False)
        if tree.size > MAX_PROGRAM:
            raise RegexpError(f"compiles to more than {MAX_PROGRAM} instructions", refused=False)
        return cls(_link([*tree.write(ignore_case), _Instruction(_MATCH)]))

    def match(self, text: bytes, budget: Budget) -> Groups | None:
        """Positions by slot (2n and 2n+1 bound group n, 0 and 1 the match), or None; raises BudgetSpent."""
        program = self.program
        best: Groups | None = None
        threads: list[tuple[int, Groups]] = []
        for at in range(len(text) + 1):
            octet = text[at] if at < len(text) else -1
            seen: set[int] = set()
            waiting: list[tuple[int, Groups]] = []
            for pc, groups in threads:
                _follow(program, pc, groups, at, len(text), seen, waiting)
            if best is None:
                _follow(program, 0, {0: at}, at, len(text), seen, waiting)
            budget.spend(len(seen) + 1)
            threads = []
            for pc, groups in waiting:
                step = program[pc]
                if step.code == _MATCH:
                    if best is None or groups[0] < best[0] or (groups[0] == best[0] and at > best[1]):
                        best = {**groups, 1: at}
                elif octet in step.octets:
                    threads.append((pc + 1, groups))
            if best is not None:
                threads = [thread for thread in threads if thread[1][0] <= best[0]]
                if not threads:
                    break
            elif not threads and program[0].code == _START:
                break  # an anchored expression whose threads are gone never matches further on
        return best


def _follow(
    program: tuple[_Instruction, ...],
    pc: int,
    groups: Groups,
    at: int,
    length: int,
    seen: set[int],
    waiting: list[tuple[int, Groups]],
) -> None:
    """Every octet test or match reachable without reading, best alternative first, each at most once a position."""
    stack = [(pc, groups)]
    while stack:
        pc, groups = stack.pop()
        if pc in seen:
            continue
        seen.add(pc)
        step = program[pc]
        if step.code == _SPLIT:
            stack += ((step.second, groups), (step.first, groups))
        elif step.code == _JUMP:
            stack.append((step.first, groups))
        elif step.code == _SAVE:
            stack.append((pc + 1, {**groups, step.first: at}))
        elif step.code == _START:
            if at == 0:
                stack.append((pc + 1, groups))
        elif step.code == _END:
            if at == length:
                stack.append((pc + 1, groups))
        else:
            waiting.append((pc, groups))


# ---- expression to tree. A node is a function that writes its instructions: a bound repeats by writing again.


@dataclass(frozen=True, slots=True)
class _Node:
    size: int
    write: Callable[[bool], list[_Instruction]]


class _Parser:
    """Recursive descent over one expression. Constructs that BIND takes and we do not are noted, not raised,
    so that a real error after them is still found."""

    def __init__(self, ere: bytes) -> None:
        self.ere = ere
        self.at = 0
        self.groups = 0
        self.unsupported = ""

    def parse(self) -> _Node:
        return self._alternatives(depth=0)

    def _peek(self) -> int:
        return self.ere[self.at] if self.at < len(self.ere) else -1

    def _next(self, what: str) -> int:
        if self.at >= len(self.ere):
            raise RegexpError(f"ends inside {what}")
        self.at += 1
        return self.ere[self.at - 1]

    def _alternatives(self, depth: int) -> _Node:
        branches = [self._branch(depth)]
        while self._peek() == 0x7C:  # |
            self.at += 1
            branches.append(self._branch(depth))
        node = branches[-1]
        for branch in reversed(branches[:-1]):
            node = _either(branch, node)
        return node

    def _branch(self, depth: int) -> _Node:
        items: list[_Node] = []
        while (octet := self._peek()) not in (-1, 0x7C) and not (octet == 0x29 and depth):
            items.append(self._repeated(depth))
        if not items:
            raise RegexpError("an empty alternative" if self.ere else "an empty expression")
        return _sequence(items)

    def _repeated(self, depth: int) -> _Node:
        if self._peek() in _ANCHORS:
            node = _single(_Instruction(_START if self._next("") == 0x5E else _END))
            repeatable = False
        else:
            node = self._atom(depth)
            repeatable = True
        while (bound := self._bound()) is not None:
            if not repeatable:
                raise RegexpError("a repeat of a repeat, or of an anchor")
            node = _repeat(node, *bound)
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

    def _atom(self, depth: int) -> _Node:
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
            return _single(_Instruction(_SET, octets=_ALL))
        elif octet == 0x5C:
            octet = self._next("an escape")
            if octet in b"123456789":
                if octet - 0x30 > self.groups:
                    raise RegexpError("a back-reference to no group")
                self.unsupported = self.unsupported or "a back-reference"
        return _single(_Instruction(_SET, octets=frozenset((octet,))))

    def _group(self, depth: int) -> _Node:
        self.groups += 1
        number = self.groups
        if depth >= MAX_DEPTH:
            raise RegexpError(f"groups nested more than {MAX_DEPTH} deep", refused=False)
        inner = _EMPTY if self._peek() == 0x29 else self._alternatives(depth + 1)
        if self._peek() != 0x29:
            raise RegexpError("an open group")
        self.at += 1
        return _sequence(
            [_single(_Instruction(_SAVE, first=2 * number)), inner, _single(_Instruction(_SAVE, first=2 * number + 1))]
        )

    def _bracket(self) -> _Node:
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
        return _single(_Instruction(_SET, octets=_ALL - octets if negated else frozenset(octets)))

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


_DIGITS = frozenset(b"%d" % digit for digit in range(10))
_NAMED = frozenset(b".=:")
_REPEATS = frozenset(b"*+?")
_ANCHORS = frozenset(b"^$")
_ALL = frozenset(range(256))

# ---- tree to program. Jumps are relative while it is written, absolute once linked.

_SET, _SAVE, _SPLIT, _JUMP, _START, _END, _MATCH = range(7)


@dataclass(frozen=True, slots=True)
class _Instruction:
    code: int
    octets: frozenset[int] = frozenset()
    first: int = 0
    second: int = 0


def _single(instruction: _Instruction) -> _Node:
    def write(ignore_case: bool) -> list[_Instruction]:
        if ignore_case and instruction.code == _SET:
            both = frozenset(ord(chr(c).swapcase()) if c < 128 else c for c in instruction.octets)
            return [_Instruction(_SET, octets=instruction.octets | both)]
        return [instruction]

    return _Node(1, write)


_EMPTY = _Node(0, lambda _: [])


def _sequence(nodes: list[_Node]) -> _Node:
    return _Node(sum(node.size for node in nodes), lambda i: [step for node in nodes for step in node.write(i)])


def _either(left: _Node, right: _Node) -> _Node:
    def write(ignore_case: bool) -> list[_Instruction]:
        one, two = left.write(ignore_case), right.write(ignore_case)
        split = _Instruction(_SPLIT, first=1, second=len(one) + 2)
        return [split, *one, _Instruction(_JUMP, first=len(two) + 1), *two]

    return _Node(left.size + right.size + 2, write)


def _repeat(node: _Node, least: int, most: int | None) -> _Node:
    def write(ignore_case: bool) -> list[_Instruction]:
        body = node.write(ignore_case)
        steps = body * least
        if most is None:
            split = _Instruction(_SPLIT, first=1, second=len(body) + 2)
            return [*steps, split, *body, _Instruction(_JUMP, first=-len(body) - 1)]
        optional = most - least
        for left in range(optional, 0, -1):
            steps = [*steps, _Instruction(_SPLIT, first=1, second=left * (len(body) + 1)), *body]
        return steps

    copies = least + 1 if most is None else most
    return _Node(copies * (node.size + 2) + 2, write)


def _link(program: list[_Instruction]) -> tuple[_Instruction, ...]:
    return tuple(
        _Instruction(step.code, step.octets, at + step.first, at + step.second)
        if step.code in (_SPLIT, _JUMP)
        else step
        for at, step in enumerate(program)
    )
