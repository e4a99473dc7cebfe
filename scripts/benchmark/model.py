"""A model of ark.arpa at scale: the queries that reach its servers through caches, and the costs of a zone of any size.

A cache's queries for one name are a Poisson process, and the names have a Zipf distribution. ``scripts/bench scale``
measures the costs of a name; all costs are proportional to the names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

DAY = 86_400
MONTH = 30 * DAY


class Traffic(NamedTuple):
    """The worldwide look-ups of ARKs."""

    name: str
    naans: int
    lookups: float  # a second


# Requests for ARKs at n2t.net: github.com/CDLUC3/ezid/issues/481 (2023-10-11, "3-4 million requests on ARKs each
# month"). Organisations: events.geant.org/event/1457/contributions/1579 (2023-11, "over 1100"). DOIs: doi.org, "Key
# facts" ("approximately 1 billion DOI resolutions per month"). The factor 10 is an assumption: most ARKs are published
# at a local resolver and do not pass n2t.net (arks.org/naan/stats).
N2T = 3.5e6 / MONTH
TRAFFIC = (
    Traffic("n2t.net, 2023", 1_100, N2T),
    Traffic("as much as DOIs", 1_000_000, 1e9 / MONTH),
    Traffic("as much for each NAAN as at n2t.net", 1_000_000, N2T / 1_100 * 1_000_000),
    Traffic("ten times that", 1_000_000, 10 * N2T / 1_100 * 1_000_000),
)
CACHES = (1_000, 100_000)  # recursive servers with an equal share each, which is the worst case for caching
TTLS = (3_600, DAY)
PEAK = 3  # the busiest minute as a multiple of the mean; an assumption
CHANGED = 0.001  # the fraction of the NAANs that change in a day; an assumption


def shares(naans: int, exponent: float = 1.0) -> Iterator[tuple[int, float]]:
    """Return groups of names adjacent in rank: their number, and the share of lookups of each name (Zipf)."""
    edges = [1]
    while edges[-1] <= naans:
        edges.append(min(edges[-1] + max(1, edges[-1] // 64), naans + 1))
    groups = [(end - start, ((start + end - 1) / 2) ** -exponent) for start, end in pairwise(edges)]
    total = sum(count * weight for count, weight in groups)
    return ((count, weight / total) for count, weight in groups)


def misses(traffic: Traffic, ttl: float, caches: int) -> float:
    """Return the queries a second that reach the servers: for each name and cache, one per TTL plus the mean time to
    the next lookup, r / (1 + r * TTL)."""
    rates = ((count, traffic.lookups * share / caches) for count, share in shares(traffic.naans))
    return caches * sum(count * rate / (1 + rate * ttl) for count, rate in rates)


def cached(traffic: Traffic, ttl: float, caches: int) -> float:
    """Return the number of names that a cache holds at a time."""
    rates = ((count, traffic.lookups * share / caches) for count, share in shares(traffic.naans))
    return sum(count * rate * ttl / (1 + rate * ttl) for count, rate in rates)


def scaled(cost: float, names: int, wanted: int) -> float:
    """Scale a cost in proportion to the names."""
    return cost * wanted / names


def seconds_to_send(size: float, megabits: float = 100) -> float:
    """Return the time that a transfer takes on a line."""
    return size * 8 / (megabits * 1e6)


def cores(queries: float, cpu_us: float) -> float:
    """Return the number of processor cores that a server needs in the busiest minute."""
    return queries * PEAK * cpu_us / 1e6


def table(cpu_us: float) -> Iterator[str]:
    """Write the traffic through caches as text. ``cpu_us`` is the CPU time of a query in microseconds."""
    heads = f"{'a day':>14} {'caches':>8} {'TTL s':>7} {'hits':>7} {'queries/s':>10} {'cores':>6} {'held':>7}"
    yield f"{'lookups':36} {heads}"
    for traffic in TRAFFIC:
        for caches in CACHES:
            for ttl in TTLS:
                reached = misses(traffic, ttl, caches)
                hits = 1 - reached / traffic.lookups
                yield (
                    f"{traffic.name:36} {traffic.lookups * DAY:14,.0f} {caches:8,} {ttl:7,} {hits:7.1%}"
                    f" {reached:10,.1f} {cores(reached, cpu_us):6.3f} {cached(traffic, ttl, caches):7,.0f}"
                )
