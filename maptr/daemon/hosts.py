"""Which Host headers an address for operators answers.

A page in an operator's browser may ask the servers that the browser reaches. With a name of its own that it resolves to
a private address (DNS rebinding), it could also read their responses. Such a name has a dot and is none of the machine.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Collection
from functools import cache

# RFC 9110 7.2 and RFC 3986 3.2: an address in brackets, or a name or IPv4 address; then perhaps a port.
_HOST = re.compile(r"(?a)(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::\d{0,5})?")
REFUSED = "this address is for operators, and answers no requests for this name: {} may list it"


def is_for_operators(host: str, names: Collection[str]) -> bool:
    """Return whether to answer a Host header: "" is that of a request without one, ``names`` are those of a setting.

    An address, ``localhost``, and a name without a dot are nothing that a stranger can name.
    """
    found = _HOST.fullmatch(host.strip())
    if found is None:
        return False
    address, name = found[1], (found[2] or "").removesuffix(".").lower()
    if address is not None or re.fullmatch("[0-9.]*", name):
        return not (name or address) or _is_address(address or name)
    return "." not in name or name in names or name in machine().names


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class MachineNames:
    """The ``names`` of this machine, in lower case, as far as they are known. The system may have to ask DNS for the
    full one, so a thread does."""

    def __init__(self) -> None:
        self.names = frozenset({_folded(socket.gethostname())})
        threading.Thread(target=self._ask, name="hostname", daemon=True).start()

    def _ask(self) -> None:
        self.names = self.names | {_folded(socket.getfqdn())}


@cache
def machine() -> MachineNames:
    return MachineNames()


def _folded(name: str) -> str:
    return name.removesuffix(".").lower()
