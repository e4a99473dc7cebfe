"""From the configuration to what the daemon is made of; and what of it cannot be obeyed, which is an error.

A setting that is accepted and not obeyed is worse than one that is refused: its owner counts on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from maptr.answer.context import NO_COOKIES, Context, Identity
from maptr.answer.rate_limit import RrlSettings
from maptr.config import Config, ZoneConfig
from maptr.errors import ConfigError, MissingExtra, SignatureError, ZoneError, raise_all
from maptr.protocol.cookies import CookieSettings
from maptr.protocol.names import Labels, fold, parse, to_text
from maptr.server import privileges
from maptr.server.connections import DEFAULT_LIMITS, TcpLimits
from maptr.server.responder import Responder, fresh_cookies
from maptr.server.state import ZoneSource
from maptr.zone.publish import Guards

# What few servers need is imported by those, and what asyncio comes with once queries are answered (``early.py``).
if TYPE_CHECKING:
    from maptr.registry.pull import Demands
    from maptr.server.primary import PrimarySettings
    from maptr.server.query_log import QueryLog
    from maptr.server.state import Signing, TableBuild
    from maptr.server.tls import TlsSettings

# What of [serve] a reload can change; the rest is in sockets and processes, and takes a restart.
# What a reload takes up, and what is ignored.
RELOADED = frozenset({"nsid", "version", "hostname", "udp_payload", "cookies", "catalog", "workers"})


def check(config: Config) -> None:
    """ConfigError for what cannot be obeyed; ConfigErrors where that is more than one setting."""
    raise_all(mistakes(config))


def mistakes(config: Config) -> list[ConfigError]:
    """What of a configuration cannot be obeyed on this system."""
    errors: list[ConfigError] = []
    for look in (privileges.check, _check_metrics, _check_primary, sources_of, _check_demands):
        try:
            look(config)
        except ConfigError as error:
            errors += error.all
    return errors


def _check_metrics(config: Config) -> None:
    if config.serve.metrics is not None:
        from maptr.server import metrics

        try:
            metrics.check()
        except ConfigError as error:
            raise config.error("serve.metrics", error.reason) from None


def _check_primary(config: Config) -> None:
    if (
        config.keys
        or config.serve.catalog.name is not None
        or any(zone.transfer or zone.notify for zone in config.zones)
    ):
        primary_of(config)


def _check_demands(config: Config) -> None:
    if config.table.public_key is not None:
        demands_of(config)


def check_change(now: Config, new: Config) -> None:
    """ConfigError where a configuration read again asks for what only a restart can give."""
    for name in vars(now.serve):
        if name not in RELOADED and getattr(now.serve, name) != getattr(new.serve, name):
            raise new.error(f"serve.{name}", "changed, which takes a restart; nothing was reloaded")


def identity_of(config: Config) -> Identity:
    return Identity(config.serve.nsid, config.serve.version, config.serve.hostname)


def cookies_of(config: Config) -> CookieSettings:
    """Without a secret in the configuration one is made, for this process alone."""
    cookies = config.serve.cookies
    if not cookies.enabled:
        return NO_COOKIES
    secrets = tuple(secret.octets for secret in cookies.secret)
    return CookieSettings(secrets or fresh_cookies().secrets, cookies.require)


def renewed(context: Context, config: Config) -> Context:
    """What replies depend on, by a configuration read again; a secret that the server made itself stays."""
    cookies = cookies_of(config)
    if config.serve.cookies.enabled and not config.serve.cookies.secret and context.cookies.secrets:
        cookies = cookies._replace(secrets=context.cookies.secrets)
    return context._replace(identity=identity_of(config), cookies=cookies, udp_payload=config.serve.udp_payload)


def responder_of(config: Config) -> Responder:
    """The responder that a configuration asks for."""
    return Responder(
        identity=identity_of(config),
        cookies=cookies_of(config),
        rrl=rrl_of(config),
        udp_payload=config.serve.udp_payload,
        idle_timeout=config.serve.tcp.idle_timeout,
        query_log=query_log_of(config),
    )


def query_log_of(config: Config) -> QueryLog | None:
    how = config.serve.query_log
    if not how.every:
        return None
    from maptr.server.query_log import QueryLog

    return QueryLog(how.every, how.rate)


def rrl_of(config: Config) -> RrlSettings:
    rrl = config.serve.rrl
    return RrlSettings(
        responses_per_second=rrl.responses_per_second,
        slip=rrl.slip,
        window=rrl.window,
        ipv4_prefix=rrl.ipv4_prefix,
        ipv6_prefix=rrl.ipv6_prefix,
        exempt=rrl.exempt,
    )


def tls_of(config: Config) -> TlsSettings | None:
    from maptr.server.tls import TlsSettings

    tls = config.serve.tls
    if tls.certificate is None or tls.key is None:
        return None
    return TlsSettings(tls.listen, tls.certificate, tls.key)


def tcp_of(config: Config) -> TcpLimits:
    tcp = config.serve.tcp
    return DEFAULT_LIMITS._replace(
        max_connections=tcp.max_connections,
        max_per_client=tcp.max_per_client,
        idle_timeout=tcp.idle_timeout,
    )


def sources_of(config: Config) -> tuple[ZoneSource, ...]:
    """The zones as they are read and published."""
    return tuple(
        ZoneSource(
            zone.name,
            zone.file,
            Guards(zone.max_shrink, zone.serial, zone.lint),
            config.serve.state,
            signing_of(zone),
            build_of(config, zone),
        )
        for zone in config.zones
    )


def signing_of(zone: ZoneConfig) -> Signing | None:
    """None for a zone that is served as its file has it."""
    if zone.keys is None:
        return None
    from maptr.dnssec.policy import Children, Policy
    from maptr.server.state import Signing

    how = zone.signing
    return Signing(
        zone.keys,
        Policy(how.lifetime, how.inception, how.refresh, how.zonemd, Children(how.cds), how.dnskey_ttl),
    )


def build_of(config: Config, zone: ZoneConfig) -> TableBuild | None:
    """How a zone is built from its table, if it has one. Raises ConfigError."""
    if zone.table is None:
        return None
    from maptr.server.state import TableBuild
    from maptr.zone.build import NameServer

    try:
        servers = tuple(NameServer.parse(text, zone.name) for text in zone.ns)
    except ZoneError as error:
        raise config.error("zone.ns", error.reason) from None
    return TableBuild(zone.table, zone.ttl, servers, zone.contact, zone.include, config.client.scheme)


def has_table(config: Config) -> bool:
    """True where a table is pulled, or held against servers, or makes a zone."""
    return bool(config.table.url or config.table.drift) or any(zone.table for zone in config.zones)


def demands_of(config: Config) -> Demands:
    """What the table must be that is pulled. Raises ConfigError for a key that cannot be read."""
    from maptr.registry.minisign import PublicKey
    from maptr.registry.pull import Demands

    table = config.table
    try:
        key = None if table.public_key is None else PublicKey.parse(table.public_key.read_text("utf-8", "replace"))
    except MissingExtra:
        raise
    except (OSError, SignatureError) as error:
        raise config.error(
            "table.public_key", f"{table.public_key}: {getattr(error, 'strerror', '') or error}"
        ) from None
    return Demands(table.sha256 or None, key)


def primary_of(config: Config) -> PrimarySettings:
    """What the secondaries of each zone may have. Raises ConfigError."""
    from maptr.server.primary import PrimarySettings
    from maptr.transfer.acl import Acl, Key, Secondaries

    catalog = config.serve.catalog
    if catalog.name is not None:
        from maptr.transfer.catalog import catalog_zone

        catalog_zone(catalog.name, [zone.name for zone in config.zones], 0)  # raises what starting would
    return PrimarySettings(
        tuple(Key(key.name, key.algorithm, key.secret.octets) for key in config.keys if key.secret is not None),
        {zone.name: Secondaries(Acl(zone.transfer), zone.notify) for zone in config.zones},
        None if catalog.name is None else (catalog.name, Secondaries(Acl(catalog.transfer), catalog.notify)),
        config.serve.state,
    )


def served_origin(text: str, served: Iterable[Labels]) -> Labels:
    """The origin of a zone that is served, by its name. Raises ConfigError."""
    served = tuple(served)
    try:
        origin = fold(parse(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is no domain name: {error}") from None
    if origin not in served:
        from maptr.text import nearest

        near = nearest(to_text(origin), map(to_text, served))
        raise ConfigError(f"no zone {to_text(origin)} is served; the nearest is {near or 'none'}")
    return origin


def control_of(config: Config) -> Path | None:
    """The control socket's path; none for a server without a configuration, unless it was asked for."""
    return config.serve.control if config.filename or "serve.control" in config.places else None
