"""The reader of configurations: defaults < ``maptr.toml`` < ``MAPTR_*`` < flags. Each error has its file and line."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar, Unpack

from maptr import url
from maptr.config import model
from maptr.config.lines import KeyPath, key_lines
from maptr.config.model import Config, ElementError, NotInstalled, read_cookie_secrets, read_tsig_secret
from maptr.errors import ConfigError, SigningError, ZoneError, nearest, raise_all
from maptr.files import AT_ONCE, read_up_to, secret_fault
from maptr.paths import LOCAL_CONFIG
from maptr.protocol.address import Address
from maptr.protocol.names import Labels, to_text
from maptr.transfer.acl import AccessRule, NotifyTarget

T = TypeVar("T")
Flags = Mapping[str, tuple[object, str]]
"""For each dotted key, a TOML value and the option that gave it."""
Mistakes = Iterator[tuple[KeyPath, str]]
"""The path of each wrong key or table, and the reason."""

FILE_VARIABLE = "MAPTR_CONFIG"
ENVIRONMENT = "MAPTR_"
# Only variables with these prefixes are checked for unknown names, because other programs may use MAPTR_.
ENVIRONMENT_OURS = ("MAPTR_SERVE_", "MAPTR_TABLE_", "MAPTR_CLIENT_", "MAPTR_CACHE_", "MAPTR_GATEWAY_")
MAX_FILE = 16 * 1024 * 1024  # bytes; the configuration of a zone takes about 100
MAX_SECRET = 4096  # bytes of a secret file


def find(environment: Mapping[str, str]) -> Path | None:
    """Return the default file: the one that ``MAPTR_CONFIG`` names, or an existing ``maptr.toml`` in this folder."""
    if named := environment.get(FILE_VARIABLE):
        return Path(named)
    return Path(LOCAL_CONFIG) if Path(LOCAL_CONFIG).exists() else None


class ConfigSources(TypedDict, total=False):
    """The sources of values that override the file."""

    environment: Mapping[str, str]
    flags: Flags


def load(path: Path | None, *, secrets: bool = True, **sources: Unpack[ConfigSources]) -> Config:
    """Load the configuration, from a file if there is one. ``secrets``: also read the secret files.

    Raises ConfigError with file, line and key, or ConfigErrors for several mistakes; and OSError if the file itself
    cannot be read.
    """
    config, errors = examine(path, secrets=secrets, **sources)
    raise_all(errors)
    return config


def parse(
    text: str = "", *, filename: str = "", directory: Path | None = None, **sources: Unpack[ConfigSources]
) -> Config:
    """Parse the configuration in a TOML text. Relative paths in the text start from ``directory``.

    It reads no files, not even secret files. Raises ConfigError, or ConfigErrors for several mistakes.
    """
    config, errors = _examine_text(text, filename, directory, **sources)
    raise_all(errors)
    return config


def from_document(document: dict[str, Any], *, filename: str, directory: Path) -> Config:
    """Return the configuration that a file with these TOML values would give. Raises the same errors as ``parse``."""
    config, errors = _examine_document(document, _Origins("", filename), directory)
    raise_all(errors)
    return config


def examine(
    path: Path | None, *, secrets: bool = True, for_other: bool = False, **sources: Unpack[ConfigSources]
) -> tuple[Config, list[ConfigError]]:
    """Load the configuration, with defaults in place of wrong values, and return it with the mistakes.

    ``for_other``: root checks it for a server that runs as another user, who may read secrets through its group.
    Raises ConfigError for a file that is not TOML, and OSError.
    """
    if path is None:
        config, errors = _examine_text("", "", None, **sources)
    else:
        try:
            text = _text(path)
        except OSError as error:
            if sources.get("environment", {}).get(FILE_VARIABLE) == str(path):
                error.strerror = f"{error.strerror}; {FILE_VARIABLE} names it"
            raise
        config, errors = _examine_text(text, str(path), path.parent, **sources)
    if secrets:
        config = with_secrets(config, errors, for_other=for_other)
    return config, sorted(errors, key=lambda error: error.line)


def _examine_text(
    text: str,
    filename: str,
    directory: Path | None,
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
    flags: Flags = MappingProxyType({}),
) -> tuple[Config, list[ConfigError]]:
    document = _document(text, filename) if text else {}
    return _examine_document(document, _Origins(text, filename), directory, environment=environment, flags=flags)


def _examine_document(
    document: dict[str, Any],
    origins: _Origins,
    directory: Path | None,
    *,
    environment: Mapping[str, str] = MappingProxyType({}),
    flags: Flags = MappingProxyType({}),
) -> tuple[Config, list[ConfigError]]:
    reading = _Reading(document, origins, directory)
    reading.overlay(_from_environment(environment, reading.errors))
    reading.overlay(flags)
    reading.take_removed()
    config: Config = reading.table(Config, document, ())
    state, scheme = config.serve.state, config.client.scheme
    zones = tuple(dataclasses.replace(zone, state=state, scheme=scheme) for zone in config.zones)
    config = dataclasses.replace(
        config, zones=zones, filename=origins.filename, locations=reading.locations, removed=tuple(reading.removed)
    )
    if not reading.unread:  # otherwise, one mistake may just follow from another
        reading.errors += [reading.error(*mistake) for mistake in _check(config)]
    return config, sorted(reading.errors, key=lambda error: error.line)


def read_document(path: Path) -> dict[str, Any]:
    """Read a file in TOML. Raises ConfigError with file and line, and OSError."""
    return _document(_text(path), str(path))


def _document(text: str, filename: str) -> dict[str, Any]:
    import tomli  # late: many commands run without a configuration file

    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        found = re.match(r"line (\d+),", place)
        line = int(found[1]) if found else text.count("\n") + 1  # tomli says "end of document"
        raise ConfigError(reason, filename=filename, line=line, of_text=True) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", filename=filename, of_text=True) from None
    except ValueError:  # which int() raises for more digits than Python converts
        match = re.search(r"\d{1000}", text.replace("_", ""))
        line = text.replace("_", "").count("\n", 0, match.start()) + 1 if match else 0
        raise ConfigError("has a number with too many digits", filename=filename, line=line, of_text=True) from None


def environment_names() -> dict[str, str]:
    """Return the environment variables of all keys outside arrays of tables, with their keys."""
    arrays = tuple(f"{key}." for key, field in model.keys_of(Config).items() if "array" in field.metadata)
    keys = (key for key in (*model.all_keys(), *model.REMOVED) if not key.startswith(arrays))
    return {ENVIRONMENT + key.replace(".", "_").upper(): key for key in keys}


def _from_environment(environment: Mapping[str, str], errors: list[ConfigError]) -> dict[str, tuple[object, str]]:
    known, fields = environment_names(), model.all_keys()
    found: dict[str, tuple[object, str]] = {}
    for variable, text in environment.items():
        if variable in known:
            key = known[variable]
            field = fields.get(model.successor_of(key))
            found[key] = text if field is None else field.metadata["type"].from_text(text), variable
        elif variable.startswith(ENVIRONMENT_OURS):
            reason = f"no such setting; the nearest is {nearest(variable, known)}"
            errors.append(ConfigError(reason, key=variable, of_text=True))
    return found


WRONG = object()  # stands for a value that cannot be read


class _Origins(Mapping[str, tuple[str, int]]):
    """The file and line, or the variable or option, of each key that is set, such as ``zone[0].file``.

    Lines are only determined when one is needed, because few configurations have a mistake.
    """

    def __init__(self, text: str, filename: str) -> None:
        self._text = text
        self.filename = filename
        self.paths: dict[str, KeyPath] = {}
        self.outside: dict[KeyPath, str] = {}  # the variable or option that sets a key
        self._moved: dict[KeyPath, KeyPath] = {}  # the removed setting that gave a key its value

    def move(self, old: KeyPath, new: KeyPath) -> None:
        """Give a key another key's origin."""
        self._moved[new] = old
        if old in self.outside:
            self.outside[new] = self.outside[old]

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        return key_lines(self._text)

    def __getitem__(self, key: str) -> tuple[str, int]:
        return self.find(self.paths[key])

    def __contains__(self, key: object) -> bool:
        return key in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, path: KeyPath) -> tuple[str, int]:
        """Return where a key is set; if it is not set, where the innermost table around it begins."""
        parts = [path[:end] for end in range(len(path), 0, -1)]
        parts = [self._moved.get(part, part) for part in parts]
        for part in parts:  # before the lines, because the file may also have the key
            if part in self.outside:
                return self.outside[part], 0
        return self.filename, next((self._lines[part] for part in parts if part in self._lines), 0)


