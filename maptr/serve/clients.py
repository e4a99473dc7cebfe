"""Whom the rate limit counts: clients of one socket, each looked at once and remembered."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

MAX_CLIENTS = 10_000  # remembered at a time

Client = TypeVar("Client", bound=Hashable)


class Clients(Generic[Client]):
    """``exempt`` are those that the rate limit does not count, ``networks`` has by which it counts others.

    Clients are whatever tells them apart where they are met: an address as a number, or as text.
    """

    def __init__(self) -> None:
        self.exempt: set[Client] = set()
        self.networks: dict[Client, str] = {}

    def remember(self, client: Client, network: str | None) -> str | None:
        """That a client is counted by this network; None for who has no limit. Gives it back."""
        if len(self.exempt) + len(self.networks) >= MAX_CLIENTS:
            self.exempt.clear()
            self.networks.clear()
        if network is None:
            self.exempt.add(client)
        else:
            self.networks[client] = network
        return network
