"""The URLs and hosts that a Name Mapping Authority may have.

The walk (rules from DNS may be hostile), lint (registry records may have mistakes) and the zone writer use the same
rules. Hosts are judged by their text; nothing is looked up.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import NamedTuple

MAX_URL = 4096  # bytes; RFC 9110 4.1 asks recipients for at least 8000, but no NMA needs half of it

MAX_AUTHORITIES = 1024  # of the URLs that were read last; many have the same few

# Patterns are strings, because a short process uses few of them and ``re`` caches those that it compiles.
_URL = r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)\Z"
_LABEL = "[A-Za-z0-9_][A-Za-z0-9_-]{0,62}+(?<!-)"
_NUMBER = r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)\Z"
_NAME = re.compile(rf"(?>(?:{_LABEL}\.)*)(?!{_NUMBER}){_LABEL}\Z")  # atomic: no label is tried again
SPECIAL_USE = tuple(
    f".{name}"
    for name in (
        *("invalid", "localhost", "test"),  # RFC 6761; not "example", which documentation and tests use
        *("local", "corp", "home", "intranet", "lan", "private"),  # RFC 6762, and its appendix G
        *("alt", "home.arpa", "internal", "onion"),  # RFC 9476, RFC 8375, ICANN (2024), RFC 7686
        *("resolver.arpa", "service.arpa"),  # RFC 9462, RFC 9665
        "localdomain",  # of /etc/hosts
    )
)
"""Domains whose names are not looked up in the public DNS, or mean another host on each network."""

PORTS = {"http": 80, "https": 443}
_CLEAN = "".join(c for c in map(chr, range(0x21, 0x7F)) if c not in '<>"\\^`{|}')  # what a URL may have (RFC 3986 2)


class TooLongError(ValueError):
    """A URL of more than MAX_URL octets."""


class NotPublicError(ValueError):
    """A URL without a host, or with one that is not public."""


class Host(NamedTuple):
    """The host of a URL: a domain name or an address literal (IPv6 without brackets)."""

    text: str
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None

    @property
    def in_url(self) -> str:
        """The host as written in a URL: an IPv6 address in brackets."""
        return f"[{self.text}]" if self.address is not None and self.address.version == 6 else self.text

    @property
    def is_local(self) -> bool:
        """True for a host that is not public: a single label, a name of SPECIAL_USE, and an IPv4 or IPv6 address that
        is not global (RFC 6890). It is the only rule for the hosts of DNS, tables, zones and redirects."""
        if self.address is not None:
            return not _is_global(self.address)
        name = f".{self.text.removesuffix('.').lower()}"
        return name.count(".") == 1 or name.endswith(SPECIAL_USE)


class Url(NamedTuple):
    """An http or https URL in its parts; ``rest`` is everything after the authority."""

    scheme: str
    host: Host
    port: int | None
    rest: str

    @property
    def authority(self) -> str:
        """The host in lower case, and the port unless it is the scheme's default (RFC 3986 6.2.3)."""
        port = f":{self.port}" if self.port not in (None, PORTS[self.scheme]) else ""
        return f"{self.host.in_url.lower().removesuffix('.')}{port}"

    @property
    def server(self) -> str:
        """Scheme and authority: what a connection goes to."""
        return f"{self.scheme}://{self.authority}"


