"""Signed zones with the faults that a validator must detect, below one trust anchor.

``build`` writes a small tree of zones with ``maptr.net.`` at its top: children signed by other programs, in which
single RRsets are tampered with, and children whose keys, times or DS are wrong. A real validator gives the expected
results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dns.dnssec
import dns.dnssectypes
import dns.name
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.zone
from cryptography.hazmat.primitives.asymmetric import ec
from dns.rdatatype import DNSKEY, DS, NAPTR, NSEC, NSEC3, RRSIG

from tests.support.signers import KNOT_WAYS, WAYS, sign

TOP = "maptr.net."
NS_RECORDS = """\
@       SOA   ns hostmaster 1 3600 600 86400 60
@       NS    ns
ns      A     127.0.0.1
"""
NAPTR_TEXT = '0 0 "h" "ark" "" h.example.'
FORGED_TEXT = '0 0 "h" "ark" "" evil.example.'

Tamper = Callable[[dns.zone.Zone, dns.name.Name], None]


def _flip(rdata: dns.rdata.Rdata) -> dns.rdata.Rdata:
    signature: bytes = rdata.signature  # type: ignore[attr-defined]
    return rdata.replace(signature=bytes((signature[0] ^ 1,)) + signature[1:])


def _edit(rdtype: dns.rdatatype.RdataType, change: Callable[[dns.rdata.Rdata], dns.rdata.Rdata]) -> Tamper:
    """Change the signatures of one type at a name."""

    def tamper(zone: dns.zone.Zone, name: dns.name.Name) -> None:
        signatures = zone.find_rdataset(name, RRSIG, rdtype)
        zone.replace_rdataset(name, dns.rdataset.from_rdata_list(signatures.ttl, [change(r) for r in signatures]))

    return tamper


def _replace(rdtype: str, text: str, ttl: int = 300) -> Tamper:
    return lambda zone, name: zone.replace_rdataset(name, dns.rdataset.from_text("IN", rdtype, ttl, text))


def _drop(*types: tuple[dns.rdatatype.RdataType, dns.rdatatype.RdataType]) -> Tamper:
    def tamper(zone: dns.zone.Zone, name: dns.name.Name) -> None:
        for rdtype, covers in types:
            zone.delete_rdataset(name, rdtype, covers)

    return tamper


def _longer(zone: dns.zone.Zone, name: dns.name.Name) -> None:
    zone.find_rdataset(name, NAPTR).update_ttl(300)
    for kind in ((NAPTR,), (RRSIG, NAPTR)):
        rdataset = zone.find_rdataset(name, *kind)
        rdataset.ttl = 7200


def _forge_alias(zone: dns.zone.Zone, name: dns.name.Name) -> None:
    zone.delete_node(name)
    _replace("CNAME", f"untouched.{zone.origin}")(zone, name)


NONE = dns.rdatatype.NONE
# What is done to a name with NAPTR and TXT records after its zone was signed.
TAMPERS: Mapping[str, Tamper] = {
    "untouched": lambda zone, name: None,
    "signatureflipped": _edit(NAPTR, _flip),
    "signaturestripped": _drop((RRSIG, NAPTR)),
    "recordchanged": _replace("NAPTR", FORGED_TEXT),
    "recordadded": lambda zone, name: zone.find_rdataset(name, NAPTR).add(
        dns.rdata.from_text("IN", "NAPTR", FORGED_TEXT)
    ),
    "recordremoved": _drop((NAPTR, NONE), (RRSIG, NAPTR)),
    "ttlraised": _longer,
    "labelsfewer": _edit(NAPTR, lambda r: r.replace(labels=r.labels - 1)),  # type: ignore[attr-defined]
    "timemoved": _edit(NAPTR, lambda r: r.replace(expiration=r.expiration + 1)),  # type: ignore[attr-defined]
    "othertag": _edit(NAPTR, lambda r: r.replace(key_tag=r.key_tag ^ 1)),  # type: ignore[attr-defined]
    "othersigner": _edit(NAPTR, lambda r: r.replace(signer=dns.name.from_text(TOP))),
    "strangersigns": _edit(NAPTR, lambda r: r.replace(signer=dns.name.from_text("stranger.example."))),
    "otheralgorithm": _edit(NAPTR, lambda r: r.replace(algorithm=251)),
    "originalttl": _edit(NAPTR, lambda r: r.replace(original_ttl=77)),
    "nameremoved": lambda zone, name: zone.delete_node(name),
    "aliasforged": _forge_alias,
}


# NAANs that redirect to each of these and to some other names.
NAANS = {
    str(number): name for number, name in enumerate((*TAMPERS, "alias", "far", "aliasbad", "kid", "1.kid", "q.wild"))
}


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


def build(directory: Path, ways: tuple[str, ...] = (*WAYS, *KNOT_WAYS)) -> Tree:
    """Write, sign and tamper with the zones in a directory."""
    tree = Tree()
    ds: dict[str, list[str]] = {}
    for way in ways:
        origin = f"{way}.{TOP}"
        ds[way] = _tampered(tree, directory / way, way)
        tree.questions += [origin if name == "@" else f"{name}.{origin}" for name in (*NAMES, *TAMPERS)]
        kid = f"kid.{origin}"
        _write(tree, directory, kid, f"1 NAPTR {NAPTR_TEXT}\n")
    for name, records in _whole(tree, directory):
        ds[name] = records
        tree.questions += [f"1.{name}.{TOP}", f"nothing.{name}.{TOP}", f"{name}.{TOP}"]
    text = "".join(f"{name} NS ns.{name}\nns.{name} A 127.0.0.1\n" for name in ds)
    text += "".join(f"{name} DS {record}\n" for name, records in ds.items() for record in records)
    top, key = signed_zone(TOP, text)
    top.delete_rdataset(f"stolen.{TOP}", DS)
    top.delete_rdataset(f"stolen.{TOP}", RRSIG, DS)
    top.to_file(str(directory / "top"), relativize=False)
    tree.zones[TOP] = directory / "top"
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
    _remove_proofs(zone, "m")
    tree.zones[origin] = directory / "tampered"
    zone.to_file(str(tree.zones[origin]), relativize=False)
    keys = [key for key in zone.find_rdataset(origin, DNSKEY) if key.flags & 1]
    return [str(dns.dnssec.make_ds(origin, key, "SHA256")) for key in keys]


def _remove_proofs(zone: dns.zone.Zone, name: str) -> None:
    """Delete the NSEC or NSEC3 record of a name, so that nothing proves its absence."""
    owner = dns.name.from_text(name, zone.origin)
    for rdtype in (NSEC, NSEC3):
        zone.delete_rdataset(owner, rdtype)
        zone.delete_rdataset(owner, RRSIG, rdtype)


def signed_zone(
    origin: str, text: str, *, begins: float = -3600, ends: float = 86400
) -> tuple[dns.zone.Zone, dns.rdata.Rdata]:
    """A zone signed by dnspython with a new key. ``begins`` and ``ends`` are seconds from now."""
    now = int(time.time())
    zone = dns.zone.from_text(f"$ORIGIN {origin}\n$TTL 300\n{NS_RECORDS}{text}", origin, relativize=False)
    private = ec.generate_private_key(ec.SECP256R1())
    key = dns.dnssec.make_dnskey(private.public_key(), dns.dnssectypes.Algorithm.ECDSAP256SHA256, flags=257)
    with zone.writer() as transaction:
        dns.dnssec.sign_zone(
            zone, transaction, [(private, key)], inception=now + begins, expiration=now + ends, dnskey_ttl=300
        )
    return zone, key


def _whole(tree: Tree, directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Write children that are wrong as a whole, each with its DS records."""
    text = f"1 NAPTR {NAPTR_TEXT}\n"

    def child(name: str, zone: dns.zone.Zone) -> str:
        tree.zones[f"{name}.{TOP}"] = directory / name
        zone.to_file(str(directory / name), relativize=False)
        return f"{name}.{TOP}"

    def ds_of(name: str, digest: str = "SHA256", begins: float = -3600, ends: float = 86400) -> dns.rdata.Rdata:
        """Write a signed child, and return the DS record of its key."""
        zone, key = signed_zone(f"{name}.{TOP}", text, begins=begins, ends=ends)
        return dns.dnssec.make_ds(child(name, zone), key, digest, policy=dns.dnssec.allow_all_policy)

    # Unbound tolerates up to a day (val-sig-skew-max).
    day = 86400
    yield "fine", [str(ds_of("fine"))]
    yield "stolen", [str(ds_of("stolen"))]  # its DS is removed from the parent, whose NSEC still lists it
    yield "expired", [str(ds_of("expired", begins=-4 * day, ends=-2 * day))]
    yield "early", [str(ds_of("early", begins=2 * day, ends=4 * day))]
    yield "wrongds", [str(ds_of("wrongds").replace(digest=bytes(32)))]
    good = ds_of("twods", "SHA384")
    yield "twods", [str(good), str(good.replace(algorithm=251)), str(good.replace(digest=bytes(48)))]
    yield "sha1", [str(ds_of("sha1", "SHA1"))]
    changes: dict[str, Callable[[dns.zone.Zone, str], None]] = {
        "keyless": lambda zone, origin: zone.delete_rdataset(origin, DNSKEY),
        "unsignedkey": lambda zone, origin: zone.delete_rdataset(origin, RRSIG, DNSKEY),
        "addedkey": lambda zone, origin: zone.find_rdataset(origin, DNSKEY).add(signed_zone(origin, text)[1]),
    }
    for name, change in changes.items():
        zone, key = signed_zone(f"{name}.{TOP}", text)
        change(zone, f"{name}.{TOP}")
        yield name, [str(dns.dnssec.make_ds(child(name, zone), key, "SHA256"))]
    for name, records in {
        "plain": [],
        "lost": ["12345 13 2 " + "00" * 32],
        "algorithm": ["12345 251 2 " + "00" * 32],
        "digest": ["12345 13 77 " + "00" * 32],
    }.items():
        _write(tree, directory, f"{name}.{TOP}", text)
        yield name, records


def _write(tree: Tree, directory: Path, origin: str, text: str) -> None:
    path = directory / origin
    path.write_text(f"$ORIGIN {origin}\n$TTL 300\n{NS_RECORDS}{text}")
    tree.zones[origin] = path
