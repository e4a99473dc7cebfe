"""The gateway as a service: readiness, reloads, signals, systemd, and the metrics of its page."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import pytest

from maptr import files
from maptr.cache import Policy
from maptr.client import Client
from maptr.config import parse
from maptr.errors import ConfigError
from maptr.gateway import service
from maptr.gateway.redirects import store
from maptr.gateway.service import Service
from maptr.registry import write_json
from maptr.registry.table import Table
from tests.support.caching import table
from tests.support.certificates import write_certificate
from tests.support.command_line import run
from tests.support.http_gateway import ConfiguredGateway, HttpClient, get, request, serving
from tests.support.scripted import Script, zone
from tests.support.scripted import serving as dns_serving
from tests.support.waiting import PATIENCE, until

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "log-and-metrics.md").read_text("utf-8").partition("## Metrics of maptr gateway")[2]
TABLE = table(("12345", "t.example"), ("54321", "u.example"))
ONE = "ark,url\nark:12345/one,https://one.example/\n"
TWO = "ark,url\nark:12345/one,https://two.example/\n"


def write(path: Path, text: str) -> Path:
    """Replace a file as a whole."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    return beside.replace(path)


def write_table(path: Path, content: Table = TABLE) -> Path:
    return write(path, write_json(content))


class ChangingDns:
    """A name server of one NAAN. It is silent for the names in ``silent``, and until ``gate`` is set."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or zone({"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']})
        self.silent: set[str] = set()
        self.gate: threading.Event | None = None
        self.calls = 0

    def __call__(self, query: dns.message.Message) -> dns.message.Message | None:
        self.calls += 1
        name = query.question[0].name.canonicalize().to_text()
        is_silent = name in self.silent or (self.gate is not None and not self.gate.is_set())
        return None if is_silent else self.script(query)


# ---- ready


@pytest.fixture(autouse=True)
def started_when_dns_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr(service, "FIRST_TEST", PATIENCE)


@contextmanager
def started(
    directory: Path,
    dns: ChangingDns | None = None,
    policy: Policy = "dns-first",
    *,
    natab: bool | Table = True,
    nameserver: str = "",
    lifetime: float = PATIENCE,
    cache: str = ":memory:",
    **settings: str,
) -> Iterator[int]:
    """The port of a service with a table file, over a scripted DNS."""
    content = TABLE if natab is True else natab
    table = write_table(directory / "naans.json", content) if content else None
    lines = "".join(f'{key} = "{value}"\n' for key, value in settings.items())
    config = parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\ndrift_every = 0\n{lines}')
    with dns_serving(dns or ChangingDns()) as port:
        servers = [nameserver or f"127.0.0.1#{port}"]
        client = Client(servers, table=table, cache=cache, policy=policy, lifetime=lifetime)
        made = Service(config, client, allow_private=False)
        with serving(made, client):
            yield made.bound[0].port


def ready(port: int) -> tuple[int, str]:
    reply = get(port, "/ready")
    lines = reply.body.decode().splitlines(keepends=True)
    return reply.status, "".join(line for line in lines if not line.startswith("source: "))


def test_ready_is_503_while_the_table_cannot_be_read(tmp_path: Path) -> None:
    with started(tmp_path, policy="natab-only") as port:
        assert ready(port) == (200, "ready\n")
        write(tmp_path / "naans.json", "{")
        until(lambda: ready(port)[0] == 503, "it is not ready")
        assert ready(port)[1].startswith("table: ")
        assert get(port, "/health").status == 200
        assert get(port, "/ark:54321/x").headers["location"] == "https://u.example/ark:/54321/x"
        write_table(tmp_path / "naans.json")
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")


def test_ready_is_503_without_any_source(tmp_path: Path) -> None:
    with started(tmp_path, policy="natab-only", natab=False) as port:
        assert ready(port) == (503, "table: there is none\n")


@pytest.mark.parametrize("policy", ["dns-first", "natab-first", "dns-only"])
def test_ready_is_503_while_dns_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, policy: Policy
) -> None:
    """Cached answers and the table do not hide that. Only the log names the server; clients may read the rest."""
    monkeypatch.setattr(service, "DNS_EVERY", 0.05)
    server = ChangingDns()
    with started(tmp_path, server, policy, lifetime=0.5) as port:
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")
        server.silent = {"99999.ark.arpa."}
        until(lambda: ready(port)[0] == 503, "silence")
        assert ready(port)[1].startswith("DNS: 99999.ark.arpa. NAPTR: no answer in time\n")
        assert get(port, "/ark:12345/x").status == 302
        server.silent = set()
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")
    silent = "DNS does not answer: 99999.ark.arpa. NAPTR: no answer in time (127.0.0.1#"
    assert caplog.text.count(silent) == 1
    caplog.clear()


def test_ready_is_503_if_no_server_can_be_asked(tmp_path: Path) -> None:
    with started(tmp_path, nameserver="nowhere.invalid") as port:
        assert ready(port)[0] == 503
        assert ready(port)[1].startswith("DNS: no server can be asked\n")


def test_ready_needs_a_table_if_the_origin_does_not_exist(tmp_path: Path) -> None:
    def nowhere_to_be_found(query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query)
        reply.set_rcode(dns.rcode.NXDOMAIN)
        return reply

    nowhere = ChangingDns(nowhere_to_be_found)
    with started(tmp_path, nowhere) as port:
        assert ready(port) == (200, "ready\n")
    with started(tmp_path, nowhere, natab=False) as port:
        assert ready(port)[0] == 503
        assert ready(port)[1] == "DNS: ark.arpa. does not exist there\n", "no advice for the command line"


def test_ready_names_the_sources(tmp_path: Path) -> None:
    redirects = write(tmp_path / "single.csv", ONE)
    with started(tmp_path, redirects=str(redirects)) as port:
        lines = get(port, "/ready").body.decode().splitlines()
        assert lines == ["ready", "source: DNS", "source: table of 2 records", "source: redirects of 1 ARKs"]
        assert json.loads(get(port, "/api/v1/naans/12345").body)["redirects"] == 1


@pytest.mark.parametrize("text", ["", ONE])
def test_nothing_new_makes_no_new_site(text: str, tmp_path: Path) -> None:
    """Pages and lists are made once for a site."""
    redirects = write(tmp_path / "single.csv", text) if text else ""
    client = Client(table=TABLE, policy="natab-only")
    made = Service(parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\nredirects = "{redirects}"\n'), client)
    with serving(made, client) as running:
        until(lambda: made.current.site.sources is not None, "the first look")
        site = made.current.site
        for _ in range(3):
            asyncio.run_coroutine_threadsafe(made.current.refresh(), running.loop).result(PATIENCE)
        assert made.current.site is site


def test_the_start_warns_if_the_host_header_decides(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "maptr.gateway")
    for listen, public_url, warned in (
        ("0.0.0.0:0", "", True),
        ("127.0.0.1:0", "", False),
        ("0.0.0.0:0", "https://gw.example", False),
    ):
        caplog.clear()
        client = Client(table=TABLE, policy="natab-only")
        config = parse(f'[gateway]\nlisten = ["{listen}"]\npublic_url = "{public_url}"\n')
        with serving(Service(config, client), client):
            until(lambda: any(line.startswith("ready") for line in caplog.messages), "it is ready")
            assert any("public_url is not set" in line for line in caplog.messages) is warned


def test_the_start_does_not_wait_long_for_a_silent_dns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_TEST", 0.05)
    server = ChangingDns()
    server.gate = threading.Event()
    with started(tmp_path, server) as port:
        assert ready(port) == (503, "DNS: not tested yet\n")
        server.gate.set()
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")


def test_ready_is_503_while_the_redirects_are_broken(tmp_path: Path) -> None:
    file = write(tmp_path / "single.csv", ONE)
    with started(tmp_path, redirects=str(file)) as port:
        assert get(port, "/ark:12345/one").headers["location"] == "https://one.example/"
        write(file, "ark,target\n")
        until(lambda: ready(port)[0] == 503, "it is not ready")
        assert ready(port)[1].startswith("redirects: single.csv:1: "), "without the folder"
        assert get(port, "/ark:12345/one").headers["location"] == "https://one.example/"
        write(file, TWO)
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")
        assert get(port, "/ark:12345/one").headers["location"] == "https://two.example/"


LEADING = table(("12345", "own.example"), ("54321", "u.example"), ("33333", "t.example"))


@pytest.mark.parametrize("damage", [None, b"", b"ark,target\n", b"SQLite format 3\0" + bytes(2000)])
def test_own_objects_that_cannot_be_read_do_not_stop_a_start(damage: bytes | None, tmp_path: Path) -> None:
    """ARKs of NAANs whose record leads here get 503, the others their answer."""
    file = tmp_path / "single.csv"
    if damage is not None:
        file.write_bytes(damage)
    own = "https://own.example"
    with started(tmp_path, policy="natab-only", natab=LEADING, redirects=str(file), public_url=own) as port:
        assert ready(port)[0] == 503
        assert ready(port)[1].startswith("redirects: single.csv:"), "without the folder"
        assert get(port, "/health").status == 200
        for target in ("/ark:12345/one", "/ark:12345/other?info", "/api/v1/discover?ark=ark:12345/one"):
            reply = get(port, target)
            assert (reply.status, reply.headers["retry-after"], reply.headers["cache-control"]) == (
                503,
                "10",
                "no-store",
            )
        assert get(port, "/ark:54321/x").headers["location"] == "https://u.example/ark:/54321/x"
        assert get(port, "/ark:77777/x").status == 404, "no NAAN of this gateway"
        assert get(port, "/status").status == get(port, "/").status == get(port, "/metrics").status == 200
        write(file, ONE)
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")
        assert get(port, "/ark:12345/one").headers["location"] == "https://one.example/"


def test_if_no_naan_of_the_lost_objects_is_known_any_ark_without_an_answer_may_be_one(tmp_path: Path) -> None:
    with started(tmp_path, policy="natab-only", redirects=str(tmp_path / "gone.sqlite")) as port:
        lines = get(port, "/api/v1/discover?ark=ark:77777/x&ark=ark:54321/x").body.splitlines()
        assert [json.loads(line)["error"] for line in lines] == [
            "the own objects of this gateway cannot be read now",
            None,
        ]
        for target in ("/ark:77777/x", "/?q=ark:77777/x", "/api/v1/discover?ark=ark:77777/x"):
            assert get(port, target).status == 503
        assert get(port, "/ark:54321/x").headers["location"] == "https://u.example/ark:/54321/x"


def test_the_naans_of_own_objects_are_remembered(tmp_path: Path) -> None:
    """The store is gone when the gateway starts again."""
    file, cache = imported(tmp_path), str(tmp_path / "cache.sqlite")
    with started(tmp_path, policy="natab-only", cache=cache, redirects=str(file)) as port:
        assert get(port, "/ark:12345/one").status == 302
    file.unlink()
    with started(tmp_path, policy="natab-only", cache=cache, redirects=str(file)) as port:
        assert get(port, "/ark:12345/one").status == 503
        assert get(port, "/ark:77777/x").status == 404
        imported(tmp_path)
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")
        assert get(port, "/ark:12345/one").headers["location"] == "https://one.example/"
        assert get(port, "/ark:12345/two").headers["location"] == "https://t.example/ark:/12345/two"


@pytest.mark.parametrize(
    "damage", [None, b"", ONE.encode()[:-3], b"ark,target\n", b"ark,url\nark:12345/x,https://h.org/\n"]
)
def test_a_start_serves_the_objects_of_the_last_run(damage: bytes | None, tmp_path: Path) -> None:
    """The CSV was lost, cut, or replaced by another one."""
    file, cache = write(tmp_path / "single.csv", ONE), str(tmp_path / "cache.sqlite")
    with started(tmp_path, policy="natab-only", cache=cache, redirects=str(file)) as port:
        assert get(port, "/ark:12345/one").status == 302
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    with started(tmp_path, policy="natab-only", cache=cache, redirects=str(file)) as port:
        assert get(port, "/ark:12345/one").headers["location"] == "https://one.example/"
        assert ready(port)[0] == 503
        assert ready(port)[1].startswith("redirects: single.csv")
        assert get(port, "/ark:12345/two").headers["location"] == "https://t.example/ark:/12345/two"
        write(file, TWO)
        until(lambda: ready(port) == (200, "ready\n"), "it is ready")
        assert get(port, "/ark:12345/one").headers["location"] == "https://two.example/"


def test_a_csv_that_lacks_objects_is_an_alarm_and_the_gateway_stays_ready(tmp_path: Path) -> None:
    rows = "".join(f"ark:12345/x{number},https://one.example/{number}\n" for number in range(9))
    file, cache = write(tmp_path / "single.csv", f"{ONE}{rows}"), str(tmp_path / "cache.sqlite")
    with started(tmp_path, policy="natab-only", cache=cache, redirects=str(file)) as port:
        write(file, f"ark,url\n{rows}")
        until(lambda: 'alarms{kind="redirects"} 1.0' in get(port, "/metrics").text, "it is an alarm")
        said = "redirects: single.csv: 1 ARKs missing from it are still served: ark:12345/one"
        assert said in get(port, "/status").text
        assert ready(port) == (200, "ready\n")
        assert get(port, "/ark:12345/one").status == 302
        (kept,) = tmp_path.glob("single-*.sqlite")
        run("redirects", "import", str(file), "-o", str(kept), "--remove", code=0)
        until(lambda: 'alarms{kind="redirects"} 0.0' in get(port, "/metrics").text, "a person has taken it out")
        assert get(port, "/ark:12345/one").headers["location"] == "https://t.example/ark:/12345/one"


def test_a_row_that_cannot_be_served_is_an_alarm(tmp_path: Path) -> None:
    file = imported(tmp_path)
    with started(tmp_path, policy="natab-only", redirects=str(file)) as port:
        with closing(sqlite3.connect(file)) as writer, writer:
            writer.execute("UPDATE redirects SET status = 200")
        until(lambda: get(port, "/ark:12345/one").status == 503, "it is a 503")
        until(lambda: "1 rows that get 503" in get(port, "/status").text, "it is an alarm")
        assert ready(port) == (200, "ready\n")
        run("redirects", "import", str(tmp_path / "plain.csv"), "-o", str(file), code=0)
        until(lambda: get(port, "/ark:12345/one").status == 302, "it is mended")
        until(lambda: json.loads(get(port, "/api/v1/status").body)["alarms"] == {}, "it has ended")


def test_a_single_change_is_live_at_once(tmp_path: Path) -> None:
    file = imported(tmp_path)
    with started(tmp_path, policy="natab-only", redirects=str(file)) as port:
        to_store = ("--store", str(file))
        run("redirects", "set", "ark:12345/one", "https://two.example/", *to_store, code=0)
        assert get(port, "/ark:12345/one").headers["location"] == "https://two.example/"
        run("redirects", "set", "ark:54321/x", "https://x.example/", *to_store, code=0)
        new = "https://x.example/"
        until(
            lambda: get(port, "/ark:54321/x").headers["location"] == new, "a NAAN without objects until now", seconds=60
        )
        run("redirects", "withdraw", "ark:12345/one", "--reason", "a test", *to_store, code=0)
        assert get(port, "/ark:12345/one").status == 410
        assert ready(port) == (200, "ready\n")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program has locked the database, also for readers."""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        yield


