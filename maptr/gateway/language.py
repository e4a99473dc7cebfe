"""The languages of the pages: their messages, and how each writes numbers and spans of time.

The English messages are in the templates. ``messages/CODE.toml`` translates each of them, with a list of singular and
plural where a message counts something. The placeholders are those of ``%``. A translation is plain text, apart from
the elements of the English message and those that mark a part of it as English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType

import tomli
from markupsafe import Markup, escape

from maptr.config.model import LANGUAGES, PageText
from maptr.errors import visible
from maptr.gateway.message import ranges

ENGLISH = "en"
SPANS = (
    (86_400, "%(count)s day", "%(count)s days"),
    (3_600, "%(count)s hour", "%(count)s hours"),
    (60, "%(count)s minute", "%(count)s minutes"),
    (1, "%(count)s second", "%(count)s seconds"),
)
MAX_TEXT = 2_000  # characters of an operator's text
_DECIMAL_COMMA = str.maketrans({",": "\u202f", ".": ","})  # and a narrow space between thousands (ISO 80000-1)
_PERCENT = re.compile(r"%(?:\((\w+)\)s|(%)|)")  # a placeholder, a percent sign, or neither
_ELEMENT = re.compile(r"<[^<>]+>")
_IN_ENGLISH = ('<span lang="en">', "</span>", '<code lang="en">')
_NO_TEXTS: Mapping[str, PageText] = MappingProxyType({})


class Language:
    """One language, by its code. ``texts`` are the operator's, which take precedence over the built-in ones.

    Each must translate a message of ``catalogue`` and have no ``fault``.
    """

    def __init__(self, code: str, texts: Mapping[str, PageText] = _NO_TEXTS) -> None:
        self.code = code
        known = {**_built_in(code), **texts}
        self.messages: dict[str, Markup | list[Markup]] = {
            key: [_marked(key, each) for each in text] if isinstance(text, list) else _marked(key, text)
            for key, text in known.items()
        }

    def gettext(self, message: str, /, **values: object) -> Markup:
        """Return a message with its values: numbers as the language writes them, texts escaped."""
        return self._filled(self.messages.get(message, message), values)

    def ngettext(self, singular: str, plural: str, count: int, /, **values: object) -> Markup:
        """Return the singular or plural of a message, by its count."""
        is_one = count < 2 if self.code == "fr" else count == 1
        return self._filled(self.messages.get(singular, (singular, plural))[not is_one], values)

    def _filled(self, message: object, values: dict[str, object]) -> Markup:
        shown = {
            name: self.number(value) if type(value) is int else visible(value) if type(value) is str else value
            for name, value in values.items()
        }
        return Markup(message) % shown  # noqa: S704 - our own message, or one that is marked

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


@cache
def built_in() -> Mapping[str, Language]:
    """Return the languages that need no file from the operator, by their codes."""
    return {code: Language(code) for code in LANGUAGES}


@cache
def _built_in(code: str) -> Mapping[str, PageText]:
    if code == ENGLISH or code not in LANGUAGES:
        return _NO_TEXTS
    return tomli.loads((files("maptr.gateway") / "messages" / f"{code}.toml").read_text("utf-8"))


def catalogue() -> Mapping[str, PageText]:
    """Return all messages: each English one with a translation that shows whether it has a plural."""
    return _built_in("fr")


def fault(message: str, text: object) -> str:
    """Return why a value cannot replace a message of the catalogue; "" if it can."""
    example = catalogue()[message]
    forms = text if isinstance(text, list) else [text]
    patterns = example if isinstance(example, list) else [example]
    if isinstance(text, list) is not isinstance(example, list) or len(forms) != len(patterns):
        return "must be an array of two texts: singular and plural" if isinstance(example, list) else "must be a text"
    known = {name for each in (message, *patterns) for name, _ in _PERCENT.findall(each) if name}
    for form in forms:
        if not isinstance(form, str) or not form.strip():
            return "must be a text that is not empty"
        if len(form) > MAX_TEXT:
            return f"has more than {MAX_TEXT} characters"
        for name, percent in _PERCENT.findall(form):
            if not name and not percent:
                return "has a percent sign that does not begin a placeholder: write it as %%"
            if name and name not in known:
                names = ", ".join(f"%({each})s" for each in sorted(known)) or "none"
                return f"has the placeholder %({name})s; the message has {names}"
        if not _is_closed(_marked(message, form)):
            return "has an element that is not opened or not closed"
    return ""


def _marked(message: str, text: str) -> Markup:
    """Return a message's translation as markup."""
    marked = str(escape(visible(text)))
    for element in {*_ELEMENT.findall(message), *_IN_ENGLISH}:
        marked = marked.replace(str(escape(element)), element)
    return Markup(marked)  # noqa: S704 - escaped, but for elements of our own message


def _is_closed(marked: str) -> bool:
    """Return whether each element ends, after those inside it."""
    opened: list[str] = []
    for end, name in re.findall(r"<(/?)(\w+)", marked):
        if not end:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


@lru_cache(maxsize=1024)
def preferred(accepted: str, codes: tuple[str, ...] = LANGUAGES) -> str:
    """Return the language that an Accept-Language header prefers (RFC 9110 12.5.4); English by default.

    A range such as ``fr-CA`` falls back to its language (RFC 4647 3.4).
    """
    for tag, quality in sorted(ranges(accepted), key=lambda pair: -pair[1]):
        wanted = ENGLISH if tag == "*" else tag
        matches = [code for code in codes if f"{wanted}-".startswith(f"{code}-")]
        if quality > 0 and matches:
            return max(matches, key=len)
    return ENGLISH
