"""What a table of the configuration is in Python: a class with a field for each key, which is all that names the key.

Like frozen dataclasses, but made in a tenth of the time, for every start of a server waits for them.

[from model] What can be configured: one class for each table of ``maptr.toml``, a field for each key, with its default.

The field is the only place that names a key; reading, the environment's names and the nearest right key follow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

from maptr.answer import rate_limit
from maptr.answer.context import MAX_PAYLOAD, MIN_PAYLOAD
from maptr.cache import DNS_FIRST, PATIENCE, POLICIES, STALE_LIMIT
from maptr.choose import CHOOSERS
from maptr.config import values
from maptr.config.values import Secret
from maptr.dnssec.policy import INCEPTION_OFFSET, LIFETIME, REFRESH
from maptr.errors import ConfigError
from maptr.protocol.address import Address, Network, read_network
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SERVER_PORT, UDP_PAYLOAD
from maptr.registry.plan import REMOVAL_LIMIT

if TYPE_CHECKING:
    from maptr.config.values import Kind

if TYPE_CHECKING:
    from maptr.transfer.acl import NotifyTarget, Rule

REQUIRED: Any = object()  # as a default: the key must be given


class Field(NamedTuple):
    """One field: a value read as ``kind``, a ``table`` below, each table of an ``array``; or none of them, no key.

    ``key`` is "" where it is the field's own name. ``make`` gives the default, which ``default`` is where it is one.
    """

    make: Callable[[], Any]
    default: Any = None
    kind: Kind[Any] | None = None
    table: type[Table] | None = None
    array: type[Table] | None = None
    key: str = ""


def setting(kind: Kind[Any], default: Any = REQUIRED) -> Any:
    """A key that is read as ``kind``; without a default it must be given."""
    return Field(lambda: default, default, kind=kind)


def section(table: type[Table]) -> Any:
    """A table below this one."""
    return Field(table, table=table)


def sections(key: str, table: type[Table]) -> Any:
    """An array of tables, ``[[key]]``."""
    return Field(tuple, (), array=table, key=key)


def about(make: Callable[[], Any]) -> Any:
    """What no key says; equal configurations may differ in it."""
    return Field(make)


@dataclass_transform(frozen_default=True)
class Table:
    """The values of one table, in the order of its fields or by name. Never changed: ``replace`` makes another."""

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        cls.fields = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self.fields, values, strict=False)) | named
        for name, field in self.fields.items():
            value = given.pop(name) if name in given else field.make()
            if value is REQUIRED:
                raise TypeError(f"{type(self).__name__} needs {name}")
            self.__dict__[name] = value
        if given or len(values) > len(self.fields):
            raise TypeError(f"{type(self).__name__} has no {', '.join(given) or 'so many values'}")

    def replace(self, **changes: Any) -> Self:
        """The same with other values for some fields."""
        return type(self)(**(self.__dict__ | changes))

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name, field in self.fields.items() if is_key(field))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Table) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name, field in self.fields.items() if is_key(field))
        return f"{type(self).__name__}({', '.join(values)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is not changed; replace makes another")

    __delattr__ = __setattr__  # type: ignore[assignment]


def is_key(field: Field) -> bool:
    """False for what no key says."""
    return bool(field.kind or field.table or field.array)


def _rule(text: str) -> Rule:
    from maptr.transfer.acl import Rule  # here, for most servers have no secondaries

    return Rule.from_text(text)


def _target(text: str) -> NotifyTarget:
    from maptr.transfer.acl import NotifyTarget  # here, as above

    return NotifyTarget.from_text(text)


# Of connections by TCP and TLS, over all addresses together.
MAX_CONNECTIONS = 500  # BIND's tcp-clients is 150, NSD's tcp-count 100; an idle connection costs some kilobytes
MAX_PER_CLIENT = 50  # RFC 7766 6.2.2 lets a server limit the connections of one client
# Seconds for one whole message, from the last response to its final byte: "on the order of a few seconds" (RFC 7766
# 6.2.3). It bounds a trickle of bytes as well as silence.
IDLE_TIMEOUT = 10.0

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

_ADDRESS = values.TEXT.then(lambda text: Address.from_text(text) if text else None)
_ADDRESSES = values.list_of(values.TEXT.then(Address.from_text))
_NETWORKS = values.list_of(values.TEXT.then(read_network))
_ACCESS = values.list_of(values.TEXT.then(_rule))
_NOTIFY = values.list_of(values.TEXT.then(_target))


class TlsConfig(Table):
    """``[serve.tls]``: DNS over TLS (RFC 7858)."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, ())
    certificate: Path | None = setting(values.PATH, None)
    key: Path | None = setting(values.PATH, None)


