"""The examples in the public docstrings, run as they stand; ``server`` in them is a real one on loopback."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import maptr
from tests.hostile import hostile, hosts, naptr

MODULES = ("ark", "asyncclient", "bulk", "client", "describe", "reachable", "stub", "discovery", "choose")
WITH_EXAMPLES = {"ark", "bulk", "client", "stub", "asyncclient"}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    module = import_module(f"maptr.{name}")
    with hostile(hosts({"12345.ark.arpa.": [naptr("ark.example.org.")]})) as server:
        globs = {**vars(module), **{public: getattr(maptr, public) for public in maptr.__all__}, "server": server.name}
        result = doctest.testmod(module, globs=globs, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert (result.attempted > 0) == (name in WITH_EXAMPLES)
