"""Probes of real servers on loopback, the log of probes on disk, and the liveness that follows from them."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from maptr import __version__, url
from maptr.cache.disk import Disk
from maptr.errors import Fault, NmaError
from maptr.reconcile.probes import (
    CERTIFICATE_WARNING,
    KEPT_FOR,
    MAX_PERIODS,
    SUSPECT_AFTER,
    TRUSTED_FOR,
    Liveness,
    Period,
    Probe,
    ProbeLog,
    Prober,
    ProbeResult,
    is_offline,
    servers_of,
)
from maptr.registry.table import Entry, Nma, Table
from maptr.resolver.call import Options
from maptr.web.http import Head
from tests.support.caching import ARK, Clock, Rig
from tests.support.certificates import write_certificate
from tests.support.http_server import Handle, holds, http_server, raw_server, sends
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE
from tests.support.web_servers import Nginx

PLACE = "https://a.example"
DAY = 86_400.0


def probe(at: float, fault: Fault | None = None, **more: Any) -> Probe:
    note = f"{fault} at {at:g}" if fault else ""
    return Probe(PLACE, at, ProbeResult.FAILED if fault else ProbeResult.ANSWERED, note, fault, **more)


def probes(*answered: bool, start: float = 0.0) -> list[Probe]:
    return [probe(start + at, None if one else Fault.TIMEOUT) for at, one in enumerate(answered)]


# ---- requests to real servers


def writes(*parts: bytes, pause: float = 0.0) -> Handle:
    """Return a handler that writes these parts, waits after each, and closes."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):  # the client has closed
            for part in parts:
                request.wfile.write(part)
                threading.Event().wait(pause)

    return handle


def probed(url: str, path: str = "/", **options: Any) -> Probe:
    """Probe the server of a URL."""
    place = url.removesuffix("/naans")
    return Prober(allow_private=True, **{"seconds": PATIENCE} | options).probe_one(place, place + path)


@pytest.mark.parametrize(
    ("contact", "agent"),
    [("https://ark.example.org", " (+https://ark.example.org)"), ("", ""), ("bücher@example.org", "")],
)
def test_the_request_is_a_head_that_says_who_asks(contact: str, agent: str) -> None:
    asked: list[tuple[str, Message]] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append((request.requestline, request.headers))
        sends(b"", 302, Location="http://127.0.0.1:1/")(request)

    with http_server(handle) as url:
        found = probed(url, "/ark:/12345/b6?info", contact=contact)
    assert (found.outcome, found.status, found.fault, found.note) == (ProbeResult.ANSWERED, 302, None, "")
    ((line, headers),) = asked
    assert line == "HEAD /ark:/12345/b6?info HTTP/1.1"
    assert (headers["User-Agent"], headers["Connection"]) == (f"maptr/{__version__}{agent}", "close")
    assert headers["Host"] == url.split("/")[2]


@pytest.mark.parametrize("status", [200, 204, 301, 401, 403, 404, 405, 410, 429, 499, 501, 500, 502, 503, 504, 599])
def test_a_status_below_500_or_501_is_an_answer(status: int) -> None:
    with http_server(writes(b"HTTP/1.1 %d x\r\n\r\n" % status)) as url:
        found = probed(url)
    is_answer = status < 500 or status == 501
    outcome, fault = (ProbeResult.ANSWERED, None) if is_answer else (ProbeResult.FAILED, Fault.SERVER_ERROR)
    assert (found.outcome, found.status, found.fault) == (outcome, status, fault)
    assert not is_offline([found, found]), "a response shows that the network works"


@pytest.mark.parametrize(
    ("handle", "fault"),
    [
        (writes(), Fault.NOT_HTTP),
        (holds(b"SSH-2.0-OpenSSH_9.6\r\n"), Fault.TIMEOUT),
        (writes(b"SSH-2.0-OpenSSH_9.6\r\n"), Fault.NOT_HTTP),
        (writes(b"HTTP/1.1 OK\r\n\r\n"), Fault.NOT_HTTP),
        (writes(b"x" * 1_000_000), Fault.NOT_HTTP),
        (holds(b""), Fault.TIMEOUT),
        (writes(*[b"y"] * 1500, pause=0.02), Fault.TIMEOUT),
    ],
)
def test_a_hostile_server_cannot_hold_a_probe(handle: Handle, fault: Fault) -> None:
    with http_server(handle) as url:
        found = probed(url, seconds=0.5 if fault is Fault.TIMEOUT else PATIENCE)
    assert (found.outcome, found.fault, found.status) == (ProbeResult.FAILED, fault, None)
    assert found.note


