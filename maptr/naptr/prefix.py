r"""Expressions that are a fixed text and a rest, such as ``^ark:/?12345/(x6.*)$``: what nearly every rule is.

A shortcut of ``ere`` and ``nfa``, which take whatever this does not: a match here is a comparison of octets. A
property test holds the two to the same groups.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from maptr.naptr.automaton import Budget, Groups

# A literal: an octet that means itself, one escaped (but no back-reference), or one alone in a bracket.
_LITERAL = rb"(?:[^][()|*+?{}.^$\\]|\\[^1-9]|\[[^][^]\])"
_SHAPE = re.compile(
    rb"\^(?P<before>(?:%b)*?)(?:(?P<maybe>%b)\?(?P<after>(?:%b)*))?(?P<group>\((?P<inside>(?:%b)*)\.\*\)|\.\*)\$?"
    % ((_LITERAL,) * 4),
    re.DOTALL,
)
_WRAPPED = re.compile(rb"\\(.)|\[(.)\]", re.DOTALL)  # a literal that is escaped, or in a bracket

PARSE_STEPS = 4  # one search by ``re``: as long as so many steps of a program


class Prefix(NamedTuple):
    """One such expression. ``prefixes`` are the texts that may stand first, the preferred one first; the group, if
    there is one, begins so many octets before their end as ``inside`` says."""

    prefixes: tuple[bytes, ...]
    group: bool
    inside: int

    @classmethod
    def parse(cls, ere: bytes, *, groups_used: int = 0, budget: Budget | None = None) -> Prefix | None:
        """None where it has another shape, or fewer groups than are used. Costs PARSE_STEPS of the budget."""
        found = _SHAPE.fullmatch(ere)
        if found is None or groups_used > (found["inside"] is not None):
            return None
        if budget is not None:
            budget.spend(PARSE_STEPS)
        before, maybe, after, inside = (_text(found[name]) for name in ("before", "maybe", "after", "inside"))
        # A repeat takes as much as it can, so the text with the optional octet goes before the one without.
        stems = (before + maybe + after, before + after) if maybe else (before,)
        return cls(tuple(stem + inside for stem in stems), found["inside"] is not None, len(inside))

    @property
    def size(self) -> int:
        """What it takes to keep, in the instructions of a program."""
        return 1 + sum(map(len, self.prefixes)) // 10

    def match(self, text: bytes, budget: Budget) -> Groups | None:
        """Positions by slot, as ``Expression.match`` gives them, or None; raises BudgetSpent."""
        for prefix in self.prefixes:
            budget.spend(1)
            if text.startswith(prefix):
                end = len(text)
                if self.group:
                    return {0: 0, 1: end, 2: len(prefix) - self.inside, 3: end}
                return {0: 0, 1: end}
        return None


def _text(literals: bytes | None) -> bytes:
    """What a sequence of literals matches."""
    return _WRAPPED.sub(rb"\1\2", literals or b"")