class _Reading:
    """The reading of one document: its ``locations`` and ``errors``, and whether the value of any key is ``unread``."""

    def __init__(self, document: dict[str, Any], locations: _Origins, directory: Path | None) -> None:
        self.document = document
        self.locations = locations
        self.directory = directory
        self.errors: list[ConfigError] = []
        self.removed: list[ConfigError] = []
        self.unread = False

    def overlay(self, given: Mapping[str, tuple[object, str]]) -> None:
        """Replace values of the file by values from the environment or the command line."""
        for key, (value, source) in given.items():
            *above, last = key.split(".")
            table = self.document
            for part in above:
                table = table.setdefault(part, {})
                if not isinstance(table, dict):
                    break  # the file has a value where a table belongs; ``table`` reports it
            else:
                table[last] = value
                self.locations.outside[tuple(key.split("."))] = source

    def take_removed(self) -> None:
        """Take removed settings out of the document, each with a warning, and give their values to their successors."""
        for key, removed in model.REMOVED.items():
            *above, last = key.split(".")
            for path, table in _tables(self.document, above):
                if last not in table:
                    continue
                successor = removed.successor.rpartition(".")[2]
                old, new = (*path, last), (*path, successor)
                advice = "; ".join(filter(None, (removed.successor and f"write {removed.successor}", removed.advice)))
                self.removed.append(self.error(old, f"is no longer a setting: {advice}", of_text=False))
                value = table.pop(last)
                if successor and successor not in table:
                    table[successor] = value
                    self.locations.move(old, new)

    def table(self, kind: type[Any], document: object, path: KeyPath) -> Any:
        """Read a table into its class. A wrong value gets its default; without one, the table is WRONG."""
        if not isinstance(document, dict):
            return self._refuse(path, "must be a table")
        known = model.keys_of(kind)
        for key in document:
            if key not in known:
                near = _nearest(path, key, known)
                advice = f"the nearest is {near}" if near else f"there are {', '.join(sorted(known))}"
                self.errors.append(self.error((*path, key), f"no such key; {advice}"))
        found: dict[str, Any] = {}
        required = {key for key, field in known.items() if model.is_required(field)}
        for key, field in known.items():
            here = (*path, key)
            value: object = WRONG
            if key in document:
                self.locations.paths[_indexed(here)] = here
                if "type" in field.metadata and isinstance(document[key], dict):  # a table of any keys
                    self.locations.paths |= {_indexed(below): below for below in _paths(document[key], here)}
                value = self._value(field, document[key], here)
            elif key in required:
                self._refuse(path, f"has no {key}, which is required")
            elif isinstance(field.default, Path):
                value = self._absolute(field.default, here)
            if value is not WRONG:
                found[field.name] = value
        if any(known[key].name not in found for key in required):
            return WRONG
        try:
            return kind(**found)
        except SigningError as error:  # the values can be read, so the checks between keys still run
            self.errors.append(self.error(path, error.reason))
            return kind()

    def _value(self, field: dataclasses.Field[Any], value: object, path: KeyPath) -> object:
        if below := field.metadata.get("table"):
            return self.table(below, value, path)
        if below := field.metadata.get("array"):
            if not isinstance(value, list):
                return self._refuse(path, f"must be an array of tables, [[{_dotted(path)}]]")
            tables = (self.table(below, item, (*path, index)) for index, item in enumerate(value))
            return tuple(table for table in tables if table is not WRONG)
        try:
            return self._absolute(field.metadata["type"].read(value), path)
        except ElementError as error:
            for below, reason in error.wrong:
                self._refuse((*path, *below), reason)
            return WRONG
        except ValueError as error:
            return self._refuse(path, str(error), of_text=not isinstance(error, NotInstalled))

    def _refuse(self, path: KeyPath, message: str, *, of_text: bool = True) -> object:
        self.errors.append(self.error(path, message, of_text=of_text))
        self.unread = True
        return WRONG

    def _absolute(self, value: object, path: KeyPath) -> object:
        """Resolve a relative path in the file against the file's folder. A path in a flag is not changed."""
        if path in self.locations.outside or self.directory is None:
            return value
        if type(value) is tuple:  # not a NamedTuple
            return tuple(self._absolute(one, path) for one in value)
        if isinstance(value, model.PullSource) and value and "://" not in value:
            return str(self.directory / value)
        return self.directory / value if isinstance(value, Path) else value

    def error(self, path: KeyPath, message: str, *, of_text: bool = True) -> ConfigError:
        filename, line = self.locations.find(path)
        return ConfigError(message, filename=filename, line=line, key=_dotted(path), of_text=of_text)


