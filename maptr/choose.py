"""Choosers: functions that choose one of a Discovery's candidates.

They choose among the candidates of the lowest order. Those of higher orders are the fallback if the chosen one does
not answer. Any callable with the same signature is a chooser; ``nma.reachable`` has those that connect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from maptr.discovery import Candidate, Discovery

if TYPE_CHECKING:
    import random

Chooser = Callable[[Discovery], Candidate]

CHOOSERS = ("first", "random", "reachable", "own")
"""The names of choosers on the command line and in the configuration; ``reachable.named`` makes them."""


def first(discovery: Discovery) -> Candidate:
    """Return the best candidate, as ``Discovery.choose()`` does without a chooser."""
    return discovery[0]


def at_random(rng: random.Random) -> Chooser:
    """Return a chooser that takes a random candidate of the lowest order. The same seed gives the same choices.

    >>> import random
    >>> discover("ark:12345/x1", nameservers=[server], chooser=at_random(random.Random(7)))[0].host
    'ark.example.org'
    """

    def choose(discovery: Discovery) -> Candidate:
        return rng.choice(discovery.best)

    return choose


def weighted(rng: random.Random) -> Chooser:
    """Return a chooser that takes a random candidate of the lowest order with the weight 1 / (1 + preference).

    A lower preference is better, as in RFC 3403 section 4.1, but the others are chosen now and then.

    >>> import random
    >>> discover("ark:12345/x1", nameservers=[server], chooser=weighted(random.Random()))[0].preference
    0
    """

    def choose(discovery: Discovery) -> Candidate:
        best = discovery.best
        return rng.choices(best, [1 / (1 + candidate.preference) for candidate in best])[0]

    return choose


def sticky(discovery: Discovery) -> Candidate:
    """Return the same candidate for the same ARK on every client: the highest rendezvous hash of ARK and place.

    The order of the candidates does not matter, and if one disappears, only its own ARKs move to another. The hash
    covers the rule and not the URL, so that all spellings of an ARK have the same candidate.

    >>> discover("ark:12345/x6np1wh8k", nameservers=[server], chooser=sticky)[0].host
    'ark.example.org'
    """

    from hashlib import sha256  # slow to import, and only this chooser needs it

    def score(candidate: Candidate) -> bytes:
        place = f"{discovery.ark}\0{candidate.host.lower()}\0{candidate.port}\0{_rule(candidate)}"
        return sha256(place.encode()).digest()

    return max(discovery.best, key=score)


def _rule(candidate: Candidate) -> str:
    """Return the replacement of a candidate's regexp; empty for an ``h`` record."""
    parts = candidate.substitution.replacement if candidate.substitution is not None else ()
    return "".join(part.decode("latin-1") if isinstance(part, bytes) else f"\\{part}" for part in parts)
