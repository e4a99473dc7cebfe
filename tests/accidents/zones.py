"""Accidents to a DNS server: its zone files, configuration, state, keys, disk, clock and process."""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.accidents.outcome import PEERS, SIGNERS, WITH_CATALOG, Impossible, accident
from tests.accidents.sites import (
    DAY,
    MAIN,
    NAANS,
    MaptrSite,
    ZoneSite,
    signed_long_ago,
    signed_with_clock,
    signed_zones,
    with_clock,
    zone_text,
    zones,
)
from tests.support.certificates import write_certificate
from tests.support.peers import HOST, Maptr
from tests.support.ports import free_port

KEPT = "serves the last good version, alarm `zone-refused`"
REFUSED = "keeps the served version, alarm `zone-refused`"
STAYS = "keeps the members in the catalog and serves their kept versions, alarm, until `maptr reload --force`"
TYPO = zone_text(2, extra="10099 NAPTE 100 10 u ark x .\n")


# ---- the zone file


@accident("the zone file is deleted, then a restart", site=zones, kind="human", does=KEPT, peers=WITH_CATALOG)
def zone_deleted_restart(site: ZoneSite) -> None:
    site.zone.unlink()
    site.restart()


@accident("the zone file is deleted, then a reload", site=zones, kind="human", does=REFUSED, peers=PEERS)
def zone_deleted_reload(site: ZoneSite) -> None:
    site.zone.unlink()
    site.reload()


@accident("a typo in the zone file, then a restart", site=zones, kind="typo", does=KEPT, peers=WITH_CATALOG, in_ci=True)
def typo_restart(site: ZoneSite) -> None:
    site.write(TYPO)
    site.restart()


@accident("a typo in the zone file, then a reload", site=zones, kind="typo", does=REFUSED, peers=PEERS)
def typo_reload(site: ZoneSite) -> None:
    site.write(TYPO)
    site.reload()


@accident(
    "a typo, a reload that refuses it, and a restart a week later",
    site=zones,
    kind="typo",
    does=KEPT,
    peers=PEERS,
)
def typo_reload_restart(site: ZoneSite) -> None:
    site.write(TYPO)
    site.reload()
    site.restart()


@accident("an empty zone file, then a restart", site=zones, kind="disk", does=KEPT, peers=PEERS)
def empty_restart(site: ZoneSite) -> None:
    site.write("")
    site.restart()


@accident("an empty zone file, then a reload", site=zones, kind="disk", does=REFUSED, peers=PEERS)
def empty_reload(site: ZoneSite) -> None:
    site.write("")
    site.reload()


@accident(
    "the file ends after a third of its lines, with a higher serial (a script that died), then a reload",
    site=zones,
    kind="disk",
    does="`max_shrink`: keeps the served version, alarm `zone-refused`",
    peers=PEERS,
    in_ci=True,
)
def cut_at_a_line_reload(site: ZoneSite) -> None:
    site.write(zone_text(2, naans=NAANS[:6]))
    site.reload()


@accident(
    "the file ends after a third of its lines, with a higher serial, then a restart",
    site=zones,
    kind="disk",
    does="`max_shrink` against the kept version, which is served, alarm `zone-refused`",
    peers=PEERS,
)
def cut_at_a_line_restart(site: ZoneSite) -> None:
    site.write(zone_text(2, naans=NAANS[:6]))
    site.restart()


@accident("the file is cut inside a line, then a restart", site=zones, kind="disk", does=KEPT, peers=PEERS)
def cut_in_a_line_restart(site: ZoneSite) -> None:
    text = zone_text(2)
    site.write(text[: text.index("10017") + 12])
    site.restart()


@accident("the file is cut inside a line, then a reload", site=zones, kind="disk", does=REFUSED, peers=PEERS)
def cut_in_a_line_reload(site: ZoneSite) -> None:
    text = zone_text(2)
    site.write(text[: text.index("10017") + 12])
    site.reload()


@accident(
    "a new name, and the serial is forgotten; reload",
    site=zones,
    kind="human",
    does="keeps the served version, alarm `zone-refused`; `zone.serial` raises it by itself (next row)",
    peers=PEERS,
)
def serial_forgotten(site: ZoneSite) -> list[str]:
    site.write(zone_text(1, naans=[*NAANS, 10020]))
    site.reload()
    return site.split([10020])


