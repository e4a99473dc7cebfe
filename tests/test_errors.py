"""The errors as values: their text, and copies of them in other processes."""

from __future__ import annotations

import copy
import pickle

import pytest

from maptr.errors import ConfigError, ConfigErrors, MaptrError, NmaError, PullFailed, TableError, reason_of

CASES = [
    (TableError("no what", filename="naans", line=2, record="12345"), "naans:2: record 12345: no what"),
    (TableError("no what", line=2), "line 2: no what"),
    (TableError("no what", filename="naans"), "naans: no what"),
    (ConfigErrors([ConfigError("is empty", key="a"), ConfigError("no", filename="f")]), "a: is empty; f: no"),
    (PullFailed(["u: no address", "f: no file"]), "u: no address; f: no file"),
    (NmaError("no answer"), "no answer"),
]


@pytest.mark.parametrize(("error", "text"), CASES)
def test_an_error_has_a_text_and_is_the_same_in_another_process(error: MaptrError, text: str) -> None:
    for twin in (error, pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert (type(twin), str(twin), repr(twin)) == (type(error), text, repr(error))


@pytest.mark.parametrize("kind", [MaptrError, NmaError, TableError, ConfigError])
def test_no_error_quotes_characters_that_control_a_terminal_or_begin_a_line(kind: type[MaptrError]) -> None:
    error = kind("the status 302\n\r2026-01-01 forged\x1b[2J\x9b\u202e\u2066\u2028\udc80")
    assert str(error) == "the status 302??2026-01-01 forged?[2J?????"
    assert getattr(error, "reason", str(error)) == str(error)
    assert str(TableError("x", filename="a\nb", record="c\x1b")) == "a?b: record c?: x"
    assert reason_of(FileNotFoundError(2, "No such file", "a\nb")) == "a?b: No such file"
    assert reason_of(ValueError("a\nb")) == "a?b"
