"""The look-up API on real sockets. schemathesis compares every response with the OpenAPI document: no status is 5xx but
the described 503."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maptr import registry
from maptr.ark import Ark
from maptr.cache import Policy
from maptr.client import Client
from maptr.discovery import Discovery
from maptr.gateway.server import AT_ONCE
from tests.support.caching import FakeDns, Rig, dns_answer, host
from tests.support.http_gateway import gateway as running_gateway
from tests.support.http_gateway import get, running_service
from tests.support.scripted import serving, zone
from tests.support.waiting import until

SAMPLE = Path(__file__).resolve().parents[2] / "zones" / "sample.json"
RECORDS = {"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']}
SETTINGS = """\
[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", "503"]
positive_data_acceptance.enabled = false  # most texts are not ARKs
"""


@contextmanager
def gateway(policy: Policy) -> Iterator[int]:
    """The port of a gateway with the sample; with DNS, after the first comparison."""
    table = registry.read(SAMPLE.read_bytes())
    with serving(zone(RECORDS)) as port:
        client = Client([f"127.0.0.1#{port}"], table=table, policy=policy)
        with running_service(client) as service:
            http = service.bound[0].port
            if policy != "natab-only":
                until(lambda: get(http, "/api/v1/drift").status == 200, "no comparison")
            yield http


@pytest.mark.parametrize("policy", ["natab-only", "dns-only"])
def test_every_operation_conforms_to_its_description(policy: Policy, tmp_path: Path) -> None:
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    options = "--max-examples 15 --seed 1 --phases examples,coverage,fuzzing --warnings off --no-color"
    with gateway(policy) as port:
        location = f"http://127.0.0.1:{port}/api/v1/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={settings}", "run", location]
        done = subprocess.run(
            [*command, *options.split()], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 selected" in done.stdout


def test_the_headers_of_a_running_gateway_are_described() -> None:
    """With those that the server adds; the other headers are HTTP's own."""
    with gateway("dns-only") as port:
        described = json.loads(get(port, "/api/v1/openapi.json").body)
        names = {name.lower().removeprefix("always-") for name in described["components"]["headers"]}
        for path in ("discover?ark=ark:12345/x", "discover?ark=a&ark=b", "naans?limit=1", "drift", "nothing"):
            reply = get(port, f"/api/v1/{path}")
            own = {"content-type", "content-length", "transfer-encoding", "date", "server"}
            assert {*reply.headers} - own <= names


def test_lines_are_in_order_though_the_first_is_the_slowest() -> None:
    """More than are looked up at a time; the first waits until all others of the first group were asked."""
    asked: list[str] = []

    class Slow(FakeDns):
        async def discover_async(self, ark: Ark, lifetime: float, on_step: object = None) -> Discovery:
            asked.append(ark.naan)
            while ark.naan == "12345" and len(asked) < AT_ONCE:
                await asyncio.sleep(0.001)
            return await super().discover_async(ark, lifetime)

    rig = Rig(policy="dns-only", dns=Slow({"12345.ark.arpa.": dns_answer(host("h.example."))}))
    arks = ["ark:12345/x", *(f"ark:{naan}/x" for naan in range(20000, 20000 + 2 * AT_ONCE)), "bad"]
    with running_gateway(rig) as server:
        reply = get(server.port, "/api/v1/discover?" + "&".join(f"ark={ark}" for ark in arks))
    documents = [json.loads(line) for line in reply.body.splitlines()]
    assert [document["ark"] for document in documents] == arks
    assert [bool(document["candidates"]) for document in documents] == [True, *[False] * (len(arks) - 1)]


def test_too_many_requests_are_a_problem() -> None:
    """Each ARK of a response in lines counts."""
    with running_gateway(rate=10) as server:
        whole = get(server.port, f"/api/v1/discover?{'&'.join(f'ark=ark:12345/x{n}' for n in range(100))}")
        reply = get(server.port, "/api/v1/openapi.json")
    assert (whole.status, len(whole.body.splitlines()), reply.status) == (200, 100, 429)
    assert reply.headers["content-type"] == "application/problem+json"
    assert int(reply.headers["retry-after"]) > 0
    assert json.loads(reply.body) == {"title": "Too Many Requests", "status": 429, "detail": "too many requests"}
