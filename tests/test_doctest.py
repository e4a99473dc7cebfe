"""The examples in the public docstrings, run as they stand; ``server`` in them is a real one on loopback."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import maptr
from maptr.answer import respond
from maptr.snapshot import Snapshot
from tests.hostile import hostile

MODULES = ("trust", "ark", "asyncclient", "bulk", "client", "describe", "reachable", "stub", "discovery", "choose")
WITH_EXAMPLES = {"trust", "ark", "bulk", "client", "stub", "asyncclient"}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")
    from tests.tampered import signed_zone

    module = import_module(f"maptr.{name}")
    zone, key = signed_zone("ark.arpa.", '12345 NAPTR 0 0 "h" "ark" "" ark.example.org.')
    snapshot = Snapshot.from_zones([zone])

    def answer(query: bytes, transport: str) -> list[bytes]:
        reply = respond(query, snapshot)
        return [reply] if reply is not None else []

    with hostile(answer) as server:
        public = {name: getattr(maptr, name) for name in maptr.__all__}
        given = {"server": server.name, "host": server.host, "port": server.port, "key": key}
        globs = {**vars(module), **public, **given}
        result = doctest.testmod(module, globs=globs, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert (result.attempted > 0) == (name in WITH_EXAMPLES)
