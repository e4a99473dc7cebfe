"""The public registry's JSON, version 1: ``{"metadata": {...}, "data": [record, ...]}``, read and written.

One record has ``what where target{url,http_code} when who{name,name_native,acronym}
na_policy{orgtype,policy,tenure,policy_url} rtype``, and a shoulder ``naan`` and ``shoulder`` too. Names we do
not know are kept in ``Entry.extra`` and written back. Because it loses nothing it is also our own format:
an entry that the shape has no room for (several NMAs, or an NMA with an acronym of its own) gets one more
member, ``nmas``, a list of ``{where, target, acronym}``, which other readers pass over. Extra fields of
another format whose names mean something here go into the member ``more``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from maptr.errors import TableError
from maptr.registry import where as where_
from maptr.registry.json_text import flaw
from maptr.registry.records import OnBad, Records, shown
from maptr.table import Entry, Nma, Policy, Table, Who

_RTYPE = {False: "PublicNAAN", True: "PublicNAANShoulder"}
_KNOWN = ("what", "naan", "shoulder", "where", "target", "when", "who", "na_policy", "nmas", "more")
_WHO = ("name", "name_native", "acronym")
_POLICY = ("orgtype", "policy", "tenure", "policy_url")
_TARGET = ("url", "http_code")
_PARTS = {"who": _WHO, "na_policy": _POLICY, "target": _TARGET}


def read(document: Any, *, filename: str = "", on_bad: OnBad | None = None) -> Table:
    """A parsed JSON document to a table; TableError if it is not of this shape."""
    records = Records(filename, on_bad)
    metadata = document.get("metadata") if isinstance(document, dict) else None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list) or not isinstance(metadata, dict | None):
        raise records.error("not a registry: no list of records named data", line=1)
    if type(document) is not dict:
        raise records.error("the document gives a name twice", line=1)
    metadata = (metadata or {}) | {key: document[key] for key in document if key not in ("metadata", "data")}
    if reason := flaw(metadata):
        raise records.error(f"metadata: {reason}", line=1)
    for index, record in enumerate(data):
        try:
            records.add(entry(record, records, f"data[{index}]"))
        except TableError as error:
            records.refuse(error)
    return records.table(metadata)


def write(table: Table) -> str:
    """The table as JSON text in the registry's own layout; reading it gives the same entries back."""
    document = {"metadata": _plain(table.metadata), "data": [record(entry) for entry in table.values()]}
    return json.dumps(document, indent=2) + "\n"


def entry(record: Any, records: Records, name: str) -> Entry:
    """One record to an entry; TableError names it by its key, or by ``name`` where it has none."""
    if not isinstance(record, dict):
        raise records.error("not an object", record=name)
    what = record.get("what")
    if isinstance(what, str) and what:
        name = shown(what)
    if reason := flaw(record):
        raise records.error(reason, record=name)
    naan, shoulder = _key(record, records, name)
    fields = _Fields(record, records, name)
    who = fields.part("who", text="name")
    policy = fields.part("na_policy")
    kept = {key: value for key, value in record.items() if key not in _KNOWN}
    for part, known in _PARTS.items():
        value = record.get(part)
        if isinstance(value, dict) and (unknown := {k: v for k, v in value.items() if k not in known}):
            kept[part] = unknown
    if kept.get("rtype") == _RTYPE[bool(shoulder)]:
        del kept["rtype"]  # the key says it already
    more = record.get("more", {})
    if not isinstance(more, dict):
        raise records.error("more is not an object", record=name)
    return Entry(
        naan,
        shoulder,
        nmas=_nmas(record, records, name),
        who=Who(who.text("name") or "", who.text("name_native"), who.text("acronym")),
        when=fields.text("when" if record.get("when") is not None else "date_created") or "",
        policy=Policy(*(policy.text(key) for key in _POLICY)),
        extra=kept | more,
    )


