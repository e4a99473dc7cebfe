"""The configuration as frozen dataclasses: one class for each table of ``maptr.toml``, one field for each key.

A field is the only place that states a key's name, type, accepted values, default and help text. The reader, the
environment variables, the suggestions for unknown keys, the options of commands, the tables of docs/configuration.md
and maptr.toml(5) are all made from it (``reference``). A value that cannot be read raises ValueError with the reason,
which never contains a secret; the reader adds file and line.
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
from maptr.transfer.acl import DIGESTS, AccessRule, NotifyTarget, TsigKey, read_key_name

T = TypeVar("T")

_INDEX = re.compile(r"\[\d+\]")  # in ``zone[0].file``
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # as in the TTLs of zone files
_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a text", list: "an array", dict: "a table"}


# ---- value types


class ElementError(ValueError):
    """An array or a table with invalid elements. ``wrong`` has the path of each (keys, and indices from 0) and the
    reason."""

    def __init__(self, wrong: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__("; ".join(message for _, message in wrong))
        self.wrong = wrong


class NotInstalled(ValueError):
    """A name that is neither built in nor declared by an installed package."""


class ValueType(NamedTuple, Generic[T]):
    """The type of a value: ``read`` takes a TOML value; ``from_text`` makes one from an environment variable.

    ``values`` describes what ``read`` takes, for help texts; ``metavar`` stands for a value, or an element of a list.
    ``words`` are the only values, or the built-in ones.
    """

    read: Callable[[Any], T]
    values: str
    metavar: str = "TEXT"
    from_text: Callable[[str], object] = lambda text: text
    words: Sequence[str] = ()
    is_list: bool = False

    def then(self, further: Callable[[T], Any], values: str = "", metavar: str = "") -> ValueType[Any]:
        """Return a type whose ``read`` also applies ``further``."""
        return self._replace(
            read=lambda value: further(self.read(value)),
            values=values or self.values,
            metavar=metavar or self.metavar,
        )


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
    """Read a TSIG secret in Base64 (RFC 4648 section 4), as every DNS server writes it. Raises ValueError."""
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
    """Read secrets of 32 hexadecimal digits, one per line. The first makes cookies, all verify them (RFC 9018 5)."""
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
    if not low <= value <= high:  # also refuses NaN
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
    return _within(int, low, high)


def number(low: float, high: float) -> ValueType[float]:
    return _within(float, low, high)


def _within(kind: type[T], low: float, high: float) -> ValueType[T]:
    values = f"{_TYPES[kind]} from {low:,} to {high:,}"
    return ValueType(lambda value: _bounded(_of_type(value, kind), low, high), values, "N", _number_from_text)


def duration(low: int = 0, high: int = MAX_TTL) -> ValueType[int]:
    """Return the type of a whole number of seconds within bounds, or a text such as ``14d``."""
    return ValueType(lambda value: _bounded(_duration(value), low, high), _durations(low, high), "TIME")


def seconds(low: float, high: float) -> ValueType[float]:
    """Return the type of a duration within bounds; a number of seconds may have a fraction."""
    return ValueType(
        lambda value: _bounded(value if type(value) is float else float(_duration(value)), low, high),
        _durations(low, high),
        "TIME",
        _number_from_text,
    )


def _durations(low: float, high: float) -> str:
    if high == MAX_TTL:
        return "a duration"
    least = f'`"{duration_text(low)}"`' if low >= 1 else f"{low} seconds"
    return f'a duration {f"from {least}" if low else "up"} to `"{duration_text(high)}"`'


def duration_text(seconds: float) -> str:
    """Write whole seconds with the greatest unit up to days that divides them, such as ``14d``."""
    unit = next(unit for unit in "dhms" if seconds % UNITS[unit] == 0)
    return f"{int(seconds) // UNITS[unit]}{unit}"


def choice(*words: str) -> ValueType[str]:
    def read(value: object) -> str:
        if _of_type(value, str) not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r}")
        return str(value)

    *others, last = (f'`"{word}"`' for word in words)
    return ValueType(read, f"{', '.join(others)} or {last}", words=words)


def name_in(group: str, built_in: Sequence[str]) -> ValueType[str]:
    """Return the type of a built-in name, or one that an installed package declares in a group."""

    def read(value: object) -> str:
        if value in built_in:
            return str(value)
        try:
            return choice(*built_in, *entry_points.names(group)).read(value)
        except ValueError as error:
            raise NotInstalled(str(error)) from None

    return ValueType(read, f"{choice(*built_in).values}, or the name of a [plugin](plugins.md)", words=built_in)


def list_of(element: ValueType[T], plural: str) -> ValueType[tuple[T, ...]]:
    """Return the type of an array; a variable separates elements by commas. Its ``read`` raises ElementError."""

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

    def from_text(text: str) -> list[object]:
        return [element.from_text(part.strip()) for part in text.split(",") if part.strip()]

    return ValueType(read, f"a list of {plural}", element.metavar, from_text, is_list=True)


def table_of(element: ValueType[T]) -> ValueType[Mapping[str, T]]:
    """Return the type of a table with arbitrary keys. Its ``read`` raises ElementError."""

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

    return ValueType(read, _TYPES[dict])


def _short(text: str) -> str:
    if len(text.encode()) > MAX_IDENTITY:
        raise ValueError(f"is longer than {MAX_IDENTITY} bytes")
    return text


def _table(text: str) -> Path | None:
    """Read the path of a table to read, or "builtin" for the built-in one; "./builtin" is a file."""
    return Path(paths.BUILT_IN_FILE) if text == paths.BUILT_IN else _path(text)


def _table_to_write(text: str) -> Path | None:
    if text == paths.BUILT_IN:
        raise ValueError(f"is the built-in registry, which cannot be written: ./{paths.BUILT_IN} is a file")
    return _path(text)


def _path(text: str) -> Path | None:
    if "\0" in text:
        raise ValueError("contains a NUL, which no file name can")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise ValueError(f"is not a valid file name in {encoding}, the locale's encoding: set LC_ALL=C.UTF-8") from None
    return Path(text) if text else None


def _file(text: str) -> Path:
    path = _path(text)
    if path is None:
        raise ValueError("is empty: a file is required")
    return path


class PullSource(str):
    """A registry's URL or file."""

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
    """Read a whole number of seconds, or a text such as "14d"."""
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
    """Read how often other people's servers are asked: at least an hour; 0: never."""
    if 0 < seconds < UNITS["h"]:
        raise ValueError("must be 0, or at least 1h")
    return seconds


