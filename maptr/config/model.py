"""The configuration as frozen dataclasses: one class for each table of ``maptr.toml``, one field for each key.

A field is the only place that names a key, its default and how its value is read. The reader, the names of the
environment variables and the suggestions for unknown keys follow it. A value that cannot be read is a ValueError with
the reason, which never contains a secret; the reader adds file and line.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import ipaddress
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from maptr import entry_points, paths, url
from maptr.answer import rrl
from maptr.answer.context import MAX_IDENTITY, MAX_PAYLOAD, MIN_PAYLOAD
from maptr.ark import Ark, Hyphens, check_naan
from maptr.cache import DNS_FIRST, PATIENCE, POLICIES, STALE_LIMIT
from maptr.choose import CHOOSERS
from maptr.config.colour import DARK, LIGHT, read_colour
from maptr.dnssec.policy import INCEPTION_OFFSET, LIFETIME, REFRESH, Children, SigningPolicy
from maptr.errors import ConfigError
from maptr.files import name_for, open_to_all
from maptr.protocol import names
from maptr.protocol.address import Address, Network, check_scope, read_network
from maptr.protocol.cookies import KEY_SIZE, MAX_SECRETS
from maptr.protocol.names import ARK_ARPA, Folded, Labels
from maptr.protocol.numbers import HTTP_PORT, MAX_TTL, SERVER_PORT, UDP_PAYLOAD
from maptr.registry.plan import REMOVAL_LIMIT
from maptr.resolver import call
from maptr.transfer.acl import AccessRule, NotifyTarget, TsigKey, read_key_name

T = TypeVar("T")

_INDEX = re.compile(r"\[\d+\]")  # in ``zone[0].file``
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # as in the TTLs of zone files
_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "an array", dict: "a table"}


# ---- value types


class ElementError(ValueError):
    """An array or a table with invalid elements. ``wrong`` has the path of each below it, of keys and of indices from
    0, and the reason."""

    def __init__(self, wrong: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__("; ".join(message for _, message in wrong))
        self.wrong = wrong


class NotInstalled(ValueError):
    """A name that is neither built in nor declared by a package that is installed now."""


class ValueType(NamedTuple, Generic[T]):
    """The type of a value: ``read`` takes a TOML value; ``from_text`` makes one from an environment variable."""

    read: Callable[[Any], T]
    from_text: Callable[[str], object] = lambda text: text

    def then(self, further: Callable[[T], Any]) -> ValueType[Any]:
        """Return a type whose ``read`` also applies ``further``."""
        return ValueType(lambda value: further(self.read(value)), self.from_text)


def read_duration(text: str) -> int:
    """Read a duration such as ``14d``, ``1h30m`` or ``3600``, in seconds. Raises ValueError."""
    lower = text.lower()
    if not re.fullmatch("[0-9]+|([0-9]+[smhdw])+", lower):
        raise ValueError(f"{text!r} is not a duration such as 14d, 1h30m or 3600")
    seconds = sum(int(number[:20]) * UNITS[unit] for number, unit in re.findall("([0-9]+)(.?)", lower))
    if seconds > MAX_TTL:
        raise ValueError(f"{text!r} is more than {MAX_TTL} seconds")
    return seconds


def read_name(text: str) -> Folded:
    """Read a domain name, and convert it to lower case. Raises ValueError."""
    return names.fold(names.required(text))


def read_tsig_secret(text: str) -> bytes:
    """Read a TSIG secret in Base64 (RFC 4648 section 4), the format of every DNS server. Raises ValueError."""
    try:
        octets = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the secret is not base64") from None
    if not octets:
        raise ValueError("the secret is empty")
    return octets


def read_algorithm(text: str) -> str:
    """Read the name of a TSIG algorithm that ``acl.TsigKey`` supports. Raises ValueError."""
    return TsigKey((b"any",), text.lower().rstrip("."), b"any").algorithm


def read_cookie_secrets(text: str) -> tuple[bytes, ...]:
    """Read secrets of 32 hexadecimal digits, one a line. The first makes cookies, all verify them (RFC 9018 5)."""
    lines = text.split()
    if not lines or not all(re.fullmatch(f"[0-9A-Fa-f]{{{2 * KEY_SIZE}}}", line) for line in lines):
        raise ValueError(f"each secret must be {2 * KEY_SIZE} hexadecimal digits, one per line")
    if len(lines) > MAX_SECRETS:
        raise ValueError(f"has {len(lines)} secrets, {MAX_SECRETS} at most")
    return tuple(map(bytes.fromhex, lines))


def _of_type(value: object, kind: type[T]) -> T:
    """Return the value if it has the TOML type: a boolean is not an integer, but an integer is a number."""
    if kind is float and type(value) is int:
        return float(value)  # type: ignore[return-value]
    if type(value) is not kind:
        raise ValueError(f"must be {_TYPES[kind]}, not {_TYPES.get(type(value), 'a date or time')}")
    return value


def _bounded(value: Any, low: float, high: float) -> Any:
    if not low <= value <= high:  # refuses NaN too
        raise ValueError(f"must be from {low} to {high}, not {value}")
    return value


def _number_from_text(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text  # ``read`` refuses it


def integer(low: int, high: int) -> ValueType[int]:
    return ValueType(lambda value: _bounded(_of_type(value, int), low, high), _number_from_text)


def number(low: float, high: float) -> ValueType[float]:
    return ValueType(lambda value: _bounded(_of_type(value, float), low, high), _number_from_text)


def seconds(low: float, high: float) -> ValueType[float]:
    """Return the type of a duration within bounds, which as a number need not be whole."""
    return ValueType(
        lambda value: _bounded(value if type(value) is float else float(_duration(value)), low, high), _number_from_text
    )


def choice(*words: str) -> ValueType[str]:
    def read(value: object) -> str:
        if _of_type(value, str) not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r}")
        return str(value)

    return ValueType(read)


def name_in(group: str, built_in: Sequence[str]) -> ValueType[str]:
    """Return the type of a built-in name, or one that an installed package declares in a group."""

    def read(value: object) -> str:
        if value in built_in:
            return str(value)
        try:
            return choice(*built_in, *entry_points.names(group)).read(value)
        except ValueError as error:
            raise NotInstalled(str(error)) from None

    return ValueType(read)


def list_of(element: ValueType[T]) -> ValueType[tuple[T, ...]]:
    """Return the type of an array, with commas between elements in a variable. Its ``read`` raises ElementError."""

    def read(value: object) -> tuple[T, ...]:
        found, wrong = [], []
        for index, item in enumerate(_of_type(value, list)):
            try:
                found.append(element.read(item))
            except ValueError as error:
                wrong.append(((index,), str(error)))
        if wrong:
            raise ElementError(wrong)
        return tuple(found)

    return ValueType(read, lambda text: [element.from_text(part.strip()) for part in text.split(",") if part.strip()])


def table_of(element: ValueType[T]) -> ValueType[Mapping[str, T]]:
    """Return the type of a table whose keys are not known here. Its ``read`` raises ElementError."""

    def read(value: object) -> Mapping[str, T]:
        found, wrong = {}, []
        for key, item in _of_type(value, dict).items():
            try:
                found[key] = element.read(item)
            except ElementError as error:
                wrong += [((key, *path), reason) for path, reason in error.wrong]
            except ValueError as error:
                wrong.append(((key,), str(error)))
        if wrong:
            raise ElementError(wrong)
        return found

    return ValueType(read)


def _short(text: str) -> str:
    if len(text.encode()) > MAX_IDENTITY:
        raise ValueError(f"is longer than {MAX_IDENTITY} bytes")
    return text


def _table(text: str) -> Path | None:
    """Read the path of a table that is read, or "builtin" for the built-in one; "./builtin" is a file."""
    return Path(paths.BUILT_IN_FILE) if text == paths.BUILT_IN else _path(text)


def _table_to_write(text: str) -> Path | None:
    if text == paths.BUILT_IN:
        raise ValueError(f"is the built-in registry, which is not written: ./{paths.BUILT_IN} would be a file")
    return _path(text)


def _path(text: str) -> Path | None:
    if "\0" in text:
        raise ValueError("has a NUL, which a file name cannot have")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise ValueError(f"is not a valid file name in {encoding}, the encoding here: set LC_ALL=C.UTF-8") from None
    return Path(text) if text else None


def _file(text: str) -> Path:
    path = _path(text)
    if path is None:
        raise ValueError("is empty: a file is required")
    return path


class PullSource(str):
    """The URL of a registry, or its file."""

    __slots__ = ()


def _source(text: str) -> PullSource:
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:", text):
        try:
            url.parse(text)
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from None
    return PullSource(text)


def _server(text: str) -> str:
    """Read a DNS server, as after ``@`` on the command line."""
    from maptr.resolver.servers import check_server  # late: sockets and TLS delay the start of a command

    check_server(text)
    return text


def _duration(value: object) -> int:
    """Read an integer of seconds, or a text such as "14d"."""
    if type(value) not in (int, str):
        raise ValueError(f"must be seconds or a text such as '14d', not {_TYPES.get(type(value), 'a date or time')}")
    return read_duration(str(value))


def read_sha256(text: str) -> str:
    if text and not re.fullmatch("[0-9A-Fa-f]{64}", text):
        raise ValueError("must have 64 hexadecimal digits")
    return text.lower()


def _base_url(text: str) -> str:
    if not text:
        return ""
    parsed = url.parse(text)
    if "?" in parsed.rest or "#" in parsed.rest:
        raise ValueError("must be a URL without a query string")
    return text.rstrip("/")


def _positive(seconds: int) -> int:
    if not seconds:
        raise ValueError("must be above 0")
    return seconds


def _hours(seconds: int) -> int:
    """Read how often servers of others are asked, which an hour bounds; 0: never."""
    if 0 < seconds < UNITS["h"]:
        raise ValueError("must be 0, or at least 1h")
    return seconds


def _own_url(text: str) -> str:
    """Read the URL of the gateway itself, whose paths start at the root of its host."""
    base = _base_url(text)
    if base and url.parse(base).rest:
        raise ValueError("must be a URL without a path: the gateway answers at the root of its host")
    return base


def _link(text: str) -> str:
    if text:
        url.parse(text)
    return text


def _host_name(text: str) -> str:
    """Read the name of a host as in a Host header, without a port."""
    name = text.removesuffix(".").lower()
    if not re.fullmatch("[0-9a-z_-]+([.][0-9a-z_-]+)*", name):
        raise ValueError(f"{text!r} is not the name of a host, without a port")
    return name


def _example(text: str) -> str:
    return str(Ark.parse(text)) if text else ""


def _language(text: str) -> str:
    """Read the code of a language, or "browser"; the gateway knows which languages there are."""
    if text != BROWSER and not LANGUAGE_CODE.fullmatch(text):
        raise ValueError(f"must be {BROWSER} or the code of a language, such as {' or '.join(LANGUAGES)}, not {text!r}")
    return text


def _contact(text: str) -> str:
    """Read an e-mail address, also with ``mailto:``, or the URL of a page."""
    text = text.removeprefix("mailto:")
    return text if re.fullmatch(r"[^\s@:/]+@[^\s@:/]+", text) else _link(text)


LANGUAGES, BROWSER = ("en", "fr", "es"), "browser"  # of the pages of the gateway: those that are built in
PageText = str | list[str]  # a text of the pages, or its singular and plural
LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[a-z0-9]{2,8})*")  # of BCP 47, such as de or pt-br
X_FORWARDED_FOR, FORWARDED = "X-Forwarded-For", "Forwarded"  # headers in which proxies name the client

TEMPLATE_VARIABLES = ("${pid}", "${inflection}")


def _template(text: str) -> str:
    if not text:
        return ""
    plain = text
    for variable in TEMPLATE_VARIABLES:
        plain = plain.replace(variable, "")
    if unknown := re.search(r"\$\{[^}]*\}?", plain):
        raise ValueError(f"{unknown[0]} is not one of {', '.join(TEMPLATE_VARIABLES)}")
    if TEMPLATE_VARIABLES[0] not in text:
        raise ValueError(f"has no {TEMPLATE_VARIABLES[0]}, which stands for the ARK")
    if re.match(r"[^:]*://[^/?#]*\$", text):
        raise ValueError("has a variable in its host")
    url.parse(plain)
    return text


def _sender(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address, such as 192.0.2.1 or 2001:db8::1, without a port") from None
    if address.is_unspecified or address.is_multicast or getattr(address, "ipv4_mapped", None):
        raise ValueError(f"{text} is not an address to send from")
    check_scope(text)
    return str(address)


def _one_of_each(sources: tuple[str, ...]) -> tuple[str, ...]:
    """Raise ValueError for two addresses of one family."""
    for family, is_six in (("IPv4", False), ("IPv6", True)):
        found = [each for each in sources if (":" in each) is is_six]
        if len(found) > 1:
            raise ValueError(f"{' and '.join(found)}: at most one {family} address")
    return sources


BOOLEAN = ValueType(
    lambda value: _of_type(value, bool), lambda text: {"true": True, "false": False}.get(text.lower(), text)
)
TEXT = ValueType(lambda value: _of_type(value, str))
SHORT_TEXT = TEXT.then(_short)
PATH = TEXT.then(_path)  # "" is None; the reader resolves relative paths
SOURCE = TEXT.then(_source)  # the reader resolves relative files
FILE = TEXT.then(_file)
DURATION = ValueType(_duration)
_PERIOD = DURATION.then(_positive)
_EVERY_HOURS = DURATION.then(_hours)
_UP_TO_A_DAY = DURATION.then(lambda value: _bounded(value, 0, 86400))
SHA256 = TEXT.then(read_sha256)
NAME = TEXT.then(read_name)
_ADDRESS = TEXT.then(lambda text: Address.from_text(text) if text else None)
_ADDRESSES = list_of(TEXT.then(Address.from_text))
_ONE_OR_MORE = ValueType(  # one text is one address
    lambda value: _ADDRESSES.read([value] if isinstance(value, str) else value), _ADDRESSES.from_text
)
_HOSTS = list_of(TEXT.then(_host_name))
_SERVERS = list_of(TEXT.then(_server))
_NETWORKS = list_of(TEXT.then(read_network))
_ACCESS = list_of(TEXT.then(AccessRule.from_text))
_NOTIFY = list_of(TEXT.then(NotifyTarget.from_text))
_MAILBOX = TEXT.then(lambda text: read_name(names.mailbox(text)))
_TEXTS = table_of(table_of(ValueType(lambda value: value if type(value) is list else _of_type(value, str))))
_SENDERS = list_of(TEXT.then(_sender)).then(_one_of_each)

CERTIFICATE, SECRET, TABLE, ZONE = "a certificate or key", "a secret", "a table", "a zone"  # contents of files


# ---- tables and keys


def setting(
    value_type: ValueType[Any],
    default: Any = MISSING,
    *,
    shown: bool = True,
    needs: tuple[str, ...] = (),
    content: str = "",
) -> Any:
    """Return the field of a key, which is required if it has no default. Secrets are not ``shown`` in any text.

    Without one of the keys that it ``needs``, of its table or by their dotted names, it has no effect. ``content`` is
    what its file has, so that no file is named for two kinds of content.
    """
    return field(default=default, repr=shown, metadata={"type": value_type, "needs": needs, "content": content})


def section(table: type[Any]) -> Any:
    """Return the field of a table below this one."""
    return field(default_factory=table, metadata={"table": table})


def sections(key: str, table: type[Any]) -> Any:
    """Return the field of an array of tables, ``[[key]]``."""
    return field(default=(), metadata={"array": table, "key": key})


class Removed(NamedTuple):
    """A setting that earlier versions had. A configuration with it is read, with a warning that says what to do.

    Its value is that of ``successor``, a setting of the same table, if there is one and it is not set.
    """

    advice: str
    successor: str = ""


# By their dotted names. One stays here for a minor version at least (docs/promises.md).
REMOVED: Mapping[str, Removed] = {
    "serve.workers": Removed("one process answers; NSD or Knot as secondaries carry more"),
}

WARN_BEFORE = 14 * 86400  # seconds before the end of a certificate; ACME clients renew one of 90 days after 60
# Limits on TCP and TLS connections, for all addresses together.
MAX_CONNECTIONS = 500  # BIND's tcp-clients is 150, NSD's tcp-count 100; an idle connection takes some kilobytes
MAX_PER_CLIENT = 50  # RFC 7766 6.2.2 lets a server limit the connections of one client
# Seconds from the last response to the final byte of the next query: "on the order of a few seconds" (RFC 7766 6.2.3).
# It applies to slow clients as well as silent ones.
IDLE_TIMEOUT = 10.0


@dataclass(frozen=True)
class TlsConfig:
    """``[serve.tls]``: DNS over TLS (RFC 7858)."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (), needs=("certificate", "key"))
    certificate: Path | None = setting(PATH, None, needs=("listen",), content=CERTIFICATE)
    key: Path | None = setting(PATH, None, needs=("listen",), content=CERTIFICATE)
    warn_before: int = setting(DURATION, WARN_BEFORE, needs=("listen",))  # at most a third of its lifetime