def record(entry: Entry) -> dict[str, Any]:
    """One entry as the registry's record, its members in the registry's order."""
    extra = dict(_plain(entry.extra))
    inner = {part: extra.pop(part) if isinstance(extra.get(part), dict) else {} for part in _PARTS}
    rtype = _RTYPE[bool(entry.shoulder)]
    more = {name: extra.pop(name) for name in list(extra) if name in _KNOWN or (name, extra[name]) == ("rtype", rtype)}
    rtype = extra.pop("rtype", rtype)
    first = entry.nmas[0] if entry.nmas else None
    where: dict[str, Any] = {
        "where": first.where if first else None,
        "target": (_target(first) if first else {}) | inner["target"] or None,
    }
    when = {"when": entry.when}
    who = {"who": {key: getattr(entry.who, key) for key in _WHO} | inner["who"]}
    how = (entry.policy.orgtype, entry.policy.policy, entry.policy.tenure, entry.policy.url)
    policy = {"na_policy": dict(zip(_POLICY, how, strict=True)) | inner["na_policy"]}
    if entry.shoulder:
        head: dict[str, Any] = {"shoulder": entry.shoulder, "naan": entry.naan, "what": entry.key}
        found = head | who | where | when | policy
    else:
        found = {"what": entry.key} | where | when | who | policy
    if len(entry.nmas) > 1 or any(nma.acronym for nma in entry.nmas):
        found["nmas"] = [{"where": nma.where, "target": _target(nma), "acronym": nma.acronym} for nma in entry.nmas]
    return found | extra | {"rtype": rtype} | ({"more": more} if more else {})


class _Fields:
    """An object whose members must be text or null."""

    def __init__(self, value: Mapping[str, Any], records: Records, name: str, part: str = "") -> None:
        self._value, self._records, self._name, self._part = value, records, name, part

    def text(self, key: str) -> str | None:
        value = self._value.get(key)
        if value is not None and not isinstance(value, str):
            raise self._records.error(f"{self._part}{key} is not text", record=self._name)
        return value

    def part(self, key: str, *, text: str = "") -> _Fields:
        """An inner object; plain text stands for its member ``text`` where that is given, null for {}."""
        value = self._value.get(key)
        if text and isinstance(value, str):
            value = {text: value}
        if not isinstance(value, dict | None):
            raise self._records.error(f"{key} is not an object", record=self._name)
        return _Fields(value or {}, self._records, self._name, f"{key}.")


def _key(record: dict[str, Any], records: Records, name: str) -> tuple[str, str]:
    fields = _Fields(record, records, name)
    what, naan, shoulder = fields.text("what"), fields.text("naan"), fields.text("shoulder")
    if what is None:
        if naan is None:
            raise records.error("no what: the record names no NAAN", record=name)
        what = f"{naan}/{shoulder}" if shoulder else naan
    found = records.key(what, name=name)
    if (naan or found[0]).lower() != found[0] or (shoulder or found[1]) != found[1]:
        raise records.error("what says otherwise than naan and shoulder", record=name)
    return found


def _nmas(record: dict[str, Any], records: Records, name: str) -> tuple[Nma, ...]:
    listed = record.get("nmas")
    if listed is None:
        nma = _nma(record, records, name)
        return (nma,) if nma else ()
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise records.error("nmas is not a list of objects", record=name)
    return tuple(nma for item in listed if (nma := _nma(item, records, name)))


def _nma(record: dict[str, Any], records: Records, name: str) -> Nma | None:
    fields = _Fields(record, records, name)
    where = fields.text("where") or ""
    target = fields.part("target", text="url")
    url = target.text("url")
    if isinstance(record.get("target"), str) and url is not None:
        # The registry's earlier form, by its own schema: $arkpid the whole ARK, $pid NAAN/name.
        url = url.replace("$arkpid", "${pid}").replace("$pid", "${content}")
    known = where.strip() and not where.strip().startswith(where_.UNKNOWN)
    if not url and not known:
        return None
    status = record["target"].get("http_code") if isinstance(record.get("target"), dict) else None
    if status is None:
        status, _ = where_.split_status(where)
    if not isinstance(status, int) or not 300 <= status <= 399:
        raise records.error("target.http_code is no redirect (300 to 399)", record=name)
    acronym = fields.text("acronym") or ""
    return Nma(url or where_.to_target(where), where, status, acronym)


def _target(nma: Nma) -> dict[str, Any]:
    return {"url": nma.target, "http_code": nma.status}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
