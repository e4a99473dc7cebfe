"""Electronic Resource Citations: the segments of an ANVL text, with codes and dates (Kernel Metadata, 2002 draft 7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from maptr.registry import anvl

KERNEL = ("who", "what", "when", "where")  # the four elements of an ERC written on one line

# A year, to a second; months 21 to 34 are seasons and quarters (2002 draft 7.6).
_MONTH, _DAY, _HOUR, _MINUTE = r"(?:0\d|1[0-2]|2[1-8]|3[1-4])", r"(?:[0-2]\d|3[01])", r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_DATE = rf"(?:BCE)?\d{{4}}(?:{_MONTH}(?:{_DAY}(?:{_HOUR}(?:{_MINUTE}(?:[0-6]\d)?)?)?)?)?~?"
_DATES = rf"{_DATE}(?:-{_DATE})?(?:,{_DATE}(?:-{_DATE})?)*"
_PUNCTUATED = r"(?a)(?<!\d)(\d{4})([.-])(\d\d)(?:\2(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d))?Z?)?)?(?!\d)"  # also W3CDTF


@dataclass(frozen=True, slots=True)
class Segment:
    """``erc``, ``erc-support`` and the like: elements in order, a label more than once where it was repeated."""

    name: str
    elements: tuple[tuple[str, str], ...]

    def get(self, label: str) -> str | None:
        """The first value of a label."""
        return next((value for known, value in self.elements if known == label), None)

    def code(self, label: str) -> str | None:
        """The code that this value begins with: ``unkn`` and its like stand for a missing value."""
        return anvl.code_of(self.get(label) or "")

    def date(self, label: str) -> str | None:
        """This value as a normalised date, None where it is not one."""
        return normal_date(self.get(label) or "")

    def to_dict(self) -> dict[str, Any]:
        """Elements as pairs; so are codes and dates, of the elements that have them."""
        dated = [(label, normal_date(value)) for label, value in self.elements if label.startswith("when")]
        coded = [(label, anvl.code_of(value)) for label, value in self.elements]
        return {
            "name": self.name,
            "elements": [list(pair) for pair in self.elements],
            "codes": [list(pair) for pair in coded if pair[1]],
            "dates": [list(pair) for pair in dated if pair[1]],
        }


def segments(text: str) -> tuple[Segment, ...]:
    """The ``erc...:`` segments of an ANVL text, whether or not empty lines stand between them."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for block in anvl.blocks(text.lstrip("\ufeff")):
        for label, parts in block.pairs:
            if label.startswith("!"):
                continue
            value = anvl.joined(label, parts)
            if label == "erc" or label.startswith("erc-"):
                found.append((label, _one_line(value)))
            elif found:
                found[-1][1].append((label, anvl.decode(value)))
    return tuple(Segment(name, tuple(elements)) for name, elements in found)


def normal_date(value: str) -> str | None:
    """A date, range or list as digits, hyphens and commas; None where it is none of these.

    >>> [normal_date(text) for text in ("2000 12 29 235955", "1952, 1958-1967", "2001.03.08", "1850~", "spring")]
    ['20001229235955', '1952,1958-1967', '20010308', '1850~', None]
    """
    squeezed = re.sub(_PUNCTUATED, _digits, "".join(value.split()))
    return squeezed if re.fullmatch(f"(?a){_DATES}", squeezed) else None


def _digits(date: re.Match[str]) -> str:
    return "".join(part or "" for part in date.group(1, 3, 4, 5, 6, 7))


def _one_line(value: str) -> list[tuple[str, str]]:
    """``erc: who | what | when | where``, the short form of the four kernel elements."""
    parts = [anvl.decode(part).strip() for part in value.split("|")] if value else []
    return list(zip(KERNEL, parts, strict=False))
