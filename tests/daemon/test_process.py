"""``serve.user``: a server started as root binds its sockets, then reads files and answers as another user; and
threads."""

from __future__ import annotations

import asyncio
import gc
import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import pytest

from maptr import config as configuration
from maptr.config import Config
from maptr.daemon import process
from maptr.errors import ConfigError
from tests.support.command_line import run
from tests.support.server_process import Start, zone_text
from tests.support.waiting import until

NOBODY = "nobody"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a zone, which every user can read."""
    path = Path(tempfile.mkdtemp(prefix="maptr-user-"))
    path.chmod(0o755)
    (path / "ark.arpa.zone").write_text(zone_text(1))
    yield path
    shutil.rmtree(path)


def configure(folder: Path, *lines: str, listen: str = "127.0.0.1:0") -> Path:
    file = folder / "maptr.toml"
    zone = ['[[zone]]\nname = "ark.arpa."\nfile = "ark.arpa.zone"']
    file.write_text("\n".join([f'[serve]\nlisten = ["{listen}"]', *lines, *zone]))
    return file


@pytest.fixture
def public_python(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an interpreter that every user can run, with the packages of the current one."""
    interpreter = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin")
    if interpreter is None:
        pytest.skip("no interpreter of this version in /usr/bin, where every user can run it")
    root = Path(process.__file__).parent.parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{sysconfig.get_paths()['purelib']}")
    return interpreter


