"""Regular expressions mean the same in every version of Python that maptr supports."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import maptr

parse = re._parser.parse  # type: ignore[attr-defined] # the parser of ``re``, which has no public name
OF_ONE_CHARACTER = {"IN", "LITERAL", "NOT_LITERAL", "ANY", "CATEGORY"}


def patterns() -> Iterator[tuple[str, str]]:
    """Yield each name of a module that holds a compiled pattern, or a text that may be one, with the pattern."""
    for module in pkgutil.walk_packages(maptr.__path__, "maptr."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                text = value.pattern if isinstance(value, re.Pattern) else value
                if name.isupper() and isinstance(text, str | bytes):
                    yield f"{module.name}.{name}", text if isinstance(text, str) else text.decode("latin-1")


def possessive_groups(parsed: Any) -> Iterator[object]:
    """Yield what is repeated possessively, and is more than one character."""
    for operator, value in parsed:
        if str(operator) == "POSSESSIVE_REPEAT" and not (
            len(value[2]) == 1 and str(value[2][0][0]) in OF_ONE_CHARACTER
        ):
            yield value[2]
        for part in value if isinstance(value, tuple | list) else [value]:
            for each in part if isinstance(part, list) else [part]:
                if hasattr(each, "pattern") or hasattr(each, "data"):
                    yield from possessive_groups(each)


def test_no_group_is_repeated_possessively() -> None:
    """Python 3.11.0 to 3.11.4 match such a group wrongly (CPython issue 106052); an atomic group is right in all."""
    assert [*possessive_groups(parse("a(?:b(?:cc|d)*+)?"))]
    assert not [*possessive_groups(parse("a(?>(?:bb|c)*)[d]*+"))]
    found = {}
    for name, pattern in patterns():
        try:
            found[name] = [*possessive_groups(parse(pattern))]
        except (re.error, RecursionError, OverflowError):
            continue
    assert "maptr.ark._IN_PROSE" in found
    assert not {name for name, groups in found.items() if groups}
