"""natab: entries that are made later equal those that are made at once, for any text, as do the errors.

A pattern recognises valid lines, whose entries are made when they are looked up. Any other entry is made at once.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maptr.errors import TableError
from maptr.registry import natab
from maptr.registry.table import OnBad, Table, TableBuilder

SAMPLE = (Path(__file__).resolve().parents[2] / "zones" / "sample.natab").read_text("utf-8")

NAANS = ["12345", "1", "b9876", "B9876", "0" * 63, "1" * 64, "1l", "x", "13030", "13031", "1\u00b2"]
HOSTS = [
    *("h.example.org", "a-b.c-1.example", "xn--abc.xn--p1ai", "h_1.example.org", "h.example.org:80", "h.e:65535"),
    *("h.example.org:99999", "h.example.org:0", "h.example.org:", "h.example.org.", "1.2.3.4", "1.2.3", "[::1]:80"),
    *("localhost", "host", "host:80", "-h.example.org", "h-.example.org", "h..example.org", ".h.example", "h.0x1"),
    *("a-b", "a-b.c-d", "h.example-1", "h.1-a", "h.example.org/p", "h.éxample", ".".join(["abcdefghi"] * 30)),
    *(f"{'a' * 63}.example", f"{'a' * 64}.example"),
]
ACRONYMS = [
    *("", " A", "  UC-1&x", "  lower", "  A B", " A_.-", " Ä", " A ", " A\u00a0", " BnF", " # note", " #A", "\u00a0A")
]
POLICIES = [
    *("", " http://p.example/", "  ark:/1/p", " urn:x", " see me", " http://a b", "http://p.example", " HTTP://x"),
    *(' "', " http://", " http://p.example/<b>", " http://p\u00a0x/", " http://é.example/", " urn:urn:", "\thttp://p/"),
]
COMMENTS = [
    *("# Library", "#", "##", "#  ", "# Last change: today", "#Mirrored at:\u2003x", "#-- end of data --", "# x: y"),
    *("end  of\u00a0data", "#\x0bEND OF DATA", "# the end of data is near", "", " ", "\x0c", "\u2028# x", " # in"),
    *("# end", "# To register:", "# Reload from: https://example.org/natab #", "\x85"),
]
LINES = st.one_of(
    st.builds("{}:{}".format, *map(st.sampled_from, (NAANS, POLICIES))),
    st.builds(
        "{}{}{}".format, st.sampled_from(["    ", " ", "\t", "", "\u00a0"]), *map(st.sampled_from, (HOSTS, ACRONYMS))
    ),
    st.builds("    {}{}".format, *map(st.sampled_from, (HOSTS, ACRONYMS))),
    st.sampled_from(COMMENTS),
    st.text(max_size=8),
)
BREAKS = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r", "\n\n", "\n  "])
PLAIN = st.lists(LINES, max_size=12).map("\n".join)
MIXED = st.lists(st.tuples(LINES, BREAKS).map("".join), max_size=12).map("".join)
CUT = st.tuples(st.integers(0, len(SAMPLE)), st.integers(0, 40), st.sampled_from(["", "\n", " ", "#", ":", "x"])).map(
    lambda cut: SAMPLE[: cut[0]] + cut[2] + SAMPLE[cut[0] + cut[1] :]
)


BEFORE_POLICY = re.compile(r"^([0-9A-Za-z]+:)(?=\s|\Z)", re.MULTILINE)


def read_line_by_line(text: str, on_bad: OnBad | None) -> Table:
    """Read with white space after each NAAN that the pattern of valid lines does not have."""
    return natab.read(BEFORE_POLICY.sub("\\1\u2003", text), TableBuilder("natab", on_bad))


def read(text: str, on_bad: OnBad | None) -> Table:
    return natab.read(text, TableBuilder("natab", on_bad))


def assert_same(text: str) -> None:
    """Assert that both ways give equal tables and errors, and raise the same error without ``on_bad``."""
    errors: tuple[list[TableError], list[TableError]] = ([], [])
    one, other = read_line_by_line(text, errors[0].append), read(text, errors[1].append)
    assert [(repr(each), each.line) for each in other.values()] == [(repr(each), each.line) for each in one.values()]
    assert (list(other), other.metadata) == (list(one), one.metadata)
    assert [(str(error), error.line, error.record) for error in errors[1]] == [
        (str(error), error.line, error.record) for error in errors[0]
    ]
    if errors[0]:
        for way in (read_line_by_line, read):
            with pytest.raises(TableError) as caught:
                way(text, None)
            assert str(caught.value) == str(errors[0][0])


@given(st.one_of(PLAIN, MIXED, CUT, st.text(max_size=40)))
@settings(max_examples=400)
@example(SAMPLE)
@example("1:\n  a.b\n1:\n  c.d\n2l:\n")
@example("# A\n# B\n1:\n h.example\n# C\n2:\n#\n# D\n3:\n\n# E\n4:\n# F\n#\n5:\n")
@example("1:\n h.example\n X\n# C\n2:\n# D\n3:\n")
@example("  1:\n    h.example\n  #--- end of data ---\n  2:\n")
@example("1:\n h.example\n#- end of data\n2:\n h.example\n1:\n")
def test_any_text_is_read_as_line_by_line(text: str) -> None:
    assert_same(text)


@pytest.mark.parametrize(
    "lines",
    [
        *(f"{naan}:\n h.example" for naan in NAANS),
        *(f"54321:{policy}\n h.example" for policy in POLICIES),
        *(f"54321:\n    {host}" for host in HOSTS),
        *(f"54321:\n    h.example{acronym}" for acronym in ACRONYMS),
        *COMMENTS,
        *(f"54321:\n{comment}" for comment in COMMENTS),
        *(f"54321:\n{comment}\n# A" for comment in COMMENTS),
    ],
)
def test_any_line_between_valid_lines_is_read_as_line_by_line(lines: str) -> None:
    assert_same(f"10000:\n    a.example\n{lines}\n10001:\n    b.example\n# Name\n10002:\n    c.example\n")
