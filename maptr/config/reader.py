"""Text to Config: each key known, each value right, each error with its place. Reads no file and no environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from maptr.config import lines, model
from maptr.config.model import Config
from maptr.config.tables import REQUIRED, Field, Table
from maptr.config.values import ElementError
from maptr.errors import ConfigError
from maptr.names import Labels, to_text

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
    reading.check(config)
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
            near = _close(variable, known, 1, 0)[0]
            raise ConfigError(f"no such setting; the nearest is {near}", key=variable)
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
            raise self._error(path, "must be a table")
        known = model.keys_of(kind)
        for key in document:
            if key not in known:
                raise self._error((*path, key), f"no such key; {self._nearest(path, key, known)}")
        found: dict[str, Any] = {}
        for key, (name, field) in known.items():
            here = (*path, key)
            if key in document:
                self.places.setdefault(_dotted(here), self._place(here))
                found[name] = self._value(field, document[key], here)
            elif field.default is REQUIRED:
                raise self._error(path, f"has no {key}, which it must have")
            elif isinstance(field.default, Path):
                found[name] = self._settle(field.default, here)
        return kind(**found)

    def _value(self, field: Field, value: object, path: lines.Path) -> object:
        if field.table:
            return self.table(field.table, value, path)
        if below := field.array:
            if not isinstance(value, list):
                raise self._error(path, f"must be an array of tables, [[{_dotted(path)}]]")
            return tuple(self.table(below, item, (*path, index)) for index, item in enumerate(value))
        kind = field.kind
        assert kind is not None  # noqa: S101 - a field is a value or one of the two above
        try:
            return self._settle(kind.read(value), path)
        except ElementError as error:
            raise self._error((*path, error.index), str(error)) from None
        except ValueError as error:
            raise self._error(path, str(error)) from None

    def _settle(self, value: object, path: lines.Path) -> object:
        """A path of the file is from the file's directory, one of a flag from where the command was given."""
        if path in self._outside or self.directory is None:
            return value
        if type(value) is tuple:  # and no record, which is one too
            return tuple(self._settle(one, path) for one in value)
        return self.directory / value if isinstance(value, Path) else value

    def _place(self, path: lines.Path) -> tuple[str, int]:
        for end in range(len(path), 0, -1):
            if path[:end] in self._outside:
                return self._outside[path[:end]], 0
            if path[:end] in self.lines:
                return self.filename, self.lines[path[:end]]
        return self.filename, 0

    def _error(self, path: lines.Path, message: str) -> ConfigError:
        filename, line = self._place(path)
        return ConfigError(message, filename=filename, line=line, key=_dotted(path))

    def _nearest(self, path: lines.Path, key: str, known: Iterable[str]) -> str:
        """The nearest right key: spelled nearly so here, or so elsewhere, or whatever is nearest."""
        here = f"{_dotted(path)}." if path else ""
        everywhere = [*model.all_keys(), *model.keys_of(Config)]
        if same := [other for other in everywhere if other.rpartition(".")[2] == key]:
            return f"the nearest is {same[0]}"
        if near := _close(key, known, 1):
            return f"the nearest is {here}{near[0]}"
        return f"the nearest is {_close(here + key, everywhere, 1, 0)[0]}"

    def check(self, config: Config) -> None:
        """What no single value shows. Raises ConfigError."""
        serve = config.serve
        tls = serve.tls
        if not serve.listen and not tls.listen:
            raise config.error("serve.listen", "is empty: there is no address to answer on")
        for name, value in (("certificate", tls.certificate), ("key", tls.key)):
            if tls.listen and value is None:
                raise config.error("serve.tls.listen", f"needs serve.tls.{name} too")
            if value is not None and not tls.listen:
                raise config.error(f"serve.tls.{name}", "nothing uses it: serve.tls.listen is empty")
        if serve.cookies.secret and serve.cookies.secret_file:
            raise config.error("serve.cookies.secret_file", "serve.cookies.secret is given too: one of them is wanted")
        self._check_keys(config)
        self._check_zones(config)
        self._check_table(config)

    def _check_keys(self, config: Config) -> None:
        seen: set[Labels] = set()
        for index, key in enumerate(config.keys):
            path: lines.Path = ("key", index)
            if key.name in seen:
                raise self._error((*path, "name"), f"the key {_shown(key.name)} is given twice")
            seen.add(key.name)
            if (key.secret is None) is (key.secret_file is None):
                raise self._error(path, f"the key {_shown(key.name)} needs one of secret and secret_file")
        for path, name in _key_names(config):
            if name not in seen:
                near = _close(_shown(name), map(_shown, seen), 1, 0)
                reason = f"the nearest is {near[0]}" if near else "no [[key]] is given"
                raise self._error(path, f"there is no key {_shown(name)}; {reason}")

    def _check_zones(self, config: Config) -> None:
        seen: set[Labels] = {config.serve.catalog.name} if config.serve.catalog.name is not None else set()
        for index, zone in enumerate(config.zones):
            if zone.name in seen:
                raise self._error(("zone", index, "name"), f"zone {to_text(zone.name)} is given twice")
            seen.add(zone.name)
            if zone.serial != "file" and config.serve.state is None:
                reason = f"{zone.serial} needs serve.state, where the serial published is kept over a restart"
                raise self._error(("zone", index, "serial"), reason)
            if zone.table is not None and zone.file in (zone.table, config.table.file):
                raise self._error(("zone", index, "file"), "is the registry: the zone built from it needs its own file")
            for name in ("ns", "contact", "ttl", "include"):
                if zone.table is None and name in self.document["zone"][index]:
                    raise self._error(("zone", index, name), "is for a zone that is built, and this one has no table")
            self._check_signing(config, zone, ("zone", index))

    def _check_table(self, config: Config) -> None:
        table = config.table
        for name in ("mirrors", "every", "sha256", "public_key", "cafile"):
            if not table.url and getattr(table, name) != getattr(model.TableConfig(), name):
                raise config.error(f"table.{name}", "nothing uses it: table.url is not given")
        for name in ("url", "drift"):
            if getattr(table, name) and table.file is None:
                raise config.error(f"table.{name}", "needs table.file, where the registry is kept")
        if table.url and not table.every:
            raise config.error("table.every", "must be more than nothing")

    def _check_signing(self, config: Config, zone: model.ZoneConfig, path: lines.Path) -> None:
        signing = zone.signing
        if zone.keys is None:
            if signing != model.SigningConfig():
                raise self._error((*path, "signing"), "nothing uses it: the zone has no keys")
            return
        if config.serve.state is None:
            reason = "a zone that is signed here needs serve.state, where it is kept over a restart"
            raise self._error((*path, "keys"), reason)
        if signing.lifetime <= signing.refresh:
            reason = f"signatures that last {signing.lifetime} s cannot be renewed {signing.refresh} s before their end"
            raise self._error((*path, "signing"), reason)


def _key_names(config: Config) -> Iterator[tuple[lines.Path, Labels]]:
    """Each place that names a key."""
    tables: list[tuple[lines.Path, Any]] = [(("serve", "catalog"), config.serve.catalog)]
    tables += [(("zone", index), zone) for index, zone in enumerate(config.zones)]
    for path, table in tables:
        for key in ("transfer", "notify"):
            for index, rule in enumerate(getattr(table, key)):
                if rule.key is not None:
                    yield (*path, key, index), rule.key


def _dotted(path: lines.Path) -> str:
    """``zone.file``: which of the zones is meant, the line says."""
    return ".".join(part for part in path if isinstance(part, str))


def _close(word: str, words: Iterable[str], count: int, cutoff: float = 0.6) -> list[str]:
    import difflib  # here, for errors alone need it

    return difflib.get_close_matches(word, list(words), count, cutoff)


def _shown(name: Labels) -> str:
    return to_text(name).rstrip(".")
