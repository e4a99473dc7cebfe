"""NAPTR records: wire format, text, their meaning as rules, and the cache of rules."""

from __future__ import annotations

import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Kind, Naptr, RuleCache, quote, read

strings = st.binary(max_size=255)
naptrs = st.builds(
    Naptr,
    st.integers(0, 65535),
    st.integers(0, 65535),
    strings,
    strings,
    strings,
    st.lists(st.binary(min_size=1, max_size=20), max_size=4).map(tuple),
)


@given(naptrs)
def test_dnspython_reads_wire_and_text_alike(naptr: Naptr) -> None:
    parsed = dns.rdata.from_text("IN", "NAPTR", naptr.to_text())
    wire = naptr.to_wire()
    assert parsed.to_wire() == wire
    assert Naptr.from_wire(wire) == naptr
    assert parsed.to_digestable() == naptr.canonical()
    assert naptr.to_text().isascii()
    assert naptr.to_text().isprintable()


def test_rfc1035_5_1_a_character_string_is_quoted_and_escaped() -> None:
    assert quote(b"a b!") == '"a b!"'
    assert quote(b'"') == r'"\""'
    assert quote(b' \\"~\x1f\x7f\xff') == r'" \\\"~\031\127\255"'


@given(st.binary(max_size=60))
def test_any_rdata_is_read_or_refused_with_a_value_error(rdata: bytes) -> None:
    try:
        naptr = Naptr.from_wire(rdata)
    except ValueError:
        return
    assert naptr.to_wire() == rdata
    read(naptr)
    read(naptr, undotted=(b"ark", b"arpa"))


def test_rdata_that_is_compressed_cut_short_or_too_long_is_refused() -> None:
    wire = Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example")).to_wire()
    for cut in range(len(wire)):
        with pytest.raises(ValueError):
            Naptr.from_wire(wire[:cut])
    with pytest.raises(ValueError):
        Naptr.from_wire(wire[:-9] + b"\xc0\x0c")
    inside = Naptr(0, 0, b"", b"ark", b"\1h\0", ()).to_wire()[:-1] + b"\xc0\x0a"  # a pointer into the regexp
    with pytest.raises(ValueError, match="compressed"):
        Naptr.from_wire(inside)
    with pytest.raises(ValueError, match="longer or shorter"):
        Naptr.from_wire(wire + b"\0")


def test_rfc3597_4_a_compressed_name_is_read_in_a_message_alone() -> None:
    message = b"\x01h\x07example\0" + b"\0\1\0\2\1h\3ark\0\1a\xc0\0" + b"tail"
    assert Naptr.read(message, 11, 26) == Naptr(1, 2, b"h", b"ark", b"", (b"a", b"h", b"example"))
    for end in (24, 25, 27):
        with pytest.raises(ValueError):
            Naptr.read(message, 11, end)
    root = b"\0\1\0\2\0\0\0\0"
    assert Naptr.read(root, 0, len(root)) == Naptr(1, 2, b"", b"", b"", ())


@pytest.mark.parametrize("place", range(3))
def test_rfc1035_3_3_a_character_string_has_255_bytes_at_most(place: int) -> None:
    def with_string(size: int) -> Naptr:
        flags, service, regexp = (b"x" * size if at == place else b"" for at in range(3))
        return Naptr(0, 0, flags, service, regexp, ())

    assert Naptr.from_wire(with_string(255).to_wire()) == with_string(255)
    with pytest.raises(ValueError, match="255"):
        with_string(256).to_wire()
    assert with_string(256).canonical() != with_string(255).canonical()


@given(naptrs)
def test_a_record_that_is_not_for_maptr_has_a_reason(naptr: Naptr) -> None:
    rule = read(naptr, undotted=(b"ark", b"arpa"))
    assert rule.notes or rule.kind is not Kind.OTHER
    assert (rule.kind is Kind.HOST) == bool(rule.hosts)
    assert rule.kind is not Kind.URL or rule.substitution is not None


# ---- RuleCache

STEPS = 10_000


def rule(number: int) -> Naptr:
    return Naptr(10, 10, b"u", b"ark", rb"!^ark:/?%d/(.*)$!https://h.example/\1!" % number, ())


def price(naptr: Naptr) -> int:
    budget = Budget(STEPS)
    read(naptr, budget=budget)
    return STEPS - budget.steps


def test_a_cached_rule_is_read_once_and_charged_each_time() -> None:
    rules, budget = RuleCache(), Budget(STEPS)
    first = rules(rule(12345), undotted=None, budget=budget)
    assert rules(rule(12345), undotted=None, budget=budget) is first
    assert first == read(rule(12345))
    assert STEPS - budget.steps == 2 * price(rule(12345)) > 0


def test_a_cached_rule_can_spend_the_budget() -> None:
    rules = RuleCache()
    rules(rule(12345), undotted=None, budget=Budget(STEPS))
    with pytest.raises(BudgetSpent):
        rules(rule(12345), undotted=None, budget=Budget(price(rule(12345)) - 1))


def test_a_record_below_two_origins_is_two_rules() -> None:
    rules, host = RuleCache(), Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example", b"org", b"ark", b"arpa"))
    whole = rules(host, undotted=None, budget=Budget(STEPS))
    assert rules(host, undotted=(b"ark", b"arpa"), budget=Budget(STEPS)) != whole


def test_the_rule_cache_drops_the_oldest_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.naptr.record.MAX_CACHED", 100)
    rules = RuleCache()
    first, *_, last = [rules(rule(number), undotted=None, budget=Budget(STEPS)) for number in range(10000, 10100)]
    assert rules(last.naptr, undotted=None, budget=Budget(STEPS)) is last
    assert rules(first.naptr, undotted=None, budget=Budget(STEPS)) is not first
