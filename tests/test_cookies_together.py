"""Cookies answered together are those answered one by one, and so are the hashes under them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.cookies import answer_cookie, answer_cookies, make_cookie
from maptr.serve import hashing
from maptr.siphash import siphash24, siphash24_each

KEYS = st.binary(min_size=16, max_size=16)
NOW = 1_700_000_000
EACH = hashing.each_hash()


@given(KEYS, st.integers(0, 40), st.integers(0, 70), st.randoms(use_true_random=False))
def test_hashes(key: bytes, size: int, count: int, rng: random.Random) -> None:
    messages = [rng.randbytes(size) for _ in range(count)]
    expected = [siphash24(key, message) for message in messages]
    assert siphash24_each(key, messages) == expected
    assert EACH(key, messages) == expected, "by libcrypto where there is one"


@given(st.lists(st.tuples(KEYS, st.lists(st.binary(max_size=40)))))
def test_libcrypto_keeps_nothing_of_what_it_hashed_before(runs: list[tuple[bytes, list[bytes]]]) -> None:
    if EACH is siphash24_each:
        pytest.skip("no libcrypto of OpenSSL 3 here")
    for key, messages in runs:
        assert EACH(key, messages) == [siphash24(key, message) for message in messages]


@pytest.mark.parametrize("error", [ImportError, OSError, AttributeError])
def test_without_libcrypto_python_hashes(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: hashing.Libcrypto) -> None:
        raise error

    monkeypatch.setattr(hashing.Libcrypto, "__init__", missing)
    assert hashing.each_hash() is siphash24_each


def test_a_libcrypto_that_hashes_otherwise_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing.Libcrypto, "__call__", lambda *_: [bytes(8), bytes(8)])
    assert hashing.each_hash() is siphash24_each


def test_a_key_of_another_length() -> None:
    with pytest.raises(ValueError, match="16 octets"):
        EACH(bytes(8), [b""])


@given(
    st.lists(KEYS, min_size=1, max_size=2), st.lists(st.tuples(st.integers(0, 5), st.binary(min_size=8, max_size=8)))
)
def test_cookies(secrets: list[bytes], asked: list[tuple[int, bytes]]) -> None:
    address = bytes((192, 0, 2, 1))
    options = []
    for kind, client in asked:
        age = (0, 0, 1900, 4000, -200, 0)[kind]
        option = make_cookie(client, address, secrets[-1 if kind % 2 else 0], NOW - age)
        options.append(client if kind == 0 else option[:-1] + b"x" if kind == 5 else option)
    replies, verified = answer_cookies(options, [address] * len(options), secrets=secrets, now=NOW)
    one_by_one = [answer_cookie(option, "192.0.2.1", secrets=secrets, now=NOW) for option in options]
    assert replies == [reply.option for reply in one_by_one]
    assert verified == [place for place, reply in enumerate(one_by_one) if reply.verified]
