"""Table, Entry and their keys."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from maptr import Ark, TableError, registry
from maptr.registry.table import Entry, Nma, Table, parse_key
from maptr.registry.target import DEFAULT_STATUS


def table(*keys: str) -> Table:
    return Table(Entry(*parse_key(key)) for key in keys)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *(("12345", ("12345", "")), ("B5060", ("b5060", "")), ("00123", ("00123", "")), ("1" * 63, ("1" * 63, ""))),
        *(("12345/x6", ("12345", "x6")), ("ARK:12345/x6", ("12345", "x6")), ("ark:/12345/X6", ("12345", "X6"))),
        ("81986/s6.caida", ("81986", "s6.caida")),
    ],
)
def test_keys(text: str, key: tuple[str, str]) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        *("", "ark:", "aeiou", "12345/", "12345/x/y", "12 345", "12345/x 6", "12345/é", "1" * 64, "1/" + "x" * 64),
        *("１２３", "12345\n"),
    ],
)
def test_invalid_keys(text: str) -> None:
    with pytest.raises(ValueError):
        parse_key(text)


def test_shoulders_are_sorted_longest_first() -> None:
    found = table("12345", "12345/b5", "12345/x6", "12345/x60", "54321/x6").shoulders("12345")
    assert [entry.shoulder for entry in found] == ["x60", "b5", "x6"]


def test_a_lookup_among_many_shoulders_makes_one_entry() -> None:
    made: list[str] = []

    def make(key: str) -> Entry:
        made.append(key)
        return Entry(*parse_key(key))

    keys = ["12345", *(f"12345/{letter}{number}" for letter in "bcdfghjkmnpq" for number in range(1000))]
    found = Table.lazy({key: key for key in keys}, make, metadata={}).lookup(Ark.parse("ark:12345/q999z"))
    assert (found and found.key, made) == ("12345/q999", ["12345/q999"])


def test_keys_are_unique() -> None:
    with pytest.raises(ValueError, match="two records have the key 12345/x6"):
        table("12345/x6", "12345/x6")


def test_tables_are_equal_if_their_entries_and_order_are() -> None:
    assert table("1", "2") == table("1", "2")
    assert table("1", "2") != table("2", "1")
    assert Entry("1", line=3) == Entry("1", line=4)
    assert table("1", "2").without(["1"]) == table("2")
    assert repr(table("1", "1/x6")) == "<Table of 1 NAANs, 1 shoulders>"
    assert Nma("").status == DEFAULT_STATUS


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("https://a.example.org/ark:/${content}", "https://a.example.org/ark:/12345/x6np1/c2?info"),
        ("https://a.example.org/${value}", "https://a.example.org/x6np1/c2?info"),
        ("https://a.example.org/${suffix}", "https://a.example.org/np1/c2?info"),
        ("https://a.example.org/", "https://a.example.org/?info"),
    ],
)
def test_target_is_expanded_for_the_entry_that_serves_the_ark(target: str, url: str) -> None:
    found = Table([Entry("12345"), Entry("12345", "x6", (Nma(target),)), Entry("12345", "x60")])
    ark = Ark.parse("ark:12345/x6np-1/c2?info")
    entry = found.lookup(ark)
    assert entry is not None
    assert (entry.key, entry.urls(ark)) == ("12345/x6", [url])


def test_tables_and_entries_can_be_pickled_and_copied() -> None:
    entry = Entry("12345", "x6", (Nma("https://h.example/${content}"),), extra={"rtype": "x"}, line=7)
    table = Table([entry], metadata={"version": "1"})
    for twin in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table), copy.copy(table)):
        assert twin == table
        assert twin.metadata == table.metadata
        assert twin.shoulders("12345")[0].line == 7
        assert repr(twin) == repr(table)
    assert copy.copy(entry) == entry


# ---- files


def test_a_table_is_read_from_a_file_of_any_format(tmp_path: Path) -> None:
    made = Table([Entry("12345", nmas=(Nma("https://a.example/${content}"),)), Entry("12345", "x6")])
    path = tmp_path / "naans"
    for text in (registry.write_json(made), "12345: x\n  a.example\n", "naa:\nwhat: 12345\nwhere: https://a.example\n"):
        path.write_text(text, "utf-8")
        assert Table.read(path) == Table.read(str(path)) == registry.read(text)
        assert "12345" in Table.read(path)
    path.write_text("12345: x\n  host.example\n")
    assert Table.read(path, scheme="http") == registry.read(path.read_bytes(), scheme="http")


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "naans"
    path.write_text("naa:\nwhat: 12345\nwhat: 12346\n\nnaa:\nwhat: 99999\nwhere: https://a.example\n")
    with pytest.raises(TableError) as raised:
        Table.read(path)
    assert (raised.value.filename, raised.value.line, raised.value.record) == (str(path), 1, "12345")
    bad: list[TableError] = []
    assert list(Table.read(path, on_bad=bad.append)) == ["99999"]
    assert [one.record for one in bad] == ["12345"]
    for content in (b"", b"<html>", b"\x1f\x8b", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(TableError, match=r"naans:1: "):
            Table.read(path)
    for odd in (tmp_path / "none", tmp_path):
        with pytest.raises(OSError, match=odd.name):
            Table.read(odd)
