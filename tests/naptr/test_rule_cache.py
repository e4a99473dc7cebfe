"""RuleCache: the same rules at the same price, and no more of them than there is room for."""

from __future__ import annotations

import pytest

from maptr.naptr import rule_cache
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Naptr, read
from maptr.naptr.rule_cache import RuleCache

STEPS = 10_000


def rule(number: int) -> Naptr:
    return Naptr(10, 10, b"u", b"ark", rb"!^ark:/?%d/(.*)$!https://h.example/\1!" % number, ())


def price(naptr: Naptr) -> int:
    budget = Budget(STEPS)
    read(naptr, budget=budget)
    return STEPS - budget.steps


def test_a_rule_is_read_once_and_paid_for_each_time() -> None:
    rules, budget = RuleCache(), Budget(STEPS)
    first = rules(rule(12345), undotted=None, budget=budget)
    assert rules(rule(12345), undotted=None, budget=budget) is first
    assert first == read(rule(12345))
    assert STEPS - budget.steps == 2 * price(rule(12345)) > 0


def test_a_budget_that_a_rule_would_spend_is_spent_though_the_rule_is_known() -> None:
    rules = RuleCache()
    rules(rule(12345), undotted=None, budget=Budget(STEPS))
    with pytest.raises(BudgetSpent):
        rules(rule(12345), undotted=None, budget=Budget(price(rule(12345)) - 1))


def test_one_record_below_two_origins_is_two_rules() -> None:
    rules, host = RuleCache(), Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example", b"org", b"ark", b"arpa"))
    whole = rules(host, undotted=None, budget=Budget(STEPS))
    assert rules(host, undotted=(b"ark", b"arpa"), budget=Budget(STEPS)) != whole


def test_the_oldest_rules_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_cache, "MAX_PROGRAMS", 3 * rule_cache._size(read(rule(10000))))
    rules = RuleCache()
    read_once = [rules(rule(number), undotted=None, budget=Budget(STEPS)) for number in range(10000, 10005)]
    assert len(rules._rules) == 3
    assert rules(rule(10004), undotted=None, budget=Budget(STEPS)) is read_once[-1]
    assert rules(rule(10000), undotted=None, budget=Budget(STEPS)) is not read_once[0]
