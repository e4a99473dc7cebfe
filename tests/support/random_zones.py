"""Random zones, and questions about them.

There are few labels, so that wildcards, delegations, aliases and DNAMEs often collide.
"""

from __future__ import annotations

import random
from typing import NamedTuple

ORIGIN = "example."
LABELS = ("a", "b", "c", "*", "ns")
QUERY_TYPES = ("A", "AAAA", "TXT", "NS", "CNAME", "DNAME", "MX", "DS", "SOA", "NAPTR", "ANY")


class Record(NamedTuple):
    owner: str
    rdtype: str
    rdata: str


def random_name(rng: random.Random, depth: int = 3) -> str:
    return ".".join(rng.choice(LABELS) for _ in range(rng.randint(1, depth))) + "." + ORIGIN


def random_zone(rng: random.Random) -> list[Record]:
    """Return the records of a valid zone: no other data at a CNAME, and only glue below a delegation or DNAME."""
    records = [
        Record(ORIGIN, "SOA", f"ns.{ORIGIN} host.{ORIGIN} 1 7200 3600 1209600 300"),
        Record(ORIGIN, "NS", f"ns.{ORIGIN}"),
    ]
    kinds = ["A", "A", "TXT", "MX", "NAPTR", "CNAME", "CNAME", "NS", "DNAME", "AAAA"]
    for _ in range(rng.randint(3, 16)):
        owner, kind = random_name(rng), rng.choice(kinds)
        target = random_name(rng) if rng.random() < 0.85 else "out.test."
        rdata = {
            "A": f"192.0.2.{rng.randint(1, 250)}",
            "AAAA": f"2001:db8::{rng.randint(1, 250)}",
            "TXT": f'"{rng.randint(1, 9)}"',
            "MX": f"10 {target}",
            "NAPTR": f'0 0 "" "ark" "" {target}',
        }.get(kind, target)
        if kind in ("NS", "DNAME") and owner.startswith("*."):
            continue  # RFC 4592 4.2 and RFC 6672 3.3 leave these undefined
        records.append(Record(owner, kind, rdata))
        if kind == "NS" and rng.random() < 0.5:
            records.append(Record(owner, "DS", "1 13 2 " + "00" * 32))
    return tidy(list(dict.fromkeys(records)))


def tidy(records: list[Record]) -> list[Record]:
    """Remove records that contradict an earlier one."""
    kept: list[Record] = []
    for record in records:
        there = {other.rdtype for other in kept if other.owner == record.owner}
        types = there | {record.rdtype}
        if not (
            (there and "CNAME" in types)
            or types >= {"DNAME", "NS"}
            or (record.rdtype == "DNAME" and "DNAME" in there)
            or (record.owner != ORIGIN and "NS" in types and types - {"NS", "DS"})  # a cut holds NS and DS
        ):
            kept.append(record)
    cuts = {record.owner for record in kept if record.rdtype == "NS" and record.owner != ORIGIN}
    dnames = {record.owner for record in kept if record.rdtype == "DNAME"}
    return [
        record
        for record in kept
        if not any(below(record.owner, top) for top in dnames)
        and not (record.rdtype not in ("A", "AAAA") and any(below(record.owner, cut) for cut in cuts))
        and not (record.rdtype == "DS" and record.owner not in cuts)
    ]


def zone_text(records: list[Record]) -> str:
    return "".join(f"{owner} 3600 IN {rdtype} {rdata}\n" for owner, rdtype, rdata in records)


def below(name: str, top: str) -> bool:
    """Return whether the name is strictly below ``top``."""
    return name.endswith("." + top)


def questions(rng: random.Random, records: list[Record]) -> list[tuple[str, str]]:
    """Return questions about every owner name, names below them, and random names, each with some types."""
    names = {record.owner for record in records} | {random_name(rng, 4) for _ in range(20)} | {ORIGIN, "test."}
    names |= {f"{rng.choice(LABELS)}.{name}" for name in names}
    return [(name, rdtype) for name in sorted(names) for rdtype in QUERY_TYPES]


# ---- records of every type beside those of NAANs