class RrlConfig(Table):
    """``[serve.rrl]``: response rate limiting for UDP; 0 responses a second is no limit."""

    responses_per_second: int = setting(values.integer(0, 1_000_000), rate_limit.RESPONSES_PER_SECOND)
    slip: int = setting(values.integer(0, 10), rate_limit.SLIP)  # every nth limited reply goes out truncated; 0 = none
    window: int = setting(values.integer(1, 3600), rate_limit.WINDOW)  # seconds
    ipv4_prefix: int = setting(values.integer(0, 32), rate_limit.IPV4_PREFIX)
    ipv6_prefix: int = setting(values.integer(0, 128), rate_limit.IPV6_PREFIX)
    exempt: tuple[Network, ...] = setting(_NETWORKS, rate_limit.EXEMPT)


class CookieConfig(Table):
    """``[serve.cookies]``: DNS cookies (RFC 7873). Without a secret each start makes one of its own."""

    enabled: bool = setting(values.BOOLEAN, True)
    require: bool = setting(values.BOOLEAN, False)  # UDP without a good one gets BADCOOKIE
    secret: tuple[Secret, ...] = setting(values.TEXT.then(values.read_cookie_secrets), ())
    secret_file: Path | None = setting(values.PATH, None)


class TcpConfig(Table):
    """``[serve.tcp]``: limits of TCP and TLS, over all addresses together."""

    max_connections: int = setting(values.integer(1, 100_000), MAX_CONNECTIONS)
    max_per_client: int = setting(values.integer(1, 100_000), MAX_PER_CLIENT)
    idle_timeout: float = setting(values.number(0.1, 3600), IDLE_TIMEOUT)  # seconds


class QueryLogConfig(Table):
    """``[serve.query_log]``: which queries have a line in the log."""

    every: int = setting(values.integer(0, 1_000_000_000), 0)  # one of so many; 0: none
    rate: int = setting(values.integer(1, 100_000), 100)  # lines a second at most


class CatalogConfig(Table):
    """``[serve.catalog]``: a catalog zone (RFC 9432) of all zones served; none without a name."""

    name: Labels | None = setting(values.TEXT.then(lambda text: values.read_name(text) if text else None), None)
    transfer: tuple[Rule, ...] = setting(_ACCESS, ())
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, ())


