"""The types of values in a configuration: how each is read from TOML, or from the text of an environment variable.

A reader raises ValueError with the reason, which never contains a secret. The caller adds file and line.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from maptr.answer.context import MAX_IDENTITY
from maptr.protocol import names
from maptr.protocol.cookies import KEY_SIZE, MAX_SECRETS
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_TTL
from maptr.transfer.acl import TsigKey

T = TypeVar("T")

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # as in the TTLs of zone files
MAX_DURATION = MAX_TTL  # seconds
_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "an array", dict: "a table"}


class ElementError(ValueError):
    """Wrong elements of an array: the index of each, from 0, and the reason."""

    def __init__(self, wrong: Sequence[tuple[int, str]]) -> None:
        super().__init__("; ".join(message for _, message in wrong))
        self.wrong = wrong


class ValueType(NamedTuple, Generic[T]):
    """How a value is read: ``read`` takes a TOML value; ``from_text`` makes one from an environment variable."""

    read: Callable[[Any], T]
    from_text: Callable[[str], object] = lambda text: text

    def then(self, further: Callable[[T], Any]) -> ValueType[Any]:
        """The same type with a further step."""
        return ValueType(lambda value: further(self.read(value)), self.from_text)


@dataclass(frozen=True, slots=True)
class Secret:
    """Bytes that no error, log, status or traceback shows."""

    octets: bytes = field(repr=False)


def read_duration(text: str) -> int:
    """Seconds of a duration such as ``14d``, ``36h`` or ``3600``. Raises ValueError."""
    lower = text.lower()
    number, unit = (lower[:-1], lower[-1]) if lower[-1:].isalpha() else (lower, "")
    if not (number.isascii() and number.isdigit()) or unit not in UNITS:
        raise ValueError(f"{text!r} is not a duration such as 14d, 36h or 3600")
    seconds = int(number[:20]) * UNITS[unit]
    if seconds > MAX_DURATION:
        raise ValueError(f"{text!r} is more than {MAX_DURATION} seconds")
    return seconds


def read_name(text: str) -> Labels:
    """A domain name in lower case. Raises ValueError."""
    if not text:
        raise ValueError("is empty: a domain name is required")
    try:
        return names.fold(names.parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a valid domain name: {error}") from None


def read_tsig_secret(text: str) -> Secret:
    """A TSIG secret in Base64 (RFC 4648 section 4), the format of every DNS server. Raises ValueError."""
    try:
        octets = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the secret is not base64") from None
    if not octets:
        raise ValueError("the secret is empty")
    return Secret(octets)


def read_algorithm(text: str) -> str:
    """The name of a TSIG algorithm that ``acl.TsigKey`` supports. Raises ValueError."""
    return TsigKey((b"any",), text.lower().rstrip("."), b"any").algorithm


def read_cookie_secrets(text: str) -> tuple[Secret, ...]:
    """One secret per line, 32 hexadecimal digits each: the first makes cookies, all of them verify (RFC 9018 5)."""
    lines = text.split()
    if not lines or not all(re.fullmatch(f"[0-9A-Fa-f]{{{2 * KEY_SIZE}}}", line) for line in lines):
        raise ValueError(f"each secret must be {2 * KEY_SIZE} hexadecimal digits, one per line")
    if len(lines) > MAX_SECRETS:
        raise ValueError(f"has {len(lines)} secrets, {MAX_SECRETS} at most")
    return tuple(Secret(bytes.fromhex(line)) for line in lines)


def _of_type(value: object, kind: type[T]) -> T:
    """The value if it has the TOML type: a boolean is not an integer, but an integer is a number."""
    if kind is float and type(value) is int:
        return float(value)  # type: ignore[return-value]
    if type(value) is not kind:
        raise ValueError(f"must be {_TYPES[kind]}, not {_TYPES.get(type(value), 'a date or time')}")
    return value


def _bounded(value: Any, low: float, high: float) -> Any:
    if not low <= value <= high:  # refuses NaN too
        raise ValueError(f"must be from {low} to {high}, not {value}")
    return value


def _number_from_text(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text  # which ``read`` refuses


def integer(low: int, high: int) -> ValueType[int]:
    return ValueType(lambda value: _bounded(_of_type(value, int), low, high), _number_from_text)


def number(low: float, high: float) -> ValueType[float]:
    return ValueType(lambda value: _bounded(_of_type(value, float), low, high), _number_from_text)


def choice(*words: str) -> ValueType[str]:
    def read(value: object) -> str:
        if _of_type(value, str) not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r}")
        return str(value)

    return ValueType(read)


def list_of(element: ValueType[T]) -> ValueType[tuple[T, ...]]:
    """An array; an environment variable separates its elements with commas. ``read`` raises ElementError."""

    def read(value: object) -> tuple[T, ...]:
        found, wrong = [], []
        for index, item in enumerate(_of_type(value, list)):
            try:
                found.append(element.read(item))
            except ValueError as error:
                wrong.append((index, str(error)))
        if wrong:
            raise ElementError(wrong)
        return tuple(found)

    return ValueType(read, lambda text: [element.from_text(part.strip()) for part in text.split(",") if part.strip()])


def _short(text: str) -> str:
    if len(text.encode()) > MAX_IDENTITY:
        raise ValueError(f"is longer than {MAX_IDENTITY} bytes")
    return text


def _path(text: str) -> Path | None:
    if "\0" in text:
        raise ValueError("has a NUL, which a file name cannot have")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise ValueError(f"is not a valid file name in {encoding}, the encoding here: set LC_ALL=C.UTF-8") from None
    return Path(text) if text else None


def _file(text: str) -> Path:
    path = _path(text)
    if path is None:
        raise ValueError("is empty: a file is required")
    return path


def _duration(value: object) -> int:
    """Seconds, from an integer or a text such as "14d"."""
    if type(value) is not int:
        return read_duration(_of_type(value, str))
    return read_duration(str(value))


def _sha256(text: str) -> str:
    if text and not re.fullmatch("[0-9A-Fa-f]{64}", text):
        raise ValueError("must have 64 hexadecimal digits")
    return text.lower()


BOOLEAN = ValueType(
    lambda value: _of_type(value, bool), lambda text: {"true": True, "false": False}.get(text.lower(), text)
)
TEXT = ValueType(lambda value: _of_type(value, str))
SHORT_TEXT = TEXT.then(_short)
PATH = TEXT.then(_path)  # "" is None; the reader resolves relative paths
FILE = TEXT.then(_file)
DURATION = ValueType(_duration)
SHA256 = TEXT.then(_sha256)
NAME = TEXT.then(read_name)
