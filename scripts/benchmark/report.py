"""The figures of the loads as text: medians over the rounds, and ratios of CPU per query with their budgets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scripts.benchmark.loads import Load


class Round(NamedTuple):
    """The figures of one server in one round of one load."""

    cpu_us: float  # per answered query
    rate: float  # queries a second
    lost: int
    p50_us: int
    p99_us: int


Rounds = Mapping[str, Sequence[Round]]  # by server


def ratio(ours: Sequence[Round], base: Sequence[Round]) -> str:
    """Return the median ratio of CPU per query over the rounds, with the lowest and the highest."""
    each = [one.cpu_us / other.cpu_us for one, other in zip(ours, base, strict=False) if other.cpu_us]
    return f"{statistics.median(each):.2f} [{min(each):.2f}-{max(each):.2f}]" if each else "-"


def table(load: Load, rounds: Rounds) -> Iterator[str]:
    """Yield the lines about one load."""
    yield f"{load.name} (maptr: at most {load.budget} x {load.base})"
    yield f"  {'':9} {'us CPU':>8}  {f'x {load.base}':22} {'queries/s':>10} {'lost':>6} {'p50 us':>7} {'p99 us':>7}"
    for server, each in rounds.items():
        if not each:
            yield f"  {server:9} no figures: it does not answer this load"
            continue
        cpu, rate, _, p50, p99 = map(statistics.median, zip(*each, strict=True))
        lost = sum(one.lost for one in each)
        compared = ratio(each, rounds.get(load.base, ()))
        yield f"  {server:9} {cpu:8.2f}  {compared:22} {rate:10.0f} {lost:6} {p50:7.0f} {p99:7.0f}"
