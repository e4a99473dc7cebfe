"""The registry's JSON: versions 1 and 2 are read, version 1 is written.

    {"metadata": {...}, "data": [record, ...]}

A record has ``what where target{url,http_code} when who{name,name_native,acronym}
na_policy{orgtype,policy,tenure,policy_url} rtype``; a shoulder's also has ``naan`` and ``shoulder``. Version 2 has no
published description. It adds dates (``date_created``, ``date_modified``), ``who.location`` and an ``index``. The
reader accepts records in ``data``, ``records`` or ``index``, as a list or as an object from key to record. An ``index``
beside the records lists keys, or pairs of a key and a position; a file with fewer records than its index was cut and is
refused.

Members without an attribute in Entry are kept in ``Entry.extra`` and written back. Nothing is lost, so this is also
maptr's own format: an entry that does not fit version 1 (several NMAs, or an NMA with its own acronym) is written with
an additional member, ``nmas``, a list of ``{where, target, acronym}``, which other readers ignore. Extra fields of
another format whose names have a meaning here are written into the member ``more``.

Any member except the key and the target may have any type: a value that is not text is kept in ``Entry.extra``, under
the name of its object, and written back, there or in ``more``. A record that is not I-JSON (RFC 7493) is bad: it has a
repeated name, a lone surrogate, or a number that JSON does not have.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, astuple
from types import NoneType
from typing import Any

from maptr.registry.table import (
    MAX_NMAS,
    Entry,
    NaanPolicy,
    Nma,
    Table,
    TableBuilder,
    Who,
    normal_key,
    parse_key,
    shown,
)
from maptr.registry.target import UNKNOWN, split_status, where_to_target

MAX_DEPTH = 16  # nested objects and lists; the registry's deepest record has 3
MAX_VALUES = 500_000  # values of one text, each some 100 bytes of memory; the real registry has 60,000

_RTYPE = {False: "PublicNAAN", True: "PublicNAANShoulder"}
_KNOWN = frozenset({"what", "naan", "shoulder", "where", "target", "when", "who", "na_policy", "nmas", "more"})
_WHO = ("name", "name_native", "acronym")
_POLICY = ("orgtype", "policy", "tenure", "policy_url")
_PARTS = {"who": frozenset(_WHO), "na_policy": frozenset(_POLICY), "target": frozenset({"url"})}
# The types of members whose values have an attribute in Entry.
_TYPES: dict[str, tuple[type, ...]] = {"where": (str, NoneType), "when": (str, NoneType), "na_policy": (dict, NoneType)}
_TYPES |= dict.fromkeys(("who", "target"), (dict, str, NoneType))
_SOURCES = ("data", "records", "index")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Repeated(dict[str, Any]):
    """An object in which a name occurs twice, so that one of the values is lost."""

    names: frozenset[str] = frozenset()


def _parse(text: str, builder: TableBuilder) -> Any:
    """Parse a JSON text. Raises TableError with the line if it is not valid.

    An object with repeated names becomes a ``Repeated``, so that the error can name the record.
    """
    builder.limit(text, ",[{", MAX_VALUES, "JSON values")  # including commas in strings
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        end = error.pos >= len(text.rstrip())
        line, reason = error.lineno, "the JSON text ends too early" if end else f"not JSON: {error.msg.lower()}"
    except RecursionError:
        line, reason = 1, "not a registry: JSON nested too deeply"
    except ValueError:  # the interpreter's limit on the digits of one number
        line, reason = 1, "not a registry: a number with too many digits"
    raise builder.error(reason, line=line)


def read(text: str, builder: TableBuilder) -> Table:
    """Read the table in a document of either version. Raises TableError if it is not a registry."""
    document = _parse(text, builder)
    members = document if isinstance(document, dict) else {}
    source = next((name for name in _SOURCES if members.get(name) is not None), "")
    if not isinstance(members.get(source), list | dict):
        raise builder.error(f"not a registry: no list of records in {', '.join(_SOURCES)}", line=1)
    for name, value in (("the document", document), (source, document[source])):
        if isinstance(value, Repeated):
            raise builder.error(f"{name} has the name {shown(min(value.names))!r} twice", line=1)
    inner = document.get("metadata")
    builder.metadata |= inner if isinstance(inner, dict) else {}
    builder.metadata |= {key: value for key, value in document.items() if key not in (source, "index", "metadata")}
    is_sound = flaw(document) is None
    if not is_sound and (reason := flaw(builder.metadata) or flaw(inner)):
        raise builder.error(f"metadata: {reason}", line=1)
    records = _records(document[source], source)
    for name, record in records:
        try:
            if not is_sound and (reason := flaw(record)):
                raise ValueError(reason)
            entry = read_record(record)
        except ValueError as error:
            what = record.get("what") if isinstance(record, dict) else None
            key = shown(what) if isinstance(what, str) and what else name
            builder.refuse(builder.error(str(error), record=key))
        else:
            builder.add(entry)
    if source != "index":
        _check_index(document.get("index"), len(records), builder)
    return builder.table()


def _records(data: Any, source: str) -> list[tuple[str, Any]]:
    """Return the records, each with its name in messages if it has no key."""
    if isinstance(data, list):
        return [(f"{source}[{position}]", record) for position, record in enumerate(data)]
    return [(shown(key), {"what": key} | record if type(record) is dict else record) for key, record in data.items()]


def _check_index(index: Any, count: int, builder: TableBuilder) -> None:
    """Compare the records with the index: a file that was cut is refused, any other missing record is a bad record."""
    if not isinstance(index, dict | list):
        return
    keys = [item[0] if isinstance(item, list) and item else item for item in index]
    listed = dict.fromkeys(normal_key(key) for key in keys if isinstance(key, str))
    if "" in listed:
        return  # the index does not list keys
    missing = [key for key in listed if key not in builder and key not in builder.refused]
    if missing and count < len(listed):
        reason = f"cut short: {count} of the {len(listed)} records that its index lists, without {missing[0]}"
        raise builder.error(f"not a registry: {reason}", line=1)
    for key in missing:
        builder.refuse(builder.error("in the index but not among the records", record=key))


def read_record(record: Any) -> Entry:
    """Read one record without a ``flaw``. Raises ValueError with the reason if it is bad."""
    if not isinstance(record, dict):
        raise ValueError("not an object")
    naan, shoulder = _key(record)
    who, policy = (_part(record, part) for part in ("who", "na_policy"))
    when = record.get("when" if record.get("when") is not None else "date_created")
    return Entry(
        naan,
        shoulder,
        nmas=_nmas(record),
        who=Who(_text(who.get("name")) or "", _text(who.get("name_native")), _text(who.get("acronym"))),
        when=_text(when) or "",
        policy=NaanPolicy(*(_text(policy.get(key)) for key in _POLICY)),
        extra=_extra(record, bool(shoulder)),
    )


def write(table: Table) -> str:
    """Write the table in the registry's layout. Reading the text gives equal entries."""
    document = {"metadata": dict(table.metadata), "data": [write_record(entry) for entry in table.values()]}
    return json.dumps(document, indent=2) + "\n"


