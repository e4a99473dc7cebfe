"""The client behind proxies: X-Forwarded-For, ``Forwarded`` (RFC 7239), and the PROXY protocol.

Only a trusted proxy can name a client. A header that cannot be read names none, and the proxy itself then counts as the
client.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache

from maptr.config.model import FORWARDED, X_FORWARDED_FOR
from maptr.daemon.background import Repetitions
from maptr.protocol.address import Network, read_ip

log = logging.getLogger("maptr.gateway")

MAX_ADDRESSES = 10_000  # whose trust is cached
MAX_HOPS = 32  # addresses read from a header, from its end

# PROXY protocol (haproxy.org, proxy-protocol.txt, sections 2.1 and 2.2)
_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"  # of version 2
_V1_LONGEST = 107  # bytes of a version 1 line, including its end
_V1_SHORTEST = len(b"PROXY UNKNOWN\r\n")
_V2_LONGEST = 4096  # bytes read after the version 2 header: the addresses, and ignored fields
_V2_SIZES = {1: 4, 2: 16}  # bytes of an address by family: IPv4, IPv6

# Parts of a list with quoted strings (RFC 9110 5.6.1)
_PLAIN = re.compile('[^,"]+')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_FOR = re.compile(r'(?i)(?:^|;)\s*for\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')
# An address in a header: with or without a port, IPv6 in brackets or not. Its scope is ignored.
_IPV6 = r"([0-9A-Fa-f:.]+)(?:%[\w.~-]+)?"
_HOP = re.compile(rf"(?a)\[{_IPV6}\](?::\d+)?|(\d+\.\d+\.\d+\.\d+)(?::\d+)?|{_IPV6}")


class Proxies:
    """The trusted proxies. ``header`` is the header that they set."""

    def __init__(self, networks: Sequence[Network], header: str = X_FORWARDED_FOR) -> None:
        self._networks = tuple(networks)
        self.header = header
        self.trusts = lru_cache(MAX_ADDRESSES)(self._trusts)
        self._logged = Repetitions()

    def warn_of(self, proxy: str, fault: str = "") -> None:
        """Warn once about each fault of a proxy; by default, that it names no client."""
        fault = fault or f"sends no {self.header}: all its clients share one limit"
        if self._logged.is_new((proxy, fault), True):
            log.warning("%s is in gateway.proxies and %s", proxy, fault)

    def _trusts(self, address: str) -> bool:
        ip = read_ip(address)
        return ip is not None and any(ip in network for network in self._networks)

    def client(self, peer: str, values: Sequence[str]) -> str:
        """Return the address of a proxy's client: the last one in the header that is not a trusted proxy's.

        ``values`` are the header's; several form one list (RFC 9110 5.3). The search ends at anything that is not an
        address, because nothing before it can be trusted: the proxy that wrote it is returned.
        """
        for hop in reversed(self._hops(",".join(values))[-MAX_HOPS:]):
            found = _HOP.fullmatch(hop.strip().strip('"').strip())
            ip = read_ip(found[1] or found[2] or found[3]) if found else None
            if ip is None:
                return peer
            peer = str(ip)
            if not self.trusts(peer):
                return peer
        return peer

    def _hops(self, text: str) -> list[str]:
        if self.header != FORWARDED:
            return text.split(",")
        named = (_FOR.search(element.strip()) for element in _elements(text))
        return [found[1] if found else "" for found in named]


def _elements(text: str) -> Iterator[str]:
    """Yield the elements of a list. An unmatched quotation mark separates them, as a comma does."""
    start = at = 0
    is_closed = True  # False after an unmatched mark: no later one can match
    while at < len(text):
        found = _PLAIN.match(text, at)
        if found is None and is_closed and text[at] == '"':
            found = _QUOTED.match(text, at)
            is_closed = found is not None
        if found is not None:
            at = found.end()
            continue
        if start < at:
            yield text[start:at]
        start = at = at + 1
    if start < at:
        yield text[start:at]


async def read_proxy_header(read: Callable[[int], Awaitable[bytes]]) -> str:
    """Read the header of the PROXY protocol, version 1 or 2, and return the client's address.

    "" means a connection by the proxy itself (LOCAL or UNKNOWN). ``read`` returns that many bytes, or fewer at the end.
    Raises ValueError for anything else.
    """
    start = await read(len(_SIGNATURE))
    if start == _SIGNATURE:
        return await _read_v2(read)
    if not start.startswith(b"PROXY "):
        raise ValueError("no header of the PROXY protocol")
    line = start + await read(_V1_SHORTEST - len(start))
    while not line.endswith(b"\r\n"):
        if len(line) >= _V1_LONGEST or not (octet := await read(1)):
            raise ValueError("the header of the PROXY protocol does not end")
        line += octet
    words = line.decode("ascii", "replace").split()
    if words[1:2] == ["UNKNOWN"]:
        return ""
    source = read_ip(words[2]) if len(words) == 6 and words[1] in ("TCP4", "TCP6") else None
    if source is None:
        raise ValueError("the header of the PROXY protocol cannot be read")
    return str(source)


async def _read_v2(read: Callable[[int], Awaitable[bytes]]) -> str:
    head = await read(4)
    size = int.from_bytes(head[2:], "big")
    if len(head) != 4 or head[0] not in (0x20, 0x21) or size > _V2_LONGEST:
        raise ValueError("the header of the PROXY protocol cannot be read")
    body = await read(size)
    length = _V2_SIZES.get(head[1] >> 4, 0)
    if head[0] == 0x20 or not length:  # LOCAL, or a family without IP addresses
        return ""
    if len(body) < 2 * length + 4:
        raise ValueError("the header of the PROXY protocol is too short")
    return str(read_ip(str(ipaddress.ip_address(body[:length]))))
