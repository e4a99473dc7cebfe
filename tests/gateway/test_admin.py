"""The operator address: what is answered there, and not in public."""

from __future__ import annotations

import json
import os
import re
import resource
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from maptr.client import Client
from maptr.config import load, parse
from maptr.config.model import GatewayConfig
from maptr.errors import ConfigError
from maptr.gateway.connections import MAX_FOR_OPERATORS
from maptr.gateway.message import Response
from maptr.gateway.message import text as plain
from maptr.gateway.route import finished, route
from maptr.gateway.service import Service
from maptr.gateway.site import Site
from maptr.gateway.statistics import Statistics
from maptr.protocol.address import Address
from tests.support.gateway import Gateway
from tests.support.http_gateway import TABLE, HttpClient, configured, get, serving
from tests.support.waiting import until

LOOPBACK = Address("127.0.0.1", 0)


ADMIN = 'admin_listen = "127.0.0.1:0"\n'


def test_metrics_are_at_the_admin_address_only() -> None:
    with configured(ADMIN) as service:
        public, admin = service.bound[0].port, service.bound_admin[0].port
        assert public != admin
        assert get(public, "/metrics").status == 404
        assert b"maptr_http_requests_total" in get(admin, "/metrics").body
        for port in (public, admin):
            assert get(port, "/health").body == b"ok\n"
            assert get(port, "/ready").status == 503
            assert get(port, "/ark:99999/x").status == 503