class ServeConfig(Table):
    """``[serve]``."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (Address("127.0.0.1", SERVER_PORT),))
    user: str = setting(values.TEXT, "")  # to run as, where root starts it: NAME or NAME:GROUP
    workers: int = setting(values.integer(1, 1024), 1)
    nsid: str = setting(values.SHORT_TEXT, "")
    version: str = setting(values.SHORT_TEXT, "")  # version.bind; empty is REFUSED, as for hostname
    hostname: str = setting(values.SHORT_TEXT, "")  # hostname.bind and id.server
    udp_payload: int = setting(values.integer(MIN_PAYLOAD, MAX_PAYLOAD), UDP_PAYLOAD)
    control: Path | None = setting(values.PATH, Path("run/maptr.sock"))
    metrics: Address | None = setting(_ADDRESS, None)  # HTTP: /metrics for Prometheus, and /health
    state: Path | None = setting(values.PATH, None)  # a directory for what outlives a restart
    tls: TlsConfig = section(TlsConfig)
    rrl: RrlConfig = section(RrlConfig)
    cookies: CookieConfig = section(CookieConfig)
    tcp: TcpConfig = section(TcpConfig)
    catalog: CatalogConfig = section(CatalogConfig)
    log_level: str = setting(values.choice(*LOG_LEVELS), "info")
    log_format: str = setting(values.choice(*LOG_FORMATS), "text")
    query_log: QueryLogConfig = section(QueryLogConfig)


class KeyConfig(Table):
    """``[[key]]``: a TSIG key (RFC 8945), its secret given here or in a file of its own."""

    name: Labels = setting(values.NAME)
    algorithm: str = setting(values.TEXT.then(values.read_algorithm), "hmac-sha256")
    secret: Secret | None = setting(values.TEXT.then(values.read_tsig_secret), None)
    secret_file: Path | None = setting(values.PATH, None)


class SigningConfig(Table):
    """``[zone.signing]``: how a zone with ``keys`` is signed, as the options of ``maptr zone sign`` have it."""

    lifetime: int = setting(values.DURATION, LIFETIME)
    inception: int = setting(values.DURATION, INCEPTION_OFFSET)  # how long ago signatures begin
    refresh: int = setting(values.DURATION, REFRESH)  # how long before their end they are made anew
    zonemd: bool = setting(values.BOOLEAN, True)
    cds: str = setting(values.choice("publish", "none", "delete"), "publish")
    dnskey_ttl: int | None = setting(values.DURATION, None)  # None: that of the SOA


class ZoneConfig(Table):
    """``[[zone]]``: a zone, its file, who may have it, and how a new file is published."""

    name: Labels = setting(values.NAME)
    file: Path = setting(values.FILE)
    transfer: tuple[Rule, ...] = setting(_ACCESS, ())
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, ())
    max_shrink: float = setting(values.number(0, 1), REMOVAL_LIMIT)  # the part of its names a file may lose
    serial: str = setting(values.choice("file", "increment", "date", "unix"), "file")
    lint: str = setting(values.choice("off", "warn", "refuse"), "warn")
    keys: Path | None = setting(values.PATH, None)  # a folder: the server signs the zone with the keys in it
    signing: SigningConfig = section(SigningConfig)
    table: Path | None = setting(values.PATH, None)  # a registry that the file is built from, and then by these
    ns: tuple[str, ...] = setting(values.list_of(values.TEXT), ())
    contact: Labels = setting(values.NAME, (b"hostmaster",))
    ttl: int = setting(values.integer(0, 0x7FFF_FFFF), 86400)
    include: tuple[Path, ...] = setting(values.list_of(values.FILE), ())


class TableConfig(Table):
    """``[table]``: the registry, where it comes from and where it is kept."""

    file: Path | None = setting(values.PATH, None)
    url: str = setting(values.TEXT, "")
    mirrors: tuple[str, ...] = setting(values.list_of(values.TEXT), ())
    every: int = setting(values.DURATION, 3600)
    sha256: str = setting(values.SHA256, "")
    public_key: Path | None = setting(values.PATH, None)  # of a minisign signature
    cafile: Path | None = setting(values.PATH, None)
    drift: tuple[str, ...] = setting(values.list_of(values.TEXT), ())  # servers held against the table

    @property
    def sources(self) -> tuple[str, ...]:
        """In the order they are tried."""
        return (self.url, *self.mirrors) if self.url else ()


class ClientConfig(Table):
    """``[client]``: whom the commands that discover ask, and below which origin."""

    origin: Labels = setting(values.NAME, (b"ark", b"arpa"))
    nameservers: tuple[str, ...] = setting(values.list_of(values.TEXT), ())  # none: the system's
    choose: str = setting(values.choice(*CHOOSERS), CHOOSERS[0])
    scheme: str = setting(values.choice("https", "http"), "https")  # of hosts that come without one


class CacheConfig(Table):
    """``[cache]``: what stands between the commands that discover and DNS."""

    natab: Path | None = setting(values.PATH, None)
    path: Path | None = setting(values.PATH, None)
    policy: str = setting(values.choice(*POLICIES), DNS_FIRST)
    patience: float = setting(values.number(0, 3600), PATIENCE)  # seconds
    stale_limit: int = setting(values.DURATION, STALE_LIMIT)
    table_limit: int = setting(values.DURATION, 0)  # 0: a table is never too old


class Config(Table):
    """All of it. ``places`` has file and line of each key given, so that whoever finds it wrong can say where."""

    serve: ServeConfig = section(ServeConfig)
    keys: tuple[KeyConfig, ...] = sections("key", KeyConfig)
    zones: tuple[ZoneConfig, ...] = sections("zone", ZoneConfig)
    table: TableConfig = section(TableConfig)
    client: ClientConfig = section(ClientConfig)
    cache: CacheConfig = section(CacheConfig)
    filename: str = about(str)
    places: Mapping[str, tuple[str, int]] = about(dict)

    def error(self, key: str, message: str) -> ConfigError:
        """What is wrong with the value of a key, such as ``serve.listen`` or ``key[0].secret_file``, at its place."""
        filename, line = self.places.get(key, (self.filename, 0))
        return ConfigError(message, filename=filename, line=line, key=re.sub(r"\[\d+\]", "", key))


def keys_of(table: type[Table]) -> dict[str, tuple[str, Field]]:
    """The keys that may stand in a table, each with the name of its field."""
    return {field.key or name: (name, field) for name, field in table.fields.items() if is_key(field)}


def all_keys(table: type[Table] = Config, prefix: str = "") -> dict[str, Field]:
    """Every key that has a value, by its dotted name; those of arrays of tables as ``zone.file``."""
    found: dict[str, Field] = {}
    for key, (_, field) in keys_of(table).items():
        below = field.table or field.array
        found |= all_keys(below, f"{prefix}{key}.") if below else {prefix + key: field}
    return found
