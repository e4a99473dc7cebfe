"""Errors for refused transfers, NOTIFY messages and keys: maptr, BIND and Knot respond the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rrset
import dns.tsig
import pytest

from maptr.transfer import tsig
from tests.support.peers import Bind, Knot, Maptr, Peer

ORIGIN = "ark.arpa."
PATIENCE = 5.0  # seconds for one answer

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