def imported(folder: Path) -> Path:
    """A database of own objects."""
    made = folder / "single.sqlite"
    plain = write(folder / "plain.csv", ONE)
    run("redirects", "import", str(plain), "-o", str(made), code=0)
    return made


def test_a_database_that_stays_locked_is_an_alarm_that_ends_with_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "LOCKED_LONG", 0.2)
    caplog.set_level("INFO", "maptr.gateway")
    file = imported(tmp_path)
    trouble = "redirects: single.sqlite: locked by another program, which fuser -v FILE names: end it"
    alarm = 'maptr_gateway_alarms{kind="redirects"} '
    with started(tmp_path, policy="natab-only", redirects=str(file)) as port:
        assert get(port, "/ark:12345/one").status == 302
        with locked(file):
            until(lambda: ready(port) == (503, f"{trouble}\n"), "it is an alarm")
            assert get(port, "/ark:12345/one").status == 503
            assert get(port, "/status").text.count(trouble) == 1
            status = json.loads(get(port, "/api/v1/status").body)
            assert status["alarms"] == {"redirects": trouble}
            metrics = get(port, "/metrics").text
            assert f"{alarm}1.0" in metrics
            assert re.search(r"^maptr_redirects_unavailable_total 1\.0$", metrics, re.MULTILINE)
        until(lambda: ready(port) == (200, "ready\n"), "it has ended")
        assert get(port, "/ark:12345/one").status == 302
        assert f"{alarm}0.0" in get(port, "/metrics").text
    lines = [line for line in caplog.messages if line.startswith(f"{file}:") and "fuser" in line]
    assert len(lines) == 1
    assert caplog.messages.count("alarm ended: redirects") == 1


