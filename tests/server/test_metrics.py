"""Metrics and health check: output parsed by prometheus-client, agreement with the status, and hostile clients."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import socket
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import dns.edns
import dns.message
import dns.query
import pytest

from maptr.daemon import request_server
from maptr.daemon.sockets import MAX_REQUESTS, open_tcp
from maptr.dnssec.keys import Algorithm, KeyState, Role, add_key
from maptr.registry.table import Entry, Nma, Table
from maptr.server import metrics
from maptr.server.state import left_out_status
from maptr.server.status import CatalogStatus, SecondaryStatus, Status, ZoneStatus
from maptr.zone.lint import publishable
from tests.conftest import REPOSITORY
from tests.support.command_line import run
from tests.support.peers import find
from tests.support.running import Running, converse
from tests.support.server_process import Site, address_of, zone_text
from tests.support.streams import connect, is_closed, wait_for, wait_until_cut_off
from tests.support.waiting import PATIENCE

parser = pytest.importorskip("prometheus_client.parser", reason="metrics need maptr[metrics]")

DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "log-and-metrics.md").read_text("utf-8").partition("## Metrics of maptr serve")[2].partition("\n## ")[0]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    """Return the values by name and sorted labels. Each may occur only once."""
    found: Samples = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, "given twice"
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((f"maptr_{name}", tuple(sorted(labels.items()))))


def alarms(found: Samples) -> dict[str, float]:
    """Return the number of alarms of each kind of which there is one."""
    return {dict(labels)["kind"]: count for (name, labels), count in found.items() if name == "maptr_alarms" and count}


def get(port: int, path: str) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


class Scraped:
    """A running server with metrics, and its ports."""

    def __init__(self, site: Site, serve: str = "", extra: str = "") -> None:
        self.site = site
        site.configure(extra, serve=f'metrics = "127.0.0.1:0"\n{serve}')
        self.dns = site.start()
        self.port = int(site.server.wait_for(r"metrics on http://127\.0\.0\.1:(\d+)/metrics")[1])

    def scrape(self) -> Samples:
        status, text = get(self.port, "/metrics")
        assert status == 200
        return samples(text)


@pytest.fixture
def scraped(site: Site) -> Scraped:
    return Scraped(site)


def test_a_scrape_has_the_values_of_the_status(scraped: Scraped) -> None:
    for number in range(3):
        address_of("ns.a.test.", scraped.dns)
        address_of("ns.a.test.", scraped.dns, "tcp")
        dns.query.udp(dns.message.make_query(f"no{number}.a.test.", "A"), "127.0.0.1", PATIENCE, scraped.dns)
    found = scraped.scrape()
    for transport, rcode, count in (("udp", "NOERROR", 3), ("udp", "NXDOMAIN", 3), ("tcp", "NOERROR", 3)):
        assert value(found, "queries_total", transport=transport, rcode=rcode) == count
    assert value(found, "queries_total", transport="tls", rcode="SERVFAIL") == 0
    for name, expected in {"connections_accepted_total": 3, "zones": 2, "rrl_dropped_total": 0}.items():
        assert value(found, name) == expected, name
    for name in ("zone_serial", "zone_loaded"):
        assert value(found, name, zone="a.test.") == 1
    assert value(found, "zone_signatures", zone="a.test.", state="unsigned") == 1
    up_since = time.time() - (value(found, "uptime_seconds") or 0)
    assert up_since == pytest.approx(value(found, "start_time_seconds"), abs=PATIENCE)
    status: Any = scraped.site.status()
    assert status["metrics"] == f"127.0.0.1:{scraped.port}"
    for zone in status["zones"]:
        assert value(found, "zone_names", zone=zone["zone"]) == zone["names"]
    for transport, counts in status["queries"].items():
        for rcode, count in counts.items():
            assert value(found, "queries_total", transport=transport, rcode=rcode) == count


def test_a_refused_zone_is_an_alarm_with_its_reason(scraped: Scraped) -> None:
    site = scraped.site
    site.write_zone("a.test", 'a "quoted\\\\" reason\n')
    assert site.run("reload", "a.test").exit_code == 1
    site.config.write_text("rubbish")
    assert site.run("reload", "--control", str(site.socket)).exit_code == 1
    found = scraped.scrape()
    reasons = [dict(labels) for name, labels in found if name == "maptr_zone_refused"]
    assert [reason["zone"] for reason in reasons] == ["a.test."]
    assert "a.test.zone:1: " in reasons[0]["reason"]
    assert value(found, "zone_serial", zone="a.test.") == 1
    assert (alarms(found), value(found, "config_refused")) == ({"config-refused": 1, "zone-refused": 1}, 1)
    assert [value(found, "reloads_total", result=result) for result in ("refused", "failed")] == [1, 1]
    assert value(found, "last_reload_time_seconds") is not None
    assert get(scraped.port, "/health") == (200, "ok\n"), "it is served as it was"


def test_a_zone_that_never_loaded_is_unhealthy(site: Site) -> None:
    site.write_zone("a.test", "rubbish")
    scraped = Scraped(site)
    assert get(scraped.port, "/health") == (503, "zone a.test. is not loaded\n")
    found = scraped.scrape()
    assert value(found, "zone_loaded", zone="a.test.") == 0
    assert value(found, "zone_serial", zone="a.test.") is None
    site.write_zone("a.test", zone_text(1))
    assert site.run("reload").exit_code == 0
    assert get(scraped.port, "/health") == (200, "ok\n")
    assert not any(name == "maptr_zone_refused" for name, _ in scraped.scrape())


def test_metrics_of_signed_zones_and_failed_signing(site: Site) -> None:
    """The counters continue over a reload."""
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    key = add_key(site.directory / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    signing = 'keys = "keys"\nsigning.lifetime = "1d"\nsigning.refresh = "1h"\n'
    scraped = Scraped(site, 'state = "state"', signing)
    query = dns.message.make_query("b.test.", "DNSKEY")
    for keys in (1, 2):
        assert len(dns.query.udp(query, "127.0.0.1", PATIENCE, scraped.dns).answer[0]) == keys
        found = scraped.scrape()
        assert value(found, "zone_serial", zone="b.test.") == keys
        assert value(found, "queries_total", transport="udp", rcode="NOERROR") == keys
        if keys == 1:
            add_key(key.path.parent, Role.CSK, Algorithm.ED25519, KeyState.PUBLISHED)
            assert site.run("reload").exit_code == 0
    expiry = value(found, "zone_signature_expiry_time_seconds", zone="b.test.")
    assert expiry is not None
    assert abs(expiry - time.time() - 86400) < PATIENCE
    assert value(found, "zone_signing_due_time_seconds", zone="b.test.") == expiry - 3600
    assert value(found, "zone_signatures", zone="b.test.", state="ok") == 1, "shorter than the alarm, as configured"
    assert alarms(found) == {}
    key.path.chmod(0o644)
    assert site.run("reload").exit_code == 1
    found = scraped.scrape()
    ((_, labels),) = [key for key in found if key[0] == "maptr_zone_signing_failed"]
    assert "others can read" in dict(labels)["reason"]
    assert alarms(found) == {"zone-not-signed": 1}


def test_metric_names_are_documented_and_follow_the_conventions(scraped: Scraped) -> None:
    """The rules are those of promtool, which also checks the names if it is installed."""
    text = get(scraped.port, "/metrics")[1]
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    documented = dict(re.findall(r"^(maptr_\w+)(?:{(.*)})?$", PAGE, re.MULTILINE))
    for name, family in families.items():
        assert re.fullmatch(r"maptr(_[a-z]+)+", name), name
        assert family.documentation.endswith("."), name
        assert family.type in ("gauge", "counter"), name
        shown = f"{name}_total" if family.type == "counter" else name
        assert shown in documented, f"{shown} is not in docs/log-and-metrics.md"
        for sample in family.samples:
            assert sorted(documented[shown].split(",")) == (sorted(sample.labels) or [""]), shown
    real = {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}
    assert documented.keys() == real
    if promtool := find("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=600, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


SECONDARIES = (
    SecondaryStatus("192.0.2.1:53", "done", serial=1, observed_serial=1, lag=0.0),
    SecondaryStatus("192.0.2.2:53", "pending", lag=7.0),
)


def test_metrics_of_left_out_records_errors_and_secondaries() -> None:
    private = Nma("http://10.0.0.1/${content}")
    table = Table([Entry("12345", nmas=(Nma("https://h.example/"),)), Entry("12345", "x7", (private, private))])
    zone = ZoneStatus("a.test.", "a.zone", 1, left_out=left_out_status(publishable(table)[1]))
    error = 'file \udcff\n"x\\' + "y" * 300  # a file name that is not UTF-8
    other = ZoneStatus("b.test.", "b.zone", 1, secondaries=SECONDARIES, error=error)
    catalog = CatalogStatus("catalog.invalid.", 1, SECONDARIES)
    counts = defaultdict[str, int](int)
    status = Status("0", 1, zones=(zone, other), catalog=catalog)
    status = replace(status, batches=counts, rate_limit=counts, connections=counts)
    found = samples(metrics.render(status).decode())
    assert value(found, "zone_records_left_out", zone=zone.zone) == 1
    for code in ("no-public-host", "other-answer"):
        assert value(found, "zone_record_left_out", zone=zone.zone, record="12345/x7", code=code) == 1
    assert value(found, "zone_records_left_out", zone=other.zone) is None
    reason = ('file ?\n"x\\' + "y" * 300)[: metrics.MAX_REASON]
    assert value(found, "zone_refused", zone=other.zone, reason=reason) == 1
    for name, each in product((other.zone, catalog.zone), SECONDARIES):
        labels = {"zone": name, "secondary": each.secondary}
        assert value(found, "zone_secondary_serial", **labels) == each.observed_serial
        assert value(found, "zone_secondary_lag_seconds", **labels) == each.lag
        assert value(found, "zone_notify_serial", **labels) == each.serial
        for state in ("done", "pending"):
            assert value(found, "zone_notify", state=state, **labels) == (state == each.notify)


# --- HTTP


@contextlib.contextmanager
def answering(make: Callable[[socket.socket], request_server.RequestServer]) -> Iterator[int]:
    """Run a request server on a port of its own. Yields the port."""
    sock, running = open_tcp("127.0.0.1", 0), Running()
    server = make(sock)
    running.call(server.start)
    try:
        yield sock.getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), running.loop).result(PATIENCE)
        running.close()


def big_or_small(sock: socket.socket) -> request_server.RequestServer:
    async def respond(request: bytes) -> bytes:
        return b"a" * 10_000_000 if request == b"big\n" else b"small"

    return request_server.RequestServer(sock, respond, end=b"\n", limit=100)


@pytest.fixture(autouse=True)
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_server, "TIMEOUT", PATIENCE)


@pytest.fixture
def http_port() -> Iterator[int]:
    """Run only the HTTP server, whose status lacks the values of the metrics. Yields its port."""
    with answering(lambda sock: metrics.server(sock, lambda: Status("0", 1))) as port:
        yield port


def raw(port: int, octets: bytes, *, shut: bool = False) -> bytes:
    return converse(connect(port), octets, shut=shut)


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /health/ HTTP/1.1\r\n\r\n", 404),
        (b"GET /../health HTTP/1.1\r\n\r\n", 404),
        (b"GET /health?x=1 HTTP/1.0\r\n\r\n", 200),
        (b"GET HTTP://h:1/health?x HTTP/1.1\r\n\r\n", 200),
        (b"GET http://h?/health HTTP/1.1\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 501),
        (b"get /health HTTP/1.1\r\n\r\n", 501),
        (b"GET /health\r\n\r\n", 200),
        (b"GET /health HTTP/2.0\r\n\r\n", 505),
        (b"GET  /health HTTP/1.1\r\n\r\n", 200),
        (b"GET /health HTTP/x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"\xff\xfe\0 \0 HTTP/1.1\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_status_of_unusual_and_invalid_requests(http_port: int, octets: bytes, status: int) -> None:
    reply = raw(http_port, octets)
    assert reply.startswith(f"HTTP/1.1 {status} ".encode())
    head, _, body = reply.partition(b"\r\n\r\n")
    for header in (f"Content-Length: {len(body)}", "Connection: close", "Cache-Control: no-store"):
        assert f"\r\n{header}".encode() in head
    assert len(body) < 50, "it does not repeat the request"


def test_head_requests_and_incomplete_requests(http_port: int) -> None:
    assert raw(http_port, b"HEAD /health HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert raw(http_port, b"GET /hea", shut=True) == b""
    assert raw(http_port, b"", shut=True) == b""
    assert raw(http_port, b"\r\n\r\n") == b""
    with contextlib.suppress(ConnectionResetError):  # the server closes the connection before it has read all of it
        assert raw(http_port, b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n") == b""
    whole = raw(http_port, b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", shut=True)
    assert whole.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        ("evil.example:9153", False),
        ("primary:9153", True),
        ("127.0.0.1", True),
        ("ops.example.org", True),
        ("[::1]:9", True),
    ],
)
def test_metrics_are_for_the_names_of_the_machine_and_health_for_any(host: str, is_answered: bool) -> None:
    """A page in a browser may let its own name point here (DNS rebinding)."""
    refused = b"HTTP/1.1 421 "
    with answering(lambda sock: metrics.server(sock, lambda: Status("0", 1), lambda: ("ops.example.org",))) as port:
        for target in ("/metrics", "/"):
            reply = raw(port, f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert reply.startswith(refused) != is_answered
        assert raw(port, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 ")
        named = raw(port, f"GET http://{host}/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert named.startswith(refused) != is_answered
        assert not raw(port, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(refused), "without Host"


def test_silent_clients_are_closed(monkeypatch: pytest.MonkeyPatch, http_port: int) -> None:
    monkeypatch.setattr(request_server, "TIMEOUT", 0.2)
    with connect(http_port) as silent:
        assert is_closed(silent)


def test_at_the_limit_an_idle_connection_is_replaced_but_not_a_busy_one() -> None:
    """A reload may take minutes. If all connections wait for a response, a new connection is closed."""
    begun: list[bytes] = []
    over = threading.Event()

    async def work(request: bytes) -> bytes:
        begun.append(request)
        await asyncio.to_thread(over.wait)
        return b"done"

    def working(sock: socket.socket) -> request_server.RequestServer:
        return request_server.RequestServer(sock, work, end=b"\n", limit=100)

    with answering(working) as port, contextlib.ExitStack() as stack:
        oldest, *clients = (stack.enter_context(connect(port)) for _ in range(MAX_REQUESTS + 1))
        assert is_closed(oldest), "a connection without a request makes room"
        for client in clients:
            client.sendall(b"\n")
        wait_for(lambda: len(begun) == len(clients))
        assert is_closed(stack.enter_context(connect(port)))
        over.set()
        assert [client.recv(4) for client in clients] == [b"done"] * len(clients)


def test_a_client_that_does_not_read_does_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(big_or_small) as port:
        assert raw(port, b"big\n") == b"a" * 10_000_000
        with connect(port) as deaf:
            deaf.sendall(b"big\n")
            assert raw(port, b"\n") == b"small"
        monkeypatch.setattr(request_server, "TIMEOUT", 0.2)
        with connect(port) as deaf:
            deaf.sendall(b"big\n")
            wait_until_cut_off(deaf)


# --- the configuration


def test_without_prometheus_client_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("maptr.server.settings.find_spec", lambda name: None)
    (tmp_path / "zone").write_text(zone_text(1))
    done = run("serve", f"--zone=a.test={tmp_path}/zone", "--metrics=127.0.0.1:0", "--check-config")
    assert done.exit_code == 2
    assert "--metrics: needs the package prometheus-client: pip install 'maptr[metrics]'" in done.stderr


def test_exit_code_1_for_an_address_in_use(scraped: Scraped) -> None:
    zone = f"--zone=a.test={scraped.site.directory}/a.test.zone"
    done = run("serve", zone, "--listen=127.0.0.1:0", f"--metrics=127.0.0.1:{scraped.port}")
    assert done.exit_code == 1
    assert f"--metrics: cannot listen on 127.0.0.1:{scraped.port}: Address already in use" in done.stderr
