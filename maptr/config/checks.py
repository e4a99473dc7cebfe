"""What no single value of a configuration shows: keys that exclude, need or name each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maptr.config import lines, model
from maptr.config.model import Config
from maptr.errors import ConfigError
from maptr.names import Labels, to_text

Error = Callable[[lines.Path, str], ConfigError]
"""Makes the error of a key or table, by its path, with the place where it stands."""


def check(config: Config, document: Mapping[str, Any], error: Error) -> None:
    """Raises ConfigError, where a key or table is at fault with what ``error`` makes of its path.

    ``document`` is what was read: it says which keys were given.
    """
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
    _check_keys(config, error)
    _check_zones(config, document, error)
    _check_table(config)


def _check_keys(config: Config, error: Error) -> None:
    seen: set[Labels] = set()
    for index, key in enumerate(config.keys):
        path: lines.Path = ("key", index)
        if key.name in seen:
            raise error((*path, "name"), f"the key {_shown(key.name)} is given twice")
        seen.add(key.name)
        if (key.secret is None) is (key.secret_file is None):
            raise error(path, f"the key {_shown(key.name)} needs one of secret and secret_file")
    for path, name in _key_names(config):
        if name not in seen:
            from maptr.nearest import nearest

            near = nearest(_shown(name), map(_shown, seen))
            reason = f"the nearest is {near}" if near else "no [[key]] is given"
            raise error(path, f"there is no key {_shown(name)}; {reason}")


def _check_zones(config: Config, document: Mapping[str, Any], error: Error) -> None:
    seen: set[Labels] = {config.serve.catalog.name} if config.serve.catalog.name is not None else set()
    for index, zone in enumerate(config.zones):
        if zone.name in seen:
            raise error(("zone", index, "name"), f"zone {to_text(zone.name)} is given twice")
        seen.add(zone.name)
        if zone.serial != "file" and config.serve.state is None:
            reason = f"{zone.serial} needs serve.state, where the serial published is kept over a restart"
            raise error(("zone", index, "serial"), reason)
        if zone.table is not None and zone.file in (zone.table, config.table.file):
            raise error(("zone", index, "file"), "is the registry: the zone built from it needs its own file")
        for name in ("ns", "contact", "ttl", "include"):
            if zone.table is None and name in document["zone"][index]:
                raise error(("zone", index, name), "is for a zone that is built, and this one has no table")
        _check_signing(config, zone, ("zone", index), error)


def _check_table(config: Config) -> None:
    table = config.table
    for name in ("mirrors", "every", "sha256", "public_key", "cafile"):
        if not table.url and getattr(table, name) != getattr(model.TableConfig(), name):
            raise config.error(f"table.{name}", "nothing uses it: table.url is not given")
    for name in ("url", "drift"):
        if getattr(table, name) and table.file is None:
            raise config.error(f"table.{name}", "needs table.file, where the registry is kept")
    if table.cafile is not None and not any("://" in source for source in table.sources):
        raise config.error("table.cafile", "nothing uses it: all sources are files")
    if table.url and not table.every:
        raise config.error("table.every", "must be more than nothing")


def _check_signing(config: Config, zone: model.ZoneConfig, path: lines.Path, error: Error) -> None:
    signing = zone.signing
    if zone.keys is None:
        if signing != model.SigningConfig():
            raise error((*path, "signing"), "nothing uses it: the zone has no keys")
        return
    if config.serve.state is None:
        reason = "a zone that is signed here needs serve.state, where it is kept over a restart"
        raise error((*path, "keys"), reason)
    if signing.lifetime <= signing.refresh:
        reason = f"signatures that last {signing.lifetime} s cannot be renewed {signing.refresh} s before their end"
        raise error((*path, "signing"), reason)


def _key_names(config: Config) -> Iterator[tuple[lines.Path, Labels]]:
    """Each place that names a key."""
    tables: list[tuple[lines.Path, Any]] = [(("serve", "catalog"), config.serve.catalog)]
    tables += [(("zone", index), zone) for index, zone in enumerate(config.zones)]
    for path, table in tables:
        for key in ("transfer", "notify"):
            for index, rule in enumerate(getattr(table, key)):
                if rule.key is not None:
                    yield (*path, key, index), rule.key


def _shown(name: Labels) -> str:
    return to_text(name).rstrip(".")
