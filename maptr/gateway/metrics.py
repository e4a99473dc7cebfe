"""Metrics of the gateway for Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from maptr import __version__
from maptr.daemon.connections import Counts
from maptr.gateway.message import Response
from maptr.gateway.site import Site, Traffic

MALFORMED = "malformed"  # the kind of a request that cannot be read
RESOLVE = "resolve"  # the kind of a request for an ARK
KINDS = (RESOLVE, "api", "page", "dns", "operator", MALFORMED)  # of requests, by their path
REDIRECTS = ("302", "303")  # statuses
_OPERATOR = ("/health", "/ready", "/metrics", "/stats", "/status")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


def kind_of(target: str) -> str:
    """Return the kind of a request, by its target."""
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
    """The counts of connections, which a ``HttpListener`` keeps."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("maptr_http_connections", "Open connections.", self.open)
        yield CounterMetricFamily("maptr_http_connections_refused", "Connections over the limit.", self.refused)
        text = "Waiting connections closed to make room."
        yield CounterMetricFamily("maptr_http_connections_shed", text, self.shed)


class Metrics:
    """The counters of one gateway. Many attributes: one for each metric."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "maptr_http_requests", "Requests by kind and status.", ["kind", "status"], registry=registry
        )
        self._seconds = Histogram(
            "maptr_http_request_seconds", "Time to the response.", ["kind"], buckets=_BUCKETS, registry=registry
        )
        self._request, self._second = cache(self._requests.labels), cache(self._seconds.labels)
        self.connections = ConnectionMetrics()
        registry.register(self.connections)
        self.reloads = Counter("maptr_gateway_reloads", "Reloads by their result.", ["result"], registry=registry)
        self._ready = Gauge("maptr_gateway_ready", "1 while the gateway is ready.", registry=registry)
        self._table = Gauge("maptr_table_records", "Records of the table.", registry=registry)
        self._age = Gauge("maptr_table_age_seconds", "Seconds since the source confirmed the table.", registry=registry)
        self._redirects = Gauge("maptr_redirects", "Redirects of single ARKs.", registry=registry)
        build = Gauge("maptr_gateway_build_info", "Version of maptr; always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)

    def count(self, kind: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._request(kind, str(int(status))).inc()
        self._second(kind).observe(seconds)

    def traffic(self) -> Traffic:
        """Return the redirects so far and their latency, from the buckets."""
        metrics = (*self._requests.collect(), *self._seconds.collect())
        samples = [sample for metric in metrics for sample in metric.samples]
        counts = [one.value for one in samples if one.name.endswith("_total") and one.labels["status"] in REDIRECTS]
        resolving = (one for one in samples if one.name.endswith("_bucket") and one.labels["kind"] == RESOLVE)
        buckets = {float(one.labels["le"]): one.value for one in resolving}
        return Traffic(int(sum(counts)), _within(buckets, 0.5), _within(buckets, 0.99))

    def page(self, site: Site) -> Response:
        """Return the metrics as text."""
        self._ready.set(not site.troubles)
        self._table.set(len(site.table))
        self._redirects.set(len(site.objects))
        fetched = site.table_state.fetched
        self._age.set(float("nan") if fetched is None else time.time() - fetched)
        return Response(HTTPStatus.OK, (("Content-Type", CONTENT_TYPE_LATEST),), generate_latest(self._registry))


def _within(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the bound in seconds below which this share of the requests is; None without one."""
    wanted = share * buckets.get(math.inf, 0)
    return next((bound for bound, count in sorted(buckets.items()) if 0 < wanted <= count and bound < math.inf), None)
