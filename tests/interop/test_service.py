"""One TOML file: pull the registry over HTTP, publish the zone, notify the secondary, report the drift."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from maptr import discover_at, registry
from maptr.cli.group import main
from maptr.discovery import NoMappingAuthority
from maptr.registry.table import Table
from tests.interop.test_secondaries import serial_at
from tests.support.http_server import http_server, sends
from tests.support.peers import HOST, free_port, require
from tests.support.secondaries import SECRET, KnotSecondary, NsdSecondary, Secondary
from tests.support.server_process import Server

SAMPLE = Path(__file__).resolve().parent.parent.parent / "zones" / "sample.json"
PATIENCE = 60.0  # seconds until what should come about never will; NSD takes one or two for each change
NEW = "ark:54321/x1"

CONFIG = """\
[serve]
listen = ["127.0.0.1:{port}"]
control = "maptr.sock"
state = "state"

[table]
file = "naans.json"
url = "{url}"
mirrors = ["{url}-mirror"]
every = "1s"
drift = ["127.0.0.1#{secondary}"]

[[key]]
name = "xfr"
secret = "{secret}"

[[zone]]
name = "ark.arpa"
file = "ark.arpa.zone"
table = "naans.json"
transfer = ["key:xfr"]
notify = ["127.0.0.1:{secondary} key:xfr"]
"""


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came about: {what}"
        time.sleep(0.05)
    return found


class Site:
    """The registry's server, maptr, and one secondary."""

    def __init__(self, directory: Path, secondary: Secondary, url: str) -> None:
        self.config = directory / "maptr.toml"
        self.secondary = secondary
        port, told = free_port(), free_port()
        self.config.write_text(CONFIG.format(port=port, url=url, secondary=told, secret=SECRET))
        secondary.primary_port, secondary._wanted_port = port, told
        self.server = Server("--config", str(self.config))

    def status(self) -> dict[str, Any]:
        result = CliRunner().invoke(main, ["status", "--config", str(self.config), "--json"])
        return dict(json.loads(result.stdout)) if result.exit_code == 0 else {}

    def table(self) -> dict[str, Any]:
        return dict(self.status().get("table") or {})

    def serial(self) -> int | None:
        zones = self.status().get("zones") or [{}]
        found: int | None = zones[0].get("serial")
        return found


@pytest.fixture(params=[NsdSecondary, KnotSecondary], ids=lambda kind: kind.name)
def secondary(request: pytest.FixtureRequest) -> Iterator[Secondary]:
    kind: type[Secondary] = request.param
    require(*kind.commands)
    made = kind(0)
    yield made
    made.stop()


def test_pull_publish_notify_and_drift_by_one_file(tmp_path: Path, secondary: Secondary) -> None:
    table = registry.read(SAMPLE.read_bytes())
    content = {"/naans": registry.write_json(table).encode()}

    def serve(request: Any) -> None:
        sends(content.get(request.path, b""), 200 if request.path in content else 503)(request)

    with http_server(serve) as url:
        site = Site(tmp_path, secondary, url)
        try:
            first = wait_for(site.serial, "the zone of the first pull")
            secondary.start()
            wait_for(lambda: serial_at(secondary) == first, "the secondary has it")
            assert discover_at(HOST, "ark:12345/x54", port=secondary.port)
            wait_for(lambda: site.table().get("drift"), "a look for drift")

            # The registry gets an entry: serial, NOTIFY and IXFR follow, and drift is none.
            entry = table["12345"]
            more = Table([*table.values(), type(entry)("54321", nmas=entry.nmas)], metadata=table.metadata)
            content["/naans"] = registry.write_json(more).encode()
            second = wait_for(lambda: (s := site.serial()) != first and s, "the next serial")
            wait_for(lambda: serial_at(secondary) == second, "the secondary follows")
            assert discover_at(HOST, NEW, port=secondary.port)
            site.server.wait_for(rf"IXFR of zone ark\.arpa\. to .*: from serial {first} to {second}")
            site.server.wait_for(r"table .*naans\.json pulled from http.*: 1 added, 0 changed, 0 removed")
            wait_for(
                lambda: [(one["deviating"], one["records"]) for one in site.table()["drift"]] == [([], len(more))],
                "drift of nothing that was just published",
            )

            # The source fails, then loses half of it: the zone and the table stay, and the status says why.
            del content["/naans"]
            error = wait_for(lambda: site.table()["error"], "the failure in the status")
            assert "the server answers 503" in error
            content["/naans-mirror"] = registry.write_json(Table(list(more.values())[::2])).encode()
            wait_for(lambda: "removes" in site.table()["error"], "the guard in the status")
            assert any("the table was not pulled, the old one stays" in alarm for alarm in site.status()["alarms"])
            assert site.serial() == second
            assert discover_at(HOST, NEW, port=secondary.port)
            shown = CliRunner().invoke(main, ["status", "--config", str(site.config)]).stdout
            assert "ALARM the table was not pulled" in shown

            # And back to normal, without anybody's help: the entry goes again.
            content["/naans"] = registry.write_json(table).encode()
            third = wait_for(lambda: (s := site.serial()) != second and s, "the serial after the failure")
            wait_for(lambda: serial_at(secondary) == third, "the secondary follows again")
            with pytest.raises(NoMappingAuthority):
                discover_at(HOST, NEW, port=secondary.port)
            assert site.table()["error"] == ""
            assert (tmp_path / "state" / "drift.sqlite").exists()
        finally:
            assert site.server.end() == 0
