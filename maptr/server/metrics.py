"""What ``maptr status`` knows, as metrics for Prometheus: a function of the same values, so the two never differ.

Who asks over HTTP is ``httpd.py``'s business. Needs the package prometheus-client (``pip install 'maptr[metrics]'``).
Names follow https://prometheus.io/docs/practices/naming/: base units, counters end in ``_total``, times are in seconds
since 1970.
"""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from maptr.answer.context import Transport
from maptr.dnssec.expiry import Signatures
from maptr.errors import MissingExtra
from maptr.server.counters import RCODES
from maptr.server.httpd import Reply
from maptr.server.notify import Told

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Status = Mapping[str, Any]
Sample = tuple[list[str], float]

METRICS, HEALTH = "/metrics", "/health"
MAX_REASON = 200  # characters of a reason in a label: whoever wants all of it asks ``maptr status``


def check() -> None:
    """MissingExtra where the package to make metrics with is missing."""
    if find_spec("prometheus_client") is None:
        reason = "needs the package prometheus-client: pip install 'maptr[metrics]'"
        raise MissingExtra(reason, key="serve.metrics")


def reply(path: str, status: Status) -> Reply:
    """What is told over HTTP at ``METRICS`` or ``HEALTH``."""
    if path == HEALTH:
        good, text = health(status)
        return Reply(text.encode(), HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
    from prometheus_client import CONTENT_TYPE_LATEST

    return Reply(render(status), content_type=CONTENT_TYPE_LATEST)


def health(status: Status) -> tuple[bool, str]:
    """Whether every zone is loaded, and what to say of it."""
    missing = [zone["zone"] for zone in status["zones"] if zone["serial"] is None]
    if missing:
        return False, "".join(f"zone {zone} is not loaded\n" for zone in missing)
    return True, "ok\n"


def render(status: Status) -> bytes:
    """The text that Prometheus reads, of what ``status.describe`` gave."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(status))
    return generate_latest(registry)


class _Collector:
    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        return []  # each is made for one reading: nothing to clash with

    def collect(self) -> Iterator[Metric]:
        yield from _process(self._status)
        yield from _queries(self._status)
        for name, text, labels, samples in _zones(self._status["zones"]):
            yield _gauge(name, text, samples, labels)


def _gauge(name: str, text: str, samples: Iterable[Sample], labels: Iterable[str] = ()) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(f"maptr_{name}", text, labels=list(labels))
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, text: str, samples: Iterable[Sample], labels: Iterable[str] = ()) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    family = CounterMetricFamily(f"maptr_{name}", text, labels=list(labels))
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _process(status: Status) -> Iterator[Metric]:
    build = [([status["version"], platform.python_version()], 1.0)]
    yield _gauge("build_info", "What runs: always 1.", build, ["version", "python"])
    yield _gauge("start_time_seconds", "When the server started.", [([], _seconds(status["started"]))])
    yield _gauge("uptime_seconds", "How long it has run.", [([], status["uptime"])])
    yield _gauge("alarms", "What somebody should see to, as maptr status lists it.", [([], len(status["alarms"]))])
    reloads = status["reloads"]
    results = [([result], reloads[result]) for result in ("done", "refused", "failed")]
    text = "Reloads: done, a zone of them refused, or failed for the configuration."
    yield _counter("reloads", text, results, ["result"])
    last: list[Sample] = [([], _seconds(reloads["last"]))] if reloads["last"] else []
    yield _gauge("last_reload_time_seconds", "When a reload last ended, however it did.", last)
    for what in ("config", "certificate"):
        failed = float(bool(status[f"{what}_error"]))
        yield _gauge(f"{what}_refused", f"1 while the {what} in use is not what its file has.", [([], failed)])


def _queries(status: Status) -> Iterator[Metric]:
    results = [*RCODES.values(), "dropped"]
    samples: list[Sample] = []
    for transport in Transport:
        counts = status["queries"].get(transport.value, {})
        named = {**dict.fromkeys(results, 0), **counts}
        samples += [([transport.value, rcode], count) for rcode, count in named.items()]
    text = "Queries by the RCODE of their reply; dropped ones had none."
    yield _counter("queries", text, samples, ["transport", "rcode"])
    for name, group, key, text in (
        ("rrl_dropped", "rate_limit", "dropped", "Replies that the rate limit withheld."),
        ("rrl_slipped", "rate_limit", "truncated", "Replies that the rate limit sent truncated."),
        ("udp_overload", "batches", "overload", "Queries without a ready reply that there was no time for."),
        ("udp_unsent", "batches", "lost", "Replies that the kernel did not take."),
        ("connections_accepted", "connections", "accepted", "TCP and TLS connections since the start."),
        ("connections_refused", "connections", "refused", "Connections refused to a client that had its share."),
        ("connections_shed", "connections", "shed", "Idle connections closed to make room."),
    ):
        yield _counter(name, text, [([], status[group][key])])
    cookies = [([result], count) for result, count in status["cookies"].items()]
    yield _counter("cookies", "Cookies of clients: good ones of ours, and others.", cookies, ["result"])
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
    yield "zone_loaded", "1 for a zone that is served, 0 for SERVFAIL.", one, each(lambda z: z["serial"] is not None)
    yield "zone_serial", "The SOA serial that is served.", one, each(lambda z: z["serial"])
    yield "zone_names", "Names that have records.", one, each(lambda z: z["names"])
    text = "When what is served was loaded or signed."
    yield "zone_load_time_seconds", text, one, each(lambda z: _optional(z["loaded"]))
    yield "zone_warnings", "Findings in what is served.", one, each(lambda z: len(z["warnings"]))
    text = "Records of its table that the zone lacks."
    yield "zone_records_left_out", text, one, each(lambda z: (z["left_out"] or {}).get("records"))
    text = "1 for a record that the zone lacks, by the code of its finding; the first of many."
    lacking = dict.fromkeys(
        (zone["zone"], _short(finding["record"]), finding["code"])
        for zone in zones
        for finding in (zone["left_out"] or {}).get("findings", ())
        if finding["severity"] == "error"
    )
    yield "zone_record_left_out", text, ["zone", "record", "code"], [([*labels], 1.0) for labels in lacking]
    text = "1 while the last file of a zone is refused; the reason is cut to 200 characters."
    yield "zone_refused", text, ["zone", "reason"], reasons(lambda z: z["error"])
    text = "When the file was refused that is refused now."
    yield "zone_refused_time_seconds", text, one, each(lambda z: _optional(z["failed"]))
    text = "When the first signature of the zone ends."
    yield "zone_signature_expiry_time_seconds", text, one, each(lambda z: _optional(z["signatures_expire"]))
    states = [
        ([zone["zone"], str(state)], float(zone["signatures"] == state))
        for zone in zones
        if zone["signatures"] is not None
        for state in Signatures
    ]
    yield "zone_signatures", "1 for the state that the zone's signatures are in.", ["zone", "state"], states
    text = "When the server is to sign the zone again."
    yield "zone_signing_due_time_seconds", text, one, each(lambda z: _optional(signing(z).get("due")))
    text = "1 while the server cannot sign the zone; the reason is cut to 200 characters."
    yield "zone_signing_failed", text, ["zone", "reason"], reasons(lambda z: signing(z).get("error", ""))
    secondaries = [(zone["zone"], told) for zone in zones for told in zone["secondaries"]]
    pairs = ["zone", "secondary"]
    text = "1 for how the NOTIFY of the last serial stands."
    notify = [
        ([zone, told["secondary"], str(state)], float(told["notify"] == state))
        for zone, told in secondaries
        for state in Told
    ]
    yield "zone_notify", text, [*pairs, "state"], notify
    text = "The last serial whose NOTIFY the secondary acknowledged."
    known = [([zone, t["secondary"]], t["serial"]) for zone, t in secondaries if t["serial"] is not None]
    yield "zone_notify_serial", text, pairs, known


def _short(reason: str) -> str:
    # A file's name in it may hold what is no UTF-8, and a family that cannot be written would take all others along.
    return reason[:MAX_REASON].encode("utf-8", "replace").decode()


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _optional(text: str | None) -> float | None:
    return None if text is None else _seconds(text)