def _own_url(text: str) -> str:
    """Read the gateway's own URL, which has no path."""
    base = _base_url(text)
    if base and url.parse(base).rest:
        raise ValueError("must be a URL without a path: the gateway answers at the root of its host")
    return base


def _link(text: str) -> str:
    if text:
        url.parse(text)
    return text


def _host_name(text: str) -> str:
    """Read a host name as in a Host header, without a port."""
    name = text.removesuffix(".").lower()
    if not re.fullmatch("[0-9a-z_-]+([.][0-9a-z_-]+)*", name):
        raise ValueError(f"{text!r} is not a host name without a port")
    return name


def _example(text: str) -> str:
    return str(Ark.parse(text)) if text else ""


def _language(text: str) -> str:
    """Read a language code, or "browser"; the gateway checks that it has the language."""
    if text != BROWSER and not LANGUAGE_CODE.fullmatch(text):
        raise ValueError(f"must be {BROWSER} or a language code, such as {' or '.join(LANGUAGES)}, not {text!r}")
    return text


def _contact(text: str) -> str:
    """Read an e-mail address, with or without ``mailto:``, or the URL of a page."""
    text = text.removeprefix("mailto:")
    return text if re.fullmatch(r"[^\s@:/]+@[^\s@:/]+", text) else _link(text)


LANGUAGES, BROWSER = ("en", "fr", "es"), "browser"  # the built-in languages of the gateway's pages
PageText = str | list[str]  # a text on the pages, or its singular and plural
LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[a-z0-9]{2,8})*")  # BCP 47, such as de or pt-br
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
    lambda value: _of_type(value, bool),
    "`true` or `false`",
    from_text=lambda text: {"true": True, "false": False}.get(text.lower(), text),
)
TEXT = ValueType(lambda value: _of_type(value, str), _TYPES[str])
SHORT_TEXT = TEXT.then(_short, f"a text of up to {MAX_IDENTITY} bytes")
PATH = TEXT.then(_path, "a file", "FILE")  # "" is None; the reader resolves relative paths
FOLDER = PATH._replace(values="a folder", metavar="DIRECTORY")
FILE = TEXT.then(_file, "a file", "FILE")
SOURCE = TEXT.then(_source, "a URL or a file")  # the reader resolves relative files
_TABLE = TEXT.then(_table, '`"builtin"` or a file', "FILE")
DURATION = duration()
_PERIOD = DURATION.then(_positive, "a duration above 0")
_EVERY_HOURS = DURATION.then(_hours, '0, or a duration of at least `"1h"`')
_UP_TO_A_DAY = duration(0, 86400)
SHA256 = TEXT.then(read_sha256, "64 hexadecimal digits")
NAME = TEXT.then(read_name, "a domain name", "NAME")
_NAME_OR_NONE = TEXT.then(lambda text: read_name(text) if text else None, "a domain name", "ORIGIN")
_ADDRESS = TEXT.then(lambda text: Address.from_text(text) if text else None, "an IP address with a port", "HOST:PORT")
_ADDRESSES = list_of(TEXT.then(Address.from_text, metavar="HOST:PORT"), "IP addresses with ports")
_ONE_OR_MORE = _ADDRESSES._replace(  # one text is one address
    read=lambda value: _ADDRESSES.read([value] if isinstance(value, str) else value),
    values="an IP address with a port, or a list of them",
)
_HOSTS = list_of(TEXT.then(_host_name), "host names")
_SERVERS = list_of(TEXT.then(_server), "DNS servers")
_NETWORKS = list_of(TEXT.then(read_network), "IP addresses and prefixes")
_ACCESS = list_of(
    TEXT.then(AccessRule.from_text, metavar="WHO"), "clients, each `PREFIX`, `key:NAME` or `PREFIX key:NAME`"
)
_NOTIFY = list_of(
    TEXT.then(NotifyTarget.from_text, metavar="HOST[:PORT] [key:NAME]"),
    "servers, each `HOST[:PORT]` or `HOST[:PORT] key:NAME`",
)
_MAILBOX = TEXT.then(lambda text: read_name(names.mailbox(text)), "an e-mail address or a domain name")
_PAGE_TEXT = ValueType(lambda value: value if type(value) is list else _of_type(value, str), _TYPES[str])
_TEXTS = table_of(table_of(_PAGE_TEXT))
_SENDERS = list_of(TEXT.then(_sender), "IP addresses, at most one IPv4 and one IPv6 address").then(_one_of_each)
_URL = TEXT.then(_link, "a URL")
_USER = TEXT._replace(values="`NAME` or `NAME:GROUP`, or their numbers", metavar="NAME[:GROUP]")
_SOCKET = PATH._replace(values="the path of a socket", metavar="SOCKET")
_KEY_NAME = TEXT.then(read_key_name, "a domain name")
_ALGORITHM = TEXT.then(read_algorithm, ", ".join(f"`hmac-{digest}`" for digest in DIGESTS))
_COOKIE_SECRETS = TEXT.then(
    read_cookie_secrets, f"{2 * KEY_SIZE} hexadecimal digits, or two such secrets separated by a space"
)
_COLOUR = 'a colour such as `"#7a1f3d"`'
_LANGUAGE = '`"browser"`, or a language code, such as `"fr"`'

