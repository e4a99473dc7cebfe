"""JSON text to plain values, with the parser's own excesses refused.

Not here: what the values mean; that is ``json_v1`` and ``json_v2``.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from maptr.errors import TableError

MAX_DEPTH = 16  # objects in objects; the registry's deepest record has 3
MAX_VALUES = 4_000_000  # values of one text, each some 100 octets of memory; the real registry has 60,000


class Repeated(dict[str, Any]):
    """An object that gives a name twice, so that one of its values is lost."""

    names: frozenset[str] = frozenset()


class NotJson:
    """``NaN`` or ``Infinity``: Python's parser takes them, RFC 8259 section 6 does not."""

    def __init__(self, text: str) -> None:
        self.text = text


def parse(text: str, filename: str = "") -> Any:
    """The value of a JSON text; TableError with the line if it is none.

    Repeated names and NaN are left in the value for ``flaw`` to find, so that the error can name the record.
    """
    if len(text) > MAX_VALUES and sum(map(text.count, ",[{")) > MAX_VALUES:  # what strings hold counts, too
        raise TableError(f"not a registry: more than {MAX_VALUES} JSON values", filename=filename, line=1)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=NotJson)
    except json.JSONDecodeError as error:
        end = error.pos >= len(text.rstrip())
        reason = "the JSON text ends too early" if end else f"not JSON: {error.msg.lower()}"
        raise TableError(reason, filename=filename, line=error.lineno) from None
    except RecursionError:
        raise TableError("not a registry: JSON nested too deeply", filename=filename, line=1) from None
    except ValueError:  # the interpreter's limit on the digits of one number
        raise TableError("not a registry: a number with too many digits", filename=filename, line=1) from None


def flaw(value: Any) -> str | None:
    """Why a value cannot be kept (too deep, a name given twice, NaN, half a character); None if it can."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii() and _has_surrogate(item):
                    return "holds half a character (a lone surrogate)"
            elif kind is dict:
                below += item.values()
                if _has_surrogate("".join(item)):
                    return "holds half a character (a lone surrogate)"
            elif kind is list:
                below += item
            elif kind is Repeated:
                return f"gives {min(item.names)!r} twice"
            elif kind is NotJson:
                return f"{item.text} is not JSON"
            elif kind is float and item in (float("inf"), float("-inf")):
                return "a number too large"
        if not below:
            return None
        level = below
    return f"nested deeper than {MAX_DEPTH}"


def kept(value: Any, depth: int = 0) -> Any:
    """A value as it can be kept, the same where it has no flaw: of a name given twice the last value, text for a number
    that JSON has not, U+FFFD for half a character, None for what is nested too deeply."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {kept(name): kept(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [kept(item, depth + 1) for item in value]
    if isinstance(value, NotJson):
        return value.text
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if _has_surrogate(value) else value
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = Repeated(found)
    counts = Counter(name for name, _ in pairs)
    repeated.names = frozenset(name for name, count in counts.items() if count > 1)
    return repeated


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