def refused(interpreter: str, file: Path) -> str:
    """Run a server that does not start, and return its error."""
    command = [interpreter, "-m", "maptr", "serve", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


@needs_root
def test_root_binds_port_53_and_the_user_answers_and_reloads(
    folder: Path, public_python: str, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.setattr(sys, "executable", public_python)
    monkeypatch.setenv("MAPTR_SERVE_USER", NOBODY)
    # An address that no other process uses.
    host = f"127.{os.getpid() >> 16 & 0x7F | 0x40}.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF}"
    settings = (f'user = "{NOBODY}"', 'state = "state"', 'control = "run/maptr.sock"', 'metrics = "127.0.0.1:0"')
    as_nobody = start("--config", str(configure(folder, *settings, listen=f"{host}:53")))
    as_nobody.wait_for(rf"ready, serving 1 zone on {host}:53")
    user = pwd.getpwnam(NOBODY)
    told = Path(f"/proc/{as_nobody.process.pid}/status").read_text()
    fields = dict(re.findall(r"(?m)^(\w+):\s*(.*?)\s*$", told))
    assert fields["Uid"].split() == [str(user.pw_uid)] * 4
    assert fields["Gid"].split() == [str(user.pw_gid)] * 4
    assert set(fields["Groups"].split()) == {str(group) for group in os.getgrouplist(NOBODY, user.pw_gid)}
    assert [int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")] == [0, 0, 0]
    for path in (folder / "state", folder / "state/.lock", folder / "run", folder / "run/maptr.sock"):
        assert (path.stat().st_uid, path.stat().st_mode & 0o077) == (user.pw_uid, 0), path
    assert dns.query.udp(dns.message.make_query("ark.arpa.", "SOA"), host, timeout=10).answer
    assert dns.query.tcp(dns.message.make_query("ark.arpa.", "SOA"), host, timeout=10).answer
    (folder / "ark.arpa.zone").write_text(zone_text(2))
    as_nobody.wait_for("serial 2", as_nobody.hang_up())
    as_nobody.stop()
    assert not (folder / "run/maptr.sock").exists()


@needs_root
@pytest.mark.parametrize(
    ("user", "uid", "gid"), [("54321", 54321, 54321), ("54321:54322", 54321, 54322), ("nobody:54322", None, 54322)]
)
def test_a_number_is_a_user_or_group_without_an_entry(
    user: str,
    uid: int | None,
    gid: int,
    folder: Path,
    public_python: str,
    monkeypatch: pytest.MonkeyPatch,
    start: Start,
) -> None:
    monkeypatch.setattr(sys, "executable", public_python)
    monkeypatch.setenv("MAPTR_SERVE_USER", user)
    server = start("--config", str(configure(folder)), "--user", user)
    server.ready()
    told = Path(f"/proc/{server.process.pid}/status").read_text()
    fields = dict(re.findall(r"(?m)^(\w+):\s*(.*?)\s*$", told))
    expected = pwd.getpwnam(NOBODY).pw_uid if uid is None else uid
    assert (fields["Uid"].split(), fields["Gid"].split()) == ([str(expected)] * 4, [str(gid)] * 4)
    assert set(fields["Groups"].split()) <= {str(gid), *map(str, os.getgrouplist(NOBODY, gid))}
    server.stop()


@pytest.mark.parametrize(("user", "found"), [("0", ("root", 0, 0)), ("7654321", ("7654321", 7654321, 7654321))])
def test_a_number_with_an_entry_has_its_name_and_group(user: str, found: tuple[str, int, int], folder: Path) -> None:
    assert process.user_of(configuration.load(configure(folder, f'user = "{user}"'))) == found


@needs_root
@pytest.mark.parametrize(
    ("user", "missing"),
    [
        ("4294967295", "user '4294967295'"),
        ("nouser", "user 'nouser'"),
        (r"\u0000", r"user '\x00'"),
        ("nobody:nogroup9", "group 'nogroup9'"),
        (r"nobody:\u0000", r"group '\x00'"),
    ],
)
def test_exit_code_1_for_a_user_that_does_not_exist(user: str, missing: str, folder: Path) -> None:
    file = configure(folder, f'user = "{user}"')
    assert refused(sys.executable, file) == f"maptr: {file}:3: serve.user: there is no {missing}\n"


@needs_root
@pytest.mark.parametrize("options", [(), ("--user", "root")])
def test_running_as_root_logs_a_warning_unless_configured(
    options: tuple[str, ...], start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAPTR_SERVE_USER", "")
    server = start("--config", str(configure(folder)), *options)
    server.ready()
    server.stop()
    warning = "running as root: set serve.user, or --user, to a user"
    assert any(warning in line for line in server.lines) is not bool(options)


def test_only_root_can_become_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration.load(configure(folder, f'user = "{NOBODY}"'))
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam(NOBODY).pw_uid)
    process.check_user(config)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match=r"maptr[.]toml:3: serve[.]user: only root can become nobody"):
        process.check_user(config)


def test_root_without_the_capability_gets_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens in a container without CAP_SETGID."""
    config = configuration.load(configure(folder, f'user = "{NOBODY}"'))
    user = process.user_of(config)
    assert user is not None

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "initgroups", refuse)
    with pytest.raises(ConfigError, match="cannot become nobody: Operation not permitted"):
        process.drop_privileges(config, user, listening=False)


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o755], ids=oct)
def test_a_state_folder_of_another_user_is_an_alarm_and_prevents_no_start(
    mode: int, folder: Path, public_python: str, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.setattr(sys, "executable", public_python)
    monkeypatch.setenv("MAPTR_SERVE_USER", NOBODY)
    state = folder / "state"
    state.mkdir(mode=mode)
    (state / "ark.arpa.serial").write_text('{"serial": 5, "digest": "x"}')
    (folder / "run").mkdir()
    shutil.chown(folder / "run", NOBODY)
    (folder / "run").chmod(0o755)
    file = configure(folder, f'user = "{NOBODY}"', 'state = "state"')
    file.write_text(f'{file.read_text()}\nserial = "increment"\n')
    server = start("--config", str(file))
    port = server.ready()
    reason = f"nothing can be kept for the next start: {state} cannot be written to by nobody: chown it"
    server.wait_for(f"^maptr: {re.escape(reason)}$")
    assert dns.query.udp(dns.message.make_query("ark.arpa.", "SOA"), "127.0.0.1", 10, port).answer
    assert (1, f"ALARM {reason}") == alarm(file)
    for each in (state, *state.iterdir()):
        shutil.chown(each, NOBODY)
    server.wait_for("", server.hang_up())
    until(lambda: alarm(file) == (0, ""), "no alarm")
    server.stop()


def alarm(file: Path) -> tuple[int, str]:
    """Return the exit code of the status, and its first alarm without its age."""
    done = run("status", "--config", file)
    first = next((line for line in done.stdout.splitlines() if line.startswith("ALARM ")), "")
    return done.exit_code, re.sub(r" \(.*\)$|, for .*$|, since .*$", "", first)


class Zone:
    """Stands for what a reload reads."""


def test_a_thread_that_fails_keeps_nothing_alive_and_does_not_hold_up_the_end() -> None:
    """A reload that ran out of memory otherwise keeps all zones that it has read, and the next one fails too."""
    found: list[tuple[weakref.ref[Zone], bool]] = []

    def fail() -> None:
        zone = Zone()
        found.append((weakref.ref(zone), threading.current_thread().daemon))
        raise MemoryError

    async def reload() -> None:
        with pytest.raises(MemoryError):
            await process.in_thread(fail)

    gc.disable()
    try:
        asyncio.run(reload())
        ((zone, is_daemon),) = found
        until(lambda: zone() is None, "the end of what was read")
    finally:
        gc.enable()
    assert is_daemon


def test_a_state_folder_whose_name_is_too_long_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="File name too long"):
        process._make_folder(Config(), tmp_path / ("x" * 300), process.User("x", os.getuid(), os.getgid()))
