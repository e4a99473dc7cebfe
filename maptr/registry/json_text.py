"""JSON text to plain values, with the parser's own excesses refused.

Not here: what the values mean; that is ``json_v1`` and ``json_v2``.
"""

from __future__ import annotations

import json
from typing import Any

from maptr.errors import TableError

MAX_DEPTH = 16  # objects in objects; the registry's deepest record has 3
MAX_VALUES = 4_000_000  # values of one text, each some 100 octets of memory; the real registry has 60,000


class Repeated(dict[str, Any]):
    """An object that gives a name twice, so that one of its values is lost."""

    name = ""


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
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH}"
        if isinstance(item, Repeated):
            return f"gives {item.name!r} twice"
        if isinstance(item, NotJson):
            return f"{item.text} is not JSON"
        if isinstance(item, float) and item in (float("inf"), float("-inf")):
            return "a number too large"
        if isinstance(item, dict):
            pending += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, str) and not item.isascii() and _has_surrogate(item):
            return "holds half a character (a lone surrogate)"
    return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = Repeated(found)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            repeated.name = name
            break
        seen.add(name)
    return repeated


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
