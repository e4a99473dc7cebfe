"""The prefixes file of the central resolver, as far as it is about ARKs.

    ark:/12345:
      type: "naan"
      name: "National Library of Examples"
      redirect: "https://ark.nlex.example/ark:$id"
      date: "2001.03.08"
      na_policy: "NP | NR, OP, CC | 2001 | https://nlex.example/policy"

A redirect is whole as it stands: nothing is appended to one without variables. ``name`` and ``na_policy`` have the
parts that ``who`` and ``how`` have in ANVL.

It is YAML; a registry needs only its flattest part, read here by hand: keys at the start of a line, one
level of indented ``key: value`` below, plain or quoted scalars, comments and ``---``. Anything beyond is
kept as text, and refused by line where it is the redirect. Prefixes of other schemes (``doi:``, ``hdl:``, ``ark:``
itself) are passed over.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from maptr.errors import TableError
from maptr.registry import anvl
from maptr.registry import where as where_
from maptr.registry.records import OnBad, Records, shown
from maptr.registry.table import Entry, Nma, Table

KEY = re.compile(r"(?P<quote>[\"']?)(?P<key>ark:/?[^\s\"'#]+?)(?P=quote)\s*:\s*(?:#.*)?\Z", re.IGNORECASE)
_OTHER = re.compile(r"(?P<quote>[\"']?)[^\s\"'#]+?(?P=quote)\s*:\s*(?:#.*)?\Z")
_FIELD = re.compile(r"\s+(?P<quote>[\"']?)(?P<name>[\w.-]+)(?P=quote)\s*:(?:\s+(?P<value>.*))?\Z")
_SKIP = re.compile(r"\s*(?:#.*)?\Z|---\s*(?:#.*)?\Z|\.\.\.\s*\Z")
_DOUBLE = re.compile(r"(\"(?:[^\"\\]|\\.)*\")\s*(?:#.*)?\Z")
_SINGLE = re.compile(r"'((?:[^']|'')*)'\s*(?:#.*)?\Z")
_NEEDED = ("", "redirect")  # what may stand above a line and cannot be kept as text
_NULL = ("", "~", "null", "Null", "NULL")


@dataclass(slots=True)
class _Prefix:
    line: int
    key: str
    fields: dict[str, str | None] = field(default_factory=dict)
    flaw: tuple[int, str] | None = None
    depth: int = 0  # the indentation of its fields
    last: str = ""  # the field above


def read(text: str, *, filename: str = "", on_bad: OnBad | None = None) -> Table:
    """The ARK prefixes of the file; TableError, by line, for what is not in the flat subset."""
    records = Records(filename, on_bad)
    prefix: _Prefix | None = None
    inside = False  # below any prefix, ours or one of another scheme, whose fields may look as they like
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        if _SKIP.match(line):
            continue
        if line[0].isspace():
            if prefix is not None and prefix.flaw is None:
                _take(prefix, number, line)
            elif not inside:
                records.bad(f"a field of no prefix: {shown(line.strip())}", line=number)
            continue
        _close(prefix, records)
        match = KEY.match(line)
        prefix = _Prefix(number, match["key"]) if match else None
        inside = True
        if match is None and not _OTHER.match(line):
            records.bad(f"neither prefix, field nor comment: {shown(line)}", line=number)
    _close(prefix, records)
    return records.table()


def scalar(text: str) -> str | None:
    """A YAML scalar of the flat subset, always text, None for null; ValueError for anything else."""
    if match := _DOUBLE.match(text):
        try:
            value = json.loads(match[1])  # the escapes that YAML and JSON share
            value.encode()
        except ValueError:
            raise ValueError("an escape that only full YAML knows") from None
        return str(value)
    if match := _SINGLE.match(text):
        return match[1].replace("''", "'")
    plain = re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    if plain in _NULL:
        return None
    if plain[0] in "\"'[]{}|>&*!%@`,?" or plain.startswith("- ") or ": " in plain or plain.endswith(":"):
        raise ValueError("more YAML than a flat value")
    return plain


def _take(prefix: _Prefix, number: int, line: str) -> None:
    """A line below a prefix: a field, or more of the value of the field above, which is kept as text."""
    match = _FIELD.match(line)
    depth = len(line) - len(line.lstrip())
    if match is None or depth > prefix.depth > 0:
        if prefix.last in _NEEDED:
            prefix.flaw = (number, f"not a field: {shown(line.strip())}")
        else:
            prefix.fields[prefix.last] = f"{prefix.fields[prefix.last] or ''} {line.strip()}".strip()
        return
    prefix.depth = depth
    name, text = match["name"], (match["value"] or "").strip()
    if name in prefix.fields and name in _NEEDED:
        prefix.flaw = (number, f"{name} is given twice")
        return
    prefix.last = name
    try:
        value = scalar(text)
    except ValueError as error:
        if name in _NEEDED:
            prefix.flaw = (number, f"{name}: {error}")
            return
        value = text
    prefix.fields[name] = value if name not in prefix.fields else f"{prefix.fields[name] or ''} {value or ''}".strip()


def _close(prefix: _Prefix | None, records: Records) -> None:
    if prefix is None:
        return
    try:
        naan, shoulder = records.key(prefix.key.rstrip("/"), line=prefix.line)
        key = f"{naan}/{shoulder}" if shoulder else naan
        if prefix.flaw is not None:
            raise records.error(prefix.flaw[1], line=prefix.flaw[0], record=key)
    except TableError as error:
        records.refuse(error)
        return
    fields = dict(prefix.fields)
    name, redirect, when, policy = (
        fields.pop(label, None) or "" for label in ("name", "redirect", "date", "na_policy")
    )
    nmas = (_nma(redirect),) if redirect and not redirect.startswith(where_.UNKNOWN) else ()
    who = anvl.read_who(name, decode=str)
    how = anvl.read_policy(policy, decode=str)
    records.add(Entry(naan, shoulder, nmas, who, when, how, extra=fields, line=prefix.line))


def _nma(redirect: str) -> Nma:
    status, _ = where_.split_status(redirect)
    return Nma(where_.expand(redirect), redirect, status)
