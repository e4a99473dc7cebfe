"""Zones signed by maptr: ldns, BIND, Knot and NSD read them, and Unbound validates the responses of maptr.

A key rollover follows the steps of docs/dnssec.md, and Unbound validates at every step.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
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

from tests.support.command_line import run as run_command
from tests.support.peers import Bind, Checked, Knot, Maptr, Nsd, Peer, Unbound, run
from tests.support.secondaries import contents
from tests.support.signers import WAYS
from tests.support.signers import sign as sign_elsewhere

ORIGIN = "ark.arpa."
TEXT = """\
$ORIGIN ark.arpa.
$TTL 3600
@      SOA   ns hostmaster 1 7200 3600 1209600 300
@      NS    ns
ns     A     192.0.2.1
12345  NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\\\1!" .
12345  NAPTR 100 10 "h" "ark" "" h.example\\0588443.
a.b.c  TXT   "below two empty non-terminals"
*.w    TXT   "wild"
x.y.w  TXT   "not wild"
alias  CNAME 12345
wildalias CNAME q.w
old    DNAME w
99999  NS    ns.nma.example.
99998  NS    ns.99998
99998  DS    12345 13 2 0000000000000000000000000000000000000000000000000000000000000001
ns.99998 A   192.0.2.2
"""

# Question -> rcode, and what it shows. A validator sets AD only when it found every proof.
QUESTIONS: Mapping[tuple[str, str], str] = {
    (ORIGIN, "SOA"): "NOERROR",
    (ORIGIN, "DNSKEY"): "NOERROR",
    (f"12345.{ORIGIN}", "NAPTR"): "NOERROR",
    (f"12345.{ORIGIN}", "A"): "NOERROR",  # no data
    (f"b.c.{ORIGIN}", "A"): "NOERROR",  # an empty non-terminal
    (f"nope.{ORIGIN}", "A"): "NXDOMAIN",
    (f"zzz.nope.b.c.{ORIGIN}", "A"): "NXDOMAIN",
    (f"one.two.w.{ORIGIN}", "TXT"): "NOERROR",  # from the wildcard
    (f"one.two.w.{ORIGIN}", "A"): "NOERROR",  # the wildcard has none
    (f"one.y.w.{ORIGIN}", "TXT"): "NXDOMAIN",  # y.w is there, so the wildcard is not
    (f"alias.{ORIGIN}", "NAPTR"): "NOERROR",
    (f"wildalias.{ORIGIN}", "TXT"): "NOERROR",
    (f"q.old.{ORIGIN}", "TXT"): "NOERROR",
    (f"99999.{ORIGIN}", "DS"): "NOERROR",  # a delegation that is not signed
    (f"99998.{ORIGIN}", "DS"): "NOERROR",
}


def command(*arguments: object) -> str:
    done = run_command("zone", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@dataclass(frozen=True)
class Work:
    """A zone, a key folder and the signed zone, as an operator has them."""

    directory: Path

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    @property
    def signed(self) -> Path:
        return self.directory / "signed.zone"

    def sign(self, *options: str) -> dns.zone.Zone:
        command("sign", self.directory / "ark.zone", self.keys, "-o", self.signed, *options)
        return dns.zone.from_file(str(self.signed), ORIGIN, relativize=False)

    def add(self, *options: str) -> str:
        return command("keys", "add", self.keys, *options).split()[0]

    def anchors(self) -> list[str]:
        return command("keys", "ds", self.keys, ORIGIN).splitlines()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    (tmp_path / "ark.zone").write_text(TEXT)
    return Work(tmp_path)


VERIFIERS: Mapping[str, tuple[str, ...]] = {
    "ldns-verify-zone": ("-Z",),  # requires a correct ZONEMD
    "dnssec-verify": ("-q", "-z", "-o", ORIGIN),  # -z accepts a CSK
    "kzonecheck": ("-o", ORIGIN),
    "named-checkzone": ("-i", "local", ORIGIN),
    "nsd-checkzone": (ORIGIN,),
}


def verify(program: str, path: Path) -> Checked:
    return run(program, *VERIFIERS[program], path)


def check_verified(path: Path, *, two_csks: bool = False) -> None:
    """All verifiers accept the zone. kzonecheck 3.2 refuses two signing keys with the SEP flag (docs/dnssec.md)."""
    verified = {program: verify(program, path) for program in VERIFIERS if not (two_csks and program == "kzonecheck")}
    assert {program: said.output for program, said in verified.items() if not said.accepted} == {}


def questions(server: Peer) -> dict[tuple[str, str], tuple[str, bool]]:
    """Rcode and AD of each question."""
    found = {}
    for name, rdtype in QUESTIONS:
        query = dns.message.make_query(name, rdtype, want_dnssec=True)
        reply = dns.query.udp_with_fallback(query, server.host, port=server.port, timeout=20)[0]
        found[name, rdtype] = dns.rcode.to_text(reply.rcode()), bool(reply.flags & dns.flags.AD)
    return found


SECURE = {question: (rcode, True) for question, rcode in QUESTIONS.items()}
BOGUS = dict.fromkeys(QUESTIONS, ("SERVFAIL", False))


@pytest.mark.parametrize("roles", [("csk",), ("ksk", "zsk")], ids=" and ".join)
def test_verifiers_accept_and_unbound_validates(work: Work, roles: tuple[str, ...]) -> None:
    """With Ed25519; the rollovers below do the same with ECDSA."""
    for role in roles:
        work.add("--role", role, "--algorithm", "ed25519")
    work.sign()
    secure_with(work, work.anchors())


def test_the_verifiers_refuse_changed_records(work: Work) -> None:
    """Changed glue, which only the ZONEMD covers, and a changed record."""
    work.add()
    work.sign()
    text = work.signed.read_text()
    work.signed.write_text(text.replace("192.0.2.2", "192.0.2.9"))
    assert not verify("ldns-verify-zone", work.signed).accepted
    assert verify("dnssec-verify", work.signed).accepted
    work.signed.write_text(text.replace('"not wild"', '"tampered"'))
    assert not verify("dnssec-verify", work.signed).accepted


@pytest.mark.parametrize("peer", [Bind, Knot, Nsd], ids=lambda peer: peer.name)
def test_other_servers_answer_the_same_from_it(work: Work, peer: type[Peer]) -> None:
    work.add()
    work.sign()
    with peer({ORIGIN: work.signed}) as server, Unbound({ORIGIN: server}, work.anchors()) as unbound:
        assert questions(unbound) == SECURE


def test_a_tampered_zone_is_bogus(work: Work) -> None:
    """A record changed, and one taken out together with its NSEC: both are SERVFAIL, and the rest stays secure."""
    work.add()
    work.sign("--no-zonemd")  # with it our own server would refuse the zone
    text = work.signed.read_text().replace("h.example", "evil.example").replace('"wild"', '"tame"')
    lines = [line for line in text.splitlines() if not line.startswith("x.y.w.")]
    work.signed.write_text("\n".join(lines) + "\n")
    bogus = {
        (f"12345.{ORIGIN}", "NAPTR"),
        (f"alias.{ORIGIN}", "NAPTR"),
        (f"one.two.w.{ORIGIN}", "TXT"),
        (f"one.y.w.{ORIGIN}", "TXT"),
        (f"wildalias.{ORIGIN}", "TXT"),
        (f"q.old.{ORIGIN}", "TXT"),
    }
    with Maptr({ORIGIN: work.signed}) as server, Unbound({ORIGIN: server}, work.anchors()) as unbound:
        found = questions(unbound)
    assert {question for question, (rcode, _) in found.items() if rcode == "SERVFAIL"} == bogus
    assert all(found[question] == SECURE[question] for question in QUESTIONS.keys() - bogus)


def test_expired_signatures_and_a_wrong_anchor_are_bogus(work: Work) -> None:
    work.add()
    work.sign("--at", "1700000000")
    with Maptr({ORIGIN: work.signed}) as server:
        with Unbound({ORIGIN: server}, work.anchors()) as unbound:
            assert questions(unbound) == BOGUS
        assert f"zone {ORIGIN}: signatures expired at 2023-11-28T22:13:20Z" in server.log()
    other = replace(work, directory=work.directory / "other")
    other.directory.mkdir()
    other.add()
    work.sign("--force")
    with Maptr({ORIGIN: work.signed}) as server, Unbound({ORIGIN: server}, other.anchors()) as unbound:
        assert questions(unbound) == BOGUS


@pytest.mark.parametrize("way", ["maptr", *WAYS])
def test_signed_zones_are_transferred_whole_and_unbound_validates_the_answers(work: Work, way: str) -> None:
    """NSEC3 and the TTLs of signatures too, which the digest counts (RFC 8976 3.3.1).

    In an opt-out span the absence of names is not proved (RFC 5155 6), so AD may be missing.
    """
    if way == "maptr":
        work.add()
        work.sign()
    else:
        sign_elsewhere(TEXT, ORIGIN, work.directory, way).rename(work.signed)
    zone = dns.zone.from_file(str(work.signed), ORIGIN, relativize=False)
    keys = (rdata.to_text() for rdata in zone.find_rdataset(ORIGIN, "DNSKEY"))
    anchors = [f"{ORIGIN} IN DNSKEY {key}" for key in keys if key.startswith("257 ")]
    options = ("--transfer=127.0.0.1", f"--state={work.directory}")
    with Maptr({ORIGIN: work.signed}, *options) as server, Unbound({ORIGIN: server}, anchors) as unbound:
        received = contents(server)
        found = questions(unbound)
    assert received == zone
    if way == "maptr":
        received.verify_digest()
    assert {question: rcode for question, (rcode, _) in found.items()} == QUESTIONS
    insecure = {question for question, (_, secure) in found.items() if not secure}
    if "opt-out" not in way:
        assert not insecure
    else:
        assert insecure <= {q for q in QUESTIONS if QUESTIONS[q] == "NXDOMAIN" or "99999" in q[0] or ".w." in q[0]} | {
            (f"wildalias.{ORIGIN}", "TXT"),
            (f"q.old.{ORIGIN}", "TXT"),
        }


# ---- rollovers, by the steps of docs/dnssec.md


def caches_hold(before: dns.zone.Zone, after: dns.zone.Zone) -> None:
    """Caches may have records of one zone and DNSKEYs of the other while a step waits; these are valid together."""
    origin = dns.name.from_text(ORIGIN)
    for records, keys in ((before, after), (after, before)):
        dnskeys = {origin: keys.find_rdataset(origin, "DNSKEY")}
        for name in (origin, dns.name.from_text(f"12345.{ORIGIN}")):
            for rdtype in ("SOA", "NAPTR", "NSEC"):
                rdataset = records.get_rdataset(name, rdtype)
                if rdataset:
                    signatures = records.find_rdataset(name, "RRSIG", rdtype)
                    dns.dnssec.validate((name, rdataset), (name, signatures), dnskeys, origin)  # type: ignore[arg-type]


def secure_with(work: Work, *anchors: list[str], two_csks: bool = False) -> None:
    """Verifiers accept the zone, and Unbound validates it with each set of DS, as parent and caches may have them."""
    check_verified(work.signed, two_csks=two_csks)
    with Maptr({ORIGIN: work.signed}) as server:
        for anchor in anchors:
            with Unbound({ORIGIN: server}, anchor) as unbound:
                assert questions(unbound) == SECURE


def cds(zone: dns.zone.Zone) -> set[str]:
    return {f"{ORIGIN} IN DS {rdata}" for rdata in zone.find_rdataset(dns.name.from_text(ORIGIN), "CDS")}


def test_a_csk_is_rolled_over_to_another_algorithm(work: Work) -> None:
    """``test_self_signing`` has the rollover with the same algorithm."""
    old = work.add()
    zones = [work.sign()]
    old_ds = work.anchors()
    new = work.add("--algorithm", "ed25519")  # published: it signs, and the parent does not have its DS yet
    zones.append(work.sign())
    assert cds(zones[-1]) == set(old_ds) == set(work.anchors())
    secure_with(work, old_ds, two_csks=True)
    command("keys", "set", work.keys, new, "active")
    command("keys", "set", work.keys, old, "retired")
    zones.append(work.sign())
    new_ds = work.anchors()
    assert cds(zones[-1]) == set(new_ds) != set(old_ds)
    secure_with(work, old_ds, new_ds, two_csks=True)
    command("keys", "remove", work.keys, old)
    zones.append(work.sign())
    secure_with(work, new_ds)
    serials = [int(zone.get_soa().serial) for zone in zones]
    assert serials == sorted(set(serials))
    for before, after in itertools.pairwise(zones):
        caches_hold(before, after)
    with pytest.raises(dns.exception.ValidationFailure):
        caches_hold(zones[0], zones[-1])  # without the steps between them, caches would fail


def test_a_zsk_is_rolled_over(work: Work) -> None:
    work.add("--role", "ksk")
    old = work.add("--role", "zsk")
    ds = work.anchors()
    zones = [work.sign()]
    new = work.add("--role", "zsk")
    zones.append(work.sign())
    secure_with(work, ds)
    command("keys", "set", work.keys, new, "active")
    command("keys", "set", work.keys, old, "retired")
    zones.append(work.sign())
    secure_with(work, ds)
    command("keys", "remove", work.keys, old)
    zones.append(work.sign())
    secure_with(work, ds)
    assert work.anchors() == ds
    for before, after in itertools.pairwise(zones):
        caches_hold(before, after)
    with pytest.raises(dns.exception.ValidationFailure):
        caches_hold(zones[0], zones[-1])


def test_a_ksk_is_rolled_over(work: Work) -> None:
    old = work.add("--role", "ksk")
    work.add("--role", "zsk")
    work.sign()
    old_ds = work.anchors()
    new = work.add("--role", "ksk")
    work.sign()
    secure_with(work, old_ds)
    command("keys", "set", work.keys, new, "active")
    command("keys", "set", work.keys, old, "retired")
    signed = work.sign()
    new_ds = work.anchors()
    assert cds(signed) == set(new_ds) != set(old_ds)
    secure_with(work, old_ds, new_ds)
    command("keys", "remove", work.keys, old)
    work.sign()
    secure_with(work, new_ds)
