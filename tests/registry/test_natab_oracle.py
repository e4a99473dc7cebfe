"""natab compared with a second, line-by-line reader: equal tables and errors for any text.

maptr recognises valid lines by a pattern and makes their entries later. The second reader does neither.
"""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maptr.errors import TableError
from maptr.registry import natab
from maptr.registry.table import Entry, NaanPolicy, Nma, OnBad, Table, TableBuilder, Who, shown

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
    *(
        "",
        " http://p.example/",
        "  ark:/1/p",
        " urn:x",
        " see me",
        " http://a b",
        "http://p.example",
        " HTTP://x",
        ' "',
    ),
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


HEADERS = ("Last change", "Reload from", "Mirrored at", "To register")


def plain_lines(text: str) -> list[str]:
    """Return the lines up to the end of the data, dedented and without tabs."""
    text = text.expandtabs() if "\t" in text else text
    if not any(line and line[0] not in " \t" for line in text.split("\n")):
        text = textwrap.dedent(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    ends = (at for at, line in enumerate(lines) if line.lower().strip(" #-").split() == ["end", "of", "data"])
    return lines[: next(filter(lambda at: natab.END.match(lines[at]), ends), len(lines))]


class InOrder:
    """A reader that keeps the current entry, its NMAs, and the comments above the next entry."""

    def __init__(self, builder: TableBuilder) -> None:
        self.builder = builder
        self.metadata: dict[str, str] = {}
        self.begun: tuple[str, str, str | None, int] | None = None
        self.nmas: list[Nma] = []
        self.comments: list[str] = []
        self.refused = False

    def take(self, number: int, line: str) -> None:
        if line.lstrip()[:1] in ("", "#"):
            text = line.strip().lstrip("#").strip()
            name, _, value = text.partition(":")
            if name in HEADERS and value[:1].isspace() and value.strip():
                self.metadata[name] = value.strip()
                text = ""
            self.comments = [*self.comments, text] if text else []
            return
        try:
            if line[0] == " ":
                self.nma(number, line.split())
            else:
                self.close()
                self.begin(number, line)
        except TableError as error:
            self.builder.refuse(error)
        self.comments = []

    def begin(self, number: int, line: str) -> None:
        naan, colon, rest = line.partition(":")
        self.refused = False
        if not (naan.isascii() and naan.isalnum() and colon) or (rest and not rest[0].isspace()):
            raise self.builder.error(f"neither comment, entry nor NMA: {shown(line)}", line=number)
        self.refused = True
        naan, _ = self.builder.key(naan, line=number)
        self.refused = False
        self.begun = naan, self.comments[0] if len(self.comments) == 1 else "", rest.strip() or None, number

    def nma(self, number: int, words: list[str]) -> None:
        if self.refused:
            return
        record = self.begun[0] if self.begun else ""
        try:
            host, port = natab.parse_host_port(words[0])
        except ValueError as error:
            text = shown(" ".join(words))
            raise self.builder.error(f"not a valid NMA ({error}): {text}", line=number, record=record) from None
        if self.begun is None:
            raise self.builder.error(f"an NMA before any entry: {shown(words[0])}", line=number)
        place = f"http://{host}" if port == 80 else f"https://{host}:{port}" if port else f"https://{host}"
        acronym = "" if words[1:] and words[1][0] == "#" else " ".join(words[1:])
        self.nmas.append(Nma(f"{place}/ark:/${{content}}", words[0], acronym=acronym))

    def close(self) -> None:
        if self.begun is not None:
            naan, name, policy, line = self.begun
            entry = Entry(naan, nmas=tuple(self.nmas), who=Who(name), policy=NaanPolicy(url=policy), line=line)
            self.begun, self.nmas = None, []
            self.builder.add(entry)


def in_order(text: str, on_bad: OnBad | None) -> Table:
    reader = InOrder(TableBuilder("natab", on_bad))
    for number, line in enumerate(plain_lines(text), 1):
        reader.take(number, line.rstrip())
    reader.close()
    return reader.builder.table(reader.metadata)


def ours(text: str, on_bad: OnBad | None) -> Table:
    return natab.read(text, filename="natab", on_bad=on_bad)


def assert_same(text: str) -> None:
    """Assert that both readers give equal tables and errors, and raise the same error without ``on_bad``."""
    errors: tuple[list[TableError], list[TableError]] = ([], [])
    one, other = in_order(text, errors[0].append), ours(text, errors[1].append)
    assert list(other) == list(one)
    assert [(repr(each), each.line) for each in other.values()] == [(repr(each), each.line) for each in one.values()]
    assert list(other.metadata.items()) == list(one.metadata.items())
    assert [(str(error), error.line, error.record) for error in errors[1]] == [
        (str(error), error.line, error.record) for error in errors[0]
    ]
    if errors[0]:
        for read in (in_order, ours):
            with pytest.raises(TableError) as caught:
                read(text, None)
            assert str(caught.value) == str(errors[0][0])


@given(st.one_of(PLAIN, MIXED, CUT, st.text(max_size=40)))
@settings(max_examples=400)
@example(SAMPLE)
@example("1:\n  a.b\n1:\n  c.d\n2l:\n")
@example("# A\n# B\n1:\n h.example\n# C\n2:\n#\n# D\n3:\n\n# E\n4:\n# F\n#\n5:\n")
@example("1:\n h.example\n X\n# C\n2:\n# D\n3:\n")
@example("  1:\n    h.example\n  #--- end of data ---\n  2:\n")
@example("1:\n h.example\n#- end of data\n2:\n h.example\n1:\n")
def test_any_text_is_read_as_by_the_second_reader(text: str) -> None:
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
def test_any_line_between_valid_lines_is_read_as_by_the_second_reader(lines: str) -> None:
    assert_same(f"10000:\n    a.example\n{lines}\n10001:\n    b.example\n# Name\n10002:\n    c.example\n")


def test_a_large_table_with_odd_entries() -> None:
    hosts = ("1.2.3.4" if n % 97 == 0 else f"h{n}.example" for n in range(1000))
    blocks = [f"# Org {n}\n{10000 + n}:{' http://p.example/' * (n % 2)}\n    {host}\n" for n, host in enumerate(hosts)]
    assert_same("".join(blocks))
    assert_same("".join([*blocks[:700], "damage\n", *blocks[700:]]))


def test_table_can_be_pickled() -> None:
    table = natab.read(SAMPLE)
    back = pickle.loads(pickle.dumps(table))
    assert (back, back.metadata) == (table, table.metadata)
