"""Colours of the pages (``#rrggbb``), and their contrast (WCAG 2.2, 1.4.3)."""

from __future__ import annotations

import re
from math import floor

# In each theme of the gateway's style.css, the background with the least contrast to text.
LIGHT, DARK = "#fbfaf6", "#1b1e21"
LEAST_CONTRAST = 4.5  # between text and its background, level AA
GOOD_CONTRAST = 7.0  # level AAA (1.4.6)
_STEPS = 100  # between a colour and black or white


def read_colour(text: str, background: str) -> str:
    """Read the colour of text on a background, in lower case; "" is none. Raises ValueError, even for low contrast."""
    if not text:
        return ""
    if not re.fullmatch("#[0-9A-Fa-f]{6}", text):
        raise ValueError(f"{text!r} is not a colour such as #0d5c63")
    colour, theme = text.lower(), "light" if background == LIGHT else "dark"
    if (ratio := contrast(colour, background)) < LEAST_CONTRAST:
        raise ValueError(
            f"{colour} has a contrast of {floor(100 * ratio) / 100:.2f}:1 in the {theme} theme, {LEAST_CONTRAST}:1 is "
            f"required; the nearest shade that has it is {readable(colour, background)}"
        )
    return colour


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def readable(colour: str, background: str, ratio: float = LEAST_CONTRAST) -> str:
    """Return the colour, or its first mixture with black or white that contrasts enough with a background."""
    end = 0 if _luminance(background) > 0.18 else 255  # 0.18 has the same contrast to both
    for step in range(_STEPS + 1):
        mixed = "#" + "".join(f"{round(part + (end - part) * step / _STEPS):02x}" for part in _channels(colour))
        if contrast(mixed, background) >= ratio:
            break
    return mixed


def _channels(colour: str) -> bytes:
    """Return red, green and blue, from 0 to 255."""
    return bytes.fromhex(colour[1:])


def _luminance(colour: str) -> float:
    """Return the relative luminance, from 0 to 1."""
    shares = [part / 255 for part in _channels(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
