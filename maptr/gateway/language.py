"""The languages of the pages: their messages, and how each writes numbers and spans of time.

The English messages stand in the templates. ``messages/CODE.toml`` has a translation of each, and a list of singular
and plural where a message counts something. The placeholders are those of ``%``.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import tomli
from markupsafe import Markup

from maptr.config.model import LANGUAGES
from maptr.errors import visible
from maptr.gateway.message import ranges

ENGLISH = "en"
SPANS = (
    (86_400, "%(count)s day", "%(count)s days"),
    (3_600, "%(count)s hour", "%(count)s hours"),
    (60, "%(count)s minute", "%(count)s minutes"),
    (1, "%(count)s second", "%(count)s seconds"),
)
_DECIMAL_COMMA = str.maketrans({",": "\u202f", ".": ","})  # and a narrow blank between thousands, as ISO 80000-1 has it


class Language:
    """One language, by its code."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.messages: dict[str, str | list[str]] = {}
        if code != ENGLISH:
            text = (files("maptr.gateway") / "messages" / f"{code}.toml").read_text("utf-8")
            self.messages = tomli.loads(text)

    def gettext(self, message: str, /, **values: object) -> Markup:
        """Return a message with its values: numbers as the language writes them, other texts escaped."""
        return self._filled(self.messages.get(message, message), values)

    def ngettext(self, singular: str, plural: str, count: int, /, **values: object) -> Markup:
        """Return the form of a message that belongs to a count."""
        is_one = count < 2 if self.code == "fr" else count == 1
        return self._filled(self.messages.get(singular, (singular, plural))[not is_one], values)

    def _filled(self, message: object, values: dict[str, object]) -> Markup:
        shown = {
            name: self.number(value) if type(value) is int else visible(value) if type(value) is str else value
            for name, value in values.items()
        }
        return Markup(message) % shown  # noqa: S704 - our own message

    def number(self, value: float) -> str:
        is_whole = isinstance(value, int) and (self.code != "es" or abs(value) >= 10_000)  # Spanish groups five digits
        text = f"{value:,}" if is_whole else f"{value:g}"
        return text if self.code == ENGLISH else text.translate(_DECIMAL_COMMA)

    def span(self, seconds: float) -> str:
        """Return a span of time in its largest unit."""
        fits = (span for span in SPANS if seconds >= (2 if span[0] == 60 else 1) * span[0])  # 90 seconds, not 1 minute
        size, singular, plural = next(fits, SPANS[-1])
        count = max(0, int(seconds // size))
        return self.ngettext(singular, plural, count, count=count)


@lru_cache(maxsize=1024)
def preferred(accepted: str) -> str:
    """Return the language that an Accept-Language header prefers (RFC 9110 12.5.4), English if it names no other one.

    A range such as ``fr-CA`` falls back to its language (RFC 4647 3.4).
    """
    for tag, quality in sorted(ranges(accepted), key=lambda pair: -pair[1]):
        code = ENGLISH if tag == "*" else tag.partition("-")[0]
        if quality > 0 and code in LANGUAGES:
            return code
    return ENGLISH
