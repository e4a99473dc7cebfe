"""BIND, NSD, Knot and PowerDNS as secondaries of maptr: AXFR, IXFR, NOTIFY and TSIG, as in docs/transfers.md."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dns.flags
import dns.message
import dns.query
import dns.rdatatype
import dns.zone
import pytest

from maptr import registry
from maptr.zone.build import build
from maptr.zone.lint import publishable
from tests.support.certificates import write_certificate
from tests.support.moments import ever_touched, of_naans, states
from tests.support.peers import HOST, Maptr, Peer, find, free_port, require
from tests.support.secondaries import (
    CATALOG,
    ORIGIN,
    SECONDARIES,
    SECRET,
    BindCatalogSecondary,
    BindSecondary,
    KnotCatalogSecondary,
    KnotSecondary,
    NsdSecondary,
    Secondary,
)

PATIENCE = 30.0  # seconds until a secondary that has not followed never will; NSD takes one for each change
KEY = f"--key=xfr=hmac-sha256:{SECRET}"
# Of the registry's 130 updates, with all that no update touches, spread over all of them; MAPTR_MOMENTS=130 takes
# each, in some minutes. Every update, of what it touches, is another test.
MOMENTS = int(os.environ.get("MAPTR_MOMENTS", "4"))


class Primary:
    """maptr with a zone file of the test's own, and the secondaries that follow it."""

    def __init__(self, directory: Path, kinds: tuple[type[Secondary], ...], *options: str) -> None:
        self.path = directory / "ark.arpa.zone"
        self._kinds = kinds
        self._options = options

    def __enter__(self) -> Primary:
        with ExitStack() as stack:
            ports = [free_port() for _ in self._kinds]
            notify = [f"--notify={HOST}:{port} key:xfr" for port in ports]
            self.server = stack.enter_context(
                Maptr({ORIGIN: self.path}, KEY, "--transfer=key:xfr", *notify, *self._options)
            )
            self.secondaries = [
                stack.enter_context(kind(self.server.port, port)) for kind, port in zip(self._kinds, ports, strict=True)
            ]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def publish(self, text: str) -> None:
        """Replace the zone file as any tool should, and say so."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)
        os.kill(self.server.pid, signal.SIGHUP)

    def wait_for(self, serial: int, *kinds: type[Secondary]) -> None:
        """Until all secondaries, or those of the kinds, have the serial."""
        for secondary in self.secondaries:
            if kinds and not isinstance(secondary, kinds):
                continue
            deadline = time.monotonic() + PATIENCE
            while serial_at(secondary) != serial:
                if time.monotonic() > deadline:
                    raise AssertionError(
                        f"{secondary.name} is at {serial_at(secondary)}\n{secondary.log()}\n{self.log()}"
                    )
                time.sleep(0.02)

    def log(self) -> str:
        return self.server.log()

    def check(self) -> None:
        """Each secondary holds the file's zone, record for record."""
        expected = dns.zone.from_file(str(self.path), ORIGIN, relativize=False)
        for secondary in self.secondaries:
            assert contents(secondary) == expected, secondary.name


def serial_at(server: Peer) -> int | None:
    query = dns.message.make_query(ORIGIN, "SOA")
    query.flags &= ~dns.flags.RD
    reply = dns.query.udp(query, server.host, port=server.port, timeout=5)
    return reply.answer[0][0].serial if reply.answer else None


def contents(server: Peer) -> dns.zone.Zone:
    """What the secondary has, by AXFR from it."""
    zone = dns.zone.Zone(ORIGIN, relativize=False)
    dns.query.inbound_xfr(server.host, zone, port=server.port, timeout=10)
    return zone


def zone_text(serial: int, extra: str = "") -> str:
    base = "".join(f'{naan} NAPTR 100 10 "h" "ark" "" h{naan}.example.\n' for naan in range(10000, 10060))
    return f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{base}{extra}"


@pytest.fixture
def primary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Primary]:
    """maptr and the secondaries that the test is parametrized with, all with serial 1."""
    kinds: tuple[type[Secondary], ...] = request.param
    require(*(command for kind in kinds for command in kind.commands))
    (tmp_path / "ark.arpa.zone").write_text(zone_text(1))
    with Primary(tmp_path, kinds, f"--catalog={CATALOG}") as running:
        yield running


each_alone = pytest.mark.parametrize(
    "primary", [(kind,) for kind in SECONDARIES], ids=[kind.name for kind in SECONDARIES], indirect=True
)
catalogs = pytest.mark.parametrize(
    "primary", [(KnotCatalogSecondary,), (BindCatalogSecondary,)], ids=["knot", "bind"], indirect=True
)