@accident(
    'a new name, and the serial is forgotten; reload, with `serial = "increment"`',
    site=zones,
    kind="human",
    does="publishes the new name with the next serial",
    is_quiet=True,
)
def serial_forgotten_and_maptr_counts(site: MaptrSite) -> list[str]:
    site.settings = 'serial = "increment"\n'
    site.reload()
    site.write(zone_text(1, naans=[*NAANS, 10020]))
    site.reload()
    return site.missing([10020])


@accident(
    "a new name, and the serial goes backwards; reload",
    site=zones,
    kind="human",
    does="keeps the served version, alarm `zone-refused`",
    peers=PEERS,
)
def serial_back(site: ZoneSite) -> list[str]:
    site.write(zone_text(9))
    site.reload()
    site.follower.refresh()
    site.write(zone_text(5, naans=[*NAANS, 10020]))
    site.reload()
    return site.split([10020])


@accident(
    "the serial jumps by more than 2^31, which no secondary considers newer; reload",
    site=zones,
    kind="typo",
    does="keeps the served version, alarm `zone-refused`",
    peers=PEERS,
)
def serial_jumps(site: ZoneSite) -> list[str]:
    site.write(zone_text(2 + 2**31, naans=[*NAANS, 10020]))
    site.reload()
    return site.split([10020])


@accident("another zone's file is copied over it, then a restart", site=zones, kind="human", does=KEPT, peers=PEERS)
def wrong_origin_restart(site: ZoneSite) -> None:
    site.write("$ORIGIN other.example.\n" + zone_text(2))
    site.restart()


@accident("no SOA, then a restart", site=zones, kind="typo", does=KEPT, peers=PEERS)
def no_soa_restart(site: ZoneSite) -> None:
    site.write("\n".join(line for line in zone_text(2).splitlines() if " SOA " not in line) + "\n")
    site.restart()


@accident("two SOAs, then a restart", site=zones, kind="typo", does=KEPT, peers=PEERS)
def two_soas_restart(site: ZoneSite) -> None:
    site.write(zone_text(2, extra="@ SOA ns hostmaster 3 7200 3600 1209600 60\n"))
    site.restart()


@accident("a CNAME beside other records, then a restart", site=zones, kind="typo", does=KEPT, peers=PEERS)
def cname_and_other_data_restart(site: ZoneSite) -> None:
    site.write(zone_text(2, extra="10003 CNAME ns\n"))
    site.restart()


@accident(
    "a ZONEMD that does not match (the file was changed after it was made), then a restart",
    site=zones,
    kind="damage",
    does=KEPT,
    peers=PEERS,
)
def wrong_zonemd_restart(site: ZoneSite) -> None:
    lines = zone_text(2, naans=NAANS[:19], extra=f"@ ZONEMD 2 1 1 {'00' * 48}\n")
    site.write(lines)
    site.restart()


@accident(
    "the zone file cannot be read (a link to itself: root may read everything else), then a restart",
    site=zones,
    kind="human",
    does=KEPT,
    peers=PEERS,
)
def unreadable_restart(site: ZoneSite) -> None:
    site.zone.unlink()
    site.zone.symlink_to(site.zone.name)
    site.restart()


@accident("a folder in place of the zone file, then a restart", site=zones, kind="human", does=KEPT, peers=PEERS)
def folder_restart(site: ZoneSite) -> None:
    site.zone.unlink()
    site.zone.mkdir()
    site.restart()


@accident("the file for `$INCLUDE` is missing, then a restart", site=zones, kind="human", does=KEPT, peers=PEERS)
def include_missing_restart(site: ZoneSite) -> None:
    site.write(zone_text(2, naans=NAANS[:15], extra="$INCLUDE others.zone\n"))
    site.restart()


@accident("`$INCLUDE` of a folder, then a restart", site=zones, kind="typo", does=KEPT, peers=PEERS)
def include_folder_restart(site: ZoneSite) -> None:
    site.write(zone_text(2, naans=NAANS[:15], extra=f"$INCLUDE {site.folder}\n"))
    site.restart()


@accident(
    "a NUL in the name of an included file, then a restart",
    site=zones,
    kind="hostile bytes",
    does=KEPT + "; the other zones load",
    peers=PEERS,
)
def include_nul_restart(site: ZoneSite) -> None:
    site.write(zone_text(2).encode() + b"$INCLUDE oth\0er.zone\n")
    site.restart()


@accident("a block of the disk reads as NULs, then a restart", site=zones, kind="disk", does=KEPT, peers=PEERS)
def block_of_nuls_restart(site: ZoneSite) -> None:
    text = zone_text(2).encode()
    site.write(text[:300] + bytes(512) + text[812:])
    site.restart()


