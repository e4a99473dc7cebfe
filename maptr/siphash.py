"""SipHash-2-4 with an output of 64 bits, as DNS server cookies are made (RFC 9018 4.4).

From the description by Aumasson and Bernstein (2012). Python has SipHash only inside ``hash()``, keyed for itself.
"""

from __future__ import annotations

KEY_SIZE = 16  # octets: 128 bits
_MASK = 0xFFFFFFFFFFFFFFFF


def siphash24(key: bytes, data: bytes) -> bytes:
    """The hash of the data as 8 octets, least significant first. Raises ValueError for a key not of KEY_SIZE."""
    if len(key) != KEY_SIZE:
        raise ValueError(f"a SipHash key has {KEY_SIZE} octets, not {len(key)}")
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    state = (
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    )
    padded = data + bytes(-(len(data) + 1) % 8) + bytes((len(data) & 0xFF,))
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 2)
        state = (v0 ^ word, v1, v2, v3)
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _rounds(v0, v1, v2 ^ 0xFF, v3, 4)
    return (v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little")


def _rounds(v0: int, v1: int, v2: int, v3: int, count: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13 | v1 >> 51) & _MASK) ^ v0
        v0 = (v0 << 32 | v0 >> 32) & _MASK
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16 | v3 >> 48) & _MASK) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21 | v3 >> 43) & _MASK) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17 | v1 >> 47) & _MASK) ^ v2
        v2 = (v2 << 32 | v2 >> 32) & _MASK
    return v0, v1, v2, v3