@dataclass(frozen=True)
class RrlConfig(rrl.RateLimits):
    """``[serve.rrl]``: response rate limiting for UDP; 0 responses a second means no limit."""

    responses_per_second: int = setting(integer(0, 1_000_000), rrl.RESPONSES_PER_SECOND)
    slip: int = setting(integer(0, 10), rrl.SLIP)  # every nth limited response is sent truncated; 0: none
    window: int = setting(DURATION.then(lambda value: _bounded(value, 1, 3600)), rrl.WINDOW)
    ipv4_prefix: int = setting(integer(0, 32), rrl.IPV4_PREFIX)
    ipv6_prefix: int = setting(integer(0, 128), rrl.IPV6_PREFIX)
    exempt: tuple[Network, ...] = setting(_NETWORKS, rrl.EXEMPT)


@dataclass(frozen=True)
class CookieConfig:
    """``[serve.cookies]``: DNS cookies (RFC 7873). Without a secret, each start makes a new one."""

    enabled: bool = setting(BOOLEAN, True)
    require: bool = setting(BOOLEAN, False)  # answer UDP queries without a valid cookie with BADCOOKIE
    secret: tuple[bytes, ...] = setting(TEXT.then(read_cookie_secrets), (), shown=False)
    secret_file: Path | None = setting(PATH, None, content=SECRET)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on the open connections of all addresses together: ``[serve.tcp]``. The gateway has its own."""

    max_connections: int = setting(integer(1, 100_000), MAX_CONNECTIONS)
    max_per_client: int = setting(integer(1, 100_000), MAX_PER_CLIENT)
    idle_timeout: float = setting(seconds(0.1, 3600), IDLE_TIMEOUT)


@dataclass(frozen=True)
class QueryLogConfig:
    """``[serve.query_log]``: which queries are logged."""

    every: int = setting(integer(0, 1_000_000_000), 0)  # log every nth query; 0: none
    rate: int = setting(integer(1, 100_000), 100)  # lines a second at most


@dataclass(frozen=True)
class CatalogConfig:
    """``[serve.catalog]``: a catalog zone (RFC 9432) of all zones served, if it has a name."""

    name: Labels | None = setting(TEXT.then(lambda text: read_name(text) if text else None), None)
    transfer: tuple[AccessRule, ...] = setting(_ACCESS, (), needs=("name",))
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, (), needs=("name",))


@dataclass(frozen=True)
class SecondariesConfig:
    """``[serve.secondaries]``: how often secondaries are asked for their serial, and when an old one is an alarm."""

    source: tuple[str, ...] = setting(_SENDERS, ())  # of NOTIFY and SOA queries
    interval: int = setting(_PERIOD, 300)  # seconds between two queries to a secondary in step
    alarm_after: int = setting(_PERIOD, 300)  # seconds without the serial of the zone


@dataclass(frozen=True)
class ServeConfig:
    """``[serve]``."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (Address("127.0.0.1", SERVER_PORT),))
    user: str = setting(TEXT, "")  # NAME or NAME:GROUP to run as, if started by root
    nsid: str = setting(SHORT_TEXT, "")
    version: str = setting(SHORT_TEXT, "")  # version.bind; empty: REFUSED
    hostname: str = setting(SHORT_TEXT, "")  # hostname.bind and id.server; empty: REFUSED
    udp_payload: int = setting(integer(MIN_PAYLOAD, MAX_PAYLOAD), UDP_PAYLOAD)
    control: Path | None = setting(PATH, Path("run/maptr.sock"), content="a control socket")
    control_group: str = setting(TEXT, "")  # whose members may ask for the status
    metrics: Address | None = setting(_ADDRESS, None)  # HTTP: /metrics for Prometheus, and /health
    metrics_hosts: tuple[str, ...] = setting(_HOSTS, (), needs=("metrics",))  # more names of this machine
    state: Path | None = setting(PATH, None)  # a folder for data that outlives a restart
    tls: TlsConfig = section(TlsConfig)
    rrl: RrlConfig = section(RrlConfig)
    cookies: CookieConfig = section(CookieConfig)
    tcp: ConnectionLimits = section(ConnectionLimits)
    catalog: CatalogConfig = section(CatalogConfig)
    secondaries: SecondariesConfig = section(SecondariesConfig)
    silence: tuple[str, ...] = setting(list_of(TEXT), ())  # alarms that someone else takes care of
    log_level: str = setting(choice("debug", "info", "warning", "error"), "info")
    log_format: str = setting(choice("text", "json"), "text")
    query_log: QueryLogConfig = section(QueryLogConfig)


