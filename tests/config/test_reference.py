"""Each setting as text: its help, the values that it takes, and its default."""

from __future__ import annotations

import re

import pytest

from maptr.config import Config, parse, reference
from maptr.config.model import ValueType, all_keys, choice, duration, integer, is_required, list_of, number, seconds

KEYS = all_keys()


@pytest.mark.parametrize("key", KEYS)
def test_each_setting_has_a_help_text_and_values(key: str) -> None:
    metadata = KEYS[key].metadata
    for text in (metadata["help"], metadata["type"].values):
        assert re.fullmatch(r"[^ A-Z].*[^.;,: ]|[A-Z]{2}.*[^.;,: ]", text)
    assert "|" not in metadata["help"] + metadata["type"].values + metadata["empty"], "a row has four cells"


@pytest.mark.parametrize("key", KEYS)
def test_a_default_in_the_table_is_read_as_the_default(key: str) -> None:
    one = KEYS[key]
    value = reference.default_value(one)
    if value is None:
        assert is_required(one) or one.metadata["empty"] or key == "key.secret"
    elif not (key.startswith(("zone.", "key.")) or one.metadata["missing"]):
        cell = reference.table(key).splitlines()[2].split(" | ")[1]
        assert parse(f"{key} = {cell.strip('`')}\n") == Config()


def test_a_row_has_what_holds_without_a_value_and_which_keys_it_needs() -> None:
    assert reference.table("zone.ns").splitlines()[2:] == [
        "| `zone.ns` | `[]` | a list of servers, each `NAME` or `NAME=ADDRESS,...` | name servers, "
        '`"ns1=192.0.2.1"` or `"ns.example.org"`; empty: `localhost`, for a test on this machine; needs `zone.table` |'
    ]
    assert reference.table("zone.file").endswith("| `zone.file` | | a file | required: zone file |\n")
    assert "| `cache.path` | the user's own | a file | " in reference.table("cache.path")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (integer(512, 4096), "an integer from 512 to 4,096"),
        (number(0, 1), "a number from 0 to 1"),
        (duration(), "a duration"),
        (duration(0, 86_400), 'a duration up to `"1d"`'),
        (duration(1, 5400), 'a duration from `"1s"` to `"90m"`'),
        (seconds(0.1, 3600), 'a duration from 0.1 seconds to `"1h"`'),
        (choice("a", "b", "c"), '`"a"`, `"b"` or `"c"`'),
        (list_of(integer(0, 1), "bits"), "a list of bits"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_values_are_those_that_the_type_reads(kind: ValueType[object], values: str) -> None:
    assert kind.values == values


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('`"[::]:53"` has all of IPv6', "[::]:53 has all of IPv6"),
        ('`"192.0.2.1 key:xfr"` and `/health`', '"192.0.2.1 key:xfr" and /health'),
        ("one of [several candidates](library.md#choosing-a-candidate)", "one of several candidates"),
        ('by VRRP: `["192.0.2.1", "2001:db8::1"]`', 'by VRRP: ["192.0.2.1", "2001:db8::1"]'),
    ],
)
def test_a_help_text_has_no_markdown(text: str, plain: str) -> None:
    assert reference.plain(text) == plain
