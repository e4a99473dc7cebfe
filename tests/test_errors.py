"""The errors as values: their text, and copies of them in other processes."""

from __future__ import annotations

import copy
import pickle

import pytest

from maptr.errors import ConfigError, ConfigErrors, MaptrError, NmaError, PullFailed, TableError

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