@each_alone
def test_a_secondary_follows_by_axfr_then_ixfr(primary: Primary) -> None:
    """Records added, changed, removed, a TTL changed, the case of a name, an RRset emptied; each told by NOTIFY."""
    primary.wait_for(1)
    primary.check()
    assert f"AXFR of zone ark.arpa. to {HOST} key xfr.: serial 1" in primary.log()
    changes = [
        "new TXT hello\nother A 192.0.2.7\n",
        "new TXT hello\nnew TXT again\nother A 192.0.2.8\n",
        "new 30 TXT hello\n*.wild TXT w\nsub NS ns.sub\nns.sub A 192.0.2.9\n",
        "NEW 30 TXT hello\n",
        "",
    ]
    for serial, extra in enumerate(changes, 2):
        primary.publish(zone_text(serial, extra))
        primary.wait_for(serial)
        primary.check()
        assert f"from serial {serial - 1} to {serial}" in primary.log()
        assert f"NOTIFY of zone ark.arpa. serial {serial} to" in primary.log()
    assert primary.log().count("AXFR of zone ark.arpa.") == 1, "the rest went by IXFR, and was taken"


def test_status_shows_the_serial_that_each_secondary_has(tmp_path: Path) -> None:
    """As Knot, NSD and the others say it, asked by a query with TSIG."""
    require(*(command for kind in SECONDARIES for command in kind.commands))
    (tmp_path / "ark.arpa.zone").write_text(zone_text(1))
    control = tmp_path / "control"
    status = [sys.executable, "-m", "maptr", "status", f"--control={control}", "--json"]
    with Primary(tmp_path, SECONDARIES, f"--control={control}") as primary:
        primary.wait_for(1)
        primary.publish(zone_text(2))
        primary.wait_for(2)
        deadline = time.monotonic() + PATIENCE
        while True:
            shown = json.loads(subprocess.run(status, check=True, timeout=60, capture_output=True).stdout)
            seen = [(told["observed_serial"], told["lags"]) for told in shown["zones"][0]["secondaries"]]
            if seen == [(2, False)] * len(SECONDARIES):
                break
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)


@each_alone
def test_a_secondary_that_was_away_gets_all_the_differences(primary: Primary) -> None:
    """It is asleep while three changes are made, and maptr is restarted: the journal survives that."""
    primary.wait_for(1)
    (secondary,) = primary.secondaries
    os.killpg(secondary.pid, signal.SIGSTOP)
    try:
        for serial in (2, 3, 4):
            primary.publish(zone_text(serial, f"n{serial} TXT x\n"))
            wait_for_line(primary, f"reloaded, serial {serial} ")
    finally:
        os.killpg(secondary.pid, signal.SIGCONT)
    restart(primary)
    primary.wait_for(4)
    primary.check()
    assert "AXFR of" not in primary.log()
    assert "to 4" in primary.log()


def test_all_four_follow_and_the_journal_survives_a_crash(tmp_path: Path) -> None:
    require(*(command for kind in SECONDARIES for command in kind.commands))
    (tmp_path / "ark.arpa.zone").write_text(zone_text(1))
    with Primary(tmp_path, SECONDARIES) as primary:
        for serial, extra in enumerate(["", "new TXT hello\n", "new 30 TXT hello\nother A 192.0.2.7\n", ""], 1):
            if serial > 1:
                primary.publish(zone_text(serial, extra))
            primary.wait_for(serial)
            primary.check()
        assert primary.log().count("NOTIFY of zone ark.arpa. serial 4 to") == len(SECONDARIES)
        for serial in (2, 3, 4):
            assert primary.log().count(f"from serial {serial - 1} to {serial}") == len(SECONDARIES)
        restart(primary)
        primary.publish(zone_text(5))
        primary.wait_for(5)
        primary.check()
        assert primary.log().count("from serial 4 to 5") == len(SECONDARIES)
        assert "AXFR of" not in primary.log()


def restart(primary: Primary) -> None:
    """Kill maptr, as a crash does, and start it again where it was."""
    server = primary.server
    port = server.port
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    server._wanted_port = port
    server.start()


