"""What the gateway counts, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from maptr import __version__
from maptr.gateway.message import Response
from maptr.gateway.site import Site

KINDS = ("resolve", "api", "page", "dns", "operator")  # what a request is for, by its path
_OPERATOR = ("/health", "/ready", "/metrics")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


def kind_of(target: str) -> str:
    """What a request is for."""
    if target.startswith("/ark"):
        return "resolve"
    if target.startswith("/api/"):
        return "api"
    if target.startswith("/dns-query"):
        return "dns"
    if target.startswith(_OPERATOR):
        return "operator"
    return "resolve" if "ark:" in target.partition("?")[0] else "page"


class Metrics:
    """The counters of one gateway."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "maptr_http_requests", "Requests by kind and status.", ["kind", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "maptr_http_request_seconds", "Time to the response.", ["kind"], buckets=_BUCKETS, registry=self._registry
        )
        self.refused = Counter("maptr_http_connections_refused", "Connections over the limit.", registry=self._registry)
        self._up = Gauge("maptr_ready", "1 while the gateway is ready.", registry=self._registry)
        self._table = Gauge("maptr_table_records", "Records of the table.", registry=self._registry)
        self._age = Gauge(
            "maptr_table_age_seconds", "Seconds since the source confirmed the table.", registry=self._registry
        )
        build = Gauge("maptr_build_info", "Version of maptr; always 1.", ["version"], registry=self._registry)
        build.labels(__version__).set(1)

    def count(self, target: str, status: int, seconds: float) -> None:
        """Count a request."""
        kind = kind_of(target)
        self._requests.labels(kind, str(status)).inc()
        self._seconds.labels(kind).observe(seconds)

    def page(self, site: Callable[[], Site]) -> Response:
        """The metrics as text."""
        now = site()
        self._up.set(not now.troubles)
        self._table.set(len(now.table))
        fetched = now.table_state.fetched
        if fetched is not None:
            self._age.set(time.time() - fetched)
        return Response(HTTPStatus.OK, (("Content-Type", CONTENT_TYPE_LATEST),), generate_latest(self._registry))
