"""The public registry's JSON, version 1: ``{"metadata": {...}, "data": [record, ...]}``, read and written.

One record has ``what where target{url,http_code} when who{name,name_native,acronym}
na_policy{orgtype,policy,tenure,policy_url} rtype``, and a shoulder ``naan`` and ``shoulder`` too. Names we do
not know are kept in ``Entry.extra`` and written back. Because it loses nothing it is also our own format:
an entry that the shape has no room for (several NMAs, or an NMA with an acronym of its own) gets one more
member, ``nmas``, a list of ``{where, target, acronym}``, which other readers pass over. Extra fields of
another format whose names mean something here go into the member ``more``.

Only what resolution needs (key and target) can make a record bad. A member that informs may have any type: what is not
text is kept in ``Entry.extra`` under the name of the object it stands in, and written back in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from maptr.errors import TableError
from maptr.registry import where as where_
from maptr.registry.json_text import Repeated, flaw, kept
from maptr.registry.records import OnBad, Records, shown
from maptr.registry.table import Entry, Nma, Policy, Table, Who

_RTYPE = {False: "PublicNAAN", True: "PublicNAANShoulder"}
_KNOWN = ("what", "naan", "shoulder", "where", "target", "when", "who", "na_policy", "nmas", "more")
_NEEDED = ("what", "naan", "shoulder", "target", "nmas")  # to resolve an ARK; and where, without a target
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
    target = record.get("target")
    where = () if _has_target(record) else ("where",)
    needed = {key: record[key] for key in (*_NEEDED, *where) if key in record}
    if isinstance(target, dict):
        needed["target"] = {"url": target.get("url")}  # the rest of it informs
    if reason := flaw(needed) or _given_twice(record, needed) or _given_twice(target, ("url",)):
        raise records.error(reason, record=name)
    naan, shoulder = _key(record, records, name)
    whole = record if flaw(record) is None else kept(record)  # a flaw in what only informs
    who, policy = (_part(whole, part) for part in ("who", "na_policy"))
    when = whole.get("when" if whole.get("when") is not None else "date_created")
    return Entry(
        naan,
        shoulder,
        nmas=_nmas(whole, records, name),
        who=Who(_text(who.get("name")) or "", _text(who.get("name_native")), _text(who.get("acronym"))),
        when=when if isinstance(when, str) else "",
        policy=Policy(*(_text(policy.get(key)) for key in _POLICY)),
        extra=_extra(whole, bool(shoulder)),
    )


def record(entry: Entry) -> dict[str, Any]:
    """One entry as the registry's record, its members in the registry's order."""
    extra = dict(_plain(entry.extra))
    first = entry.nmas[0] if entry.nmas else None
    how = (entry.policy.orgtype, entry.policy.policy, entry.policy.tenure, entry.policy.url)
    members: dict[str, Any] = {
        "where": first.where if first else None,
        "target": _target(first) if first else {},
        "when": entry.when,
        "who": {key: getattr(entry.who, key) for key in _WHO},
        "na_policy": dict(zip(_POLICY, how, strict=True)),
    }
    for part, known in _PARTS.items():
        value = extra.get(part)
        if isinstance(value, dict) and all(key not in known or _is_odd(part, key, item) for key, item in value.items()):
            members[part] |= extra.pop(part)
    in_place = {"when": not entry.when, "where": first is not None and first.target and not first.where}
    in_place |= {"who": entry.who == Who(""), "na_policy": entry.policy == Policy()}
    for member, empty in in_place.items():
        value = extra.get(member)
        text = isinstance(value, str) and member != "na_policy"
        if empty and value is not None and not text and not (isinstance(value, dict) and member in _PARTS):
            members[member] = extra.pop(member)
    members["target"] = members["target"] or None
    rtype = _RTYPE[bool(entry.shoulder)]
    more = {name: extra.pop(name) for name in list(extra) if name in _KNOWN or (name, extra[name]) == ("rtype", rtype)}
    rtype = extra.pop("rtype", rtype)
    if entry.shoulder:
        head: dict[str, Any] = {"shoulder": entry.shoulder, "naan": entry.naan, "what": entry.key}
        order = ("who", "where", "target", "when", "na_policy")
    else:
        head = {"what": entry.key}
        order = ("where", "target", "when", "who", "na_policy")
    found = head | {member: members[member] for member in order}
    if len(entry.nmas) > 1 or any(nma.acronym for nma in entry.nmas):
        found["nmas"] = [{"where": nma.where, "target": _target(nma), "acronym": nma.acronym} for nma in entry.nmas]
    return found | extra | {"rtype": rtype} | ({"more": more} if more else {})


def _given_twice(record: Any, needed: Iterable[str]) -> str | None:
    names = record.names.intersection(needed) if isinstance(record, Repeated) else ()
    return f"gives {min(names)!r} twice" if names else None


def _has_target(record: Mapping[str, Any]) -> bool:
    """True where the record says itself where to go, so that ``where`` only informs."""
    target = record.get("target")
    url = target.get("url") if isinstance(target, dict) else target
    return record.get("nmas") is None and isinstance(url, str) and bool(url)


def _part(record: Mapping[str, Any], part: str) -> dict[str, Any]:
    """An inner object, empty where there is none; a plain text for ``who`` is the name."""
    value = record.get(part)
    if isinstance(value, str) and part == "who":
        return {"name": value}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    """The text of a member that informs; a list of texts is one text, None stands for anything else."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else None


