"""The timeline of a soak as one SVG file: what each server served, what happened to it, and what clients got."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from itertools import groupby, pairwise
from pathlib import Path

from tests.support.soak.truth import Verdict

WIDTH, LEFT, RIGHT, TOP, ROW = 1400, 96, 16, 92, 46
COLOURS = {
    "current": "#2e7d4f",
    "behind": "#e0a100",
    "none": "#b8bcc4",
    Verdict.RIGHT: "#2e7d4f",
    Verdict.STALE: "#e0a100",
    Verdict.SILENT: "#8a8f99",
    Verdict.WRONG: "#c62828",
}
FAULT = "#c62828"
MARK = "#2456a6"
LEGEND = (
    (COLOURS["current"], "current version, right"),
    (COLOURS["behind"], "older version, honestly stale"),
    (COLOURS["none"], "does not answer"),
    (FAULT, "fault, or wrong"),
    (MARK, "keys, signatures"),
)


@dataclass(frozen=True, slots=True)
class Event:
    """A fault or a mark of a row, from ``start`` to ``end`` in seconds of the soak."""

    row: str
    text: str
    start: float
    end: float
    is_fault: bool = True


@dataclass
class Timeline:
    """Collects what happened. ``now`` is the time of the soak in seconds."""

    servers: tuple[str, ...]
    clients: tuple[str, ...]
    started: float = field(default_factory=time.monotonic)
    served: dict[str, list[tuple[float, int | None, int, int | None]]] = field(default_factory=dict)
    rounds: list[tuple[float, str, Counter[Verdict]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    days: list[tuple[float, float]] = field(default_factory=list)

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    def saw(self, server: str, version: int | None, current: int, serial: int | None) -> None:
        """Record that a server has a version while another is current."""
        self.served.setdefault(server, []).append((self.now, version, current, serial))

    def svg(self, title: str) -> str:
        rows = (*self.servers, *self.clients)
        end = max(self.now, 1.0)
        height = TOP + ROW * len(rows) + 40
        top = {name: TOP + ROW * number for number, name in enumerate(rows)}

        def x(at: float) -> float:
            return LEFT + (WIDTH - LEFT - RIGHT) * at / end

        def box(start: float, to: float, y: float, tall: float, colour: str, tip: str) -> str:
            shape = f'<rect x="{x(start):.1f}" y="{y:.1f}" width="{max(x(to) - x(start), 1.5):.1f}" height="{tall:.1f}"'
            return f'{shape} fill="{colour}"><title>{escape(tip)}</title></rect>'

        def text(at: float, y: float, said: str, more: str = "") -> str:
            return f'<text x="{at:.1f}" y="{y:.1f}" {more}>{escape(said)}</text>'

        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
            f' font-size="11" fill="#222"><rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            text(LEFT, 22, title, 'font-size="16"'),
        ]
        for number, (colour, said) in enumerate(LEGEND):
            at = LEFT + 200 * number
            parts.append(f'<rect x="{at}" y="34" width="12" height="12" fill="{colour}"/>{text(at + 17, 44, said)}')
        for name in rows:
            parts.append(text(LEFT - 8, top[name] + 20, name, 'text-anchor="end" font-size="12"'))
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top[name] - 5}" y2="{top[name] - 5}" stroke="#e4e6ea"/>'
            )
        for number in range(11):
            moment = end * number / 10
            day = next((days for since, days in reversed(self.days) if since <= moment), 0.0)
            parts.append(
                text(x(moment), TOP - 14, f"{moment:.0f} s, day {day:.0f}", 'text-anchor="middle" fill="#667"')
            )
        for server, seen in self.served.items():
            last = (end, None, -1, None)
            spans = [(one, following[0]) for one, following in pairwise([*seen, last])]
            before: tuple[int | None, int | None] = -1, None
            for (version, serial, colour), group in groupby(
                spans, lambda span: (span[0][1], span[0][3], _colour(span[0][1], span[0][2]))
            ):
                found = list(group)
                signed_again = (version, server) == (before[0], self.servers[0]) and serial != before[1]
                before = version, serial
                start, to = found[0][0][0], found[-1][1]
                said = (
                    "no answer" if version is None else f"version {version}" + (f", serial {serial}" if serial else "")
                )
                parts.append(box(start, to, top[server], 14, colour, f"{server}: {said}, from {start:.1f} s"))
                if signed_again:
                    parts.append(box(start, start, top[server] - 4, 22, MARK, f"signed again, serial {serial}"))
                if version is not None and x(to) - x(start) > 9 + 6 * len(str(version)):
                    parts.append(text(x(start) + 2, top[server] + 11, str(version), 'fill="#fff" font-size="9"'))
        for event in self.events:
            colour, y = (FAULT, 17.0) if event.is_fault else (MARK, 29.0)
            parts.append(
                box(event.start, event.end, top[event.row] + y, 5, colour, f"{event.text}, at {event.start:.1f} s")
            )
            parts.append(
                text(x(event.start), top[event.row] + y + (14 if event.is_fault else 11), event.text, _small(colour))
            )
        for when, client, verdicts in self.rounds:
            y = top[client] + 32.0
            for verdict in Verdict:
                if count := verdicts[verdict]:
                    tall = 32.0 * count / verdicts.total()
                    y -= tall
                    parts.append(
                        box(
                            when, when, y, tall, COLOURS[verdict], f"{client}: {count} {verdict.value}, at {when:.1f} s"
                        )
                    )
        return "\n".join((*parts, "</svg>\n"))

    def write(self, path: Path, title: str) -> None:
        path.write_text(self.svg(title), encoding="utf-8")


def _colour(version: int | None, current: int) -> str:
    return COLOURS["none" if version is None else "current" if version == current else "behind"]


def _small(colour: str) -> str:
    return f'font-size="8" fill="{colour}"'