def test_a_database_that_is_locked_at_the_start_is_read_soon_after(tmp_path: Path) -> None:
    file = imported(tmp_path)
    with ExitStack() as stack:
        with locked(file):
            own = "https://own.example"
            begun = started(tmp_path, policy="natab-only", natab=LEADING, redirects=str(file), public_url=own)
            port = stack.enter_context(begun)
            assert ready(port)[0] == 503
            assert get(port, "/ark:12345/one").status == 503
        began = time.monotonic()
        until(lambda: get(port, "/ark:12345/one").status == 302, "it is read", seconds=files.READ_EVERY / 2)
        assert time.monotonic() - began < files.READ_EVERY / 2


def test_a_stop_does_not_wait_for_a_comparison_with_dns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_TEST", 0.05)
    server = ChangingDns()
    server.gate = threading.Event()
    with dns_serving(server) as port:
        table = write_table(tmp_path / "naans.json")
        client = Client([f"127.0.0.1#{port}"], table=table, lifetime=4 * PATIENCE)
        made = Service(parse('[gateway]\nlisten = ["127.0.0.1:0"]\n'), client)
        made.bind()

        async def run() -> None:
            running = asyncio.create_task(made.run())
            await asyncio.to_thread(until, lambda: server.calls > 1, "the comparison")
            made.stop()
            await running
            await client.aclose()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        thread.join(PATIENCE)  # shorter than DNS is silent
        ended = not thread.is_alive()
        server.gate.set()
        thread.join()
    assert ended


