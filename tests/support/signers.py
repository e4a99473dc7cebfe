"""Zones signed with new keys by other programs: dnspython, BIND's dnssec-signzone, ldns-signzone and Knot's
kzonesign."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from string import Template

import dns.dnssec
import dns.dnssectypes
import dns.rdata
import dns.zone
import pytest

from tests.support.peers import CONFIGURATIONS, output

# Name -> program and options. RFC 9276 advises against salts and iterations, but zones with them must be answered.
WAYS: Mapping[str, tuple[str, ...]] = {
    "bind-nsec": ("dnssec-signzone",),
    "bind-nsec3": ("dnssec-signzone", "-3", "-", "-H", "0"),
    "bind-nsec3-opt-out": ("dnssec-signzone", "-3", "aabbccdd", "-H", "3", "-A"),
    "ldns-nsec3": ("ldns-signzone", "-n", "-s", "beef", "-t", "10"),
    "ldns-nsec3-opt-out": ("ldns-signzone", "-n", "-t", "0", "-p"),
}
# Name -> lines of a Knot policy.
KNOT_WAYS: Mapping[str, tuple[str, ...]] = {
    "knot-nsec": ("nsec3: off",),
    "knot-nsec3-opt-out": ("nsec3: on", "nsec3-iterations: 0", "nsec3-opt-out: on"),
}
NS_RECORDS = """\
@       SOA   ns hostmaster 1 3600 600 86400 60
@       NS    ns
ns      A     127.0.0.1
"""


def signed_zone(
    origin: str, text: str, *, begins: float = -3600, ends: float = 86400
) -> tuple[dns.zone.Zone, dns.rdata.Rdata]:
    """A zone signed by dnspython with a new key. ``begins`` and ``ends`` are seconds from now."""
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec", reason="signing needs maptr[dnssec]")
    now = int(time.time())
    zone = dns.zone.from_text(f"$ORIGIN {origin}\n$TTL 300\n{NS_RECORDS}{text}", origin, relativize=False)
    private = ec.generate_private_key(ec.SECP256R1())
    key = dns.dnssec.make_dnskey(private.public_key(), dns.dnssectypes.Algorithm.ECDSAP256SHA256, flags=257)
    with zone.writer() as transaction:
        dns.dnssec.sign_zone(
            zone, transaction, [(private, key)], inception=now + begins, expiration=now + ends, dnskey_ttl=300
        )
    return zone, key


def sign(text: str, origin: str, directory: Path, way: str) -> Path:
    """Sign a zone in one of the WAYS or KNOT_WAYS. Return the signed zone's file."""
    if way in KNOT_WAYS:
        return _sign_with_knot(text, origin, directory, KNOT_WAYS[way])
    program, *options = WAYS[way]
    stem = origin.rstrip(".")
    source, target = directory / f"{stem}.zone", directory / f"{stem}.signed"
    source.write_text(text)
    if program == "dnssec-signzone":
        output("dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K", ".", origin, cwd=directory)
        names = ("-o", origin, "-f", target.name, source.name)
        output(program, "-q", "-S", "-z", "-P", "-K", ".", *options, *names, cwd=directory)
    else:
        key = output("ldns-keygen", "-a", "ECDSAP256SHA256", "-k", origin, cwd=directory).split()[-1]
        output(program, *options, "-o", origin, "-f", target.name, source.name, key, cwd=directory)
    return target


def _sign_with_knot(text: str, origin: str, directory: Path, policy: tuple[str, ...]) -> Path:
    name = origin.rstrip(".")
    (directory / "source.zone").write_text(text)
    (directory / "db").mkdir()
    (directory / "out").mkdir()
    values = {"directory": directory, "origin": origin, "policy": "".join(f"    {line}\n" for line in policy)}
    config = Template((CONFIGURATIONS / "kzonesign.conf").read_text()).substitute(values)
    (directory / "knot.conf").write_text(config)
    output(
        "keymgr", "-c", "knot.conf", name, "generate", "algorithm=ecdsap256sha256", "ksk=yes", "zsk=yes", cwd=directory
    )
    output("kzonesign", "-c", "knot.conf", "-o", "out", name, cwd=directory)
    (signed,) = (directory / "out").iterdir()
    return signed
