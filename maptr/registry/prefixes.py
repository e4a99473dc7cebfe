"""Reads the ARK prefixes in the central resolver's prefixes file.

    ark:/12345:
      type: "naan"
      name: "National Library of Examples"
      redirect: "https://ark.nlex.example/ark:$id"
      date: "2001.03.08"
      na_policy: "NP | NR, OP, CC | 2001 | https://nlex.example/policy"

A redirect is complete: nothing is appended to one without variables. ``name`` and ``na_policy`` have the same parts as
``who`` and ``how`` in ANVL.

The file is YAML. Each prefix, with the indented lines below it, is read as a separate document, so that a mistake in
one does not lose the others, and no anchor reaches another. A value that is not a scalar is kept as text, but makes the
record bad if it is the redirect. Prefixes of other schemes (``doi:``, ``hdl:``, ``ark:`` itself) are ignored.

It needs the extra ``maptr[prefixes]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

from maptr.registry import anvl
from maptr.registry.table import MAX_PARTS, Entry, Nma, Table, TableBuilder, numbered, shown
from maptr.registry.target import UNKNOWN, redirect_to_target, split_status

KEY = re.compile(r"(?P<quote>[\"']?)(?P<key>ark:/?[^\s\"'#]+?)(?P=quote)\s*:\s*(?:#.*)?\Z", re.IGNORECASE)
_OTHER = re.compile(r"(?P<quote>[\"']?)[^\s\"'#]+?(?P=quote)\s*:\s*(?:#.*)?\Z")
_SKIP = re.compile(r"\s*(?:#.*)?\Z|---\s*(?:#.*)?\Z|\.\.\.\s*\Z")
_NULL = "tag:yaml.org,2002:null"


class _Prefix(NamedTuple):
    """A prefix: its key ("" if it is of another scheme), and its lines, the first with the key."""

    line: int
    key: str
    lines: list[str]


def read(text: str, builder: TableBuilder) -> Table:
    """Read the ARK prefixes of the file."""
    if find_spec("yaml") is None:
        raise builder.error("a prefixes file needs the package PyYAML: pip install 'maptr[prefixes]'", line=1)
    builder.limit(text, "\r\n", 2 * MAX_PARTS, "lines")
    prefixes = [prefix for prefix in _prefixes(text, builder) if prefix.key]
    ark_lines = "\n".join(line for prefix in prefixes for line in prefix.lines)
    builder.limit(ark_lines, "\n,[{-?", MAX_PARTS, "lines and separators")  # each may begin a value
    for prefix in prefixes:
        builder.take(_entry, prefix)
    return builder.table()


def _prefixes(text: str, builder: TableBuilder) -> Iterator[_Prefix]:
    """Yield each prefix with its lines; a line that belongs to none is a bad record."""
    prefix: _Prefix | None = None
    for number, line in numbered(text):
        if line[:1].isspace() or _SKIP.match(line):
            if prefix is not None:
                prefix.lines.append("" if _SKIP.match(line) else line)
            elif not _SKIP.match(line):
                builder.refuse(builder.error(f"a field without a prefix: {shown(line.strip())}", line=number))
            continue
        if prefix is not None:
            yield prefix
        match = KEY.match(line)
        prefix = _Prefix(number, match["key"] if match else "", [line])
        if match is None and not _OTHER.match(line):
            builder.refuse(builder.error(f"neither prefix, field nor comment: {shown(line)}", line=number))
    if prefix is not None:
        yield prefix


def _entry(prefix: _Prefix, builder: TableBuilder) -> Entry:
    naan, shoulder = builder.key(prefix.key.rstrip("/"), line=prefix.line)
    entry = Entry(naan, shoulder, line=prefix.line)
    fields: dict[str, str | None] = {}
    for line, name, value in _fields(prefix, entry, builder):
        if name in fields and name == "redirect":
            raise builder.error(f"{name} occurs twice", line=line, record=entry.key)
        fields[name] = value if name not in fields else f"{fields[name] or ''} {value or ''}".strip()
    name, redirect, when, policy = (fields.pop(key, None) or "" for key in ("name", "redirect", "date", "na_policy"))
    known = redirect and not redirect.startswith(UNKNOWN)
    nmas = (Nma(redirect_to_target(redirect), redirect, split_status(redirect)[0]),) if known else ()
    who, how = anvl.read_who(name, decode=str), anvl.read_policy(policy, decode=str)
    return replace(entry, nmas=nmas, who=who, when=when, policy=how, extra=fields)


def _fields(prefix: _Prefix, entry: Entry, builder: TableBuilder) -> Iterator[tuple[int, str, str | None]]:
    """Yield line, name and value of each field. Raises TableError."""
    import yaml  # imported late: an optional dependency

    text = "\n".join(prefix.lines)
    try:
        root: Any = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark is not None else 0
        raise builder.error(f"not YAML: {error.problem}", line=prefix.line + line, record=entry.key) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise builder.error(f"not YAML: {shown(str(error))}", line=prefix.line, record=entry.key) from None
    below = root.value[0][1]
    if isinstance(below, yaml.ScalarNode) and below.tag == _NULL:
        return
    if not isinstance(below, yaml.MappingNode):
        raise builder.error("no fields below the prefix", line=prefix.line + 1, record=entry.key)
    for key, node in below.value:
        line = prefix.line + key.start_mark.line
        source = " ".join(text[node.start_mark.index : node.end_mark.index].split())
        if not isinstance(key, yaml.ScalarNode):
            raise builder.error("the name of a field is not a text", line=line, record=entry.key)
        if isinstance(node, yaml.ScalarNode):
            yield line, key.value, None if node.tag == _NULL else node.value
        elif key.value == "redirect":
            raise builder.error(f"the redirect is not a text: {shown(source)}", line=line, record=entry.key)
        else:
            yield line, key.value, source
