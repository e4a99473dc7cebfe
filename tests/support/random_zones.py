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
    """Return questions for every owner name, names below them, and random names, each with some types."""
    names = {record.owner for record in records} | {random_name(rng, 4) for _ in range(20)} | {ORIGIN, "test."}
    names |= {f"{rng.choice(LABELS)}.{name}" for name in names}
    return [(name, rdtype) for name in sorted(names) for rdtype in QUERY_TYPES]