def _nearest(path: KeyPath, key: str, known: Iterable[str]) -> str:
    """Return the same key of another table, or else a similar key of this table; "" if there is none."""
    everywhere = [*model.all_keys(), *model.keys_of(Config)]
    if same := [other for other in everywhere if other.rpartition(".")[2] == key]:
        return same[0]
    near = nearest(key, known, likeness=0.6)
    return _dotted((*path, near)) if near else ""


def _tables(table: Any, keys: Sequence[str], path: KeyPath = ()) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield each table at these keys of a document, with its path; an array of tables has several."""
    if isinstance(table, list):
        for index, one in enumerate(table):
            yield from _tables(one, keys, (*path, index))
    elif isinstance(table, dict) and keys:
        yield from _tables(table.get(keys[0]), keys[1:], (*path, keys[0]))
    elif isinstance(table, dict):
        yield path, table


def _dotted(path: KeyPath) -> str:
    """Write a key without the index of its table: ``zone.file``."""
    return ".".join(part for part in path if isinstance(part, str))


def _indexed(path: KeyPath) -> str:
    """Write a key with the index of its table: ``zone[0].file``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _paths(value: object, path: KeyPath = ()) -> Iterator[Any]:
    """Yield the path of each key and element in a value."""
    if path:
        yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in below:
        yield from _paths(inner, (*path, part))


