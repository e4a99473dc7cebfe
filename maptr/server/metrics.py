"""Metrics for Prometheus and a health check, over HTTP. The values are those of ``maptr status``.

There are two paths, for GET and HEAD, and one request per connection; the size, time and number of requests are
limited. Needs the package prometheus-client (``pip install 'maptr[metrics]'``). Names follow
https://prometheus.io/docs/practices/naming/: base units, ``_total`` for counters, times in seconds since 1970.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from itertools import chain
from types import SimpleNamespace

from maptr.answer.context import Transport
from maptr.daemon.hosts import is_for_operators
from maptr.daemon.process import in_thread
from maptr.daemon.pulling import TableStatus
from maptr.daemon.request_server import RequestServer
from maptr.dnssec.expiry import Signatures
from maptr.reconcile.verdict import Verdict
from maptr.server.alarm import AlarmKind
from maptr.server.counters import RCODES
from maptr.server.secondaries import NotifyState
from maptr.server.status import CatalogStatus, Status, ZoneStatus

log = logging.getLogger("maptr.serve")

Sample = tuple[list[str], float]  # label values, and the value
Family = tuple[str, str, list[str], Sequence[Sample]]  # name, help, label names, samples

MAX_REASON = 200  # characters of a reason in a label; ``maptr status`` shows the whole reason
MAX_REQUEST = 8192  # bytes of request line and headers: the limit of most servers; scrapers send far less
REPLY_TIMEOUT = 10.0  # seconds to produce the response
PLAIN = "text/plain; charset=utf-8"
END = b"\r\n\r\n"  # the end of the headers
_ORIGIN = "(?i)^https?://[^/?]*"  # before the path, in a target that names the server too (RFC 9112 3.2.2)


def render(status: Status) -> bytes:
    """Return the daemon's status in Prometheus's text format."""
    # Late: an optional dependency.
    from prometheus_client import generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    def collect() -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, text, labels, samples in chain(_process(status), _queries(status), _table(status), _zones(status)):
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"maptr_{name}", text, labels=labels)
            for values, value in samples:
                family.add_metric(values, value)
            yield family

    return generate_latest(SimpleNamespace(collect=collect))  # a registry needs no other method


def server(
    sock: socket.socket, status: Callable[[], Status], hosts: Callable[[], Collection[str]] = tuple
) -> RequestServer:
    """Return a server for ``/metrics``, and for ``/health``, which says whether every zone is loaded.

    ``hosts`` gives ``serve.metrics_hosts``, the names besides the machine's own for which ``/metrics`` is answered.

    ``status`` takes long with many zones, so it is called in a thread, and only for these two paths.
    """

    async def answer(received: bytes) -> bytes:
        async with asyncio.timeout(REPLY_TIMEOUT):
            return await in_thread(lambda: _Request(received, status, hosts).made.getvalue())

    return RequestServer(sock, answer, end=END, limit=MAX_REQUEST)


class _Request(BaseHTTPRequestHandler):
    """One request, read and answered by ``http.server`` in memory. ``made`` is the response."""

    protocol_version = default_request_version = "HTTP/1.1"
    error_message_format, error_content_type = "%(message)s\n", PLAIN

    def __init__(self, received: bytes, status: Callable[[], Status], hosts: Callable[[], Collection[str]]) -> None:
        self.rfile = BytesIO(received)
        self.wfile = self.made = BytesIO()
        self._status = status
        self._hosts = hosts
        try:
            self.handle_one_request()
        except Exception:
            log.exception("internal error, no reply to an HTTP request")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def do_GET(self) -> None:
        code, kind = HTTPStatus.OK, PLAIN
        path = re.sub(_ORIGIN, "", self.path).partition("?")[0]
        if path != "/health" and not all(is_for_operators(host, self._hosts()) for host in self._asked_for()):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        match path:
            case "/health":
                missing = [zone.zone for zone in self._status().zones if zone.serial is None]
                body = ("".join(f"zone {zone} is not loaded\n" for zone in missing) or "ok\n").encode()
                code = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
            case "/metrics":
                from prometheus_client import CONTENT_TYPE_LATEST  # late: an optional dependency

                body, kind = render(self._status()), CONTENT_TYPE_LATEST
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
        self.send_response(code)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    do_HEAD = do_GET  # noqa: N815

    def _asked_for(self) -> list[str]:
        """Return the servers that the request names in its target and its Host headers."""
        origin = re.match(_ORIGIN, self.path)
        return [*([origin[0].partition("://")[2]] if origin else []), *self.headers.get_all("Host", [])]

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        super().send_error(code)  # the message would repeat the request

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def version_string(self) -> str:
        return "maptr"

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


def _process(status: Status) -> Iterator[Family]:
    build = [([status.version, platform.python_version()], 1.0)]
    yield "build_info", "Version of maptr and of Python; always 1.", ["version", "python"], build
    yield "start_time_seconds", "When the server started.", [], _one(status.started)
    yield "uptime_seconds", "Seconds since the start.", [], _one(status.uptime)
    kinds = Counter(alarm.kind for alarm in status.alarms)
    text = "Alarms by kind; maptr status lists them."
    yield "alarms", text, ["kind"], [([str(kind)], float(kinds[kind])) for kind in AlarmKind]
    reloads = status.reloads
    results = [([result], getattr(reloads, result)) for result in ("done", "refused", "failed")]
    text = "Reloads: done, with a refused zone, or failed for the configuration."
    yield "reloads_total", text, ["result"], results
    text = "When the last reload ended, successful or not."
    yield "last_reload_time_seconds", text, [], _one(reloads.last)
    for what in ("config", "certificate"):
        failed = float(bool(getattr(status, f"{what}_error")))
        yield f"{what}_refused", f"1 while the file of the {what} is refused.", [], _one(failed)
    text = "When the certificate for DNS over TLS expires."
    yield "certificate_expiry_time_seconds", text, [], _one(status.certificate_expires)


def _queries(status: Status) -> Iterator[Family]:
    samples: list[Sample] = []
    for transport in Transport:
        counts = {**dict.fromkeys([*RCODES.values(), "dropped"], 0), **status.queries.get(transport.value, {})}
        samples += [([transport.value, rcode], count) for rcode, count in counts.items()]
    text = "Queries by the RCODE of their response; dropped queries got none."
    yield "queries_total", text, ["transport", "rcode"], samples
    cookies = [([result], count) for result, count in status.cookies.items()]
    yield "cookies_total", "Clients' cookies: valid server cookies, and others.", ["result"], cookies
    for name, group, key, text in (
        ("rrl_dropped_total", "rate_limit", "dropped", "Responses that the rate limit dropped."),
        ("rrl_slipped_total", "rate_limit", "truncated", "Responses that the rate limit truncated."),
        ("udp_overload_total", "batches", "overload", "Queries without a ready response, dropped under overload."),
        ("udp_unsent_total", "batches", "lost", "Responses that the kernel did not send."),
        ("connections", "connections", "open", "TCP and TLS connections open now."),
        ("connections_accepted_total", "connections", "accepted", "TCP and TLS connections since the start."),
        ("connections_refused_total", "connections", "refused", "Connections refused: their client has too many."),
        ("connections_shed_total", "connections", "shed", "Idle connections closed to make room."),
    ):
        yield name, text, [], _one(getattr(status, group)[key])


def _table(status: Status) -> Iterator[Family]:
    table = status.table or TableStatus()
    failed = [] if status.table is None else _one(float(bool(table.error)))
    yield "table_checked_time_seconds", "When the source last confirmed the table.", [], _one(table.checked)
    yield "table_changed_time_seconds", "When a pull last changed the table.", [], _one(table.changed)
    yield "table_pull_failed", "1 while the last pull failed.", [], failed
    found = Counter((report.server, each.rpartition(" ")[2]) for report in table.drift for each in report.deviating)
    samples = [
        ([report.server, verdict], float(found[report.server, verdict]))
        for report in table.drift
        for verdict in map(str, Verdict)
    ]
    text = "Table records that a server answers differently, by verdict."
    yield "table_drift_records", text, ["server", "verdict"], samples


def _zones(status: Status) -> Iterator[Family]:
    zones = status.zones
    yield "zones", "Configured zones.", [], _one(len(zones))
    for name, text, read in ZONE_VALUES:
        values = [(zone.zone, read(zone)) for zone in zones]
        yield name, text, ["zone"], [([zone], value) for zone, value in values if value is not None]
    for name, text, reason in ZONE_REASONS:
        reasons = [(zone.zone, _short(reason(zone))) for zone in zones]
        text = f"{text}; the reason is cut to {MAX_REASON} characters."
        yield name, text, ["zone", "reason"], [([zone, found], 1.0) for zone, found in reasons if found]
    text = "1 for a record that is not in the zone, by its finding's code; the first 100 findings."
    lacking = dict.fromkeys(
        (zone.zone, _short(finding["record"]), finding["code"])
        for zone in zones
        for finding in (zone.left_out.findings if zone.left_out else ())
        if finding["severity"] == "error"
    )
    yield "zone_record_left_out", text, ["zone", "record", "code"], [([*labels], 1.0) for labels in lacking]
    loaded = [zone for zone in zones if zone.signatures is not None]
    states = [([one.zone, str(state)], float(one.signatures == state)) for one in loaded for state in Signatures]
    yield "zone_signatures", "1 for the state of the zone's signatures.", ["zone", "state"], states
    followed: list[ZoneStatus | CatalogStatus] = [*zones, *filter(None, [status.catalog])]
    secondaries = [([zone.zone, each.secondary], each) for zone in followed for each in zone.secondaries]
    text = "1 for the state of the NOTIFY for the last serial."
    notify = [([*key, str(state)], float(one.notify == state)) for key, one in secondaries for state in NotifyState]
    yield "zone_notify", text, ["zone", "secondary", "state"], notify
    for name, field, text in (
        ("zone_notify_serial", "serial", "The last serial whose NOTIFY the secondary acknowledged."),
        ("zone_secondary_serial", "observed_serial", "The last serial that the secondary reported."),
        ("zone_secondary_lag_seconds", "lag", "Seconds without the zone's serial, as far as known; 0 in step."),
    ):
        known = [(pair, getattr(each, field)) for pair, each in secondaries]
        yield name, text, ["zone", "secondary"], [(pair, found) for pair, found in known if found is not None]


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [([], value)]


def _short(reason: str) -> str:
    # A file name in the reason may not be valid UTF-8, which would make encoding all metrics fail.
    return reason[:MAX_REASON].encode("utf-8", "replace").decode()


# The metrics with at most one value per zone: name, help, and the value from the zone's status.
ZONE_VALUES: tuple[tuple[str, str, Callable[[ZoneStatus], float | None]], ...] = (
    ("zone_loaded", "1 for a zone that is served, 0 for one that gets SERVFAIL.", lambda z: z.serial is not None),
    ("zone_serial", "The SOA serial that is served.", lambda z: z.serial),
    ("zone_names", "Names that have records.", lambda z: z.names),
    ("zone_warnings", "Findings in the served version.", lambda z: len(z.warnings)),
    (
        "zone_records_left_out",
        "Records of its table not in the zone.",
        lambda z: z.left_out.records if z.left_out else None,
    ),
    ("zone_load_time_seconds", "When the served version was loaded or signed.", lambda z: z.loaded),
    ("zone_refused_time_seconds", "When the last file of the zone was refused.", lambda z: z.failed),
    (
        "zone_signature_expiry_time_seconds",
        "When the first signature of the zone expires.",
        lambda z: z.signatures_expire,
    ),
    (
        "zone_signing_due_time_seconds",
        "When the server will sign the zone again.",
        lambda z: z.signing.due if z.signing else None,
    ),
)
ZONE_REASONS: tuple[tuple[str, str, Callable[[ZoneStatus], str]], ...] = (
    ("zone_refused", "1 while the last file of a zone is refused", lambda z: z.error),
    ("zone_signing_failed", "1 while the server cannot sign the zone", lambda z: z.signing.error if z.signing else ""),
)
