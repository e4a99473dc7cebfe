"""Replies that are known whole: to the same question in any case, with any cookie, and to no other."""

from __future__ import annotations

import ctypes
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.serve import wholes
from maptr.serve.plan import FIRST, own
from maptr.serve.wholes import Wholes

LABELS = st.lists(st.binary(min_size=1, max_size=9), max_size=3)
TYPES = st.sampled_from([1, 35, 65, 97, 99])  # "A" and "a" among them
OPTS = (b"", bytes.fromhex("0000 29 04d0 0000 0000 0000"), bytes.fromhex("0000 29 4144 0000 0000 0000"))
CLIENT, WHOLE = bytes.fromhex("000a 0008"), bytes.fromhex("000a 0018")


def query(labels: list[bytes], rdtype: int, flags: int, opt: bytes) -> bytes:
    """Without its ID."""
    name = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    head = flags.to_bytes(2, "big") + bytes((0, 1, 0, 0, 0, 0, 0, bool(opt)))
    return head + name + rdtype.to_bytes(2, "big") + b"\0\1" + opt


def reply_to(octets: bytes, rcode: int = 0) -> bytes:
    return bytes((0x84, rcode)) + octets[2:] + b"records"


QUERIES = st.builds(query, LABELS, TYPES, st.sampled_from([0, 0x100, 0x4100, 0x6100]), st.sampled_from(OPTS))
NETWORK = 7  # stands for a kind


@given(st.lists(QUERIES, max_size=6), QUERIES, st.integers(0, 2), st.randoms(use_true_random=False))
def test_a_reply_is_known_to_its_question_alone(
    learned: list[bytes], asked: bytes, cookies: int, rng: random.Random
) -> None:
    known = Wholes()
    before = (b"", CLIENT, WHOLE)[cookies]
    cookie = rng.randbytes(before[-1]) if before else b""
    asked += before
    for octets in learned:
        for option in (b"", CLIENT, WHOLE):
            known.learn(octets + option, reply_to(octets + option), octets, cookie=bool(option))
    found = known.find(asked + cookie)
    same = {octets + before for octets in learned} & {asked}
    if same or found is not None:
        assert found is not None
        assert (found[0], found[2]) == (reply_to(asked), cookie)
        end = asked.index(b"\0", FIRST)
        alike = [octets for octets in learned if (octets + before).lower() == asked.lower()]
        assert any(octets[:FIRST] + (octets + before)[end:] == asked[:FIRST] + asked[end:] for octets in alike)
        assert known.kinds[found[1]] in {*alike}


@given(QUERIES, st.sampled_from([b"", CLIENT]), st.randoms(use_true_random=False))
def test_any_case_of_a_name_is_known(octets: bytes, before: bytes, rng: random.Random) -> None:
    known = Wholes()
    octets += before
    end = octets.index(b"\0", FIRST)
    cookie = rng.randbytes(8) if before else b""

    def shuffled() -> bytes:
        name = bytes(byte ^ 0x20 * rng.getrandbits(1) if chr(byte).isalpha() else byte for byte in octets[FIRST:end])
        return octets[:FIRST] + (name if name.isascii() else octets[FIRST:end]) + octets[end:]

    one, other = shuffled(), shuffled()
    known.learn(one, reply_to(one), NETWORK, cookie=bool(before))
    found = known.find(other + cookie)
    assert found is not None
    assert found[0] == reply_to(other)
    known.forget()
    assert known.find(one + cookie) is None


def test_denials_do_not_drive_out_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholes, "MAX_DENIED", 5)
    known = Wholes()
    there = query([b"there"], 1, 0, b"")
    known.learn(there, reply_to(there), NETWORK, cookie=False)
    for number in range(50):
        absent = query([b"no%d" % number], 1, 0, b"")
        known.learn(absent, reply_to(absent, 3), NETWORK, cookie=False)
        assert known.find(absent) is not None
        assert len(known.denied) <= 5
        known.learn(absent + CLIENT, reply_to(absent + CLIENT, 3), NETWORK, cookie=True)
        assert known.find(absent + CLIENT + bytes(8)) is None
    assert known.find(there) is not None
    assert known.kinds.keys() == {there, *known.denied}


@pytest.mark.parametrize("before", [b"", CLIENT], ids=["", "with a cookie"])
@pytest.mark.parametrize("what", [[(65, 0x100), (97, 0x100)], [(1, 0x4100), (1, 0x6100)]], ids=["type", "flags"])
def test_types_and_flags_have_no_case(what: list[tuple[int, int]], before: bytes) -> None:
    for one, other in (what, what[::-1]):
        for label in (b"name", b"NAME"):
            known = Wholes()
            learned, asked = (query([label], *which, b"") + before for which in (one, other))
            known.learn(learned, reply_to(learned), NETWORK, cookie=bool(before))
            assert known.find(learned + bytes(len(before) * 2)) is not None
            assert known.find(asked + bytes(len(before) * 2)) is None


def test_an_equal_plan_is_fetched_anew() -> None:
    """What it points to may have been forgotten, and another thing have taken its place."""
    memory = ctypes.create_string_buffer(b"first")
    octets = query([], 1, 0, b"")
    plans = [own(bytes(12 + 5), ctypes.addressof(memory)) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0] is not plans[1]
    known = Wholes()
    assert known.make_shared(plans[0], octets) == bytes(10) + b"first"
    memory.raw = b"other\0"
    assert known.make_shared(plans[0], octets) == bytes(10) + b"first", "fetched once"
    assert known.make_shared(plans[1], octets) == bytes(10) + b"other"
