"""The configuration as frozen dataclasses: one class for each table of ``maptr.toml``, one field for each key.

A field is the only place that names a key, its default and how its value is read. The reader, the names of the
environment variables and the suggestions for unknown keys follow it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from maptr.answer import rate_limit
from maptr.answer.context import MAX_PAYLOAD, MIN_PAYLOAD
from maptr.cache import DNS_FIRST, PATIENCE, POLICIES, STALE_LIMIT
from maptr.choose import CHOOSERS
from maptr.config import values
from maptr.config.values import Secret, ValueType
from maptr.dnssec.policy import INCEPTION_OFFSET, LIFETIME, REFRESH
from maptr.errors import ConfigError
from maptr.protocol.address import Address, Network, read_network
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.protocol.numbers import MAX_TTL, SERVER_PORT, UDP_PAYLOAD
from maptr.registry.plan import REMOVAL_LIMIT
from maptr.transfer.acl import AccessRule, NotifyTarget


def setting(value_type: ValueType[Any], default: Any = MISSING) -> Any:
    """A key with a value of this type. Without a default it must be given."""
    return field(default=default, metadata={"type": value_type})


def section(table: type[Any]) -> Any:
    """A table below this one."""
    return field(default_factory=table, metadata={"table": table})


def sections(key: str, table: type[Any]) -> Any:
    """An array of tables, ``[[key]]``."""
    return field(default=(), metadata={"array": table, "key": key})


def about(make: Callable[[], Any]) -> Any:
    """A field without a key, which is not compared."""
    return field(default_factory=make, compare=False, repr=False)


# Limits of TCP and TLS connections, over all addresses together.
MAX_CONNECTIONS = 500  # BIND's tcp-clients is 150, NSD's tcp-count 100; an idle connection takes some kilobytes
MAX_PER_CLIENT = 50  # RFC 7766 6.2.2 lets a server limit the connections of one client
# Seconds from the last response to the final byte of the next query: "on the order of a few seconds" (RFC 7766 6.2.3).
# It limits slow clients as well as silent ones.
IDLE_TIMEOUT = 10.0

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

_ADDRESS = values.TEXT.then(lambda text: Address.from_text(text) if text else None)
_ADDRESSES = values.list_of(values.TEXT.then(Address.from_text))
_NETWORKS = values.list_of(values.TEXT.then(read_network))
_ACCESS = values.list_of(values.TEXT.then(AccessRule.from_text))
_NOTIFY = values.list_of(values.TEXT.then(NotifyTarget.from_text))


@dataclass(frozen=True)
class TlsConfig:
    """``[serve.tls]``: DNS over TLS (RFC 7858)."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, ())
    certificate: Path | None = setting(values.PATH, None)
    key: Path | None = setting(values.PATH, None)


@dataclass(frozen=True)
class RrlConfig:
    """``[serve.rrl]``: response rate limiting for UDP; 0 responses a second means no limit."""

    responses_per_second: int = setting(values.integer(0, 1_000_000), rate_limit.RESPONSES_PER_SECOND)
    slip: int = setting(values.integer(0, 10), rate_limit.SLIP)  # every nth limited response is sent truncated; 0: none
    window: int = setting(values.integer(1, 3600), rate_limit.WINDOW)  # seconds
    ipv4_prefix: int = setting(values.integer(0, 32), rate_limit.IPV4_PREFIX)
    ipv6_prefix: int = setting(values.integer(0, 128), rate_limit.IPV6_PREFIX)
    exempt: tuple[Network, ...] = setting(_NETWORKS, rate_limit.EXEMPT)


@dataclass(frozen=True)
class CookieConfig:
    """``[serve.cookies]``: DNS cookies (RFC 7873). Without a secret, each start makes a new one."""

    enabled: bool = setting(values.BOOLEAN, True)
    require: bool = setting(values.BOOLEAN, False)  # answer UDP queries without a valid one with BADCOOKIE
    secret: tuple[Secret, ...] = setting(values.TEXT.then(values.read_cookie_secrets), ())
    secret_file: Path | None = setting(values.PATH, None)


