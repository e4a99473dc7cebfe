"""Where a referral leads: which addresses may be asked, and whose are to be sought."""

from __future__ import annotations

from maptr.client.exchange import MAX_ADDRESS_LOOKUPS, MAX_LOOKUP_DEPTH, address_questions, usable_servers
from maptr.client.message import Referral
from maptr.client.servers import Server
from maptr.protocol.names import parse
from maptr.protocol.numbers import AAAA, A

CUT = parse("12345.ark.arpa.")


def referral(*servers: str, addresses: tuple[str, ...] = ()) -> Referral:
    return Referral(CUT, tuple(map(parse, servers)), addresses)


def test_a_public_server_sends_nobody_to_a_local_address() -> None:
    told = ("127.0.0.1", "192.0.2.9", "10.0.0.1", "fe80::1", "8.8.4.4", "2001:4860:0:0:0:0:0:7")
    public = usable_servers(Server("8.8.8.8", 5300), told)
    assert [server.address for server in public] == ["8.8.4.4", "2001:4860:0:0:0:0:0:7"]
    assert {server.port for server in public} == {5300}
    assert [server.address for server in usable_servers(Server("127.0.0.1"), told)] == list(told)


def test_addresses_are_sought_where_none_is_told_and_they_can_be_found() -> None:
    found = address_questions(referral("ns.nma.example.", "ns.12345.ark.arpa."), frozenset())
    assert found == [(parse("ns.nma.example."), A), (parse("ns.nma.example."), AAAA)]
    assert address_questions(referral("ns.nma.example.", addresses=("8.8.4.4",)), frozenset()) == []


def test_what_is_sought_already_is_not_sought_for_its_own_sake() -> None:
    seeking = frozenset({parse("ns.nma.example.")})
    assert address_questions(referral("NS.nma.Example."), seeking) == []
    assert {name for name, _ in address_questions(referral("NS.nma.Example.", "ns.example."), seeking)} == {
        parse("ns.example.")
    }


def test_searches_are_bounded_in_breadth_and_depth() -> None:
    many = referral(*(f"ns{number}.example." for number in range(9)))
    assert len({name for name, _ in address_questions(many, frozenset())}) == MAX_ADDRESS_LOOKUPS
    deep = frozenset(parse(f"x{number}.example.") for number in range(MAX_LOOKUP_DEPTH))
    assert address_questions(many, deep) == []
