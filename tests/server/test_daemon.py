"""``maptr serve`` as a process: start, reload, stop, ``--check-config``, and its errors."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from maptr import config as configuration
from maptr.server import publisher, state_folder
from maptr.server.reloader import Reloader
from tests.support import command_line
from tests.support.certificates import write_certificate
from tests.support.peers import Maptr
from tests.support.server_process import Site, Start, address_of, zone_text
from tests.support.waiting import PATIENCE


@pytest.fixture
def options(zone_file: Path) -> list[str]:
    return ["--zone", f"ark.arpa={zone_file}", "--listen", "127.0.0.1:0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_logs_its_addresses_and_stops_cleanly(start: Start, options: list[str], number: int) -> None:
    server = start(*options, "--zone", options[1].replace("ark.arpa", "test."), "--listen", "[::1]:0")
    port = server.ready()
    ready = rf"maptr: ready, serving 2 zones on 127\.0\.0\.1:{port}, \[::1\]:\d+ \(udp, tcp\)"
    assert re.fullmatch(ready, server.lines[0])
    assert address_of("ns.ark.arpa.", port) == address_of("ns.test.", port, "tcp") == "192.0.2.1"
    assert server.stop(number) == 0
    assert server.lines[-1] == "maptr: stopped"


# --- --check-config and refused starts, in this process


def test_check_config_checks_the_certificate(zone_file: Path, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    zone = ["--zone", f"ark.arpa={zone_file}", "--tls-cert", f"{tmp_path}/tls.crt", "--tls-key", f"{tmp_path}/tls.key"]
    result = run(*zone, "--listen", "127.0.0.1:0", "--tls-listen", "[::1]:853", "--check-config")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "listen [::1]:853 (tls)"
    (tmp_path / "tls.crt").write_text("nonsense")
    for check in ([], ["--check-config"]):
        result = run(*zone, "--listen", "127.0.0.1:0", "--tls-listen", "[::1]:0", *check)
        assert result.exit_code == 1
        named = f"maptr: --tls-cert: {tmp_path}/tls.crt with {tmp_path}/tls.key: no usable pair: one of them is not PEM"
        assert result.stderr.startswith(named)


run = partial(command_line.run, "serve")


@pytest.mark.parametrize(
    ("arguments", "text", "code", "said"),
    [
        (
            ["--zone", "Ark.Arpa=FILE", "--listen", "[::1]:53"],
            zone_text(1),
            0,
            "zone ark.arpa. serial 1, 3 names, from FILE\nlisten [::1]:53 (udp, tcp)\n",
        ),
        (
            ["--zone", "a=FILE", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
            zone_text(1),
            0,
            "zone a. serial 1, 3 names, from FILE\nlisten 127.0.0.1:0 (udp, tcp)\nlisten 127.0.0.1:0 (udp, tcp)\n",
        ),
        (["--zone", "ark.arpa=FILE"], zone_text(1) + "x A 1.2.3\n", 1, "maptr: FILE:6: "),
        (["--zone", "a=FILE", "--zone", "A.=FILE"], zone_text(1), 1, "maptr: --zone: a. is given twice\n"),
        (["--zone", "a=FILE/none"], zone_text(1), 8, "maptr: FILE/none: Not a directory\n"),
        (["--zone", "a=/"], zone_text(1), 8, "maptr: /: Is a directory\n"),
        (
            ["--zone", "other=FILE"],
            "$ORIGIN ark.arpa.\n" + zone_text(1),
            1,
            "maptr: FILE:3: error: ark.arpa.: not-loaded: the SOA belongs to ark.arpa., but the zone is other.",
        ),
    ],
)
def test_check_config_prints_zones_and_addresses_or_the_error(
    arguments: list[str], text: str, code: int, said: str, zone_file: Path
) -> None:
    zone_file.write_text(text)
    result = run(*(each.replace("FILE", str(zone_file)) for each in arguments), "--check-config")
    assert result.exit_code == code
    assert result.output.startswith(said.replace("FILE", str(zone_file)))
    assert bool(result.stdout) is (code == 0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('listen = ["127.0.0.1:53", "127.0.0.1:53"]', "serve.listen: 127.0.0.1:53 is given twice"),
        ('listen = ["[::1]:53"]\nmetrics = "[::1]:53"', "serve.metrics: [::1]:53 is given twice"),
        (f'control = "/{"x" * 107}"', "is longer than 107 bytes, the limit for the path of a socket"),
        ('state = "a zone.txt"', "a zone.txt is not a directory"),
        ('state = "a zone.txt/state"', "a zone.txt is not a directory"),
        ('state = "new/state"', "cannot be written to by this user"),
    ],
)
def test_check_config_reports_unusable_addresses_and_paths(
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
def test_start_and_check_config_report_every_error(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "maptr.toml"
    file.write_text(
        '[serve]\nlisten = ["127.0.0.1:0"]\nlisen = []\nuser = "no-such-user"\n'
        '[[key]]\nname = "a"\nsecret_file = "none"\n[[key]]\nname = "b"\nsecret_file = "nor this"\n'
        '[[zone]]\nname = "a"\nfile = "x"\nserial = "date"\nkeys = "k"\nsigning.lifetime = "1d"\n'
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
        ("15", "zone.keys"),
        ("16", "zone.signing"),
    ]
    assert result.exit_code == 1


def test_check_config_names_the_line_of_a_missing_key_folder_or_file(zone_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "maptr.toml"
    signed = f'[serve]\nstate = "state"\n[[zone]]\nname = "a"\nfile = "{zone_file}"\nkeys = "keys"\n'
    config.write_text(f'{signed}[[zone]]\nname = "b"\nfile = "b"\n')
    result = run("--config", str(config), "--check-config")
    missing = [(6, "zone.keys", "keys"), (9, "zone.file", "b")]
    said = [f"maptr: {config}:{line}: {key}: {tmp_path}/{name}: No such file" for line, key, name in missing]
    assert [line.partition(" or directory")[0] for line in result.stderr.splitlines()] == said
    assert result.exit_code == 8
    config.write_text(signed)
    assert command_line.run("zone", "keys", "add", tmp_path / "keys").exit_code == 0
    assert run("--config", str(config), "--check-config").exit_code == 0
    assert not (tmp_path / "state").exists()


def test_a_state_folder_is_locked_by_one_server(start: Start, options: list[str], tmp_path: Path) -> None:
    """Two servers would overwrite each other's serials. The lock ends with the process, even if that is killed."""
    options += ["--state", str(tmp_path)]
    first = start(*options)
    first.ready()
    second = start(*options)
    assert second.process.wait(PATIENCE) == 1
    second.wait_for("is in use by another server: each needs its own")
    assert first.process.poll() is None
    first.stop(signal.SIGKILL)
    start(*options).ready()


