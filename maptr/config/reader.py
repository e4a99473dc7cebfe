"""Text to Config: each key known, each value right, each error with its place. Reads no file and no environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from maptr.config import checks, lines, model
from maptr.config.model import REQUIRED, Config, Field, Table
from maptr.config.values import ElementError
from maptr.errors import ConfigError, raise_all

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
    Raises ConfigError with the key, and the line where it stands; ConfigErrors where there are several.
    """
    config, errors = examine(text, filename=filename, directory=directory, environment=environment, flags=flags)
    raise_all(errors)
    return config


def examine(
    text: str = "",
    *,
    filename: str = "",
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[object, str]] | None = None,
) -> tuple[Config, list[ConfigError]]:
    """As ``parse``, with all that is wrong, which the configuration then lacks. Raises ConfigError for bad TOML."""
    document = _document(text, filename) if text else {}
    reading = _Reading(document, filename, lines.key_lines(text), directory)
    reading.overlay(_from_environment(environment or {}, reading.errors))
    reading.overlay(flags or {})
    config: Config = reading.table(Config, document, ())
    config = config.replace(filename=filename, places=reading.places)
    if not reading.lost:
        found = checks.check(config, document)
        reading.errors += [reading.error(*mistake) for mistake in found if not reading.follows(*mistake)]
    return config, sorted(reading.errors, key=lambda error: error.line)


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


def _from_environment(environment: Mapping[str, str], errors: list[ConfigError]) -> dict[str, tuple[object, str]]:
    known, fields = environment_names(), model.all_keys()
    found: dict[str, tuple[object, str]] = {}
    for variable, text in environment.items():
        if variable in known:
            kind = fields[known[variable]].kind
            found[known[variable]] = (text if kind is None else kind.from_text(text), variable)
        elif variable.startswith(ENVIRONMENT_OURS):
            from maptr.text import nearest

            errors.append(ConfigError(f"no such setting; the nearest is {nearest(variable, known)}", key=variable))
    return found


WRONG = object()  # in place of a value


class _Reading:
    """One document being read; ``places`` grows as keys are met, ``errors`` as they are found wrong.

    ``lost``: a table of an array is not there, for its keys are wrong, so those after it have other places.
    """

    def __init__(
        self, document: dict[str, Any], filename: str, found: Mapping[lines.Path, int], directory: Path | None
    ) -> None:
        self.document = document
        self.filename = filename
        self.lines = found
        self.directory = directory
        self.places: dict[str, tuple[str, int]] = {}
        self.errors: list[ConfigError] = []
        self.lost = False
        self._wrong: set[lines.Path] = set()  # keys that have no value, for theirs is wrong or they are misspelled
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
        """One table as its class; what is wrong in it has its default. WRONG where it has none."""
        if not isinstance(document, dict):
            return self._refuse(path, "must be a table")
        known = model.keys_of(kind)
        for key in document:
            if key not in known:
                near = self._nearest(path, key, known)
                self._refuse((*path, key), f"no such key; the nearest is {near}")
                self._wrong.add((*path, near.rpartition(".")[2]))
        found: dict[str, Any] = {}
        for key, (name, field) in known.items():
            here = (*path, key)
            value: object = WRONG
            if key in document:
                self.places.setdefault(_dotted(here), self._place(here))
                self.places[_indexed(here)] = self._place(here)
                value = self._value(field, document[key], here)
            elif field.default is REQUIRED:
                if here not in self._wrong:
                    self._refuse(path, f"has no {key}, which it must have")
            elif isinstance(field.default, Path):
                value = self._settle(field.default, here)
            if value is not WRONG:
                found[name] = value
        if any(field.default is REQUIRED and name not in found for name, field in known.values()):
            return WRONG
        return kind(**found)

    def _value(self, field: Field, value: object, path: lines.Path) -> object:
        if field.table:
            return self.table(field.table, value, path)
        if below := field.array:
            if not isinstance(value, list):
                return self._refuse(path, f"must be an array of tables, [[{_dotted(path)}]]")
            tables = [self.table(below, item, (*path, index)) for index, item in enumerate(value)]
            self.lost = self.lost or WRONG in tables
            return tuple(table for table in tables if table is not WRONG)
        kind = field.kind
        assert kind is not None  # noqa: S101 - a field is a value or one of the two above
        try:
            return self._settle(kind.read(value), path)
        except ElementError as error:
            for index, reason in error.wrong:
                self._refuse((*path, index), reason)
            self._wrong.add(path)
            return WRONG
        except ValueError as error:
            return self._refuse(path, str(error))

    def _refuse(self, path: lines.Path, message: str) -> object:
        self._wrong.add(path)
        self.errors.append(self.error(path, message))
        return WRONG

    def follows(self, path: lines.Path, message: str) -> bool:
        """Whether a mistake may only be there because a key that it is about has been refused."""
        words = {word.strip(".") for word in re.findall(r"[a-z_.0-9]+", message)}
        return any(
            wrong == path or _dotted(wrong) in words or (wrong[:-1] in (path, path[:-1]) and wrong[-1] in words)
            for wrong in self._wrong
            if wrong
        )

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
        from maptr.text import nearest

        here = f"{_dotted(path)}." if path else ""
        everywhere = [*model.all_keys(), *model.keys_of(Config)]
        if same := [other for other in everywhere if other.rpartition(".")[2] == key]:
            return same[0]
        if near := nearest(key, known, likeness=0.6):
            return here + near
        return nearest(here + key, everywhere)


def _dotted(path: lines.Path) -> str:
    """``zone.file``: which of the zones is meant, the line says."""
    return ".".join(part for part in path if isinstance(part, str))


def _indexed(path: lines.Path) -> str:
    """``zone[0].file``: that of the first zone."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
