"""One TOML file: pull the registry over HTTP, publish the zone, notify the secondary, report the drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maptr import discover_at, registry
from maptr.registry.table import Table
from tests.support.answers import VECTORS
from tests.support.command_line import run
from tests.support.http_server import http_server, sends
from tests.support.peers import HOST, Maptr
from tests.support.secondaries import SECRET, KnotSecondary, serial_at
from tests.support.waiting import until

NEW = "ark:54321/x1"

CONFIG = (VECTORS / "service.toml").read_text()


class Site:
    """maptr, started, and the secondary that it notifies."""

    def __init__(self, directory: Path, url: str) -> None:
        self.config = directory / "maptr.toml"
        self.server = Maptr({}, "--config", str(self.config))
        self.secondary = KnotSecondary(self.server.port)
        ports = {"port": self.server.port, "secondary": self.secondary.port}
        self.config.write_text(CONFIG.format(**ports, url=url, secret=SECRET))
        self.server.launch()

    def status(self) -> dict[str, Any]:
        result = run("status", "--config", self.config, "--json")
        return dict(json.loads(result.stdout)) if result.stdout.startswith("{") else {}

    def table(self) -> dict[str, Any]:
        return dict(self.status().get("table") or {})

    def serial(self) -> int | None:
        zones = self.status().get("zones") or [{}]
        found: int | None = zones[0].get("serial")
        return found


def test_one_configuration_pulls_publishes_notifies_and_checks_drift(sample: Path, tmp_path: Path) -> None:
    table = registry.read(sample.read_bytes())
    content = {"/naans": registry.write_json(table).encode()}

    def serve(request: Any) -> None:
        sends(content.get(request.path, b""), 200 if request.path in content else 503)(request)

    with http_server(serve) as url:
        site = Site(tmp_path, url)
        secondary = site.secondary
        try:
            first = until(site.serial, "the zone of the first pull")
            secondary.start()
            until(lambda: serial_at(secondary) == first, "the secondary has it")
            assert discover_at(HOST, "ark:12345/x54", port=secondary.port)
            until(lambda: site.table().get("drift"), "a report of drift")

            # The registry gets an entry: serial, NOTIFY and IXFR follow, and there is no drift.
            entry = table["12345"]
            more = Table([*table.values(), type(entry)("54321", nmas=entry.nmas)], metadata=table.metadata)
            content["/naans"] = registry.write_json(more).encode()
            second = until(lambda: (s := site.serial()) != first and s, "the next serial")
            until(lambda: serial_at(secondary) == second, "the secondary follows")
            assert discover_at(HOST, NEW, port=secondary.port)
            site.server.wait_for(rf"IXFR of zone ark\.arpa\. to .*: from serial {first} to {second}")
            site.server.wait_for(r"table .*naans\.json pulled from http.*: 1 added, 0 changed, 0 removed")
            until(
                lambda: [(one["deviating"], one["records"]) for one in site.table()["drift"]] == [([], len(more))],
                "a report without drift",
            )

            # The source fails, and its mirror has lost half: the zone and the table stay, and the status says why.
            del content["/naans"]
            content["/naans-mirror"] = registry.write_json(Table(list(more.values())[::2])).encode()
            until(lambda: "removes" in site.table()["error"], "the guard in the status")
            assert any(
                "the table was not pulled, the old one stays" in alarm["text"] for alarm in site.status()["alarms"]
            )
            assert site.serial() == second
            assert (tmp_path / "state" / "drift.sqlite").exists()
        finally:
            secondary.stop()
            assert site.server.stop() == 0
