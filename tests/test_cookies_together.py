"""Cookies answered together are those answered one by one, and so are the hashes under them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maptr.cookies import answer_cookie, answer_cookies, make_cookie
from maptr.siphash import siphash24, siphash24_each

KEYS = st.binary(min_size=16, max_size=16)
NOW = 1_700_000_000


@given(KEYS, st.integers(0, 40), st.integers(0, 70), st.randoms())
def test_hashes(key: bytes, size: int, count: int, rng: st.DrawFn) -> None:
    messages = [rng.randbytes(size) for _ in range(count)]  # type: ignore[attr-defined]
    assert siphash24_each(key, messages) == [siphash24(key, message) for message in messages]


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
