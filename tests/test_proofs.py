"""Proofs laid out of records against the general path's: the same octets, one question to it a kind, and bounds."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import dns.message
import dns.name
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr import denial, proofs, readyzone
from maptr.answer import make_reply
from maptr.context import Transport
from maptr.fastpath import ReadyAnswers
from maptr.ready import TC
from maptr.serve import plans
from maptr.serve.plans import Plans
from maptr.snapshot import Snapshot
from tests.test_denial import SNAPSHOTS, VECTORS, load
from tests.test_fastpath import hold, ready_of
from tests.test_plans import Server

# The RFC's zones, one whose SOA names nobody below it, and the same with names in capitals.
ELSEWHERE = VECTORS["zone"]["nsec3"].replace("SOA   ns1 bugs.x.w ", "SOA   ns.test. bugs.test. ")
ZONES = {
    **SNAPSHOTS,
    "wild": Snapshot.from_zones([load(re.sub(r"(?m)^\*\.w +MX.*$", "*.w TXT x", VECTORS["zone"]["nsec"]))]),
    "soa-elsewhere": Snapshot.from_zones([load(ELSEWHERE)]),
    "capitals": Snapshot.from_zones(
        [load(ELSEWHERE.replace("35mthgpgcu1qg68fab165klnsnk3dpvl", "35MTHGPGcu1qg68fab165klnsnk3dpvl"))]
    ),
}
READY = {kind: ready_of(snapshot) for kind, snapshot in ZONES.items()}

LABEL = st.sampled_from(
    ["a", "ai", "b", "c", "w", "x", "y", "xx", "ns1", "bugs", "*", "z" * 40, "W", "35mthgpgcu1qg68fab165klnsnk3dpvl"]
)
RDTYPE = st.sampled_from(["A", "MX", "DS", "TXT", "NSEC", "NAPTR", "ANY"])


def denied(labels: Sequence[str], rdtype: str = "A", payload: int = 1232) -> bytes:
    name = dns.name.Name([*(label.encode() for label in labels), b"example", b""])
    return dns.message.make_query(name, rdtype, use_edns=0, payload=payload, want_dnssec=True).to_wire()


@pytest.mark.parametrize("kind", ZONES)
@given(st.lists(LABEL, min_size=1, max_size=5), RDTYPE)
@example(["c", "x", "w"], "A")
@example(["x", "ai"], "A")
@example(["a", "x", "ai"], "A")
def test_laid_out_as_the_general_path_writes_it(kind: str, labels: list[str], rdtype: str) -> None:
    hold(READY[kind], ZONES[kind], denied(labels, rdtype))


def test_a_label_that_looks_like_two_is_not_taken_for_them() -> None:
    """The owner of the NSEC is no name above, though its octets are at the end of those asked."""
    text = "@ 60 SOA ns.test. bugs.test. 1 2 3 4 5\n@ 60 NS ns.test.\nb.t 60 A 192.0.2.1\n"
    text += "@ 60 NSEC b.t NS SOA RRSIG NSEC\nb.t 60 NSEC @ A RRSIG NSEC\n"
    snapshot = Snapshot.from_zones([load(text)])
    ready = ready_of(snapshot)
    for labels in (["x", "b", "t"], ["c\x01b", "t"], ["y", "b", "t"], ["t\x01b", "t"], ["x", "c", "t"]):
        for _ in range(2):
            assert hold(ready, snapshot, denied(labels))


def test_names_below_a_wildcard_are_written_as_below_it() -> None:
    """A wildcard's own record and the last one below it: the second owner compresses against the first."""
    text = "@ 60 SOA ns.test. bugs.test. 1 2 3 4 5\n@ 60 NS ns.test.\n* 60 TXT x\na.* 60 TXT x\nm 60 TXT x\n"
    text += "@ 60 NSEC * NS SOA RRSIG NSEC\n* 60 NSEC a.* TXT RRSIG NSEC\n"
    text += "a.* 60 NSEC m TXT RRSIG NSEC\nm 60 NSEC @ TXT RRSIG NSEC\n"
    snapshot = Snapshot.from_zones([load(text)])
    ready = ready_of(snapshot)
    for label in ("x", "b", "y", "c"):  # denied by the record of m, and by that of a.*
        assert hold(ready, snapshot, denied([label], "MX"))


def counting(snapshot: Snapshot) -> tuple[ReadyAnswers, list[bytes]]:
    asked: list[bytes] = []

    def general(query: bytes, /, *, transport: Transport) -> object:
        asked.append(query)
        return make_reply(query, snapshot, transport=transport)

    return ReadyAnswers(snapshot, general), asked  # type: ignore[arg-type]


def words(count: int) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices("cdefghijk", k=rng.randint(3, 12))) for _ in range(count)]


