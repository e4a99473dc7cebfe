"""The daemon's parts, made from the configuration, and errors for settings that cannot take effect.

A setting that cannot take effect is an error, because the operator relies on it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from maptr.answer.context import NO_COOKIES, Context, Identity
from maptr.config import Config, KeyConfig, ZoneConfig
from maptr.config.model import read_name
from maptr.config.reader import check_references
from maptr.daemon import process
from maptr.daemon.pulling import sources_of
from maptr.errors import ConfigError
from maptr.protocol.cookies import KEY_SIZE, CookieSettings, is_installed
from maptr.protocol.names import Folded, Labels, fold, to_text
from maptr.server.alarm import Silence, not_served
from maptr.server.query_log import QueryLog
from maptr.server.responder import Responder
from maptr.transfer.acl import AccessRule, NotifyTarget, Secondaries, TsigKey
from maptr.transfer.catalog import catalog_zone

# Settings in [serve] that a reload can change. The rest need a restart.
RELOADED = frozenset({"nsid", "version", "hostname", "udp_payload", "cookies", "catalog", "secondaries", "silence"})


def overridden(
    config: Config,
    *,
    zones: tuple[ZoneConfig, ...] = (),
    keys: tuple[KeyConfig, ...] = (),
    transfer: tuple[AccessRule, ...] = (),
    notify: tuple[NotifyTarget, ...] = (),
) -> Config:
    """Return the configuration with the command line's zones and keys, which replace those of the same name.

    Its secondaries apply to every zone and to the catalog. ``config.load`` handles the other options. Raises
    ConfigError.
    """
    for option, given in (("--zone", zones), ("--key", keys)):
        names = [one.name for one in given]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"{to_text(twice[0])} is given twice", key=option, of_text=True)
    by_name = {zone.name: zone for zone in config.zones}
    for zone in zones:
        new = replace(zone, state=config.serve.state, scheme=config.client.scheme)
        by_name[zone.name] = replace(by_name.get(zone.name, new), file=zone.file, table=zone.table)
    all_keys = {key.name: key for key in (*config.keys, *keys)}
    secondaries: dict[str, Any] = {"transfer": transfer} if transfer else {}
    secondaries |= {"notify": notify} if notify else {}
    serve = replace(config.serve, catalog=replace(config.serve.catalog, **secondaries))
    changed = tuple(by_name.values())
    if secondaries:
        changed = tuple(replace(zone, **secondaries) for zone in changed)
    return replace(config, serve=serve, keys=tuple(all_keys.values()), zones=changed)


def mistakes(config: Config) -> list[ConfigError]:
    """Return an error for each setting that cannot take effect on this system."""
    errors: list[ConfigError] = []
    checks: list[Callable[[Config], object]] = [
        process.check_user,
        _check_catalog,
        _check_twice,
        _check_metrics,
        silences_of,
        sources_of,
    ]
    for check in checks:
        try:
            check(config)
        except ConfigError as error:
            errors += error.all
    # Checked here, because the command line may add keys, and once, because each zone would repeat an error.
    return errors + [
        ConfigError(reason, of_text=True) for reason in dict.fromkeys(reason for _, reason in check_references(config))
    ]


def _check_metrics(config: Config) -> None:
    if config.serve.metrics is not None and find_spec("prometheus_client") is None:
        raise config.error("serve.metrics", "needs the package prometheus-client: pip install 'maptr[metrics]'")


def _check_catalog(config: Config) -> None:
    if config.serve.catalog.name is not None:
        catalog_zone(config.serve.catalog.name, [zone.name for zone in config.zones], 0)


def _check_twice(config: Config) -> None:
    """Raise ConfigError for a server that is named twice: the status and the metrics list each once."""
    named: dict[str, tuple[object, ...]] = {f"zone[{at}].notify": zone.notify for at, zone in enumerate(config.zones)}
    named |= {"serve.catalog.notify": config.serve.catalog.notify, "table.drift": config.table.drift}
    for key, servers in named.items():
        if twice := [server for server in servers if servers.count(server) > 1]:
            raise config.error(key, f"{twice[0]} is given twice", of_text=True)


def check_change(now: Config, new: Config) -> None:
    """Raise ConfigError for a changed setting that needs a restart, and for one that cannot take effect."""
    for name in vars(now.serve):
        if name not in RELOADED and getattr(now.serve, name) != getattr(new.serve, name):
            raise new.error(f"serve.{name}", "changed, which needs a restart; nothing was reloaded")
    _check_twice(new)
    silences_of(new)


def context_of(config: Config, before: Context | None = None) -> Context:
    """Return the context of responses. Without a configured cookie secret, uses that of ``before`` or a new one."""
    serve, cookies = config.serve, NO_COOKIES
    if serve.cookies.enabled and is_installed():
        known = () if before is None else before.cookies.secrets
        secrets = serve.cookies.secret or known or (os.urandom(KEY_SIZE),)
        cookies = CookieSettings(secrets, serve.cookies.require)
    identity = Identity(serve.nsid, serve.version, serve.hostname)
    clock = time.time if before is None else before.clock
    return Context(identity, cookies, clock, serve.tcp.idle_timeout, serve.udp_payload)


def why_no_cookies(config: Config) -> str:
    """Return why enabled cookies are off, with the pip command; "" if nothing is missing."""
    if not config.serve.cookies.enabled or is_installed():
        return ""
    return "DNS cookies are off: they need the package siphashc: pip install 'maptr[server]'"


def missing_cookies(config: Config) -> str:
    """Return ``why_no_cookies``, with the setting, if the configuration has a secret or requires cookies."""
    cookies, reason = config.serve.cookies, why_no_cookies(config)
    wanted = {"secret_file": cookies.secret_file, "secret": cookies.secret, "require": cookies.require}
    named = next((f"serve.cookies.{name}" for name, value in wanted.items() if value), "")
    return f"{named} has no effect: {reason}" if reason and named else ""


def responder_of(config: Config) -> Responder:
    logged = config.serve.query_log
    query_log = QueryLog(logged.every, logged.rate) if logged.every else None
    return Responder(context_of(config), rrl=config.serve.rrl, query_log=query_log)


def has_table(config: Config) -> bool:
    """Return whether a table is pulled, compared with DNS, or built into a zone."""
    return bool(config.table.url or config.table.drift) or any(zone.table for zone in config.zones)


def keys_of(config: Config) -> dict[Labels, TsigKey]:
    """Return the TSIG keys by name."""
    named = ((key.name, key.algorithm, key.secret) for key in config.keys if key.secret is not None)
    return {name: TsigKey(name, algorithm, secret) for name, algorithm, secret in named}


def catalog_origin(config: Config) -> Folded | None:
    """Return the origin of the catalog; None if there is none."""
    name = config.serve.catalog.name
    return None if name is None else fold(name)


def secondaries_of(config: Config) -> dict[Folded, Secondaries]:
    """Return the secondaries of each zone and of the catalog."""
    found = {zone.name: Secondaries(zone.transfer, zone.notify) for zone in config.zones}
    catalog, origin = config.serve.catalog, catalog_origin(config)
    return found if origin is None else {**found, origin: Secondaries(catalog.transfer, catalog.notify)}


def silences_of(config: Config) -> tuple[Silence, ...]:
    """Return the silenced alarms. Raises ConfigError, for example for a zone or a secondary that does not exist."""
    found, served = [], {to_text(origin): each.notify for origin, each in secondaries_of(config).items()}
    for text in config.serve.silence:
        try:
            found.append(Silence.parse(text, served))
        except ValueError as error:
            raise config.error("serve.silence", str(error), of_text=True) from None
    return tuple(found)


def served_origin(text: str, served: Iterable[Folded]) -> Folded:
    """Return the origin of the served zone with this name. Raises ConfigError."""
    served = tuple(served)
    try:
        origin = read_name(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if origin not in served:
        raise ConfigError(not_served(to_text(origin), map(to_text, served)))
    return origin
