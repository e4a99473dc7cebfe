"""ARKs as a column of a pandas frame: spellings of one ARK are one value, and each gets the URL it leads to."""

from __future__ import annotations

import pandas as pd

from maptr import Ark, Client

CELLS = [
    "https://n2t.net/ark:/12148/btv1b8449691v",
    "ark:12148/btv1b-8449691v",
    "ark:/13960/t4wh3b18q",
    "https://gallica.bnf.fr/ark:/12148/bpt6k1521331x/f7.item",
]


def resolved(cells: list[str]) -> pd.DataFrame:
    """Return a frame with the ARK of each cell, its organisation's NAAN, and its URL."""
    frame = pd.DataFrame({"ark": [Ark.parse(cell) for cell in cells]})
    frame["naan"] = [ark.naan for ark in frame["ark"]]
    with Client(table="builtin", policy="natab-only") as client:
        frame["url"] = [found.url() for found in client.discover_many(frame["ark"])]
    return frame


if __name__ == "__main__":
    resolved_cells = resolved(CELLS)
    print(resolved_cells["ark"].nunique(), "ARKs in", len(resolved_cells), "cells")
    print(resolved_cells.drop_duplicates("ark").groupby("naan").size().to_dict())
    print(resolved_cells.sort_values("ark")["url"].iloc[0])
