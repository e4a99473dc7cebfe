"""ANVL, the registry's text format: an ``erc:`` block about the file, then a ``naa:`` block for each NAAN or shoulder.

    naa:
    who:   National Library of Examples (=) Example Native Name (=) NLEX
    what:  12345
    when:  2001.03.08
    where: https://ark.nlex.example/
    where: 303 https://mirror.example/ark:$id
    how:   NP | NR, OP, CC | 2001 | https://nlex.example/policy

A block ends at an empty line. A line that starts with white space continues the line above, and ``#`` starts a comment
line. A label that starts with ``!`` is private: its value appears neither in the table nor in a message. Other labels
are kept in ``Entry.extra``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from maptr.registry.table import MAX_NMAS, MAX_PARTS, Entry, NaanPolicy, Nma, Table, TableBuilder, Who, numbered, shown
from maptr.registry.target import split_status, where_to_target

# Kernel Metadata and ERCs 9.5, and the 2002 draft 7.6. Pairs of hexadecimal digits are not decoded, because the value
# is often an ARK, and decoding would change it to another ARK (ARK draft 3.2).
_LETTERS = "ex dq ns do pe am sq op cp as pl co pd sl cn sc lt eq gt qu at ox ls cx vb sp nu"
_CODES = {"%": "%", "!": "|", ".": ",", "_": ""} | dict(
    zip(_LETTERS.split(), "!\"#$%&'()*+,./:;<=>?@[\\]| \0", strict=True)
)
_ESCAPE = re.compile(rf"%([{{}}]|{'|'.join(map(re.escape, _CODES))})")
_URL = re.compile("https?://|ark:", re.IGNORECASE)
_URL_CONTINUES = re.compile(r"(?!https?:|ark:)[^\s|;(]\S*\Z", re.IGNORECASE)
MISSING = frozenset({"unac", "unal", "unap", "unas", "unav", "unkn", "none", "null", "tba"})
"""The codes of a missing value (Kernel Metadata 9.3, 2002 draft 7.5)."""

_CODE = re.compile(r"\s*(?:\[[^]]*\]\s*)?\(:([0-9A-Za-z]+)\)")
_KNOWN = ("who", "what", "when", "where", "how")
_PRIVATE = "!"


@dataclass(slots=True)
class Block:
    """The labels between two empty lines, each with the lines of its value, and the first error with its line."""

    line: int
    pairs: list[tuple[str, list[str]]] = field(default_factory=list)
    flaw: tuple[int, str] | None = None

    def take(self, number: int, line: str) -> None:
        """Add a line."""
        if line[0].isspace():
            if not self.pairs:
                self.flaw = self.flaw or (number, "a continuation line without a label above")
            elif not self.pairs[-1][0].startswith(_PRIVATE):
                self.pairs[-1][1].append(line.strip())
            return
        label, colon, text = line.partition(":")
        label = decode(label.replace("%21", "!")).strip()
        if not label.startswith(_PRIVATE) and not (colon and label):
            self.flaw = self.flaw or (number, "not a label and a colon")
            label = _PRIVATE
        # The label is kept without its value, so that its continuation lines are also dropped.
        self.pairs.append((label, [] if label.startswith(_PRIVATE) else [text.strip()]))

    @property
    def kind(self) -> str:
        """The first public label ("" if there is none), or ``!naa`` or ``!erc`` for a private block."""
        labels = [label for label, _ in self.pairs]
        if labels and labels[0] in ("!naa", "!erc"):
            return labels[0]
        return next((label for label in labels if not label.startswith(_PRIVATE)), "")

    def fields(self) -> dict[str, list[str]]:
        """Return the public labels in order, each with its values, still escaped."""
        found: dict[str, list[str]] = {}
        for label, parts in self.pairs:
            if not label.startswith(_PRIVATE):
                found.setdefault(label, []).append(joined(label, parts))
        return found


def read(text: str, builder: TableBuilder) -> Table:
    """Read the table in an ANVL text. A bad record is reported by line and key."""
    builder.limit(text, "\r\n%=", MAX_PARTS, "lines and escapes")
    for block in blocks(text):
        kind = block.kind
        if kind == "erc" and block.flaw is None:
            builder.metadata |= _others(block.fields(), ("erc",))
        elif not kind.startswith(_PRIVATE) and (kind or block.flaw):
            builder.take(_entry, block)
    return builder.table()


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of an ANVL text, without the values of private labels."""
    block: Block | None = None
    for number, line in [*numbered(text), (0, "")]:  # an empty line ends the last block
        if line.strip() and not line.startswith("#"):
            block = block or Block(number)
            block.take(number, line)
        elif block is not None and not line.strip():
            yield block
            block = None


