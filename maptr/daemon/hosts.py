"""The Host headers for which an operator address answers.

A page in an operator's browser can send requests to any server that the browser reaches. If the page's own host name
resolves to a private address (DNS rebinding), it could also read the responses. Such a name has a dot and is not one of
the machine's names.
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
REFUSED = "this address is for operators and does not answer requests for this name; if it should, add the name to {}"


def is_for_operators(host: str, names: Collection[str]) -> bool:
    """Return whether to answer a Host header, "" for a request without one. ``names`` are a setting's further names.

    An attacker cannot own an address, ``localhost``, or a name without a dot.
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
    """This machine's ``names``, in lower case, as far as they are known. The system may have to query DNS for the full
    name, so a thread does it."""

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
