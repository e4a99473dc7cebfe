"""The examples in docstrings; ``server`` in them is a real server on loopback."""

from __future__ import annotations

import asyncio
import doctest
from importlib import import_module
from pathlib import Path

import pytest

import maptr
from maptr.answer.respond import respond
from tests.support.hostile import hostile
from tests.support.signers import signed_zone
from tests.support.zones import snapshot_of_zones

PACKAGE = Path(maptr.__file__).parent
MODULES = sorted(
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = import_module(name)
    zone, key = signed_zone("ark.arpa.", '12345 NAPTR 0 0 "h" "ark" "" ark.example.org.')
    snapshot = snapshot_of_zones(zone)

    def answer(query: bytes, transport: str) -> list[bytes]:
        reply = respond(query, snapshot)
        return [reply] if reply is not None else []

    with hostile(answer) as server:
        public = {name: getattr(maptr, name) for name in maptr.__all__}
        given = {"asyncio": asyncio, "server": server.name, "host": server.host, "port": server.port, "key": key}
        globs = {**vars(module), **public, **given}
        result = doctest.testmod(module, globs=globs, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0
