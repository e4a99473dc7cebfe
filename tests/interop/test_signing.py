"""Zones signed by maptr: ldns, BIND, Knot and NSD read them, and Unbound validates maptr's responses.

A key rollover follows the steps of docs/admin.md, and Unbound validates at every step.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dns.dnssec
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.zone
import pytest

from tests.support.answers import VECTORS
from tests.support.command_line import run as run_command
from tests.support.peers import Maptr, Peer, Unbound, output, run
from tests.support.secondaries import contents
from tests.support.signers import WAYS
from tests.support.signers import sign as sign_elsewhere

ORIGIN = "ark.arpa."
NAME = dns.name.from_text(ORIGIN)
TEXT = (VECTORS / "signing.zone").read_text()

# Question -> rcode. A validator sets AD only when it found every proof.
QUESTIONS = {
    "@ SOA": "NOERROR",
    "@ DNSKEY": "NOERROR",
    "12345 NAPTR": "NOERROR",
    "12345 A": "NOERROR",  # no data
    "b.c A": "NOERROR",  # an empty non-terminal
    "nope A": "NXDOMAIN",
    "zzz.nope.b.c A": "NXDOMAIN",
    "one.two.w TXT": "NOERROR",  # from the wildcard
    "one.two.w A": "NOERROR",  # the wildcard has none
    "one.y.w TXT": "NXDOMAIN",  # y.w is there, so the wildcard is not
    "alias NAPTR": "NOERROR",
    "wildalias TXT": "NOERROR",
    "q.old TXT": "NOERROR",
    "99999 DS": "NOERROR",  # a delegation that is not signed
    "99998 DS": "NOERROR",
}


def command(*arguments: object) -> str:
    return run_command("zone", *arguments, code=0).stdout


@dataclass(frozen=True)
class Work:
    """A zone, a key folder and the signed zone, as an operator has them."""

    zone: Path
    keys: Path
    signed: Path

    def sign(self, *options: str) -> dns.zone.Zone:
        command("sign", self.zone, self.keys, "-o", self.signed, *options)
        return dns.zone.from_file(str(self.signed), ORIGIN, relativize=False)

    def add(self, *options: str) -> str:
        return command("keys", "add", self.keys, *options).split()[0]

    def set(self, key: str, state: str) -> None:
        command("keys", "set", self.keys, key, state, "--force")

    def anchors(self) -> list[str]:
        return command("keys", "ds", self.keys, ORIGIN).splitlines()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    (tmp_path / "ark.zone").write_text(TEXT)
    return Work(tmp_path / "ark.zone", tmp_path / "keys", tmp_path / "signed.zone")


VERIFIERS: Mapping[str, tuple[str, ...]] = {
    "ldns-verify-zone": ("-Z",),  # requires a correct ZONEMD
    "dnssec-verify": ("-q", "-z", "-o", ORIGIN),  # -z accepts a CSK
    "kzonecheck": ("-o", ORIGIN),
    "named-checkzone": ("-i", "local", ORIGIN),
    "nsd-checkzone": (ORIGIN,),
}


def check_verified(path: Path, *, two_csks: bool = False) -> None:
    """All verifiers accept the zone. kzonecheck 3.2 refuses two signing keys with the SEP flag (docs/admin.md)."""
    programs = VERIFIERS.keys() - ({"kzonecheck"} if two_csks else set())
    verified = {program: run(program, *VERIFIERS[program], path) for program in programs}
    assert {program: said.output for program, said in verified.items() if not said.accepted} == {}


def questions(server: Peer) -> dict[str, tuple[str, bool]]:
    """Rcode and AD of each question."""
    found = {}
    for question in QUESTIONS:
        name, rdtype = question.split()
        query = dns.message.make_query(dns.name.from_text(name, NAME), rdtype, want_dnssec=True)
        reply = dns.query.udp_with_fallback(query, server.host, port=server.port, timeout=20)[0]
        found[question] = dns.rcode.to_text(reply.rcode()), bool(reply.flags & dns.flags.AD)
    return found


SECURE = {question: (rcode, True) for question, rcode in QUESTIONS.items()}


@pytest.mark.parametrize("way", ["maptr", *WAYS])
def test_signed_zones_are_transferred_whole_and_unbound_validates_the_answers(work: Work, way: str) -> None:
    """NSEC3 and the TTLs of signatures too, which the digest counts (RFC 8976 3.3.1).

    In an opt-out span the absence of names is not proved (RFC 5155 6), so AD may be missing.
    """
    if way == "maptr":
        work.add()
        work.sign()
    else:
        sign_elsewhere(TEXT, ORIGIN, work.zone.parent, way).rename(work.signed)
    zone = dns.zone.from_file(str(work.signed), ORIGIN, relativize=False)
    keys = (rdata.to_text() for rdata in zone.find_rdataset(ORIGIN, "DNSKEY"))
    anchors = [f"{ORIGIN} IN DNSKEY {key}" for key in keys if key.startswith("257 ")]
    options = ("--transfer=127.0.0.1", f"--state={work.zone.parent}")
    with Maptr({ORIGIN: work.signed}, *options) as server, Unbound({ORIGIN: server}, anchors) as unbound:
        received = contents(server)
        found = questions(unbound)
    assert received == zone
    if way == "maptr":
        received.verify_digest()
    assert {question: rcode for question, (rcode, _) in found.items()} == QUESTIONS
    insecure = {question for question, (_, secure) in found.items() if not secure}
    unproved = {q for q in QUESTIONS if QUESTIONS[q] == "NXDOMAIN" or ".w " in q}
    assert insecure <= (unproved | {"99999 DS", "wildalias TXT", "q.old TXT"} if "opt-out" in way else set())


# ---- rollovers, by the steps of docs/admin.md


def caches_hold(before: dns.zone.Zone, after: dns.zone.Zone) -> None:
    """Caches may have records of one zone and DNSKEYs of the other while a step waits; these are valid together."""
    for records, keys in ((before, after), (after, before)):
        dnskeys = {NAME: keys.find_rdataset(NAME, "DNSKEY")}
        for owner, rdtype in (("@", "SOA"), ("@", "NSEC"), ("12345", "NAPTR"), ("12345", "NSEC")):
            name = dns.name.from_text(owner, NAME)
            rdataset, signatures = records.find_rdataset(name, rdtype), records.find_rdataset(name, "RRSIG", rdtype)
            dns.dnssec.validate((name, rdataset), (name, signatures), dnskeys, NAME)  # type: ignore[arg-type]


def secure_with(work: Work, *anchors: list[str], two_csks: bool = False) -> None:
    """Verifiers accept the zone, and Unbound validates it with each set of DS, as parent and caches may have them."""
    check_verified(work.signed, two_csks=two_csks)
    with Maptr({ORIGIN: work.signed}) as server:
        for anchor in anchors:
            with Unbound({ORIGIN: server}, anchor) as unbound:
                assert questions(unbound) == SECURE


def cds(zone: dns.zone.Zone) -> set[str]:
    return {f"{ORIGIN} IN DS {rdata}" for rdata in zone.find_rdataset(NAME, "CDS")}


def test_a_csk_is_rolled_over_to_another_algorithm(work: Work) -> None:
    """``test_self_signing`` has the same algorithm, ``test_rollovers`` KSK and ZSK."""
    old = work.add()
    zones, ds = [work.sign()], work.anchors()
    new = work.add("--algorithm", "ed25519")  # published; the parent does not have its DS yet
    zones.append(work.sign())
    assert cds(zones[-1]) == set(ds) == set(work.anchors())
    secure_with(work, ds, two_csks=True)
    work.set(new, "active")  # until the parent has the DS of the new key too
    zones.append(work.sign())
    both = work.anchors()
    assert cds(zones[-1]) == set(both) > set(ds)
    secure_with(work, ds, both, two_csks=True)
    work.set(old, "retired")
    zones.append(work.sign())
    last = work.anchors()
    assert cds(zones[-1]) == set(last)
    secure_with(work, both, last, two_csks=True)
    command("keys", "remove", work.keys, old, "--force")
    zones.append(work.sign())
    assert work.anchors() == last
    secure_with(work, last)
    serials = [int(zone.get_soa().serial) for zone in zones]
    assert serials == sorted(set(serials))
    for before, after in itertools.pairwise(zones):
        caches_hold(before, after)
    with pytest.raises(dns.exception.ValidationFailure):
        caches_hold(zones[0], zones[-1])  # without the steps between them, caches would fail


def test_the_algorithm_of_a_ksk_and_a_zsk_is_rolled_over(work: Work) -> None:
    old = {role: work.add("--role", role) for role in ("ksk", "zsk")}
    zones, ds = [work.sign()], work.anchors()
    new, _ = (work.add("--role", role, "--algorithm", "ed25519") for role in ("ksk", "zsk"))
    zones.append(work.sign())
    secure_with(work, ds)
    work.set(new, "active")
    zones.append(work.sign())
    secure_with(work, ds, work.anchors())
    work.set(old["ksk"], "retired")
    zones.append(work.sign())
    last = work.anchors()
    command("keys", "remove", work.keys, old["ksk"], "--force")
    command("keys", "remove", work.keys, old["zsk"])
    zones.append(work.sign())
    assert work.anchors() == last
    secure_with(work, last)
    for before, after in itertools.pairwise(zones):
        caches_hold(before, after)


@pytest.mark.parametrize("algorithm", ["ECDSAP256SHA256", "ED25519"])
def test_the_keys_of_another_signer_keep_their_ds(work: Work, tmp_path: Path, algorithm: str) -> None:
    """As docs/admin.md moves them: BIND's key, by keymgr and openssl."""
    name = output("dnssec-keygen", "-q", "-a", algorithm, "-f", "KSK", "-K", tmp_path, ORIGIN).split()[-1]
    (tmp_path / "kasp").mkdir()
    output("keymgr", "-D", tmp_path / "kasp", ORIGIN, "import-bind", tmp_path / f"{name}.key")
    (pem,) = (tmp_path / "kasp" / "keys").glob("*.pem")
    work.keys.mkdir(mode=0o700)
    key = work.keys / f"csk-{algorithm.lower()}-{name[-5:]}.active.pem"
    output("openssl", "pkey", "-in", pem, "-out", key)
    key.chmod(0o600)
    theirs = output("dnssec-dsfromkey", "-2", tmp_path / f"{name}.key").split()[3:]
    assert [word.upper() for word in command("keys", "ds", work.keys, ORIGIN).split()[3:]] == theirs
    work.sign()
    secure_with(work, work.anchors())