@dataclass(frozen=True)
class KeyConfig:
    """``[[key]]``: a TSIG key (RFC 8945), with its secret here or in a separate file."""

    name: Labels = setting(TEXT.then(read_key_name))
    algorithm: str = setting(TEXT.then(read_algorithm), "hmac-sha256")
    secret: bytes | None = setting(TEXT.then(read_tsig_secret), None, shown=False)
    secret_file: Path | None = setting(PATH, None, content=SECRET)


@dataclass(frozen=True)
class SigningConfig(SigningPolicy):
    """``[zone.signing]``: signing of a zone with ``keys``, with the settings of ``maptr zone sign``."""

    lifetime: int = setting(DURATION, LIFETIME)
    inception: int = setting(DURATION, INCEPTION_OFFSET)  # time from the start of signatures to now
    refresh: int = setting(DURATION, REFRESH)  # time from the renewal of signatures to their end
    zonemd: bool = setting(BOOLEAN, True)
    cds: Children = setting(choice(*Children).then(Children), Children.PUBLISH)
    dnskey_ttl: int | None = setting(DURATION, None)  # None: the TTL of the SOA


def signed_path(folder: Path, origin: Labels) -> Path:
    """Return the path of a zone's signed version in a state folder."""
    return folder / f"{name_for(origin)}.signed"


