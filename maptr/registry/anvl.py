"""The registry's ANVL text: an ``erc:`` block about the file, then ``naa:`` blocks, a NAAN or shoulder each.

    naa:
    who:   National Library of Examples (=) Example Native Name (=) NLEX
    what:  12345
    when:  2001.03.08
    where: https://ark.nlex.example/
    where: 303 https://mirror.example/ark:$id
    how:   NP | NR, OP, CC | 2001 | https://nlex.example/policy

Blocks end at an empty line; a line that starts with white space continues the one above; ``#`` starts a
comment line. Labels that start with ``!`` are private: they and their continuations never enter the
table, nor any message. Other labels are kept in ``Entry.extra``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from maptr.errors import TableError
from maptr.registry import where as where_
from maptr.registry.records import OnBad, Records, shown
from maptr.registry.table import Entry, Nma, Policy, Table, Who

# Kernel Metadata and ERCs 9.5, and the 2002 draft 7.6. A pair of hexadecimal digits is not among them: it belongs to
# the value, often an ARK, and decoded it would make another (ARK draft 3.2).
_LETTERS = "ex dq ns do pe am sq op cp as pl co pd sl cn sc lt eq gt qu at ox ls cx vb sp nu"
_CODES = {"%": "%", "!": "|", ".": ",", "_": ""} | dict(
    zip(_LETTERS.split(), "!\"#$%&'()*+,./:;<=>?@[\\]| \0", strict=True)
)
_ESCAPE = re.compile(rf"%([{{}}]|{'|'.join(map(re.escape, _CODES))})")
_URL = re.compile("https?://|ark:", re.IGNORECASE)
_GOES_ON = re.compile(r"(?!https?:|ark:)[^\s|;(]\S*\Z", re.IGNORECASE)
MISSING = frozenset({"unac", "unal", "unap", "unas", "unav", "unkn", "none", "null", "tba"})
"""The codes that stand for a missing value (Kernel Metadata 9.3, 2002 draft 7.5)."""

_CODE = re.compile(r"\s*(?:\[[^]]*\]\s*)?\(:([0-9A-Za-z]+)\)")
_KNOWN = ("who", "what", "when", "where", "how")
_PRIVATE = "!"


@dataclass(slots=True)
class Block:
    """Lines between empty lines: label and lines of the value, in order, and the first flaw in them."""

    line: int
    pairs: list[tuple[str, list[str]]] = field(default_factory=list)
    flaw: tuple[int, str] | None = None

    @property
    def kind(self) -> str:
        """The first label that is not private ("" if there is none), or the private one that heads it all."""
        labels = [label for label, _ in self.pairs]
        if labels and labels[0] in ("!naa", "!erc"):
            return labels[0]
        return next((label for label in labels if not label.startswith(_PRIVATE)), "")

    def fields(self) -> dict[str, list[str]]:
        """Public labels in order, each with its values, still escaped."""
        found: dict[str, list[str]] = {}
        for label, parts in self.pairs:
            if not label.startswith(_PRIVATE):
                found.setdefault(label, []).append(joined(label, parts))
        return found


def read(text: str, *, filename: str = "", on_bad: OnBad | None = None) -> Table:
    """The table in an ANVL text; TableError for a bad record, by line and key."""
    records = Records(filename, on_bad)
    metadata: dict[str, str | list[str]] = {}
    for block in blocks(text):
        kind = block.kind
        if kind == "erc" and block.flaw is None:
            metadata |= _others(block.fields(), ("erc",))
        elif not kind.startswith(_PRIVATE) and (kind or block.flaw):
            try:
                records.add(_entry(block, records))
            except TableError as error:
                records.refuse(error)
    return records.table(metadata)


def blocks(text: str) -> Iterator[Block]:
    """The blocks of an ANVL text, private lines already gone."""
    block: Block | None = None
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if block is not None:
                yield block
            block = None
            continue
        if block is None:
            block = Block(number)
        _take(block, number, line)
    if block is not None:
        yield block


def decode(value: str) -> str:
    """A value with the escapes of ANVL and ERC decoded, and no white space between ``%{`` and ``%}``.

    A ``%`` that escapes nothing stands for itself; so does one before two hexadecimal digits.
    """
    pieces = _ESCAPE.split(value)  # text and code in turn
    closed = len(pieces) - 1 - pieces[::-1].index("}") if "}" in pieces[1::2] else 0
    decoded: list[str] = []
    inside = False
    for number, piece in enumerate(pieces):
        if number % 2:
            inside = number < closed and (inside or piece == "{") and piece != "}"
            decoded.append(_CODES.get(piece, ""))
        else:
            decoded.append("".join(piece.split()) if inside else piece)
    return "".join(decoded)


def joined(label: str, parts: list[str]) -> str:
    """The lines of a folded value as one: with a space between, but for a URL of ``where``, which has none."""
    pieces: list[str] = []
    within_url = False
    for part in filter(None, parts):
        within_url = within_url and _GOES_ON.match(part) is not None
        pieces.append(part if within_url or not pieces else f" {part}")
        within_url = within_url or (label.startswith("where") and _URL.match(part.split()[-1]) is not None)
    return "".join(pieces)


def code_of(value: str) -> str | None:
    """The controlled code that a value begins with: ``unkn`` of ``(:unkn) Anonymous``."""
    found = _CODE.match(value)
    return found[1] if found else None


def _take(block: Block, number: int, line: str) -> None:
    if line[0].isspace():
        if not block.pairs:
            block.flaw = block.flaw or (number, "a continuation of nothing")
            return
        label, value = block.pairs[-1]
        if not label.startswith(_PRIVATE):
            value.append(line.strip())
        return
    label, colon, text = line.partition(":")
    label = decode(label.replace("%21", "!")).strip()  # privately, however it is written
    if label.startswith(_PRIVATE):
        # Only the label is remembered: a continuation line needs something to vanish into.
        block.pairs.append((label, []))
    elif not colon or not label:
        block.flaw = block.flaw or (number, "no label and colon")
        block.pairs.append((_PRIVATE, []))
    else:
        block.pairs.append((label, [text.strip()]))


def _entry(block: Block, records: Records) -> Entry:
    fields = block.fields()
    what = [decode(value) for value in fields.get("what", ())]
    name = shown(what[0]) if what else ""
    if block.flaw is not None:
        raise records.error(block.flaw[1], line=block.flaw[0], record=name)
    if fields.pop(block.kind, None) != [""] or block.kind != "naa":
        raise records.error("the block does not start with naa:", line=block.line, record=name)
    if len(what) > 1:
        raise records.error("what is given twice", line=block.line, record=name)
    if not what:
        raise records.error("no what: the record names no NAAN", line=block.line)
    naan, shoulder = records.key(what[0], line=block.line)
    nmas = tuple(_nma(decode(value)) for value in fields.get("where", ()) if _known(value))
    who, policy = read_who(_one(fields, "who")), read_policy(_one(fields, "how"))
    when = decode(_one(fields, "when"))
    # Of a label that informs and is given twice, the first counts and all are kept.
    known = tuple(label for label in _KNOWN if label == "where" or len(fields.get(label, ())) < 2)
    return Entry(naan, shoulder, nmas, who, when, policy, _others(fields, known), line=block.line)


def _one(fields: dict[str, list[str]], label: str) -> str:
    return next(iter(fields.get(label, ())), "")


def _known(value: str) -> bool:
    return bool(value) and code_of(value) not in MISSING


def read_who(value: str, decode: Callable[[str], str] = decode) -> Who:
    """``name``, ``name (=) ACRONYM`` or ``name (=) native name (=) ACRONYM``; the whole where it has more parts."""
    parts = [decode(part).strip() for part in value.split("(=)")] if _known(value) else [""]
    if len(parts) > 3:
        return Who(decode(value))
    native = parts[1] if len(parts) == 3 else ""
    acronym = parts[-1] if len(parts) > 1 else ""
    return Who(parts[0], native or None, acronym or None)


def read_policy(value: str, decode: Callable[[str], str] = decode) -> Policy:
    """``NP | policy | tenure | url``; the registry writes an unknown policy out, so it is kept as text."""
    return Policy(*(decode(part).strip() or None for part in value.split("|", 3)))


def _nma(where: str) -> Nma:
    status, _ = where_.split_status(where)
    return Nma(where_.to_target(where), where, status)


def _others(fields: dict[str, list[str]], known: tuple[str, ...]) -> dict[str, str | list[str]]:
    """Labels other than the known ones; a repeated one has a list."""
    found: dict[str, str | list[str]] = {}
    for label, values in fields.items():
        if label not in known:
            found[label] = decode(values[0]) if len(values) == 1 else [decode(value) for value in values]
    return found
