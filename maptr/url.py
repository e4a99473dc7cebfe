"""What URL and what host a Name Mapping Authority may have.

One truth for the walk (a rule from DNS is hostile input), for lint (a registry record is careless input)
and for the zone writer. Names are judged by their text alone: no look-up is ever made here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ipaddress

MAX_URL = 4096  # octets; RFC 9110 4.1 asks for at least 8000 of a recipient, and no NMA needs half

# Written, not compiled: a fresh process compiles what it meets, and ``re`` keeps it.
_URL = r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)\Z"
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NUMBER = r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)\Z"
_NAME = rf"(?:{_LABEL}\.)*(?!{_NUMBER}){_LABEL}\Z"
_PORTS = {"http": 80, "https": 443}
_CLEAN = "".join(c for c in map(chr, range(0x21, 0x7F)) if c not in '<>"\\^`{|}')  # RFC 3986 2: all that a URL holds


class TooLongError(ValueError):
    """A URL of more than MAX_URL octets."""


class Host(NamedTuple):
    """A host as it stands in a URL: a domain name or an address literal (IPv6 without its brackets)."""

    text: str
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None

    @property
    def in_url(self) -> str:
        """The host as a URL holds it: an IPv6 address in brackets."""
        return f"[{self.text}]" if self.address is not None and self.address.version == 6 else self.text

    @property
    def is_local(self) -> bool:
        """True for ``localhost`` (RFC 6761 6.3) and for every address that is not global (RFC 6890), in IPv6 too."""
        if self.address is None:
            name = self.text.rstrip(".").lower()
            return name.endswith("localhost") and name[-10:-9] in ("", ".")
        import ipaddress  # is there already, or there would be no address

        if isinstance(self.address, ipaddress.IPv4Address):
            return not _is_global(self.address)
        return not _is_global_ipv6(self.address)


class Url(NamedTuple):
    """An http or https URL, split only as far as it must be judged."""

    scheme: str
    host: Host
    port: int | None
    rest: str


def parse_host(text: str) -> Host:
    """The host of a URL; ValueError, with the reason as its text, if it is none.

    A last label that is a number makes the whole an IPv4 address in any notation a browser reads
    (``127.1``, ``0x7f000001``, ``2130706433``), so none of them hides a private address.
    """
    if text[:1] == "[" and text[-1:] == "]":
        import ipaddress  # costs a fresh process a millisecond, and most hosts are names

        try:
            return Host(text[1:-1], ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise ValueError("not an IPv6 address") from None
    name = text.removesuffix(".")
    if not name:
        raise ValueError("no host")
    if len(name) <= 253 and re.match(_NAME, name):
        return Host(text)
    labels = name.split(".")
    if re.match(_NUMBER, labels[-1]):
        return Host(text, _parse_ipv4(labels))
    raise ValueError("not a host name")


def _parse_ipv4(labels: list[str]) -> ipaddress.IPv4Address:
    import ipaddress

    if (
        len(labels) > 4
        or not all(re.match(_NUMBER, label) for label in labels)
        or any(len(label) > 12 for label in labels)
    ):
        raise ValueError("not an IPv4 address")
    *high, last = (_number(label) for label in labels)
    if any(part > 255 for part in high) or last >= 256 ** (4 - len(high)):
        raise ValueError("not an IPv4 address")
    value = last + sum(part << (24 - 8 * index) for index, part in enumerate(high))
    return ipaddress.IPv4Address(value)


def _number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text[2:] or "0", 16)
    if text.startswith("0") and len(text) > 1:
        if not set(text) <= set("01234567"):
            raise ValueError("not an IPv4 address")
        return int(text, 8)
    return int(text)


# What some versions of Python hold for global, and where IANA's registry of special-purpose addresses (RFC 6890) has no
# place for a web server: protocol assignments, Teredo among them; 6to4 and its relays, which are no more (RFC 7526);
# documentation (RFC 9637). So an address is judged alike, whatever Python runs.
_NOT_GLOBAL = ("192.0.0.0/24", "192.88.99.0/24"), ("2001::/23", "2002::/16", "3fff::/20")
_GLOBAL_UNICAST = "2000::/3"  # all of IPv6 that was ever given to anybody (RFC 3587 1)
_NAT64 = "64:ff9b::/96"  # an IPv4 address in its last 32 bits, and never one that is not global (RFC 6052 3.1)


def _is_global(address: ipaddress.IPv4Address) -> bool:
    import ipaddress

    if any(address in ipaddress.IPv4Network(network) for network in _NOT_GLOBAL[0]):
        return False
    return address.is_global and not address.is_multicast


def _is_global_ipv6(address: ipaddress.IPv6Address) -> bool:
    """An IPv4 address inside is judged as such. One with a zone (``%eth0``) is the business of this machine alone."""
    import ipaddress

    if address.scope_id is not None:
        return False
    if address in ipaddress.IPv6Network(_NAT64):
        return _is_global(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    if address.ipv4_mapped is not None:
        return _is_global(address.ipv4_mapped)
    if any(address in ipaddress.IPv6Network(network) for network in _NOT_GLOBAL[1]):
        return False
    return address in ipaddress.IPv6Network(_GLOBAL_UNICAST) and address.is_global


def parse_port(text: str) -> int:
    """1 to 65535; ValueError otherwise."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise ValueError("not a port")
    return int(text)


