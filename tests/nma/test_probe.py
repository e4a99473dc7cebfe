"""Probing mapping authorities: politeness, addresses that are not public, and the order of a chooser."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

from maptr import url
from maptr.errors import NmaError
from maptr.nma.probe import Prober
from maptr.registry.liveness import ProbeResult
from tests.support.caching import Clock


class Network:
    """Host names with addresses, some of them dead, and a clock that ``sleep`` advances."""

    def __init__(self, addresses: dict[str, list[str]], dead: tuple[str, ...] = ()) -> None:
        self.addresses, self.dead = addresses, dead
        self.clock = Clock(0.0)
        self.asked: list[tuple[str, float]] = []
        self.current = self.most = 0
        self._lock = threading.Lock()

    def look_up(self, host: str, port: int, seconds: float) -> list[str]:
        if host not in self.addresses:
            raise NmaError(f"{host}: no address")
        return self.addresses[host]

    def ask(self, where: url.Url, seconds: float) -> None:
        with self._lock:
            self.current += 1
            self.most = max(self.most, self.current)
            self.asked.append((where.host.text, self.clock()))
        with self._lock:
            self.current -= 1
        if where.host.text in self.dead:
            raise NmaError(f"{where.host.text}: refused")

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.clock.now += seconds

    def prober(self, **options: Any) -> Prober:
        return Prober(
            ask=self.ask, look_up=self.look_up, clock=self.clock, wall=Clock(7.0), sleep=self.sleep, **options
        )


def test_hosts_at_one_address_are_probed_in_turn_with_a_pause() -> None:
    network = Network({f"h{number}.example": ["93.184.216.34"] for number in range(5)})
    found = list(network.prober().probe([f"https://h{number}.example" for number in range(5)]))
    assert [one.outcome for one in found] == [ProbeResult.ANSWERED] * 5
    times = [at for _, at in network.asked]
    assert [later - sooner for sooner, later in pairwise(times)] == [2.0] * 4
    assert network.most == 1


def test_places_that_are_not_public_are_not_asked() -> None:
    network = Network(
        {"in.example": ["192.168.1.1"], "a.example": ["93.184.216.34"], "b.example": ["93.184.216.35"]}, ("b.example",)
    )
    expected = {
        "http://in.example": ProbeResult.NOT_ASKED,
        "http://127.0.0.1": ProbeResult.NOT_ASKED,
        "http://localhost": ProbeResult.NOT_ASKED,
        "https://a.example": ProbeResult.ANSWERED,
        "https://b.example": ProbeResult.SILENT,
        "http://none.example": ProbeResult.SILENT,
    }
    found = {one.place: one for one in network.prober().probe(expected)}
    assert {place: one.outcome for place, one in found.items()} == expected
    assert sorted(name for name, _ in network.asked) == ["a.example", "b.example"]
    assert found["http://in.example"].note == "192.168.1.1 is not a public address"
    assert found["https://b.example"].note == "b.example: refused"
    assert network.prober(allow_private=True).one("http://in.example").outcome is ProbeResult.ANSWERED
    assert network.prober().one("N/A").outcome is ProbeResult.NOT_ASKED


def test_an_unexpected_exception_is_raised_and_stops_the_rest() -> None:
    network = Network({"a.example": ["93.184.216.34"]})

    def broken(host: str, port: int, seconds: float) -> list[str]:
        raise ZeroDivisionError("a bug")

    network.look_up = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        list(network.prober().probe(["https://a.example"]))
