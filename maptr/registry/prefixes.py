"""The prefixes file of the central resolver, of which only ARK prefixes are read.

    ark:/12345:
      type: "naan"
      name: "National Library of Examples"
      redirect: "https://ark.nlex.example/ark:$id"
      date: "2001.03.08"
      na_policy: "NP | NR, OP, CC | 2001 | https://nlex.example/policy"

A redirect is complete: nothing is appended to one without variables. ``name`` and ``na_policy`` have the same parts as
``who`` and ``how`` in ANVL.

The file is YAML, of which this reader supports a flat subset: keys at the start of a line, one level of indented
``key: value`` below, plain or quoted scalars, comments and ``---``. Any other value is kept as text, but makes the
record bad if it is the redirect. Prefixes of other schemes (``doi:``, ``hdl:``, ``ark:`` itself) are ignored.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import NamedTuple

from maptr.registry import anvl
from maptr.registry.table import Entry, Nma, OnBad, Table, TableBuilder, numbered, shown
from maptr.registry.target import UNKNOWN, redirect_to_target, split_status

KEY = re.compile(r"(?P<quote>[\"']?)(?P<key>ark:/?[^\s\"'#]+?)(?P=quote)\s*:\s*(?:#.*)?\Z", re.IGNORECASE)
_OTHER = re.compile(r"(?P<quote>[\"']?)[^\s\"'#]+?(?P=quote)\s*:\s*(?:#.*)?\Z")
_FIELD = re.compile(r"\s+(?P<quote>[\"']?)(?P<name>[\w.-]+)(?P=quote)\s*:(?:\s+(?P<value>.*))?\Z")
_SKIP = re.compile(r"\s*(?:#.*)?\Z|---\s*(?:#.*)?\Z|\.\.\.\s*\Z")
_DOUBLE = re.compile(r"(\"(?:[^\"\\]|\\.)*\")\s*(?:#.*)?\Z")
_SINGLE = re.compile(r"'((?:[^']|'')*)'\s*(?:#.*)?\Z")
_NEEDED = ("", "redirect")  # fields whose value cannot be kept as text
_NULL = ("", "~", "null", "Null", "NULL")


class _Prefix(NamedTuple):
    """A prefix: its key ("" if it is of another scheme), and the lines below it."""

    line: int
    key: str
    lines: list[tuple[int, str]]


def read(text: str, *, filename: str = "", on_bad: OnBad | None = None) -> Table:
    """Read the ARK prefixes of the file. Text outside the flat subset is reported by line."""
    builder = TableBuilder(filename, on_bad)
    prefix: _Prefix | None = None
    for number, line in numbered(text):
        if _SKIP.match(line):
            continue
        if not line[0].isspace():
            _close(prefix, builder)
            match = KEY.match(line)
            prefix = _Prefix(number, match["key"] if match else "", [])
            if match is None and not _OTHER.match(line):
                builder.refuse(builder.error(f"neither prefix, field nor comment: {shown(line)}", line=number))
        elif prefix is None:
            builder.refuse(builder.error(f"a field without a prefix: {shown(line.strip())}", line=number))
        else:
            prefix.lines.append((number, line))
    _close(prefix, builder)
    return builder.table()


def scalar(text: str) -> str | None:
    """Read a YAML scalar of the flat subset as text, or None for null. Raises ValueError for anything else."""
    if match := _DOUBLE.match(text):
        try:
            value = json.loads(match[1])  # the escapes that YAML and JSON share
            value.encode()
        except ValueError:
            raise ValueError("an escape that only full YAML has") from None
        return str(value)
    if match := _SINGLE.match(text):
        return match[1].replace("''", "'")
    plain = re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    if plain in _NULL:
        return None
    if plain[0] in "\"'[]{}|>&*!%@`,?" or plain.startswith("- ") or ": " in plain or plain.endswith(":"):
        raise ValueError("not a flat YAML value")
    return plain


def _close(prefix: _Prefix | None, builder: TableBuilder) -> None:
    if prefix is not None and prefix.key:
        builder.take(_entry, prefix)


def _entry(prefix: _Prefix, builder: TableBuilder) -> Entry:
    naan, shoulder = builder.key(prefix.key.rstrip("/"), line=prefix.line)
    entry = Entry(naan, shoulder, line=prefix.line)
    fields: dict[str, str | None] = {}
    depth, last = 0, ""  # the indentation of the fields, and the name of the field above
    for number, line in prefix.lines:
        try:
            depth, last = _field(line, fields, depth, last)
        except ValueError as error:
            raise builder.error(str(error), line=number, record=entry.key) from None
    name, redirect, when, policy = (fields.pop(key, None) or "" for key in ("name", "redirect", "date", "na_policy"))
    known = redirect and not redirect.startswith(UNKNOWN)
    nmas = (Nma(redirect_to_target(redirect), redirect, split_status(redirect)[0]),) if known else ()
    who, how = anvl.read_who(name, decode=str), anvl.read_policy(policy, decode=str)
    return replace(entry, nmas=nmas, who=who, when=when, policy=how, extra=fields)


def _field(line: str, fields: dict[str, str | None], depth: int, last: str) -> tuple[int, str]:
    """Add a line below a prefix to its fields: a field, or a continuation of the field above. Raises ValueError."""
    match = _FIELD.match(line)
    indent = len(line) - len(line.lstrip())
    if match is None or indent > depth > 0:
        if last in _NEEDED:
            raise ValueError(f"not a field: {shown(line.strip())}")
        fields[last] = f"{fields[last] or ''} {line.strip()}".strip()
        return depth, last
    name, text = match["name"], (match["value"] or "").strip()
    if name in fields and name in _NEEDED:
        raise ValueError(f"{name} occurs twice")
    try:
        value = scalar(text)
    except ValueError as error:
        if name in _NEEDED:
            raise ValueError(f"{name}: {error}") from None
        value = text
    fields[name] = value if name not in fields else f"{fields[name] or ''} {value or ''}".strip()
    return indent, name
