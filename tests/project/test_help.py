"""``help(maptr)``: the public names first, each with types, errors and an example, and a mark on inner packages."""

from __future__ import annotations

import doctest
import inspect
import pydoc
import re
from importlib import import_module
from pathlib import Path

import pytest

import maptr

PACKAGE = Path(maptr.__file__).parent
ROOMS = sorted(".".join(file.parent.relative_to(PACKAGE.parent).parts) for file in PACKAGE.rglob("*/__init__.py"))
PUBLIC = {name: getattr(maptr, name) for name in maptr.__all__}
TYPES = {"Chooser", "Policy", "Profile"}  # names of types, for annotations
PARTS = {"Drift", "Limit", "Outcome", "Reading", "Step", "Verdict"}  # a program gets them with a result
WITHOUT_ERRORS = {"Entry", "Nma", "Settings", "at_random", "sticky", "weighted"}


def test_help_lists_public_names_first_and_marks_inner_modules() -> None:
    text = pydoc.plain(pydoc.render_doc(maptr))
    description, contents = text[: text.index("PACKAGE CONTENTS")], text[text.index("PACKAGE CONTENTS") :]
    assert [name for name in maptr.__all__ if not re.search(rf"\b{name}\b", description)] == []
    for name, value in PUBLIC.items():
        if name in TYPES:
            continue
        head = rf"class {name}\(" if isinstance(value, type) else rf"    (async )?{name}\("
        assert re.search(head, contents)


@pytest.mark.parametrize("name", ROOMS)
def test_each_room_is_marked_as_inner(name: str) -> None:
    text = import_module(name).__doc__ or ""
    headline, _, rest = text.partition("\n")
    assert headline.endswith((".", ":")) or rest.strip()
    assert "Inner room" in rest


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - TYPES))
def test_each_public_name_has_a_headline_its_errors_and_an_example(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    assert text == inspect.cleandoc(value.__doc__ or ""), "inherited"
    assert re.match(r".+[.:](\s|$)", text)
    if name in PARTS:
        return
    assert any(test.examples for test in doctest.DocTestFinder(recurse=False).find(value, name))
    is_error = isinstance(value, type) and issubclass(value, Exception)
    assert is_error or name in WITHOUT_ERRORS or re.search("[Rr]aise|errors", text)
