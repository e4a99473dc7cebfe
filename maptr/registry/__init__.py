"""The NAAN registry: its formats, one module each, all read into a Table; and its copies: pulled, followed, compared.

    read(data)                                recognises the format by content and returns a Table
    write_json(table), write_natab(table)     return text

JSON loses nothing. natab cannot hold everything, so its writer lists what it left out. All of these are pure functions;
the caller reads and writes the files.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from maptr.errors import TableError
from maptr.registry import anvl, json_records, natab, prefixes
from maptr.registry.json_records import write as write_json
from maptr.registry.natab import Loss
from maptr.registry.natab import write as write_natab
from maptr.registry.table import MAX_TABLE, OnBad, Table, normal_key

__all__ = ["Format", "Loss", "OnBad", "read", "recognise", "write_json", "write_natab"]

MAX_LINES = 4_000_000  # the real registry as natab has 10,000

_ANVL = re.compile(r"(?:erc|naa)\s*:\s*(?!/)", re.IGNORECASE)
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # of str.splitlines
_CHUNK = 4096  # characters of a text that are split into lines at a time
_YAML_FIELD = re.compile(r"\s+[\w.-]+\s*:(?:\s|\Z)")


class Format(enum.Enum):
    """A registry format."""

    JSON_V1 = "json-v1"
    JSON_V2 = "json-v2"
    ANVL = "anvl"
    NATAB = "natab"
    PREFIXES = "prefixes"


def read(data: bytes | str, *, filename: str = "", on_bad: OnBad | None = None, scheme: str = "https") -> Table:
    """The table in a registry file of any format, recognised by content, never by the file's name.

    A bad record raises TableError with file, line or record; with ``on_bad`` it is reported there and left out.
    Data that is not a registry at all (empty, cut short, a web page, not UTF-8, beyond a limit) always raises
    TableError. No other exception is raised, except by ``on_bad``.
    ``scheme`` is used for the hosts of a natab, which have none (port 80 means http).
    """
    text = _text(data, filename)
    kind, document = _recognise(text, filename)
    if document is not None:
        return json_records.read(document, filename=filename, on_bad=on_bad)
    if kind is Format.NATAB:
        return natab.read(text, filename=filename, on_bad=on_bad, scheme=scheme)
    reader = anvl.read if kind is Format.ANVL else prefixes.read
    return reader(text, filename=filename, on_bad=on_bad)


def recognise(data: bytes | str, *, filename: str = "") -> Format:
    """The format of a registry file. Raises TableError if it has none."""
    return _recognise(_text(data, filename), filename)[0]


def _recognise(text: str, filename: str) -> tuple[Format, Any]:
    """The format, and the parsed document if it is JSON."""
    start = text.lstrip()
    if not start:
        raise TableError("not a registry: the file is empty", filename=filename, line=1)
    if start[0] in "{[":
        document = json_records.parse(text, filename)
        return (Format.JSON_V2 if json_records.is_version_2(document) else Format.JSON_V1), document
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
    """The lines of a text, split chunk by chunk: the first lines of a long text decide its format."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + _CHUNK) + 1 or len(text)
        yield from text[at:end].splitlines()
        at = end


def _begins_natab(line: str) -> bool:
    """True for a natab entry, even with a damaged policy. The digit distinguishes ``12345:`` from ``Note:``."""
    match = natab.ENTRY.match(line.strip())
    return match is not None and any(map(str.isdigit, normal_key(match["naan"])))


def _text(data: bytes | str, filename: str) -> str:
    """The data as text. Raises TableError if it is too long, not UTF-8, or not text."""

    def error(reason: str, before: bytes | str = "") -> TableError:
        lines = before.count("\n") if isinstance(before, str) else before.count(b"\n")
        return TableError(reason, filename=filename, line=lines + 1)

    if len(data) > MAX_TABLE:
        raise error(f"not a registry: longer than {MAX_TABLE} bytes")
    if isinstance(data, str):
        text = data
        try:
            text.encode()
        except UnicodeEncodeError as wrong:
            raise error("half a character (a lone surrogate)", text[: wrong.start]) from None
    else:
        if data.startswith(b"\x1f\x8b"):
            raise error("not a registry: gzip data; unpack it first")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as wrong:
            raise error("not UTF-8", data[: wrong.start]) from None
    if "\0" in text:
        raise error("not text: a NUL character", text[: text.index("\0")])
    if len(text) > MAX_LINES and sum(map(text.count, _LINE_ENDS)) > MAX_LINES:
        raise error(f"not a registry: more than {MAX_LINES} lines")
    return text.removeprefix("\ufeff")