@dataclass(frozen=True)
class TcpConfig:
    """``[serve.tcp]``: limits of TCP and TLS connections, over all addresses together."""

    max_connections: int = setting(values.integer(1, 100_000), MAX_CONNECTIONS)
    max_per_client: int = setting(values.integer(1, 100_000), MAX_PER_CLIENT)
    idle_timeout: float = setting(values.number(0.1, 3600), IDLE_TIMEOUT)  # seconds


@dataclass(frozen=True)
class QueryLogConfig:
    """``[serve.query_log]``: which queries are logged."""

    every: int = setting(values.integer(0, 1_000_000_000), 0)  # log every nth query; 0: none
    rate: int = setting(values.integer(1, 100_000), 100)  # lines a second at most


@dataclass(frozen=True)
class CatalogConfig:
    """``[serve.catalog]``: a catalog zone (RFC 9432) of all zones served, if it has a name."""

    name: Labels | None = setting(values.TEXT.then(lambda text: values.read_name(text) if text else None), None)
    transfer: tuple[AccessRule, ...] = setting(_ACCESS, ())
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, ())


@dataclass(frozen=True)
class ServeConfig:
    """``[serve]``."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (Address("127.0.0.1", SERVER_PORT),))
    user: str = setting(values.TEXT, "")  # NAME or NAME:GROUP to run as, if started by root
    workers: int = setting(values.integer(1, 1024), 1)
    nsid: str = setting(values.SHORT_TEXT, "")
    version: str = setting(values.SHORT_TEXT, "")  # version.bind; empty: REFUSED
    hostname: str = setting(values.SHORT_TEXT, "")  # hostname.bind and id.server; empty: REFUSED
    udp_payload: int = setting(values.integer(MIN_PAYLOAD, MAX_PAYLOAD), UDP_PAYLOAD)
    control: Path | None = setting(values.PATH, Path("run/maptr.sock"))
    metrics: Address | None = setting(_ADDRESS, None)  # HTTP: /metrics for Prometheus, and /health
    state: Path | None = setting(values.PATH, None)  # a folder for data that outlives a restart
    tls: TlsConfig = section(TlsConfig)
    rrl: RrlConfig = section(RrlConfig)
    cookies: CookieConfig = section(CookieConfig)
    tcp: TcpConfig = section(TcpConfig)
    catalog: CatalogConfig = section(CatalogConfig)
    log_level: str = setting(values.choice(*LOG_LEVELS), "info")
    log_format: str = setting(values.choice(*LOG_FORMATS), "text")
    query_log: QueryLogConfig = section(QueryLogConfig)


@dataclass(frozen=True)
class KeyConfig:
    """``[[key]]``: a TSIG key (RFC 8945), with its secret here or in a file of its own."""

    name: Labels = setting(values.NAME)
    algorithm: str = setting(values.TEXT.then(values.read_algorithm), "hmac-sha256")
    secret: Secret | None = setting(values.TEXT.then(values.read_tsig_secret), None)
    secret_file: Path | None = setting(values.PATH, None)


@dataclass(frozen=True)
class SigningConfig:
    """``[zone.signing]``: how a zone with ``keys`` is signed, like the options of ``maptr zone sign``."""

    lifetime: int = setting(values.DURATION, LIFETIME)
    inception: int = setting(values.DURATION, INCEPTION_OFFSET)  # how long before now signatures begin
    refresh: int = setting(values.DURATION, REFRESH)  # how long before their end signatures are renewed
    zonemd: bool = setting(values.BOOLEAN, True)
    cds: str = setting(values.choice("publish", "none", "delete"), "publish")
    dnskey_ttl: int | None = setting(values.DURATION, None)  # None: that of the SOA


@dataclass(frozen=True)
class ZoneConfig:
    """``[[zone]]``: a zone, its file, its secondaries, and how a new file is published."""

    name: Labels = setting(values.NAME)
    file: Path = setting(values.FILE)
    transfer: tuple[AccessRule, ...] = setting(_ACCESS, ())
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, ())
    max_shrink: float = setting(values.number(0, 1), REMOVAL_LIMIT)  # the share of its names that a new file may lose
    serial: str = setting(values.choice("file", "increment", "date", "unix"), "file")
    lint: str = setting(values.choice("off", "warn", "refuse"), "warn")
    keys: Path | None = setting(values.PATH, None)  # a folder: the server signs the zone with the keys in it
    signing: SigningConfig = section(SigningConfig)
    table: Path | None = setting(values.PATH, None)  # a registry to build the file from, with the next four
    ns: tuple[str, ...] = setting(values.list_of(values.TEXT), ())
    contact: Labels = setting(values.NAME, (b"hostmaster",))
    ttl: int = setting(values.integer(0, MAX_TTL), 86400)
    include: tuple[Path, ...] = setting(values.list_of(values.FILE), ())


@dataclass(frozen=True)
class TableConfig:
    """``[table]``: the registry, its sources and its file."""

    file: Path | None = setting(values.PATH, None)
    url: str = setting(values.TEXT, "")
    mirrors: tuple[str, ...] = setting(values.list_of(values.TEXT), ())
    every: int = setting(values.DURATION, 3600)
    sha256: str = setting(values.SHA256, "")
    public_key: Path | None = setting(values.PATH, None)  # for a minisign signature
    cafile: Path | None = setting(values.PATH, None)
    drift: tuple[str, ...] = setting(values.list_of(values.TEXT), ())  # servers to compare with the table

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in the order of trying."""
        return (self.url, *self.mirrors) if self.url else ()


