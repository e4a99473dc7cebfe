"""The limits on open connections: which one is closed to make room, and which one is refused."""

from __future__ import annotations

from maptr.config.model import ConnectionLimits
from maptr.daemon.connections import Counts, OpenConnections


class Link:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def opened(most: int = 3, per_client: int = 3) -> tuple[OpenConnections[Link], Counts]:
    counts = Counts()
    return OpenConnections(ConnectionLimits(most, per_client), counts), counts


def test_the_connection_that_is_idle_longest_makes_room() -> None:
    connections, counts = opened()
    first, second, third, fourth = links = [Link() for _ in range(4)]
    for link in links[:3]:
        assert connections.admit(link, "192.0.2.1")
    connections.idle(first)
    connections.busy(second)
    assert connections.admit(fourth, "192.0.2.2")
    assert [link.aborted for link in links] == [False, False, True, False]
    assert [*connections] == [first, second, fourth]
    connections.remove(third)  # again, as its transport does
    assert (counts.open, counts.accepted, counts.refused, counts.shed) == (3, 4, 0, 1)


def test_a_connection_is_refused_while_all_others_are_busy() -> None:
    connections, counts = opened(1)
    link = Link()
    assert connections.admit(link, "192.0.2.1")
    connections.busy(link)
    assert connections.is_busy(link)
    assert not connections.admit(Link(), "192.0.2.2")
    assert not link.aborted
    connections.remove(link)
    assert connections.admit(Link(), "192.0.2.2")
    assert (counts.open, counts.accepted, counts.refused, counts.shed) == (1, 2, 1, 0)


def test_a_client_has_a_limit_of_its_own() -> None:
    """The addresses of an IPv6 /64 are one client."""
    connections, counts = opened(9, per_client=1)
    link = Link()
    assert connections.admit(Link(), "fe80::1%lo")
    assert connections.admit(link, "2001:db8::1")
    assert not connections.admit(Link(), "2001:db8::2")
    assert connections.admit(Link(), "2001:db8::3", exempt=True)
    assert connections.admit(Link(), "2001:db8:0:1::1")
    connections.rename(link, "192.0.2.1")
    assert not connections.has_room("192.0.2.1")
    connections.remove(link)
    assert connections.has_room("192.0.2.1")
    assert counts.refused == 1


def test_connections_that_are_idle_too_long() -> None:
    connections, _ = opened()
    idle, busy = Link(), Link()
    for link in (idle, busy):
        connections.admit(link, "192.0.2.1")
    connections.busy(busy)
    assert connections.idle_for(0) == [idle]
    assert connections.idle_for(60) == []