# ---- the metrics of the page


def test_every_metric_is_on_the_page(tmp_path: Path) -> None:
    with started(tmp_path) as port:
        for target in ("/ark:12345/x", b"/\xff"):
            get(port, target)
        exposed = get(port, "/metrics").body.decode()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposed, re.MULTILINE))
    names = {name for name in families if not name.endswith("_created")}
    told = dict(re.findall(r"^(maptr_\w+)(?:{(.*)})?$", PAGE, re.MULTILINE))
    assert told.keys() == names
    for name, labels in told.items():
        sample = "_count" if families[name] == "histogram" else ""
        found = re.search(rf"^{name}{sample}(?:{{(.*)}})? ", exposed, re.MULTILINE)
        if found is not None:
            shown = [label.partition("=")[0] for label in (found[1] or "").split(",") if label]
            assert labels.split(",") == (shown or [""]), name


# ---- as a process


# A stop waits for a pause of all clients, and clients of a slow machine make longer pauses than it waits for.
PATIENT = f"""
import sys
from maptr.cli.group import main
from maptr.gateway import connections
connections.QUIET_TIMEOUT = connections.DRAIN_TIMEOUT = {PATIENCE}
main(sys.argv[1:], prog_name="maptr")
"""


class PatientGateway(ConfiguredGateway):
    def configure(self) -> list[str]:
        python, _, _, *words = super().configure()
        return [python, "-c", PATIENT, *words]


