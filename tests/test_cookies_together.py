"""Cookies answered in batches are those answered one by one; so are the hashes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.cookies import answer_cookie, make_cookie
from maptr.serve import hashing
from maptr.serve.hashing import InPython, Libcrypto, Libsodium, make_hasher
from maptr.serve.jar import CookieJar
from maptr.serve.slots import BATCH, Slots
from maptr.siphash import siphash24, siphash24_each

KEYS = st.binary(min_size=16, max_size=16)
NOW = 1_700_000_000
PLACES = [32 * i + 8 for i in range(BATCH)]
MEMORY = mmap.mmap(-1, 32 * (BATCH + 1))
START = ctypes.addressof(ctypes.c_char.from_buffer(MEMORY))


def hashers() -> Iterator[hashing.Hasher]:
    """All that there are here."""
    for library in (Libsodium, Libcrypto):
        with contextlib.suppress(AttributeError, ImportError, OSError):
            yield library(START, PLACES)
    yield InPython(MEMORY, PLACES)


HASHERS = pytest.mark.parametrize("hasher", [*hashers()], ids=lambda hasher: type(hasher).__name__)


@given(KEYS, st.integers(0, 40), st.integers(0, 70), st.randoms(use_true_random=False))
def test_hashes(key: bytes, size: int, count: int, rng: random.Random) -> None:
    messages = [rng.randbytes(size) for _ in range(count)]
    assert siphash24_each(key, messages) == [siphash24(key, message) for message in messages]


@given(st.lists(st.tuples(KEYS, st.integers(16, 32), st.sets(st.integers(0, BATCH - 1))), max_size=4), st.randoms())
@HASHERS
def test_hashes_where_they_lie(
    hasher: hashing.Hasher, runs: list[tuple[bytes, int, set[int]]], rng: random.Random
) -> None:
    """Those asked for, and nothing of what was hashed before or lies beside."""
    for key, size, which in runs:
        MEMORY[:] = before = rng.randbytes(len(MEMORY))
        hasher(key, size, which)
        expected = bytearray(before)
        for i in which:
            at = PLACES[i]
            expected[at + 16 : at + 24] = siphash24(key, before[at : at + size])
        assert MEMORY[:] == expected


@pytest.mark.parametrize("error", [ImportError, OSError, AttributeError])
def test_without_a_library_python_hashes(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise error

    monkeypatch.setattr(Libsodium, "__init__", missing)
    monkeypatch.setattr(Libcrypto, "__init__", missing)
    assert isinstance(make_hasher(MEMORY, START, PLACES), InPython)


def test_without_libsodium_another_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "SODIUM", ("libsodium.so.of-no-version",))
    assert not isinstance(make_hasher(MEMORY, START, PLACES), Libsodium)


def test_a_library_that_hashes_otherwise_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Libsodium, "__call__", lambda *_: None)
    monkeypatch.setattr(Libcrypto, "__call__", lambda *_: None)
    assert isinstance(make_hasher(MEMORY, START, PLACES), InPython)


@HASHERS
def test_a_key_of_another_length(hasher: hashing.Hasher) -> None:
    with pytest.raises(ValueError, match="16 octets"):
        hasher(bytes(8), 20, [0])


def jar_and_slots(family: socket.AddressFamily, hashes: bool) -> tuple[CookieJar, Slots]:
    slots = Slots(family, anywhere=True)
    jar = CookieJar(slots)
    if not hashes:
        jar._hasher = InPython(slots.memory, [place.start for place in slots.cookies])
    return jar, slots


JARS = {
    (family, hashes): jar_and_slots(family, hashes)
    for family in (socket.AF_INET, socket.AF_INET6)
    for hashes in (True, False)
}


@given(
    st.sampled_from(sorted(JARS)),
    st.lists(KEYS, min_size=1, max_size=2),
    st.dictionaries(
        st.integers(0, BATCH - 1), st.tuples(st.integers(0, 6), st.binary(min_size=8, max_size=8)), min_size=1
    ),
    st.randoms(use_true_random=False),
    st.integers(0, 2),
)
def test_cookies(
    which: tuple[socket.AddressFamily, bool],
    secrets: list[bytes],
    asked: dict[int, tuple[int, bytes]],
    rng: random.Random,
    later: int,
) -> None:
    jar, slots = JARS[which]
    octets, now = (4 if which[0] == socket.AF_INET else 16), NOW + later
    addresses = [rng.randbytes(octets) for _ in range(BATCH)]
    for place, address in zip(slots.addresses, addresses, strict=True):
        slots.memory[place] = address
    options = []
    for i, (kind, client) in asked.items():
        age = (0, 0, 1900, 4000, -200, 0, -400)[kind]
        option = make_cookie(client, addresses[i], secrets[-1 if kind % 2 else 0], now - age)
        options.append((i, client if kind == 0 else option[:-1] + b"x" if kind == 5 else option))
    verified = jar.answer(options, secrets=secrets, now=now)
    replies = {
        i: answer_cookie(option, socket.inet_ntop(which[0], addresses[i]), secrets=secrets, now=now)
        for i, option in options
    }
    assert {i: slots.memory[slots.cookies[i]] for i in replies} == {i: reply.option for i, reply in replies.items()}
    assert sorted(verified) == sorted(i for i, reply in replies.items() if reply.verified)
    assert [slots.memory[place] for place in slots.addresses] == addresses
