"""The changes of the real registry."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any


def states(directory: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """The registry before its first change and after the changes at each moment: the time and the JSON."""
    document = json.loads(gzip.decompress((directory / "naan_records_2024-06-21.json.gz").read_bytes()))
    records = {record["what"]: record for record in document["data"]}
    yield 0.0, document
    lines = gzip.decompress((directory / "naan_updates.jsonl.gz").read_bytes()).splitlines()
    for when, events in itertools.groupby(map(json.loads, lines), key=lambda event: str(event["t"])):
        for event in events:
            if event["op"] == "remove":
                del records[event["what"]]
            else:
                records[event["what"]] = event["new"]
        yield datetime.datetime.fromisoformat(when).timestamp(), {**document, "data": list(records.values())}


def ever_touched(documents: Iterable[dict[str, Any]]) -> set[str]:
    """The NAANs with a record that was ever added, changed or removed."""
    found = [{record["what"]: record for record in document["data"]} for document in documents]
    return {
        what.partition("/")[0]
        for before, after in itertools.pairwise(found)
        for what in before.keys() | after.keys()
        if before.get(what) != after.get(what)
    }


def of_naans(document: dict[str, Any], naans: Collection[str]) -> dict[str, Any]:
    """The registry with only the records of these NAANs."""
    return {**document, "data": [record for record in document["data"] if record["what"].partition("/")[0] in naans]}