CERTIFICATE, SECRET, TABLE, ZONE = "a certificate or key", "a secret", "a table", "a zone"  # what a file holds


# ---- tables and keys


class UndescribedSetting(NamedTuple):
    """A setting that lacks its help text."""

    default: Any
    shown: bool
    metadata: Mapping[str, Any]

    def help(self, text: str) -> Any:
        """Return the key's field. The text is a phrase in Markdown, with code and links only, that begins in lower case
        and has no final full stop."""
        default: dict[str, Any] = {"default_factory": dict} if self.default is dict else {"default": self.default}
        return field(**default, repr=self.shown, metadata={**self.metadata, "help": text})


def setting(
    value_type: ValueType[Any],
    default: Any = MISSING,
    *,
    shown: bool = True,
    needs: tuple[str, ...] = (),
    content: str = "",
    empty: str = "",
    missing: str = "",
) -> UndescribedSetting:
    """Return a key that still needs its help text. Without a default, it is required. Secrets are never ``shown``.

    It has no effect without the keys that it ``needs``: keys of its table, or dotted names. ``content`` is what its
    file holds, so that no file is used for two kinds of content. ``empty`` says what applies without a value, and
    ``missing`` what applies without the key, if that is something else.
    """
    metadata = {"type": value_type, "needs": needs, "content": content, "empty": empty, "missing": missing}
    return UndescribedSetting(default, shown, metadata)


def section(table: type[Any]) -> Any:
    """Return the field of a table below this one."""
    return field(default_factory=table, metadata={"table": table})


def sections(key: str, table: type[Any]) -> Any:
    """Return the field of an array of tables, ``[[key]]``."""
    return field(default=(), metadata={"array": table, "key": key})


class Removed(NamedTuple):
    """A setting of earlier versions. A configuration that has it is read, with a warning that says what to do.

    Its value goes to ``successor``, a setting of the same table, if there is one and it is not set.
    """

    advice: str
    successor: str = ""


# By dotted name. Each is listed here for at least one minor version (docs/promises.md).
REMOVED: Mapping[str, Removed] = {
    "serve.workers": Removed("one process answers all queries; for more load, add NSD or Knot as secondaries"),
}

WARN_BEFORE = 14 * 86400  # seconds before a certificate expires; ACME clients renew a 90-day one after 60 days
# Limits on TCP and TLS connections, for all addresses together.
MAX_CONNECTIONS = 500  # BIND's tcp-clients is 150, NSD's tcp-count 100; an idle connection takes a few kilobytes
MAX_PER_CLIENT = 50  # RFC 7766 6.2.2 lets a server limit the connections of one client
# Seconds from the last response to the final byte of the next query: "on the order of a few seconds" (RFC 7766 6.2.3).
# It applies to slow clients as well as silent ones.
IDLE_TIMEOUT = 10.0
QUERIES_A_SECOND = 100  # in the log