def _is_odd(part: str, key: str, value: Any) -> bool:
    """True for a member of an inner object that an Entry has no room for, by its type."""
    if (part, key) == ("target", "http_code"):
        return value is not None and not _is_redirect(value)
    return value is not None and not isinstance(value, str)


def _is_redirect(status: Any) -> bool:
    return type(status) is int and 300 <= status <= 399


def _extra(record: Mapping[str, Any], is_shoulder: bool) -> dict[str, Any]:
    """What an Entry has no other room for: members not known here, and known ones of another type than text."""
    kept = {key: value for key, value in record.items() if key not in _KNOWN}
    if kept.get("rtype") == _RTYPE[is_shoulder]:
        del kept["rtype"]  # the key says it already
    for part, known in _PARTS.items():
        value = record.get(part)
        if isinstance(value, dict):
            if rest := {key: item for key, item in value.items() if key not in known or _is_odd(part, key, item)}:
                kept[part] = rest
        elif value is not None and not (isinstance(value, str) and part != "na_policy"):
            kept[part] = value
    kept |= {key: record[key] for key in ("where", "when") if not isinstance(record.get(key), str | None)}
    more = record.get("more")
    return kept | (more if isinstance(more, dict) else {} if more is None else {"more": more})


def _key(record: dict[str, Any], records: Records, name: str) -> tuple[str, str]:
    what, naan, shoulder = (_needed_text(record, key, records, name) for key in ("what", "naan", "shoulder"))
    if what is None:
        if naan is None:
            raise records.error("no what: the record names no NAAN", record=name)
        what = f"{naan}/{shoulder}" if shoulder else naan
    found = records.key(what, name=name)
    if (naan or found[0]).lower() != found[0] or (shoulder or found[1]) != found[1]:
        raise records.error("what says otherwise than naan and shoulder", record=name)
    return found


def _needed_text(value: Mapping[str, Any], key: str, records: Records, name: str, part: str = "") -> str | None:
    """A member that must be text or null."""
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise records.error(f"{part}{key} is not text", record=name)
    return found


def _nmas(record: Mapping[str, Any], records: Records, name: str) -> tuple[Nma, ...]:
    listed = record.get("nmas")
    if listed is None:
        nma = _nma(record, records, name)
        return (nma,) if nma else ()
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise records.error("nmas is not a list of objects", record=name)
    return tuple(nma for item in listed if (nma := _nma(item, records, name)))


def _nma(record: Mapping[str, Any], records: Records, name: str) -> Nma | None:
    target = record.get("target")
    if not isinstance(target, dict | str | None):
        raise records.error("target is not an object", record=name)
    part = target if isinstance(target, dict) else {"url": target}
    url = _needed_text(part, "url", records, name, "target.")
    if isinstance(target, str) and url is not None:
        # The registry's earlier form, by its own schema: $arkpid the whole ARK, $pid NAAN/name.
        url = url.replace("$arkpid", "${pid}").replace("$pid", "${content}")
    said = record.get("where")
    where = (said if isinstance(said, str) else "") if url else _needed_text(record, "where", records, name) or ""
    known = where.strip() and not where.strip().startswith(where_.UNKNOWN)
    if not url and not known:
        return None
    status: Any = part.get("http_code")
    if not _is_redirect(status):
        status, _ = where_.split_status(where)
    acronym = record.get("acronym")
    return Nma(url or where_.to_target(where), where, status, acronym if isinstance(acronym, str) else "")


def _target(nma: Nma) -> dict[str, Any]:
    return {"url": nma.target, "http_code": nma.status}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