@pytest.mark.parametrize("above", [(), ("ai",), ("ns2",)], ids=["at the origin", "below a name", "below another"])
def test_the_general_path_is_asked_once_whatever_is_proved(above: tuple[str, ...]) -> None:
    ready, asked = counting(ZONES["soa-elsewhere"])
    asked.clear()
    authorities = set()
    for word in words(200):
        query = denied((word, *above))
        assert hold(ready, ZONES["soa-elsewhere"], query)
        found = ready.find(query)
        assert found is not None
        authorities.add(found.ready.body)
    assert len(asked) == 1
    assert len(authorities) > 20


@pytest.mark.parametrize("kind", ["nsec", "soa-elsewhere"])
def test_so_it_is_for_types_that_names_lack(kind: str) -> None:
    ready, asked = counting(ZONES[kind])
    asked.clear()
    names = ["ai", "ns2"] if kind == "nsec" else ["ai", "ns1", "ns2", "xx", "x.w", "y.w", "x.y.w"]
    for name in names:
        for rdtype in ("TXT", "NAPTR", "DS"):
            assert hold(ready, ZONES[kind], denied(name.split("."), rdtype))
    assert len(asked) == 1


@pytest.mark.parametrize("kind", ["nsec", "soa-elsewhere"])
def test_proofs_that_do_not_fit_are_cut_without_the_general_path(kind: str) -> None:
    ready, asked = counting(ZONES[kind])
    above = ["x" * 60, "y" * 60, "z" * 60]
    for word in words(40):
        assert hold(ready, ZONES[kind], denied([word, *above]))
    asked.clear()
    cut = 0
    for payload in (0, 511, 512, 513, 700, 4096):
        for word in words(40):
            query = denied([word, *above], payload=payload)
            assert hold(ready, ZONES[kind], query)
            found = ready.find(query, stream=False)
            assert found is not None
            if found.ready.head[0] & TC:
                cut += 1
                assert found.ready.start == found.ready.end
                assert ready.find(query) is None, "over a stream it fits"
    assert cut > 40
    assert not asked


def test_a_layout_that_the_general_path_does_not_have_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "RRSIG", 47)
    ready, asked = counting(ZONES["soa-elsewhere"])
    asked.clear()
    for word in words(20):
        assert hold(ready, ZONES["soa-elsewhere"], denied([word]))
    assert len(asked) > 5


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((proofs, "MAX_PARTS"), (proofs, "MAX_KINDS"), (denial, "MAX_KNOWN")):
        monkeypatch.setattr(module, limit, 2)
    snapshot = Snapshot.from_zones([load(ELSEWHERE)])
    ready = ready_of(snapshot)
    for word in words(30):
        for above in ((), ("ai",), ("ns2",), ("xx",), ("q", "w")):
            assert hold(ready, snapshot, denied((word, *above), "TXT"))
    (zone,) = (lookup.zone for lookup in ready._zones.values() if lookup)
    assert len(zone.proofs._parts) <= 2 + 3  # those of a proof that is being laid out go over
    assert len(zone.proofs._frames) <= 2
    assert isinstance(zone.denial, denial.Nsec3Chain)
    assert len(zone.denial._known) <= 2


def test_plans_with_proofs_live_for_their_batch_and_are_limited_as_one_kind() -> None:
    snapshot = ZONES["soa-elsewhere"]
    ready = READY["soa-elsewhere"]
    learned = Plans(ready)
    before = len(learned._shared)
    for word in words(50):
        query = denied([word])
        found = ready.find(query)
        assert found is not None
        plan = learned.learn(query, found)
        reply = make_reply(query, snapshot, transport=Transport.UDP)
        assert reply is not None
        assert learned.kind(plan, query[2:]) == reply.kind
        assert learned._alive_now[-1] is found.ready.body
    assert len(learned._shared) == before
    learned.sent()
    assert not learned._alive_now
    assert not learned._kinds_now


# What stands behind a new label, and whether one plan is for all of one gap there: with NSEC always.
ABOVE = {(): True, ("nowhere",): True, ("x", "nowhere"): True, ("ai",): False, ("w",): False, ("a", "z", "w"): True}


@pytest.mark.parametrize("above", ABOVE, ids=".".join)
@pytest.mark.parametrize("kind", ["nsec", "wild", "nsec3", "soa-elsewhere", "capitals"])
@pytest.mark.parametrize("payload", [512, 1232])
def test_who_is_in_one_gap_of_a_chain_has_one_plan(kind: str, above: tuple[str, ...], payload: int) -> None:
    server = Server(ZONES[kind])
    rng = random.Random(f"{kind} {above}")
    labels = ["".join(rng.choices("0akmqvz", k=4)) for _ in range(200)]
    queries = [denied((label, *above), rng.choice(("TXT", "NAPTR")), payload) for label in labels]
    for at in range(0, len(queries), 8):
        server.hold(queries[at : at + 8])
    kept = len(server.plans._alive_proved)
    assert kept < 80
    server.found = 0
    server.hold([query[:2] + query[2:].upper() if i % 3 else query for i, query in enumerate(queries)])
    shared = ABOVE[above] or kind in ("nsec", "wild")
    assert server.found == (len(queries) if shared else 0)
    assert len(server.plans._alive_proved) == (kept if shared else 0)
    assert not server.plans._kinds_now