@dataclass(frozen=True)
class TlsConfig:
    """``[serve.tls]``: DNS over TLS (RFC 7858)."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (), needs=("certificate", "key")).help(
        'serve DNS over TLS at these addresses, such as `"127.0.0.1:853"`'
    )
    certificate: Path | None = setting(PATH, None, needs=("listen",), content=CERTIFICATE).help(
        "use the certificate and its chain in this file (PEM)"
    )
    key: Path | None = setting(PATH, None, needs=("listen",), content=CERTIFICATE).help(
        "use the private key in this file (PEM)"
    )
    warn_before: int = setting(DURATION, WARN_BEFORE, needs=("listen",)).help(
        "how long before it expires, at most a third of its lifetime, the certificate raises an alarm"
    )


@dataclass(frozen=True)
class RrlConfig(rrl.RateLimits):
    """``[serve.rrl]``: response rate limiting for UDP; 0 responses a second means no limit."""

    responses_per_second: int = setting(integer(0, 1_000_000), rrl.RESPONSES_PER_SECOND).help(
        "UDP responses a second with the same content to one network, and ten times as many in total; 0: no limit"
    )
    slip: int = setting(integer(0, 10), rrl.SLIP).help(
        "truncate every nth response over the limit and drop the others; 0: drop all"
    )
    window: int = setting(duration(1, 3600), rrl.WINDOW).help("time for which responses over the limit count")
    ipv4_prefix: int = setting(integer(0, 32), rrl.IPV4_PREFIX).help("prefix length of an IPv4 network")
    ipv6_prefix: int = setting(integer(0, 128), rrl.IPV6_PREFIX).help("prefix length of an IPv6 network")
    exempt: tuple[Network, ...] = setting(_NETWORKS, rrl.EXEMPT).help("networks that are exempt from the limit")


@dataclass(frozen=True)
class CookieConfig:
    """``[serve.cookies]``: DNS cookies (RFC 7873). Without a secret, each start makes a new one."""

    enabled: bool = setting(BOOLEAN, True).help("DNS cookies (RFC 7873); off without the extra `server`")
    require: bool = setting(BOOLEAN, False).help(
        "respond with BADCOOKIE to a UDP query with a wrong cookie; one without a cookie is answered"
    )
    secret: tuple[bytes, ...] = setting(_COOKIE_SECRETS, (), shown=False, empty="random").help(
        "cookie secrets: the first makes cookies, both verify them"
    )
    secret_file: Path | None = setting(PATH, None, content=SECRET).help("file with the cookie secrets")


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on the open connections of all addresses together: ``[serve.tcp]``. The gateway has its own."""

    max_connections: int = setting(integer(1, 100_000), MAX_CONNECTIONS).help("open TCP and TLS connections")
    max_per_client: int = setting(integer(1, 100_000), MAX_PER_CLIENT).help(
        "open connections from one IPv4 address or IPv6 /64"
    )
    idle_timeout: float = setting(seconds(0.1, 3600), IDLE_TIMEOUT).help(
        "close a connection that sends no complete query for this time"
    )


@dataclass(frozen=True)
class QueryLogConfig:
    """``[serve.query_log]``: which queries are logged."""

    every: int = setting(integer(0, 1_000_000_000), 0).help(
        f"log every nth query (1: all), at most `serve.query_log.rate` a second (default {QUERIES_A_SECOND}); 0: none"
    )
    rate: int = setting(integer(1, 100_000), QUERIES_A_SECOND).help("log at most this many queries a second")


@dataclass(frozen=True)
class CatalogConfig:
    """``[serve.catalog]``: a catalog zone (RFC 9432) of all zones served, if it has a name."""

    name: Labels | None = setting(_NAME_OR_NONE, None).help(
        "also serve a catalog zone with this name (RFC 9432), which lists all zones, to clients that may transfer it, "
        'such as `"catalog.invalid"`; [members](admin.md#secondaries) that a changed configuration lacks may remain'
    )
    transfer: tuple[AccessRule, ...] = setting(_ACCESS, (), needs=("name",)).help("as `zone.transfer`")
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, (), needs=("name",)).help("as `zone.notify`")


@dataclass(frozen=True)
class SecondariesConfig:
    """``[serve.secondaries]``: how often to ask secondaries for their serial, and when an old one raises an alarm."""

    source: tuple[str, ...] = setting(_SENDERS, ()).help(
        'send NOTIFY and SOA queries from these addresses, such as the service address of VRRP: `["192.0.2.1", '
        '"2001:db8::1"]`; for a family without one, the system\'s routes decide'
    )
    interval: int = setting(_PERIOD, 300).help(
        "time between SOA queries to a secondary that is up to date; one that is not is asked every minute"
    )
    alarm_after: int = setting(_PERIOD, 300).help(
        "how long a secondary may lack a zone's serial before an alarm is raised"
    )


