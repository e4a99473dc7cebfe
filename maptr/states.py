"""The states of DNS and of the table for an ARK, from which a policy chooses the source that answers."""

from __future__ import annotations

import enum
from typing import NamedTuple


class State(enum.Enum):
    """An enumeration whose members are fast keys: they are hashed by identity, not by their name."""

    __hash__ = object.__hash__


class Dns(State):
    """The state of DNS for an ARK, by a cached answer or by a query.

    It is UNKNOWN if DNS was silent, failed or refused, or if the origin does not exist in it: the trace says which.
    """

    ANSWERS = "answers"
    NONE = "says none"
    KEPT = "does not say, an older answer is kept"
    UNKNOWN = "does not say"
    BOGUS = "bogus"
    UNASKED = "not asked"


class Natab(State):
    """The state of the table for an ARK.

    A *stale* table is older than allowed. A *broken* one cannot be read, and its last good state is used. An *unusable*
    record has no mapping authority that a client can use, so it denies its ARKs. An *unclear* one neither denies nor
    answers: it cannot be read, the URL of the ARK would be too long, or it is unusable in a stale or broken table.
    """

    HAS = "has it"
    HAS_NOT = "has not"
    MISSING = "missing"
    STALE_HAS = "stale, has it"
    STALE_HAS_NOT = "stale, has not"
    BROKEN_HAS = "broken, had it"
    BROKEN_HAS_NOT = "broken, had not"
    UNUSABLE = "has it, unusable"
    UNCLEAR = "has it, unclear"
    UNASKED = "not asked"

    @property
    def has(self) -> bool:
        return self in (Natab.HAS, Natab.STALE_HAS, Natab.BROKEN_HAS)


class States(NamedTuple):
    """The states of DNS and of the table for which a source was taken."""

    dns: Dns
    table: Natab
