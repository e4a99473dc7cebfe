"""The vectors of docs/wire-format.toml, with maptr as one implementation, and the labels of docs/wire-format.md."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.rrset
import dns.zone
import pytest

from maptr import Ark, Discovery, DiscoveryFailed, Entry, Table, discover
from maptr.naptr.automaton import Budget
from maptr.naptr.regexp import RegexpError, Substitution
from maptr.registry.table import Nma
from maptr.zone.build import build
from tests.support.scripted import serving

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "wire-format.md").read_text("utf-8")
VECTORS: dict[str, list[dict[str, Any]]] = tomllib.loads((DOCS / "wire-format.toml").read_text("utf-8"))
EACH = [vector for kind in VECTORS.values() for vector in kind]


def vectors(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", VECTORS[kind], ids=lambda vector: vector["title"])


def test_every_must_of_the_page_has_a_label_and_a_vector() -> None:
    rules = PAGE.partition("\n## ")[2]
    labels = re.findall(r"\((M\d+)\)", rules)
    assert labels == [f"M{number}" for number in range(1, len(labels) + 1)]
    for paragraph in rules.replace("MUST\n\n1.", "MUST\n1.").split("\n\n"):
        assert paragraph.count("MUST") <= len(re.findall(r"\(M\d+\)", paragraph)), paragraph
    assert {label for vector in EACH for label in vector["must"]} == set(labels)


def test_every_title_begins_with_a_heading_of_the_page() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert {vector["title"].partition(": ")[0] for vector in EACH} <= set(headings)
    assert len({vector["title"] for vector in EACH}) == len(EACH)


@vectors("text")
def test_text(vector: dict[str, Any]) -> None:
    ark = Ark.parse(vector["received"])
    assert (ark.resolution, ark.tail) == (vector["resolution"], vector["tail"])


def look_up(
    records: dict[str, Any], ark: str, *, origin: str = "ark.arpa.", soa: str = ""
) -> tuple[Discovery, list[str]]:
    """The discovery of an ARK at a server that has these records, and the names that were queried for NAPTR."""
    asked: list[str] = []
    zone = dns.name.from_text(soa or origin)
    exists = zone.is_subdomain(dns.name.from_text(origin))

    def answer(query: dns.message.Message) -> dns.message.Message | None:
        name = query.question[0].name.canonicalize()
        said = records.get(name.to_text())
        if said == "SILENT":
            return None
        reply = dns.message.make_response(query)
        if query.question[0].rdtype == dns.rdatatype.SOA:
            reply.set_rcode(dns.rcode.NOERROR if exists else dns.rcode.NXDOMAIN)
            return reply
        if name.to_text() not in asked:  # a failure may be asked twice
            asked.append(name.to_text())
        if isinstance(said, str):
            reply.set_rcode(dns.rcode.from_text(said))
        elif said:
            reply.answer.append(dns.rrset.from_text_list(name, 300, "IN", "NAPTR", said))
        else:
            reply.set_rcode(dns.rcode.NXDOMAIN if said is None else dns.rcode.NOERROR)
            reply.authority.append(dns.rrset.from_text(zone, 900, "IN", "SOA", "a. b. 1 2 3 4 60"))
        return reply

    lifetime = 0.5 if "SILENT" in records.values() else 30.0
    with serving(answer) as port:
        try:
            found = discover(
                ark, nameservers=[f"127.0.0.1#{port}"], origin=origin, raise_on_none=False, lifetime=lifetime
            )
        except DiscoveryFailed as failed:
            found = failed.discovery
    return found, asked


@vectors("walk")
def test_walk(vector: dict[str, Any]) -> None:
    where = {name: vector[name] for name in ("origin", "soa") if name in vector}
    found, asked = look_up(vector["dns"], vector["ark"], **where)
    assert found.urls() == vector.get("urls", [])
    if not found:
        assert vector["result"] == ("none" if found.complete else "not known")
    else:
        assert found.complete is vector.get("complete", True)
        assert len(found.best) == vector.get("lowest", len(found.best))
    assert set(asked) == set(vector.get("asked", asked))


@vectors("regexp")
def test_regexp(vector: dict[str, Any]) -> None:
    field = vector["field"].encode("ascii")
    if vector.get("result") == "not valid":
        with pytest.raises(RegexpError):
            Substitution.parse(field)
        return
    made = Substitution.parse(field).apply(vector["text"].encode("ascii"), Budget(10_000))
    assert (None if made is None else made.decode("ascii")) == vector.get("made")
    assert (made is None) == (vector.get("result") == "no match")


@vectors("registry")
def test_registry(vector: dict[str, Any]) -> None:
    entries = [
        Entry(one["naan"], one.get("shoulder", ""), tuple(map(Nma, one["targets"]))) for one in vector["records"]
    ]
    built = build(Table(entries), serial=1)
    zone = dns.zone.from_text(built.text, "ark.arpa.", relativize=False)
    rules: dict[str, set[str]] = {}
    for owner, _, rdata in zone.iterate_rdatas("NAPTR"):
        rules.setdefault(owner.to_text(), set()).add(rdata.to_text())
    assert rules == {owner: {canonical(rdata) for rdata in rdatas} for owner, rdatas in vector["zone"].items()}
    assert sorted(built.left_out.records) == vector.get("left_out", [])
    for ark, urls in vector["urls"].items():
        found, _ = look_up(vector["zone"], ark)
        assert [one.url(found.ark) for one in found.best] == urls


def canonical(rdata: str) -> str:
    """A record as dnspython writes it."""
    return dns.rdata.from_text("IN", "NAPTR", rdata).to_text()