@dataclass(frozen=True)
class ZoneConfig:
    """``[[zone]]``: a zone, its file, its secondaries, and the publication of a new file."""

    name: Folded = setting(NAME)
    file: Path = setting(FILE, content=ZONE)
    transfer: tuple[AccessRule, ...] = setting(_ACCESS, ())
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, ())
    max_shrink: float = setting(number(0, 1), REMOVAL_LIMIT)  # the fraction of its names that a new file may lose
    serial: str = setting(choice("file", "increment", "date", "unix"), "file", needs=("serve.state",))
    lint: str = setting(choice("off", "warn", "refuse"), "warn")
    keys: Path | None = setting(PATH, None, needs=("serve.state",))  # a folder; the server signs with the keys in it
    signing: SigningConfig = section(SigningConfig)
    table: Path | None = setting(TEXT.then(_table), None, content=TABLE)  # a registry to build the file from
    ns: tuple[str, ...] = setting(list_of(TEXT), (), needs=("table",))
    contact: Labels = setting(_MAILBOX, (b"hostmaster",), needs=("table",))
    ttl: int = setting(DURATION, 86400, needs=("table",))
    include: tuple[Path, ...] = setting(list_of(FILE), (), needs=("table",), content=ZONE)
    state: Path | None = field(default=None, compare=False)  # serve.state
    scheme: str = field(default="https", compare=False)  # client.scheme

    @property
    def style(self) -> str:
        """How the server chooses serials; "file": it does not. Those of a built file are from the date by default."""
        return "date" if self.table is not None and self.serial == "file" else self.serial

    @property
    def published(self) -> Path:
        """The file with the zone as the server publishes it: a signed zone is in the state folder."""
        if self.keys is None or self.state is None:
            return self.file
        return signed_path(self.state, self.name)


