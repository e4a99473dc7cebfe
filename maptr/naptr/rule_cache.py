"""RuleCache: rules that were read before, for whoever reads the records of many walks."""

from __future__ import annotations

from collections import OrderedDict

from maptr.naptr.automaton import Budget
from maptr.naptr.record import Naptr, Rule, read
from maptr.protocol.names import Labels

MAX_PROGRAMS = 400_000  # instructions of regexps kept ready; a rule of ours has 50, and each takes about 100 octets


class RuleCache:
    """``naptr.read`` that remembers: many ARKs share few rules, and compiling a regexp costs more than matching it.

    A walk's budget pays as if nothing were remembered, so that the walk ends as it would alone.
    """

    def __init__(self) -> None:
        self._rules: OrderedDict[tuple[Naptr, Labels | None], tuple[Rule, int]] = OrderedDict()
        self._size = 0

    def __call__(self, naptr: Naptr, *, undotted: Labels | None, budget: Budget) -> Rule:
        if not naptr.regexp:
            return read(naptr, undotted=undotted, budget=budget)
        key = naptr, undotted
        known = self._rules.get(key)
        if known is not None:
            budget.spend(known[1], taken=False)
            return known[0]
        before = budget.steps
        rule = read(naptr, undotted=undotted, budget=budget)
        self._rules[key] = rule, before - budget.steps
        self._size += _size(rule)
        while self._size > MAX_PROGRAMS:
            self._size -= _size(self._rules.popitem(last=False)[1][0])
        return rule


def _size(rule: Rule) -> int:
    return 10 + (rule.substitution.expression.size if rule.substitution is not None else 0)
