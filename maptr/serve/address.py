"""Where to listen, as the command line and the configuration write it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: an IP address literal and a port, 0 for any free one."""

    host: str
    port: int

    @classmethod
    def from_text(cls, text: str) -> Address:
        """Read ``HOST:PORT``, an IPv6 host in brackets. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:5353 or [::1]:5353")
        try:
            address = ipaddress.ip_address(host[1:-1] if bracketed else host)
        except ValueError:
            raise ValueError(f"{text!r}: the host must be an IP address, IPv6 in brackets") from None
        if bracketed is not (address.version == 6):
            raise ValueError(f"{text!r}: IPv6 addresses, and only those, stand in brackets")
        return cls(str(address), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