@accident(
    "merge conflict markers in the zone file (`<<<<<<<`), then a restart",
    site=zones,
    kind="typo",
    does=KEPT,
    peers=PEERS,
)
def merge_marks_restart(site: ZoneSite) -> None:
    site.write(zone_text(2, extra='<<<<<<< HEAD\n10099 TXT "a"\n=======\n10099 TXT "b"\n>>>>>>> other\n'))
    site.restart()


@accident(
    "a Windows editor saves the zone file as UTF-16, then a restart",
    site=zones,
    kind="typo",
    does=KEPT,
    peers=PEERS,
)
def utf_16_restart(site: ZoneSite) -> None:
    site.write(zone_text(2).replace("\n", "\r\n").encode("utf-16"))
    site.restart()


@accident(
    "the zone file has a hundred thousand records of someone else's zone below this origin, then a restart",
    site=zones,
    kind="human",
    does="`max_shrink` against the kept version, which is served, alarm `zone-refused`",
    peers=PEERS,
)
def other_content_restart(site: ZoneSite) -> None:
    lines = "".join(f"host{number} A 192.0.2.7\n" for number in range(100_000))
    site.write(zone_text(2, naans=[], extra=lines))
    site.restart()


@accident(
    "an RRset of 73 kB, which no response can hold, then a restart",
    site=zones,
    kind="human",
    does=KEPT,
    peers=PEERS,
)
def huge_rrset_restart(site: ZoneSite) -> None:
    lines = "".join(f'10003 TXT "{number:03}{"x" * 240}"\n' for number in range(300))
    site.write(zone_text(2, extra=lines))
    site.restart()


@accident(
    "a record of a private type beside a NAAN's records, then a reload",
    site=zones,
    kind="human",
    does="publishes it",
    peers=PEERS,
    is_quiet=True,
)
def private_type_reload(site: ZoneSite) -> None:
    site.write(zone_text(2, extra="10003 TYPE65280 \\# 4 0A000001\n10003 TYPE12288 \\# 1 40\n"))
    site.reload()


# ---- the configuration


@accident(
    "a wrong line in the configuration, then a restart",
    site=zones,
    kind="typo",
    does="exits with code 2 and the line; systemd does not retry. `maptr serve --check-config && systemctl restart "
    "maptr` does not stop the old process",
    peers=PEERS,
    note="no server starts; its secondaries go on",
)
def configuration_restart(site: ZoneSite) -> None:
    site.garbage = "}{ this is = not [a setting\n"
    site.restart()


@accident(
    "a wrong line in the configuration, then a restart that checks first (`--check-config && systemctl restart`)",
    site=zones,
    kind="typo",
    does="`--check-config` exits with 1 and the line, and the old process goes on",
    peers=PEERS,
    is_quiet=True,
    note="with `named-checkconf`, `nsd-checkconf`, `knotc conf-check` and `pdns_server --config=check`",
)
def configuration_checked_restart(site: ZoneSite) -> None:
    site.garbage = "}{ this is = not [a setting\n"
    if site.check():
        site.restart()


@accident(
    "the configuration names a user who does not exist, then a restart",
    site=zones,
    kind="human",
    does="exits with code 1, and systemd retries; `--check-config` reports it beforehand",
)
def user_missing_restart(site: MaptrSite) -> None:
    site.server.wrapper = ["env", "MAPTR_SERVE_USER=no-such-user-here"]  # which wins over serve.user
    site.restart()


@accident(
    "the certificate for DNS over TLS is gone, then a restart",
    site=zones,
    kind="human",
    does="exits with code 1, and systemd retries; `--check-config` reports it beforehand",
)
def certificate_missing_restart(site: MaptrSite) -> None:
    port = free_port()
    site.sections = (
        f'[serve.tls]\nlisten = ["{HOST}:{port}"]\n'
        f'certificate = "{site.folder}/tls.crt"\nkey = "{site.folder}/tls.key"\n'
    )
    site.restart()


@accident(
    "the certificate for DNS over TLS has expired, then a restart",
    site=zones,
    kind="clock",
    does="serves with it; alarm `certificate` from two weeks before",
)
def certificate_expired_restart_of_dns(site: MaptrSite) -> None:
    write_certificate(site.folder, hours=-1)
    certificate_missing_restart(site)


