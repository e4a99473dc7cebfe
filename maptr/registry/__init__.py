"""The registry's formats: one file for each, all meeting in Table. Pure functions: the caller reads files.

    read(data) recognises the format by its content and gives a Table
    write_json(table), write_natab(table) give text

JSON loses nothing; natab says what it had to leave out.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from maptr.errors import TableError
from maptr.registry import anvl, json_text, json_v1, json_v2, natab, prefixes
from maptr.registry.json_v1 import write as write_json
from maptr.registry.natab import Loss
from maptr.registry.natab import write as write_natab
from maptr.registry.records import OnBad
from maptr.registry.table import MAX_TABLE, Table, parse_key

__all__ = ["Format", "Loss", "OnBad", "read", "recognise", "write_json", "write_natab"]

_ANVL = re.compile(r"(?:erc|naa)\s*:\s*(?!/)", re.IGNORECASE)
MAX_LINES = 4_000_000  # the real registry as natab has 10,000
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # of str.splitlines
_SOME = 4096  # characters of a text that are split into lines at a time
_YAML_FIELD = re.compile(r"\s+[\w.-]+\s*:(?:\s|\Z)")


class Format(enum.Enum):
    """A format that a registry may come in."""

    JSON_V1 = "json-v1"
    JSON_V2 = "json-v2"
    ANVL = "anvl"
    NATAB = "natab"
    PREFIXES = "prefixes"


def read(data: bytes | str, *, filename: str = "", on_bad: OnBad | None = None, scheme: str = "https") -> Table:
    """The table in a registry file of any format, recognised by content, never by the file's name.

    A bad record raises TableError with file, line or record; with ``on_bad`` it is told there and left out.
    ``scheme`` is that of the hosts of a natab, which says none (port 80 means http).
    What is no registry at all (empty, cut short, a web page, not UTF-8, beyond a limit) raises TableError either way.
    Nothing but TableError, and what ``on_bad`` itself raises, ever leaves this function.
    """
    text = _text(data, filename)
    kind, document = _recognise(text, filename)
    if kind is Format.JSON_V1:
        return json_v1.read(document, filename=filename, on_bad=on_bad)
    if kind is Format.JSON_V2:
        return json_v2.read(document, filename=filename, on_bad=on_bad)
    if kind is Format.NATAB:
        return natab.read(text, filename=filename, on_bad=on_bad, scheme=scheme)
    reader = anvl.read if kind is Format.ANVL else prefixes.read
    return reader(text, filename=filename, on_bad=on_bad)


def recognise(data: bytes | str, *, filename: str = "") -> Format:
    """The format of a registry file; TableError if it is none."""
    return _recognise(_text(data, filename), filename)[0]


def _recognise(text: str, filename: str) -> tuple[Format, Any]:
    start = text.lstrip()
    if not start:
        raise TableError("not a registry: the file is empty", filename=filename, line=1)
    if start[0] in "{[":
        document = json_text.parse(text, filename)
        return (Format.JSON_V2 if json_v2.looks_like(document) else Format.JSON_V1), document
    if start[0] == "<":
        raise TableError("not a registry: it looks like a web page", filename=filename, line=1)
    lines = _lines(text)
    window = deque(islice(lines, 9))
    while window:
        line = window.popleft()
        following = next((after for after in window if after.strip()), "")
        window.extend(islice(lines, 1))
        if _ANVL.match(line):
            return Format.ANVL, None
        if prefixes.KEY.match(line):
            return Format.PREFIXES, None
        if natab.END.match(line) or (_begins_natab(line) and not _YAML_FIELD.match(following)):
            return Format.NATAB, None
    raise TableError("not a registry: no entry of any known format", filename=filename, line=1)


def _lines(text: str) -> Iterator[str]:
    """The lines, split some at a time: the first few tell what a long text is."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + _SOME) + 1 or len(text)
        yield from text[at:end].splitlines()
        at = end


def _begins_natab(line: str) -> bool:
    """True for an entry line, its policy in whatever state; the digit tells ``12345:`` from ``Note:``."""
    match = natab.ENTRY.match(line.strip())
    try:
        return match is not None and any(map(str.isdigit, parse_key(match["naan"])[0]))
    except ValueError:
        return False


def _text(data: bytes | str, filename: str) -> str:
    if len(data) > MAX_TABLE:
        raise TableError(f"not a registry: longer than {MAX_TABLE} octets", filename=filename, line=1)
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError as error:
            line = data.count("\n", 0, error.start) + 1
            raise TableError("half a character (a lone surrogate)", filename=filename, line=line) from None
        text = data
    else:
        if data.startswith(b"\x1f\x8b"):
            raise TableError("not a registry: gzip data, to be unpacked first", filename=filename, line=1)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise TableError("not UTF-8", filename=filename, line=line) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TableError("not text: a NUL character", filename=filename, line=line)
    if len(text) > MAX_LINES and sum(map(text.count, _LINE_ENDS)) > MAX_LINES:
        raise TableError(f"not a registry: more than {MAX_LINES} lines", filename=filename, line=1)
    return text.removeprefix("\ufeff")
