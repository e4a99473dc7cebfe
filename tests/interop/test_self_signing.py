"""Zones that the server signs, checked by verifiers, a validating Unbound, and secondaries."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import dns.zone
import pytest

from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.config.model import signed_path
from maptr.dnssec.keys import Algorithm, KeyState, Role, ZoneKey, add_key, ds_rdata, read_keys, remove_key, set_state
from maptr.protocol.address import Address
from maptr.protocol.names import fold, parse
from maptr.protocol.numbers import DS
from maptr.registry.table import Entry, Nma, Table
from maptr.server import publisher
from maptr.server.daemon import Daemon
from maptr.zone.build import build
from maptr.zone.text import rdata_text
from tests.interop.test_signing import ORIGIN, SECURE, TEXT, check_verified, questions
from tests.support.peers import HOST, Maptr, Peer, Unbound
from tests.support.running import answering
from tests.support.secondaries import KnotSecondary, NsdSecondary, contents, primary_of, serial_at
from tests.support.waiting import PATIENCE

pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")

DAY = 86400


def anchors(*keys: ZoneKey) -> list[str]:
    return [f"{ORIGIN} IN DS {rdata_text(DS, ds_rdata(parse(ORIGIN), key))}" for key in keys if key.is_entry]


def configured(directory: Path, more: str = "") -> Path:
    """A configuration whose zone is signed with the keys of the directory."""
    zone = f'[[zone]]\nname = "{ORIGIN}"\nfile = "ark.arpa.zone"\nkeys = "keys"\n{more}'
    (directory / "maptr.toml").write_text(f'[serve]\nstate = "state"\n{zone}')
    return directory / "maptr.toml"


def judge(path: Path, server: Peer, trusted: Sequence[str], *, two_csks: bool = False) -> None:
    """All verifiers accept the zone, and Unbound finds every answer secure."""
    check_verified(path, two_csks=two_csks)
    with Unbound({ORIGIN: server}, trusted) as unbound:
        assert questions(unbound) == SECURE


def test_a_rollover_is_followed_by_ixfr_and_stays_secure(tmp_path: Path) -> None:
    """The server sees the changes in the folder by itself. After SIGKILL it continues where it was."""
    keys = tmp_path / "keys"
    first = add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE).key
    (tmp_path / "ark.arpa.zone").write_text(TEXT)
    config = configured(tmp_path)
    kept = signed_path(tmp_path / "state", parse(ORIGIN))
    with primary_of(tmp_path, (KnotSecondary, NsdSecondary), f"--config={config}") as primary:
        primary.wait_for(1)
        judge(kept, primary.server, anchors(first))
        second = add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.PUBLISHED).key
        primary.wait_for(2)
        assert "IXFR of zone ark.arpa. to" in primary.log()
        judge(kept, primary.secondaries[0], anchors(first), two_csks=True)

        primary.server.restart_after_kill()
        primary.wait_for(2)
        primary.server.wait_for("serials 1 to 2")
        set_state(keys, first.tag, KeyState.RETIRED)
        second = set_state(keys, second.tag, KeyState.ACTIVE).key
        primary.server.hang_up()  # a reload looks at the folder at once
        primary.wait_for(3)
        remove_key(keys, first.tag)
        primary.server.hang_up()
        primary.wait_for(4)
        primary.publish(TEXT.replace(" 1 7200", " 7 7200") + 'new TXT "after"\n')
        primary.wait_for(7)
        judge(kept, primary.secondaries[1], anchors(second))
        primary.check(kept)
        assert "AXFR of" not in primary.log(), "all went by IXFR, after the restart too"
        assert "from serial 4 to 7" in primary.log()


def unbound_at(server: Peer, key: ZoneKey, at: float) -> Unbound:
    """Unbound with another time."""
    date = time.strftime("%Y%m%d%H%M%S", time.gmtime(at))
    return Unbound({ORIGIN: server}, anchors(key), f'    val-override-date: "{date}"\n')


def test_an_added_key_in_a_large_zone_is_transferred_by_ixfr(tmp_path: Path) -> None:
    """An IXFR that only adds, to thousands of RRsets: Knot 3.2 must not write it to its journal (docs/admin.md)."""
    add_key(tmp_path / "keys", Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
    target = Nma("https://ark.example.org/${content}")
    (tmp_path / "ark.arpa.zone").write_text(
        build(Table(Entry(str(naan), nmas=(target,)) for naan in range(10_000, 12_500)), 1).text
    )
    config = configured(tmp_path)
    with primary_of(tmp_path, (KnotSecondary, NsdSecondary), f"--config={config}") as primary:
        primary.wait_for(1)
        added = add_key(tmp_path / "keys", Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.PUBLISHED)
        primary.wait_for(2)
        remove_key(tmp_path / "keys", added.key.tag)
        primary.wait_for(3)
        assert primary.log().count("IXFR of zone ark.arpa. to") == 4


def test_signatures_are_renewed_before_they_expire_and_unbound_accepts_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    key = add_key(keys, Role.CSK, Algorithm.ED25519, KeyState.ACTIVE).key
    (tmp_path / "zone").write_text(TEXT)
    now = start = float(int(time.time()))
    zone = ZoneConfig(fold(parse(ORIGIN)), tmp_path / "zone", state=tmp_path / "state", keys=keys)
    served = publisher.start([zone], clock=lambda: now)
    daemon = Daemon(Config(ServeConfig((Address(HOST, 0),)), zones=(zone,)), served, clock=lambda: now)
    with answering(daemon) as running:
        server = Maptr({}, port=daemon.bound[0].port)  # only its address
        at_the_end = start + 20 * DAY
        with unbound_at(server, key, at_the_end) as unbound:
            assert {rcode for rcode, _ in questions(unbound).values()} == {"SERVFAIL"}, "the first signatures ended"
        for day in (8, 16):
            now = start + day * DAY
            asyncio.run_coroutine_threadsafe(daemon.reloader.sign_now(), running.loop).result(PATIENCE)
            with unbound_at(server, key, now) as unbound:
                assert questions(unbound) == SECURE
        assert serial_at(server) == 3
        with unbound_at(server, key, at_the_end) as unbound:
            assert questions(unbound) == SECURE


def test_the_serial_never_decreases_after_a_kill(tmp_path: Path) -> None:
    """A key is added or removed and the server is killed soon after, at any point of its work."""
    keys = tmp_path / "keys"
    add_key(keys, Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    (tmp_path / "ark.arpa.zone").write_text(TEXT + "".join(f"n{number} A 192.0.2.1\n" for number in range(60)))
    config = configured(tmp_path, 'transfer = ["127.0.0.1"]\n')
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
            server.hang_up()
            time.sleep(0.05 * number)
            server.stop(signal.SIGKILL)
    assert last > 1
