"""The control socket of a server process: its commands, refused requests and zones, and alarms."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.query
import dns.rcode
import dns.rrset
import pytest

from maptr import paths
from maptr.config import parse
from maptr.daemon import process
from maptr.errors import ConfigError
from maptr.server import control
from maptr.server.alarm import Alarm, AlarmKind, AlarmLog, Silence
from maptr.server.settings import silences_of
from maptr.transfer.acl import NotifyTarget
from tests.support.command_line import run
from tests.support.load import Load
from tests.support.registries import natab
from tests.support.running import converse
from tests.support.scripted import serving
from tests.support.server_process import Site, address_of, zone_text
from tests.support.waiting import PATIENCE, until


def run_command(site: Site, *arguments: str) -> tuple[int, str, str]:
    """Run a command, and return its exit code, stdout and stderr."""
    result = site.run(*arguments)
    return result.exit_code, result.stdout, result.stderr


def test_reload_and_status(site: Site) -> None:
    port = site.start()
    assert run_command(site, "reload") == (
        0,
        "zone a.test. unchanged, serial 1\nzone b.test. unchanged, serial 1\n",
        "",
    )
    site.write_zone("a.test", zone_text(2, "192.0.2.2"))
    assert run_command(site, "reload", "a.test") == (0, "zone a.test. reloaded, serial 2 (was 1)\n", "")
    assert address_of("ns.a.test.", port) == "192.0.2.2"

    assert run_command(site, "reload", "aa.test") == (
        1,
        "",
        "maptr: no zone aa.test. is served; the nearest is a.test.\n",
    )
    assert "is not a valid domain name" in site.run("reload", "a..test").stderr

    document = site.status()
    expected = {"schema": "maptr/1", "listen": [f"127.0.0.1:{port}"], "alarms": [], "queries": {"udp": {"NOERROR": 1}}}
    assert document.items() >= {**expected, "pid": site.server.process.pid}.items()
    assert isinstance(document["uptime"], float)
    assert site.zone("a.test.")["names"] == 3
    address_of("ns.a.test.", port, "tcp")
    address_of("no.a.test.", port)
    shown = site.run("status").stdout.splitlines()
    assert shown[1] == f"listening on 127.0.0.1:{port}"
    assert shown[2].startswith("zone a.test. serial 2, 3 names, loaded 20")
    assert shown[4:6] == ["queries by udp: 1 NOERROR, 1 NXDOMAIN", "queries by tcp: 1 NOERROR"]
    assert shown[6].endswith(" open, 1 accepted, 0 refused, 0 closed to make room")


# A function from the old serial to the zone's text (None: no file), the reason, and whether --force helps.
REFUSED: list[tuple[Callable[[int], str] | None, str, bool]] = [
    (lambda was: "nonsense\n", "a.test.zone:1: ", False),
    (lambda was: zone_text(was + 1) + "x DNAME y\na.x A 192.0.2.1\n", "below-dname", False),
    (lambda was: zone_text(was, "192.0.2.2"), "did not advance while the zone changed (1 RRset)", True),
    (lambda was: zone_text(was - 1, "192.0.2.2"), "went back from", True),
    (
        lambda was: zone_text(was + 1, "192.0.2.2").replace("12345", ";12345"),
        "it lost 1 of 3 names (33%, max_shrink is 30%)",
        True,
    ),
    (lambda was: zone_text(was + 1) + f"@ ZONEMD {was + 1} 1 1 {'0' * 96}\n", "its ZONEMD does not verify", False),
    (None, "No such file or directory", False),
]


def test_a_refused_zone_leaves_the_old_one(site: Site) -> None:
    """The command, its exit code, the log and the status show the reason; the other zone is reloaded."""
    port = site.start()
    for was, (text, reason, forced) in zip(itertools.count(1, 3), REFUSED, strict=False):
        site.write_zone("b.test", zone_text(was + 1, f"192.0.2.{was + 100}"))
        if text is None:
            (site.directory / "a.test.zone").unlink()
        else:
            site.write_zone("a.test", text(was))
        before = len(site.server.lines)
        code, data, message = run_command(site, "reload")
        assert (code, data.partition(" (was ")[0]) == (1, f"zone b.test. reloaded, serial {was + 1}")
        assert f"zone a.test. refused, still serving serial {was}: " in message
        assert reason in message
        site.server.wait_for(rf"zone a\.test\. was not reloaded, still serving serial {was}, published .*: ", before)
        assert reason in str(site.zone("a.test.")["error"])
        assert "\nALARM zone a.test. was not reloaded" in site.run("status").stdout
        (alarm,) = site.status()["alarms"]
        assert [line.endswith(alarm["text"]) for line in site.server.lines[before:]].count(True) == 1
        assert (address_of("ns.a.test.", port), address_of("ns.b.test.", port)) == ("192.0.2.1", f"192.0.2.{was + 100}")

        assert site.run("reload", "a.test", "--force").exit_code == (0 if forced else 1)
        assert address_of("ns.a.test.", port) == ("192.0.2.2" if forced else "192.0.2.1")

        site.write_zone("a.test", zone_text(was + 3))
        assert site.run("reload", "a.test").exit_code == 0
        assert (site.status()["alarms"], site.zone("a.test.")["error"]) == ([], "")
        site.server.wait_for(r"alarm ended after \d+ s: zone-refused a\.test\.$", before)


@pytest.mark.parametrize(("text", "reason"), [("nonsense", ":1: "), (None, ": No such file or directory")])
def test_a_bad_zone_at_the_start_is_servfail_while_others_are_served(site: Site, text: str | None, reason: str) -> None:
    if text is None:
        (site.directory / "a.test.zone").unlink()
    else:
        site.write_zone("a.test", text)
    port = site.start()
    site.server.wait_for(rf"^maptr: zone a\.test\. is not loaded, queries get SERVFAIL: .*a\.test\.zone{reason}")
    for name in ("a.test.", "x.a.test."):
        reply = dns.query.udp(dns.message.make_query(name, "A", use_edns=True), "127.0.0.1", PATIENCE, port)
        assert reply.rcode() == dns.rcode.SERVFAIL
        assert [option.code for option in reply.options if isinstance(option, dns.edns.EDEOption)] == [24]
    reply = dns.query.udp(dns.message.make_query("test.", "A"), "127.0.0.1", PATIENCE, port)
    assert reply.rcode() == dns.rcode.REFUSED
    assert address_of("ns.b.test.", port) == "192.0.2.1"
    assert "zone a.test. NOT LOADED" in site.run("status").stdout
    assert site.run("reload", "a.test").exit_code == 1
    site.write_zone("a.test", zone_text(1))
    assert run_command(site, "reload", "a.test") == (0, "zone a.test. loaded, serial 1\n", "")
    assert address_of("ns.a.test.", port) == "192.0.2.1"


def test_sighup_reads_the_configuration_again(site: Site) -> None:
    port = site.start()
    site.write_zone("c.test", zone_text(7))
    site.configure(zones=("b.test", "c.test"))
    before = site.server.hang_up()
    site.server.wait_for(r"zone a\.test\. removed", before)
    site.server.wait_for(r"zone c\.test\. loaded, serial 7", before)
    assert address_of("ns.c.test.", port) == "192.0.2.1"
    assert not address_of("ns.a.test.", port)


def test_a_bad_configuration_leaves_everything(site: Site) -> None:
    port = site.start()
    good = site.config.read_text()
    for serial, (settings, extra, reason) in enumerate(
        [
            ("nsid = 'a'\nlog_format = 'json'", "", "maptr.toml:4: serve.log_format: changed, which needs a restart"),
            ('silence = ["nonsense"]', "", "maptr.toml:3: serve.silence: 'nonsense' is not KIND"),
            ("listens = 1", "", "maptr.toml:3: serve.listens: no such key; the nearest is serve.listen"),
            ("tcp.idle_timeout = 3", "", "maptr.toml:3: serve.tcp: changed, which needs a restart"),
            ("state = 'state'", "", "serve.state: changed, which needs a restart; nothing was reloaded"),
            ("", "= nonsense", "maptr.toml:10: Invalid statement"),
        ],
        2,
    ):
        before = len(site.server.lines)
        site.write_zone("a.test", zone_text(serial, f"192.0.2.{serial}"))
        site.configure(extra, serve=settings)
        result = site.run("reload", "--control", str(site.socket))
        assert (result.exit_code, reason in result.stderr) == (1, True), reason
        site.server.wait_for("configuration not reloaded, keeping the old one: ", before)
        assert address_of("ns.a.test.", port) == f"192.0.2.{serial - 1}"
        status = json.loads(site.run("status", "--json", "--control", str(site.socket)).stdout)
        assert (reason in status["alarms"][0]["text"], status["alarms"][0]["kind"]) == (True, "config-refused")
        site.config.write_text(good)
        assert site.run("reload").exit_code == 0
        assert address_of("ns.a.test.", port) == f"192.0.2.{serial}"
        assert site.status()["alarms"] == []
    site.config.unlink()
    gone = site.run("reload", "--control", str(site.socket))
    assert (gone.exit_code, gone.stderr) == (1, f"maptr: {site.config}: No such file or directory\n")


def test_default_paths_of_the_control_socket(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site.start()
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("XDG_DATA_HOME", str(empty))
    monkeypatch.delenv("MAPTR_CONFIG", raising=False)
    system = tmp_path / "etc.toml"
    monkeypatch.setattr(paths, "SYSTEM_CONFIG", str(system))
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(empty / "none"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(site.directory))  # short enough for a socket
    result = run("status")
    runtime = site.directory / "maptr/maptr.sock"
    assert (result.exit_code, result.stderr) == (
        3,
        f"maptr: not running: none of maptr.toml, {system}, run/maptr.sock, {runtime}, {empty / 'none'} exists; "
        "a server without a configuration has a control socket only with --control\n",
    )
    runtime.parent.mkdir()
    runtime.symlink_to(site.socket)
    assert "zone a.test. serial" in run("status").stdout
    runtime.unlink()
    system.write_text(f"[serve]\ncontrol = '{site.socket}'\n")
    assert "zone a.test. serial" in run("status").stdout
    system.write_text(f"[serve]\n\ncontrol = '{empty}/no.sock'\n")
    result = run("reload")
    reason = f"there is no socket {empty}/no.sock, which {system}:3 names: no server runs with it"
    assert (result.exit_code, result.stderr) == (3, f"maptr: not running: {reason}\n")


def test_status_says_that_a_server_was_killed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
    (tmp_path / "maptr.toml").write_text("[serve]\ncontrol = 's'\n")
    result = run("status", "--config", tmp_path / "maptr.toml")
    assert (result.exit_code, "the server was killed" in result.stderr) == (3, True)


def secondaries_of(site: Site) -> list[dict[str, Any]]:
    zones = [zone for zone in site.status()["zones"] if zone["secondaries"]]
    return list(zones[0]["secondaries"])


def test_status_shows_the_serial_and_age_of_each_secondary(site: Site) -> None:
    def answer(query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.AA
        if query.opcode() == dns.opcode.QUERY:
            reply.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "SOA", ". . 77 1 2 3 4"))
        return reply

    with serving(answer) as port:
        site.configure(f"notify = ['127.0.0.1:{port}', '127.0.0.2:{port}']")  # a setting of the second zone
        site.start()
        site.server.wait_for(f"NOTIFY of zone .* to 127.0.0.1:{port}: done")
        until(lambda: secondaries_of(site)[0]["observed_serial"], "a serial was observed")
    shown = site.run("status").stdout
    observed = secondaries_of(site)[0]
    assert (observed["observed_serial"], observed["lags"], observed["observed_error"]) == (77, True, "")
    assert re.search(r"(?m)^    has serial 77, seen \d+ s ago, IS AHEAD$", shown)
    assert re.search(rf"(?m)^  secondary 127[.]0[.]0[.]1:{port} serial \d+, NOTIFY done, \d+ s ago$", shown)
    assert f"  secondary 127.0.0.2:{port} no serial acknowledged, NOTIFY pending" in shown


def test_exit_code_3_if_no_server_is_running(site: Site) -> None:
    for command in ("status", "reload"):
        code, _, message = run_command(site, command)
        assert (code, message[:20]) == (3, "maptr: not running: ")
    site.config.write_text("[serve]\ncontrol = ''\n")
    assert site.run("status").exit_code == 1
    site.config.unlink()
    assert site.run("status").exit_code == 8


def test_without_a_configuration_the_socket_needs_the_control_option(site: Site) -> None:
    zone = f"a.test={site.directory}/a.test.zone"
    site.launch("--zone", zone, "--listen", "127.0.0.1:0", "--control", str(site.socket)).ready()
    result = run("status", "--control", site.socket, "--json")
    assert json.loads(result.stdout)["config"] is None
    assert run("reload", "--control", site.socket).exit_code == 0
    site.launch("--zone", zone, "--listen", "127.0.0.1:0").ready()
    assert site.server.stop() == 0


# --- twenty reloads under load


def test_twenty_reloads_lose_no_query(site: Site) -> None:
    many = "".join(f"n{number} A 192.0.2.9\n" for number in range(10_000))
    site.write_zone("a.test", zone_text(1) + many)
    port = site.start()
    meanwhile = 0  # reloads during which a query was answered
    with Load(port) as load:
        for serial in range(2, 22):
            good = serial % 5 != 0
            text = zone_text(serial, f"192.0.2.{serial}") + many
            site.write_zone("a.test", text if good else text + "nonsense nonsense")
            before = load.asked
            assert site.run("reload", "a.test").exit_code == (0 if good else 1)
            meanwhile += load.asked > before
    assert load.faults == []
    assert meanwhile > 10
    assert site.zone("a.test.")["serial"] == 21


# --- the socket


def connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE)
    sock.connect(str(path))
    return sock


def test_the_socket_is_private_and_removed_at_the_end(site: Site) -> None:
    site.start()
    assert stat.S_IMODE(site.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(site.socket.parent.stat().st_mode) == 0o700
    assert site.server.stop() == 0
    assert not site.socket.exists()


def test_invalid_requests_get_an_error(site: Site) -> None:
    site.start()
    for request_line in (
        *(b"\n", b"x\n", b"[]\n", b'{"command": "no"}\n', b"[" * 4000 + b"\n", b"\xff\n"),
        *(b'{"command": "reload", "zone": 1}\n', b'{"command": "reload", "force": "yes"}\n'),
    ):
        reply = json.loads(converse(connected(site.socket), request_line, shut=True))
        assert set(reply) == {"error"}, request_line
    for octets in (b'{"command": "status"}', b"x" * 5000 + b"\n"):  # without a newline, and too long
        assert converse(connected(site.socket), octets, shut=True) == b""
    assert site.run("status").exit_code == 0


@pytest.mark.parametrize("words", [["status", "--json"], ["control", "zone-status", "--json"]])
@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        ({"error": "internal error; see the log"}, 10, "maptr: internal error; see the log\n"),
        ({"version": "9.0", "pid": 1, "zones": [{"zone": "a.", "file": "f", "serial": 1, "new": 1}], "new": {}}, 0, ""),
    ],
)
def test_an_error_and_a_newer_server_are_understood(
    words: list[str], reply: dict[str, Any], code: int, said: str, tmp_path: Path
) -> None:
    def serve() -> None:
        peer, _ = sock.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(json.dumps(reply).encode() + b"\n")

    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        sock.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        done = run(*words, "--control", tmp_path / "s")
        thread.join()
    assert (done.exit_code, done.stderr) == (code, said)


def test_a_second_server_on_the_same_socket_does_not_start(site: Site) -> None:
    site.start()
    second = site.launch("--config", str(site.config))
    assert second.process.wait(PATIENCE) == 1
    second.wait_for(r"serve\.control: another maptr listens on .*maptr\.sock")
    assert site.run("status").exit_code == 0


def test_a_path_that_cannot_be_bound_is_an_error(site: Site) -> None:
    site.socket.parent.mkdir()
    site.socket.write_text("precious")
    with pytest.raises(ConfigError, match="exists and is not a socket"):
        control.bind(site.socket)
    assert site.socket.read_text() == "precious"
    with pytest.raises(ConfigError, match="is longer than 107 bytes"):
        control.bind(site.directory / ("x" * 100) / "sock")
    with pytest.raises(ConfigError, match="cannot listen on"):
        control.bind(site.config / "sock")
    site.socket.parent.chmod(0o777)
    site.socket.unlink()
    with pytest.raises(ConfigError, match="other users may write to"):
        control.bind(site.socket)


# --- systemd


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified(site: Site, abstract: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"maptr-test-{os.getpid()}" if abstract else str(site.directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE)
        sock.bind(f"\0{name}" if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        site.start()
        assert sock.recv(1000) == b"READY=1"
        assert site.run("reload").exit_code == 0
        assert sock.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert sock.recv(1000) == b"READY=1"
        site.server.stop(signal.SIGTERM)
        assert sock.recv(1000) == b"STOPPING=1"


@pytest.mark.parametrize("path", ["", "relative", "/nonexistent/notify"])
def test_notify_without_systemd_returns_false(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    assert not process.notify(process.READY)


# --- maptr control, and alarms with their age, or silenced

LAGS = Alarm(AlarmKind.SECONDARY_BEHIND, "it lags", "a.test.", "192.0.2.1:53 key:xfr.")
SERVED = {"a.test.": tuple(map(NotifyTarget.from_text, ("192.0.2.1 key:xfr", "192.0.2.2"))), "b.test.": ()}


def test_an_alarm_is_dated_once_and_has_its_first_time() -> None:
    log = AlarmLog()
    assert log.dated([LAGS, LAGS], 100.0) == (Alarm(LAGS.kind, "it lags", LAGS.zone, LAGS.secondary, 100.0),)
    later = Alarm(LAGS.kind, "it lags more", LAGS.zone, LAGS.secondary)
    assert [(alarm.text, alarm.since) for alarm in log.dated([later], 200.0)] == [("it lags more", 100.0)]
    assert log.dated([], 300.0) == ()
    assert log.dated([LAGS], 400.0)[0].since == 400.0, "it had gone"
    assert log.dated([replace(LAGS, since=50.0)], 500.0)[0].since == 50.0, "since when the secondary lags"


@pytest.mark.parametrize(
    ("text", "covers"),
    [
        ("secondary-behind", True),
        ("secondary-behind A.TEST", True),
        ("secondary-behind a.test. 192.0.2.1:53", True),
        ("secondary-behind a.test 192.0.2.1", True),
        ("secondary-behind a.test 192.0.2.1 key:xfr", True),
        ("secondary-behind b.test", False),
        ("secondary-behind a.test 192.0.2.2:53", False),
        ("drift", False),
    ],
)
def test_a_silence_covers_a_kind_a_zone_or_a_secondary(text: str, covers: bool) -> None:
    assert Silence.parse(text, SERVED).covers(LAGS) is covers


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not KIND"),
        ("nonsense", "is not KIND"),
        ("drift a..b", "empty label"),
        ("secondary-behind c.test", r"no zone c\.test\. is served; the nearest is b\.test\."),
        ("secondary-behind a.test 192.0.2.9", r"192\.0\.2\.9:53 is not in the notify of zone a\.test\."),
        ("secondary-behind a.test 192.0.2.1:54", "is not in the notify"),
        ("secondary-behind a.test 192.0.2.1 key:other", "is not in the notify"),
        ("secondary-behind a.test 192.0.2.1 xfr", "is not HOST"),
    ],
)
def test_a_silence_of_an_alarm_that_cannot_be_raised_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Silence.parse(text, SERVED)
    with pytest.raises(ConfigError, match=r"^line 2: serve\.silence"):
        silences_of(parse(f'[serve]\nsilence = ["{text}"]\n'))


def test_the_catalog_has_secondaries_that_can_be_silenced() -> None:
    catalog = '[serve.catalog]\nname = "catalog.invalid"\nnotify = ["192.0.2.1"]\n'
    (found,) = silences_of(parse(f'[serve]\nsilence = ["notify-given-up catalog.invalid 192.0.2.1"]\n{catalog}'))
    assert found.covers(Alarm(AlarmKind.NOTIFY_GIVEN_UP, "", "catalog.invalid.", "192.0.2.1:53"))


def test_pull_notify_and_zone_status(site: Site) -> None:
    source, table = site.directory / "source", site.directory / "table"
    source.write_bytes(natab(10000, 10001))
    extra = 'notify = ["127.0.0.1:9"]\n'
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # a pull does not wait for the drift of such a server
    silent.bind(("127.0.0.1", 0))
    site.stack.enter_context(silent)
    drift = f'drift = ["127.0.0.1#{silent.getsockname()[1]}"]\n'
    pulled = f'[table]\nfile = "{table}"\nurl = "{source}"\nevery = "1h"\n{drift}'
    catalog = 'catalog = { name = "catalog.invalid", notify = ["127.0.0.1:10"] }\n'
    site.configure(f"{extra}{pulled}", serve=f'silence = ["notify-given-up"]\n{catalog}')
    site.start()
    until(table.exists, "the first pull")
    assert site.run("control", "pull").stdout == f"table {table} up to date, from {source}\n"
    source.write_bytes(natab(10000, 10001, 10002))
    assert site.run("control", "pull").stdout == f"table {table} changed, from {source}\n"
    assert b"10002" in table.read_bytes()
    of_catalog = "NOTIFY catalog.invalid. 127.0.0.1:10\n"
    assert site.run("control", "notify").stdout == f"NOTIFY b.test. 127.0.0.1:9\n{of_catalog}"
    assert site.run("control", "notify", "Catalog.Invalid").stdout == of_catalog
    of_it = site.run("control", "zone-status", "Catalog.Invalid").stdout
    assert of_it.startswith("catalog catalog.invalid. serial ")
    assert "\n  secondary 127.0.0.1:10 " in of_it.partition("ALARM")[0]
    assert of_it.splitlines()[0] in site.run("status").stdout
    assert site.run("control", "notify", "a.test").stdout == "there is no secondary to notify\n"
    missing = site.run("control", "notify", "c.test")
    assert (missing.exit_code, "no zone c.test. is served" in missing.stderr) == (1, True)
    assert json.loads(site.run("control", "notify", "b.test", "--json").stdout)["notified"] == ["b.test. 127.0.0.1:9"]
    assert site.run("control", "sign").stdout == "no signature is due\n"
    assert site.run("control", "pull", "a.test").exit_code == 2
    shown = site.run("control", "zone-status", "A.test.")
    assert (shown.exit_code, shown.stdout.startswith("zone a.test. serial 1, ")) == (0, True)
    assert "b.test" not in shown.stdout
    assert [zone["zone"] for zone in json.loads(site.run("control", "zone-status", "--json").stdout)["zones"]] == [
        "a.test.",
        "b.test.",
    ]
    assert site.run("control", "zone-status", "x.test").exit_code == 1


def test_pull_fails_while_the_zone_is_refused(site: Site) -> None:
    source, more = site.directory / "source", site.directory / "more"
    source.write_bytes(natab(10000))
    more.write_text("")
    zone = f'[[zone]]\nname = "c.test"\nfile = "c.zone"\ntable = "table"\ninclude = ["{more}"]\n'
    site.configure(f'{zone}[table]\nfile = "table"\nurl = "{source}"\nevery = "1h"\n')
    site.start()
    until(lambda: site.status()["table"]["checked"], "the first pull of the running server")
    serial = site.zone("c.test.")["serial"]
    table = f"table {site.directory}/table"
    more.write_text("nonsense")
    source.write_bytes(natab(10000, 10001))
    refused = f"zone c.test. refused, still serving serial {serial}: {more}:1: "
    for state in ("changed", "up to date"):
        done = site.run("control", "pull")
        assert (done.exit_code, done.stdout) == (1, f"{table} {state}, from {source}\n")
        assert done.stderr.startswith(refused)
    (site.directory / "a.test.zone").write_text("nonsense")  # a zone that is not built from the table
    assert site.run("reload", "a.test").exit_code == 1
    (zone_result,) = json.loads(site.run("control", "pull", "--json").stdout)["zones"]
    assert (zone_result["zone"], zone_result["result"]) == ("c.test.", "refused")
    more.write_text("")
    source.write_bytes(natab(10000, 10001, 10002))
    done = site.run("control", "pull")
    assert (done.exit_code, "zone c.test. reloaded" in done.stdout) == (0, True)
    assert json.loads(site.run("control", "pull", "--json").stdout)["zones"] == []
    source.unlink()
    assert (site.run("control", "pull").exit_code, "No such file" in site.run("control", "pull").stderr) == (1, True)


def test_sign_fails_while_a_zone_cannot_be_signed(site: Site) -> None:
    keys = site.directory / "keys"
    assert run("zone", "keys", "add", keys).exit_code == 0
    site.configure(
        f'[[zone]]\nname = "c.test"\nfile = "a.test.zone"\nkeys = "{keys}"\n', serve='state = "state"', zones=()
    )
    site.start()
    assert site.run("control", "sign").stdout == "no signature is due\n"
    assert "no table is pulled" in site.run("control", "pull").stderr
    (key,) = keys.iterdir()
    lost = key.rename(site.directory / "lost")
    for _ in "again":
        done = site.run("control", "sign")
        assert (done.exit_code, "zone c.test. refused" in done.stderr) == (1, True)
    lost.rename(key)
    assert site.run("control", "sign").exit_code == 0
    assert site.status()["alarms"] == [], "signed now, or because the signer itself saw the key"


def test_status_has_the_age_of_an_alarm_and_those_that_are_silenced(site: Site) -> None:
    site.start()
    site.write_zone("a.test", "nonsense")
    assert site.run("reload").exit_code == 1
    (alarm,) = site.status()["alarms"]
    assert (alarm["kind"], alarm["since"].endswith("Z")) == ("zone-refused", True)
    assert "was not reloaded" in site.run("status").stdout
    assert " (for " in site.run("status").stdout
    refused = site.run("control", "zone-status", "a.test")
    assert (refused.exit_code, "ALARM zone a.test. was not reloaded" in refused.stdout) == (1, True)
    (shown,) = json.loads(site.run("control", "zone-status", "a.test", "--json").stdout)["alarms"]
    assert shown == alarm
    assert site.run("control", "zone-status", "b.test").exit_code == 0
    site.configure(serve='silence = ["zone-refused a.test"]')
    site.run("reload")
    found = site.status()
    assert (found["alarms"], [one["kind"] for one in found["silenced"]]) == ([], ["zone-refused"])
    assert site.run("status").exit_code == 0
    assert "silenced zone a.test." in site.run("status").stdout
    silenced = site.run("control", "zone-status", "a.test")
    assert (silenced.exit_code, "silenced zone a.test." in silenced.stdout) == (0, True)