def test_operators_are_answered_by_the_names_of_the_machine_only() -> None:
    """A page in a browser may let its own name point here (DNS rebinding)."""
    with configured(ADMIN + 'admin_hosts = ["ops.example.org"]\n') as service:
        public, admin = service.bound[0].port, service.bound_admin[0].port
        for target in ("/metrics", "/status", "/", "/api/v1/status", "/ark:12345/x", "/metrics?/health"):
            reply = get(admin, target, "Host: evil.example")
            assert (reply.status, b"gateway.admin_hosts" in reply.body) == (421, True)
        for host in ("localhost", f"127.0.0.1:{admin}", "ops.example.org:9153", "gateway"):
            assert get(admin, "/metrics", f"Host: {host}").status == 200
        for target in ("/health", "/ready", "/health?x"):
            assert get(admin, target, "Host: evil.example").status != 421
        assert get(admin, "http://evil.example/metrics", "Host: localhost").status == 421
        assert get(admin, "http://localhost/metrics", "Host: evil.example").status == 421
        with HttpClient(admin) as client:
            client.send(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.reply().status == 200, "a request without Host"
        assert get(public, "/", "Host: evil.example").status == 200, "the public may use any name"


def test_a_gateway_for_one_machine_answers_its_names_only() -> None:
    client = Client(["127.0.0.1#9"], policy="natab-only", table=TABLE)
    service = Service(parse('[gateway]\nlisten = ["127.0.0.1:0"]\n'), client, is_local=True)
    with serving(service, client):
        port = service.bound[0].port
        assert get(port, "/", "Host: evil.example").status == 421
        assert get(port, "/health", "Host: evil.example").status == 200
        assert get(port, "/", f"Host: localhost:{port}").status == 200


@pytest.mark.parametrize("name", ["a b", "x:80", "https://x.example", "", "[::1]"])
def test_a_name_in_admin_hosts_is_checked(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        parse(f'[gateway]\n{ADMIN}admin_hosts = ["{name}"]\n')


def test_operators_have_connections_of_their_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their descriptors are reserved, so that only the limit of the public may be lower."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with configured(ADMIN) as service, ExitStack() as stack:
        admin = service.bound_admin[0].port
        first = stack.enter_context(HttpClient(admin))
        assert first.get("/health").status == 200
        for _ in range(MAX_FOR_OPERATORS):
            stack.enter_context(HttpClient(admin))
        assert first.ended(), "it made room"
        assert get(admin, "/health").status == 200
    fewer = "max_connections is 150 instead of 1000, as a process may have 200 files open: raise LimitNOFILE"
    assert [line for line in caplog.messages if "max_connections" in line] == [fewer]


@pytest.mark.parametrize("public_stats", [False, True])
def test_scripts_of_other_sites_read_what_is_for_the_public_only(public_stats: bool) -> None:
    """An operator's browser reaches addresses that the sites in it do not."""
    settings = GatewayConfig(public_stats=public_stats)
    statistics = Statistics(wall=lambda: 1e9).reading
    site = Site(settings=settings, statistics=statistics, has_admin=True, metrics=lambda: plain("m\n"))

    def is_shared(path: str) -> bool:
        answer = route("GET", path, {}, site, is_admin=True)
        answer = answer() if callable(answer) else answer
        assert isinstance(answer, Response)
        assert answer.status == 200
        return finished(answer, "GET", path, {}, settings).header("access-control-allow-origin") == "*"

    assert not any(map(is_shared, ("/metrics", "/ready", "/status")))
    assert is_shared("/stats") is is_shared("/api/v1/stats") is public_stats
    assert all(map(is_shared, ("/", "/health", "/naan/", "/api/v1/naans")))


def test_one_text_is_one_address_and_a_list_is_several(tmp_path: Path) -> None:
    one = parse('[gateway]\nadmin_listen = "127.0.0.1:9154"\n').gateway
    two = parse('[gateway]\nadmin_listen = ["127.0.0.1:9154", "[::1]:9154"]\n').gateway
    assert one.admin_listen == (Address("127.0.0.1", 9154),)
    assert [address.port for address in two.admin_listen] == [9154, 9154]
    assert GatewayConfig().admin_listen == ()
    for text in ('"127.0.0.1:8080"', '["127.0.0.1:9154", "127.0.0.1:9154"]'):
        file = tmp_path / "maptr.toml"
        file.write_text(f"[gateway]\nadmin_listen = {text}\n")
        with pytest.raises(ConfigError, match=r"admin_listen: .* is given twice"):
            load(file)


def test_a_taken_address_names_its_key() -> None:
    with configured(ADMIN) as service:
        taken = f'admin_listen = "{service.bound_admin[0]}"\n'
        with pytest.raises(ConfigError, match=r"gateway.admin_listen: "), configured(taken):
            pass


def test_the_status_says_that_the_last_pull_failed(tmp_path: Path) -> None:
    source = tmp_path / "source.json"
    with configured(f'[table]\nfile = "{tmp_path / "naans"}"\nurl = "{source}"\n') as service:
        port = service.bound[0].port

        def state() -> tuple[object, str, bool]:
            table = json.loads(get(port, "/api/v1/status").body)["table"]
            value = re.search(r"\nmaptr_table_pull_failed (\S+)\n", get(port, "/metrics").text)
            page = get(port, "/status", "Accept: text/html").body
            return table["pull_failed"], value[1] if value else "", b"The last pull of the table failed" in page

        until(lambda: state() == (True, "1.0", True), "the failure is shown")


def test_the_status_has_the_file_of_own_objects(tmp_path: Path) -> None:
    good = "ark:12345/x{n},https://o.example/{n}\n"
    file = tmp_path / "own.csv"
    file.write_text("ark,url\n" + "".join(good.format(n=n) for n in range(9)) + "x&y,z\n")
    os.utime(file, (time.time() - 7200, time.time() - 7200))
    with configured(f'{ADMIN}redirects = "{file}"\n') as service:
        public, admin = service.bound[0].port, service.bound_admin[0].port

        def state() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(get(admin, "/api/v1/status").body)
            return found

        def page() -> str:
            return get(admin, "/status", "Accept: text/html").body.decode()

        assert get(public, "/api/v1/status").status == 404
        assert "access-control-allow-origin" not in get(admin, "/api/v1/status").headers
        own = state()["own_objects"]
        assert 7200 <= own.pop("age") < 86_400
        errors = [{"line": 11, "reason": "no ark: label in 'x&y'"}]
        assert own == {
            "file": "own.csv",
            "redirects": 9,
            "left_out": 1,
            "errors": errors,
            "trouble": "",
            "unindexed": "",
        }
        metrics = get(admin, "/metrics").text
        assert "\nmaptr_redirects_left_out 1.0\n" in metrics
        (seconds,) = re.findall(r"\nmaptr_redirects_age_seconds (\S+)\n", metrics)
        assert 7200 <= float(seconds) < 86_400
        text = re.sub(r"<[^>]*>", " ", page())
        assert re.search(r"Own objects\s+File\s+own.csv\s+Redirects\s+9\s+Age of the file\s+2 hours", text)
        assert re.search(r"Rows left out\s+1\s", text)
        assert "11: no ark: label in &#39;x&amp;y&#39;" in text
        assert "is refused" not in text
        new = tmp_path / "new"
        new.write_text("ark,url\n" + good.format(n=1))
        new.replace(file)
        until(lambda: state()["own_objects"]["trouble"], "the loss is noticed")
        lost = state()["own_objects"]["trouble"]
        assert lost.startswith(
            "own.csv: more than 30% would be lost: 8 of 9 registered ARKs are missing: ark:12345/x0, "
        )
        assert state()["own_objects"]["redirects"] == 9
        assert f"redirects: {lost}" in state()["troubles"]
        assert "is refused; the last good one is still in use" in page()


def test_without_own_objects_the_status_has_none() -> None:
    found = json.loads(Gateway(TABLE).ask("/api/v1/status").body)
    assert found == {
        "schema": "maptr/1",
        "sources": [],
        "troubles": [],
        "alarms": {},
        "table": {"records": len(TABLE), "age": 1000.0, "date": None, "pull_failed": None},
        "own_objects": None,
        "links": None,
    }
    assert "Own objects" not in Gateway(TABLE).ask("/status", accept="text/html").body.decode()
