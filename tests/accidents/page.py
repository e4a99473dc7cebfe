"""The table of docs/accidents.md, written from the outcomes that docs/accidents.json keeps."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from tests.accidents.all import ACCIDENTS
from tests.accidents.outcome import WITH_CATALOG, Accident, Outcome
from tests.support.peers import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, DATA = DOCS / "accidents.md", DOCS / "accidents.json"
NAMES = {
    "bind": "BIND",
    "nsd": "NSD",
    "knot": "Knot",
    "knot-journal": "Knot with `journal-content: all`",
    "knot-catalog": "Knot with a catalog",
    "powerdns": "PowerDNS",
}
VERSIONS = {
    "bind": ("named", "-v", r"BIND (\S+)"),
    "nsd": ("nsd", "-v", r"NSD version (\S+)"),
    "knot": ("knotd", "-V", r"version (\S+)"),
    "powerdns": ("pdns_server", "--version", r"Authoritative Server (\S+)"),
}
HEAD = "| accident | what maptr does | measured | others | run by |\n|---|---|---|---|---|"
TABLE = re.compile(r"(?<=<!-- outcomes -->\n).*?(?=<!-- end of outcomes -->)", re.DOTALL)


@dataclass(frozen=True)
class Results:
    """Outcomes by accident and server, and when and with which versions they were measured."""

    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    outcomes: Mapping[tuple[str, str], Outcome] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Self:
        if not DATA.exists():
            return cls()
        document = json.loads(DATA.read_text("utf-8"))
        found = map(Outcome.from_json, document["outcomes"])
        return cls(document["date"], document["versions"], {(each.accident, each.software): each for each in found})

    def with_outcomes(self, new: Iterable[Outcome]) -> Self:
        merged = {**self.outcomes, **{(each.accident, each.software): each for each in new}}
        ordered = {
            (name, software): merged[name, software]
            for name, each in ACCIDENTS.items()
            for software in each.software
            if (name, software) in merged
        }
        versions = {name: _version(*how) for name, how in VERSIONS.items()}
        return replace(self, date=time.strftime("%Y-%m-%d", time.gmtime()), versions=versions, outcomes=ordered)

    def save(self) -> None:
        outcomes = [each.to_json() for each in self.outcomes.values()]
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in outcomes)
        head = json.dumps({"date": self.date, "versions": self.versions})[:-1]
        beside = DATA.with_suffix(".new")
        beside.write_text(f'{head}, "outcomes": [\n{lines}\n]}}\n', "utf-8")
        beside.replace(DATA)


def _version(program: str, option: str, pattern: str) -> str:
    found = re.search(pattern, run(program, option).output)
    return found[1] if found else ""


def rendered(text: str, results: Results) -> str:
    """The page with the table for these results."""
    return TABLE.sub(lambda _: table(results), text)


def table(results: Results) -> str:
    versions = ", ".join(f"{NAMES[name]} {version}" for name, version in results.versions.items())
    lines = [f"Measured on {results.date} with {versions}.\n", *_summary(results)]
    for kind in dict.fromkeys(each.kind for each in ACCIDENTS.values()):
        lines += [
            f"\n### {kind[0].upper()}{kind[1:]}\n",
            HEAD,
        ]
        lines += [_row(each, results) for each in ACCIDENTS.values() if each.kind == kind]
    return "\n".join(lines) + "\n"


def _summary(results: Results) -> list[str]:
    lines = ["| server | accidents | no name is lost | and it says so |", "|---|---|---|---|"]
    for software, name in {"maptr": "maptr", **NAMES}.items():
        found = [each for each in results.outcomes.values() if each.software == software and not each.skipped]
        kept = [each for each in found if each.keeps]
        said = [each for each in kept if each.alarms or ACCIDENTS[each.accident].is_quiet]
        lines.append(f"| {name} | {len(found)} | {len(kept)} | {len(said)} |")
    return lines


def _row(accident: Accident, results: Results) -> str:
    own = results.outcomes.get((accident.name, "maptr"))
    cells = [
        f"{accident.title} (`{accident.name}`)",
        accident.does,
        own.text if own else "not tried",
        _others(accident, results),
        "each change" if accident.in_ci else "the script",
    ]
    return f"| {' | '.join(cells)} |"


def _others(accident: Accident, results: Results) -> str:
    """The other servers' outcomes, with equal ones grouped."""
    by_text: dict[str, list[str]] = {}
    for name in WITH_CATALOG:
        if (found := results.outcomes.get((accident.name, name))) is not None:
            by_text.setdefault(found.text, []).append(NAMES[name])
    own = results.outcomes.get((accident.name, "maptr"))
    parts = []
    for text, names in by_text.items():
        is_better = own is not None and not own.keeps and text.startswith("kept")
        parts.append(f"{', '.join(names)}: {text}{', **better**' if is_better else ''}")
    if accident.note and parts:
        parts.append(accident.note)
    return "; ".join(parts)
