"""Text for people: untrusted text without control characters, and the nearest known word to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def printable(text: str, *, keep: str = "") -> str:
    """The text with ``?`` for every character that is neither printable nor to be kept."""
    return "".join(character if character.isprintable() or character in keep else "?" for character in text)


def nearest(word: str, words: Iterable[str], *, likeness: float = 0.0) -> str:
    """The word spelled most like this one, from 0 for anything to 1 for the same; "" where none is like enough."""
    return next(iter(difflib.get_close_matches(word, list(words), 1, likeness)), "")