class Site:
    """A directory with a configuration, and the gateway that has it."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.config = directory / "maptr.toml"
        self.redirects = write(directory / "single.csv", ONE)
        write_table(directory / "naans.json")
        self._stack = stack
        self._dns = stack.enter_context(dns_serving(zone({"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']})))

    def configure(self, more: str = "", *, first: str = "", rate: int = 0, listen: str = "127.0.0.1:0") -> None:
        cache = f'[cache]\nnatab = "naans.json"\npath = ""\npatience = {PATIENCE}\n'
        gateway = f'[gateway]\nlisten = ["{listen}"]\nredirects = "single.csv"\nrate = {rate}\n{more}'
        write(self.config, first + gateway + cache)

    def start(self, *options: str) -> int:
        return self.launch(*options).ready()

    def launch(self, *options: str) -> ConfiguredGateway:
        servers = f"@127.0.0.1#{self._dns}"
        self.server = PatientGateway("--config", str(self.config), servers, *options)
        self._stack.callback(self.server.stop)
        self.server.launch()
        return self.server

    def reload(self, said: str = "^maptr: reloaded$") -> str:
        return self.server.wait_for(said, self.server.hang_up())[0]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def test_a_reload_takes_the_settings_and_keeps_the_connections(site: Site) -> None:
    site.configure()
    port = site.start()
    with HttpClient(port) as client:
        assert client.get("/ark:12345/x").headers["location"] == "https://h.example/ark:12345/x"
        assert client.get("/ark:77777/x").status == 404
        site.configure('root = "https://n2t.example"\naccess_log = true\n')
        site.reload()
        assert client.get("/ark:77777/x").headers["location"] == "https://n2t.example/ark:77777/x"
        site.server.wait_for(r'^maptr: 127\.0\.0\.1 "GET /ark:77777/x" 302 \d')
        site.configure("proxies = []\n", rate=1)
        site.reload()
        assert 429 in {client.get("/health").status for _ in range(10)}


def test_a_setting_that_needs_a_restart_is_compared_with_that_of_the_start(site: Site) -> None:
    site.configure()
    site.start()
    site.configure('drift_every = "2h"\n', listen="127.0.0.1:1")
    site.reload("gateway.listen was not changed: that needs a restart")
    site.server.wait_for("gateway.drift_every was not changed: that needs a restart")
    site.configure()
    before = site.server.hang_up()
    site.server.wait_for("^maptr: reloaded$", before)
    assert not [line for line in site.server.lines[before:] if "needs a restart" in line]


CERTIFICATE = 'certificate = "tls.crt"\nkey = "tls.key"\n'

HOUSE = f'{CERTIFICATE}logo = "logo.svg"\nmessages = "messages"\n[gateway.texts.de]\n'
GERMAN = REPOSITORY / "docs" / "recipes" / "messages" / "de.toml"


def logo(colour: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg"><rect fill="{colour}"/></svg>'


BAD: dict[str, tuple[Callable[[Site], object], str]] = {
    "not TOML": (lambda site: write(site.config, "[gateway]\nlisten = [\n"), r"maptr\.toml:\d: "),
    "an unknown key": (
        lambda site: site.configure("rats = 1\n" + CERTIFICATE),
        r"maptr\.toml:5: gateway\.rats: no such key",
    ),
    "a wrong value": (
        lambda site: site.configure("max_connections = 0\n" + CERTIFICATE),
        r"maptr\.toml:5: gateway\.max_connections: ",
    ),
    "no configuration": (lambda site: site.config.unlink(), r"maptr\.toml: No such file"),
    "redirects without a column": (lambda site: write(site.redirects, "ark,target\n"), r"single\.csv:1: "),
    "no redirects": (lambda site: site.redirects.unlink(), r"single\.csv: No such file"),
    "a bad certificate": (
        lambda site: write(site.directory / "tls.crt", "x"),
        r"maptr\.toml:5: gateway\.certificate: .*tls\.crt",
    ),
    "no key": (
        lambda site: (site.directory / "tls.key").unlink(),
        r"maptr\.toml:5: gateway\.certificate: .*tls\.key: No such file",
    ),
    "a bad logo": (
        lambda site: write(site.directory / "logo.svg", logo("red")[:-1]),
        r"maptr\.toml:7: gateway\.logo: .*logo\.svg: is an SVG that no browser shows",
    ),
    "no logo": (
        lambda site: (site.directory / "logo.svg").unlink(),
        r"maptr\.toml:7: gateway\.logo: .*logo\.svg: No such file",
    ),
    "a language that is half written": (
        lambda site: write(site.directory / "messages" / "de.toml", '"Find" = "Su'),
        r"messages/de\.toml:1: ",
    ),
    "no languages": (
        lambda site: (site.directory / "messages" / "de.toml").unlink(),
        r"maptr\.toml:8: gateway\.messages: .*messages: has no file of a language",
    ),
    "a text of nothing": (
        lambda site: site.configure(f'{HOUSE}Fnd = "x"\n'),
        r"maptr\.toml:10: gateway\.texts\.de\.Fnd: no such text; the nearest is \"Find\"",
    ),
}


def test_a_bad_reload_leaves_everything_as_it_is(site: Site) -> None:
    """One mistake after another; between two of them, a good configuration is taken."""
    certificate = site.directory / "tls.crt"
    write_certificate(site.directory)
    (site.directory / "messages").mkdir()

    def trusted() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificate))

    def put_right() -> None:
        write(site.directory / "logo.svg", logo("red"))
        write(site.directory / "messages" / "de.toml", GERMAN.read_text("utf-8"))
        write(site.redirects, ONE)
        site.configure(HOUSE)

    put_right()
    port = site.start()
    trusts = trusted()
    for number, (name, (spoil, said)) in enumerate(BAD.items(), 1):
        with HttpClient(port, tls=trusts) as client:
            spoil(site)
            assert re.search(said, site.reload("^maptr: not reloaded: .*")), name
            assert client.get("/ark:12345/one").headers["location"] == "https://one.example/", name
            assert client.get("/ark:12345/x").headers["location"] == "https://h.example/ark:12345/x", name
            assert client.get("/logo").text == logo("red"), name
            assert "Wohin führt ein ARK?" in client.get("/", "Accept-Language: de").text, name
            metrics = client.get("/metrics").body.decode()
            assert f'maptr_gateway_reloads_total{{result="refused"}} {number}.0' in metrics, name
        with HttpClient(port, tls=trusts) as client:
            assert client.get("/health").status == 200, name
        put_right()
        write_certificate(site.directory, f"other{number}.example")
        write(site.redirects, TWO)
        site.reload()
        trusts = trusted()
        with HttpClient(port, tls=trusts) as client:
            assert client.get("/ark:12345/one").headers["location"] == "https://two.example/", name
        write(site.redirects, ONE)
        site.reload()


def test_a_reload_takes_logo_colour_and_texts(site: Site) -> None:
    (site.directory / "messages").mkdir()
    write(site.directory / "logo", logo("red"))
    write(site.directory / "messages" / "de.toml", '"Find" = "Los"\n')
    site.configure('logo = "logo"\nmessages = "messages"\n')
    port = site.start()
    assert site.server.wait_for(r"de\.toml: not translated, and shown in English: .*, and \d+ more$")
    german = "Accept-Language: de"
    page = get(port, "/", german).text
    assert "<button>Los</button>" in page
    write(site.directory / "logo", logo("blue"))
    write(site.directory / "messages" / "nl.toml", GERMAN.read_text("utf-8"))
    site.configure('logo = "logo"\nmessages = "messages"\naccent = "#7a1f3d"\n[gateway.texts.de]\n"Find" = "Auf"\n')
    site.reload()
    assert get(port, "/logo").text == logo("blue")
    assert "--link: #7a1f3d" in get(port, "/style.css").text
    assert "<button>Auf</button>" in get(port, "/", german).text
    assert get(port, "/", "Accept-Language: nl").headers["content-language"] == "nl"
    changed = get(port, "/", german).text
    for url in (r"/logo\?\w+", r"/style\.css\?\w+"):
        assert re.findall(url, page) != re.findall(url, changed)
    site.configure()
    site.reload()
    assert get(port, "/logo").status == 404
    assert get(port, "/", german).headers["content-language"] == "en"


def test_the_end_of_the_certificate_is_an_alarm_a_metric_and_on_the_page(site: Site) -> None:
    now, day = float(int(time.time())), 86400.0
    write_certificate(site.directory, period=(now - 77 * day, now + 13 * day))
    trusts = ssl.create_default_context(cafile=str(site.directory / "tls.crt"))
    site.configure(CERTIFICATE)
    port = site.start()
    said = "tls.crt expires at .*, in 13 days; renew it, and load it by SIGHUP"
    site.server.wait_for(f"^maptr: the certificate of .*{said}$")
    with HttpClient(port, tls=trusts) as client:
        metrics = client.get("/metrics").text
        assert 'maptr_gateway_alarms{kind="certificate"} 1.0' in metrics
        assert (
            float(metrics.partition("\nmaptr_gateway_certificate_expiry_time_seconds ")[2].split()[0]) == now + 13 * day
        )
        assert "maptr_gateway_ready 1.0" in metrics  # it still answers
        assert re.search(said, client.get("/status").text)
    site.configure(f'{CERTIFICATE}certificate_warn_before = "12d"\n')
    site.reload()
    with HttpClient(port, tls=trusts) as client:
        assert 'maptr_gateway_alarms{kind="certificate"} 0.0' in client.get("/metrics").text
        assert "tls.crt" not in client.get("/status").text
    write_certificate(site.directory, period=(now - 77 * day, now - day))
    site.configure(CERTIFICATE)
    site.reload()
    site.server.wait_for(
        "^maptr: the certificate of .*tls.crt expired at .*: clients refuse it; renew it, and load it by SIGHUP$"
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        HttpClient(port, tls=trusts)
    site.server.wait_for("^maptr: TLS handshake with 127.0.0.1 failed: .*alert")


class Load:
    """Clients that send requests on open connections without a pause, until the server says that it closes one."""

    def __init__(self, port: int, count: int = 4) -> None:
        self.answered = 0
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(port, number)) for number in range(count)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        until(lambda: self.answered > 50 or self.faults, "the load")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, port: int, number: int) -> None:
        try:
            with HttpClient(port) as client:
                while not self._stop.is_set():
                    target = f"/ark:12345/{number}x{self.answered}?"
                    reply = client.get(target)
                    if reply.headers.get("location") != f"https://h.example{target}":
                        self.faults.append(str(reply))
                    self.answered += 1
                    if reply.headers.get("connection") == "close":
                        return
        except (OSError, EOFError) as error:
            self.faults.append(repr(error))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_no_request(site: Site, number: int) -> None:
    site.configure()
    port = site.start()
    with Load(port) as load:
        assert site.server.stop(number) == 0
    assert load.faults == []
    assert site.server.lines[-1] == "maptr: stopped"
    assert not [line for line in site.server.lines if "rror" in line or "Traceback" in line]
    with pytest.raises(ConnectionError):
        HttpClient(port)


def test_systemd_is_notified_of_ready_reload_and_stop(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        name = f"\0maptr-test-{time.monotonic_ns()}"
        notified.bind(name)
        notified.settimeout(PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name[1:]}")
        site.configure()
        port = site.start()
        assert notified.recv(1000) == b"READY=1"
        assert get(port, "/health").status == 200
        site.reload()
        assert notified.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert notified.recv(1000) == b"READY=1"
        assert site.server.stop() == 0
        assert notified.recv(1000) == b"STOPPING=1"


def test_the_log_in_json_has_the_members_of_each_request(site: Site) -> None:
    site.configure("access_log = true\n", first='[serve]\nlog_format = "json"\n')
    site.launch()
    port = int(site.server.wait_for(r"http://127\.0\.0\.1:(\d+)/")[1])
    reply = get(port, "/ark:12345/one?")
    line = json.loads(site.server.wait_for(r'^.*"target".*$')[0])
    assert line.keys() >= {"time", "level", "logger", "message", "seconds"}
    assert (line["client"], line["method"]) == ("127.0.0.1", "GET")
    assert (line["id"], line["target"], line["status"]) == (reply.headers["x-request-id"], "/ark:12345/one?", 302)


def test_an_address_that_cannot_be_bound_is_an_error_with_its_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f'[gateway]\nlisten = ["127.0.0.1:0", "127.0.0.1:{port}"]\n'
        config = parse(text, filename="maptr.toml")
        made = Service(config, Client(table=TABLE, policy="natab-only"))
        with pytest.raises(
            ConfigError, match=rf"^maptr\.toml:2: gateway\.listen: cannot listen on 127\.0\.0\.1:{port}: "
        ):
            made.bind()


def test_ipv6_and_several_addresses(tmp_path: Path) -> None:
    client = Client(table=TABLE, policy="natab-only")
    made = Service(parse('[gateway]\nlisten = ["127.0.0.1:0", "[::1]:0"]\n'), client)
    with serving(made, client), socket.create_connection(("::1", made.bound[1].port), PATIENCE) as sock:
        sock.sendall(request("/health", "Connection: close"))
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK")
        assert made.urls[1] == f"http://[::1]:{made.bound[1].port}/"