def test_names_as_long_below_one_that_exists_and_one_that_does_not() -> None:
    """The latter are all in one gap. The SOA names hosts below w, so neither is laid out."""
    server = Server(ZONES["nsec3"])
    for above in "bcdefghijk":
        for word in "ab":
            server.hold([denied((word, above, "w"), "TXT")])
    for word in words(100):
        server.hold([denied((word[:3], "w"), "TXT")])
    assert server.found == 0
    for above in "bcdefghijk":
        server.hold([denied(("z", above, "w"), "TXT")])
    assert server.found == 10


@pytest.mark.parametrize("kind", ["nsec", "nsec3"])
def test_plans_of_gaps_are_bounded_and_live_as_long_as_they_are_found(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "MAX_PROVED", 4)
    monkeypatch.setattr(readyzone, "MAX_ENCLOSERS", 2)
    server = Server(ZONES[kind])
    for word in words(150):
        for above in ((), ("ai",), ("nowhere",)):
            server.hold([denied((word[:3], *above))] * 2)
            assert len(server.plans._alive_proved) <= 4 + 2  # those of a batch go over
            alive = {id(body) for body in server.plans._alive_proved}
            found = {
                plan
                for _, _, _, special in server.plans.tables.patterns.values()
                if special is not None
                for plan in special.proved.values()
            }
            assert len(found) <= len(alive) == len(server.plans._kinds_proved)
    (zone,) = (lookup.zone for lookup in server.ready._zones.values() if lookup)
    assert len(zone._gaps) <= 2


def test_chains_with_too_many_gaps_have_no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denial, "MAX_GAPS", 3)
    for kind in ("nsec", "nsec3"):
        server = Server(ZONES[kind])
        for word in words(30):
            server.hold([denied((word[:3],)), denied((word[:3], "nowhere"))])
        assert server.found > 20
        assert {*map(len, (special.proved for *_, special in server.plans.tables.patterns.values() if special))} == {1}


def test_gaps_of_the_root() -> None:
    """Whose labels end with the chain."""
    text = "@ 60 SOA ns.test. bugs.test. 1 2 3 4 5\n@ 60 NS ns.test.\nm 60 A 192.0.2.1\nx.z 60 A 192.0.2.1\n"
    text += "@ 60 NSEC m NS SOA RRSIG NSEC\nm 60 NSEC x.z A RRSIG NSEC\nx.z 60 NSEC @ A RRSIG NSEC\n"
    server = Server(Snapshot.from_zones([load(text, ".")]))
    names = [dns.name.from_text(f"{first}{second}.") for first in "almnyz" for second in "amz"]
    queries = [
        dns.message.make_query(name, "TXT", use_edns=0, payload=1232, want_dnssec=True).to_wire() for name in names
    ]
    for _ in range(4):
        server.hold(queries)
    assert server.found > len(queries) * 2


def test_a_chain_gives_the_same_proof_when_it_knows_the_name_above() -> None:
    view = next(iter(SNAPSHOTS["nsec3"].zones.values()))
    chain = view.denial
    assert isinstance(chain, denial.Nsec3Chain)
    origin = b"\7example\0"
    for word in words(50):
        name = bytes((len(word),)) + word.encode() + origin
        chain._known.clear()
        first = chain.name_error(name, origin)
        assert chain._known
        assert chain.name_error(name, origin) == first


class Forgetful(dict[object, object]):
    """As another thread would leave it that forgets everything right after somebody has looked."""

    def __contains__(self, key: object) -> bool:
        there = super().__contains__(key)
        self.clear()
        return there


@pytest.mark.parametrize("kind", ["nsec", "soa-elsewhere"])
def test_what_another_thread_forgets_meanwhile_is_learned_anew(kind: str) -> None:
    ready = ready_of(ZONES[kind])
    (zone,) = (lookup.zone for lookup in ready._zones.values() if lookup)
    for holder, table in (
        (ready._learned, "_ready"),
        (ready._learned, "_settled"),
        (zone, "_gaps"),
        (zone.proofs, "_frames"),
    ):
        setattr(holder, table, Forgetful())
    server = Server(ZONES[kind])
    server.ready = ready
    server.plans = Plans(ready)
    unknown_class = dns.message.make_query("ai.example.", "A", "CH", use_edns=0).to_wire()
    for _ in range(3):
        server.hold(
            [
                denied(labels, rdtype)
                for labels in (["c"], ["ai"], ["c", "w"], ["x", "nowhere"])
                for rdtype in ("TXT", "A")
            ]
        )
        server.hold([unknown_class])
