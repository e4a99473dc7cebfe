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
from click.testing import CliRunner

from maptr.cli.group import main
from tests.support.peers import Bind, Checked, Knot, Maptr, Nsd, Peer, Unbound, check, kzonecheck, require
from tests.support.signers import COMMANDS as SIGNERS
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
    done = CliRunner().invoke(main, ["zone", *map(str, arguments)])
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


def verdicts(path: Path) -> dict[str, Checked]:
    """Each verifier's word; ``-Z`` makes ldns want a ZONEMD that is right, ``-z`` lets BIND take a CSK for both."""
    return {
        "ldns-verify-zone": check("ldns-verify-zone", "-Z", path),
        "dnssec-verify": check("dnssec-verify", "-q", "-z", "-o", ORIGIN, path),
        "kzonecheck": kzonecheck(ORIGIN, path),
        "named-checkzone": check("named-checkzone", "-i", "local", ORIGIN, path),
        "nsd-checkzone": check("nsd-checkzone", ORIGIN, path),
    }


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
KINDS: Mapping[str, list[tuple[str, ...]]] = {
    "csk ecdsa": [("--role", "csk")],
    "csk ed25519": [("--role", "csk", "--algorithm", "ed25519")],
    "ksk and zsk ecdsa": [("--role", "ksk"), ("--role", "zsk")],
    "ksk and zsk ed25519": [("--role", role, "--algorithm", "ed25519") for role in ("ksk", "zsk")],
}


@pytest.mark.parametrize("kind", KINDS)
def test_verifiers_accept_and_unbound_validates(work: Work, kind: str) -> None:
    require("ldns-verify-zone", "dnssec-verify", "kzonecheck", "named-checkzone", "nsd-checkzone", *Unbound.commands)
    for options in KINDS[kind]:
        work.add(*options)
    work.sign()
    assert {name: said.output for name, said in verdicts(work.signed).items() if not said.accepted} == {}
    with Maptr({ORIGIN: work.signed}) as server, Unbound({ORIGIN: server}, work.anchors()) as unbound:
        assert questions(unbound) == SECURE


def test_the_verifiers_see_what_is_wrong(work: Work) -> None:
    """So that their silence above says something: glue changed, which ZONEMD alone covers, and a signature."""
    require("ldns-verify-zone", "dnssec-verify")
    work.add()
    work.sign()
    text = work.signed.read_text()
    work.signed.write_text(text.replace("192.0.2.2", "192.0.2.9"))
    assert not verdicts(work.signed)["ldns-verify-zone"].accepted
    assert verdicts(work.signed)["dnssec-verify"].accepted
    work.signed.write_text(text.replace('"not wild"', '"tampered"'))
    assert not verdicts(work.signed)["dnssec-verify"].accepted


@pytest.mark.parametrize("peer", [Bind, Knot, Nsd], ids=lambda peer: peer.name)
def test_other_servers_answer_the_same_from_it(work: Work, peer: type[Peer]) -> None:
    require(*peer.commands, *Unbound.commands)
    work.add()
    work.sign()
    with peer({ORIGIN: work.signed}) as server, Unbound({ORIGIN: server}, work.anchors()) as unbound:
        assert questions(unbound) == SECURE


def test_a_tampered_zone_is_bogus(work: Work) -> None:
    """A record changed, and one taken out together with its NSEC: both are SERVFAIL, and the rest stays secure."""
    require(*Unbound.commands)
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
    require(*Unbound.commands)
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


@pytest.mark.parametrize("way", WAYS)
def test_unbound_validates_our_answers_from_zones_of_other_signers(tmp_path: Path, way: str) -> None:
    """In an opt-out span nothing is proved about names that are not there (RFC 5155 6), so AD may be missing."""
    require(*SIGNERS, *Unbound.commands)
    path = sign_elsewhere(TEXT, ORIGIN, tmp_path, way)
    zone = dns.zone.from_file(str(path), ORIGIN, relativize=False)
    assert zone.origin is not None
    anchors = [
        f"{ORIGIN} IN DNSKEY {rdata}"
        for rdata in zone.find_rdataset(zone.origin, "DNSKEY")
        if rdata.to_text().startswith("257 ")
    ]
    with Maptr({ORIGIN: path}) as server, Unbound({ORIGIN: server}, anchors) as unbound:
        found = questions(unbound)
    assert {question: rcode for question, (rcode, _) in found.items()} == QUESTIONS
    insecure = {question for question, (_, secure) in found.items() if not secure}
    if "opt-out" not in way:
        assert not insecure
    else:
        assert insecure <= {q for q in QUESTIONS if QUESTIONS[q] == "NXDOMAIN" or "99999" in q[0] or ".w." in q[0]} | {
            (f"wildalias.{ORIGIN}", "TXT"),
            (f"q.old.{ORIGIN}", "TXT"),
        }


@pytest.mark.parametrize("way", ["maptr", *WAYS])
def test_a_signed_zone_is_transferred_whole(work: Work, way: str) -> None:
    """NSEC3 and the TTLs of signatures too, which the digest counts (RFC 8976 3.3.1)."""
    if way == "maptr":
        work.add()
        work.sign()
    else:
        require(*SIGNERS)
        sign_elsewhere(TEXT, ORIGIN, work.directory, way).rename(work.signed)
    options = ("--transfer=127.0.0.1", f"--state={work.directory}")
    with Maptr({ORIGIN: work.signed}, *options) as server:
        received = dns.zone.Zone(ORIGIN, relativize=False)
        dns.query.inbound_xfr(server.host, received, port=server.port, lifetime=20)
    assert received == dns.zone.from_file(str(work.signed), ORIGIN, relativize=False)
    if way == "maptr":
        received.verify_digest()


# ---- rollovers, as docs/dnssec.md walks them


def caches_hold(before: dns.zone.Zone, after: dns.zone.Zone) -> None:
    """What caches may mix in the time a step waits out: records of one zone, DNSKEYs of the other."""
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
    """Valid for whoever trusts each of the sets of DS, as the parent or a cache may have them.

    kzonecheck 3.2 takes no zone whose data two keys with the SEP flag sign, BIND's no more than ours.
    """
    refusing = {name: said.output for name, said in verdicts(work.signed).items() if not said.accepted}
    if two_csks:
        refusing.pop("kzonecheck", None)
    assert refusing == {}
    with Maptr({ORIGIN: work.signed}) as server:
        for anchor in anchors:
            with Unbound({ORIGIN: server}, anchor) as unbound:
                assert questions(unbound) == SECURE


def cds(zone: dns.zone.Zone) -> set[str]:
    return {f"{ORIGIN} IN DS {rdata}" for rdata in zone.find_rdataset(dns.name.from_text(ORIGIN), "CDS")}


VALIDATORS = ("ldns-verify-zone", "dnssec-verify", "kzonecheck", "named-checkzone", "nsd-checkzone", "unbound")


@pytest.mark.parametrize("algorithm", ["ecdsap256sha256", "ed25519"], ids=["same algorithm", "other algorithm"])
def test_a_csk_is_rolled_over(work: Work, algorithm: str) -> None:
    require(*VALIDATORS)
    old = work.add()
    zones = [work.sign()]
    old_ds = work.anchors()
    new = work.add("--algorithm", algorithm)  # published: it signs, and the parent knows nothing of it yet
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
        caches_hold(zones[0], zones[-1])  # nothing waited for: the walk shows what it is for


def test_a_zsk_is_rolled_over(work: Work) -> None:
    require(*VALIDATORS)
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
    require(*VALIDATORS)
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
