"""Checks of a configuration as a whole: keys that exclude, require or refer to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maptr import url
from maptr.config import lines, model
from maptr.config.model import Config
from maptr.errors import ZoneError
from maptr.protocol.names import Labels, to_text
from maptr.text import nearest

Mistakes = Iterator[tuple[lines.KeyPath, str]]
"""The path of each wrong key or table, and the reason."""


def check(config: Config, document: Mapping[str, Any]) -> Mistakes:
    """All mistakes of a configuration. ``document`` is the TOML, which shows the keys that were given."""
    serve = config.serve
    tls = serve.tls
    if not serve.listen and not tls.listen:
        yield ("serve", "listen"), "is empty: the server needs an address"
    for name, value in (("certificate", tls.certificate), ("key", tls.key)):
        if tls.listen and value is None:
            yield ("serve", "tls", "listen"), f"needs serve.tls.{name} too"
        if value is not None and not tls.listen:
            yield ("serve", "tls", name), "has no effect: serve.tls.listen is empty"
    if serve.cookies.secret and serve.cookies.secret_file:
        yield ("serve", "cookies", "secret_file"), "serve.cookies.secret is given too: only one of them is allowed"
    yield from _check_keys(config)
    yield from _check_zones(config, document)
    yield from _check_table(config)
    yield from _check_servers(("client", "nameservers"), config.client.nameservers)


def _check_keys(config: Config) -> Mistakes:
    seen: set[Labels] = set()
    for index, key in enumerate(config.keys):
        path: lines.KeyPath = ("key", index)
        if key.name in seen:
            yield (*path, "name"), f"the key {_shown(key.name)} is given twice"
        seen.add(key.name)
        if (key.secret is None) is (key.secret_file is None):
            yield path, f"the key {_shown(key.name)} needs one of secret and secret_file"
    for path, name in _key_names(config):
        if name not in seen:
            near = nearest(_shown(name), map(_shown, seen))
            reason = f"the nearest is {near}" if near else "no [[key]] is given"
            yield path, f"there is no key {_shown(name)}; {reason}"


def _check_zones(config: Config, document: Mapping[str, Any]) -> Mistakes:
    seen: set[Labels] = {config.serve.catalog.name} if config.serve.catalog.name is not None else set()
    for index, zone in enumerate(config.zones):
        if zone.name in seen:
            yield ("zone", index, "name"), f"zone {to_text(zone.name)} is given twice"
        seen.add(zone.name)
        if zone.serial != "file" and config.serve.state is None:
            reason = f"{zone.serial} needs serve.state, which keeps the published serial over a restart"
            yield ("zone", index, "serial"), reason
        if zone.table is not None and zone.file in (zone.table, config.table.file):
            yield ("zone", index, "file"), "is the registry: the zone built from it needs a file of its own"
        if zone.table is not None and zone.ns:
            from maptr.zone.build import NameServer  # here, because dnspython delays the start of a command

            for number, text in enumerate(zone.ns):
                try:
                    NameServer.parse(text, zone.name)
                except ZoneError as error:
                    yield ("zone", index, "ns", number), error.reason
        for name in ("ns", "contact", "ttl", "include"):
            if zone.table is None and name in document["zone"][index]:
                yield ("zone", index, name), "is for zones built from a table, and this one has no table"
        yield from _check_signing(config, zone, ("zone", index))


def _check_table(config: Config) -> Mistakes:
    table = config.table
    for name in ("mirrors", "every", "sha256", "public_key", "cafile"):
        if not table.url and getattr(table, name) != getattr(model.TableConfig(), name):
            yield ("table", name), "has no effect: table.url is not given"
    for name in ("url", "drift"):
        if getattr(table, name) and table.file is None:
            yield ("table", name), "needs table.file, which holds the registry"
    for name, sources in (("url", [table.url]), ("mirrors", table.mirrors)):
        for source in sources:
            if reason := _unusable(source):
                yield ("table", name), reason
    yield from _check_servers(("table", "drift"), table.drift)
    if table.cafile is not None and not any("://" in source for source in table.sources):
        yield ("table", "cafile"), "has no effect: all sources are files"
    if table.url and not table.every:
        yield ("table", "every"), "must be more than 0"


def _check_servers(path: lines.KeyPath, servers: Sequence[str]) -> Mistakes:
    if not servers:
        return
    from maptr.client.servers import check_server  # here, because sockets and TLS delay the start of a command

    for index, text in enumerate(servers):
        try:
            check_server(text)
        except ValueError as error:
            yield (*path, index), str(error)


def _unusable(source: str) -> str:
    """Why a source of the registry is not usable; "" for a file and for an HTTP URL."""
    if not re.match("[A-Za-z][A-Za-z0-9+.-]+:", source):
        return ""
    try:
        url.parse(source)
    except ValueError as error:
        return f"{source}: {error}"
    return ""


def _check_signing(config: Config, zone: model.ZoneConfig, path: lines.KeyPath) -> Mistakes:
    signing = zone.signing
    if zone.keys is None:
        if signing != model.SigningConfig():
            yield (*path, "signing"), "has no effect: the zone has no keys"
        return
    if config.serve.state is None:
        reason = "the server signs this zone, so it needs serve.state, which keeps it over a restart"
        yield (*path, "keys"), reason
    if signing.lifetime <= signing.refresh:
        reason = f"signatures with a lifetime of {signing.lifetime} s cannot be renewed {signing.refresh} s earlier"
        yield (*path, "signing"), reason


def _key_names(config: Config) -> Iterator[tuple[lines.KeyPath, Labels]]:
    """Each reference to a key: its path, and the name of the key."""
    tables: list[tuple[lines.KeyPath, Any]] = [(("serve", "catalog"), config.serve.catalog)]
    tables += [(("zone", index), zone) for index, zone in enumerate(config.zones)]
    for path, table in tables:
        for key in ("transfer", "notify"):
            for index, rule in enumerate(getattr(table, key)):
                if rule.key is not None:
                    yield (*path, key, index), rule.key


def _shown(name: Labels) -> str:
    return to_text(name).rstrip(".")