def parse(text: str) -> Url:
    """The parts of an http or https URL (RFC 3986, RFC 9110 4.2); ValueError, with the reason as its text."""
    if len(text) > MAX_URL:
        raise TooLongError(f"longer than {MAX_URL} octets")
    match = re.match(_URL, text)
    if match is None:
        raise ValueError("not an absolute URL")
    scheme = match["scheme"].lower()
    if scheme not in ("http", "https"):
        raise ValueError("neither http nor https")
    if not match["authority"].isascii():
        raise ValueError("the host is not ASCII: an international name is written in A-labels (xn--...)")
    if unsafe := text.strip(_CLEAN):  # starts with the first that is not
        raise ValueError(f"the character U+{ord(unsafe[0]):04X} belongs in no URL")
    authority = match["authority"]
    if "@" in authority:
        raise ValueError("user information in the URL")
    host_text, colon, port_text = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host_text, port_text = authority, ""
    port = parse_port(port_text) if port_text else None
    return Url(scheme, parse_host(host_text), port, match["rest"])


def parse_allowed(text: str, *, allow_private: bool = False) -> Url:
    """The parts of a URL that may be followed; ValueError, with the reason as its text, for any other.

    Refused unless ``allow_private``: loopback, private, link-local and every other address that is not
    global, in any notation, and ``localhost``. A host name is never looked up.
    """
    url = parse(text)
    if url.host.is_local and not allow_private:
        raise ValueError(f"{url.host.text} is not a public host")
    return url


def at(host: str, port: int | None, scheme: str) -> str:
    """The start of the URL of a host of which no more is known than ``host[:port]``, as in natab and ``h`` records.

    Port 80 means http, whatever the scheme is otherwise: the drafts write ``host:80``.
    """
    if port == 80:
        return f"http://{host}"
    return f"{scheme}://{host}" if port is None else f"{scheme}://{host}:{port}"


def same_place(text: str) -> str:
    """An ARK's URL in the form that compares: scheme and host in lower case, no port that the scheme has anyway (RFC
    3986 sections 6.2.2.1 and 6.2.3), and no slash after ``ark:``. What is no URL comes back as it is."""
    match = re.match(_URL, text)
    if match is None:
        return text
    scheme = match["scheme"].lower()
    host = match["authority"].lower().removesuffix(f":{_PORTS.get(scheme)}")
    return f"{scheme}://{host}{match['rest'].replace('ark:/', 'ark:')}"


def refusal(text: str, *, allow_private: bool = False) -> str | None:
    """Why a URL may not be followed (see ``parse_allowed``), or None if it may."""
    try:
        parse_allowed(text, allow_private=allow_private)
    except ValueError as error:
        return str(error)
    return None