@accident(
    "a wrong line in the configuration, then a reload",
    site=zones,
    kind="typo",
    does="keeps configuration and zones, alarm `config-refused`",
    peers=PEERS,
)
def configuration_reload(site: ZoneSite) -> None:
    site.garbage = "}{ this is = not [a setting\n"
    site.reload()


@accident(
    "the configuration names a TSIG key that it does not have, then a reload",
    site=zones,
    kind="typo",
    does="keeps configuration and zones, alarm `config-refused`",
)
def unknown_key_reload(site: MaptrSite) -> None:
    site.sections = '[[zone]]\nname = "third.example"\nfile = "third.zone"\ntransfer = ["key:nobody"]\n'
    site.reload()


@accident(
    "half of the zones are removed from the configuration by mistake, then a reload",
    site=zones,
    kind="human",
    does=STAYS,
    peers=WITH_CATALOG,
    in_ci=True,
)
def half_of_the_zones_reload(site: ZoneSite) -> None:
    del site.files[MAIN]
    site.reload()


@accident(
    "one of four zones is removed from the configuration by mistake, then a reload",
    site=zones,
    kind="human",
    does="follows the configuration: the zone is not served, and its kept version is set aside for 30 days",
    peers=WITH_CATALOG,
)
def one_of_four_zones_reload(site: ZoneSite) -> None:
    for name in ("third", "fourth"):
        site.files[f"{name}.example."] = site.folder / f"{name}.example.zone"
        site.files[f"{name}.example."].write_text(zone_text(1))
    site.reload()
    del site.files[MAIN]
    site.reload()


@accident(
    "half of the zones are removed from the configuration by mistake, then a restart",
    site=zones,
    kind="human",
    does=STAYS,
    peers=WITH_CATALOG,
)
def half_of_the_zones_restart(site: ZoneSite) -> None:
    del site.files[MAIN]
    site.restart()


# ---- state, disk and process


@accident(
    "the state folder is deleted, then a restart",
    site=zones,
    kind="disk",
    does="reads the zone files",
    peers=PEERS,
    is_quiet=True,
)
def state_deleted_restart(site: ZoneSite) -> None:
    site.stop()
    _delete(site.state)
    site.launch()


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files, and the files in folders."""
    for path in paths:
        yield from [path] if path.is_file() else (each for each in path.glob("**/*") if each.is_file())


def _flip(path: Path) -> None:
    """Damage a file as a bad disk does: one byte in 256 changes."""
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2 % 256, len(content), 256):
        content[place] ^= 0xFF
    path.write_bytes(content)


@accident(
    "each file in the state folder is damaged, then a restart",
    site=zones,
    kind="damage",
    does="notices it by the checksums and reads the zone files",
    peers=PEERS,
    is_quiet=True,
)
def state_damaged_restart(site: ZoneSite) -> None:
    site.write(zone_text(2))
    site.reload()
    site.stop()
    for file in _files(site.state):
        _flip(file)
    site.launch()


@accident(
    "the zone file is deleted and the state folder damaged, then a restart",
    site=zones,
    kind="damage",
    does="nothing is left to serve: SERVFAIL, alarm `zone-not-loaded`. The member remains in the catalog, so the "
    "secondaries keep the zone",
    peers=WITH_CATALOG,
)
def everything_lost_restart(site: ZoneSite) -> None:
    site.stop()
    site.zone.unlink()
    for file in _files(site.state):
        _flip(file)
    site.launch()


@accident(
    "zone files and state are restored from an older backup, and a name is added with the next serial of the old file",
    site=zones,
    kind="restore",
    does="alarm: the secondary is ahead; with `zone.serial`, the next serial passes it, and the new name arrives",
    peers=PEERS,
    is_quiet=True,
    in_ci=True,
)
def restore(site: ZoneSite) -> list[str]:
    if isinstance(site, MaptrSite):
        site.settings = 'serial = "increment"\n'
        site.reload()
    site.write(zone_text(2))
    site.reload()
    saved = site.folder / "backup"
    saved.mkdir()
    for number, path in enumerate(site.state):
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, saved / str(number))
    where = dict(enumerate(site.state))
    for serial in (3, 4, 5):
        site.write(zone_text(serial, naans=[*NAANS, *range(10020, 10018 + serial)]))
        site.reload()
    site.follower.refresh()
    site.stop()
    _delete(site.state)
    for number, path in where.items():
        (shutil.copytree if (saved / str(number)).is_dir() else shutil.copy2)(saved / str(number), path)
    site.write(zone_text(2))
    site.launch()
    site.write(zone_text(3, naans=[*NAANS, 10030]))
    site.reload()
    return site.missing([10030])


@accident(
    "the state folder is read-only, then a restart",
    site=zones,
    kind="disk",
    does="starts and serves, alarm: nothing can be kept",
)
def state_read_only_restart(site: MaptrSite) -> None:
    site.stop()
    _mount(site.folder / "state", "size=4m")
    site.launch()
    site.stop()
    subprocess.run(["mount", "-o", "remount,ro", site.folder / "state"], check=True)
    site.launch()


@accident(
    "the state folder's disk is full while a new version is published",
    site=zones,
    kind="disk",
    does="publishes the version, alarm: nothing can be kept",
)
def disk_full_reload(site: MaptrSite) -> list[str]:
    site.stop()
    _mount(site.folder / "state", "size=256k")
    site.launch()
    with (site.folder / "state" / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    site.write(zone_text(2, naans=[*NAANS, 10020]))
    site.reload()
    return site.missing([10020])


def _mount(folder: Path, options: str) -> None:
    """Mount a small file system in place of a folder, with the folder's content."""
    content = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        raise Impossible("a file system can only be mounted by root")
    for name, data in content.items():
        (folder / name).write_bytes(data)