def decode(value: str) -> str:
    """Decode the escapes of ANVL and ERC in a value, and remove white space between ``%{`` and ``%}``.

    A ``%`` that does not begin an escape is kept, even before two hexadecimal digits.
    """
    pieces = _ESCAPE.split(value)  # texts and codes alternate
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


def encode(value: str) -> str:
    """Write a value on one line of an ERC, without pairs of hexadecimal digits (Kernel Metadata 9.5).

    ``decode`` reverses it, except for the changes of ``one_line``.
    """
    return one_line(value).replace("%", "%pe").replace("|", "%vb")


def one_line(value: str) -> str:
    """Remove characters that cannot be printed, and replace white space with single spaces."""
    return " ".join(filter(None, ("".join(filter(str.isprintable, word)) for word in value.split())))


def joined(label: str, parts: list[str]) -> str:
    """Join the lines of a folded value with spaces, but without a space inside a URL of ``where``."""
    pieces: list[str] = []
    within_url = False
    for part in filter(None, parts):
        within_url = within_url and _URL_CONTINUES.match(part) is not None
        pieces.append(part if within_url or not pieces else f" {part}")
        within_url = within_url or (label.startswith("where") and _URL.match(part.split()[-1]) is not None)
    return "".join(pieces)


def code_of(value: str) -> str | None:
    """Return the controlled code at the start of a value: ``unkn`` for ``(:unkn) Anonymous``."""
    found = _CODE.match(value)
    return found[1] if found else None


def read_who(value: str, decode: Callable[[str], str] = decode) -> Who:
    """Read ``name``, ``name (=) ACRONYM`` or ``name (=) native name (=) ACRONYM``; more parts are a name."""
    parts = [decode(part).strip() for part in value.split("(=)")] if _known(value) else [""]
    if len(parts) > 3:
        return Who(decode(value))
    native = parts[1] if len(parts) == 3 else ""
    acronym = parts[-1] if len(parts) > 1 else ""
    return Who(parts[0], native or None, acronym or None)


def read_policy(value: str, decode: Callable[[str], str] = decode) -> NaanPolicy:
    """Read ``NP | policy | tenure | url``. An unknown policy is kept as text."""
    return NaanPolicy(*(decode(part).strip() or None for part in value.split("|", 3)))


def _entry(block: Block, builder: TableBuilder) -> Entry:
    fields = block.fields()
    what = [decode(value) for value in fields.get("what", ())]
    name = shown(what[0]) if what else ""
    if block.flaw is not None:
        raise builder.error(block.flaw[1], line=block.flaw[0], record=name)
    if fields.pop(block.kind, None) != [""] or block.kind != "naa":
        raise builder.error("the block does not start with naa:", line=block.line, record=name)
    if len(what) > 1:
        raise builder.error("what occurs twice", line=block.line, record=name)
    if not what:
        raise builder.error("no what: the record names no NAAN", line=block.line)
    naan, shoulder = builder.key(what[0], line=block.line)
    wheres = [decode(value) for value in fields.get("where", ()) if _known(value)]
    if len(wheres) > MAX_NMAS:
        raise builder.error(f"more than {MAX_NMAS} mapping authorities", line=block.line, record=name)
    nmas = tuple(Nma(where_to_target(where), where, split_status(where)[0]) for where in wheres)
    who, when, how = (next(iter(fields.get(label, ())), "") for label in ("who", "when", "how"))
    # If a label other than what and where occurs twice, the first value is used and all are kept in extra.
    known = tuple(label for label in _KNOWN if label == "where" or len(fields.get(label, ())) < 2)
    extra = _others(fields, known)
    return Entry(naan, shoulder, nmas, read_who(who), decode(when), read_policy(how), extra, line=block.line)


def _known(value: str) -> bool:
    return bool(value) and code_of(value) not in MISSING


def _others(fields: dict[str, list[str]], known: tuple[str, ...]) -> dict[str, str | list[str]]:
    """Return the unknown labels, each with its value, or with a list of values if it occurs several times."""
    others = {label: [*map(decode, values)] for label, values in fields.items() if label not in known}
    return {label: values[0] if len(values) == 1 else values for label, values in others.items()}