@dataclass(frozen=True)
class ServeConfig:
    """``[serve]``."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (Address("127.0.0.1", SERVER_PORT),)).help(
        'serve UDP and TCP at these addresses; `"[::]:53"` stands for all of IPv6, `"0.0.0.0:53"` for all of IPv4; '
        "port 0 picks a free one"
    )
    user: str = setting(_USER, "", empty="the user that starts it").help(
        'run as this user if root starts the server, such as `"maptr"` or `"maptr:dns"`; sockets are bound first'
    )
    nsid: str = setting(SHORT_TEXT, "").help("send this identifier to clients that ask for NSID (`dig +nsid`)")
    version: str = setting(SHORT_TEXT, "", empty="REFUSED").help("response to `version.bind`")
    hostname: str = setting(SHORT_TEXT, "", empty="REFUSED").help("response to `hostname.bind` and `id.server`")
    udp_payload: int = setting(integer(MIN_PAYLOAD, MAX_PAYLOAD), UDP_PAYLOAD).help("largest UDP response in bytes")
    control: Path | None = setting(_SOCKET, Path("run/maptr.sock"), content="a control socket").help(
        "create this control socket, which `maptr reload` and `maptr status` use; without a configuration file, the "
        "default is none"
    )
    control_group: str = setting(TEXT, "").help(
        "group whose members may use the control socket for `maptr status` only, such as your monitoring's; the "
        "server's user must be in it"
    )
    metrics: Address | None = setting(_ADDRESS, None).help(
        'serve `/metrics` for Prometheus, and `/health`, by HTTP at this address, such as `"127.0.0.1:9153"`; anyone '
        "who can reach it can read them; it needs the extra `maptr[metrics]`"
    )
    metrics_hosts: tuple[str, ...] = setting(_HOSTS, (), needs=("metrics",)).help(
        "names with a dot under which `/metrics` is served, besides this machine's own "
        "([why](security.md#what-is-left-to-you))"
    )
    state: Path | None = setting(
        FOLDER, None, empty="journals are beside zone files, and after a restart a zone with a bad file is not served"
    ).help(
        "keep in this folder, which only this server may use, the journals for IXFR, serials, the zones that the "
        "server signs, and [last good versions](admin.md#the-last-good-version)"
    )
    tls: TlsConfig = section(TlsConfig)
    rrl: RrlConfig = section(RrlConfig)
    cookies: CookieConfig = section(CookieConfig)
    tcp: ConnectionLimits = section(ConnectionLimits)
    catalog: CatalogConfig = section(CatalogConfig)
    secondaries: SecondariesConfig = section(SecondariesConfig)
    silence: tuple[str, ...] = setting(list_of(TEXT, 'alarms, each `"KIND [ZONE [SECONDARY]]"`'), ()).help(
        'alarms that someone else takes care of, such as `"secondary-unknown 20775.ark.arpa"`; `maptr status` shows '
        "them as silenced, and metrics and exit code leave them out"
    )
    log_level: str = setting(choice("debug", "info", "warning", "error"), "info").help(
        "log at this level and above; the access log and the query log are not affected"
    )
    log_format: str = setting(choice("text", "json"), "text").help(
        "log as text, or as JSON: one object per line with `time`, `level`, `logger`, `message`, and perhaps `rcode` "
        "or `error`; an error that ends the start has that format, unless it is in the file's syntax or in an option"
    )
    query_log: QueryLogConfig = section(QueryLogConfig)


@dataclass(frozen=True)
class KeyConfig:
    """``[[key]]``: a TSIG key (RFC 8945), with its secret here or in a separate file."""

    name: Labels = setting(_KEY_NAME).help("name of the TSIG key, as on the other server")
    algorithm: str = setting(_ALGORITHM, "hmac-sha256").help(
        "algorithm of the key; for BIND's `hmac-sha256-128`, which truncates the MAC, write `hmac-sha256`"
    )
    secret: bytes | None = setting(TEXT.then(read_tsig_secret, "a text in base64"), None, shown=False).help(
        "the secret; this or `secret_file` is required"
    )
    secret_file: Path | None = setting(PATH, None, content=SECRET).help("file with the secret")


@dataclass(frozen=True)
class SigningConfig(SigningPolicy):
    """``[zone.signing]``: signing of a zone with ``keys``, with the settings of ``maptr zone sign``."""

    lifetime: int = setting(DURATION, LIFETIME).help("lifetime of signatures")
    inception: int = setting(DURATION, INCEPTION_OFFSET).help("make signatures valid from this long before signing")
    refresh: int = setting(DURATION, REFRESH).help("renew signatures this long before they expire")
    zonemd: bool = setting(BOOLEAN, True).help("add a digest of the zone (RFC 8976)")
    cds: Children = setting(choice(*Children).then(Children), Children.PUBLISH).help(
        'CDS and CDNSKEY for the parent: those of the active keys (`"publish"`), those that remove the DS '
        '(`"delete"`), or none'
    )
    dnskey_ttl: int | None = setting(DURATION, None, empty="the SOA's").help("TTL of DNSKEY, CDS and CDNSKEY")


def signed_path(folder: Path, origin: Labels) -> Path:
    """Return the path of a zone's signed version in a state folder."""
    return folder / f"{name_for(origin)}.signed"