@accident(
    "kill -9 in the middle of reloads, ten times",
    site=zones,
    kind="restart",
    does="each file is replaced as a whole",
    peers=PEERS,
    is_quiet=True,
)
def killed_while_reloading(site: ZoneSite) -> None:
    for serial in range(2, 12):
        site.write(zone_text(serial))
        site.begin_reload()
        time.sleep(0.01 * (serial % 4))
        site.stop(signal.SIGKILL)
        site.launch()


@accident(
    "kill -9, and the zone file is broken when it starts again",
    site=zones,
    kind="restart",
    does=KEPT,
    peers=PEERS,
)
def killed_and_typo(site: ZoneSite) -> None:
    site.write(zone_text(2))
    site.reload()
    site.write(TYPO)
    site.restart(signal.SIGKILL)


@accident(
    "the port is in use at a restart, by another program",
    site=zones,
    kind="restart",
    does="does not start, code 1: systemd retries until the port is free",
    peers=PEERS,
    is_quiet=True,
)
def port_in_use_restart(site: ZoneSite) -> None:
    site.stop()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
    ):
        udp.bind((HOST, site.server.port))
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind((HOST, site.server.port))
        tcp.listen()
        site.server.zones = dict(site.files)
        site.server.launch()
        site.has_stopped = False
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not site.has_ended:
            time.sleep(0.1)
    site.restart()  # as systemd does


@accident(
    "a second server is started on the same state folder",
    site=zones,
    kind="human",
    does="the second does not start: its address and the control socket are in use",
    is_quiet=True,
)
def two_servers(site: MaptrSite) -> list[str]:
    second = Maptr({}, "--config", str(site.config), port=site.port)
    second.launch()
    try:
        code = second.process.wait(20)
    except subprocess.TimeoutExpired:
        return ["the second server runs"]
    finally:
        second.stop()
    site.write(zone_text(2, naans=[*NAANS, 10020]))
    site.reload()
    return site.missing([10020]) + ([] if code else ["the second one ends without an error"])


@accident(
    "a query flood (2 s, forged names) while it reloads",
    site=zones,
    kind="network",
    does="answers, and publishes",
    peers=PEERS,
    is_quiet=True,
)
def flood_while_reloading(site: ZoneSite) -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
        flood.connect((HOST, site.server.port))
        flood.setblocking(False)
        end, number, reloaded = time.monotonic() + 2, 0, False
        while time.monotonic() < end:
            number += 1
            label = base64.b32encode(struct.pack(">Q", number)).decode().rstrip("=").lower().encode()
            query = struct.pack(">HHHHHH", number & 0xFFFF, 0, 1, 0, 0, 0)
            query += bytes([len(label)]) + label + b"\3ark\4arpa\0" + struct.pack(">HH", 35, 1)
            try:
                flood.send(query)
            except OSError:
                time.sleep(0.001)
            if not reloaded and time.monotonic() > end - 1:
                site.write(zone_text(2, naans=[*NAANS, 10020]))
                site.begin_reload()
                reloaded = True
    site.reload()
    return site.missing([10020])


