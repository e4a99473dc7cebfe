"""Zones that the server signs, checked by verifiers, a validating Unbound, and secondaries."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import dns.zone
import pytest

from maptr.dnssec import store
from maptr.dnssec.keys import Algorithm, KeyState, Role, ZoneKey, add_key, ds_rdata, read_keys, remove_key, set_state
from maptr.protocol.address import Address
from maptr.protocol.names import parse
from maptr.protocol.numbers import DS
from maptr.server import publisher
from maptr.server.daemon import Daemon
from maptr.server.state import Signing, ZoneSource
from maptr.zone.text import rdata_text
from tests.interop.test_secondaries import Primary, contents, restart, serial_at, wait_for_line
from tests.interop.test_signing import ORIGIN, SECURE, TEXT, questions, verdicts
from tests.support.peers import HOST, Maptr, Peer, Unbound, require
from tests.support.secondaries import KnotSecondary, NsdSecondary

pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")

PATIENCE = 30.0
DAY = 86400


def anchors(*keys: ZoneKey) -> list[str]:
    return [f"{ORIGIN} IN DS {rdata_text(DS, ds_rdata(parse(ORIGIN), key))}" for key in keys if key.is_entry]


def hang_up(primary: Primary) -> None:
    os.kill(primary.server.pid, signal.SIGHUP)


def judge(path: Path, server: Peer, trusted: Sequence[str], *, two_csks: bool = False) -> None:
    """All verifiers accept the zone, and Unbound finds every answer secure. kzonecheck: see docs/dnssec.md."""
    refusing = {name: said.output for name, said in verdicts(path).items() if not said.accepted}
    if two_csks:
        refusing.pop("kzonecheck", None)
    assert refusing == {}
    with Unbound({ORIGIN: server}, trusted) as unbound:
        assert questions(unbound) == SECURE


def test_a_rollover_is_followed_by_ixfr_and_stays_secure(tmp_path: Path) -> None:
    """The server is told nothing: it sees what happens in the folder. Killed in between, it goes on where it was."""
    require(*KnotSecondary.commands, *NsdSecondary.commands, "unbound", "dnssec-verify", "ldns-verify-zone")
    keys = tmp_path / "keys"
    first = add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE).key
    (tmp_path / "ark.arpa.zone").write_text(TEXT)
    config = tmp_path / "maptr.toml"
    config.write_text(f'[serve]\nstate = "state"\n[[zone]]\nname = "{ORIGIN}"\nfile = "ark.arpa.zone"\nkeys = "keys"\n')
    kept = store.path_of(tmp_path / "state", parse(ORIGIN))
    with Primary(tmp_path, (KnotSecondary, NsdSecondary), f"--config={config}") as primary:
        primary.wait_for(1)
        judge(kept, primary.server, anchors(first))
        second = add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.PUBLISHED).key
        primary.wait_for(2)
        assert "IXFR of zone ark.arpa. to" in primary.log()
        judge(kept, primary.secondaries[0], anchors(first), two_csks=True)

        restart(primary)  # by kill -9
        primary.wait_for(2)
        wait_for_line(primary, "serials 1 to 2")
        set_state(keys, first.tag, KeyState.RETIRED)
        second = set_state(keys, second.tag, KeyState.ACTIVE).key
        hang_up(primary)  # a reload looks at once, what it waited some seconds for above
        primary.wait_for(3)
        remove_key(keys, first.tag)
        hang_up(primary)
        primary.wait_for(4)
        primary.publish(TEXT.replace(" 1 7200", " 7 7200") + 'new TXT "after"\n')
        primary.wait_for(7)
        judge(kept, primary.secondaries[1], anchors(second))
        expected = dns.zone.from_file(str(kept), ORIGIN, relativize=False)
        for secondary in primary.secondaries:
            zone = contents(secondary)
            assert zone == expected, secondary.name
            zone.verify_digest()
        assert "AXFR of" not in primary.log(), "all went by IXFR, after the restart too"
        assert "from serial 4 to 7" in primary.log()


class Later(Unbound):
    """Unbound at another time."""

    def __init__(self, server: Peer, trusted: Sequence[str], at: float) -> None:
        super().__init__({ORIGIN: server}, trusted)
        self.at = at

    def configure(self) -> list[str]:
        command = super().configure()
        config = self.directory / "unbound.conf"
        date = time.strftime("%Y%m%d%H%M%S", time.gmtime(self.at))
        config.write_text(config.read_text().replace("server:\n", f'server:\n    val-override-date: "{date}"\n', 1))
        return command


class Here(Peer):
    """A daemon of this process, whose clock is ours, as a server to ask."""

    def __init__(self, daemon: Daemon) -> None:
        self.host, self.port = HOST, daemon.bound[0].port


def test_it_is_signed_again_before_the_end_and_unbound_never_sees_an_old_signature(tmp_path: Path) -> None:
    require("unbound")
    keys = tmp_path / "keys"
    key = add_key(keys, Role.CSK, Algorithm.ED25519, KeyState.ACTIVE).key
    (tmp_path / "zone").write_text(TEXT)
    now = start = float(int(time.time()))
    source = ZoneSource(parse(ORIGIN), tmp_path / "zone", state=tmp_path / "state", signing=Signing(keys))
    served = publisher.start([source], clock=lambda: now)
    daemon = Daemon(served, [Address(HOST, 0)], clock=lambda: now)
    daemon.bind()
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_until_complete, args=(daemon.run(),), daemon=True)
    thread.start()

    def look() -> None:
        asyncio.run_coroutine_threadsafe(daemon.reloader.sign_now(), loop).result(PATIENCE)

    try:
        server = Here(daemon)
        at_the_end = start + 20 * DAY
        with Later(server, anchors(key), at_the_end) as unbound:
            assert {rcode for rcode, _ in questions(unbound).values()} == {"SERVFAIL"}, "the first signatures ended"
        for day in (8, 16):
            now = start + day * DAY
            look()
            with Later(server, anchors(key), now) as unbound:
                assert questions(unbound) == SECURE
        assert serial_at(server) == 3
        with Later(server, anchors(key), at_the_end) as unbound:
            assert questions(unbound) == SECURE
    finally:
        loop.call_soon_threadsafe(daemon.stop)
        thread.join(PATIENCE)
        loop.close()


def test_killed_at_any_moment_its_serial_never_goes_back(tmp_path: Path) -> None:
    """Keys come and go under it, and it is killed soon after, wherever it is then; what was seen stays true."""
    keys = tmp_path / "keys"
    add_key(keys, Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    (tmp_path / "ark.arpa.zone").write_text(TEXT + "".join(f"n{number} A 192.0.2.1\n" for number in range(300)))
    config = tmp_path / "maptr.toml"
    config.write_text(
        f'[serve]\nstate = "state"\n[[zone]]\nname = "{ORIGIN}"\nfile = "ark.arpa.zone"\nkeys = "keys"\n'
        'transfer = ["127.0.0.1"]\n'
    )
    seen: dict[int, dns.zone.Zone] = {}
    last = 0
    for number in range(4):
        with Maptr({ORIGIN: tmp_path / "ark.arpa.zone"}, f"--config={config}") as server:
            zone = contents(server)
            serial = int(zone.get_soa().serial)
            assert serial >= last
            assert seen.setdefault(serial, zone) == zone, "a serial that was seen has another content"
            zone.verify_digest()
            last = serial
            if number % 2:
                remove_key(keys, next(file.key.tag for file in read_keys(keys) if file.key.state is KeyState.PUBLISHED))
            else:
                add_key(keys, Role.CSK, Algorithm.ED25519, KeyState.PUBLISHED)
            os.kill(server.pid, signal.SIGHUP)
            time.sleep(0.05 * number)
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
    assert last > 1