# ---- Files


def _text(path: Path) -> str:
    try:
        octets = _read(path, MAX_FILE)
    except ValueError as error:
        raise ConfigError(str(error), filename=str(path), of_text=True) from None
    try:
        return octets.decode("utf-8-sig")  # editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8", filename=str(path), line=line, of_text=True) from None


def with_secrets(config: Config, errors: list[ConfigError], *, for_other: bool = False) -> Config:
    """Return the configuration with the secrets from their files. Appends errors to ``errors``."""

    def secret(key: str, path: Path, read: Callable[[str], T]) -> T | None:
        try:
            octets = _read(path, MAX_SECRET, fault=lambda status: secret_fault(status, for_other=for_other))
            return read(octets.decode("ascii", "replace"))
        except (OSError, ValueError) as error:
            errors.append(config.error(key, f"{path}: {getattr(error, 'strerror', None) or error}"))
            return None

    keys = [
        key
        if key.secret_file is None
        else dataclasses.replace(key, secret=secret(f"key[{index}].secret_file", key.secret_file, read_tsig_secret))
        for index, key in enumerate(config.keys)
    ]
    cookies = config.serve.cookies
    if cookies.secret_file is not None:
        secrets = secret("serve.cookies.secret_file", cookies.secret_file, read_cookie_secrets)
        cookies = dataclasses.replace(cookies, secret=secrets or ())
    return dataclasses.replace(config, keys=tuple(keys), serve=dataclasses.replace(config.serve, cookies=cookies))


def _read(path: Path, limit: int, *, fault: Callable[[os.stat_result], str] = lambda status: "") -> bytes:
    """Read a file. ``fault`` returns why it must not be read. Raises ValueError and OSError."""
    if path.is_dir():  # os.open accepts a folder, and the error of ``read`` would name a file descriptor
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    handle = os.open(path, os.O_RDONLY | AT_ONCE)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if reason := fault(status):
            raise ValueError(reason)
        octets = read_up_to(file, limit)
    if len(octets) > limit:
        raise ValueError(f"has more than {limit} bytes")
    return octets


# ---- Keys that exclude, require or name other keys


def _check(config: Config) -> Mistakes:
    serve = config.serve
    if not serve.listen and not serve.tls.listen:
        yield ("serve", "listen"), "is empty: the server needs an address"
    if serve.cookies.secret and serve.cookies.secret_file:
        yield ("serve", "cookies", "secret_file"), "serve.cookies.secret is also set: only one of them is allowed"
    yield from _check_keys(config)
    yield from check_references(config)
    yield from _check_zones(config)
    yield from _check_gateway(config.gateway)
    yield from _check_settings(config)


def _check_keys(config: Config) -> Mistakes:
    seen: set[Labels] = set()
    for index, key in enumerate(config.keys):
        path: KeyPath = ("key", index)
        if key.name in seen:
            yield (*path, "name"), f"the key {_shown(key.name)} is given twice"
        seen.add(key.name)
        if (key.secret is None) is (key.secret_file is None):
            yield path, f"the key {_shown(key.name)} needs one of secret and secret_file"