@dataclass(frozen=True)
class TableConfig:
    """``[table]``: the registry, its sources and its file."""

    file: Path | None = setting(TEXT.then(_table_to_write), None, content=TABLE)
    url: str = setting(SOURCE, "", needs=("file",))
    mirrors: tuple[str, ...] = setting(list_of(SOURCE), (), needs=("url",))
    every: int = setting(_PERIOD, 3600, needs=("url",))
    sha256: str = setting(SHA256, "", needs=("url",))
    public_key: Path | None = setting(PATH, None, needs=("url",), content="a key of minisign")
    cafile: Path | None = setting(PATH, None, needs=("url",), content=CERTIFICATE)
    drift: tuple[str, ...] = setting(_SERVERS, (), needs=("file",))  # servers to compare with the table
    drift_except: tuple[str, ...] = setting(list_of(TEXT), ())  # NAANs that others serve

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in the order in which they are tried."""
        return (self.url, *self.mirrors) if self.url else ()


@dataclass(frozen=True)
class ClientConfig:
    """``[client]``: the servers to query for ARKs, and the origin."""

    origin: Labels = setting(NAME, ARK_ARPA)
    nameservers: tuple[str, ...] = setting(_SERVERS, ())  # empty: the servers of the system
    lifetime: float = setting(seconds(0.1, 86_400), call.LIFETIME)  # of a discovery
    choose: str = setting(name_in(entry_points.CHOOSERS, CHOOSERS), CHOOSERS[0])
    scheme: str = setting(choice("https", "http"), "https")  # for hosts without a scheme
    hyphens: Hyphens = setting(choice("remove", "keep"), "remove")  # of an ARK in its URL


@dataclass(frozen=True)
class CacheConfig:
    """``[cache]``: the cache of the commands that look up ARKs."""

    natab: Path | None = setting(TEXT.then(_table), None, content=TABLE)
    path: Path | None = setting(PATH, None, content="a cache")
    policy: str = setting(name_in(entry_points.POLICIES, POLICIES), DNS_FIRST)
    patience: float = setting(seconds(0, 3600), PATIENCE)
    stale_limit: int = setting(DURATION, STALE_LIMIT)
    table_limit: int = setting(DURATION, 0)  # 0: no limit


@dataclass(frozen=True)
class GatewayConfig:
    """``[gateway]``: the HTTP gateway."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (Address("127.0.0.1", HTTP_PORT),))
    admin_listen: tuple[Address, ...] = setting(_ONE_OR_MORE, ())  # where its operator reaches metrics and statistics
    admin_hosts: tuple[str, ...] = setting(_HOSTS, (), needs=("admin_listen",))  # more names of this machine
    public_url: str = setting(TEXT.then(_own_url), "")  # where clients reach it
    root: str = setting(TEXT.then(_base_url), "")  # the resolver for ARKs without a mapping authority
    metadata: str = setting(TEXT.then(_template), "")  # the target of inflections, with ${pid} and ${inflection}
    inflections: str = setting(choice("forward", "describe"), "forward")
    redirects: Path | None = setting(PATH, None, content="own objects")  # CSV or SQLite: redirects of single ARKs
    public_columns: tuple[str, ...] = setting(list_of(TEXT), (), needs=("redirects",))  # of a CSV
    permanence: str = setting(TEXT, "")  # what is promised for them, in their descriptions
    max_age: int = setting(_UP_TO_A_DAY, 300)  # of a redirect without a TTL of DNS
    max_age_missing: int = setting(_UP_TO_A_DAY, 30)  # of the answer that there is none
    max_age_gone: int = setting(_UP_TO_A_DAY, 300)  # of the answer that an object is gone
    suggest: str = setting(choice("spelling", "neighbours"), "spelling")  # what is suggested for an ARK not found
    drift_every: int = setting(DURATION, 3600)  # 0: never
    probe_every: int = setting(DURATION, 0)  # each server of the table, so often; 0: never
    check_every: int = setting(_EVERY_HOURS, 0, needs=("redirects",))  # the URL of each own object, so often; 0: never
    name: str = setting(TEXT, "")  # of the organisation that runs it, on its pages
    contact: str = setting(TEXT.then(_contact), "")
    imprint: str = setting(TEXT.then(_link), "")
    text: str = setting(TEXT, "")  # on the first page
    heading: str = setting(TEXT, "")  # of the first page
    home: str = setting(TEXT.then(_link), "")  # where the name on the pages leads
    example: str = setting(TEXT.then(_example), "")  # an ARK to try
    naans: tuple[str, ...] = setting(list_of(TEXT.then(check_naan)), ())  # the only ones that it answers for
    logo: Path | None = setting(PATH, None, content="a logo")  # PNG or SVG, in place of the name
    accent: str = setting(TEXT.then(partial(read_colour, background=LIGHT)), "")  # of links and buttons
    accent_dark: str = setting(TEXT.then(partial(read_colour, background=DARK)), "", needs=("accent",))
    language: str = setting(TEXT.then(_language), BROWSER)  # of all pages; "browser": the one it prefers
    messages: Path | None = setting(PATH, None)  # a folder of further languages
    texts: Mapping[str, Mapping[str, PageText]] = field(  # of the pages, by language and English message
        default_factory=dict, metadata={"type": _TEXTS, "needs": (), "content": ""}
    )
    stats: Path | None = setting(PATH, None, content="statistics")  # a SQLite file
    public_stats: bool = setting(BOOLEAN, False)
    certificate: Path | None = setting(PATH, None, needs=("key",), content=CERTIFICATE)
    key: Path | None = setting(PATH, None, needs=("certificate",), content=CERTIFICATE)
    certificate_warn_before: int = setting(DURATION, WARN_BEFORE, needs=("certificate",))
    max_connections: int = setting(integer(1, 100_000), 1000)
    idle_timeout: float = setting(seconds(0.1, 3600), 15.0)
    rate: int = setting(integer(0, 1_000_000), 200)  # requests a second per client; 0: no limit
    max_per_client: int = setting(integer(1, 100_000), 100)
    proxies: tuple[Network, ...] = setting(_NETWORKS, rrl.EXEMPT)  # their header names the client
    client_header: str = setting(choice(X_FORWARDED_FOR, FORWARDED), X_FORWARDED_FOR)
    proxy_protocol: bool = setting(BOOLEAN, False)  # of connections from proxies
    access_log: bool = setting(BOOLEAN, False)
    access_log_format: str = setting(choice("maptr", "combined"), "maptr")

    @property
    def asks_as(self) -> str:
        """What tells the operators of other servers who asks them: a URL or an e-mail address, or ""."""
        return self.public_url or self.contact