def write_record(entry: Entry) -> dict[str, Any]:
    """Return the registry's record of an entry, with its members in the registry's order."""
    extra = dict(entry.extra)
    first = entry.nmas[0] if entry.nmas else None
    members: dict[str, Any] = {
        "where": first.where if first else None,
        "target": _target(first) if first else {},
        "when": entry.when,
        "who": asdict(entry.who),
        "na_policy": dict(zip(_POLICY, astuple(entry.policy), strict=True)),
    }
    for name in _PARTS:
        value = extra.get(name)
        if isinstance(value, dict) and _odd(name, value) == value:
            members[name] |= extra.pop(name)
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


def _part(record: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return an inner object, empty if there is none. A ``who`` that is text is the name."""
    value = record.get(part)
    if isinstance(value, str) and part == "who":
        return {"name": value}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    """Return the text of an informative member. A list of texts becomes one text, any other value None."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else None


def _odd(part: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an inner object that are unknown, or whose value has no attribute in Entry."""
    known = _PARTS[part]
    odd = {key: item for key, item in members.items() if key not in known or type(item) not in (str, NoneType)}
    if part == "target" and (members.get("http_code") is None or _is_redirect(members["http_code"])):
        odd.pop("http_code", None)
    return odd


def _is_redirect(status: Any) -> bool:
    return type(status) is int and 300 <= status <= 399


def _extra(record: Mapping[str, Any], is_shoulder: bool) -> dict[str, Any]:
    """Return the unknown members, and the known ones whose value has no attribute in Entry."""
    extra = {key: value for key, value in record.items() if key not in _KNOWN}
    if extra.get("rtype") == _RTYPE[is_shoulder]:
        del extra["rtype"]  # follows from the key
    for name, types in _TYPES.items():
        value = record.get(name)
        if not isinstance(value, types):
            extra[name] = value
        elif isinstance(value, dict) and (odd := _odd(name, value)):
            extra[name] = odd
    more = record.get("more")
    return extra | (more if isinstance(more, dict) else {} if more is None else {"more": more})


def _key(record: Mapping[str, Any]) -> tuple[str, str]:
    what, naan, shoulder = (_text_or_null(record, key) for key in ("what", "naan", "shoulder"))
    if what is None and naan is None:
        raise ValueError("no what: the record names no NAAN")
    found = parse_key(what if what is not None else f"{naan}/{shoulder}" if shoulder else naan or "")
    if (naan or found[0]).lower() != found[0] or (shoulder or found[1]) != found[1]:
        raise ValueError("what contradicts naan or shoulder")
    return found


def _text_or_null(value: Mapping[str, Any], key: str, part: str = "") -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{part}{key} is not text")
    return found


def _nmas(record: Mapping[str, Any]) -> tuple[Nma, ...]:
    listed = record.get("nmas")
    if listed is None:
        listed = [record]
    elif not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ValueError("nmas is not a list of objects")
    elif len(listed) > MAX_NMAS:
        raise ValueError(f"more than {MAX_NMAS} mapping authorities")
    return tuple(nma for item in listed if (nma := _nma(item)))


def _nma(record: Mapping[str, Any]) -> Nma | None:
    target = record.get("target")
    if not isinstance(target, dict | str | None):
        raise ValueError("target is not an object")
    part = target if isinstance(target, dict) else {"url": target}
    url = _text_or_null(part, "url", "target.")
    if isinstance(target, str) and url is not None:
        # The form of an earlier schema of the registry: $arkpid is the whole ARK, $pid is NAAN/name.
        url = url.replace("$arkpid", "${pid}").replace("$pid", "${content}")
    where = (_text(record.get("where")) if url else _text_or_null(record, "where")) or ""
    if not url and (not where.strip() or where.strip().startswith(UNKNOWN)):
        return None
    status: Any = part.get("http_code")
    if not _is_redirect(status):
        status, _ = split_status(where)
    return Nma(url or where_to_target(where), where, status, _text(record.get("acronym")) or "")


def _target(nma: Nma) -> dict[str, Any]:
    return {"url": nma.target, "http_code": nma.status}


def flaw(value: Any) -> str | None:
    """Return why a parsed value cannot be kept: nested too deeply, a repeated name, NaN, a lone surrogate."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        texts: list[str] = []
        for item in level:
            kind = type(item)
            if kind is str:
                texts.append(item)
            elif kind is dict:
                texts += item
                below += item.values()
            elif kind is list:
                below += item
            elif kind is Repeated:
                return f"the name {shown(min(item.names))!r} occurs twice"
            elif kind is float and not math.isfinite(item):
                return f"{json.dumps(item)} is not JSON (RFC 8259 6)"
        if _SURROGATE.search("".join(texts)):
            return "a lone surrogate (RFC 7493 2.1)"
        if not below:
            return None
        level = below
    return f"nested deeper than {MAX_DEPTH}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = Repeated(found)
    repeated.names = frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return repeated
