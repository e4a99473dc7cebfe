"""BIND, NSD, Knot and PowerDNS as secondaries of maptr: AXFR, IXFR, NOTIFY and TSIG, as in docs/admin.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rrset
import dns.tsig
import pytest

from maptr import discover, registry
from maptr.registry.table import Table
from maptr.transfer import tsig
from maptr.zone.build import build
from maptr.zone.lint import publishable
from tests.support import secondaries
from tests.support.answers import VECTORS
from tests.support.command_line import run as run_command
from tests.support.http_server import http_server, sends
from tests.support.moments import ever_touched, of_naans, states
from tests.support.peers import HOST, Bind, Knot, Maptr, Peer, TlsMaptr, run
from tests.support.ports import free_port
from tests.support.secondaries import SECRET, KnotSecondary, serial_at
from tests.support.waiting import PATIENCE, until

UPDATES = 130  # of the real registry
# IXFRs that take all updates to the secondaries; MAPTR_MOMENTS=130 sends each update alone.
STEPS = int(os.environ.get("MAPTR_MOMENTS", "26"))
SERIAL = 2026112000
WRONG = "d3JvbmcgdGVzdCBrZXksIGtub3duIHRvIG5vYm9keSE="


def zone_text(serial: int, extra: str = "") -> str:
    base = "".join(f'{naan} NAPTR 100 10 "h" "ark" "" h{naan}.example.\n' for naan in range(10000, 10060))
    return f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{base}{extra}"


@pytest.fixture
def zone_file(tmp_path: Path) -> Path:
    path = tmp_path / "ark.arpa.zone"
    path.write_text(zone_text(1))
    return path


@pytest.fixture
def primary(request: pytest.FixtureRequest, zone_file: Path) -> Iterator[secondaries.Primary]:
    """maptr and a secondary of the kind with which the test is parametrized, with serial 1."""
    kinds = request.param if isinstance(request.param, tuple) else (request.param,)
    control = zone_file.parent / "control"
    options = (f"--catalog={secondaries.CATALOG}", f"--control={control}")
    with secondaries.primary_of(zone_file.parent, kinds, *options) as running:
        running.wait_for(1)
        running.check()
        yield running


def each(*kinds: type[secondaries.Secondary]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("primary", kinds, ids=[kind.name for kind in kinds], indirect=True)


@each(*secondaries.SECONDARIES)
def test_a_secondary_follows_by_axfr_then_ixfr(primary: secondaries.Primary) -> None:
    """Records added, changed, removed, a TTL changed, the case of a name, an RRset emptied, each after a NOTIFY.

    PowerDNS takes whole zones, because by IXFR it loses records (pdns#12756). Then it is asleep while maptr makes three
    changes and is killed: the journal survives that.
    """
    (secondary,) = primary.secondaries
    takes_changes = secondary.name != "powerdns"
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
        how = f"from serial {serial - 1} to {serial}" if takes_changes else f"key xfr.: serial {serial}"
        assert how in primary.log()
        assert f"NOTIFY of zone ark.arpa. serial {serial} to" in primary.log()
    assert f"AXFR of zone ark.arpa. to {HOST} key xfr.: serial 1" in primary.log()
    whole = 1 if takes_changes else 1 + len(changes)
    assert primary.log().count("AXFR of zone ark.arpa.") == whole, "all changes went as they should, and were taken"
    os.killpg(secondary.process.pid, signal.SIGSTOP)
    try:
        for serial in (7, 8, 9):
            primary.publish(zone_text(serial, f"n{serial} TXT x\n"))
            primary.server.wait_for(f"reloaded, serial {serial} ")
        primary.server.restart_after_kill()
    finally:
        os.killpg(secondary.process.pid, signal.SIGCONT)
    primary.wait_for(9)
    primary.check()
    assert ("AXFR of" in primary.log()) is not takes_changes
    assert ("to 9" if takes_changes else "serial 9") in primary.log()


@each(secondaries.KnotCatalogSecondary, secondaries.BindCatalogSecondary)
def test_rfc9432_a_catalog_is_all_that_a_secondary_needs(primary: secondaries.Primary) -> None:
    """Knot and BIND find the zone in the catalog, and follow it."""
    primary.publish(zone_text(2, "new TXT hello\n"))
    primary.wait_for(2)
    primary.check()
    assert f"AXFR of zone {secondaries.CATALOG}" in primary.log()
    (secondary,) = primary.secondaries
    control = primary.path.parent / "control"

    def told() -> dict[str, Any]:
        """How far the secondary is with the catalog."""
        status = json.loads(run_command("status", "--control", control, "--json").stdout)
        assert status["alarms"] == [], "also if it refuses to tell"
        (found,) = status["catalog"]["secondaries"]
        return dict(found)

    until(lambda: told()["progress"] in ("in step", "does not tell"), lambda: str(told()), seconds=60)
    assert told()["progress"] == ("does not tell" if secondary.name == "knot" else "in step")


def transfer(command: str, port: int, *arguments: str, key: str = "") -> str:
    """The output of ``dig`` or ``kdig``."""
    signed = ["-y", key] if key else []
    return run(command, f"@{HOST}", "-p", port, *signed, "ark.arpa", *arguments).output


@pytest.mark.parametrize("command", ["dig", "kdig"])
def test_transfer_tools_with_good_bad_and_no_keys(command: str, zone_file: Path) -> None:
    """Over TCP and over TLS (RFC 9103): the same messages on another stream."""
    algorithms = ("hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512")
    keys = [f"--key={algorithm}={algorithm}:{secondaries.SECRET}" for algorithm in algorithms]
    rules = [f"--transfer=key:{algorithm}" for algorithm in algorithms]
    with TlsMaptr({secondaries.ORIGIN: zone_file}, *keys, *rules) as server:
        zone_file.write_text(zone_text(2, "new TXT hello\n"))
        server.hang_up()
        secondaries.wait_for_serial(server, 2)
        for algorithm in algorithms:
            key = f"{algorithm}:{algorithm}:{secondaries.SECRET}"
            whole = transfer(command, server.port, "AXFR", key=key)
            assert whole.count("NAPTR") == 60
            assert whole.count("SOA") == 2
            changes = transfer(command, server.port, "IXFR=1", key=key)
            assert changes.count("SOA") >= 4, changes
            assert "NAPTR" not in changes
            assert "new.ark.arpa." in changes
            assert "WARNING" not in whole + changes
            answer = transfer(command, server.port, "SOA", key=key)
            assert "NOERROR" in answer
            for output in (whole, changes, answer):
                assert "TSIG" in output or command == "kdig"
                assert not re.search("BADSIG|erify|expected a TSIG", output), output
        assert transfer(command, server.tls_port, "+tls", "AXFR", key=key).count("NAPTR") == 60
        server.wait_for(r"AXFR of zone ark\.arpa\. to .* key hmac-sha512\. by tls: serial 2")
        wrong_secret = f"hmac-sha256:hmac-sha256:{secondaries.SECRET.replace('d', 'e')}"
        assert "BADSIG" in transfer(command, server.port, "AXFR", key=wrong_secret).upper().replace("_", "")
        assert "BADKEY" in transfer(command, server.port, "AXFR", key=f"hmac-sha256:other:{secondaries.SECRET}").upper()
        none = transfer(command, server.port, "AXFR")
        assert "NAPTR" not in none
        assert "REFUSED" in none or "Transfer failed" in none
        assert "NAPTR" not in transfer(command, server.tls_port, "+tls", "AXFR")
        assert "SOA" in transfer(command, server.port, "SOA")


def test_dig_with_a_truncated_mac(zone_file: Path) -> None:
    """BIND's way of RFC 8945 5.2.2.1: ``hmac-sha256-128`` is hmac-sha256 on the wire, its MAC cut."""
    keys = (f"--key=cut=hmac-sha256-128:{secondaries.SECRET}", f"--key=full=hmac-sha256:{secondaries.SECRET}")
    with Maptr({secondaries.ORIGIN: zone_file}, *keys, "--transfer=key:cut", "--transfer=key:full") as server:
        assert (
            transfer("dig", server.port, "AXFR", key=f"hmac-sha256-128:cut:{secondaries.SECRET}").count("NAPTR") == 60
        )
        assert "BADTRUNC" in transfer("dig", server.port, "AXFR", key=f"hmac-sha256-128:full:{secondaries.SECRET}")


def check_printed(primary: secondaries.Primary, least: int) -> list[str]:
    """All servers have the same records, as dig prints them: it takes a hundredth of dnspython's time."""

    def printed(port: int, key: str = "") -> list[str]:
        options = ("+nocmd", "+nostats", "+nocrypto", "+onesoa")
        lines = transfer("dig", port, "AXFR", *options, key=key).splitlines()
        return sorted(line.lower() for line in lines if "TSIG" not in line and not line.startswith(";"))

    expected = printed(primary.server.port, f"hmac-sha256:xfr:{secondaries.SECRET}")
    assert len(expected) > least
    for secondary in primary.secondaries:
        assert printed(secondary.port) == expected, secondary.name
    return expected


def test_all_four_follow_a_signed_zone_and_status_shows_their_serials(zone_file: Path) -> None:
    """Each change makes new signatures of some names, of NSEC and of the SOA; the ZONEMD covers every record."""
    pytest.importorskip("cryptography")
    unsigned, keys, signed, control = map(zone_file.with_name, ("unsigned", "keys", "signed", "control"))

    def sign(text: str) -> str:
        unsigned.write_text(f"$ORIGIN {secondaries.ORIGIN}\n{text}")
        run_command("zone", "sign", unsigned, keys, "-o", signed, code=0)
        return signed.read_text()

    run_command("zone", "keys", "add", keys, code=0)
    zone_file.write_text(sign(zone_text(1)))
    with secondaries.primary_of(zone_file.parent, secondaries.SECONDARIES, f"--control={control}") as primary:
        for serial, extra in enumerate(["", "new TXT hello\nsub NS ns.sub\nns.sub A 192.0.2.2\n", ""], 1):
            if serial > 1:
                primary.publish(sign(zone_text(serial, extra)))
            primary.wait_for(serial)
            expected = check_printed(primary, 120)
            assert any("\tzonemd\t" in line for line in expected)
            assert sum("\trrsig\t" in line for line in expected) > 120
            primary.check(zone_file)
        # PowerDNS takes a signed zone by AXFR each time.
        assert primary.log().count("IXFR of zone") >= 2 * (len(secondaries.SECONDARIES) - 1)
        assert primary.log().count("NOTIFY of zone ark.arpa. serial 3 to") == len(secondaries.SECONDARIES)

        def observed() -> list[tuple[int, bool]]:
            shown = json.loads(run_command("status", f"--control={control}", "--json").stdout)
            return [(seen["observed_serial"], seen["lags"]) for seen in shown["zones"][0]["secondaries"]]

        until(lambda: observed() == [(3, False)] * len(secondaries.SECONDARIES), lambda: f"status shows {observed()}")


def test_all_four_follow_the_updates_of_the_real_registry(real_data: Path, tmp_path: Path) -> None:
    """BIND, Knot and NSD take each step by itself, if it is smaller than the zone; PowerDNS, which looks once a second,
    takes whole zones."""
    documents = [document for _, document in states(real_data)]
    assert len(documents) == UPDATES + 1
    naans = ever_touched(documents)

    def text(number: int) -> str:
        document = of_naans(documents[number * UPDATES // STEPS], naans)
        return build(publishable(registry.read(json.dumps(document).encode()))[0], SERIAL + number).text

    (tmp_path / "ark.arpa.zone").write_text(text(0))
    config = tmp_path / "maptr.toml"  # without the checks of the zone, which have other tests and take half the time
    config.write_text(f'[[zone]]\nname = "{secondaries.ORIGIN}"\nfile = "ark.arpa.zone"\nlint = "off"\n')
    kinds = (secondaries.BindSecondary, secondaries.KnotSecondary, secondaries.NsdSecondary)
    with secondaries.primary_of(tmp_path, secondaries.SECONDARIES, f"--config={config}", "--control=") as primary:
        primary.wait_for(SERIAL)
        for number in range(1, STEPS + 1):
            primary.publish(text(number))
            primary.wait_for(SERIAL + number, *kinds)
        primary.wait_for(SERIAL + STEPS)
        check_printed(primary, 500)
        log = primary.log()
        for serial in range(SERIAL, SERIAL + STEPS):
            whole = f"the whole zone, serial {serial + 1}, because the changes since serial {serial}"
            assert log.count(f"from serial {serial} to {serial + 1}") + log.count(whole) >= len(kinds), serial
        axfrs = log.count("AXFR of zone ark.arpa.")
        most = len(secondaries.SECONDARIES) + 1 + STEPS
        assert len(secondaries.SECONDARIES) + 1 <= axfrs <= most, "the first ones, that of dig, and those of PowerDNS"


@pytest.mark.parametrize("kind", [secondaries.KnotCatalogSecondary, secondaries.BindCatalogSecondary])
def test_no_consumer_purges_a_zone_before_an_operator_removes_it(
    kind: type[secondaries.Secondary], zone_file: Path
) -> None:
    """By a reload, a restart, or a zone that cannot be loaded: Knot and BIND purge what the catalog leaves out."""
    folder = zone_file.parent
    config, control = folder / "maptr.toml", folder / "control"
    (folder / "other.zone").write_text(zone_text(1))

    def configure(*names: str) -> None:
        zones = {"ark.arpa": "ark.arpa.zone", "other.test": "other.zone"}
        lines = "".join(f'[[zone]]\nname = "{name}"\nfile = "{zones[name]}"\n' for name in names)
        config.write_text(f'[serve]\nstate = "state"\ncontrol = "control"\n{lines}')

    def restart() -> None:
        before = len(server.lines)
        server.kill()
        server.launch().wait_for("^maptr: ready, serving", before)

    configure("ark.arpa", "other.test")
    port = free_port()
    server = Maptr({}, f"--config={config}", secondaries.KEY, "--transfer=key:xfr", f"--listen={HOST}:{port}")
    server.options += (f"--catalog={secondaries.CATALOG}",)
    consumer = kind(port)
    server.options += (f"--notify={HOST}:{consumer.port} key:xfr",)
    with server:
        server.ready()
        with consumer:
            secondaries.wait_for_serial(consumer, 1, server.log)
            zone_file.write_text("not a zone")
            restart()
            configure("other.test")
            assert run_command("reload", "--control", control).exit_code == 1
            restart()
            assert [alarm["kind"] for alarm in alarms_of(control)] == ["members-kept"]
            # Later changes of another zone arrive, so the consumer has seen the catalog.
            (folder / "other.zone").write_text(zone_text(2))
            run_command("reload", "--control", control)
            until(lambda: serial_at(consumer, origin="other.test.") == 2, consumer.log)
            assert serial_at(consumer) == 1
            assert run_command("reload", "--force", "--control", control).exit_code == 0
            until(lambda: serial_at(consumer) is None, consumer.log)


CHOOSING = """
[serve]
state = "state"
control = "control"
[[zone]]
name = "ark.arpa"
file = "ark.arpa.zone"
serial = "increment"
"""


def alarms_of(control: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(run_command("status", "--control", control, "--json").stdout)["alarms"]
    return found


@pytest.mark.parametrize("damage", ["lost", "an older backup"])
def test_all_four_follow_a_primary_that_lost_its_state(damage: str, zone_file: Path) -> None:
    """maptr then has other content, and would give it a serial that they have."""
    folder = zone_file.parent
    config, state, backup = folder / "maptr.toml", folder / "state", folder / "backup"
    config.write_text(CHOOSING)
    with secondaries.primary_of(folder, secondaries.SECONDARIES, f"--config={config}") as running:
        running.wait_for(1)
        shutil.copytree(state, backup)
        for serial in (2, 3):
            running.publish(zone_text(1, f"n{serial} TXT x\n"))
            running.wait_for(serial)
        running.server.kill()
        shutil.rmtree(state)
        if damage != "lost":
            backup.rename(state)
        zone_file.write_text(zone_text(1, "other TXT content\n"))
        running.server.start()
        running.wait_for(4)
        zone_file.write_text(zone_text(4, "other TXT content\n"))
        running.check()
        assert alarms_of(folder / "control") == []


@pytest.mark.parametrize("kind", secondaries.SECONDARIES)
def test_a_secondary_that_is_ahead_is_passed_by_force(kind: type[secondaries.Secondary], zone_file: Path) -> None:
    """A backup is restored whose content is as the zone file: its serial stays, until an operator passes it."""
    folder = zone_file.parent
    config, state, backup = folder / "maptr.toml", folder / "state", folder / "backup"
    config.write_text(CHOOSING)
    with secondaries.primary_of(folder, (kind,), f"--config={config}") as running:
        running.wait_for(1)
        shutil.copytree(state, backup)
        running.publish(zone_text(1, "n2 TXT x\n"))
        running.wait_for(2)
        running.server.kill()
        shutil.rmtree(state)
        backup.rename(state)
        zone_file.write_text(zone_text(1))
        running.server.start()
        control = folder / "control"
        until(
            lambda: [alarm for alarm in alarms_of(control) if "is ahead: it has serial 2, not 1" in alarm["text"]], ""
        )
        assert run_command("reload", "ark.arpa", "--force", "--control", control).exit_code == 0
        running.wait_for(3)
        until(lambda: alarms_of(control) == [], lambda: str(alarms_of(control)))
        zone_file.write_text(zone_text(3))
        running.check()


class BindOfAServiceAddress(secondaries.BindSecondary):
    """Its primary is at 127.0.0.2, from which alone it accepts NOTIFY."""

    primary_host = "127.0.0.2"


@pytest.mark.parametrize("source", ["127.0.0.2", ""])
def test_notify_comes_from_the_configured_source(source: str, zone_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BIND refuses NOTIFY from another address than that of its primary."""
    monkeypatch.setenv("MAPTR_SERVE_SECONDARIES_SOURCE", source)
    port = free_port()
    server = Maptr({secondaries.ORIGIN: zone_file}, secondaries.KEY, "--transfer=key:xfr", port=port)
    secondary = BindOfAServiceAddress(port)
    server.options += (f"--listen=127.0.0.2:{port}", f"--notify={HOST}:{secondary.port} key:xfr")
    with server, secondary:
        zone_file.write_text(zone_text(2))
        server.hang_up()
        if source:
            secondaries.wait_for_serial(secondary, 2, server.log)
            assert "refused notify" not in secondary.log()
        else:
            until(lambda: "refused notify from non-primary: 127.0.0.1" in secondary.log(), secondary.log)


@pytest.mark.parametrize("primary", [secondaries.SECONDARIES], ids=["all"], indirect=True)
def test_status_a_second_after_a_publication_shows_secondaries_in_step(
    primary: secondaries.Primary, zone_file: Path
) -> None:
    """NSD may wait for a second before it loads what it transferred."""
    control, said = zone_file.parent / "control", [""]

    def is_in_step() -> bool:
        said.append(run_command("status", "--control", control).stdout)
        return said[-1].count("has serial 2, seen") == len(primary.secondaries)

    zone_file.write_text(zone_text(2))
    assert run_command("reload", "--control", control).exit_code == 0
    until(is_in_step, lambda: said[-1] + primary.log(), seconds=60)
    assert not any("LAGS BEHIND" in each for each in said)


@pytest.mark.parametrize("kind", [secondaries.KnotSecondary, secondaries.BindSecondary])
def test_a_secondary_with_a_wrong_secret_is_an_alarm_that_says_so(
    kind: type[secondaries.Secondary], zone_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "secret", WRONG)
    monkeypatch.setattr(kind, "questions", lambda _: [])  # it will not have the zone
    monkeypatch.setenv("MAPTR_SERVE_SECONDARIES_INTERVAL", "1")
    monkeypatch.setenv("MAPTR_SERVE_SECONDARIES_ALARM_AFTER", "2")
    control = zone_file.parent / "control"
    with secondaries.primary_of(zone_file.parent, (kind,), f"--control={control}") as running:
        (secondary,) = running.secondaries

        def alarms() -> list[dict[str, str]]:
            done = run_command("status", "--control", control, "--json")
            found: list[dict[str, str]] = json.loads(done.stdout)["alarms"]
            assert done.exit_code == bool(found)
            return [alarm for alarm in found if alarm.pop("text").endswith("refuses our TSIG key: BADSIG")]

        (alarm,) = until(alarms, running.log)  # before, the secondary may not be running
        assert alarm.pop("since").endswith("Z")
        where = f"{HOST}:{secondary.port} key:xfr."
        assert alarm == {"kind": "secondary-unknown", "zone": "ark.arpa.", "secondary": where}
        until(lambda: f"zone ark.arpa.: secondary {where} has an unknown serial" in running.log(), running.log)
        told = run_command("status", "--control", control)
        assert (told.exit_code, "ALARM zone ark.arpa.: secondary" in told.stdout) == (1, True)


# ---- errors for refused transfers, NOTIFY messages and keys, which are the same as those of BIND and Knot


ORIGIN = "ark.arpa."

Verdict = tuple[int, int, int, int]  # rcode, records of the answer, TSIG error, bytes of its MAC

BADKEY: Verdict = (dns.rcode.NOTAUTH, 0, dns.rcode.BADKEY, 0)


def query(name: str, rdtype: str, serial: int | None = None, *, notify: bool = False, signed: bool = False) -> bytes:
    message = dns.message.make_query(name, rdtype)
    message.flags = dns.flags.Flag(0)
    if notify:
        message.set_opcode(dns.opcode.NOTIFY)
        message.flags |= dns.flags.AA
    if serial is not None:
        message.authority.append(dns.rrset.from_text(name, 0, "IN", "SOA", f". . {serial} 0 0 0 0"))
    if signed:
        message.use_tsig(dns.tsig.Key("unknown.", b"x" * 32))
    return message.to_wire()


def verdict(server: Peer, wire: bytes, over: str) -> Verdict:
    kind = socket.SOCK_DGRAM if over == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(PATIENCE)
        sock.connect((server.host, server.port))
        if over == "udp":
            sock.send(wire)
            reply = sock.recv(65535)
        else:
            sock.sendall(len(wire).to_bytes(2, "big") + wire)
            stream = sock.makefile("rb")
            reply = stream.read(int.from_bytes(stream.read(2), "big"))
    record = tsig.find(reply)
    error = (0, 0) if record is None else (record.rdata.error, len(record.rdata.mac))
    return reply[3] & 15, int.from_bytes(reply[6:8], "big"), *error


@pytest.fixture(scope="module", params=[Bind, Knot], ids=lambda peer: peer.name)
def both(request: pytest.FixtureRequest, vectors: Path) -> Iterator[tuple[Peer, Peer]]:
    """maptr and another server with the same zone, which this machine may transfer."""
    zones = {ORIGIN: vectors / "peers.zone"}
    with Maptr(zones, "--transfer=127.0.0.1") as ours, request.param(zones) as other:
        yield ours, other


CASES = {
    "udp-ixfr-behind": ("udp", query(ORIGIN, "IXFR", 0)),
    "udp-ixfr-ahead": ("udp", query(ORIGIN, "IXFR", 2**31 - 1)),
    "udp-ixfr-other": ("udp", query("other.", "IXFR", 1)),
    "ixfr-other": ("tcp", query("other.", "IXFR", 1)),
    "axfr-other": ("tcp", query("other.", "AXFR")),
    "axfr-below": ("tcp", query("below." + ORIGIN, "AXFR")),
    "ixfr-without-soa": ("tcp", query(ORIGIN, "IXFR")),
    "notify-other": ("udp", query("other.", "SOA", notify=True)),
    "badkey": ("udp", query(ORIGIN, "SOA", signed=True)),
    "badkey-notify": ("udp", query(ORIGIN, "SOA", notify=True, signed=True)),
    "badkey-axfr": ("tcp", query(ORIGIN, "AXFR", signed=True)),
    "badkey-ixfr": ("tcp", query(ORIGIN, "IXFR", 1, signed=True)),
}


@pytest.mark.parametrize(("over", "wire"), CASES.values(), ids=CASES)
def test_maptr_gives_the_same_errors_as_other_servers(both: tuple[Peer, Peer], over: str, wire: bytes) -> None:
    ours, other = both
    said = verdict(other, wire, over)
    if other.name == "knot" and tsig.find(wire) is not None and said == (dns.rcode.NOTAUTH, 0, 0, 0):
        said = BADKEY  # newer releases of Knot (3.4) leave out the record that says why (RFC 8945 5.2.1)
    assert verdict(ours, wire, over) == said


# ---- one configuration file


NEW = "ark:54321/x1"

CONFIG = (VECTORS / "service.toml").read_text()


class Site:
    """maptr, started, and the secondary that it notifies."""

    def __init__(self, directory: Path, url: str) -> None:
        self.config = directory / "maptr.toml"
        self.server = Maptr({}, "--config", str(self.config))
        self.secondary = KnotSecondary(self.server.port)
        ports = {"port": self.server.port, "secondary": self.secondary.port}
        self.config.write_text(CONFIG.format(**ports, url=url, secret=SECRET))
        self.server.launch()

    def status(self) -> dict[str, Any]:
        result = run_command("status", "--config", self.config, "--json")
        return dict(json.loads(result.stdout)) if result.stdout.startswith("{") else {}

    def table(self) -> dict[str, Any]:
        return dict(self.status().get("table") or {})

    def serial(self) -> int | None:
        zones = self.status().get("zones") or [{}]
        found: int | None = zones[0].get("serial")
        return found


def test_one_configuration_pulls_publishes_notifies_and_checks_drift(sample: Path, tmp_path: Path) -> None:
    table = registry.read(sample.read_bytes())
    content = {"/naans": registry.write_json(table).encode()}

    def serve(request: Any) -> None:
        sends(content.get(request.path, b""), 200 if request.path in content else 503)(request)

    with http_server(serve) as url:
        site = Site(tmp_path, url)
        secondary = site.secondary
        try:
            first = until(site.serial, "the zone of the first pull")
            secondary.start()
            until(lambda: serial_at(secondary) == first, "the secondary has it")
            assert discover("ark:12345/x54", nameservers=f"{HOST}#{secondary.port}")
            until(lambda: site.table().get("drift"), "a report of drift")

            # The registry gets an entry: serial, NOTIFY and IXFR follow, and there is no drift.
            entry = table["12345"]
            more = Table([*table.values(), type(entry)("54321", nmas=entry.nmas)], metadata=table.metadata)
            content["/naans"] = registry.write_json(more).encode()
            second = until(lambda: (s := site.serial()) != first and s, "the next serial")
            until(lambda: serial_at(secondary) == second, "the secondary follows")
            assert discover(NEW, nameservers=f"{HOST}#{secondary.port}")
            site.server.wait_for(rf"IXFR of zone ark\.arpa\. to .*: from serial {first} to {second}")
            site.server.wait_for(r"table .*naans\.json: pulled from http.*: 1 added, 0 changed, 0 removed")
            until(
                lambda: [(one["deviating"], one["records"]) for one in site.table()["drift"]] == [([], len(more))],
                "a report without drift",
            )

            # The source fails, and its mirror has lost half: the zone and the table stay, and the status says why.
            del content["/naans"]
            content["/naans-mirror"] = registry.write_json(Table(list(more.values())[::2])).encode()
            until(lambda: "removes" in site.table()["error"], "the guard in the status")
            assert any("not pulled, keeping the old one" in alarm["text"] for alarm in site.status()["alarms"])
            assert site.serial() == second
            assert (tmp_path / "state" / "drift.sqlite").exists()
        finally:
            secondary.stop()
            assert site.server.stop() == 0
