"""Text from files and from DNS as a person may be shown it: nothing in it that a terminal would obey."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """The text with ``?`` for every character that is neither printable nor to be kept."""
    return "".join(character if character.isprintable() or character in keep else "?" for character in text)