def check_references(config: Config) -> Mistakes:
    """Yield an error for each rule for secondaries that names an unknown TSIG key."""
    known = {key.name: _shown(key.name) for key in config.keys}
    tables: list[tuple[KeyPath, model.CatalogConfig | model.ZoneConfig]]
    tables = [(("serve", "catalog"), config.serve.catalog)]
    tables += [(("zone", index), zone) for index, zone in enumerate(config.zones)]
    for path, table in tables:
        rules: list[tuple[str, int, AccessRule | NotifyTarget]]
        rules = [("transfer", index, rule) for index, rule in enumerate(table.transfer)]
        rules += [("notify", index, target) for index, target in enumerate(table.notify)]
        for key, index, rule in rules:
            if rule.key is not None and rule.key not in known:
                near = nearest(_shown(rule.key), known.values())
                reason = f"the nearest is {near}" if near else "no key is given"
                yield (*path, key, index), f"there is no key {_shown(rule.key)}; {reason}"


def _check_zones(config: Config) -> Mistakes:
    seen: set[Labels] = {config.serve.catalog.name} if config.serve.catalog.name is not None else set()
    for index, zone in enumerate(config.zones):
        if zone.name in seen:
            yield ("zone", index, "name"), f"zone {to_text(zone.name)} is given twice"
        seen.add(zone.name)
        if zone.table is not None and zone.ns:
            from maptr.zone.build import NameServer  # late: dnspython delays the start of a command

            for number, text in enumerate(zone.ns):
                try:
                    NameServer.parse(text, zone.name)
                except ZoneError as error:
                    yield ("zone", index, "ns", number), error.reason
        if zone.keys is None and zone.signing != model.SigningConfig():
            yield ("zone", index, "signing"), "also needs zone.keys"
    sources = config.table.sources
    if config.table.cafile is not None and sources and not any("://" in source for source in sources):
        yield ("table", "cafile"), "has no effect: all sources are files"


def _check_gateway(gateway: model.GatewayConfig) -> Mistakes:
    if not gateway.listen:
        yield ("gateway", "listen"), "is empty: the gateway needs an address"
    if gateway.root and url.normalized(gateway.root) == url.normalized(gateway.public_url):
        yield ("gateway", "root"), "is gateway.public_url: the gateway would redirect to itself"


def _check_settings(config: Config) -> Mistakes:
    """Check that no key lacks one that it needs, no process binds an address twice, and each file has one content."""
    bound: set[tuple[object, Address]] = set()
    real_folder = cache(os.path.realpath)  # thousands of zones have their files in a few folders

    def real_path(path: Path) -> str:
        found = os.path.join(real_folder(path.parent), path.name)  # noqa: PTH118 - much faster than pathlib
        return os.path.realpath(found) if path.name == ".." or os.path.islink(found) else found  # noqa: PTH114

    known: dict[str, tuple[str, KeyPath]] = {}
    for path, field, value, table in _settings(config, ()):
        for needed in field.metadata["needs"] if value != field.default else ():
            if not attrgetter(needed)(config if "." in needed else table):
                yield path, f"also needs {needed if '.' in needed else _dotted((*path[:-1], needed))}"
        content = field.metadata["content"]
        if path[-1] == "file" and getattr(table, "table", None):
            content += f" built for {path[1]}"  # the server writes it
        if not value:
            continue
        for number, one in enumerate(value if type(value) is tuple else (value,)):
            if isinstance(one, Address) and one.port:  # port 0 is a different port each time
                if (path[0], one) in bound:
                    yield (*path, number), f"{one} is given twice"
                bound.add((path[0], one))
            elif content and one:
                first, before = known.setdefault(real_path(one), (content, path))
                if first != content:
                    yield (*path, number), f"{one} is also used by {_dotted(before)}: use separate files"


def _settings(table: Any, path: KeyPath) -> Iterator[tuple[KeyPath, dataclasses.Field[Any], Any, Any]]:
    """Yield the path, the field and the value of each key, and its table."""
    for key, field in model.keys_of(type(table)).items():
        value, here = getattr(table, field.name), (*path, key)
        if "table" in field.metadata:
            yield from _settings(value, here)
        elif "array" in field.metadata:
            for index, one in enumerate(value):
                yield from _settings(one, (*here, index))
        else:
            yield here, field, value, table


def _shown(name: Labels) -> str:
    return to_text(name).rstrip(".")