def wait_for_line(primary: Primary, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in primary.log():
        assert time.monotonic() < deadline, primary.log()
        time.sleep(0.02)


@catalogs
def test_rfc9432_a_catalog_is_all_that_a_secondary_needs(primary: Primary) -> None:
    """Knot and BIND find the zone in the catalog, and follow it."""
    primary.wait_for(1)
    primary.check()
    primary.publish(zone_text(2, "new TXT hello\n"))
    primary.wait_for(2)
    primary.check()
    assert f"AXFR of zone {CATALOG}" in primary.log()


def transfer(command: str, port: int, *arguments: str, key: str = "") -> str:
    """What ``dig`` or ``kdig`` prints."""
    program = find(command)
    assert program is not None
    signed = ["-y", key] if key else []
    done = subprocess.run(
        [program, f"@{HOST}", "-p", str(port), *signed, "ark.arpa", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("command", ["dig", "kdig"])
def test_transfer_tools_with_good_bad_and_no_keys(command: str, tmp_path: Path) -> None:
    require(command)
    path = tmp_path / "ark.arpa.zone"
    path.write_text(zone_text(1))
    algorithms = ("hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512")
    keys = [f"--key={algorithm}={algorithm}:{SECRET}" for algorithm in algorithms]
    rules = [f"--transfer=key:{algorithm}" for algorithm in algorithms]
    with Maptr({ORIGIN: path}, *keys, *rules) as server:
        (path).write_text(zone_text(2, "new TXT hello\n"))
        os.kill(server.pid, signal.SIGHUP)
        while serial_at(server) != 2:
            time.sleep(0.02)
        for algorithm in algorithms:
            key = f"{algorithm}:{algorithm}:{SECRET}"
            whole = transfer(command, server.port, "AXFR", key=key)
            assert whole.count("NAPTR") == 60
            assert whole.count("SOA") == 2
            changes = transfer(command, server.port, "IXFR=1", key=key)
            assert changes.count("SOA") >= 4, changes
            assert "NAPTR" not in changes
            assert "new.ark.arpa." in changes
            for output in (whole, changes):
                assert "TSIG" in output or command == "kdig"
                assert not any(word in output for word in ("BADSIG", "WARNING", "erify", "expected a TSIG"))
            answer = transfer(command, server.port, "SOA", key=key)
            assert "NOERROR" in answer
            assert not any(word in answer for word in ("BADSIG", "erify", "expected a TSIG")), answer
        wrong_secret = f"hmac-sha256:hmac-sha256:{SECRET.replace('d', 'e')}"
        assert "BADSIG" in transfer(command, server.port, "AXFR", key=wrong_secret).upper().replace("_", "")
        assert "BADKEY" in transfer(command, server.port, "AXFR", key=f"hmac-sha256:other:{SECRET}").upper()
        none = transfer(command, server.port, "AXFR")
        assert "NAPTR" not in none
        assert "REFUSED" in none or "Transfer failed" in none
        assert "SOA" in transfer(command, server.port, "SOA")


@pytest.mark.parametrize("command", ["dig", "kdig"])
def test_rfc9103_a_transfer_over_tls(command: str, tmp_path: Path) -> None:
    """XFR over TLS: the same messages on another stream, signed or not."""
    require(command)
    write_certificate(tmp_path)
    path = tmp_path / "ark.arpa.zone"
    path.write_text(zone_text(1))
    port = free_port()
    tls = (f"--tls-listen={HOST}:{port}", f"--tls-cert={tmp_path}/tls.crt", f"--tls-key={tmp_path}/tls.key")
    with Maptr({ORIGIN: path}, KEY, "--transfer=key:xfr", *tls):
        assert transfer(command, port, "+tls", "AXFR", key=f"hmac-sha256:xfr:{SECRET}").count("NAPTR") == 60
        assert "NAPTR" not in transfer(command, port, "+tls", "AXFR")


def test_dig_with_a_cut_mac(tmp_path: Path) -> None:
    """BIND's way of RFC 8945 5.2.2.1: ``hmac-sha256-128`` is hmac-sha256 on the wire, its MAC cut."""
    require("dig")
    path = tmp_path / "ark.arpa.zone"
    path.write_text(zone_text(1))
    with Maptr(
        {ORIGIN: path},
        f"--key=cut=hmac-sha256-128:{SECRET}",
        f"--key=full=hmac-sha256:{SECRET}",
        "--transfer=key:cut",
        "--transfer=key:full",
    ) as server:
        assert transfer("dig", server.port, "AXFR", key=f"hmac-sha256-128:cut:{SECRET}").count("NAPTR") == 60
        assert "BADTRUNC" in transfer("dig", server.port, "AXFR", key=f"hmac-sha256-128:full:{SECRET}")


def sign(unsigned: Path, keys: Path, text: str) -> str:
    """The zone of this text as ``maptr zone sign`` makes it: NSEC, RRSIG, DNSKEY, CDS and ZONEMD."""
    unsigned.write_text(f"$ORIGIN {ORIGIN}\n{text}")
    signed = unsigned.with_suffix(".signed")
    for arguments in ([] if keys.exists() else ["keys", "add", keys]), ["sign", unsigned, keys, "-o", signed]:
        command = [sys.executable, "-m", "maptr", "zone", *map(str, arguments)]
        if arguments:
            subprocess.run(command, check=True, timeout=60, capture_output=True)
    return signed.read_text()


def test_all_four_follow_a_signed_zone(tmp_path: Path) -> None:
    """Each change makes new signatures of some names, of NSEC and of the SOA; the ZONEMD covers every record."""
    require("dig", *(command for kind in SECONDARIES for command in kind.commands))
    unsigned, keys = tmp_path / "unsigned", tmp_path / "keys"
    (tmp_path / "ark.arpa.zone").write_text(sign(unsigned, keys, zone_text(1)))
    with Primary(tmp_path, SECONDARIES) as primary:
        for serial, extra in enumerate(
            ["", "new TXT hello\n", "new TXT changed\nsub NS ns.sub\nns.sub A 192.0.2.2\n", ""], 1
        ):
            if serial > 1:
                primary.publish(sign(unsigned, keys, zone_text(serial, extra)))
            primary.wait_for(serial)
            expected = printed(primary.server.port, f"hmac-sha256:xfr:{SECRET}")
            assert any("\tzonemd\t" in line for line in expected)
            assert sum("\trrsig\t" in line for line in expected) > 120
            for secondary in primary.secondaries:
                assert printed(secondary.port) == expected, secondary.name
                zone = dns.zone.Zone(ORIGIN, relativize=False)
                dns.query.inbound_xfr(secondary.host, zone, port=secondary.port, timeout=10)
                zone.verify_digest()
        # PowerDNS takes a signed zone by AXFR each time.
        assert primary.log().count("IXFR of zone") >= 3 * (len(SECONDARIES) - 1)


def printed(port: int, key: str = "") -> list[str]:
    """All records as dig prints them, which takes it a hundredth of dnspython's time."""
    lines = transfer("dig", port, "AXFR", "+nocmd", "+nostats", "+nocrypto", "+onesoa", key=key).splitlines()
    return sorted(line.lower() for line in lines if "TSIG" not in line and not line.startswith(";"))


def test_all_four_follow_the_real_registry(real_data: Path, tmp_path: Path) -> None:
    """Through a sample of its real moments; after each, all have the same serial and the same records by IXFR."""
    require("dig", *(command for kind in SECONDARIES for command in kind.commands))
    documents = [document for _, document in states(real_data)]
    assert len(documents) == 131

    def text(number: int) -> str:
        table = registry.read(json.dumps(documents[number * 130 // MOMENTS]).encode())
        return build(publishable(table)[0], 2026112000 + number).text

    (tmp_path / "ark.arpa.zone").write_text(text(0))
    with Primary(tmp_path, SECONDARIES) as primary:
        for number in range(MOMENTS + 1):
            if number:
                primary.publish(text(number))
            primary.wait_for(2026112000 + number)
            expected = printed(primary.server.port, f"hmac-sha256:xfr:{SECRET}")
            assert len(expected) > 3800
            for secondary in primary.secondaries:
                assert printed(secondary.port) == expected, secondary.name
        assert primary.log().count(f"IXFR of zone {ORIGIN} to {HOST} key xfr.: from") == MOMENTS * len(SECONDARIES)


def test_all_four_follow_every_change_of_the_real_registry(real_data: Path, tmp_path: Path) -> None:
    """All 130 updates, one by one, of the NAANs that they touch. BIND, Knot and NSD get each by itself; PowerDNS, which
    looks once a second, gets several in one IXFR, as all four do when they have been away."""
    require("dig", *(command for kind in SECONDARIES for command in kind.commands))
    documents = [document for _, document in states(real_data)]
    assert len(documents) == 131
    naans = ever_touched(documents)

    def text(number: int) -> str:
        table = registry.read(json.dumps(of_naans(documents[number], naans)).encode())
        return build(publishable(table)[0], 2026112000 + number).text

    (tmp_path / "ark.arpa.zone").write_text(text(0))
    config = tmp_path / "maptr.toml"  # Maptr's own checks would take half of the time, and are looked at elsewhere
    config.write_text(f'[[zone]]\nname = "{ORIGIN}"\nfile = "ark.arpa.zone"\nlint = "off"\n')
    with Primary(tmp_path, SECONDARIES, f"--config={config}", "--control=") as primary:
        primary.wait_for(2026112000)
        for number in range(1, 131):
            primary.publish(text(number))
            primary.wait_for(2026112000 + number, BindSecondary, KnotSecondary, NsdSecondary)
        primary.wait_for(2026112130)
        expected = printed(primary.server.port, f"hmac-sha256:xfr:{SECRET}")
        assert len(expected) > 500
        for secondary in primary.secondaries:
            assert printed(secondary.port) == expected, secondary.name
        log = primary.log()
        assert log.count("AXFR of zone ark.arpa.") == len(SECONDARIES) + 1, "the first ones, and that of dig"
        for number in range(130):
            step = f"from serial {2026112000 + number} to {2026112000 + number + 1}"
            assert log.count(step) >= 3, step
