"""Metrics for Prometheus and a health check, over HTTP: the values of ``maptr status``.

GET and HEAD of two paths, one request per connection, bounded in size, time and number. Needs the package
prometheus-client (``pip install 'maptr[metrics]'``). Names follow https://prometheus.io/docs/practices/naming/: base
units, counters end in ``_total``, times are in seconds since 1970.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import platform
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from maptr.answer.context import Transport
from maptr.dnssec.expiry import Signatures
from maptr.errors import MissingExtra
from maptr.server.counters import RCODES
from maptr.server.primary import NotifyState
from maptr.server.request_server import RequestServer

if TYPE_CHECKING:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

log = logging.getLogger("maptr.serve")

Status = Mapping[str, Any]
Sample = tuple[list[str], float]

METRICS, HEALTH = "/metrics", "/health"
MAX_REASON = 200  # characters of a reason in a label; ``maptr status`` shows all of it
MAX_REQUEST = 8192  # bytes of request line and headers: what most servers take, far more than scrapers send
REQUEST_TIMEOUT = 5.0  # seconds for the whole request
REPLY_TIMEOUT = 10.0  # seconds to make the response, and to send it: Prometheus waits as long by default
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response without its headers."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


def check() -> None:
    """Raise MissingExtra if prometheus-client is not installed."""
    if find_spec("prometheus_client") is None:
        reason = "needs the package prometheus-client: pip install 'maptr[metrics]'"
        raise MissingExtra(reason, key="serve.metrics")


def respond(path: str, status: Status) -> HttpResponse:
    """The response at ``METRICS`` or ``HEALTH``; 404 elsewhere."""
    if path == HEALTH:
        healthy, text = health(status)
        return HttpResponse(text.encode(), HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)
    if path != METRICS:
        return _plain(HTTPStatus.NOT_FOUND)
    from prometheus_client import CONTENT_TYPE_LATEST  # late: an extra

    return HttpResponse(render(status), content_type=CONTENT_TYPE_LATEST)


def health(status: Status) -> tuple[bool, str]:
    """Whether every zone is loaded, and the text of the response."""
    missing = [zone["zone"] for zone in status["zones"] if zone["serial"] is None]
    if missing:
        return False, "".join(f"zone {zone} is not loaded\n" for zone in missing)
    return True, "ok\n"


def render(status: Status) -> bytes:
    """The status of the daemon in the text format of Prometheus."""
    from prometheus_client import CollectorRegistry, generate_latest  # late: an extra

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(status))
    return generate_latest(registry)


class HttpServer(RequestServer):
    """Answers requests on a bound socket. ``respond`` makes the response at a path."""

    def __init__(self, sock: socket.socket, respond: Callable[[str], Awaitable[HttpResponse]]) -> None:
        super().__init__(sock, self._serve, limit=MAX_REQUEST)
        self._respond = respond

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return  # the client closed before the end of its request
            except asyncio.LimitOverrunError:
                response, is_head = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
            else:
                async with asyncio.timeout(REPLY_TIMEOUT):
                    response, is_head = await self._answer(head)
            async with asyncio.timeout(REPLY_TIMEOUT):
                writer.write(_to_wire(response, is_head=is_head))
                await writer.drain()
                writer.write_eof()
                # Read what follows the request: closing with unread data would reset the connection, and could
                # discard the response.
                while await reader.read(MAX_REQUEST):
                    pass

    async def _answer(self, head: bytes) -> tuple[HttpResponse, bool]:
        """The response, and whether its body is left out."""
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _plain(HTTPStatus.BAD_REQUEST), False
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED), False
        try:
            with self.answering():
                return await self._respond(target.partition("?")[0]), method == "HEAD"
        except Exception:
            log.exception("internal error, no reply to an HTTP request")
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR), method == "HEAD"


def _plain(status: HTTPStatus) -> HttpResponse:
    return HttpResponse(f"{status.phrase}\n".encode(), status)


def _to_wire(response: HttpResponse, *, is_head: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(["Allow: GET, HEAD"] if response.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else response.body)


class _Collector:
    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        return []  # a registry is made for one request, so no names can clash

    def collect(self) -> Iterator[Metric]:
        yield from _process(self._status)
        yield from _queries(self._status)
        for name, text, labels, samples in _zones(self._status["zones"]):
            yield _gauge(name, text, samples, labels)


def _gauge(name: str, text: str, samples: Iterable[Sample], labels: Iterable[str] = ()) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily  # late: an extra

    return _filled(GaugeMetricFamily(f"maptr_{name}", text, labels=list(labels)), samples)


def _counter(name: str, text: str, samples: Iterable[Sample], labels: Iterable[str] = ()) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily  # late: an extra

    return _filled(CounterMetricFamily(f"maptr_{name}", text, labels=list(labels)), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]) -> Metric:
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _process(status: Status) -> Iterator[Metric]:
    build = [([status["version"], platform.python_version()], 1.0)]
    yield _gauge("build_info", "Version of maptr and of Python; always 1.", build, ["version", "python"])
    yield _gauge("start_time_seconds", "When the server started.", [([], _seconds(status["started"]))])
    yield _gauge("uptime_seconds", "Seconds since the start.", [([], status["uptime"])])
    yield _gauge("alarms", "Number of alarms, which maptr status lists.", [([], len(status["alarms"]))])
    reloads = status["reloads"]
    results = [([result], reloads[result]) for result in ("done", "refused", "failed")]
    text = "Reloads: done, with a refused zone, or failed for the configuration."
    yield _counter("reloads", text, results, ["result"])
    last: list[Sample] = [([], _seconds(reloads["last"]))] if reloads["last"] else []
    yield _gauge("last_reload_time_seconds", "When the last reload ended, successful or not.", last)
    for what in ("config", "certificate"):
        failed = float(bool(status[f"{what}_error"]))
        yield _gauge(f"{what}_refused", f"1 while the {what} in use is not that of its file.", [([], failed)])


def _queries(status: Status) -> Iterator[Metric]:
    results = [*RCODES.values(), "dropped"]
    samples: list[Sample] = []
    for transport in Transport:
        counts = status["queries"].get(transport.value, {})
        named = {**dict.fromkeys(results, 0), **counts}
        samples += [([transport.value, rcode], count) for rcode, count in named.items()]
    text = "Queries by the RCODE of their response; dropped ones got none."
    yield _counter("queries", text, samples, ["transport", "rcode"])
    for name, group, key, text in (
        ("rrl_dropped", "rate_limit", "dropped", "Responses that the rate limit dropped."),
        ("rrl_slipped", "rate_limit", "truncated", "Responses that the rate limit truncated."),
        ("udp_overload", "batches", "overload", "Queries without a ready response, dropped under overload."),
        ("udp_unsent", "batches", "lost", "Responses that the kernel did not send."),
        ("connections_accepted", "connections", "accepted", "TCP and TLS connections since the start."),
        ("connections_refused", "connections", "refused", "Connections refused to a client that has too many."),
        ("connections_shed", "connections", "shed", "Idle connections closed to make room."),
    ):
        yield _counter(name, text, [([], status[group][key])])
    cookies = [([result], count) for result, count in status["cookies"].items()]
    yield _counter("cookies", "Cookies of clients: valid server cookies, and others.", cookies, ["result"])
    open_now = status["connections"]["open"]
    yield _gauge("connections", "TCP and TLS connections open now.", [([], open_now)])


def _zones(zones: list[Status]) -> Iterator[tuple[str, str, list[str], list[Sample]]]:
    """Name, help, labels and samples of each family that has a sample for each zone."""

    def each(read: Callable[[Status], float | None]) -> list[Sample]:
        return [([zone["zone"]], value) for zone in zones if (value := read(zone)) is not None]

    def reasons(read: Callable[[Status], str]) -> list[Sample]:
        return [([zone["zone"], _short(reason)], 1.0) for zone in zones if (reason := read(zone))]

    def signing(zone: Status) -> Status:
        return zone["signing"] or {}

    one = ["zone"]
    yield "zones", "Zones of the configuration.", [], [([], len(zones))]
    yield (
        "zone_loaded",
        "1 for a zone that is served, 0 for one that gets SERVFAIL.",
        one,
        each(lambda z: z["serial"] is not None),
    )
    yield "zone_serial", "The SOA serial that is served.", one, each(lambda z: z["serial"])
    yield "zone_names", "Names that have records.", one, each(lambda z: z["names"])
    text = "When the served version was loaded or signed."
    yield "zone_load_time_seconds", text, one, each(lambda z: _optional(z["loaded"]))
    yield "zone_warnings", "Findings in the served version.", one, each(lambda z: len(z["warnings"]))
    text = "Records of its table that are not in the zone."
    yield "zone_records_left_out", text, one, each(lambda z: (z["left_out"] or {}).get("records"))
    text = "1 for a record that is not in the zone, by the code of its finding; the first 100 findings."
    lacking = dict.fromkeys(
        (zone["zone"], _short(finding["record"]), finding["code"])
        for zone in zones
        for finding in (zone["left_out"] or {}).get("findings", ())
        if finding["severity"] == "error"
    )
    yield "zone_record_left_out", text, ["zone", "record", "code"], [([*labels], 1.0) for labels in lacking]
    text = "1 while the last file of a zone is refused; the reason is cut to 200 characters."
    yield "zone_refused", text, ["zone", "reason"], reasons(lambda z: z["error"])
    text = "When the last file of the zone was refused."
    yield "zone_refused_time_seconds", text, one, each(lambda z: _optional(z["failed"]))
    text = "When the first signature of the zone expires."
    yield "zone_signature_expiry_time_seconds", text, one, each(lambda z: _optional(z["signatures_expire"]))
    states = [
        ([zone["zone"], str(state)], float(zone["signatures"] == state))
        for zone in zones
        if zone["signatures"] is not None
        for state in Signatures
    ]
    yield "zone_signatures", "1 for the state of the zone's signatures.", ["zone", "state"], states
    text = "When the server will sign the zone again."
    yield "zone_signing_due_time_seconds", text, one, each(lambda z: _optional(signing(z).get("due")))
    text = "1 while the server cannot sign the zone; the reason is cut to 200 characters."
    yield "zone_signing_failed", text, ["zone", "reason"], reasons(lambda z: signing(z).get("error", ""))
    secondaries = [(zone["zone"], each) for zone in zones for each in zone["secondaries"]]
    pairs = ["zone", "secondary"]
    text = "1 for the state of the NOTIFY for the last serial."
    notify = [
        ([zone, each["secondary"], str(state)], float(each["notify"] == state))
        for zone, each in secondaries
        for state in NotifyState
    ]
    yield "zone_notify", text, [*pairs, "state"], notify
    text = "The last serial whose NOTIFY the secondary acknowledged."
    known = [([zone, t["secondary"]], t["serial"]) for zone, t in secondaries if t["serial"] is not None]
    yield "zone_notify_serial", text, pairs, known


def _short(reason: str) -> str:
    # The reason may have a file name that is not UTF-8, which would make all metrics unwritable.
    return reason[:MAX_REASON].encode("utf-8", "replace").decode()


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _optional(text: str | None) -> float | None:
    return None if text is None else _seconds(text)