@accident(
    "hostile packets: random bytes, cut queries, compression loops, 5,000 of them",
    site=zones,
    kind="hostile bytes",
    does="answers or drops each",
    peers=PEERS,
    is_quiet=True,
)
def hostile_packets(site: ZoneSite) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hostile:
        hostile.connect((HOST, site.server.port))
        hostile.setblocking(False)
        for number in range(5000):
            noise = (b"%d" % (number * 2654435761)) * 6
            head = struct.pack(">HHHHHH", number, 0, 1, 0, 0, number % 3)
            loop = head + b"\xc0\x0c\0\1\0\1"
            packet = (noise[: number % 100], loop, head + noise, head + b"\x3f" + noise[:20])[number % 4]
            try:
                hostile.send(packet)
            except OSError:
                time.sleep(0.001)


# ---- keys and signatures


@accident(
    "the key folder is deleted, then a restart",
    site=signed_zones,
    kind="human",
    does="serves the kept signed version, alarm: it cannot be signed anew",
    peers=SIGNERS,
    note="validated with the original DS",
)
def keys_deleted_restart(site: ZoneSite) -> list[str]:
    site.stop()
    _delete(site.key_files)
    if isinstance(site, MaptrSite):
        shutil.rmtree(site.folder / "keys")
    site.launch()
    site.follower.refresh()
    return site.bogus()


@accident(
    "the key file is damaged, then a restart",
    site=signed_zones,
    kind="damage",
    does="serves the kept signed version, alarm: it cannot be signed anew",
    peers=SIGNERS,
    note="validated with the original DS",
)
def key_damaged_restart(site: ZoneSite) -> list[str]:
    site.stop()
    for file in _files(site.key_files):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 3] + b"\0garbage\0")
    site.launch()
    site.follower.refresh()
    return site.bogus()


@accident(
    "the server was off for 60 days: all signatures expired",
    site=signed_long_ago,
    kind="clock",
    does="signs again at the start",
    peers=SIGNERS,
    is_quiet=True,
    note="validated with the original DS",
)
def off_for_long(site: ZoneSite) -> list[str]:
    site.stop()
    site.set_clock(0)
    site.launch()
    site.follower.refresh()
    return site.bogus()


@accident(
    "the clock is a year ahead at a start, and corrected while the server runs",
    site=signed_with_clock,
    kind="clock",
    does="signs again as soon as the clock is right",
    peers=SIGNERS,
    is_quiet=True,
    note="validated with the original DS, 20 s after the clock was set",
)
def clock_ahead_then_right(site: ZoneSite) -> list[str]:
    site.stop()
    site.set_clock(365 * DAY)
    site.write(zone_text(2))
    site.launch()
    site.set_clock(0)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        site.follower.refresh()
        if not (found := site.bogus()):
            break
        time.sleep(1)
    return found


@accident(
    "the clock is a year behind at a start, and corrected while the server runs",
    site=signed_with_clock,
    kind="clock",
    does="signs again as soon as the clock is right",
    peers=SIGNERS,
    is_quiet=True,
    note="validated with the original DS, 20 s after the clock was set",
)
def clock_back_then_right(site: ZoneSite) -> list[str]:
    site.stop()
    site.set_clock(-365 * DAY)
    site.write(zone_text(2))
    site.launch()
    site.set_clock(0)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        site.follower.refresh()
        if not (found := site.bogus()):
            break
        time.sleep(1)
    return found


@accident(
    "the clock is a year ahead at one start, and right at the next; then a name is added",
    site=with_clock,
    kind="clock",
    does="serials that maptr chooses never go backwards: the name reaches the secondary",
    peers=PEERS,
    is_quiet=True,
)
def clock_ahead_for_one_start(site: ZoneSite) -> list[str]:
    if isinstance(site, MaptrSite):
        site.settings = 'serial = "unix"\n'
    site.stop()
    site.set_clock(365 * DAY)
    site.write(zone_text(2))
    site.launch()
    site.follower.refresh()
    site.stop()
    site.set_clock(0)
    site.write(zone_text(3, naans=[*NAANS, 10020]))
    site.launch()
    return site.missing([10020])


@accident(
    "the zone file is broken and the server restarts, 60 days later",
    site=signed_long_ago,
    kind="clock",
    does="serves the kept version with new signatures, alarm `zone-refused`",
    peers=SIGNERS,
    note="validated with the original DS",
)
def broken_and_expired(site: ZoneSite) -> list[str]:
    site.write(zone_text(3, extra="x NAPTE\n"))
    site.stop()
    site.set_clock(0)
    site.launch()
    site.follower.refresh()
    return site.bogus()
