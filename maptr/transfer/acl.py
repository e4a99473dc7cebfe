"""TSIG keys, access control lists for zone transfers, and NOTIFY targets, as values."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from maptr.protocol.address import Address, Network, read_ip, read_network, read_target
from maptr.protocol.names import Labels, fold, parse, to_text

# Output size in bytes of each hash (RFC 8945 6), without GSS-TSIG, and without HMAC-MD5, which must not be used.
DIGESTS = {"sha1": 20, "sha224": 28, "sha256": 32, "sha384": 48, "sha512": 64}
MIN_MAC = 10  # bytes; a MAC must also have at least half the output size of the hash: RFC 8945 5.2.2.1

_ALGORITHM = re.compile(r"hmac-(?P<digest>sha\d+)(?:-(?P<bits>\d+))?")


@dataclass(frozen=True, slots=True)
class TsigKey:
    """A TSIG key. ``mac_size`` is the smallest accepted MAC in bytes (RFC 8945 5.2.4).

    ``algorithm`` is a name such as ``hmac-sha256``. A suffix such as ``-128``, as in BIND, allows MACs truncated to
    this number of bits; 256-128, 384-192 and 512-256 are also names on the wire (RFC 8945 6). No text form of a key
    contains the secret. Raises ValueError for an unknown algorithm.
    """

    name: Labels
    algorithm: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        match = _ALGORITHM.fullmatch(self.algorithm)
        size = DIGESTS.get(match["digest"]) if match else None
        if match is None or size is None:
            known = ", ".join(f"hmac-{digest}" for digest in DIGESTS)
            raise ValueError(f"{self.algorithm!r} is not a known algorithm: {known}")
        if match["bits"]:
            bits = int(match["bits"])
            least = 8 * max(MIN_MAC, size // 2)
            if bits % 8 or not least <= bits <= 8 * size:
                raise ValueError(f"{self.algorithm}: MACs are truncated to whole bytes, {least} to {8 * size} bits")
        object.__setattr__(self, "name", fold(self.name))

    @property
    def digest(self) -> str:
        return self.algorithm.split("-")[1]

    @property
    def mac_size(self) -> int:
        _, _, bits = self.algorithm.removeprefix("hmac-").partition("-")
        return int(bits) // 8 if bits else DIGESTS[self.digest]


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A rule that allows clients to transfer a zone: by address, by key, or by both if both are given."""

    network: Network | None = None
    key: Labels | None = None

    @classmethod
    def from_text(cls, text: str) -> AccessRule:
        """Read ``key:NAME``, an address, a prefix, or ``PREFIX key:NAME``. Raises ValueError."""
        network: Network | None = None
        key: Labels | None = None
        for word in text.split():
            if word.startswith("key:") and key is None:
                key = read_key_name(word.removeprefix("key:"))
            elif not word.startswith("key:") and network is None:
                try:
                    network = read_network(word)
                except ValueError as error:
                    raise ValueError(
                        f"{error}; a rule has an address, a prefix (0.0.0.0/0 and ::/0: all) or key:NAME"
                    ) from None
            else:
                raise ValueError(f"{text!r} has two addresses or two keys; write two rules")
        if network is None and key is None:
            raise ValueError("empty rule; leave it out")
        return cls(network, key)

    def allows(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, key: Labels | None) -> bool:
        if self.key is not None and self.key != key:
            return False
        if self.network is None:
            return True
        return address is not None and address.version == self.network.version and address in self.network


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """A server that gets a NOTIFY for each new serial, signed if there is a key."""

    address: Address
    key: Labels | None = None

    @classmethod
    def from_text(cls, text: str) -> NotifyTarget:
        """Read ``HOST[:PORT] [key:NAME]``; an IPv6 host before a port is in brackets. Raises ValueError."""
        where, *more = text.split() or [""]
        if len(more) > 1 or any(not word.startswith("key:") for word in more):
            raise ValueError(f"{text!r} is not HOST[:PORT] [key:NAME]")
        key = read_key_name(more[0].removeprefix("key:")) if more else None
        address = read_target(where)
        if not address.port:
            raise ValueError(f"{text!r}: port 0 is not a port to send to")
        return cls(address, key)

    def __str__(self) -> str:
        return str(self.address) + ("" if self.key is None else f" key:{to_text(self.key)}")


@dataclass(frozen=True, slots=True)
class Secondaries:
    """The secondaries of a zone: the clients that a rule allows to transfer it, and the targets of NOTIFY messages.

    Without rules, no client may transfer the zone.
    """

    transfer: tuple[AccessRule, ...] = ()
    notify: tuple[NotifyTarget, ...] = ()

    def allows(self, client: str, key: Labels | None) -> bool:
        """Return whether a client may transfer the zone. ``key`` is the folded name of its query's key."""
        address = read_ip(client)
        return any(rule.allows(address, key) for rule in self.transfer)


def read_key_name(text: str) -> Labels:
    """Return the folded name of a TSIG key. Raises ValueError."""
    try:
        labels = fold(parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a valid key name: {error}") from None
    if not labels:
        raise ValueError("key without a name")
    return labels
