"""Text to Config: each key known, each value right, each error with its place. Reads no file and no environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from maptr.config import checks, lines, model
from maptr.config.model import Config
from maptr.config.tables import REQUIRED, Field, Table
from maptr.config.values import ElementError
from maptr.errors import ConfigError

ENVIRONMENT = "MAPTR_"
# Of the environment only these are looked at for wrong names: other programs may have variables in MAPTR_.
ENVIRONMENT_OURS = ("MAPTR_SERVE_", "MAPTR_TABLE_", "MAPTR_CLIENT_", "MAPTR_CACHE_")


def parse(
    text: str = "",
    *,
    filename: str = "",
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[object, str]] | None = None,
) -> Config:
    """Defaults, then the text, then ``MAPTR_*`` of the environment, then flags.

    A flag is, by its dotted key, a TOML value and the option it came by.
    Relative paths in the text are from ``directory``. Secrets in files are not here yet; ``load`` reads them.
    Raises ConfigError with the key, and the line where it stands.
    """
    document = _document(text, filename) if text else {}
    reading = _Reading(document, filename, lines.key_lines(text), directory)
    reading.overlay(_from_environment(environment or {}))
    reading.overlay(flags or {})
    config: Config = reading.table(Config, document, ())
    config = config.replace(filename=filename, places=reading.places)
    checks.check(config, document, reading.error)
    return config


def _document(text: str, filename: str) -> dict[str, Any]:
    import tomli  # here, for there are servers without a file

    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        found = re.match(r"line (\d+),", place)
        line = int(found[1]) if found else text.count("\n") + 1  # else it says "end of document"
        raise ConfigError(reason, filename=filename, line=line) from None
    except RecursionError:
        raise ConfigError("is nested too deep", filename=filename) from None


def environment_names() -> dict[str, str]:
    """The variable for each key that is not in an array of tables, and the key."""
    arrays = tuple(f"{name}." for name, (_, field) in model.keys_of(Config).items() if field.array)
    keys = (key for key in model.all_keys() if not key.startswith(arrays))
    return {ENVIRONMENT + key.replace(".", "_").upper(): key for key in keys}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    known, fields = environment_names(), model.all_keys()
    found: dict[str, tuple[object, str]] = {}
    for variable, text in environment.items():
        if variable in known:
            kind = fields[known[variable]].kind
            found[known[variable]] = (text if kind is None else kind.from_text(text), variable)
        elif variable.startswith(ENVIRONMENT_OURS):
            from maptr.nearest import nearest

            raise ConfigError(f"no such setting; the nearest is {nearest(variable, known)}", key=variable)
    return found


class _Reading:
    """One document being read; ``places`` grows as keys are met."""

    def __init__(
        self, document: dict[str, Any], filename: str, found: Mapping[lines.Path, int], directory: Path | None
    ) -> None:
        self.document = document
        self.filename = filename
        self.lines = found
        self.directory = directory
        self.places: dict[str, tuple[str, int]] = {}
        self._outside: dict[lines.Path, str] = {}  # what does not come from the file, and where from

    def overlay(self, given: Mapping[str, tuple[object, str]]) -> None:
        """Put values from elsewhere over those of the file."""
        for key, (value, source) in given.items():
            *above, last = key.split(".")
            table = self.document
            for part in above:
                table = table.setdefault(part, {})
                if not isinstance(table, dict):
                    return  # the file has a value where a table should be, and is told so in its turn
            table[last] = value
            self._outside[tuple(key.split("."))] = source

    def table(self, kind: type[Table], document: object, path: lines.Path) -> Any:
        """One table as its class."""
        if not isinstance(document, dict):
            raise self.error(path, "must be a table")
        known = model.keys_of(kind)
        for key in document:
            if key not in known:
                raise self.error((*path, key), f"no such key; {self._nearest(path, key, known)}")
        found: dict[str, Any] = {}
        for key, (name, field) in known.items():
            here = (*path, key)
            if key in document:
                self.places.setdefault(_dotted(here), self._place(here))
                found[name] = self._value(field, document[key], here)
            elif field.default is REQUIRED:
                raise self.error(path, f"has no {key}, which it must have")
            elif isinstance(field.default, Path):
                found[name] = self._settle(field.default, here)
        return kind(**found)

    def _value(self, field: Field, value: object, path: lines.Path) -> object:
        if field.table:
            return self.table(field.table, value, path)
        if below := field.array:
            if not isinstance(value, list):
                raise self.error(path, f"must be an array of tables, [[{_dotted(path)}]]")
            return tuple(self.table(below, item, (*path, index)) for index, item in enumerate(value))
        kind = field.kind
        assert kind is not None  # noqa: S101 - a field is a value or one of the two above
        try:
            return self._settle(kind.read(value), path)
        except ElementError as error:
            raise self.error((*path, error.index), str(error)) from None
        except ValueError as error:
            raise self.error(path, str(error)) from None

    def _settle(self, value: object, path: lines.Path) -> object:
        """A path of the file is from the file's directory, one of a flag from where the command was given."""
        if path in self._outside or self.directory is None:
            return value
        if type(value) is tuple:  # and no record, which is one too
            return tuple(self._settle(one, path) for one in value)
        return self.directory / value if isinstance(value, Path) else value

    def _place(self, path: lines.Path) -> tuple[str, int]:
        parts = [path[:end] for end in range(len(path), 0, -1)]
        for part in parts:  # first, for the file may have lines for what is not taken from it
            if part in self._outside:
                return self._outside[part], 0
        return self.filename, next((self.lines[part] for part in parts if part in self.lines), 0)

    def error(self, path: lines.Path, message: str) -> ConfigError:
        filename, line = self._place(path)
        return ConfigError(message, filename=filename, line=line, key=_dotted(path))

    def _nearest(self, path: lines.Path, key: str, known: Iterable[str]) -> str:
        """The nearest right key: spelled nearly so here, or so elsewhere, or whatever is nearest."""
        from maptr.nearest import nearest

        here = f"{_dotted(path)}." if path else ""
        everywhere = [*model.all_keys(), *model.keys_of(Config)]
        if same := [other for other in everywhere if other.rpartition(".")[2] == key]:
            return f"the nearest is {same[0]}"
        if near := nearest(key, known, likeness=0.6):
            return f"the nearest is {here}{near}"
        return f"the nearest is {nearest(here + key, everywhere)}"


def _dotted(path: lines.Path) -> str:
    """``zone.file``: which of the zones is meant, the line says."""
    return ".".join(part for part in path if isinstance(part, str))
