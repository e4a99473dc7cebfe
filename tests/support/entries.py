"""Entries of a table for tests: usable ones, and those that no zone can hold."""

from __future__ import annotations

import json
from pathlib import Path

from maptr.registry.table import Entry, Nma, Table

MAIN = "https://main.nlm.nih.gov/ark:/${content}"
LONG = "https://x7.nlm.nih.gov/" + "x" * 230 + "/${content}"
PRIVATE = "http://10.0.0.1/${content}"
REDIRECTED = "https://x8.nlm.nih.gov/" + "x" * 208 + "/${content}"  # fits only where the NAAN need not be matched


def entry(key: str, *targets: str) -> Entry:
    naan, _, shoulder = key.partition("/")
    return Entry(naan, shoulder, tuple(Nma(target) for target in targets))


def tables(*more: Entry) -> Table:
    """A table of 12345 and more."""
    return Table([entry("12345", MAIN), *more])


def written(path: Path, table: Table) -> str:
    """The path of a registry file with the table."""
    data = [
        {"what": entry.key, "nmas": [{"target": {"url": nma.target, "http_code": nma.status}} for nma in entry.nmas]}
        for entry in table.values()
    ]
    path.write_text(json.dumps({"data": data}))
    return str(path)
