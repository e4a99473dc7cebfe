"""``maptr serve`` as a process: start, reload, stop, ``--check-config``, and its errors."""

from __future__ import annotations

import os
import re
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dns.edns
import dns.message
import dns.query
import pytest
from click.testing import CliRunner, Result

from maptr import config as configuration
from maptr.cli.group import main
from maptr.cli.serve import serve
from maptr.errors import ConfigError, ZoneError
from maptr.protocol.names import parse
from maptr.server import state_folder, systemd
from maptr.server.state import ZoneSource
from maptr.server.zone_file import read_checked, read_zone
from tests.support.certificates import write_certificate
from tests.support.server_process import PATIENCE, Server, Start, address_of, zone_text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_logs_its_addresses_and_stops_cleanly(start: Start, zone_file: Path, number: int) -> None:
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0")
    port = server.ready()
    assert server.lines[0] == f"maptr: ready, serving 1 zone on 127.0.0.1:{port} (udp, tcp)"
    assert address_of("ns.ark.arpa.", port) == address_of("ns.ark.arpa.", port, "tcp") == "192.0.2.1"
    assert server.end(number) == 0
    assert server.lines[-1] == "maptr: stopped"


def test_the_server_stops_cleanly_with_open_connections(start: Start, zone_file: Path) -> None:
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0")
    port = server.ready()
    import socket

    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(b"\0")
        time.sleep(0.05)
        assert server.end() == 0
    assert not [line for line in server.lines if "rror" in line or "Traceback" in line]


def test_several_zones_and_addresses(start: Start, zone_file: Path) -> None:
    server = start(
        *("--zone", f"ark.arpa.={zone_file}", "--zone", f"test={zone_file}"),
        *("--listen", "127.0.0.1:0", "--listen", "[::1]:0"),
    )
    port = server.ready()
    assert re.fullmatch(
        rf"maptr: ready, serving 2 zones on 127\.0\.0\.1:{port}, \[::1\]:\d+ \(udp, tcp\)", server.lines[0]
    )
    assert address_of("ns.test.", port) == "192.0.2.1"


def test_sighup_swaps_a_good_zone_and_keeps_it_against_bad_ones(start: Start, zone_file: Path) -> None:
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0")
    port = server.ready()

    zone_file.write_text(zone_text(2, "192.0.2.2"))
    server.wait_for(r"zone ark\.arpa\. reloaded, serial 2 \(was 1\)", server.hang_up())
    assert address_of("ns.ark.arpa.", port) == "192.0.2.2"

    for text, reason in (
        (zone_text(3) + "ns A not-an-address\n", r"a zone\.txt:6: "),
        (
            zone_text(3) + "ns.other.test. A 192.0.2.3\n",
            r"a zone\.txt:6: error: ns\.other\.test\.: not-loaded: the owner is outside the zone",
        ),
        ("", r"a zone\.txt: "),
    ):
        zone_file.write_text(text)
        server.wait_for(r"zone ark\.arpa\. not reloaded, serial 2 stays: .*" + reason, server.hang_up())
        assert address_of("ns.ark.arpa.", port) == "192.0.2.2"
    zone_file.unlink()
    server.wait_for("not reloaded, serial 2 stays: .*No such file", server.hang_up())
    assert address_of("ns.ark.arpa.", port) == "192.0.2.2"

    zone_file.write_text(zone_text(4, "192.0.2.4"))
    server.wait_for(r"reloaded, serial 4 \(was 2\)", server.hang_up())
    assert address_of("ns.ark.arpa.", port) == "192.0.2.4"


