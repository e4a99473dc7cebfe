"""What the daemon counts of its queries: cheap enough to be on the path of every one."""

from __future__ import annotations

from collections.abc import Mapping

from maptr.answer import Transport

# RFC 1035 4.1.1 and RFC 2136 2.2; the others have no name here. BADVERS has a 0 in the header and counts as NOERROR.
RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
SILENCE = 16  # beyond the four bits of the header: no reply was made
_NAMES = {**{code: f"RCODE{code}" for code in range(SILENCE)}, **RCODES, SILENCE: "dropped"}


class Counters:
    """Queries by transport and by the RCODE in the header of their reply."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = {transport: [0] * (SILENCE + 1) for transport in Transport}

    def count(self, transport: Transport, reply: bytes | None) -> None:
        self._counts[transport][SILENCE if reply is None else reply[3] & 0xF] += 1

    def count_codes(self, transport: Transport, codes: Mapping[int, int]) -> None:
        """Count many at once, by RCODE or SILENCE."""
        counts = self._counts[transport]
        for code, number in codes.items():
            counts[code] += number

    def add(self, other: Counters) -> None:
        """Take over what another counted, of another worker say."""
        for transport, counts in other._counts.items():
            self._counts[transport] = [a + b for a, b in zip(self._counts[transport], counts, strict=True)]

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Queries by transport and result, those that came to nothing left out."""
        return {
            transport.value: {_NAMES[code]: count for code, count in enumerate(counts) if count}
            for transport, counts in self._counts.items()
            if any(counts)
        }