def test_endless_headers_are_not_read() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 50_000 + b"\r\n") as port:
        found = probed(f"http://127.0.0.1:{port}", seconds=PATIENCE)
    assert (found.outcome, found.status) == (ProbeResult.ANSWERED, 200)


def test_no_connection_and_no_address() -> None:
    assert probed(f"http://127.0.0.1:{free_port()}").fault is Fault.UNREACHABLE
    assert probed("http://no-such-host.invalid").fault is Fault.DNS


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a certificate that clients trust."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    return tmp_path


def nginx(folder: Path, port: int, location: str) -> Nginx:
    """nginx with TLS on a port, and a log of the requests there."""
    return Nginx(
        f"log_format probe '$request $http_user_agent';\nserver {{ listen 127.0.0.1:{port} ssl;\n"
        f"ssl_certificate {folder}/tls.crt; ssl_certificate_key {folder}/tls.key;\n"
        f"access_log {folder}/asked probe; location / {{ {location} }} }}\n"
    )


def test_nginx_with_tls_answers_and_shows_the_end_of_its_certificate(trusted: Path) -> None:
    write_certificate(trusted, hours=48)
    port, before = free_port(), time.time()
    with nginx(trusted, port, "return 302 https://elsewhere.example/;") as server:
        found = probed(f"https://127.0.0.1:{port}", "/ark:/12345/b6", contact="a@b.example")
        plain = probed(f"http://127.0.0.1:{server.port}")
        wrong = probed(f"https://127.0.0.1:{server.port}")
        lines = (trusted / "asked").read_text().splitlines()
    assert (found.outcome, found.status) == (ProbeResult.ANSWERED, 302), found
    assert found.certificate_end is not None
    assert before - 2 <= found.certificate_end - 48 * 3600 <= time.time()
    assert lines == [f"HEAD /ark:/12345/b6 HTTP/1.1 maptr/{__version__} (+a@b.example)"]
    assert (plain.outcome, plain.certificate_end) == (ProbeResult.ANSWERED, None)
    assert wrong.fault is Fault.TLS, "https to a port of http"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a failed handshake leaves its socket
