"""Which candidate to take: choosers, each a function from a Discovery that has candidates to one of them.

They choose among the candidates of the lowest order; higher orders are the fallback of whoever finds the chosen
one silent. Any callable of the same shape will do.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from maptr.discovery import Candidate, Discovery

Chooser: TypeAlias = "Callable[[Discovery], Candidate]"

CHOOSERS = ("first", "random", "reachable", "own")
"""The names that the command line and the configuration have for choosers; ``reachable.named`` makes them."""


def first(discovery: Discovery) -> Candidate:
    """The best-ranked candidate; what ``Discovery.choose()`` does by itself."""
    return discovery[0]


def at_random(rng: random.Random) -> Chooser:
    """Each candidate alike. The same seed gives the same choices."""

    def choose(discovery: Discovery) -> Candidate:
        return rng.choice(discovery.best)

    return choose


def weighted(rng: random.Random) -> Chooser:
    """At random, a low preference likelier: the weight of a candidate is 1 / (1 + preference)."""

    def choose(discovery: Discovery) -> Candidate:
        best = discovery.best
        return rng.choices(best, [1 / (1 + candidate.preference) for candidate in best])[0]

    return choose


def sticky(discovery: Discovery) -> Candidate:
    """The same candidate for the same ARK everywhere: the highest rendezvous hash of ARK and place.

    A cluster of clients agrees without talking, whatever way each found the candidates, and one that goes away moves
    only its own ARKs. Of the places that a rule makes, the rule counts, so that every spelling of an ARK goes to one.

    >>> discover("ark:12345/x6np1wh8k", nameservers=[server], chooser=sticky)[0].host
    'ark.example.org'
    """

    def score(candidate: Candidate) -> bytes:
        place = f"{discovery.ark}\0{candidate.host.lower()}\0{candidate.port}\0{_rule(candidate)}"
        return hashlib.sha256(place.encode()).digest()

    return max(discovery.best, key=score)


def _rule(candidate: Candidate) -> str:
    """What makes a candidate's URLs, apart from its host; empty for an ``h`` record."""
    parts = candidate.substitution.replacement if candidate.substitution is not None else ()
    return "".join(part.decode("latin-1") if isinstance(part, bytes) else f"\\{part}" for part in parts)
