"""The right word nearest to a wrong one, for messages. Import it where one is made: few runs want ``difflib``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str], *, likeness: float = 0.0) -> str:
    """The word spelled most like this one, from 0 for anything to 1 for the same; "" where none is like enough."""
    return next(iter(difflib.get_close_matches(word, list(words), 1, likeness)), "")