@dataclass(frozen=True)
class Config:
    """The whole configuration. ``locations`` has the file and line of each key that is set, for error messages."""

    serve: ServeConfig = section(ServeConfig)
    keys: tuple[KeyConfig, ...] = sections("key", KeyConfig)
    zones: tuple[ZoneConfig, ...] = sections("zone", ZoneConfig)
    table: TableConfig = section(TableConfig)
    client: ClientConfig = section(ClientConfig)
    cache: CacheConfig = section(CacheConfig)
    gateway: GatewayConfig = section(GatewayConfig)
    filename: str = field(default="", compare=False)
    locations: Mapping[str, tuple[str, int]] = field(default_factory=dict, compare=False, repr=False)
    removed: tuple[ConfigError, ...] = field(default=(), compare=False, repr=False)  # a warning for each

    @property
    def control(self) -> Path | None:
        """The control socket's path; None without a configuration file, unless the path was set explicitly."""
        return self.serve.control if self.filename or "serve.control" in self.locations else None

    def open_secrets(self) -> list[ConfigError]:
        """Return a warning for the first secret of each file of the configuration that everybody may read."""
        found: dict[str, ConfigError] = {}
        secrets = {name for name, one in all_keys().items() if not one.repr}
        keys = [key for key in self.locations if _INDEX.sub("", key) in secrets]
        for key in sorted(keys, key=self.locations.__getitem__):
            filename, _ = self.locations[key]
            if filename and filename not in found and (fault := open_to_all(Path(filename))):
                found[filename] = self.error(key, fault)
        return [*found.values()]

    def error(self, key: str, message: str, *, of_text: bool = False) -> ConfigError:
        """Make an error with file and line for a key, such as ``serve.listen`` or ``key[0].secret_file``."""
        filename, line = self.locations.get(key, (self.filename, 0))
        dotted = _INDEX.sub("", key)
        return ConfigError(message, filename=filename, line=line, key=dotted, of_text=of_text)


def successor_of(key: str) -> str:
    """Return the setting that has taken the place of a removed one; any other setting unchanged."""
    return REMOVED[key].successor if key in REMOVED else key


def keys_of(table: type[Any]) -> Mapping[str, dataclasses.Field[Any]]:
    """Return the field of each key of a table."""
    return _keys_of(table)  # type: ignore[arg-type]  # mypy: not Hashable


@cache
def _keys_of(table: type[Any]) -> Mapping[str, dataclasses.Field[Any]]:
    return {one.metadata.get("key", one.name): one for one in dataclasses.fields(table) if one.metadata}


def all_keys(table: type[Any] = Config, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    """Return the field of each key with a value, by its dotted name, which has no index: ``zone.file``."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for key, one in keys_of(table).items():
        below = one.metadata.get("table") or one.metadata.get("array")
        found |= all_keys(below, f"{prefix}{key}.") if below else {prefix + key: one}
    return found
