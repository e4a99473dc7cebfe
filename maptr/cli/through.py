"""What the commands that discover ask, and through what: plain servers, or a cache in front of them.

Nothing is set up for most, and they must not wait for finding that out: without a configuration or a table there are
a few looks for files, and nothing is imported.
"""

from __future__ import annotations

import os
import time

from maptr import places

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from maptr.cache.cache import Cache
    from maptr.choose import Chooser
    from maptr.cli.asking import Options
    from maptr.config import Config
    from maptr.discovery import Discovery, DiscoveryError
    from maptr.walk import Settings

ORIGIN = "ark.arpa."
_OURS = (b"client", b"cache", b"table")


def configured(file: str | None = None, *, running: bool = True) -> Config | None:
    """The configuration that says something of discovering, None where nothing is set up: FILE, that of MAPTR_CONFIG,
    or the first of ``maptr.toml`` here, the user's, and, if wanted, that of a running ``maptr up``.

    Raises ConfigError and OSError.
    """
    files = set_up(file, running=running)
    if files is None:
        return None
    from pathlib import Path

    from maptr import config as configuration

    for file in files:
        config = configuration.load(Path(file), environment=os.environ, secrets=False)
        if any(key.startswith(("client.", "cache.", "table.")) for key in config.places):
            return config
    return configuration.load(None, environment=os.environ, secrets=False)


def set_up(file: str | None = None, *, running: bool = True) -> list[str] | None:
    """The files to look into for that, None where neither a file nor the environment may say something of it."""
    environment = os.environ
    named = file or environment.get("MAPTR_CONFIG")
    files = [named] if named else [places.LOCAL_CONFIG, places.config_file(environment)]
    # To read one costs more than to ask DNS: a server's own, which says nothing of clients, is not read for them.
    files = [file for file in files if named or (places.there(file) and places.mentions(file, _OURS))]
    if running and not named and (made := places.running(environment)) is not None:
        files.append(made)
    if not files and not any(
        name.startswith(("MAPTR_CLIENT_", "MAPTR_CACHE_", "MAPTR_TABLE_")) for name in environment
    ):
        return None
    return files


def origin_of(given: str | None, config: Config | None) -> str:
    """The origin: the option's, the configuration's, or ark.arpa."""
    if given is not None:
        return given
    if config is None:
        return ORIGIN
    from maptr.protocol.names import to_text

    return to_text(config.client.origin)


def servers_of(given: list[str], config: Config | None) -> list[str]:
    """The servers to ask: those of the command line, or the configuration's; none for the system's."""
    return given or (list(config.client.nameservers) if config is not None else [])


def chooser(given: Options, config: Config | None) -> Chooser | None:
    """The chooser of the option or of the configuration; None for the first candidate."""
    name = given.choose or (config.client.choose if config is not None else "first")
    if name == "first":
        return None
    from maptr.nma.reachable import named

    return named(name, allow_private=given.allow_private, require=given.require)


def settings_of(given: Options, config: Config | None) -> Settings:
    """What is decided about a walk: by the command line, else by the configuration."""
    from maptr.walk import Settings

    scheme = given.scheme or (config.client.scheme if config is not None else "https")
    return Settings(allow_private=given.allow_private, scheme=scheme)


def table(config: Config | None) -> str | None:
    """The table configured, or the one that ``maptr table pull`` brought; None where there is neither."""
    if config is not None and (file := config.cache.natab or config.table.file):
        return str(file)
    default = places.table_file(os.environ)
    return default if places.there(default) else None


def has_cache(config: Config | None) -> bool:
    """True where the configuration has a ``[cache]``."""
    return config is not None and any(key.startswith("cache.") for key in config.places)


def cache_for(servers: list[str], given: Options, config: Config | None) -> Cache | None:
    """The cache to go through where one is set up and no server named; None where DNS is asked directly.

    Raises ConfigError for what makes no sense.
    """
    wanted = given.table is not None or given.policy is not None
    if given.no_cache and wanted:
        from maptr.errors import ConfigError

        raise ConfigError("--no-cache goes with neither --table nor --policy")
    if not given.no_cache and (wanted or not servers):
        natab = given.table or table(config)
        if natab is not None or given.policy is not None or has_cache(config):
            if natab is not None and natab != given.table and _to_come(natab, config):
                natab = None
            return cached(servers, given, config, natab)
    return None


def _to_come(natab: str, config: Config | None) -> bool:
    """True for a configured table that is not there yet, and that a pull will write."""
    if config is None or not config.table.url or natab != str(config.table.file) or places.there(natab):
        return False
    from maptr.cli import output

    output.talk(f"maptr: {natab}: not there yet; maptr table pull --apply gets it")
    return True


def cached(servers: list[str], given: Options, config: Config | None, natab: str | None) -> Cache:
    """The cache to go through, as the command line and the configuration have it. Raises ConfigError."""
    import logging

    from maptr.cache import DNS_FIRST
    from maptr.cache.cache import Cache
    from maptr.cli import output
    from maptr.client.stub import system_servers
    from maptr.discovery import DiscoveryError

    options: dict[str, Any] = {}
    policy = given.policy or (config.cache.policy if config is not None else DNS_FIRST)
    if config is not None:
        limit = config.cache.table_limit
        options = {
            "patience": config.cache.patience,
            "stale_limit": config.cache.stale_limit,
            "table_limit": limit or None,
        }
    try:
        servers = servers_of(servers, config) or system_servers()
    except DiscoveryError as error:
        servers, options["ask"] = [], _fails(error)
    logging.basicConfig(level=logging.WARNING, format=output.LOG_FORMAT)  # what the cache has to say
    return Cache(
        natab,
        disk(config),
        policy,
        nameservers=servers,
        origin=origin_of(given.origin, config),
        lifetime=given.timeout,
        settings=settings_of(given, config),
        trust_ad=given.trust_ad,
        trust_anchors=given.trust_anchor,
        require=given.require,
        **options,
    )


def disk(config: Config | None) -> str | None:
    """The file of the cache; none where the configuration says so, or where its folder cannot be made."""
    if config is not None and "cache.path" in config.places:
        return None if config.cache.path is None else str(config.cache.path)
    path = places.cache_file(os.environ)
    try:
        places.make_parent(path)
    except OSError:
        return None
    return path


def _fails(error: DiscoveryError) -> Callable[..., Discovery]:
    """Asking on a system without a resolver: the table may have the answer all the same."""

    def ask(ark: object, **options: object) -> Discovery:
        raise error

    return ask


def provenance(found: Discovery, now: float) -> str:
    """Where a discovery came from, how old it is and why it was taken, in words."""
    return told(found.source, found.age(now), found.stale, found.reason)


def told(source: str, age: float | None, stale: bool, reason: str) -> str:
    """The same of its parts, the age in seconds."""
    words = {"dns": "DNS", "memory": "memory", "disk": "the cache on disk", "natab": "the table"}[source]
    old = "of unknown age" if age is None else f"{shown(age)} old"
    return f"from {words}, {old}{', stale' if stale else ''} ({reason})"


def age_of(found: Discovery | None) -> float | None:
    """For JSON: seconds, to the millisecond."""
    age = None if found is None else found.age(time.time())
    return None if age is None else round(age, 3)


def shown(seconds: float) -> str:
    """A time for people: 3 s, 5 min, 2 h, 4 days."""
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'days': 86_400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"
