"""Validation without a network: anchors, the chain, hostile signatures, tampering, caches and the trace.

``tests/interop/test_validation.py`` compares it with a real validator; ``test_proofs.py`` tests proofs of absence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dns.dnssec
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.rrset
import dns.zone
import pytest
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Transport
from maptr.answer.respond import respond
from maptr.discovery import Outcome
from maptr.errors import ConfigError
from maptr.protocol.numbers import NAPTR
from maptr.resolver.exchange import Exchange, StubOptions
from maptr.resolver.servers import CaseBlind, Server
from maptr.resolver.validation import chain, signed
from maptr.resolver.validation.answer import AnswerValidator
from maptr.resolver.validation.chain import DnssecQuestion, Resolved, Trust
from maptr.resolver.validation.signed import MAX_CHECKS_RRSET, Bogus, VerifiedRRset, WorkBudget, Zone, parse, verify
from maptr.resolver.validation.validator import Validator, read_anchors, usable_anchors
from maptr.walk import Answer
from maptr.zone.masterfile import AS_TEXT
from maptr.zone.snapshot import Snapshot
from tests.support.command_line import run
from tests.support.zones import snapshot_of_zones

pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

NOW = 1_800_000_000
PARENT, CHILD = "arpa.", "ark.arpa."
PARENT_TEXT = """\
@ 3600 SOA ns. admin. 1 3600 600 86400 60
@ 3600 NS ns.
ark 3600 NS ns.
plain 3600 NS ns.
*.wild 3600 DS 1 13 2 0000000000000000000000000000000000000000000000000000000000000000
*.c 3600 CNAME 4.ark.arpa.
"""
CHILD_TEXT = """\
@ 300 SOA ns. admin. 1 3600 600 86400 60
@ 300 NS ns.
1 300 NAPTR 0 0 "h" "ark" "" h.example.
1 300 NAPTR 9 0 "h" "ark" "" i.example.
2 300 TXT x
3 300 CNAME 1
*.w 300 NAPTR 0 0 "h" "ark" "" w.example.
y 300 DNAME w
z 300 DNAME much-longer.w
"""
DEEP = "a." * 60 + "deep.ark.arpa."  # below sixty empty non-terminals
CHILD_TEXT += f"{DEEP} 300 TXT x\n"
PLAIN_TEXT = '@ 300 SOA ns. admin. 1 3600 600 86400 60\n@ 300 NS ns.\n1 300 NAPTR 0 0 "h" "ark" "" p.example.\n'
KEY_LOOKUPS = ("arpa. DNSKEY", "ark.arpa. DS", "ark.arpa. DNSKEY")
Ask = Callable[[DnssecQuestion], Resolved]


def new_key() -> tuple[ec.EllipticCurvePrivateKey, DNSKEY]:
    private = ec.generate_private_key(ec.SECP256R1())
    return private, dns.dnssec.make_dnskey(private.public_key(), "ECDSAP256SHA256", flags=257)


def sign(origin: str, text: str) -> tuple[dns.zone.Zone, list[dns.rdata.Rdata]]:
    zone = dns.zone.from_text(text, origin, relativize=False)
    made: list[tuple[dns.dnssec.PrivateKey, DNSKEY]] = [new_key()]
    with zone.writer() as transaction:
        dns.dnssec.sign_zone(zone, transaction, made, inception=NOW - 3600, expiration=NOW + 86400, dnskey_ttl=3600)
    return zone, [key for _, key in made]


CHILD_ZONE, CHILD_KEYS = sign(CHILD, CHILD_TEXT)
DS = dns.dnssec.make_ds(CHILD, CHILD_KEYS[0], "SHA256")
PARENT_ZONE, PARENT_KEYS = sign(PARENT, f"{PARENT_TEXT}ark 3600 DS {DS}\n")
PLAIN_ZONE = dns.zone.from_text(PLAIN_TEXT, "plain.arpa.", relativize=False)
SNAPSHOT = snapshot_of_zones(PARENT_ZONE, CHILD_ZONE, PLAIN_ZONE)


def packet(lookup: DnssecQuestion, snapshot: Snapshot = SNAPSHOT) -> bytes:
    query = dns.message.make_query(lookup.name, lookup.rdtype, want_dnssec=True)
    query.id = 0
    reply = respond(query.to_wire(), snapshot, transport=Transport.TCP)
    assert reply is not None
    return reply


def honest(lookup: DnssecQuestion, snapshot: Snapshot = SNAPSHOT) -> Resolved:
    return Resolved(Outcome.ANSWER, parse(packet(lookup, snapshot)), server="192.0.2.1#53")


def naptr_rrset() -> dns.rrset.RRset:
    return dns.rrset.from_rdata_list("1.ark.arpa.", 300, list(CHILD_ZONE.find_rdataset("1.ark.arpa.", "NAPTR")))


def naptr_signature() -> Any:
    return CHILD_ZONE.find_rdataset("1.ark.arpa.", "RRSIG", "NAPTR")[0]


def verified(signature: dns.rdata.Rdata, *keys: dns.rdata.Rdata, now: float = NOW) -> VerifiedRRset:
    """The NAPTR records at 1.ark.arpa., verified by this signature and these keys of the zone."""
    signatures = dns.rrset.from_rdata("1.ark.arpa.", 300, signature)
    return verify(naptr_rrset(), signatures, Zone.of(dns.name.from_text(CHILD), keys), now, WorkBudget())


def trusting(anchors: Any = None, *, clock: Callable[[], float] = lambda: NOW) -> Trust:
    """Trust in these anchors, by default the keys of arpa."""
    return Trust(usable_anchors(anchors or {PARENT: PARENT_KEYS}), clock)


def settle(name: str, ask: Ask = honest, by: Trust | None = None) -> Answer:
    inquiry = AnswerValidator(by or trusting(), dns.name.from_text(name).labels[:-1], dns.rdatatype.NAPTR)
    while inquiry.answer is None:
        inquiry.tell(ask(inquiry.lookup))
    return inquiry.answer


def exchanged(name: str, packet_for: Callable[[DnssecQuestion], bytes]) -> Answer:
    """The answer of a validating stub, by the packets of a server."""
    validator = Validator({PARENT: PARENT_KEYS})
    validator.trust = trusting()
    options = StubOptions((Server("192.0.2.1"),), CaseBlind(), dnssec=True)
    labels = dns.name.from_text(name).labels[:-1]
    asking = validator.exchange(labels, NAPTR, lambda name, rdtype: Exchange(name, rdtype, options))
    while (attempt := asking.next()) is not None:
        query = attempt.query
        lookup = DnssecQuestion(dns.name.Name((*query.name, b"")), dns.rdatatype.RdataType(query.rdtype))
        end, said = len(query.question), packet_for(lookup)
        assert attempt.exchange.receive(attempt, query.packet[:2] + said[2:12] + query.question + said[12 + end :])
    assert asking.answer is not None
    return asking.answer


def noted(asked: list[str], ask: Ask = honest) -> Ask:
    """The same, and what it is asked for goes there, as "arpa. DS"."""

    def noting(lookup: DnssecQuestion) -> Resolved:
        asked.append(asked_for(lookup))
        return ask(lookup)

    return noting


def asked_for(lookup: DnssecQuestion) -> str:
    return f"{lookup.name} {dns.rdatatype.to_text(lookup.rdtype)}"


def changed(what: str, change: Callable[[dns.message.Message], object]) -> Ask:
    """The honest server, its reply about "arpa. DS", for instance, changed."""

    def ask(lookup: DnssecQuestion) -> Resolved:
        result = honest(lookup)
        if asked_for(lookup) == what:
            change(result.response)
        return result

    return ask


def drop_signatures(message: dns.message.Message) -> None:
    for section in (message.answer, message.authority):
        section[:] = [rrset for rrset in section if rrset.rdtype != dns.rdatatype.RRSIG]


# ---- the chain


@pytest.mark.parametrize(
    ("name", "outcome", "security"),
    [
        ("1.ark.arpa.", Outcome.ANSWER, "secure"),
        ("1.ARK.arpa.", Outcome.ANSWER, "secure"),
        ("2.ark.arpa.", Outcome.NODATA, "secure"),
        ("3.ark.arpa.", Outcome.ANSWER, "secure"),
        ("4.ark.arpa.", Outcome.NXDOMAIN, "secure"),
        ("a.b.w.ark.arpa.", Outcome.ANSWER, "secure"),
        ("w.ark.arpa.", Outcome.NODATA, "secure"),
        ("q.y.ark.arpa.", Outcome.ANSWER, "secure"),
        ("a." * 118 + "z.ark.arpa.", Outcome.NXDOMAIN, "secure"),  # too long below the target (RFC 6672 2.2)
        ("1.plain.arpa.", Outcome.ANSWER, "insecure"),
        ("2.plain.arpa.", Outcome.NXDOMAIN, "insecure"),
    ],
)
def test_what_a_signed_tree_says(name: str, outcome: Outcome, security: str) -> None:
    answer = settle(name)
    assert (answer.outcome, answer.security) == (outcome, security), answer
    assert answer.links[0].name == PARENT
    assert {link.security for link in answer.links} <= {"secure", security}


def test_an_island_needs_no_parent() -> None:
    asked: list[str] = []
    island = trusting({CHILD: [DS]})
    assert repr(Validator({CHILD: [DS]})) == "<Validator from ark.arpa.>"
    assert settle("1.ark.arpa.", noted(asked), island).security == "secure"
    assert asked == ["1.ark.arpa. NAPTR", "ark.arpa. DNSKEY"]


def test_from_the_root_down() -> None:
    delegation = f"arpa. 3600 NS ns.\narpa. 3600 DS {dns.dnssec.make_ds(PARENT, PARENT_KEYS[0], 'SHA256')}\n"
    root, keys = sign(".", f"@ 3600 SOA ns. admin. 1 3600 600 86400 60\n@ 3600 NS ns.\n{delegation}")
    snapshot = snapshot_of_zones(root, PARENT_ZONE, CHILD_ZONE, PLAIN_ZONE)
    ask = partial(honest, snapshot=snapshot)
    for name, security in (("1.ark.arpa.", "secure"), ("nothing.", "secure"), ("1.plain.arpa.", "insecure")):
        answer = settle(name, ask, trusting({".": keys}))
        assert (answer.security, answer.links[0].name) == (security, "."), answer
    assert settle(".", ask, trusting({".": keys})).outcome is Outcome.NODATA


def test_the_closest_anchor_counts() -> None:
    wrong = DS.replace(digest=bytes(32))
    both = trusting({PARENT: PARENT_KEYS, CHILD: [wrong]})
    assert settle("1.ark.arpa.", by=both).outcome is Outcome.BOGUS
    assert settle("1.plain.arpa.", by=both).security == "insecure"


def sign_as_owner(message: dns.message.Message) -> None:
    for rrset in message.answer:
        if rrset.rdtype == dns.rdatatype.RRSIG:
            renamed = [rdata.replace(signer=dns.name.from_text("1.ark.arpa.")) for rdata in rrset]
            message.answer.remove(rrset)
            message.answer.append(dns.rrset.from_rdata_list(rrset.name, rrset.ttl, renamed))


def drop_ds(message: dns.message.Message) -> None:
    message.answer.clear()
    for kind in (("NSEC",), ("RRSIG", "NSEC")):
        rdatas = list(PARENT_ZONE.find_rdataset(CHILD, *kind))
        message.authority.append(dns.rrset.from_rdata_list(CHILD, 600, rdatas))


def deny(message: dns.message.Message) -> None:
    message.set_rcode(dns.rcode.NXDOMAIN)


@pytest.mark.parametrize(
    ("name", "what", "change", "note"),
    [
        ("1.ark.arpa.", "arpa. DNSKEY", drop_signatures, "arpa. "),
        ("1.ark.arpa.", "ark.arpa. DS", drop_signatures, "ark.arpa. "),
        ("1.ark.arpa.", "ark.arpa. DNSKEY", drop_signatures, "ark.arpa. "),
        ("1.ark.arpa.", "1.ark.arpa. NAPTR", drop_signatures, "in the signed zone ark.arpa., but without signature"),
        ("1.ark.arpa.", "1.ark.arpa. NAPTR", sign_as_owner, "is signed by 1.ark.arpa., which is not a zone"),
        ("3.ark.arpa.", "3.ark.arpa. NAPTR", drop_signatures, "in the signed zone ark.arpa., but without signature"),
        # RFC 4035 5.4: a proof of no data is none of no name, nor the other way round.
        ("2.ark.arpa.", "2.ark.arpa. NAPTR", deny, ""),
        ("4.ark.arpa.", "4.ark.arpa. NAPTR", lambda message: message.set_rcode(dns.rcode.NOERROR), ""),
        ("1.ark.arpa.", "1.ark.arpa. NAPTR", deny, "records with rcode NXDOMAIN"),
        # RFC 4035 5.2: the parent's own NSEC says that there is one.
        ("1.ark.arpa.", "ark.arpa. DS", drop_ds, "nothing proves that ark.arpa. has no DS"),
    ],
)
def test_a_changed_reply_breaks_the_chain(
    name: str, what: str, change: Callable[[dns.message.Message], object], note: str
) -> None:
    answer = settle(name, changed(what, change))
    assert (answer.outcome, answer.security, answer.records) == (Outcome.BOGUS, "bogus", ())
    assert answer.links[-1].security == "bogus"
    assert note in answer.note


@pytest.mark.parametrize("what", KEY_LOOKUPS)
@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.REFUSED])
def test_a_failed_lookup_of_keys_is_indeterminate(what: str, outcome: Outcome) -> None:
    failed = Resolved(outcome, None, "no server")
    answer = settle("1.ark.arpa.", lambda lookup: failed if asked_for(lookup) == what else honest(lookup))
    assert (answer.outcome, answer.security, answer.records) == (outcome, "indeterminate", ())
    assert answer.note == f"{what}: {outcome.value} (no server)"
    denied = settle("1.ark.arpa.", lambda lookup: Resolved(Outcome.NXDOMAIN, None, "without a message"))
    assert denied.outcome is Outcome.SERVFAIL


@pytest.mark.parametrize("change", [{"algorithm": 251}, {"digest_type": 77}])
def test_only_ds_of_unknown_algorithms_are_insecure(change: dict[str, Any]) -> None:
    """RFC 4035 5.2, RFC 6840 5.2; a DS with known algorithms has to match a key."""
    zone, keys = sign(PARENT, f"{PARENT_TEXT}ark 3600 DS {DS.replace(**change)}\n")
    ask = partial(honest, snapshot=snapshot_of_zones(zone, CHILD_ZONE))
    assert settle("1.ark.arpa.", ask, trusting({PARENT: keys})).security == "insecure"


def test_a_ds_is_never_made_from_a_wildcard() -> None:
    def unsigned(lookup: DnssecQuestion) -> Resolved:
        if lookup.rdtype != dns.rdatatype.NAPTR:
            return honest(lookup)
        query = dns.message.make_query(lookup.name, lookup.rdtype)
        return Resolved(Outcome.NODATA, dns.message.make_response(query))

    answer = settle("1.wild.arpa.", unsigned)
    assert answer.outcome is Outcome.BOGUS
    assert answer.note == "1.wild.arpa. DS: made from a wildcard"


def test_rfc4035_3_1_4_1_a_referral_that_denies_the_ds_is_a_proof() -> None:
    """As a server that answers a question for the DS like any other below a zone cut."""

    def refer(lookup: DnssecQuestion) -> bytes:
        whole = dns.message.from_wire(packet(lookup))
        if asked_for(lookup) == "plain.arpa. DS":
            whole.flags &= ~dns.flags.AA
            soa = [found for found in whole.authority if dns.rdatatype.SOA in (found.rdtype, found.covers)]
            whole.authority = [found for found in whole.authority if found not in soa]
            whole.authority.insert(0, dns.rrset.from_text(lookup.name, 300, "IN", "NS", "ns.plain.arpa."))
            whole.additional.append(dns.rrset.from_text("ns.plain.arpa.", 300, "IN", "A", "192.0.2.9"))
        return whole.to_wire()

    answer = exchanged("1.plain.arpa.", refer)
    assert (answer.outcome, answer.security) == (Outcome.ANSWER, "insecure")
    assert answer.links[1].note == "arpa. proves that this delegation is unsigned"


def test_rfc6672_2_2_a_name_that_a_dname_makes_too_long_does_not_exist() -> None:
    answer = exchanged("a." * 118 + "z.ark.arpa.", packet)
    assert (answer.outcome, answer.security) == (Outcome.NXDOMAIN, "secure")


def test_the_zone_of_a_denial_is_the_one_that_signs_it() -> None:
    """An SOA record without signature cannot show that the origin exists."""

    def forge(message: dns.message.Message) -> None:
        message.authority.insert(0, dns.rrset.from_text(CHILD, 300, "IN", "SOA", "ns. admin. 1 3600 600 86400 60"))

    answer = settle("none.arpa.", changed("none.arpa. NAPTR", forge))
    assert (answer.security, answer.zone) == ("secure", (b"arpa",))


def test_proofs_of_two_zones_in_one_reply() -> None:
    """A resolver follows an alias: what the zone above proves goes along with what the zone below denies."""

    def both(lookup: DnssecQuestion) -> Resolved:
        result = honest(lookup)
        if lookup.name == dns.name.from_text("x.c.arpa."):
            below = honest(DnssecQuestion(dns.name.from_text("4.ark.arpa."), lookup.rdtype)).response
            result.response.flags |= dns.flags.RA
            result.response.set_rcode(below.rcode())
            result.response.authority += below.authority
        return result

    for ask in (both, honest):  # of a server, what the alias leads to is asked for itself
        answer = settle("x.c.arpa.", ask)
        assert (answer.outcome, answer.security) == (Outcome.NXDOMAIN, "secure")
        assert answer.note == "through CNAME 4.ark.arpa."


def test_sha1_does_not_count_beside_a_better_digest() -> None:
    """RFC 4509 3: otherwise an attack on SHA-1 breaks the zone."""
    sha1 = dns.dnssec.make_ds(CHILD, CHILD_KEYS[0], "SHA1", policy=dns.dnssec.allow_all_policy)
    assert settle("1.ark.arpa.", by=trusting({CHILD: [sha1]})).security == "secure"
    both = trusting({CHILD: [sha1, DS.replace(digest=bytes(32))]})
    assert settle("1.ark.arpa.", by=both).outcome is Outcome.BOGUS


def signature_by(private: Any, key: DNSKEY, inception: int, expiration: int) -> dns.rdata.Rdata:
    """The signature of the NAPTR records at 1.ark.arpa. by this key."""
    policy = dns.dnssec.allow_all_policy
    zone = dns.name.from_text(CHILD)
    return dns.dnssec.sign(naptr_rrset(), private, zone, key, inception=inception, expiration=expiration, policy=policy)


def test_every_algorithm_that_is_known_verifies() -> None:
    """RFC 9904."""
    large = rsa.generate_private_key(65537, 2048)
    private: dict[int, Any] = dict.fromkeys((5, 7, 8, 10), large)
    private[13], private[14] = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
    private[15], private[16] = ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()
    assert private.keys() == signed.ALGORITHMS
    for number, key in private.items():
        dnskey = dns.dnssec.make_dnskey(key.public_key(), number, flags=257)
        found = verified(signature_by(key, dnskey, NOW, NOW + 60), dnskey)
        assert (found.ttl, found.tag) == (60, dns.dnssec.key_id(dnskey))


# ---- times


@pytest.mark.parametrize(
    ("seconds", "security"), [(-3601, "bogus"), (-3600, "secure"), (86400, "secure"), (86401, "bogus")]
)
def test_signatures_have_their_time(seconds: int, security: str) -> None:
    answer = settle("1.ark.arpa.", by=trusting(clock=lambda: NOW + seconds))
    assert answer.security == security
    assert security == "secure" or "its signature" in answer.note


def test_times_wrap_in_2106() -> None:
    """RFC 4034 3.1.5: serial arithmetic."""
    private, key = new_key()
    end = 2**32
    signature = signature_by(private, key, end - 100, 100)
    for now in (end - 100, end - 1, end, end + 100):
        assert verified(signature, key, now=now).ttl <= end + 100 - now
    for now in (end - 101, end + 101):
        with pytest.raises(Bogus, match="its signature"):
            verified(signature, key, now=now)


def test_nothing_is_kept_longer_than_its_signature() -> None:
    """RFC 4035 5.3.3."""
    assert settle("1.ark.arpa.").ttl == 300
    assert settle("1.ark.arpa.", by=trusting(clock=lambda: NOW + 86390)).ttl == 10

    def raise_ttls(message: dns.message.Message) -> None:
        for rrset in message.answer:
            rrset.ttl = 1_000_000

    assert settle("1.ark.arpa.", changed("1.ark.arpa. NAPTR", raise_ttls)).ttl == 300


# ---- what is kept


class Clocked:
    """A validator with a clock that a test sets, and what its last question asked for."""

    def __init__(self) -> None:
        self.now = float(NOW)
        self.asked: list[str] = []
        self.trust = trusting(clock=lambda: self.now)

    def settle(self, name: str, ask: Ask = honest) -> Answer:
        self.asked = []
        return settle(name, noted(self.asked, ask), self.trust)


def test_validated_keys_serve_the_next_question_until_their_time_is_over() -> None:
    whole = ["1.ark.arpa. NAPTR", *KEY_LOOKUPS]
    keeping = Clocked()
    for name, later, asked in (
        ("1.ark.arpa.", 0, whole),
        ("2.ark.arpa.", 0, ["2.ark.arpa. NAPTR"]),
        ("1.ark.arpa.", 3601, whole),
    ):
        keeping.now += later
        assert keeping.settle(name).security == "secure"
        assert keeping.asked == asked


def test_caches_are_dropped_after_the_clock_is_set_back() -> None:
    keeping = Clocked()
    keeping.now += 10 * 365 * 86_400  # all signatures have expired
    for _ in range(3):
        assert keeping.settle("1.ark.arpa.").outcome is Outcome.BOGUS
    keeping.now = float(NOW)
    assert keeping.settle("1.ark.arpa.").security == "secure"
    keeping.now -= 2 * chain.MAX_KEPT_SECONDS
    keeping.settle("2.ark.arpa.")
    assert "arpa. DNSKEY" in keeping.asked, "keys are kept for a day, not until the clock is there again"


# ---- hostile signatures


def many(count: int, collide: bool) -> tuple[dns.rrset.RRset, dns.rrset.RRset, Zone]:
    """KeyTrap: many keys with one tag, and many signatures with that tag that do not verify."""
    rrset = dns.rrset.from_text("1.ark.arpa.", 300, "IN", "NAPTR", '0 0 "h" "ark" "" evil.example.')
    good = naptr_signature()
    signatures = [good.replace(signature=number.to_bytes(64, "big")) for number in range(1, count)]
    keys = {(13, good.key_tag): tuple(CHILD_KEYS) * (count if collide else 1)}
    return rrset, dns.rrset.from_rdata_list("1.ark.arpa.", 300, signatures), Zone(dns.name.from_text(CHILD), keys)


@pytest.mark.parametrize("collide", [False, True])
def test_signature_checks_are_bounded(collide: bool) -> None:
    """CVE-2023-50387: the budget of the question has exactly the checks of one RRset."""
    rrset, signatures, keys = many(500, collide)
    with pytest.raises(Bogus, match="more than 8 signatures"):
        verify(rrset, signatures, keys, NOW, WorkBudget(checks=MAX_CHECKS_RRSET))
    with pytest.raises(Bogus, match=f"more than {signed.MAX_CHECKS} signatures"):
        verify(rrset, signatures, keys, NOW, WorkBudget(checks=MAX_CHECKS_RRSET - 1))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type_covered": dns.rdatatype.TXT}, "a signature of another type"),
        *(({"signer": dns.name.from_text(name)}, r"no signature of ark\.arpa\.") for name in (PARENT, "1.ark.arpa.")),
        ({"labels": 4}, "a signature of 4 labels"),
        ({"labels": 1}, "a signature of 1 labels"),
        ({"algorithm": 251}, "algorithm 251, which is not supported"),
        ({"key_tag": 1}, "key 1, which ark.arpa. does not have"),
        ({"original_ttl": 301}, "does not verify"),
        ({"expiration": NOW + 86401}, "does not verify"),
        ({"signature": bytes(64)}, "does not verify"),
        ({"signature": b""}, "does not verify"),
    ],
)
def test_signatures_that_do_not_count(changes: dict[str, object], reason: str) -> None:
    """RFC 4035 5.3.1."""
    with pytest.raises(Bogus, match=reason):
        verified(naptr_signature().replace(**changes), *CHILD_KEYS)


def test_a_zone_signs_only_what_it_contains() -> None:
    shown, signed_by = (
        dns.rrset.from_rdata_list("1.arpa.", 300, [*one]) for one in (naptr_rrset(), [naptr_signature()])
    )
    with pytest.raises(Bogus, match=r"signed by ark\.arpa\., which does not contain it"):
        verify(shown, signed_by, Zone.of(dns.name.from_text(CHILD), CHILD_KEYS), NOW, WorkBudget())


def test_an_nsec_is_never_made_from_a_wildcard() -> None:
    """RFC 4035 5.3.4: or the NSEC of a wildcard, shown at any name below, would say that the name has no types."""
    owner, keys = "*.w.ark.arpa.", Zone.of(dns.name.from_text(CHILD), CHILD_KEYS)
    nsec, signatures = (list(CHILD_ZONE.find_rdataset(owner, *kind)) for kind in (("NSEC",), ("RRSIG", "NSEC")))

    def at(name: str) -> VerifiedRRset:
        shown, signed_by = (dns.rrset.from_rdata_list(name, 60, rdatas) for rdatas in (nsec, signatures))
        return verify(shown, signed_by, keys, NOW, WorkBudget())

    assert at(owner).encloser is None
    with pytest.raises(Bogus, match="made from a wildcard"):
        at("1.w.ark.arpa.")


@pytest.mark.parametrize("octets", [b"", b"\x01", bytes(64), bytes(3000)])
@pytest.mark.parametrize("algorithm", [5, 8, 13, 14, 15, 16])
def test_keys_of_hostile_octets_do_not_verify(octets: bytes, algorithm: int) -> None:
    key = CHILD_KEYS[0].replace(key=octets, algorithm=algorithm)
    signature = naptr_signature().replace(algorithm=algorithm, key_tag=dns.dnssec.key_id(key))  # type: ignore[arg-type]
    with pytest.raises(Bogus, match="does not verify"):
        verified(signature, key)


@pytest.mark.parametrize("change", [{"flags": 257 | 0x80}, {"flags": 1}, {"protocol": 2}])
def test_keys_that_may_not_sign(change: dict[str, int]) -> None:
    """RFC 4034 2.1.1 and 2.1.2; RFC 5011 2.1: a revoked key."""
    with pytest.raises(ConfigError, match="known algorithm"):
        usable_anchors({CHILD: [CHILD_KEYS[0].replace(**change)]})


def test_deep_names_cost_a_bounded_number_of_questions() -> None:
    asked: list[str] = []
    ask = noted(asked, changed(f"{DEEP} NAPTR", lambda message: message.authority.clear()))
    answer = settle(DEEP, ask)
    assert (answer.outcome, answer.note) == (Outcome.BOGUS, f"more than {chain.MAX_LOOKUPS} lookups of keys")
    assert len(asked) == chain.MAX_LOOKUPS + 1


# ---- tampering


NAMES = ("1.ark.arpa.", "2.ark.arpa.", "3.ark.arpa.", "4.ark.arpa.", "a.b.w.ark.arpa.", "q.y.ark.arpa.")
TRUTH = {name: settle(name) for name in NAMES}


def essence(answer: Answer) -> tuple[object, ...]:
    return answer.outcome, sorted(naptr.canonical() for naptr in answer.records)


@given(st.sampled_from(NAMES), st.integers(0, 3), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_no_changed_byte_gives_another_secure_answer(name: str, which: int, where: float, flip: int) -> None:
    """Some octets mean nothing (the ID, a TTL that was signed, letters in names): then the answer is the same."""
    target = (f"{name} NAPTR", *KEY_LOOKUPS)[which]

    def ask(lookup: DnssecQuestion) -> Resolved:
        octets = bytearray(packet(lookup))
        if asked_for(lookup) == target:
            octets[int(where * len(octets))] ^= flip
        try:
            return Resolved(Outcome.ANSWER, parse(bytes(octets)))
        except ValueError as error:
            return Resolved(Outcome.MALFORMED, None, str(error))

    answer = settle(name, ask)
    if answer.security == "secure":
        assert essence(answer) == essence(TRUTH[name])
        assert (answer.ttl or 0) <= 300
    else:
        assert answer.security != "insecure"
        assert answer.outcome in (Outcome.BOGUS, Outcome.MALFORMED, Outcome.SERVFAIL, Outcome.REFUSED, Outcome.ANSWER)


@given(name=st.sampled_from(NAMES), data=st.data())
def test_no_record_can_be_left_out_and_another_answer_be_secure(name: str, data: st.DataObject) -> None:
    def ask(lookup: DnssecQuestion) -> Resolved:
        result = honest(lookup)
        for section in (result.response.answer, result.response.authority):
            keep = data.draw(st.lists(st.booleans(), min_size=len(section), max_size=len(section)))
            section[:] = [rrset for rrset, kept in zip(section, keep, strict=True) if kept]
        return result

    answer = settle(name, ask)
    assert answer.security in ("secure", "bogus")
    if answer.security == "secure":
        assert essence(answer) == essence(TRUTH[name])


# ---- anchors


KEY = CHILD_KEYS[0]


@pytest.mark.parametrize(
    ("text", "zones"),
    [
        (f"ark.arpa. IN DS {DS}", {CHILD}),
        (f"ark.arpa. 172800 IN DNSKEY {KEY} ;{{id = 1}}\n; autotrust \udcff\narpa. DS {DS}", {CHILD, PARENT}),
        (f"ark.arpa. DNSKEY 257 3 13 (\n {KEY.to_text().split()[3]}\n {''.join(KEY.to_text().split()[4:])} )", {CHILD}),
    ],
    ids=["DS", "unbound's", "DNSKEY"],
)
def test_files_of_anchors(text: str, zones: set[str], tmp_path: Path) -> None:
    assert {zone.to_text() for zone in read_anchors(text)} == zones
    (tmp_path / "anchors").write_text(text, *AS_TEXT)
    Validator(tmp_path / "anchors")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no trust anchor"),
        ("; nothing\n", "no trust anchor"),
        ("ark.arpa. A 192.0.2.1", "A is neither DS nor DNSKEY"),
        ("ark.arpa. DS nonsense", "cannot be read"),
        (f"ark.arpa. DS 1 251 2 {'00' * 32}", "known algorithm"),
        ('trust-anchors { . static-key 257 3 13 "AAAA"; };', "cannot be read"),  # of BIND
    ],
)
def test_invalid_files_of_anchors(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read_anchors(text, "anchors.txt")
    assert str(caught.value).startswith("anchors.txt")


def test_no_file_and_no_cryptography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Validator(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        Validator(tmp_path / "pipe")
    (tmp_path / "octets").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        Validator(tmp_path / "octets")
    with pytest.raises(ConfigError, match="no trust anchor"):
        Validator({})
    monkeypatch.setattr("dns.dnssecalgs.algorithms", {})
    with pytest.raises(ConfigError, match=r"needs a newer package cryptography: pip install 'maptr\[dnssec\]'"):
        Validator({PARENT: PARENT_KEYS})
    done = run("url", "ark:12345/x1", "@127.0.0.1", "--trust-anchor", tmp_path / "octets")
    assert (done.exit_code, "pip install 'maptr[dnssec]'" in done.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"needs the package cryptography: pip install 'maptr\[dnssec\]'"):
        Validator({PARENT: PARENT_KEYS})


def test_a_key_is_hashed_once_for_each_kind_of_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many DS records have its tag: a key of 60,000 bytes and 256 of them took more than a second."""
    made = []
    real = dns.dnssec.make_ds

    def counted(name: dns.name.Name, key: dns.rdata.Rdata, kind: str | int, **more: Any) -> Any:
        made.append(kind)
        return real(name, key, kind, **more)  # type: ignore[arg-type]

    key: Any = CHILD_KEYS[0]
    right: Any = real(dns.name.from_text(CHILD), key, "SHA256")
    wrong = [right.replace(digest=bytes(31) + bytes((last,))) for last in range(100)]
    wrong += [right.replace(digest_type=4, digest=bytes(47) + bytes((last,))) for last in range(100)]
    monkeypatch.setattr(dns.dnssec, "make_ds", counted)
    for trusted, outcome in ((wrong, Outcome.BOGUS), ([*wrong, right], Outcome.ANSWER)):
        made.clear()
        assert settle("1.ark.arpa.", by=trusting({CHILD: trusted})).outcome is outcome
        assert sorted(made) == [2, 4]
