"""The public registry's JSON, version 2, read into the same records as version 1.

It dates the file and its records with ``date_created`` and ``date_modified``, adds ``who.location``, and
comes with an ``index``. No published description fixes its shape, so this reader takes:

* records in ``data`` (or ``records``), as a list, or as an object from key to record;
* without those, records in ``index`` itself, if that holds objects;
* ``target`` as an object or as plain text; ``when``, or ``date_created`` in its place.

An ``index`` beside the records is a check on them. It lists keys, or lists of a key and a position as the registry's
does; a file with fewer records than its index has been cut, and is refused. Only readable: version 1 holds all of it.
"""

from __future__ import annotations

from typing import Any

from maptr.errors import TableError
from maptr.registry import json_v1
from maptr.registry.json_text import flaw
from maptr.registry.records import OnBad, Records, shown
from maptr.registry.table import Table, parse_key

_RECORDS = ("data", "records")


def looks_like(document: Any) -> bool:
    """True for a document that only version 2 explains."""
    if not isinstance(document, dict):
        return False
    data = document.get("data")
    return (
        any(name in document for name in ("index", "records", "date_created", "date_modified"))
        or isinstance(data, dict)
        or (
            isinstance(data, list)
            and bool(data)
            and isinstance(data[0], dict)
            and ("date_created" in data[0] or "date_modified" in data[0])
        )
    )


def read(document: Any, *, filename: str = "", on_bad: OnBad | None = None) -> Table:
    """A parsed JSON document to a table; TableError if it is not of this shape."""
    records = Records(filename, on_bad)
    if not isinstance(document, dict):
        raise records.error("not a registry: the document is no object", line=1)
    if type(document) is not dict:
        raise records.error("the document gives a name twice", line=1)
    source = next((name for name in (*_RECORDS, "index") if document.get(name) is not None), None)
    if source is None:
        raise records.error("not a registry: no records in data, records or index", line=1)
    metadata = {name: value for name, value in document.items() if name not in (source, "index", "metadata")}
    inner = document.get("metadata")
    if isinstance(inner, dict):
        metadata = inner | metadata
    if reason := flaw(metadata) or flaw(inner):
        raise records.error(f"metadata: {reason}", line=1)
    items = _items(document[source], source, records)
    for name, record in items:
        try:
            records.add(json_v1.entry(record, records, name))
        except TableError as error:
            records.refuse(error)
    table = records.table(metadata)
    if source != "index":
        _check_index(document.get("index"), len(items), table, records)
    return table


def _items(data: Any, source: str, records: Records) -> list[tuple[str, Any]]:
    if isinstance(data, list):
        return [(f"{source}[{position}]", record) for position, record in enumerate(data)]
    if not isinstance(data, dict):
        raise records.error(f"not a registry: {source} is neither list nor object", line=1)
    if type(data) is not dict:
        raise records.error(f"{source} gives a key twice", line=1)
    return [
        (shown(key), {"what": key} | record if isinstance(record, dict) and type(record) is dict else record)
        for key, record in data.items()
    ]


def _check_index(index: Any, count: int, table: Table, records: Records) -> None:
    """Records that the index lists and the file lacks: a cut file is refused as a whole, else each is a bad record."""
    if not isinstance(index, dict | list):
        return
    keys = [item[0] if isinstance(item, list) and item else item for item in index]
    try:
        listed = {"/".join(filter(None, parse_key(key))): None for key in keys if isinstance(key, str)}
    except ValueError:
        return  # an index by something else than keys says nothing about them
    missing = [key for key in listed if key not in table and key not in records.refused]
    if missing and count < len(listed):
        reason = f"cut short: {count} of the {len(listed)} records that its index lists, without {missing[0]}"
        raise records.error(f"not a registry: {reason}", line=1)
    for key in missing:
        records.bad("stands in the index and not among the records", record=key)