def parse_host(text: str) -> Host:
    """Return the host of a URL. Raises ValueError with the reason.

    If the last label is a number, the host is an IPv4 address in any notation that browsers accept (``127.1``,
    ``0x7f000001``, ``2130706433``), so that no notation hides a private address.
    """
    if text.startswith("[") and text.endswith("]"):
        try:
            return Host(text[1:-1], ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise ValueError("not an IPv6 address") from None
    name = text.removesuffix(".")
    if not name:
        raise NotPublicError("no host")
    if len(name) <= 253 and _NAME.match(name):
        return Host(text)
    labels = name.split(".")
    if re.match(_NUMBER, labels[-1]):
        return Host(text, _parse_ipv4(labels))
    raise ValueError("not a host name")


def is_local(address: str) -> bool:
    """Return whether an address is not public; a zone (``%eth0``) does not count."""
    plain = address.partition("%")[0]
    return parse_host(f"[{plain}]" if ":" in plain else plain).is_local


def _parse_ipv4(labels: list[str]) -> ipaddress.IPv4Address:
    """Return the address of one to four numbers, each decimal, octal (``0177``) or hexadecimal (``0x7f``)."""
    try:
        if len(labels) > 4 or any(len(label) > 12 or not re.match(_NUMBER, label) for label in labels):
            raise ValueError
        *high, last = (
            int(label[2:] or "0", 16) if label[1:2] in ("x", "X") else int(label, 8 if label[0] == "0" else 10)
            for label in labels
        )
        return ipaddress.IPv4Address(bytes(high) + last.to_bytes(4 - len(high), "big"))
    except (ValueError, OverflowError):
        raise ValueError("not an IPv4 address") from None


# Networks of IANA's special-purpose registry (RFC 6890) that some versions of Python take for global: protocol
# assignments and Teredo; 6to4 and its relays, which are withdrawn (RFC 7526); documentation (RFC 9637).
_SPECIAL = tuple(map(ipaddress.ip_network, ["192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2002::/16", "3fff::/20"]))
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # RFC 3587 1
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # the last 32 bits are a global IPv4 address (RFC 6052 3.1)


def _is_global(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is global. An IPv4 address inside it decides; one with a zone (``%eth0``) is local."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        if address in _NAT64:
            return _is_global(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if address.ipv4_mapped is not None:
            return _is_global(address.ipv4_mapped)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in network for network in _SPECIAL)


def parse_port(text: str) -> int:
    """Return a port from 1 to 65535. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise ValueError("not a port (1 to 65535)")
    return int(text)


@functools.cache
def _url_pattern() -> re.Pattern[str]:
    return re.compile(_URL)


def parse(text: str) -> Url:
    """Return the parts of an http or https URL (RFC 3986, RFC 9110 4.2). Raises ValueError with the reason."""
    if len(text) > MAX_URL:
        raise TooLongError(f"longer than {MAX_URL} bytes")
    match = _url_pattern().match(text)
    if match is None:
        raise ValueError("not an absolute URL")
    scheme = match["scheme"].lower()
    if scheme not in ("http", "https"):
        raise ValueError("neither http nor https")
    if not match["authority"].isascii():
        raise ValueError("the host is not ASCII: an international name is written in A-labels (xn--...)")
    if unsafe := text.strip(_CLEAN):  # begins with the first unsafe character
        encoded = "".join(f"%{byte:02X}" for byte in unsafe[0].encode(errors="surrogatepass"))
        raise ValueError(f"the character U+{ord(unsafe[0]):04X} is not allowed in a URL, except as {encoded}")
    return Url(scheme, *_host_port(match["authority"]), match["rest"])


@functools.lru_cache(MAX_AUTHORITIES)
def _host_port(authority: str) -> tuple[Host, int | None]:
    if "@" in authority:
        raise ValueError("user information in the URL")
    host_text, colon, port_text = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host_text, port_text = authority, ""
    port = parse_port(port_text) if port_text else None
    return parse_host(host_text), port


def parse_allowed(text: str, *, allow_private: bool = False) -> Url:
    """Return the parts of a URL that may be followed. Raises ValueError with the reason.

    Unless ``allow_private``, a host that is not public (``Host.is_local``) is refused. Host names are not looked up.
    """
    url = parse(text)
    if url.host.is_local and not allow_private:
        raise NotPublicError(f"{url.host.text} is not a public host")
    return url


def at(host: str, port: int | None, scheme: str) -> str:
    """Return the start of a URL for ``host[:port]``, as in natab and ``h`` records. Port 80 always means http, as in
    the drafts, which write ``host:80``."""
    if port == 80:
        return f"http://{host}"
    return f"{scheme}://{host}" if port is None else f"{scheme}://{host}:{port}"


def server_of(text: str) -> str | None:
    """Return the server of a URL; None if the text is not a URL of http or https."""
    try:
        return parse(text).server
    except ValueError:
        return None


def with_path(text: str) -> str:
    """Return a URL with the path ``/`` if it has none, so that nothing appended to it becomes a part of its host
    (RFC 3986 6.2.3). Other text is returned unchanged."""
    match = _url_pattern().match(text)
    if match is None or match["rest"].startswith("/"):
        return text
    start = match.start("rest")
    return f"{text[:start]}/{text[start:]}"


def is_at(made: str, base: str) -> bool:
    """Return whether a URL that was made from another one has its scheme, host and port, and no user information."""
    server = server_of(base)
    return server is not None and server_of(made) == server


def normalized(text: str) -> str:
    """Return the URL of an ARK in a form for comparison: scheme and host in lower case, without default port, final dot
    of the host (RFC 3986 6.2.2.1, 6.2.3) and slash after ``ark:``. Other text is returned unchanged."""
    match = _url_pattern().match(text)
    if match is None:
        return text
    start = _normalized_start(match["scheme"], match["authority"])
    return start + match["rest"].replace("ark:/", "ark:")


@functools.lru_cache(MAX_AUTHORITIES)
def _normalized_start(scheme: str, authority: str) -> str:
    scheme = scheme.lower()
    host, colon, port = authority.lower().removesuffix(f":{PORTS.get(scheme)}").partition(":")
    return f"{scheme}://{host.removesuffix('.')}{colon}{port}"


def is_below(text: str, start: str) -> bool:
    """Return whether a text is a valid URL with this start, which is a valid one with a path."""
    return text.startswith(start) and len(text) <= MAX_URL and not text.strip(_CLEAN)


def refusal(text: str, *, allow_private: bool = False) -> str | None:
    """Return the reason why a URL may not be followed (see ``parse_allowed``), or None."""
    try:
        parse_allowed(text, allow_private=allow_private)
    except ValueError as error:
        return str(error)
    return None