@dataclass(frozen=True)
class ZoneConfig:
    """``[[zone]]``: a zone, its file, its secondaries, and the publication of a new file."""

    name: Folded = setting(NAME).help("origin of the zone")
    file: Path = setting(FILE, content=ZONE).help("zone file")
    transfer: tuple[AccessRule, ...] = setting(_ACCESS, ()).help(
        'allow these clients to transfer the zone, by address or prefix, by TSIG key, or by both: `"192.0.2.0/24"`, '
        '`"key:xfr"`, `"192.0.2.1 key:xfr"`'
    )
    notify: tuple[NotifyTarget, ...] = setting(_NOTIFY, ()).help(
        'send NOTIFY to these secondaries at each new serial, signed with the key if one is named: `"192.0.2.1:53"`, '
        '`"192.0.2.1 key:xfr"`, `"[fe80::1%eth0]:53"`'
    )
    max_shrink: float = setting(number(0, 1), REMOVAL_LIMIT).help(
        "refuse a version that loses more than this share of its names, [even if they are "
        "few](admin.md#what-is-not-published)"
    )
    serial: str = setting(choice("file", "increment", "date", "unix"), "file", needs=("serve.state",)).help(
        '`"file"`: the serial in the file; `"increment"`, `"date"` or `"unix"`: a new one if that has not increased'
    )
    lint: str = setting(choice("off", "warn", "refuse"), "warn").help(
        'maptr\'s own checks: `"warn"` logs findings, `"refuse"` also refuses a zone with errors, `"off"` disables them'
    )
    keys: Path | None = setting(FOLDER, None, needs=("serve.state",)).help(
        "[sign](admin.md#signing) the zone with the keys in this folder"
    )
    signing: SigningConfig = section(SigningConfig)
    table: Path | None = setting(_TABLE, None, content=TABLE).help(
        "registry in any format, or the built-in one, from which the server builds `file`, with serials from the "
        "date or as `serial` says"
    )
    ns: tuple[str, ...] = setting(
        list_of(TEXT, "servers, each `NAME` or `NAME=ADDRESS,...`"),
        (),
        needs=("table",),
        empty="`localhost`, for a test on this machine",
    ).help('name servers, `"ns1=192.0.2.1"` or `"ns.example.org"`')
    contact: Labels = setting(_MAILBOX, (b"hostmaster",), needs=("table",)).help("mailbox in the SOA")
    ttl: int = setting(DURATION, 86400, needs=("table",)).help("TTL of the records from the table")
    include: tuple[Path, ...] = setting(list_of(FILE, "files"), (), needs=("table",), content=ZONE).help(
        "files with further records of the zone"
    )
    state: Path | None = field(default=None, compare=False)  # serve.state
    scheme: str = field(default="https", compare=False)  # client.scheme

    @property
    def style(self) -> str:
        """How the server chooses serials; "file": it does not. A built file gets them from the date by default."""
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

    file: Path | None = setting(TEXT.then(_table_to_write, "a file"), None, content=TABLE).help(
        "file that holds the registry; a pull overwrites manual edits"
    )
    url: str = setting(SOURCE, "", needs=("file",)).help("source from which the registry is pulled")
    mirrors: tuple[str, ...] = setting(list_of(SOURCE, "URLs or files"), (), needs=("url",)).help(
        "other sources of the registry, tried in this order"
    )
    every: int = setting(_PERIOD, 3600, needs=("url",)).help("time between pulls")
    sha256: str = setting(SHA256, "", needs=("url",)).help("accept only content with this SHA-256")
    public_key: Path | None = setting(PATH, None, needs=("url",), content="a key of minisign").help(
        "accept only content signed with the minisign key in this file"
    )
    cafile: Path | None = setting(PATH, None, needs=("url",), content=CERTIFICATE, empty="the system's").help(
        "trust the CA certificates in this file"
    )
    drift: tuple[str, ...] = setting(_SERVERS, (), needs=("file",)).help(
        'DNS servers to compare with the registry after each pull: `"192.0.2.7"`, `"192.0.2.7#5300"`'
    )
    drift_except: tuple[str, ...] = setting(list_of(TEXT, "NAANs"), ()).help(
        'NAANs that others serve, whose drift raises no alarm: `"20775"`'
    )

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in the order in which they are tried."""
        return (self.url, *self.mirrors) if self.url else ()


@dataclass(frozen=True)
class ClientConfig:
    """``[client]``: the servers to query for ARKs, and the origin."""

    origin: Labels = setting(NAME, ARK_ARPA).help("look NAANs up below this DNS suffix")
    nameservers: tuple[str, ...] = setting(_SERVERS, (), empty="the system's").help(
        'DNS servers to query: `"192.0.2.1"`, `"::1#5300"`, a link-local one with its interface: `"fe80::1%eth0"`'
    )
    lifetime: float = setting(seconds(0.1, 86_400), call.LIFETIME).help("give up a discovery after this time")
    choose: str = setting(name_in(entry_points.CHOOSERS, CHOOSERS), CHOOSERS[0]).help(
        "prefer this one of [several candidates](library.md#choosing-a-candidate): the first, a random one of the "
        "lowest order, the first reachable one, or the authority named in the ARK itself if it is reachable"
    )
    scheme: str = setting(choice("https", "http"), "https").help(
        "use this scheme for hosts that have none; port 80 means `http`"
    )
    hyphens: Hyphens = setting(choice("remove", "keep"), "remove").help(
        '`"keep"`: keep an ARK\'s hyphens in its URL, for authorities that need them; comparisons always ignore them'
    )


@dataclass(frozen=True)
class CacheConfig:
    """``[cache]``: the cache of the commands that look up ARKs."""

    natab: Path | None = setting(
        _TABLE, None, content=TABLE, empty="that of `[table]`, else the first that `maptr table` shows"
    ).help('use this registry where DNS does not answer; `"builtin"` is the built-in one (`"./builtin"` is a file)')
    path: Path | None = setting(PATH, None, content="a cache", empty="none", missing="the user's own").help(
        "SQLite file, in an existing folder"
    )
    policy: str = setting(name_in(entry_points.POLICIES, POLICIES), DNS_FIRST).help(
        "try this [source](operator.md#policies-which-source-answers), DNS or the table, first, or use it alone"
    )
    patience: float = setting(seconds(0, 3600), PATIENCE).help(
        "time to wait for DNS when the cache or the table could answer instead"
    )
    stale_limit: int = setting(DURATION, STALE_LIMIT).help(
        "how long after its TTL an answer may be used if DNS is silent"
    )
    table_limit: int = setting(DURATION, 0).help(
        "a table becomes stale this long after its source confirmed it; 0: never"
    )


@dataclass(frozen=True)
class GatewayConfig:
    """``[gateway]``: the HTTP gateway."""

    listen: tuple[Address, ...] = setting(_ADDRESSES, (Address("127.0.0.1", HTTP_PORT),)).help(
        'serve HTTP at these addresses, such as `"[::1]:8080"`; port 0 picks a free one'
    )
    admin_listen: tuple[Address, ...] = setting(_ONE_OR_MORE, ()).help(
        "serve HTTP for the gateway's operator at these addresses: `/metrics`, `/status` and statistics only here, "
        "`/health` and `/ready` also here"
    )
    admin_hosts: tuple[str, ...] = setting(_HOSTS, (), needs=("admin_listen",)).help(
        "names with a dot under which `admin_listen` answers, besides this machine's own "
        "([why](security.md#what-is-left-to-you))"
    )
    public_url: str = setting(TEXT.then(_own_url, "a URL without a path"), "").help(
        "URL that clients use; an ARK that leads there is described instead of redirected. Without it, the Host "
        "header decides whether a URL is the gateway's own, and such an answer must not be cached"
    )
    root: str = setting(TEXT.then(_base_url, "a URL without a query string"), "", empty="these get 404").help(
        'resolver for ARKs without a mapping authority, such as `"https://n2t.net"`'
    )
    metadata: str = setting(TEXT.then(_template, "a URL with `${pid}`"), "", empty="the mapping authority").help(
        "URL to which inflections are redirected, with `${pid}` (the ARK) and `${inflection}`"
    )
    inflections: str = setting(choice("forward", "describe"), "forward").help(
        'inflections are redirected (`"forward"`), or answered with what the registry knows (`"describe"`)'
    )
    redirects: Path | None = setting(PATH, None, content="own objects").help(
        "a store of `maptr redirects`, or a CSV, with redirects of single ARKs"
    )
    public_columns: tuple[str, ...] = setting(list_of(TEXT, "names of columns"), (), needs=("redirects",)).help(
        "extra columns of a CSV that JSON descriptions show and the search covers, such as "
        '`["shelf"]`; a store has its own list'
    )
    permanence: str = setting(TEXT, "").help("promise of permanence in the descriptions of the ARKs in `redirects`")
    max_age: int = setting(_UP_TO_A_DAY, 300).help(
        "how long clients and caches may keep a redirect of an own object or from the table, or a description; an "
        "answer from DNS has the TTL that its owner chose"
    )
    max_age_missing: int = setting(_UP_TO_A_DAY, 30).help(
        "how long clients and caches may keep the answer that there is no such object or mapping authority"
    )
    max_age_gone: int = setting(_UP_TO_A_DAY, 300).help(
        "how long clients and caches may keep the answer that an object is gone"
    )
    suggest: str = setting(choice("spelling", "neighbours"), "spelling").help(
        'what the answer for an unknown object suggests: another spelling, or with `"neighbours"` also an '
        "[own object that differs in one character](operator.md#statistics-and-your-own-pages)"
    )
    drift_every: int = setting(DURATION, 3600).help("time between comparisons of the table with DNS; 0: never")
    probe_every: int = setting(DURATION, 0).help(
        "send a [HEAD request](operator.md#drift-and-probes) to each server in the table this often, at most 20 a "
        'minute, such as `"1d"`; 0: never'
    )
    check_every: int = setting(_EVERY_HOURS, 0, needs=("redirects",)).help(
        "check the [URL of each own object](operator.md#dead-links-of-your-own-objects) this often, such as "
        '`"7d"`; 0: never'
    )
    name: str = setting(TEXT, "").help("your organisation, on the pages")
    contact: str = setting(TEXT.then(_contact, "an e-mail address or a URL"), "").help(
        "your e-mail address, or the URL of your contact page"
    )
    imprint: str = setting(_URL, "").help("the URL of your imprint")
    text: str = setting(TEXT, "").help("a text for the first page, in all its languages; each line is a paragraph")
    heading: str = setting(TEXT, "", empty='"Where does an ARK lead?"').help(
        "the heading of the first page, in all its languages"
    )
    home: str = setting(_URL, "", empty="the first page").help(
        "URL of your site, to which your name on the pages links"
    )
    example: str = setting(TEXT.then(_example, "an ARK"), "", empty="one of the table").help(
        "an ARK to try, on the first page"
    )
    naans: tuple[str, ...] = setting(list_of(TEXT.then(check_naan), "NAANs"), (), empty="all").help(
        "the only NAANs that the gateway answers for; ARKs of others go to `root`, or get 404 with a link to the "
        "resolver of all ARKs"
    )
    logo: Path | None = setting(PATH, None, content="a logo").help(
        "a PNG or SVG of up to 256 kB, recognised by its content, in place of your name and as the pages' icon; "
        "`name` is its alternative text"
    )
    accent: str = setting(TEXT.then(partial(read_colour, background=LIGHT), _COLOUR), "").help(
        "colour of links and buttons; its contrast with the light pages must be at least 4.5:1"
    )
    accent_dark: str = setting(
        TEXT.then(partial(read_colour, background=DARK), _COLOUR),
        "",
        needs=("accent",),
        empty="`accent`, mixed with white until it has 7:1 (no colour has 4.5:1 in both themes)",
    ).help("colour of links and buttons in the dark theme, with at least 4.5:1 on the dark pages")
    language: str = setting(TEXT.then(_language, _LANGUAGE), BROWSER).help(
        "language of the pages: English, French, Spanish or one of `messages`, as the browser asks (English if it "
        "asks for none of them), or always one of them"
    )
    messages: Path | None = setting(FOLDER, None).help(
        "a folder of [further languages](recipes/README.md#your-logo-colour-words-and-languages), each a file such "
        "as `de.toml` or `pt-br.toml`"
    )
    texts: Mapping[str, Mapping[str, PageText]] = setting(_TEXTS, dict).help(
        "for each language, a table such as `[gateway.texts.fr]` of single texts: the English text of a page, and yours"
    )
    stats: Path | None = setting(PATH, None, content="statistics", empty="they are lost when the gateway stops").help(
        "SQLite file that keeps the statistics"
    )
    public_stats: bool = setting(BOOLEAN, False).help(
        "show `/stats` and `/api/v1/stats` to all clients, not only at `admin_listen`"
    )
    certificate: Path | None = setting(PATH, None, needs=("key",), content=CERTIFICATE).help(
        "certificate and its chain, for HTTPS"
    )
    key: Path | None = setting(PATH, None, needs=("certificate",), content=CERTIFICATE).help(
        "private key of the certificate"
    )
    certificate_warn_before: int = setting(DURATION, WARN_BEFORE, needs=("certificate",)).help(
        "how long before it expires, at most a third of its lifetime, the certificate raises an alarm"
    )
    max_connections: int = setting(integer(1, 100_000), 1000).help("open connections")
    idle_timeout: float = setting(seconds(0.1, 3600), 15.0).help(
        "close a connection that sends no complete request for this time"
    )
    rate: int = setting(integer(0, 1_000_000), 200).help(
        "requests a second from one IPv4 address or IPv6 /64; one that takes more than a millisecond counts as "
        "several; 0: no limit"
    )
    max_per_client: int = setting(integer(1, 100_000), 100).help(
        "open connections from one IPv4 address or IPv6 /64 that is not a proxy"
    )
    proxies: tuple[Network, ...] = setting(_NETWORKS, rrl.EXEMPT).help(
        "proxies that name the client; one that names none shares one `rate` among all its clients"
    )
    client_header: str = setting(choice(X_FORWARDED_FOR, FORWARDED), X_FORWARDED_FOR).help(
        'header in which proxies name the client; `"Forwarded"` is defined in RFC 7239'
    )
    proxy_protocol: bool = setting(BOOLEAN, False).help(
        "connections from proxies start with the PROXY protocol, version 1 or 2"
    )
    access_log: bool = setting(BOOLEAN, False).help("log each request")
    access_log_format: str = setting(choice("maptr", "combined"), "maptr").help(
        "format of the access log's lines: maptr's own, or `\"combined\"`, as in Apache and nginx"
    )

    @property
    def asks_as(self) -> str:
        """How requests to other servers name their sender: by a URL or an e-mail address; "" if not at all."""
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
        """Return a warning for the first secret in each configuration file that all users can read."""
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
    """Return the setting that replaced a removed one; any other setting unchanged."""
    return REMOVED[key].successor if key in REMOVED else key


def keys_of(table: type[Any]) -> Mapping[str, dataclasses.Field[Any]]:
    """Return the field of each key of a table."""
    return _keys_of(table)  # type: ignore[arg-type]  # mypy: not Hashable


def is_required(one: dataclasses.Field[Any]) -> bool:
    return one.default is one.default_factory is MISSING


@cache
def _keys_of(table: type[Any]) -> Mapping[str, dataclasses.Field[Any]]:
    return {one.metadata.get("key", one.name): one for one in dataclasses.fields(table) if one.metadata}


def all_keys(table: type[Any] = Config, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    """Return the field of each key with a value, by its dotted name without indices: ``zone.file``."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for key, one in keys_of(table).items():
        below = one.metadata.get("table") or one.metadata.get("array")
        found |= all_keys(below, f"{prefix}{key}.") if below else {prefix + key: one}
    return found
