"""Validation by maptr and by Unbound: the same trust anchor and servers, and hundreds of names with one fault each.

The servers have a small tree of zones with ``maptr.net.`` at its top: children signed by other programs, in which
single RRsets are tampered with, and children whose keys, times or DS are wrong. Unbound gives the expected results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.dnssec
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.resolver
import dns.zone
import pytest
from dns.rdatatype import DNSKEY, DS, NAPTR, NSEC, NSEC3, RRSIG

from maptr import Discovery
from maptr.discovery import Outcome
from maptr.protocol import names
from maptr.resolver.call import Deadline, complete
from maptr.resolver.multiplexer import Multiplexer, SelectorWaiter
from maptr.resolver.resolver import StubLookups
from maptr.resolver.stub import Stub
from maptr.resolver.validation.validator import Validator
from maptr.walk import Question
from tests.support.drivers import RESOLVER_DRIVERS, STUB_DRIVERS, at, by_discover
from tests.support.peers import Bind, Nsd, Peer, Unbound
from tests.support.signers import KNOT_WAYS, NS_RECORDS, WAYS, sign, signed_zone

TOP = "maptr.net."
RCODES = {dns.rcode.NOERROR: (Outcome.ANSWER, Outcome.NODATA), dns.rcode.NXDOMAIN: (Outcome.NXDOMAIN,)}


NAPTR_TEXT = '0 0 "h" "ark" "" h.example.'
FORGED_TEXT = '0 0 "h" "ark" "" evil.example.'

ONE = f"1 NAPTR {NAPTR_TEXT}\n"

Tamper = Callable[[dns.zone.Zone, dns.name.Name], None]
Change = Callable[[dns.zone.Zone, str], None]


def _edit(change: Callable[[Any], dict[str, Any]]) -> Tamper:
    """Change fields of the signatures of NAPTR at a name."""

    def tamper(zone: dns.zone.Zone, name: dns.name.Name) -> None:
        signatures = zone.find_rdataset(name, RRSIG, NAPTR)
        changed = [rdata.replace(**change(rdata)) for rdata in signatures]
        zone.replace_rdataset(name, dns.rdataset.from_rdata_list(signatures.ttl, changed))

    return tamper


def _replace(rdtype: str, text: str) -> Tamper:
    return lambda zone, name: zone.replace_rdataset(name, dns.rdataset.from_text("IN", rdtype, 300, text))


def _drop(*types: tuple[dns.rdatatype.RdataType, dns.rdatatype.RdataType]) -> Tamper:
    def tamper(zone: dns.zone.Zone, name: dns.name.Name) -> None:
        for rdtype, covers in types:
            zone.delete_rdataset(name, rdtype, covers)

    return tamper


def _longer(zone: dns.zone.Zone, name: dns.name.Name) -> None:
    zone.find_rdataset(name, NAPTR).ttl = 7200
    zone.find_rdataset(name, RRSIG, NAPTR).ttl = 7200


def _forge_alias(zone: dns.zone.Zone, name: dns.name.Name) -> None:
    zone.delete_node(name)
    _replace("CNAME", f"untouched.{zone.origin}")(zone, name)


# What is done to a name with NAPTR and TXT records after its zone was signed.
TAMPERS: Mapping[str, Tamper] = {
    "untouched": lambda zone, name: None,
    "signatureflipped": _edit(lambda r: {"signature": bytes((r.signature[0] ^ 1,)) + r.signature[1:]}),
    "signaturestripped": _drop((RRSIG, NAPTR)),
    "recordchanged": _replace("NAPTR", FORGED_TEXT),
    "recordadded": lambda zone, name: zone.find_rdataset(name, NAPTR).add(
        dns.rdata.from_text("IN", "NAPTR", FORGED_TEXT)
    ),
    "recordremoved": _drop((NAPTR, dns.rdatatype.NONE), (RRSIG, NAPTR)),
    "ttlraised": _longer,
    "labelsfewer": _edit(lambda r: {"labels": r.labels - 1}),
    "timemoved": _edit(lambda r: {"expiration": r.expiration + 1}),
    "othertag": _edit(lambda r: {"key_tag": r.key_tag ^ 1}),
    "othersigner": _edit(lambda r: {"signer": dns.name.from_text(TOP)}),
    "strangersigns": _edit(lambda r: {"signer": dns.name.from_text("stranger.example.")}),
    "otheralgorithm": _edit(lambda r: {"algorithm": 251}),
    "originalttl": _edit(lambda r: {"original_ttl": 77}),
    "nameremoved": lambda zone, name: zone.delete_node(name),
    "aliasforged": _forge_alias,
}


# NAANs that redirect to each of these and to some other names.
NAANS = {str(nth): name for nth, name in enumerate((*TAMPERS, "alias", "far", "aliasbad", "kid", "1.kid", "q.wild"))}


@dataclass
class Tree:
    """Zone files by origin, the trust anchor, and the names to query for NAPTR."""

    zones: dict[str, Path] = field(default_factory=dict)
    anchor: str = ""
    questions: list[str] = field(default_factory=list)


def _zone_text(origin: str) -> str:
    tampered = "".join(f"{name} NAPTR {NAPTR_TEXT}\n{name} TXT x\n" for name in TAMPERS)
    tampered += "".join(f'{naan} NAPTR 0 0 "" "ark" "" {name}\n' for naan, name in NAANS.items())
    return f"""\