def test_nginx_with_a_certificate_that_is_untrusted_or_expired(trusted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(trusted, hours=-1)
    port = free_port()
    with nginx(trusted, port, "return 200;"):
        assert probed(f"https://127.0.0.1:{port}").fault is Fault.EXPIRED
        monkeypatch.delenv("SSL_CERT_FILE")
        assert probed(f"https://127.0.0.1:{port}").fault is Fault.TLS


# ---- the log


@contextmanager
def log_at(path: Path, wall: Clock) -> Iterator[ProbeLog]:
    disk = Disk(path, wall=wall)
    yield ProbeLog(disk)
    disk.close()


def test_probes_are_kept_and_shared_between_processes(tmp_path: Path) -> None:
    wall, where = Clock(100.0), url.parse(PLACE)
    with log_at(tmp_path / "c.sqlite", wall) as log, log_at(tmp_path / "c.sqlite", wall) as other:
        assert log.all() == {}
        assert log.record([*probes(True, False, False), Probe("http://x", 0.0, ProbeResult.NOT_ASKED)])
        assert not log.is_suspect(where)
        assert log.record(probes(False, start=10.0))
        assert log.is_suspect(where)
        assert list(log.all()) == [PLACE] == [where.server]
        found = log.all()[PLACE]
        assert (found.failures, found.since, found.at, found.answered_at) == (3, 1.0, 10.0, 0.0)
        assert (found.fault, found.note) == (Fault.TIMEOUT, "timeout at 10")
        assert list(found.history) == [Period(1.0, 10.0, 3, Fault.TIMEOUT, "timeout at 10"), Period(0.0, 0.0, 1)]
        assert other.is_suspect(where)
        other.record(probes(True, start=20.0))
        assert not log.is_suspect(where)


def test_the_history_is_bounded(tmp_path: Path) -> None:
    start = 1000 * DAY
    wall = Clock(start + 2 * MAX_PERIODS)
    with log_at(tmp_path / "c.sqlite", wall) as log:
        log.record(probes(*[True, False] * MAX_PERIODS, start=start))
        periods = log.all()[PLACE].history
        assert [one.since - start for one in periods] == list(range(2 * MAX_PERIODS - 1, MAX_PERIODS - 1, -1))
        for day in range(1, 200):
            wall.now = start + day * DAY
            log.record([probe(wall.now)])
            assert len(log.all()[PLACE].history) == (MAX_PERIODS if day <= 90 else 1), "the present one is extended"
        (only,) = log.all()[PLACE].history
        assert (only.since, only.at, only.probes, only.fault) == (1001 * DAY, wall.now, 199, None)
        wall.now += KEPT_FOR + 1
        log.record([])
        assert log.all() == {}, "a server that is not probed for so long is forgotten"


def test_a_clock_that_is_wrong_for_a_time_loses_no_probes(tmp_path: Path) -> None:
    """Those of that time do not stay the last ones."""
    wall = Clock(900 * DAY)
    with log_at(tmp_path / "c.sqlite", wall) as log:
        log.record([probe(wall.now - 1), probe(wall.now, Fault.TIMEOUT)])
        before = log.all()
        for wrong in (0.0, 9_000 * DAY):
            wall.now = wrong
            log.record([probe(wrong), probe(wrong, Fault.DNS)])
        wall.now = 900 * DAY
        assert log.all() == before
        wall.now += DAY
        log.record([probe(wall.now, Fault.TLS)])
        found = log.all()[PLACE]
    assert (found.since, found.failures, found.fault, len(found.history)) == (900 * DAY, 2, Fault.TLS, 2)


def test_the_servers_that_were_probed_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.reconcile.probes.MAX_SERVERS", 2)
    with log_at(tmp_path / "c.sqlite", Clock(10.0)) as log:
        log.record([Probe(f"https://{at}.example", float(at), ProbeResult.ANSWERED) for at in (3, 1, 2)])
        assert set(log.all()) == {"https://3.example", "https://2.example"}


def test_the_fault_of_an_outage_is_that_of_its_last_probe(tmp_path: Path) -> None:
    with log_at(tmp_path / "c.sqlite", Clock(10.0)) as log:
        log.record([probe(1.0, Fault.DNS), probe(2.0, Fault.SERVER_ERROR, status=503)])
        found = log.all()[PLACE]
    assert (found.since, found.failures, found.fault, found.status) == (1.0, 2, Fault.SERVER_ERROR, 503)
    assert len(found.history) == 1


def test_a_fault_of_another_release_is_still_a_fault(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "cache.sqlite", wall=lambda: 10.0)
    assert ProbeLog(disk).record(probes(False))
    disk.run(lambda connection: connection.execute("UPDATE period SET fault = 'quic'"))
    found = ProbeLog(disk).all()[PLACE]
    assert (found.failures, found.fault) == (1, Fault.UNREACHABLE)
    disk.close()


def test_probes_of_two_processes_at_once_are_all_counted(tmp_path: Path) -> None:
    wall = Clock(1000.0)

    def record() -> None:
        with log_at(tmp_path / "c.sqlite", wall) as log:
            for _ in range(50):
                assert log.record([probe(wall.now)])

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with log_at(tmp_path / "c.sqlite", wall) as log:
        assert [one.probes for one in log.all()[PLACE].history] == [200]


def test_the_end_of_a_certificate_is_remembered_until_another_one_is_seen(tmp_path: Path) -> None:
    now, end = 1000 * DAY, 1010 * DAY
    with log_at(tmp_path / "c.sqlite", Clock(now + 1)) as log:
        log.record([probe(now, certificate_end=end), probe(now + 1, Fault.EXPIRED)])
        found = log.all()[PLACE]
        assert (found.certificate_end, found.fault) == (end, Fault.EXPIRED)
        assert found.certificate_ends_soon(now)
        assert not found.certificate_ends_soon(end - CERTIFICATE_WARNING)
        log.record([probe(now + 2, Fault.TIMEOUT)])
        assert not log.all()[PLACE].certificate_ends_soon(now), "it was not seen, and may be new"
        log.record([probe(now + 3, certificate_end=now + 60 * DAY)])
        assert not log.all()[PLACE].certificate_ends_soon(now)


def test_an_existing_cache_file_and_a_missing_folder(tmp_path: Path) -> None:
    Rig({}, path=tmp_path / "c.sqlite").sources.discover(ARK, Options(raise_on_none=False))
    assert ProbeLog(Disk(tmp_path / "c.sqlite", wall=Clock(1.0))).record(probes(True))
    nowhere = ProbeLog(Disk(tmp_path / "none" / "c.sqlite", wall=Clock(), own=True))
    assert not nowhere.record(probes(False, False, False))
    assert (nowhere.all(), nowhere.is_suspect(url.parse(PLACE))) == ({}, False)


def test_a_place_is_suspect_for_a_week() -> None:
    found = Liveness.of(PLACE, [Period(0.0, 2.0, SUSPECT_AFTER, Fault.DNS, "x")])
    assert (found.since, found.at) == (0.0, 2.0)
    assert found.is_suspect(TRUSTED_FOR)
    assert not found.is_suspect(TRUSTED_FOR + SUSPECT_AFTER)
    assert not found.is_suspect(-2 * TRUSTED_FOR), "the clock was wrong when the probes were sent"
    fewer = Liveness.of(PLACE, [Period(0.0, 2.0, SUSPECT_AFTER - 1, Fault.DNS, "x")])
    assert not fewer.is_suspect(3.0)


# ---- what is probed


def test_the_places_of_a_table() -> None:
    several = Table(
        [
            Entry("1000", nmas=(Nma("https://A.example:8443/x/${content}"), Nma("http://b.example/${value}"))),
            Entry("2000", nmas=(Nma("https://a.example:8443/y"), Nma("N/A"), Nma("ftp://c.example/"))),
        ]
    )
    assert servers_of(several) == {
        "https://a.example:8443": "https://a.example:8443/",
        "http://b.example": "http://b.example/",
    }
    assert list(servers_of(several, ["2000"])) == ["https://a.example:8443"]
    assert url.server_of("http://[2001:DB8::1]:80/x") == "http://[2001:db8::1]"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("ark:/12345/b6", "ark:/12345/b6"),
        ("see https://n2t.net/ark:/12345/b6", "ark:/12345/b6"),
        ("servicestatus", "ark:/12345/servicestatus"),
        ("bg/preview/x-y", "ark:/12345/bg/preview/xy"),
        # The first is the example of the registry's form.
        *((text, "") for text in ("ark:00000/x8rd9", "ark:YourNAAN/servicestatus", "https://example.org/health")),
        *((text, "") for text in ("${prefix}/${value}", "[MYNAAN]/000000", "brıq", "..", None, ["x"])),
    ],
)
def test_the_ark_for_tests_is_asked_if_it_is_one_of_the_record(text: object, asked: str) -> None:
    entry = Entry("12345", nmas=(Nma("https://a.example/ark:/${content}"),), extra={"test_identifier": text})
    other = Entry("12346", nmas=(Nma("https://a.example/${pid}"),))
    assert servers_of(Table([other, entry])) == {PLACE: f"{PLACE}/{asked}"}


