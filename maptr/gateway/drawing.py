"""Drawings for the pages, as values that the templates render as SVG: the graph of a walk, and the map of drift."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from maptr.ark import Ark
from maptr.discovery import TABLE, Discovery, Outcome, Reading, Step
from maptr.naptr.record import Kind
from maptr.protocol import names
from maptr.reconcile.verdict import AGREES, Drift, Verdict

# The verdicts with their marks, worst first: a NAAN shows the worst of its records.
MARKS = {
    Verdict.DIFFERS: "≠",
    Verdict.UNPUBLISHED: "×",
    Verdict.MISSING: "−",
    Verdict.EXTRA: "+",
    Verdict.STALE: "…",
    Verdict.UNKNOWN: "?",
    Verdict.LOSSY: "≈",
    Verdict.SAME: "=",
}
RANKS = {verdict: rank for rank, verdict in enumerate(MARKS)}  # 0 is the worst

# ---- the walk

WIDTH = 360  # units of the drawing, about one CSS pixel on a phone
ROW, INDENT, LEFT, TOP = 46, 20, 14, 18
MAX_ROWS = 20  # of a drawing; a hostile zone may have 2,048 records
TEXT_WIDTH, REMARK_WIDTH = 7.9, 6.7  # units per character: monospaced at 13 units, proportional at 12


class Node(NamedTuple):
    """One row of the graph: a point at (x, y), the line to it from its parent row, and two texts.

    ``kind`` is ark, query, chosen, found, redirect (to a name already queried), skipped, failed or more. ``is_used``:
    it is on the path to the chosen mapping authority.
    """

    kind: str
    is_used: bool
    x: int
    y: int
    line: str
    text: str
    remark: str
    whole: str


class Graph(NamedTuple):
    nodes: tuple[Node, ...]
    height: int
    width: int = WIDTH


class _Row(NamedTuple):
    kind: str
    depth: int
    above: int  # the index of its parent row
    text: str
    remark: str


def walk(ark: Ark, found: Discovery, target: str = "") -> Graph:
    """Return the graph of a discovery, from the top down: the ARK, each query, each record, and where it leads.

    The chosen candidate is the one that yields the URL ``target``, else the first one.
    """
    rows = [_Row("ark", 0, 0, str(ark), "the ARK")]
    steps = {names.to_text(step.name): step for step in reversed(found.trace) if step.depth}
    best = [one for one in found if target and one.url(ark, scheme=found.scheme) == target] or found[:1]
    chosen = "".join(one.target or (one.host if one.port is None else f"{one.host}:{one.port}") for one in best[:1])
    seen: set[str] = set()

    def add(step: Step, depth: int, above: int, by: str = "") -> None:
        """Add a query and what it leads to. ``by`` is the rank of the record that led to the query."""
        seen.add(names.to_text(step.name))
        here = len(rows)
        text = "table of NAANs" if step.rdtype == TABLE else f"{names.to_text(step.name)} {step.rdtype}"
        rows.append(_Row("query" if step.outcome.answered else "failed", depth, above, text, _remark(step, by)))
        for reading in step.readings:
            for kind, place in _targets(reading, chosen):
                if kind == "redirect" and place in steps and place not in seen:
                    add(steps[place], depth + 1, here, _rank(reading))
                else:
                    rows.append(_Row(kind, depth + 1, here, place, _rank(reading)))
        for record in step.table_records:
            for place in record.leads_to:
                kind = "chosen" if place == chosen else "found"
                rows.append(_Row(kind, depth + 1, here, place, f"record {record.key}"))

    for step in found.trace:
        if step.depth == 0:
            add(step, 0, 0)
    if not found:
        ending = "no mapping authority" if found.complete else "not known"
        rows.append(_Row("failed", 0, 0, ending, found.reason or found.incomplete_reason()))
    if len(rows) > MAX_ROWS:
        left = len(rows) - MAX_ROWS + 1
        rows = [*rows[: MAX_ROWS - 1], _Row("more", 0, 0, f"and {left} more", "the list has them all")]
    used = {0}
    for number, row in enumerate(rows):
        while row.kind == "chosen" and number not in used:
            used.add(number)
            number = rows[number].above
    nodes = [_node(number, row, rows, number in used) for number, row in enumerate(rows)]
    return Graph(tuple(nodes), TOP + len(rows) * ROW - ROW // 2 + 8)


def _remark(step: Step, by: str) -> str:
    count = len(step.readings) + len(step.table_records)
    parts = [f"{count} record{'s' * (count != 1)}" if step.outcome is Outcome.ANSWER else step.outcome.value]
    parts += [f"{step.elapsed * 1000:.1f} ms"] if step.elapsed is not None else []
    parts += [step.security] if step.security != "indeterminate" else []
    return " · ".join([*parts, by] if by else parts)


def _rank(reading: Reading) -> str:
    if not reading.counted:
        return "".join(reading.reasons[-1:])
    naptr = reading.naptr
    flags = f", flag {naptr.flags.decode('ascii', 'replace')}" if naptr.flags else ""
    return f"order {naptr.order}, preference {naptr.preference}{flags}"


def _targets(reading: Reading, chosen: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of each place that a record leads to."""
    if not reading.counted:
        yield "skipped", "does not count"
        return
    for place in reading.leads_to:
        yield "redirect" if reading.kind is Kind.REDIRECT else "chosen" if place == chosen else "found", place


