"""An automaton that matches regular expressions in linear time: its instructions, and the match.

All threads of a match run side by side (Thompson, Pike), so the time is at most program x text for any pattern, and
every step is paid from a Budget. ``regexp`` compiles expressions into programs.
"""

from __future__ import annotations

from typing import NamedTuple

Groups = dict[int, int]
"""Positions by slot: 2n and 2n+1 bound group n, 0 and 1 the whole match."""


class BudgetSpent(Exception):
    """A match needed more steps than were left, so it is not known whether the text matches."""


class Budget:
    """Steps left for matching a walk's rules. They are also charged to ``shared``, a budget for several walks."""

    __slots__ = ("shared", "steps")

    def __init__(self, steps: int, shared: Budget | None = None) -> None:
        self.steps: int = steps
        self.shared = shared

    def spend(self, steps: int, *, taken: bool = True) -> None:
        """Pay for steps. If they were not really ``taken``, because a cache had the result, ``shared`` is not charged.

        Raises BudgetSpent.
        """
        self.steps -= steps
        if self.steps < 0:
            raise BudgetSpent("the match takes too many steps")
        if taken and self.shared is not None:
            self.shared.spend(steps)


SET, SAVE, SPLIT, JUMP, START, END, MATCH = range(7)  # codes of instructions; START and END are anchors


class Instruction(NamedTuple):
    """One step. ``octets`` is for SET; ``first`` is the slot of SAVE, the offset of JUMP or of SPLIT's first branch."""

    code: int
    octets: frozenset[int] = frozenset()
    first: int = 0
    second: int = 0


Program = list[Instruction]
"""Jumps are relative, so that programs can be joined and repeated."""


def match(program: Program, text: bytes, budget: Budget) -> Groups | None:
    """Return the leftmost longest match, as positions by slot, or None. Raises BudgetSpent."""
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
            if step.code == MATCH:
                if best is None or groups[0] < best[0] or (groups[0] == best[0] and at > best[1]):
                    best = {**groups, 1: at}
            elif octet in step.octets:
                threads.append((pc + 1, groups))
        if best is not None:
            threads = [thread for thread in threads if thread[1][0] <= best[0]]
            if not threads:
                break
        elif not threads and program[0].code == START:
            break  # an anchored expression without a thread cannot match later
    return best


def _follow(
    program: Program, pc: int, groups: Groups, at: int, length: int, seen: set[int], waiting: list[tuple[int, Groups]]
) -> None:
    """Add the SET and MATCH instructions that are reachable without reading, best alternative first, each once."""
    stack = [(pc, groups)]
    while stack:
        pc, groups = stack.pop()
        if pc in seen:
            continue
        seen.add(pc)
        step = program[pc]
        if step.code == SPLIT:
            stack += ((pc + step.second, groups), (pc + step.first, groups))
        elif step.code == JUMP:
            stack.append((pc + step.first, groups))
        elif step.code == SAVE:
            stack.append((pc + 1, {**groups, step.first: at}))
        elif step.code == START:
            if at == 0:
                stack.append((pc + 1, groups))
        elif step.code == END:
            if at == length:
                stack.append((pc + 1, groups))
        else:
            waiting.append((pc, groups))


def either(left: Program, right: Program) -> Program:
    """Return one of two programs, the left one preferred."""
    split = Instruction(SPLIT, first=1, second=len(left) + 2)
    return [split, *left, Instruction(JUMP, first=len(right) + 1), *right]


def repeat(body: Program, least: int, most: int | None) -> Program:
    """Return the body repeated ``least`` to ``most`` times; without limit if ``most`` is None."""
    steps = body * least
    if most is None:
        split = Instruction(SPLIT, first=1, second=len(body) + 2)
        return [*steps, split, *body, Instruction(JUMP, first=-len(body) - 1)]
    for left in range(most - least, 0, -1):
        steps += [Instruction(SPLIT, first=1, second=left * (len(body) + 1)), *body]
    return steps
