"""Text for people: untrusted text without control characters, and suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def printable(text: str, *, keep: str = "") -> str:
    """The text with ``?`` in place of every character that is not printable and not in ``keep``."""
    return "".join(character if character.isprintable() or character in keep else "?" for character in text)


def nearest(word: str, words: Iterable[str], *, likeness: float = 0.0) -> str:
    """The most similar of the words; "" if none has the ``likeness``, from 0 (any) to 1 (equal)."""
    return next(iter(difflib.get_close_matches(word, list(words), 1, likeness)), "")
