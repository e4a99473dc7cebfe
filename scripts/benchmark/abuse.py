"""A gateway's client beside another that sends expensive requests at its limit, and the most expensive request
alone."""

from __future__ import annotations

import contextlib
import http.client
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.support.peers import HOST

QUIET, LOUD = "192.0.2.2", "192.0.2.1"  # clients behind a proxy on this machine
PAUSE = 0.005  # seconds between two requests of the quiet client
SETTLE = 1.0  # seconds until the loud client has reached its limit
WORKERS = 2  # connections of the loud client


class Request(NamedTuple):
    """A request that costs more than a redirect."""

    name: str
    target: str
    method: str = "GET"
    body: str = ""

    def send(self, connection: http.client.HTTPConnection, client: str) -> int:
        """Send it and read the response; return its status."""
        headers = {"X-Forwarded-For": client, "Accept": "text/html"}
        if self.body:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(self.method, self.target, self.body or None, headers)
        response = connection.getresponse()
        response.read()
        return response.status


DEAR = (
    Request("list of 250 NAANs", "/api/v1/naans?limit=250"),
    Request("16 kB of search", "/?q=" + "ark:1/a%20" * 1600),
    Request("16 kB of path", "/ark:12148/" + "a" * 15_000),
    Request("65 kB of form", "/", "POST", "&".join(["a=%41"] * 10_900)),
    Request("look-up of 100 ARKs", "/api/v1/discover?" + "&".join(f"ark=ark:/12148/x{i}" for i in range(100))),
    Request("page of drift", "/drift?verdict=same"),
    Request("page of a NAAN", "/naan/19153"),
    Request("page of the registry", "/"),
)


def dearest(port: int, rounds: int) -> Iterator[str]:
    """Yield a line about the request that takes longest. ``port`` is that of a gateway without limits."""
    took: dict[str, float] = {}
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
        for request in DEAR:
            each = []
            for _ in range(rounds):
                begin = time.perf_counter()
                request.send(connection, LOUD)
                each.append((time.perf_counter() - begin) * 1e3)
            took[request.name] = statistics.median(each)
    name = max(took, key=lambda name: took[name])
    yield f"\nthe dearest request (goal 20 ms): {name}, {took[name]:.1f} ms of {len(took)} kinds"


def beside(port: int, path: str, count: int, requests: Sequence[Request]) -> Iterator[str]:
    """Yield the lines about a quiet client. ``port`` is that of a gateway with its default limits."""
    quiet = median_ms(port, path, count)
    found = {request.name: _beside(port, request, path, count) for request in requests}
    name = max(found, key=lambda name: found[name])
    yield f"\nmedian of a client with 200 requests a second: {quiet:.2f} ms alone, and beside a client at its limit"
    yield f"(goal 10 ms, 4 x alone): {found[name]:.2f} ms, {found[name] / quiet:.1f} x, beside {name}; the others:"
    yield "  " + ", ".join(f"{other} {took:.2f}" for other, took in found.items() if other != name)


def median_ms(port: int, path: str, count: int) -> float:
    """Return the median time of a redirect for the quiet client, in milliseconds."""
    redirect, took = Request("a redirect", path), []
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
        for _ in range(count):
            begin = time.perf_counter()
            status = redirect.send(connection, QUIET)
            took.append((time.perf_counter() - begin) * 1e3)
            if status not in (302, 303):
                raise SystemExit(f"bench: {path}: {status} instead of a redirect")
            time.sleep(PAUSE)
    return statistics.median(took)


def _beside(port: int, request: Request, path: str, count: int) -> float:
    stop = threading.Event()

    def loud() -> None:
        with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
            while not stop.is_set():
                request.send(connection, LOUD)

    workers: Sequence[threading.Thread] = [threading.Thread(target=loud) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        time.sleep(SETTLE)
        return median_ms(port, path, count)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