$ORIGIN {origin}
$TTL 300
{NS_RECORDS}{tampered}
txt         TXT x
*.wild      NAPTR {NAPTR_TEXT}
*.wildtxt   TXT x
closer.wild NAPTR {NAPTR_TEXT}
hidden.wild NAPTR {NAPTR_TEXT}
x.ent       TXT x
alias       CNAME untouched
aliasbad    CNAME signatureflipped
aliasout    CNAME 1.plain.{TOP}
aliasnot    CNAME nothing
aliaswild   CNAME q.wild
*.aliases   CNAME untouched
dname       DNAME ent
dnames      DNAME wild
far         CNAME untouched.bind-nsec.{TOP}
kid         NS ns.kid
ns.kid      A 127.0.0.1
m           TXT x
n           TXT x
"""


NAMES = (
    *("txt", "nothing", "a.b.nothing", "q.wild", "a.b.wild", "closer.wild", "x.closer.wild", "hidden.wild"),
    *("q.wildtxt", "wildtxt", "ent", "y.ent", "alias", "aliasbad", "aliasout", "aliasnot", "aliaswild", "q.aliases"),
    *("x.dname", "y.dname", "q.dnames", "far", "kid", "1.kid", "0.kid", "m", "mm", "zzzz", "@"),
)


def build(directory: Path) -> Tree:
    """Write, sign and tamper with the zones in a directory."""
    tree = Tree()
    ds: dict[str, list[str]] = {}
    for way in (*WAYS, *KNOT_WAYS):
        origin = f"{way}.{TOP}"
        ds[way] = _tampered(tree, directory / way, way)
        tree.questions += [origin if name == "@" else f"{name}.{origin}" for name in (*NAMES, *TAMPERS)]
        _write(tree, directory, f"kid.{origin}", _unsigned(f"kid.{origin}"))
    for name, records in _whole(tree, directory):
        ds[name] = records
        tree.questions += [f"1.{name}.{TOP}", f"nothing.{name}.{TOP}", f"{name}.{TOP}"]
    text = "".join(f"{name} NS ns.{name}\nns.{name} A 127.0.0.1\n" for name in ds)
    text += "".join(f"{name} DS {record}\n" for name, records in ds.items() for record in records)
    top, key = signed_zone(TOP, text)
    _drop((DS, dns.rdatatype.NONE), (RRSIG, DS))(top, dns.name.from_text(f"stolen.{TOP}"))
    _write(tree, directory, TOP, top)
    tree.anchor = f"{TOP} DS {dns.dnssec.make_ds(TOP, key, 'SHA256')}"
    tree.questions += [TOP, f"nothing.{TOP}"]
    return tree


def _tampered(tree: Tree, directory: Path, way: str) -> list[str]:
    """Write one child with tampered names. Returns its DS records."""
    directory.mkdir()
    origin = f"{way}.{TOP}"
    path = sign(_zone_text(origin), origin, directory, way)
    zone = dns.zone.from_file(str(path), origin, relativize=False)
    for name, tamper in TAMPERS.items():
        tamper(zone, dns.name.from_text(name, zone.origin))
    zone.delete_node(dns.name.from_text("hidden.wild", zone.origin))  # so that the wildcard seems to match
    for rdtype in (NSEC, NSEC3):  # so that nothing proves the absence of m
        _drop((rdtype, dns.rdatatype.NONE), (RRSIG, rdtype))(zone, dns.name.from_text("m", zone.origin))
    _write(tree, directory, origin, zone)
    keys = [key for key in zone.find_rdataset(origin, DNSKEY) if key.flags & 1]
    return [str(dns.dnssec.make_ds(origin, key, "SHA256")) for key in keys]


def _write(tree: Tree, directory: Path, origin: str, zone: dns.zone.Zone) -> None:
    tree.zones[origin] = directory / f"{origin}zone"
    zone.to_file(str(tree.zones[origin]), relativize=False)


def _unsigned(origin: str) -> dns.zone.Zone:
    return dns.zone.from_text(f"$TTL 300\n{NS_RECORDS}{ONE}", origin, relativize=False)


def _whole(tree: Tree, directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Write children that are wrong as a whole, each with its DS records."""

    def ds_of(
        name: str, digest: str = "SHA256", begins: float = -3600, ends: float = 86400, change: Change | None = None
    ) -> dns.rdata.Rdata:
        """Write a signed child, and return the DS record of its key."""
        origin = f"{name}.{TOP}"
        zone, key = signed_zone(origin, ONE, begins=begins, ends=ends)
        if change is not None:
            change(zone, origin)
        _write(tree, directory, origin, zone)
        return dns.dnssec.make_ds(origin, key, digest, policy=dns.dnssec.allow_all_policy)

    # Unbound tolerates up to a day (val-sig-skew-max).
    day = 86400
    good = ds_of("twods", "SHA384")
    changes: dict[str, Change] = {
        "keyless": lambda zone, origin: zone.delete_rdataset(origin, DNSKEY),
        "unsignedkey": lambda zone, origin: zone.delete_rdataset(origin, RRSIG, DNSKEY),
        "addedkey": lambda zone, origin: zone.find_rdataset(origin, DNSKEY).add(signed_zone(origin, ONE)[1]),
    }
    signed = {
        "fine": [ds_of("fine")],
        "stolen": [ds_of("stolen")],  # its DS is removed from the parent, whose NSEC still lists it
        "expired": [ds_of("expired", begins=-4 * day, ends=-2 * day)],
        "early": [ds_of("early", begins=2 * day, ends=4 * day)],
        "wrongds": [ds_of("wrongds").replace(digest=bytes(32))],
        "twods": [good, good.replace(algorithm=251), good.replace(digest=bytes(48))],
        "sha1": [ds_of("sha1", "SHA1")],
        **{name: [ds_of(name, change=change)] for name, change in changes.items()},
    }
    yield from ((name, list(map(str, records))) for name, records in signed.items())
    for name, ds in {"plain": "", "lost": "13 2", "algorithm": "251 2", "digest": "13 77"}.items():
        _write(tree, directory, f"{name}.{TOP}", _unsigned(f"{name}.{TOP}"))
        yield name, [f"12345 {ds} {'00' * 32}"] if ds else []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return build(tmp_path_factory.mktemp("tampered"))