NAANS = ("12345", "99999", "b5488", "*", "x6.12345", "a.b5488")
EVERY_TYPE = (
    ("A", "192.0.2.7"), ("AAAA", "2001:db8::7"), ("TXT", '"who=Example; and \\"more\\"" "\\255"'), ("TXT", "unquoted"),
    ("SPF", '"v=spf1 -all"'), ("HINFO", '"a b" ""'), ("MX", "10 ns.{origin}"), ("MX", "10 Mail.out.test."),
    ("SRV", "1 2 3 ns.{origin}"), ("SRV", "1 2 3 Out.test."), ("PTR", "Out.test."), ("RP", "a.out.test. b.out.test."),
    ("AFSDB", "1 out.test."), ("KX", "1 out.test."), ("LOC", "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m"),
    ("CAA", '0 issue "ca.example; a=b"'), ("URI", '10 1 "https://h.example/\\"a"'), ("SSHFP", "1 1 " + "0a" * 20),
    ("TLSA", "3 1 1 " + "0a" * 32), ("SMIMEA", "3 1 1 " + "0A" * 32), ("OPENPGPKEY", "AAAA"), ("CERT", "1 2 3 AAAA"),
    ("HTTPS", "1 . alpn=h2,h3 port=8443"), ("HTTPS", "0 h.example."), ("SVCB", "1 h.example. ipv4hint=192.0.2.1"),
    ("EUI48", "00-00-5e-00-53-2a"), ("EUI64", "00-00-5e-ef-10-00-00-2a"), ("NID", "10 0014:4fff:ff20:ee64"),
    ("L32", "10 192.0.2.1"), ("L64", "10 2001:0db8:1140:1000"), ("LP", "10 out.test."), ("DHCID", "AAAA"),
    ("CSYNC", "1 3 A NS"), ("CDS", "1 13 2 " + "00" * 32), ("CDNSKEY", "257 3 13 AAAA"), ("DNSKEY", "256 3 13 AAAA"),
    ("APL", "1:192.0.2.0/24 !1:192.0.2.64/28"), ("NAPTR", '1 2 "s" "x" "" Out.test.'),
    ("TYPE65280", "\\# 2 3031"), ("TYPE65280", "\\# 0"), ("TYPE12288", "\\# 3 c00c30"),
    ("TYPE32769", "\\# 36 30310d02" + "00" * 32),
    ("TYPE65534", "\\# 1 ff"), ("TYPE40000", "\\# 70 " + "61" * 70),
    ("TYPE1", "\\# 4 c0000208"), ("TYPE16", "\\# 3 026162"),
)  # fmt: skip
"""Types and rdata that BIND, NSD, Knot and dnspython read alike."""
LAYOUTS = (
    "{owner} 3600 IN {rdtype} {rdata}",
    "{owner}\t\tIN\t{rdtype}\t{rdata} ; a comment",
    "{owner} in {rdtype} {rdata}",
)


def zone_of_naans(rng: random.Random) -> list[Record]:
    """Return the records of a valid zone with records of all types beside and between those of NAANs."""
    records = [*random_zone(rng)[:2], Record(f"ns.{ORIGIN}", "A", "192.0.2.1")]
    for naan in rng.sample(NAANS, 4):
        owner = f"{naan}.{ORIGIN}"
        rules = [Record(owner, "NAPTR", rdata) for rdata in _rules(naan.rpartition(".")[2])]
        beside = [Record(owner, kind, rdata.replace("{origin}", ORIGIN)) for kind, rdata in rng.sample(EVERY_TYPE, 7)]
        mixed = [*rules, *beside, *(record for record in random_zone(rng)[2:] if rng.random() < 0.2)]
        rng.shuffle(mixed)
        records += mixed
    return tidy(list(dict.fromkeys(records)))


def _rules(naan: str) -> list[str]:
    made = f"https://h.example/ark:/{naan}/" + 2 * "\\" + "1"
    return [f'10 10 "u" "ark" "!^ark:/?{naan}/(.*)$!{made}!" .', '100 10 "h" "ark" "" H.example\\0588443.']


def laid_out(rng: random.Random, records: list[Record]) -> str:
    """Write a zone file in a random layout, in which lines may lack an owner, and types may be in lower case."""
    layout, last, lines = rng.choice(LAYOUTS), "", ["$TTL 3600"]
    for owner, rdtype, rdata in records:
        kind = rdtype.lower() if rng.random() < 0.2 else rdtype
        shown = "" if owner == last and rng.random() < 0.5 else owner.upper() if rng.random() < 0.1 else owner
        lines.append(layout.format(owner=shown, rdtype=kind, rdata=rdata))
        last = owner
    return "\n".join(lines) + "\n"
