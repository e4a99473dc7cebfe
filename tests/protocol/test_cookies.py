"""Server cookies: the vectors of RFC 9018 and SipHash, the 32-bit overflow of the clock, and random bytes."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from siphashc import siphash

from maptr.protocol import cookies
from tests.support.answers import load_vectors

VECTORS = load_vectors("cookies")
SECRET = bytes(range(16))


@pytest.mark.parametrize("case", VECTORS["siphash"], ids=lambda case: case["title"])
def test_siphash_vectors(case: dict[str, str]) -> None:
    assert siphash(bytes.fromhex(case["key"]), bytes.fromhex(case["data"])).to_bytes(8, "little").hex() == case["hash"]


@pytest.mark.parametrize("case", VECTORS["cookie"], ids=lambda case: case["title"])
def test_rfc9018_cookie_vectors(case: dict[str, Any]) -> None:
    secrets = [bytes.fromhex(secret) for secret in case["secrets"]]
    address = cookies.packed_address(case["client"])
    stamp = cookies.timestamp(case["now"])
    option, verified = cookies.answer_cookie(bytes.fromhex(case["sent"]), address, secrets, stamp)
    assert verified is case["valid"]
    if "reply" in case:
        assert option.hex() == case["reply"]
    again = cookies.answer_cookie(option, address, secrets, stamp)
    assert again == (option, True), "the cookie that the client received is valid"


@given(
    st.binary(min_size=8, max_size=8),
    st.ip_addresses(),
    st.integers(0, 0xFFFFFFFF),
    st.integers(-cookies.MAX_AHEAD, cookies.MAX_AGE),
)
def test_rfc1982_a_cookie_stays_valid_when_the_clock_overflows(
    client_cookie: bytes, address: ipaddress.IPv4Address | ipaddress.IPv6Address, made: int, age: int
) -> None:
    cookie = cookies.sign(client_cookie + cookies.timestamp(made), address.packed, SECRET)
    now = cookies.timestamp(made + age + 0x100000000)
    option, verified = cookies.answer_cookie(cookie, address.packed, [SECRET], now)
    assert verified
    assert (option == cookie) is (age < cookies.RENEW_AGE)


@given(st.binary(max_size=50), st.binary(max_size=16), st.floats(0, 2**40))
def test_random_bytes_neither_verify_nor_raise(option: bytes, address: bytes, now: float) -> None:
    assert cookies.is_well_formed(option) is (len(option) in (8, *range(16, 41)))
    if cookies.is_well_formed(option):
        answered, verified = cookies.answer_cookie(option, address, [SECRET], cookies.timestamp(now))
        assert not verified
        assert answered[:8] == option[:8]
        assert len(answered) == 24


def test_rfc9018_4_1_another_version_is_invalid_even_with_a_correct_hash() -> None:
    client_cookie, head = bytes(8), bytes((2, 0, 0, 0, 0, 0, 0, 0))
    address = ipaddress.ip_address("192.0.2.1")
    forged = client_cookie + head + siphash(SECRET, client_cookie + head + address.packed).to_bytes(8, "little")
    assert not cookies.answer_cookie(forged, address.packed, [SECRET], cookies.timestamp(0))[1]


def test_packed_address_ignores_an_ipv6_zone() -> None:
    assert (
        cookies.packed_address("fe80::1%eth0")
        == cookies.packed_address("fe80::1")
        == ipaddress.ip_address("fe80::1").packed
    )
    assert cookies.packed_address("") == cookies.packed_address("no address") == b""
