"""Make 20,000 cells as found in catalogues, each with the ARK that was meant: most are clean, some are not.

Run ``python rows.py REGISTRY.json > rows.csv``.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

COUNT = 20_000
COMMON = ("12148", "67531", "13030", "13960", "81055", "61903", "53355")  # of half of the rows
LETTERS = "0123456789bcdfghjkmnpqrstvwxz"

FORMS = (  # in a thousand rows, and how the label, the ARK from its NAAN on, and the host make the cell
    (430, "https://n2t.net/ark:/{ark}"),
    (250, "https://{host}/ark:/{ark}"),
    (120, "ark:/{ark}"),
    (120, "ark:{ark}"),
    (20, "{host}/ark:/{ark}"),
    (12, "ARK:/{ark}"),
    (8, "https://n2t.net/ark:/{ark}?info"),
    (8, "https://n2t.net/ark:/{ark} "),
    (6, "https://n2t.net/ark:/{ark}."),
    (5, "<https://n2t.net/ark:/{ark}>"),
    (4, '"https://n2t.net/ark:/{ark}"'),
    (3, "(ark:/{ark})"),
    (3, "https://viewer.example.org/?ark=ark:/{ark}&page=3"),
    (3, "https://proxy.example.org/login?url={encoded}"),
    (2, "ark:/{ark}, consulted in 2024"),
    (2, "https://n2t.net/ark%3A/{ark}"),
    (2, "ark:/{hyphens}"),
    (1, "ark:/{dashes}"),
    (1, "[text](https://n2t.net/ark:/{ark})"),
)


def rows(naans: list[str], count: int = COUNT, seed: int = 1) -> Iterator[tuple[str, str]]:
    """Yield cells, and the ARK that each means."""
    rng = random.Random(seed)
    common = [naan for naan in COMMON if naan in naans]
    weights, forms = zip(*FORMS, strict=True)
    for _ in range(count):
        naan = rng.choice(common) if common and rng.random() < 0.5 else rng.choice(naans)
        name = "".join(rng.choices(LETTERS, k=rng.randint(5, 12))) + rng.choice(("", "", "", "/f1", "/f12.image"))
        ark, half = f"{naan}/{name}", 3
        cell = rng.choices(forms, weights)[0].format(
            ark=ark,
            host=rng.choice(("ark.example.org", "gallica.bnf.fr", "digital.library.unt.edu")),
            encoded=quote(f"https://n2t.net/ark:/{ark}", safe=""),
            hyphens=f"{naan}/{name[:half]}-{name[half:]}",
            dashes=f"{naan}/{name[:half]}\u2010{name[half:]}",
        )
        yield cell, f"ark:{ark}"


def read(path: Path) -> list[str]:
    """Return the NAANs of a file of the public registry that have a target, without shoulders."""
    records = json.loads(path.read_text("utf-8"))["data"]
    return [record["what"] for record in records if record.get("target") and "/" not in record["what"]]


if __name__ == "__main__":
    out = csv.writer(sys.stdout)
    out.writerow(["cell", "meant"])
    out.writerows(rows(read(Path(sys.argv[1]))))
