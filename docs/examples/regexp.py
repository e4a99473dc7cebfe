"""Look up ARKs with a regular expression and the registry as a JSON file, as many programs do. Some rows are wrong:
compare ``check_links.py``.

Run ``python regexp.py REGISTRY.json < cells``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PATTERN = re.compile(r"ark:/?(\w+)/(\S+)", re.IGNORECASE)


def read(path: Path) -> dict[str, str]:
    """Return the target of each NAAN, from the public registry's file."""
    records: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["data"]
    return {record["what"]: record["target"]["url"] for record in records if record.get("target")}


def url(targets: dict[str, str], cell: str) -> str | None:
    """Return where a cell's ARK leads, or None."""
    match = PATTERN.search(cell)
    if match is None or match[1] not in targets:
        return None
    naan, name = match[1], match[2].rstrip('.,;:)>"')
    made = targets[naan].replace("${content}", f"{naan}/{name}").replace("${value}", name)
    return made.replace("${pid}", f"ark:{naan}/{name}").replace("${prefix}", naan)


if __name__ == "__main__":
    table = read(Path(sys.argv[1]))
    for line in sys.stdin:
        print(url(table, line.strip()) or "-")