@pytest.fixture(scope="module")
def server(tree: Tree) -> Iterator[Bind]:
    with Bind(tree.zones) as running:
        yield running


@pytest.fixture(scope="module")
def resolver(tree: Tree, server: Bind) -> Iterator[Unbound]:
    with Unbound(dict.fromkeys(tree.zones, server), [tree.anchor]) as running:
        yield running


@pytest.fixture(scope="module")
def validator(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Validator:
    path = tmp_path_factory.mktemp("anchor") / "anchor"
    path.write_text(tree.anchor)
    return Validator(path)


def judged(resolver: Peer, name: str) -> tuple[str, tuple[Outcome, ...]]:
    """Unbound's verdict, and what it may be as an outcome."""
    query = dns.message.make_query(name, "NAPTR", want_dnssec=True)
    reply = dns.query.udp_with_fallback(query, resolver.host, port=resolver.port, timeout=20)[0]
    if reply.rcode() == dns.rcode.SERVFAIL:
        return "bogus", (Outcome.BOGUS,)
    return ("secure" if reply.flags & dns.flags.AD else "insecure"), RCODES[reply.rcode()]


def test_every_verdict_is_that_of_unbound(tree: Tree, server: Bind, resolver: Unbound, validator: Validator) -> None:
    differ = {}
    seen: Counter[str] = Counter()
    stub = Stub([at(server)], validator=validator)
    for name in tree.questions:
        waiter = SelectorWaiter()
        with closing(StubLookups(Multiplexer(stub, waiter), Deadline(20.0), waiter.pause)) as lookups:
            (answer,) = complete(lookups.ask([Question(names.parse(name))]))
        security, outcomes = judged(resolver, name)
        if answer.outcome is Outcome.SERVFAIL:  # BIND finds no proof itself: there is nothing to judge
            assert name.startswith("m."), answer
            assert security == "bogus"
            continue
        seen[security] += 1
        if answer.security != security or answer.outcome not in outcomes:
            differ[name] = (security, answer.security, answer.outcome.name, answer.note)
    assert not differ, "\n".join(f"{name}: {said}" for name, said in differ.items())
    assert min(seen["secure"], seen["insecure"], seen["bogus"]) > 40, seen


def test_every_driver_gives_the_same_result(tree: Tree, server: Bind, resolver: Unbound, validator: Validator) -> None:
    """Sync, async and bulk, our own stub and dnspython's resolvers, a server that has the zones and a resolver."""
    seen: Counter[str] = Counter()
    for origin in ("fine", "expired", "plain", "bind-nsec", "bind-nsec3-opt-out"):
        options: dict[str, Any] = {"origin": f"{origin}.{TOP}", "trust_anchors": validator}
        for naan in ("b0", *NAANS) if "bind" in origin else ("b0", "1"):
            found = [driver(f"ark:{naan}/x", resolver, **options) for driver in (*STUB_DRIVERS, *RESOLVER_DRIVERS)]
            found += [driver(f"ark:{naan}/x", server, **options) for driver in STUB_DRIVERS]
            assert [essence(one) for one in found] == [essence(found[0])] * len(found)
            seen[found[0].security] += 1
    assert seen.keys() == {"secure", "insecure", "bogus"}


@pytest.mark.parametrize(("origin", "security"), [("fine", "secure"), ("plain", "insecure"), ("expired", "bogus")])
def test_every_driver_trusts_the_ad_bit_of_unbound(origin: str, security: str, tree: Tree, resolver: Unbound) -> None:
    options: dict[str, Any] = {"origin": f"{origin}.{TOP}", "trust_ad": True}
    # Without EDNS, dnspython's resolvers see no extended error that tells bogus from another SERVFAIL.
    for driver in STUB_DRIVERS if security == "bogus" else (*STUB_DRIVERS, *RESOLVER_DRIVERS):
        found = driver("ark:1/x", resolver, **options)
        assert (found.security, bool(found)) == (security, security != "bogus"), driver


def test_validation_down_a_tree_of_servers(tmp_path: Path) -> None:
    """Each zone on a server of its own, asked directly: DS above the cut, DNSKEY below it."""
    fine, key = signed_zone(f"fine.{TOP}", ONE)
    delegation = f"fine NS ns.fine\nns.fine A 127.0.0.2\nfine DS {dns.dnssec.make_ds(f'fine.{TOP}', key, 'SHA256')}\n"
    top, anchor = signed_zone(TOP, f'{delegation}2 NAPTR 0 0 "" "ark" "" 1.fine\n')
    for name, zone in (("top", top), ("fine", fine)):
        zone.to_file(str(tmp_path / name), relativize=False)
    with Bind({TOP: tmp_path / "top"}) as above:
        below = Nsd({f"fine.{TOP}": tmp_path / "fine"}, port=above.port)
        below.host = "127.0.0.2"
        with below:
            found = by_discover("ark:2/x", above, origin=TOP, trust_anchors={TOP: [anchor]}, require="secure")
    assert (found.url(), found.trace[1].server) == ("https://h.example/ark:2/x", f"127.0.0.2#{above.port}")
    links = [(link.name, link.rdtype) for link in found.trace[1].links]
    assert links[:2] == [(f"fine.{TOP}", "DS"), (f"fine.{TOP}", "DNSKEY")]


def essence(discovery: Discovery) -> tuple[object, ...]:
    """What does not depend on who asks whom: notes name servers."""
    steps = [(step.name, step.outcome, step.security, step.readings) for step in discovery.trace]
    return discovery.ark, discovery.candidates, discovery.complete, discovery.security, steps