def test_one_bad_zone_does_not_keep_the_other_from_reloading(start: Start, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for path in (good, bad):
        path.write_text(zone_text(1))
    server = start("--zone", f"good={good}", "--zone", f"bad={bad}", "--listen", "127.0.0.1:0")
    port = server.ready()
    good.write_text(zone_text(2, "192.0.2.2"))
    bad.write_text("nonsense")
    before = server.hang_up()
    server.wait_for(r"zone good\. reloaded", before)
    server.wait_for(r"zone bad\. not reloaded", before)
    time.sleep(0.1)
    assert (address_of("ns.good.", port), address_of("ns.bad.", port)) == ("192.0.2.2", "192.0.2.1")


def test_queries_are_answered_while_a_big_zone_loads(start: Start, zone_file: Path) -> None:
    many = "".join(f"n{i} A 192.0.2.{i % 250}\n" for i in range(20_000))
    server = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0")
    port = server.ready()
    zone_file.write_text(zone_text(2) + many)
    before = server.hang_up()
    slowest = asked = 0.0
    while not any("reloaded" in line for line in server.lines[before:]):
        started = time.monotonic()
        assert address_of("ns.ark.arpa.", port) == "192.0.2.1"
        slowest = max(slowest, time.monotonic() - started)
        asked += 1
    assert asked > 20
    assert slowest < 0.5


def test_tls_and_nsid(start: Start, zone_file: Path, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    server = start(
        *("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", "--nsid", "ns1"),
        *("--tls-listen", "127.0.0.1:0", "--tls-cert", f"{tmp_path}/tls.crt", "--tls-key", f"{tmp_path}/tls.key"),
    )
    port = int(server.wait_for(r"ready, .* \(udp, tcp\), 127\.0\.0\.1:(\d+) \(tls\)")[1])
    query = dns.message.make_query("ns.ark.arpa.", "A", options=[dns.edns.NSIDOption(b"")])

    def ask() -> dns.message.Message:
        return dns.query.tls(
            query,
            *("127.0.0.1", PATIENCE, port),
            ssl_context=ssl.create_default_context(cafile=f"{tmp_path}/tls.crt"),
            server_hostname="ns1.example",
        )

    assert [option.to_text() for option in ask().options] == ["NSID ns1"]
    write_certificate(tmp_path)
    server.wait_for(f"certificate reloaded from {tmp_path}/tls.crt", server.hang_up())
    assert ask().answer
    (tmp_path / "tls.key").unlink()
    server.wait_for("certificate not reloaded, the old one stays: .*tls.key: No such file", server.hang_up())
    assert ask().answer


# --- checks and refusals, in process where no socket is opened


def test_check_config_checks_the_certificate(zone_file: Path, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    zone = ["--zone", f"ark.arpa={zone_file}", "--tls-cert", f"{tmp_path}/tls.crt", "--tls-key", f"{tmp_path}/tls.key"]
    result = run(*zone, "--listen", "127.0.0.1:0", "--tls-listen", "[::1]:853", "--check-config")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "listen [::1]:853 (tls)"
    (tmp_path / "tls.crt").write_text("nonsense")
    for check in ([], ["--check-config"]):  # the first binds before it looks
        result = run(*zone, "--listen", "127.0.0.1:0", "--tls-listen", "[::1]:0", *check)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"maptr: {tmp_path}/tls.crt with {tmp_path}/tls.key: no usable pair: ")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(serve, list(arguments))


def test_check_config_prints_what_would_be_served(zone_file: Path) -> None:
    result = run("--zone", f"Ark.Arpa={zone_file}", "--listen", "[::1]:53", "--check-config")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"zone ark.arpa. serial 1, 3 names, from {zone_file}",
        "listen [::1]:53 (udp, tcp)",
    ]


def test_check_config_with_a_bad_zone_is_1_and_says_where(zone_file: Path) -> None:
    zone_file.write_text(zone_text(1) + "x A 1.2.3\n")
    result = run("--zone", f"ark.arpa={zone_file}", "--check-config")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"maptr: {zone_file}:6: ")
    assert not result.stdout


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('listen = ["127.0.0.1:53", "127.0.0.1:53"]', "serve.listen: 127.0.0.1:53 is given twice"),
        ('listen = ["[::1]:53"]\nmetrics = "[::1]:53"', "serve.metrics: [::1]:53 is given twice"),
        (f'control = "/{"x" * 107}"', "is longer than the 107 bytes that the path of a socket may have"),
        ('state = "a zone.txt"', "a zone.txt is not a directory"),
        ('state = "a zone.txt/state"', "a zone.txt is not a directory"),
        ('state = "new/state"', "cannot be written to by this user"),
    ],
)
def test_check_config_finds_addresses_and_paths_that_a_start_could_not_use(
    settings: str, reason: str, zone_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    config = tmp_path / "maptr.toml"
    config.write_text(f"[serve]\n{settings}\n")
    result = run("--config", str(config), "--zone", f"ark.arpa={zone_file}", "--check-config")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"{reason}\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("options", [["--check-config"], []])
def test_a_start_and_a_check_report_every_error(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "maptr.toml"
    file.write_text(
        '[serve]\nlisten = ["127.0.0.1:0"]\nlisen = []\nuser = "no-such-user"\n'
        '[[key]]\nname = "a"\nsecret_file = "none"\n[[key]]\nname = "b"\nsecret_file = "nor this"\n'
        '[[zone]]\nname = "a"\nfile = "x"\nserial = "date"\n'
    )
    result = run("--config", str(file), *options)
    lines = [line.removeprefix(f"maptr: {file}:").partition(": ")[0::2] for line in result.stderr.splitlines()]
    told = [(number, text.partition(":")[0]) for number, text in lines]
    assert told == [
        ("3", "serve.lisen"),
        ("4", "serve.user"),
        ("7", "key.secret_file"),
        ("10", "key.secret_file"),
        ("14", "zone.serial"),
    ]
    assert result.exit_code == 1


def test_check_config_names_a_missing_key_folder_but_no_missing_table(tmp_path: Path) -> None:
    config = tmp_path / "maptr.toml"
    config.write_text(
        '[serve]\nstate = "state"\n[table]\nfile = "naans"\nurl = "https://registry.example/naans.json"\n'
        '[[zone]]\nname = "ark.arpa"\nfile = "ark.arpa.zone"\ntable = "naans"\nkeys = "keys"\n'
    )
    for _ in "not pulled", "pulled":
        result = run("--config", str(config), "--check-config")
        assert (result.exit_code, result.stderr.startswith(f"maptr: {tmp_path}/keys: No such")) == (8, True)
        (tmp_path / "naans").write_bytes((Path(__file__).resolve().parents[2] / "zones" / "sample.natab").read_bytes())
    assert CliRunner().invoke(main, ["zone", "keys", "add", str(tmp_path / "keys")]).exit_code == 0
    assert run("--config", str(config), "--check-config").exit_code == 0
    (tmp_path / "naans").unlink()
    result = run("--config", str(config), "--check-config")
    assert (result.exit_code, result.stderr) == (0, f"maptr: zone ark.arpa.: {tmp_path}/naans is not pulled yet\n")


def test_check_config_accepts_a_state_folder_that_does_not_exist_yet(zone_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "maptr.toml"
    config.write_text('[serve]\nlisten = ["127.0.0.1:0", "127.0.0.1:0"]\nstate = "new/state"\n')  # any free ports
    assert run("--config", str(config), "--zone", f"ark.arpa={zone_file}", "--check-config").exit_code == 0
    assert not (tmp_path / "new").exists()


def test_a_state_folder_belongs_to_one_server(start: Start, zone_file: Path, tmp_path: Path) -> None:
    """Two would overwrite each other's serials; the lock goes with the process, also when that is killed."""
    options = ("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0", "--state", str(tmp_path))
    first = start(*options)
    first.ready()
    second = start(*options)
    assert second.process.wait(PATIENCE) == 1
    second.wait_for("is in use by another server: each needs its own")
    assert first.process.poll() is None
    first.end(signal.SIGKILL)
    start(*options).ready()


def test_a_read_only_state_folder_is_not_locked(tmp_path: Path) -> None:
    """The error is logged when a file is to be written; the zones are served."""
    file = tmp_path / "maptr.toml"
    file.write_text('[serve]\nstate = "state"\n')
    config = configuration.load(file, environment={})
    assert state_folder.lock(config) is None
    lock = tmp_path / "state" / state_folder.LOCK
    lock.parent.mkdir()
    lock.symlink_to("elsewhere")
    assert state_folder.lock(config) is None
    assert not (lock.parent / "elsewhere").exists()


def test_a_zone_given_twice_is_1(zone_file: Path) -> None:
    result = run("--zone", f"ark.arpa={zone_file}", "--zone", f"ARK.arpa.={zone_file}", "--check-config")
    assert (result.exit_code, result.stderr) == (1, "maptr: zone ark.arpa. is given twice\n")


def test_an_unreadable_file_is_8(tmp_path: Path) -> None:
    result = run("--zone", f"ark.arpa={tmp_path}/none", "--check-config")
    assert result.exit_code == 8
    assert result.stderr == f"maptr: {tmp_path}/none: No such file or directory\n"
    assert run("--zone", f"ark.arpa={tmp_path}", "--check-config").exit_code == 8


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--zone"),
        (["--zone", "ark.arpa"], "is not ORIGIN=FILE"),
        (["--zone", "=x"], "is not ORIGIN=FILE"),
        (["--zone", "a..b=x"], "is not a valid domain name: empty label"),
        (["--zone", "a=x", "--listen", "localhost:53"], "must be an IP address"),
        (["--zone", "a=x", "--listen", "127.0.0.1"], "is not HOST:PORT"),
        (["--zone", "a=x", "--tls-listen", "127.0.0.1:853"], "--tls-listen: needs serve.tls.certificate too"),
        (
            ["--zone", "a=x", "--tls-cert", "c", "--tls-key", "k"],
            "--tls-cert: has no effect: serve.tls.listen is empty",
        ),
        (["--zone", "a=x", "--nsid", "x" * 256], "--nsid: is longer than 255 bytes"),
    ],
)
def test_usage_errors_are_2_and_name_the_expected_form(arguments: list[str], reason: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())


def test_an_address_that_cannot_be_bound_is_1(start: Start, zone_file: Path) -> None:
    port = start("--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0").ready()
    second = start("--zone", f"ark.arpa={zone_file}", "--listen", f"127.0.0.1:{port}")
    assert second.process.wait(PATIENCE) == 1
    second.wait_for(rf"^maptr: .*cannot listen on 127\.0\.0\.1:{port}: Address already in use$")


# --- reading zone files


def read(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "z"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    read_zone(ZoneSource(parse("example"), path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"z: nothing at example\.|z: no SOA"),
        ("@ 60 NS ns\n", "z: no SOA at the origin"),
        ("@ 60 SOA ns h 1 2 3 4 5\n", "z: no NS at the origin"),
        (zone_text(1) + "other.test. A 192.0.2.1\n", r"z:6: the owner is outside the zone example\."),
        (zone_text(1) + "example.test. A 192.0.2.1\n", "z:6: the owner is outside"),
        (zone_text(1) + "ns CNAME x\n", "z:6: .*CNAME"),
        (zone_text(1) + "x CNAME y\nx CNAME z\n", "z:7: a second CNAME at x"),
        (zone_text(1) + "@ 60 SOA ns h 2 2 3 4 5\n", "z:6: a second SOA at example"),
        (zone_text(1) + "\n\nx A\n", "z:8: "),
        (zone_text(1) + "x A 192.0.2.1 (\n", "z:[67]: "),
        (zone_text(1) + "x CH A 192.0.2.1\n", "z:6: "),
        (zone_text(1) + "x BOGUS y\n", "z:6: near 'BOGUS': unknown RR type"),
        (zone_text(1) + "$GENERATE nonsense\n", "z:6: "),
        (zone_text(1) + "$GENERATE 0-4000000000 $ A 192.0.2.1\n", "z:6: its .GENERATE lines make more than 1000000"),
        (zone_text(1) + "$GENERATE 1-4 $ A 192.0.2.1\n$generate 1-2000000/2 $ A 192.0.2.1\n", "z:7: its .GENERATE"),
        (zone_text(1) + f"{'x' * 64} A 192.0.2.1\n", "z:6: "),
        (zone_text(1).encode() + b"x TXT \xff\n", "z"),
    ],
)
def test_bad_zone_files_are_refused_with_their_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(ZoneError, match=reason) as caught:
        read(tmp_path, text)
    assert caught.value.filename == str(tmp_path / "z")


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    included = tmp_path / "included"
    included.write_text("x A 192.0.2.1\nx A nonsense\n")
    with pytest.raises(ZoneError, match=rf"^{re.escape(str(included))}:2: "):
        read(tmp_path, zone_text(1) + f"$INCLUDE {included}\n")
    with pytest.raises(OSError, match="No such file"):
        read(tmp_path, zone_text(1) + f"$INCLUDE {os.fspath(tmp_path)}/none\n")


def test_a_file_that_includes_itself_ends(tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.write_text(f"$INCLUDE {again}\n")
    with pytest.raises(ZoneError, match=r"more than 16 levels of \$INCLUDE"):
        read(tmp_path, zone_text(1) + f"$INCLUDE {again}\n")


def test_generated_records_within_the_limit_are_served(tmp_path: Path) -> None:
    read(tmp_path, zone_text(1) + "$GENERATE 1-9 n$ A 192.0.2.1\n")


@pytest.mark.parametrize("how", ["the zone", "an included file"])
@pytest.mark.parametrize("what", ["a pipe", "a device"])
def test_endless_zone_files_are_refused(how: str, what: str, tmp_path: Path) -> None:
    """Otherwise a pipe would block every reload, and a link to /dev/zero would exhaust the memory of the server."""
    endless = tmp_path / "endless"
    if what == "a pipe":
        os.mkfifo(endless)
    else:
        endless.symlink_to("/dev/zero")
    zone = endless
    if how == "an included file":
        zone = tmp_path / "z"
        zone.write_text(zone_text(1) + f"$INCLUDE {endless}\n")
    told: list[str] = []

    def reading() -> None:
        try:
            read_checked(ZoneSource((b"example",), zone))
        except OSError as error:
            told.append(f"{error.filename}: {error.strerror}")

    thread = threading.Thread(target=reading, daemon=True)
    thread.start()
    thread.join(20)
    assert told == [f"{endless}: Is not a regular file"]


def test_a_zone_named_otherwise_than_in_its_file_is_reported_with_both_names(zone_file: Path) -> None:
    zone_file.write_text("$ORIGIN ark.arpa.\n" + zone_file.read_text())
    result = run("--zone", f"other.example={zone_file}", "--check-config")
    assert result.exit_code == 1
    assert "the SOA is that of ark.arpa., and the zone was to be other.example." in result.stderr


# --- signals while it starts

SLOW = """
import sys
from maptr.cli.group import main
from maptr.server import publisher

start = publisher.start

def slow(*arguments, **options):
    served = start(*arguments, **options)
    print("zones are read", file=sys.stderr, flush=True)
    sys.stdin.readline()
    return served

publisher.start = slow
main(sys.argv[1:], prog_name="maptr")
"""


class SlowServer(Server):
    """Has read its zones and answers nothing until ``go_on``."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"--zone=a.test={path}", "--listen=127.0.0.1:0", program=("-c", SLOW))
        self.wait_for("zones are read")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowServer]:
    (tmp_path / "zone").write_text(zone_text(1))
    server = SlowServer(tmp_path / "zone")
    yield server
    server.end()


def test_sighup_during_the_start_reloads_once_ready(slow: SlowServer, tmp_path: Path) -> None:
    """What changed since its zones were read is read then; it would have ended a process that has no handler yet."""
    (tmp_path / "zone").write_text(zone_text(2))
    slow.hang_up()
    slow.go_on()
    slow.wait_for(r"reloaded, serial 2 \(was 1\)")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_of_other_servers_do_not_end_it(slow: SlowServer, number: signal.Signals) -> None:
    slow.process.send_signal(number)
    slow.go_on()
    slow.wait_for(f"{number.name} is ignored")
    before = len(slow.lines)
    slow.process.send_signal(number)
    slow.wait_for(f"{number.name} is ignored", before)
    assert slow.end() == 0


def test_sigterm_during_the_start_ends_it_at_once(slow: SlowServer) -> None:
    assert slow.end() == -signal.SIGTERM


def test_signals_are_unblocked_at_the_end_of_the_context() -> None:
    def held() -> bool:
        return signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert not held()
    with systemd.signals_blocked():
        assert held()
        systemd.unblock_signals()
        assert not held()
    with pytest.raises(ConfigError), systemd.signals_blocked():
        raise ConfigError("a start that fails")
    assert not held()


# --- a setting of earlier versions


@pytest.mark.parametrize("workers", [1, 2])
def test_an_old_configuration_with_workers_starts_with_a_warning(workers: int, tmp_path: Path) -> None:
    (tmp_path / "zone").write_text(zone_text(1))
    config = tmp_path / "maptr.toml"
    zone = '[[zone]]\nname = "a.test"\nfile = "zone"\n'
    config.write_text(f'[serve]\nlisten = ["127.0.0.1:0"]\nworkers = {workers}\n{zone}')
    server = Server(f"--config={config}")
    try:
        assert dns.query.udp(dns.message.make_query("ns.a.test", "A"), "127.0.0.1", PATIENCE, server.ready()).answer
        assert any("serve.workers is ignored" in line for line in server.lines) is (workers == 2)
        config.write_text(f'[serve]\nlisten = ["127.0.0.1:0"]\n{zone}')
        (tmp_path / "zone").write_text(zone_text(2))
        server.hang_up()
        server.wait_for("reloaded, serial 2")
        assert server.end() == 0
    finally:
        server.end()