def test_a_read_only_state_folder_is_not_locked(tmp_path: Path) -> None:
    """A later write error is logged; the zones are served."""
    file = tmp_path / "maptr.toml"
    file.write_text('[serve]\nstate = "state"\n')
    config = configuration.load(file, environment={})
    assert state_folder.lock(config) is None
    lock = tmp_path / "state" / state_folder.LOCK
    lock.parent.mkdir()
    lock.symlink_to("elsewhere")
    assert state_folder.lock(config) is None
    assert not (lock.parent / "elsewhere").exists()


# --- signals during a start or reload

SLOW = """
import os, sys, time
from maptr.cli.group import main
from maptr.server import publisher

publish = publisher.publish

def slow(*arguments, **options):
    served = publish(*arguments, **options)
    print("zones are read", file=sys.stderr, flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    return served

publisher.publish = slow
main(sys.argv[1:], prog_name="maptr")
"""


class SlowMaptr(Maptr):
    """A server that reads its zones and then waits for the file ``go`` in its directory."""

    starts_at_once = False

    def configure(self) -> list[str]:
        if self.starts_at_once:
            (self.directory / "go").touch()
        python, _, _, *words = super().configure()
        return [python, "-c", SLOW, *words]


@pytest.fixture
def slow(zone_file: Path) -> Iterator[Maptr]:
    """Yield a server that has read its zones, but is not ready."""
    server = SlowMaptr({"a.test": zone_file}).launch()
    server.wait_for("zones are read")
    yield server
    server.stop()


def test_signals_during_the_start_are_handled_once_ready(slow: Maptr, zone_file: Path) -> None:
    """SIGHUP reads changed zones again; SIGUSR1 and SIGUSR2 do not end the server."""
    zone_file.write_text(zone_text(2))
    for number in signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2:
        slow.process.send_signal(number)
    (slow.directory / "go").touch()
    for line in r"reloaded, serial 2 \(was 1\)", "SIGUSR1 is ignored", "SIGUSR2 is ignored":
        slow.wait_for(line)
    before = len(slow.lines)
    slow.process.send_signal(signal.SIGUSR1)
    slow.wait_for("SIGUSR1 is ignored", before)
    assert slow.stop() == 0


def test_sigterm_during_the_start_ends_it_at_once(slow: Maptr) -> None:
    assert slow.stop() == -signal.SIGTERM


@pytest.mark.parametrize("place", [(publisher, "start"), (Reloader, "first_state")])
def test_a_start_that_is_interrupted_leaves_no_control_socket(
    place: tuple[object, str], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []

    def interrupt(*_: object, **__: object) -> None:
        made.append(site.socket.exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(*place, interrupt)
    assert command_line.run("serve", "--config", site.config).exit_code == 130
    assert (made, site.socket.exists()) == ([True], False)


def test_responses_that_the_server_is_not_ready_do_not_slow_down_its_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that loads the zones is not interrupted more often than Python does by default."""
    intervals: list[float] = []

    def interrupt(*_: object, **__: object) -> None:
        intervals.append(sys.getswitchinterval())
        raise KeyboardInterrupt

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        monkeypatch.setattr(publisher, "start", interrupt)
        assert command_line.run("serve", "--config", site.config).exit_code == 130
    finally:
        sys.setswitchinterval(before)
    assert intervals == [pytest.approx(0.005)]


def test_sigterm_during_a_long_reload_does_not_wait_for_it(zone_file: Path) -> None:
    server = SlowMaptr({"a.test": zone_file})
    server.starts_at_once = True
    with server:
        (server.directory / "go").unlink()
        zone_file.write_text(zone_text(2))
        server.wait_for("zones are read", server.hang_up())
        assert server.stop() == 0
        assert not any("reloaded" in line for line in server.lines)


# --- a setting from earlier versions


@pytest.mark.parametrize("workers", [1, 2])
def test_an_old_configuration_with_workers_starts_with_a_warning(workers: int, site: Site) -> None:
    site.configure(serve=f"workers = {workers}")
    assert address_of("ns.a.test.", site.start()) == "192.0.2.1"
    assert any("serve.workers: is no longer a setting: one process" in line for line in site.server.lines)
    site.configure()
    site.write_zone("a.test", zone_text(2))
    site.server.wait_for("reloaded, serial 2", site.server.hang_up())