def test_an_ark_for_tests_belongs_to_its_shoulder() -> None:
    nmas = (Nma("https://a.example/${suffix}"),)
    own, foreign = (Entry("12345", "x6", nmas, extra={"test_identifier": text}) for text in ("x6np1", "b6np1"))
    assert servers_of(Table([own])) == {PLACE: f"{PLACE}/np1"}
    assert servers_of(Table([foreign])) == {PLACE: f"{PLACE}/"}


class Network:
    """Host names with addresses, by default any with one, some of them dead, and a clock that ``sleep`` advances."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        addresses: dict[str, list[str]] | None = None,
        dead: Container[str] = (),
    ) -> None:
        self.addresses, self.dead = addresses, dead
        self.clock = Clock(0.0)
        self.asked: list[tuple[str, float]] = []
        self._lock = threading.Lock()
        monkeypatch.setattr("maptr.web.http.look_up", self.look_up)
        monkeypatch.setattr("maptr.web.http.head", self.head)

    def look_up(self, host: str, port: int, seconds: float) -> list[str]:
        if self.addresses is None:
            return ["93.184.216.34"]
        if host not in self.addresses:
            raise NmaError(f"{host}: no address", Fault.DNS)
        return self.addresses[host]

    def head(self, where: url.Url, seconds: float, **options: object) -> Head:
        with self._lock:
            self.asked.append((where.host.text, self.clock()))
        if where.host.text in self.dead:
            raise NmaError(f"{where.host.text}: refused")
        return Head(200, None)

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.clock.now += seconds

    def prober(self, **options: Any) -> Prober:
        return Prober(clock=self.clock, wall=Clock(7), sleep=self.sleep, **options)


def test_hosts_at_one_address_are_probed_in_turn_with_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, {f"h{number}.example": ["93.184.216.34"] for number in range(5)})
    found = list(network.prober().probe({f"https://h{n}.example": f"https://h{n}.example/" for n in range(5)}))
    assert [one.outcome for one in found] == [ProbeResult.ANSWERED] * 5
    times = [at for _, at in network.asked]
    assert [later - sooner for sooner, later in pairwise(times)] == [2.0] * 4


class Address(str):
    """An address that shows whether somebody still holds it."""

    __slots__ = ("__weakref__",)


def test_addresses_of_earlier_probes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    network, held = Network(monkeypatch, {}), weakref.WeakSet[Address]()
    prober = network.prober()
    for run in range(3):
        network.addresses = {f"h{number}.example": [Address(f"93.184.{run}.{number}")] for number in range(9)}
        held.update(each for [each] in network.addresses.values())  # type: ignore[misc]
        list(prober.probe({f"https://{host}": f"https://{host}/" for host in network.addresses}))
    network.addresses = {}
    network.sleep(60)
    assert held
    list(prober.probe({}))
    gc.collect()
    assert not held


def test_places_that_are_not_public_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"in.example": ["192.168.1.1"], "a.example": ["93.184.216.34"], "b.example": ["93.184.216.35"]}
    network = Network(monkeypatch, addresses, dead=("b.example",))
    expected = {
        "http://in.example": ProbeResult.NOT_ASKED,
        "http://127.0.0.1": ProbeResult.NOT_ASKED,
        "http://localhost": ProbeResult.NOT_ASKED,
        "https://a.example": ProbeResult.ANSWERED,
        "https://b.example": ProbeResult.FAILED,
        "http://none.example": ProbeResult.FAILED,
    }
    found = {one.place: one for one in network.prober().probe({place: f"{place}/" for place in expected})}
    assert {place: one.outcome for place, one in found.items()} == expected
    assert sorted(name for name, _ in network.asked) == ["a.example", "b.example"]
    assert found["http://in.example"].note == "192.168.1.1 is not a public address"
    assert (found["https://b.example"].note, found["https://b.example"].fault) == (
        "b.example: refused",
        Fault.UNREACHABLE,
    )
    assert found["http://none.example"].fault is Fault.DNS
    allowed = network.prober(allow_private=True)
    assert allowed.probe_one("http://in.example", "http://in.example/").outcome is ProbeResult.ANSWERED
    assert network.prober().probe_one("N/A", "N/A").outcome is ProbeResult.NOT_ASKED


def test_a_host_whose_address_becomes_private_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["93.184.216.34", "127.0.0.1"])
    monkeypatch.setattr("maptr.web.http.look_up", lambda *_: [next(answers)])
    found = Prober().probe_one(PLACE, f"{PLACE}/")
    assert (found.outcome, found.note) == (
        ProbeResult.FAILED,
        "a.example is refused: 127.0.0.1 is not a public address",
    )


def test_an_unexpected_exception_is_raised_and_stops_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    raised = threading.Event()

    def broken(host: str, port: int, seconds: float) -> list[str]:
        asked.append(host)
        assert len(asked) == 1 or raised.wait(PATIENCE)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("maptr.web.http.look_up", broken)
    with pytest.raises(ZeroDivisionError):
        list(Prober(concurrency=1).probe({f"https://h{n}.example": f"https://h{n}.example/" for n in range(5)}))
    raised.set()
    for thread in threading.enumerate():
        if thread.name == "maptr-probe":
            thread.join(PATIENCE)
    assert len(asked) <= 2