def _node(number: int, row: _Row, rows: Sequence[_Row], is_used: bool) -> Node:
    x, y = LEFT + row.depth * INDENT, TOP + number * ROW
    above = rows[row.above]
    from_x, from_y = LEFT + above.depth * INDENT, TOP + row.above * ROW
    if number == 0:
        line = ""
    elif x == from_x:
        line = f"M{x} {from_y}V{y}"
    else:
        line = f"M{from_x} {from_y}V{y - 9}q0 9 9 9H{x}"
    room = WIDTH - x - 14
    text = shorten(row.text, int(room / TEXT_WIDTH))
    return Node(
        row.kind, is_used, x, y, line, text, shorten(row.remark, int(room / REMARK_WIDTH)), f"{row.text}: {row.remark}"
    )


def shorten(text: str, room: int) -> str:
    """Return a text of at most ``room`` characters: a longer one loses its middle."""
    if len(text) <= room:
        return text
    tail = room // 3
    return f"{text[: room - tail - 1]}…{text[-tail:]}"


# ---- the map of drift

SQUARE, GAP = 10, 2  # units from one square to the next, and between them
MAX_COLUMNS, MIN_COLUMNS = 72, 24
MAX_LINKS = 60  # squares with a link and a name; if there are more, only the list below has these


class Square(NamedTuple):
    """A NAAN that deviates: its place on the map, its worst record, and its organisation."""

    x: int
    y: int
    worst: Drift
    name: str


class Map(NamedTuple):
    """One square for each NAAN. ``lines`` maps each verdict to the path of dashed lines that draws its squares."""

    columns: int
    rows: int
    lines: dict[Verdict, str]
    squares: tuple[Square, ...]


def worst_of(verdicts: Sequence[Drift]) -> dict[str, Drift]:
    """Return each NAAN's worst record."""
    worst: dict[str, Drift] = {}
    for one in verdicts:
        known = worst.get(one.naan)
        if known is None or RANKS[one.verdict] < RANKS[known.verdict]:
            worst[one.naan] = one
    return worst


def drift_map(worst: Mapping[str, Drift], name_of: Callable[[str], str]) -> Map:
    """Return the map. ``name_of`` gives the organisation of a record."""
    columns = min(MAX_COLUMNS, max(MIN_COLUMNS, math.ceil(math.sqrt(len(worst) * 2.8))))
    drifts = list(worst.values())
    lines: dict[Verdict, str] = {}
    squares: list[Square] = []
    for row, first in enumerate(range(0, len(drifts), columns)):
        x, y = 0, row * SQUARE
        for verdict, run in groupby(drifts[first : first + columns], key=attrgetter("verdict")):
            ones = list(run)
            lines[verdict] = f"{lines.get(verdict, '')}M{x} {y + SQUARE // 2}h{len(ones) * SQUARE - GAP}"
            if verdict not in AGREES:
                squares += [Square(x + number * SQUARE, y, one, name_of(one.record)) for number, one in enumerate(ones)]
            x += len(ones) * SQUARE
    rows = math.ceil(len(drifts) / columns)
    return Map(columns, rows, lines, tuple(squares) if len(squares) <= MAX_LINKS else ())
