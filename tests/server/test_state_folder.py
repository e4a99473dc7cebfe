"""The state folder: stored serials, and a server restored from a backup."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dns.dnssec
import dns.message
import dns.name
import dns.query
import dns.rrset
import pytest

from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.protocol.names import fold, parse
from maptr.server import state_folder
from maptr.zone.diff import Published
from tests.support.command_line import run
from tests.support.peers import Maptr
from tests.support.server_process import Site, zone_text
from tests.support.waiting import until
from tests.support.zone_site import ZoneSite


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_serials_continue_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    site = ZoneSite(ZoneConfig(fold(parse("ark.arpa")), tmp_path / "z", serial="increment", state=state), now=0.0)

    def write(more: str = "") -> None:
        site.zone.file.write_text(f"$TTL 60\n@ SOA ns host 7 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{more}")

    write()
    site.start()
    for number in (8, 9):
        write(f"a A 192.0.2.{number}\n")
        assert (site.reload().result, site.serial) == ("reloaded", number)
    assert site.reload().result == "unchanged"
    site.start()
    assert site.serial == 9
    write("a A 192.0.2.77\n")
    site.start()
    assert site.serial == 10, "changed while no server ran"
    write("a A 192.0.2.78\n")
    with monkeypatch.context() as patch:
        patch.setattr(state_folder, "write_private", full)
        site.start()
    assert (site.reload().result, site.serial) == ("unchanged", 11)
    write("a A 192.0.2.79\n")
    site.start()
    assert site.serial == 12, "the disk was full at the start before"
    assert sorted(file.name for file in state.iterdir()) == ["ark.arpa.kept", "ark.arpa.serial"]


def test_a_serial_is_on_disk_before_it_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr("os.fsync", lambda handle: flushed.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    state_folder.write_serial(tmp_path, parse("ark.arpa"), Published(1, "x"))
    assert flushed == [".ark.arpa.serial.new", tmp_path.name]


@pytest.mark.parametrize(
    "record", ["", "{", "[]", "[" * 4096, '{"serial": -1, "digest": ""}', '{"serial": true, "digest": ""}', "\xff"]
)
def test_a_damaged_serial_file_is_ignored(tmp_path: Path, record: str, caplog: pytest.LogCaptureFixture) -> None:
    state_folder.write_serial(tmp_path, parse("ark.arpa"), Published(1, "x"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(record.encode("latin-1"))
    assert state_folder.read_serial(tmp_path, parse("ark.arpa")) is None
    assert caplog.messages == [f"{path}: is damaged; the zone's serial may go backwards"]


def test_a_pipe_in_place_of_a_file_holds_nothing_up(tmp_path: Path) -> None:
    for kind in ("serial", "signed"):
        os.mkfifo(tmp_path / f"ark.arpa.{kind}")
    told: list[str] = []
    assert state_folder.read_serial(tmp_path, parse("ark.arpa"), told.append) is None
    assert told == [f"{tmp_path}/ark.arpa.serial: Is not a regular file; the zone's serial may go backwards"]
    assert state_folder.read_signed(tmp_path, fold(parse("ark.arpa"))) is None


# --- the backup of docs/admin.md

NAME = dns.name.from_text("a.test.")


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    made = [Path(tempfile.mkdtemp(prefix="maptr-")) for _ in range(2)]  # short enough for a socket
    yield made[0], made[1]
    for folder in made:
        shutil.rmtree(folder)


def signed(port: int) -> tuple[dns.rrset.RRset, int]:
    """The keys of the zone, verified with themselves, and its serial."""
    query = dns.message.make_query(NAME, "DNSKEY", want_dnssec=True)
    answer = dns.query.tcp(query, "127.0.0.1", 20, port).answer
    keys, signatures = answer
    dns.dnssec.validate(keys, signatures, {NAME: keys})
    soa = dns.query.udp(dns.message.make_query(NAME, "SOA"), "127.0.0.1", 20, port).answer[0][0]
    return keys, soa.serial


def configure(site: Site) -> None:
    signing = 'keys = "keys"\nserial = "increment"\n'
    (site.directory / "state").mkdir(exist_ok=True)
    site.configure(signing, zones=("a.test",), serve='state = "state"')


def test_a_restored_server_goes_on(folders: tuple[Path, Path]) -> None:
    old, new = Site(folders[0]), folders[1]
    with old.stack:
        run("zone", "keys", "add", old.directory / "keys", code=0)
        configure(old)
        port = old.start()
        for number in range(2, 5):
            old.write_zone("a.test", zone_text(1, f"192.0.2.{number}"))
            old.run("reload")
        keys, serial = signed(port)
        assert serial > 1
        backup = folders[0].with_suffix(".tar")
        command = ["tar", "--create", "--file", str(backup), "--exclude=run", "--directory", str(old.directory), "."]
        subprocess.run(command, check=True)  # while it runs
    try:
        subprocess.run(["tar", "--extract", "--file", str(backup), "--directory", str(new)], check=True)
    finally:
        backup.unlink()
    restored = Site.__new__(Site)
    restored.directory, restored.config, restored.stack = new, new / "maptr.toml", old.stack.__class__()
    with restored.stack:
        port = restored.start()
        assert signed(port) == (keys, serial)
        restored.write_zone("a.test", zone_text(1, "192.0.2.9"))
        restored.run("reload")
        until(lambda: signed(port)[1] == serial + 1, "the next serial")
        (zone,) = json.loads(restored.run("status", "--json").stdout)["zones"]
        assert zone["signatures"] == "ok"


class OnReadOnlyFolder(Maptr):
    """A server whose state folder is on a file system that is mounted read-only."""

    state = ""

    def configure(self) -> list[str]:
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, self.state, *super().configure()]


def test_a_read_only_state_folder_prevents_no_start(site: Site) -> None:
    state = site.directory / "state"
    state.mkdir()
    probe = subprocess.run(
        ["unshare", "--mount", "mount", "-o", "bind", state, state], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"nothing can be mounted here: {probe.stderr.strip()}")
    site.configure('serial = "increment"\n', serve='state = "state"')
    server = OnReadOnlyFolder({}, "--config", str(site.config))
    server.state = str(state)
    site.server = server
    site.stack.callback(server.stop)
    server.launch().ready()
    (alarm,) = site.status()["alarms"]
    reason = f"{state} is on a read-only file system: remount it"
    assert (alarm["kind"], alarm["text"]) == ("state-folder", f"nothing can be kept for the next start: {reason}")
    assert {zone["serial"] for zone in site.status()["zones"]} == {1}
    assert {zone["result"] for zone in json.loads(site.run("reload", "--json").stdout)["zones"]} <= {
        "unchanged",
        "refused",
    }


@pytest.mark.parametrize("kind", ["a file", "below a file", "a link to nothing"])
def test_a_state_folder_that_cannot_be_one_prevents_no_start(site: Site, kind: str) -> None:
    folder = site.directory / "state"
    if kind == "a link to nothing":
        folder.symlink_to("nowhere/state")
    else:
        folder.touch()
    site.configure(serve=f'state = "{"state/deep" if kind == "below a file" else "state"}"')
    site.start()
    (alarm,) = site.status()["alarms"]
    assert alarm["kind"] == "state-folder"
    assert site.run("reload").exit_code == 0
    site.server.stop()
    folder.unlink()
    site.start()
    assert site.status()["alarms"] == []


def test_a_full_state_folder_is_an_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without a limit has no number of blocks and files."""
    status = os.statvfs(tmp_path)

    def with_fields(**fields: int) -> str:
        names = [
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_flag",
            "f_namemax",
        ]
        values = [fields.get(name, getattr(status, name)) for name in names]
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))
        return state_folder.fault(tmp_path)

    assert with_fields() == ""
    assert with_fields(f_bfree=0, f_bavail=0) == f"{tmp_path} has no space left: free some"
    assert with_fields(f_ffree=0, f_favail=0, f_files=9) == f"{tmp_path} can have no more files: remove some"
    assert with_fields(f_blocks=0, f_bfree=0, f_bavail=0, f_files=0, f_ffree=0, f_favail=0) == ""


def test_a_pipe_in_place_of_the_lock_does_not_stop_a_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / state_folder.LOCK)
    handle = state_folder.lock(Config(ServeConfig(state=tmp_path)))
    assert handle is not None
    os.close(handle)
