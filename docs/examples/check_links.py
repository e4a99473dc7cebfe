"""Check the ARKs in a column of a CSV file, without a network: where each leads, and the rows that need attention.

Run ``python check_links.py FILE.csv COLUMN > report.csv``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from maptr import Ark, Client, find_arks

Row = tuple[int, str, str, str]  # line, ARK, URL, problem


def arks(cells: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Ark | str]]:
    """Yield each ARK in each cell with its line, and cells without an ARK unchanged."""
    for line, cell in cells:
        found: list[Ark | str] = [*find_arks(cell)]
        yield from ((line, ark) for ark in found or [cell])


def check(cells: Iterable[tuple[int, str]]) -> Iterator[Row]:
    """Yield a row for each ARK of these cells."""
    with Client(table="builtin", policy="natab-only") as client:
        for line, found in client.discover_pairs(arks(cells)):
            if found.error is not None:
                yield line, "", "", str(found.error)
            elif not found:
                yield line, str(found.ark), "", "no organisation has this NAAN"
            else:
                yield line, str(found.ark), found.url(), ""


def main(path: str, column: str) -> int:
    with Path(path).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        report = csv.writer(sys.stdout)
        report.writerow(["line", "ark", "url", "problem"])
        report.writerows(check((reader.line_num, row[column] or "") for row in reader))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
