"""The sockets that a server may need root for: those that answer queries, and that of metrics."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from maptr.protocol.address import Address
from maptr.server import httpd
from maptr.server.bind import Sockets, bind


class Listening(NamedTuple):
    """All bound."""

    answering: Sockets
    metrics: socket.socket | None

    def close(self) -> None:
        self.answering.close()
        if self.metrics is not None:
            self.metrics.close()


def listen(
    addresses: Sequence[Address],
    tls_addresses: Sequence[Address],
    *,
    metrics: Address | None,
) -> Listening:
    """Bind everything. Raises ConfigError, and leaves nothing open then."""
    listening = Listening(bind(addresses, tls_addresses), None)
    if metrics is None:
        return listening
    try:
        return listening._replace(metrics=httpd.bind(metrics))
    except BaseException:
        listening.close()
        raise
