"""The members of a JSON object, read by name and type, so that a wrong one is an error that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "an array"}


class Members:
    """Reads the members of one object; others are ignored. ``path`` is its place in the document.

    Every error is a ValueError that begins with the path of the wrong member.

    >>> Members({"port": "80"}, "candidates[0]").optional(int, "port")
    Traceback (most recent call last):
    ValueError: candidates[0].port: '80' is not an integer or null
    """

    def __init__(self, document: object, path: str = "") -> None:
        if not isinstance(document, Mapping):
            raise ValueError(f"{path or 'the document'}: {document!r:.60} is not an object")
        self._document: Mapping[Any, Any] = document
        self._path = path

    def error(self, name: str, reason: str) -> ValueError:
        return ValueError(f"{self._at(name)}: {reason}")

    def get(self, kind: type[T], name: str) -> T:
        """Return a member of a type: a boolean is not a number, and an integer is a float."""
        return self._checked(kind, name, self._member(name))

    def optional(self, kind: type[T], name: str) -> T | None:
        """``get``, or None for null."""
        given = self._member(name)
        return None if given is None else self._checked(kind, name, given, " or null")

    def one_of(self, known: Mapping[str, T], name: str) -> T:
        """Return the value that a text stands for."""
        given = self.get(str, name)
        if given not in known:
            raise self.error(name, f"{given!r:.60} is not one of {', '.join(known)}")
        return known[given]

    def read(self, name: str, read: Callable[[str], T]) -> T:
        """Return what ``read`` makes of a text. It may raise ValueError."""
        given = self.get(str, name)
        try:
            return read(given)
        except ValueError as error:
            raise self.error(name, str(error)) from None

    def inner(self, name: str) -> Members:
        return Members(self._member(name), self._at(name))

    def optional_inner(self, name: str, read: Callable[[Members], T]) -> T | None:
        """Return what ``read`` makes of an object, or None for null."""
        return None if self._member(name) is None else read(self.inner(name))

    def each(self, name: str, read: Callable[[Members], T]) -> tuple[T, ...]:
        """Return what ``read`` makes of each object of an array."""
        objects = self.get(list, name)
        return tuple([read(Members(one, f"{self._at(name)}[{index}]")) for index, one in enumerate(objects)])

    def all_of(self, kind: type[T], name: str) -> tuple[T, ...]:
        """Return the elements of an array, which have one type."""
        elements = self.get(list, name)
        return tuple([self._checked(kind, f"{name}[{index}]", one) for index, one in enumerate(elements)])

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _member(self, name: str) -> Any:
        if name not in self._document:
            raise self.error(name, "is missing")
        return self._document[name]

    def _checked(self, kind: type[T], name: str, given: Any, also: str = "") -> T:
        if type(given) is kind or (kind is float and type(given) is int):
            return given  # type: ignore[return-value] # an integer is also a float
        raise self.error(name, f"{given!r:.60} is not {_TYPES[kind]}{also}")
