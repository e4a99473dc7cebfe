"""The gateway's metrics for Prometheus."""

from __future__ import annotations

import collections
import itertools
import math
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from maptr import __version__
from maptr.daemon.connections import Counts
from maptr.gateway.message import Response
from maptr.gateway.site import Site, Traffic

MALFORMED = "malformed"  # the kind of a request that cannot be read
RESOLVE = "resolve"  # the kind of a request for an ARK
KINDS = (RESOLVE, "api", "page", "dns", "operator", MALFORMED)  # of requests, by their path
REDIRECTS = (302, 303)  # statuses
CERTIFICATE, OWN_OBJECTS, LINKS = "certificate", "redirects", "links"
ALARMS = (CERTIFICATE, OWN_OBJECTS, LINKS)  # the kinds of alarms
_OPERATOR = ("/health", "/ready", "/metrics", "/stats", "/status")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


def kind_of(target: str) -> str:
    """Return a request's kind, by its target."""
    if target.startswith("/ark"):
        return RESOLVE
    if target.startswith("/api/"):
        return "api"
    if target.startswith("/dns-query"):
        return "dns"
    if target.startswith(_OPERATOR):
        return "operator"
    return RESOLVE if "ark:" in target.partition("?")[0] else "page"


class ConnectionMetrics(Counts, Collector):
    """The counts of connections that an ``HttpListener`` keeps."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("maptr_http_connections", "Open connections.", self.open)
        yield CounterMetricFamily("maptr_http_connections_refused", "Connections over the limit.", self.refused)
        text = "Waiting connections closed to make room."
        yield CounterMetricFamily("maptr_http_connections_shed", text, self.shed)


class RequestMetrics(Collector):
    """The counts of requests by kind and status, and their time by kind. Faster than the library's metrics."""

    def __init__(self) -> None:
        self.counts: collections.Counter[tuple[str, int]] = collections.Counter()
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._within = {kind: [0] * (len(_BUCKETS) + 1) for kind in KINDS}  # by the lowest bound that fits

    def count(self, kind: str, status: int, seconds: float) -> None:
        self.counts[kind, status] += 1
        self._seconds[kind] += seconds
        self._within[kind][bisect_left(_BUCKETS, seconds)] += 1

    def within(self, kind: str) -> dict[float, int]:
        """Return how many requests took at most as long as each bound in seconds; the last bound is infinite."""
        return dict(zip((*_BUCKETS, math.inf), itertools.accumulate(self._within[kind]), strict=True))

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("maptr_http_requests", "Requests by kind and status.", labels=["kind", "status"])
        for (kind, status), number in self.counts.items():
            requests.add_metric([kind, str(int(status))], number)
        yield requests
        times = HistogramMetricFamily("maptr_http_request_seconds", "Time to the response.", labels=["kind"])
        for kind in sorted({kind for kind, _ in self.counts}):
            buckets = [(str(bound).replace("inf", "+Inf"), number) for bound, number in self.within(kind).items()]
            times.add_metric([kind], buckets, self._seconds[kind])
        yield times


class Metrics:
    """The counters of one gateway."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = RequestMetrics()
        registry.register(self._requests)
        self.count = self._requests.count
        self.connections = ConnectionMetrics()
        registry.register(self.connections)
        self.reloads = Counter("maptr_gateway_reloads", "Reloads by their result.", ["result"], registry=registry)
        text = "1 for a kind of alarm, which needs the operator: /status has its text."
        self._alarms = Gauge("maptr_gateway_alarms", text, ["kind"], registry=registry)
        text = "When the gateway's certificate expires."
        self._expires = Gauge("maptr_gateway_certificate_expiry_time_seconds", text, registry=registry)
        self._ready = Gauge("maptr_gateway_ready", "1 while the gateway is ready.", registry=registry)
        self._table = Gauge("maptr_table_records", "Records in the table.", registry=registry)
        self._age = Gauge("maptr_table_age_seconds", "Seconds since the source confirmed the table.", registry=registry)
        self._pull = Gauge("maptr_table_pull_failed", "1 while the last pull failed.", registry=registry)
        self._redirects = Gauge("maptr_redirects", "Redirects of single ARKs.", registry=registry)
        self._left_out = Gauge("maptr_redirects_left_out", "Bad rows in the file of redirects.", registry=registry)
        text = "Requests, and lines in a request, that got 503 because own objects could not be read."
        self.unavailable = Counter("maptr_redirects_unavailable", text, registry=registry)
        self._file_age = Gauge("maptr_redirects_age_seconds", "Seconds since that file was written.", registry=registry)
        text = "Own objects by the result of their link checks."
        self._links = Gauge("maptr_redirects_links", text, ["state"], registry=registry)
        build = Gauge("maptr_gateway_build_info", "Version of maptr; always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)

    def traffic(self) -> Traffic:
        """Return the number of redirects so far and their latency, from the buckets."""
        redirects = sum(self._requests.counts[RESOLVE, status] for status in REDIRECTS)
        within = self._requests.within(RESOLVE)
        return Traffic(redirects, _within(within, 0.5), _within(within, 0.99))

    def page(self, site: Site) -> Response:
        """Return the metrics as text."""
        self._ready.set(not site.troubles)
        for kind in ALARMS:
            self._alarms.labels(kind).set(kind in site.alarms)
        self._expires.set(float("nan") if site.certificate_expires is None else site.certificate_expires)
        self._table.set(len(site.table))
        self._pull.set(float("nan") if site.pull_failed is None else site.pull_failed)
        self._redirects.set(len(site.objects))
        self._left_out.set(site.redirects.left_out)
        self._file_age.set(time.time() - site.redirects.written if site.redirects.written else float("nan"))
        self._links.clear()
        for state, count in ({} if site.links is None else site.links.counts._asdict()).items():
            self._links.labels(state).set(count)
        fetched = site.table_state.fetched
        self._age.set(float("nan") if fetched is None else time.time() - fetched)
        return Response(HTTPStatus.OK, (("Content-Type", CONTENT_TYPE_LATEST),), generate_latest(self._registry))


def _within(buckets: Mapping[float, int], share: float) -> float | None:
    """Return the bound in seconds that covers this share of the requests; None without one."""
    wanted = share * buckets.get(math.inf, 0)
    return next((bound for bound, count in sorted(buckets.items()) if 0 < wanted <= count and bound < math.inf), None)
