"""Why a walk found what it found: each question with its outcome, its records and its chain of trust."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from maptr.naptr.record import Kind, Naptr
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.text import printable

# What is known of an answer's DNSSEC state (RFC 4033 5). Of several answers a discovery has the worst.
SECURITY = ("secure", "insecure", "indeterminate", "bogus")


class Outcome(enum.Enum):
    """How a question ended. For the first three DNS said; for the rest it did not, and the walk is incomplete."""

    ANSWER = "answer"
    NODATA = "no NAPTR records"
    NXDOMAIN = "no such name"
    SERVFAIL = "server failure"
    REFUSED = "refused"
    REFERRAL = "referred to other servers"
    TIMEOUT = "no answer in time"
    UNREACHABLE = "server unreachable"
    MALFORMED = "answer cannot be read"
    BOGUS = "answer fails DNSSEC validation"
    LIMIT = "a limit was reached"
    NO_ORIGIN = "the origin does not exist in this DNS"

    said: bool

    def __init__(self, text: str) -> None:
        self.said = text in ("answer", "no NAPTR records", "no such name")


class Reading(NamedTuple):
    """One record on the trace: what it was taken for, and why it counted or did not."""

    naptr: Naptr
    kind: Kind
    counted: bool
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One printable line: ``+`` where it counted, the record, and the reasons."""
        reasons = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return printable(f"{'+' if self.counted else '-'} {self.naptr}{reasons}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.naptr.to_text(),
            "kind": self.kind.value,
            "counted": self.counted,
            "reasons": list(self.reasons),
        }


class Link(NamedTuple):
    """One link of a chain of trust: the records of a name and type, and what validation made of them."""

    name: str
    rdtype: str
    security: str
    note: str = ""
    server: str = ""
    elapsed: float | None = None

    def __str__(self) -> str:
        """One printable line."""
        note = f" ({self.note})" if self.note else ""
        return printable(f"{self.name} {self.rdtype}: {self.security}{_where(self)}{note}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.rdtype,
            "security": self.security,
            "note": self.note,
            "server": self.server,
            "elapsed": self.elapsed,
        }


class Step(NamedTuple):
    """One question on the trace, asked or not; of type SOA where it was asked whether the origin exists. ``elapsed`` is
    in seconds; it, ``ttl`` and ``server`` are not compared.

    ``security`` is that of the answer. ``links`` are those of the chain of trust that were followed for it, where
    maptr validates by itself; what is known from questions before is not asked again, so they are not compared either.
    """

    name: Labels
    depth: int
    outcome: Outcome
    readings: tuple[Reading, ...] = ()
    note: str = ""
    ttl: int | None = None
    server: str = ""
    elapsed: float | None = None
    security: str = "indeterminate"
    links: tuple[Link, ...] = ()
    rdtype: str = "NAPTR"

    @property
    def ended(self) -> str:
        """The question and how it ended, in words."""
        outcome = f"no {self.rdtype} records" if self.outcome is Outcome.NODATA else self.outcome.value
        return f"{names.to_text(self.name)} {self.rdtype}: {outcome}"

    def __str__(self) -> str:
        """One printable line: the question, how it ended, who said so, and how long that took."""
        count = f", {len(self.readings)} records" if self.readings else ""
        security = f", {self.security}" if self.security != "indeterminate" else ""
        note = f" ({self.note})" if self.note else ""
        return printable(f"{self.ended}{count}{security}{_where(self)}{note}")

    def _compared(self) -> tuple[object, ...]:
        return *self[:5], self.security, self.rdtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": names.to_text(self.name),
            "type": self.rdtype,
            "depth": self.depth,
            "outcome": self.outcome.name.lower(),
            "note": self.note,
            "ttl": self.ttl,
            "server": self.server,
            "elapsed": self.elapsed,
            "records": [reading.to_dict() for reading in self.readings],
            "security": self.security,
            "chain": [link.to_dict() for link in self.links],
        }


def _where(asked: Step | Link) -> str:
    """Who said it, and how long that took."""
    took = f" in {asked.elapsed * 1000:.1f} ms" if asked.elapsed is not None else ""
    return (f" from {asked.server}" if asked.server else "") + took
