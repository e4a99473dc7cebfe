"""What docs/server.md says of limits and defaults is what the code has, and it says all of them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from maptr import limits
from maptr.answer.context import Context
from maptr.answer.rate_limit import RrlSettings
from maptr.server import connections
from maptr.server.connections import Connections

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
CONSTANTS = re.findall(r"^\| `([\w.]+)\.([A-Z0-9_]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)
MODULES = (
    "context",
    "cookies",
    "rrl",
    "serve.responder",
    "serve.batch",
    "serve.seldom",
    "limits",
    "serve.connections",
    "serve.tcp",
    "serve.stream",
    "serve.conversations",
    "serve.httpd",
    "serve.metrics",
    "serve.signer",
)
LIMIT = re.compile(
    r"MAX_|RETRY_|INTERVAL|.*_(TIMEOUT|SIZE|AGE|PREFIX|PAUSE|BUFFER|INTERVAL|PAYLOAD|SECONDS?)$|(SLIP|WINDOW|BACKLOG)$"
)


@pytest.mark.parametrize(("module", "name", "value"), CONSTANTS)
def test_limits_and_defaults(module: str, name: str, value: str) -> None:
    assert getattr(import_module(f"maptr.{module}"), name) == float(value)


@pytest.mark.parametrize("module", MODULES)
def test_every_limit_is_on_the_page(module: str) -> None:
    told = {name for where, name, _ in CONSTANTS}
    source = (Path(import_module(f"maptr.{module}").__file__ or "")).read_text(encoding="utf-8")
    defined = re.findall(r"^([A-Z][A-Z0-9_]+) = ", source, re.MULTILINE)
    assert {name for name in defined if LIMIT.match(name)} - {"KEY_SIZE"} <= told


def test_the_defaults_are_those_constants() -> None:
    assert Context().udp_payload == 1232
    settings = RrlSettings()
    assert (settings.responses_per_second, settings.slip, settings.window) == (20, 2, 15)
    assert (
        connections.TcpLimits(
            limits.MAX_CONNECTIONS,
            limits.MAX_PER_CLIENT,
            limits.IDLE_TIMEOUT,
            connections.WRITE_TIMEOUT,
            connections.HANDSHAKE_TIMEOUT,
        )
        == connections.DEFAULT_LIMITS
    )
    assert Connections().count == 0