@dataclass(frozen=True)
class ClientConfig:
    """``[client]``: which servers the commands that discover ask, and below which origin."""

    origin: Labels = setting(values.NAME, ARK_ARPA)
    nameservers: tuple[str, ...] = setting(values.list_of(values.TEXT), ())  # empty: the system's
    choose: str = setting(values.choice(*CHOOSERS), CHOOSERS[0])
    scheme: str = setting(values.choice("https", "http"), "https")  # of hosts without one


@dataclass(frozen=True)
class CacheConfig:
    """``[cache]``: the cache that the commands that discover use."""

    natab: Path | None = setting(values.PATH, None)
    path: Path | None = setting(values.PATH, None)
    policy: str = setting(values.choice(*POLICIES), DNS_FIRST)
    patience: float = setting(values.number(0, 3600), PATIENCE)  # seconds
    stale_limit: int = setting(values.DURATION, STALE_LIMIT)
    table_limit: int = setting(values.DURATION, 0)  # 0: no limit


@dataclass(frozen=True)
class Config:
    """The whole configuration. ``places`` has the file and the line of each key that was given, for error messages."""

    serve: ServeConfig = section(ServeConfig)
    keys: tuple[KeyConfig, ...] = sections("key", KeyConfig)
    zones: tuple[ZoneConfig, ...] = sections("zone", ZoneConfig)
    table: TableConfig = section(TableConfig)
    client: ClientConfig = section(ClientConfig)
    cache: CacheConfig = section(CacheConfig)
    filename: str = about(str)
    places: Mapping[str, tuple[str, int]] = about(dict)

    def error(self, key: str, message: str) -> ConfigError:
        """An error in the value of a key, such as ``serve.listen`` or ``key[0].secret_file``, with its place."""
        filename, line = self.places.get(key, (self.filename, 0))
        return ConfigError(message, filename=filename, line=line, key=re.sub(r"\[\d+\]", "", key))


def keys_of(table: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The field of each key that a table may have."""
    return {one.metadata.get("key", one.name): one for one in dataclasses.fields(table) if one.metadata}


def all_keys(table: type[Any] = Config, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    """The field of each key with a value, by its dotted name; in arrays of tables ``zone.file``."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for key, one in keys_of(table).items():
        below = one.metadata.get("table") or one.metadata.get("array")
        found |= all_keys(below, f"{prefix}{key}.") if below else {prefix + key: one}
    return found
