"""The client behind proxies."""

from __future__ import annotations

import ipaddress

import pytest

from maptr.config.model import FORWARDED
from maptr.gateway.proxies import Proxies
from maptr.protocol.address import client_of, read_network

PROXIES = [ipaddress.ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.0.0.0/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", "198.51.100.7, 192.0.2.1", "192.0.2.1"),  # the first one is what the client claims
        ("127.0.0.1", "198.51.100.7, 192.0.2.1, 10.0.0.2", "192.0.2.1"),  # two proxies
        ("127.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "unknown", "127.0.0.1"),
        ("127.0.0.1", "192.0.2.1, unknown, 10.0.0.2", "10.0.0.2"),
        ("127.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("127.0.0.1", "2001:DB8:0::1", "2001:db8::1"),
        ("127.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", "127.0.0.1," * 4000 + "192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", "192.0.2.1\x00", "127.0.0.1"),
        ("127.0.0.1", "192.0.2.1:4711", "192.0.2.1"),
        ("127.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("127.0.0.1", '"[2001:db8::1]"', "2001:db8::1"),
        ("127.0.0.1", "fe80::1%eth0", "fe80::1"),
        ("127.0.0.1", 'fe80::1%x "GET forged" 302', "127.0.0.1"),
        ("127.0.0.1", "192.0.2.256", "127.0.0.1"),
        ("127.0.0.1", "_hidden", "127.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_proxy(peer: str, forwarded: str, client: str) -> None:
    proxies = Proxies(PROXIES)
    assert proxies.trusts(peer)
    assert proxies.client(peer, [forwarded]) == client


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("for=192.0.2.1", "192.0.2.1"),
        ('For="[2001:db8::1]:80";by=10.0.0.1', "2001:db8::1"),
        ("proto=https; for=192.0.2.1, for=10.0.0.7", "192.0.2.1"),
        ('for="a,b", for=192.0.2.9', "192.0.2.9"),
        ("for=192.0.2.1, by=10.0.0.1", "127.0.0.1"),
        ("for=_x, for=10.0.0.7", "10.0.0.7"),
        ("for=unknown", "127.0.0.1"),
        ("192.0.2.1", "127.0.0.1"),
        ('for="192.0.2.1', "127.0.0.1"),
    ],
)
def test_the_client_in_forwarded(forwarded: str, client: str) -> None:
    """RFC 7239 section 4."""
    assert Proxies(PROXIES, "Forwarded").client("127.0.0.1", forwarded.split("|")) == client


@pytest.mark.parametrize(
    ("address", "trusted"),
    [("127.9.9.9", True), ("::1", True), ("::ffff:10.1.1.1", True), ("192.0.2.1", False), ("", False), ("x", False)],
)
def test_proxies_are_known_by_their_network(address: str, trusted: bool) -> None:
    assert Proxies(PROXIES).trusts(address) is trusted


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_the_addresses_of_an_ipv6_link_are_one_client(first: str, second: str, shared: bool) -> None:
    assert (client_of(first) == client_of(second)) is shared


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ('for=192.0.2.1, for="198.51.100.7"', "198.51.100.7"),
        ('for="198.51.100.7, for=192.0.2.1', "192.0.2.1"),  # an unmatched quotation mark
        ('by="a\\", for=198.51.100.8", for=192.0.2.1', "192.0.2.1"),
        ('for="' + '\\"' * 2_000 + ",for=192.0.2.1", "192.0.2.1"),
    ],
)
def test_quotation_marks_of_forwarded(value: str, client: str) -> None:
    assert Proxies([read_network("203.0.113.0/24")], FORWARDED).client("203.0.113.1", [value]) == client
