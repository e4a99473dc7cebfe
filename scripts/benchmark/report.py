"""The figures of a run as text, JSON and a chart: medians and spreads over the rounds, ratios to NSD."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape

BASE = "nsd"
COLOURS = {"maptr": "#c2410c", "nsd": "#475569", "bind": "#94a3b8", "knot": "#64748b", "powerdns": "#cbd5e1"}


@dataclass(frozen=True, slots=True)
class Round:
    """What one server did in one round of one load."""

    cpu_us: float  # a query answered
    rate: float  # queries a second
    lost: int
    p50_us: int
    p99_us: int


Rounds = Mapping[str, Mapping[str, Sequence[Round]]]  # load, server


def median(rounds: Sequence[Round], field: str) -> float:
    return float(statistics.median(getattr(one, field) for one in rounds))


def ratio(rounds: Mapping[str, Sequence[Round]], server: str) -> str:
    """The median of CPU against NSD's, with the lowest and highest of the single rounds."""
    if not rounds.get(BASE) or not rounds.get(server):
        return "-"
    each = [mine.cpu_us / its.cpu_us for mine, its in zip(rounds[server], rounds[BASE], strict=False) if its.cpu_us]
    return f"{statistics.median(each):.2f} [{min(each):.2f}-{max(each):.2f}]" if each else "-"


def table(results: Rounds) -> str:
    lines = []
    for load, servers in results.items():
        lines += [
            "",
            load,
            f"  {'':9} {'us CPU':>8}  {'x NSD, round by round':<22} {'queries/s':>10}"
            f" {'lost':>6} {'p50 us':>7} {'p99 us':>7}",
        ]
        for server, rounds in servers.items():
            if not rounds:
                lines.append(f"  {server:9} no figures: it does not answer this load")
                continue
            lines.append(
                f"  {server:9} {median(rounds, 'cpu_us'):8.2f}  {ratio(servers, server):<22}"
                f" {median(rounds, 'rate'):10.0f} {sum(one.lost for one in rounds):6}"
                f" {median(rounds, 'p50_us'):7.0f} {median(rounds, 'p99_us'):7.0f}"
            )
    return "\n".join(lines)


def as_json(machine: Mapping[str, str], results: Rounds, extra: Mapping[str, object]) -> str:
    rounds = {
        load: {server: [asdict(one) for one in each] for server, each in servers.items()}
        for load, servers in results.items()
    }
    return json.dumps({"schema": "maptr-bench/1", "machine": dict(machine), **extra, "rounds": rounds}, indent=1) + "\n"


def chart(results: Rounds) -> str:
    """An SVG of bars: CPU a query by load and server."""
    shown = [(load, servers) for load, servers in results.items() if any(servers.values())]
    longest = max(
        (median(rounds, "cpu_us") for _, servers in shown for rounds in servers.values() if rounds), default=1.0
    )
    longest = min(longest, 15.0)  # a bar beyond is cut, and says how long it would be
    y, parts = 40, []
    for load, servers in shown:
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(load)}</text>')
        for server, rounds in servers.items():
            if not rounds:
                continue
            value = median(rounds, "cpu_us")
            width = min(value, longest) / longest * 420
            y += 18
            parts.append(
                f'<text x="85" y="{y}" text-anchor="end">{escape(server)}</text>'
                f'<rect x="92" y="{y - 11}" width="{width:.0f}" height="13" fill="{COLOURS.get(server, "#e2e8f0")}"/>'
                f'<text x="{97 + width:.0f}" y="{y}">{value:.2f}</text>'
            )
        y += 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="600" height="{y}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="600" height="{y}" fill="#fff"/>\n'
        '<text x="10" y="18">Microseconds of CPU a query; shorter is better</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )
