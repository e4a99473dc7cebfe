"""The sockets that a server may need root for: those that answer queries, and that of metrics."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from maptr.address import Address
from maptr.serve import httpd
from maptr.serve.bind import Sockets, bind


class Listening(NamedTuple):
    """All bound; ``answering`` has the sockets of each worker."""

    answering: list[Sockets]
    metrics: socket.socket | None

    def close(self) -> None:
        for sockets in self.answering:
            sockets.close()
        if self.metrics is not None:
            self.metrics.close()


def listen(
    addresses: Sequence[Address],
    tls_addresses: Sequence[Address],
    workers: int,
    *,
    metrics: Address | None,
    answering: list[Sockets] | None = None,
) -> Listening:
    """Bind everything; ``answering`` is bound already. Raises ConfigError, and leaves nothing open then."""
    listening = Listening(answering or bind(addresses, tls_addresses, workers), None)
    if metrics is None:
        return listening
    try:
        return listening._replace(metrics=httpd.bind(metrics))
    except BaseException:
        listening.close()
        raise
