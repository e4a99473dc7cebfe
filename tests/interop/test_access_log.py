"""The access log in the combined format, read by the real GoAccess and fail2ban; and in JSON, with details of the
answer."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.http_gateway import ConfiguredGateway, HttpClient, get
from tests.support.peers import output, require, run
from tests.support.waiting import until

pytestmark = pytest.mark.interop
REPOSITORY = Path(__file__).resolve().parents[2]
ZONES = REPOSITORY / "zones"
COMBINED = re.compile(
    r'127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] "(.+)" (\d{3}) (\d+) "(.+)" "(.+)"'
)


def lines_of(folder: Path, more: str, table: str = "") -> list[str]:
    """The lines of the access log after three requests."""
    config = folder / "maptr.toml"
    config.write_text(f'[gateway]\nlisten = ["127.0.0.1:0"]\naccess_log = true\n{more}[serve]\n{table}')
    options = f"--config={config}", f"--table={ZONES / 'sample.json'}", "--policy=natab-only"
    with ConfiguredGateway(*options) as gateway:
        port = gateway.ready()
        get(port, "/ark:12345/x6np1", "Referer: https://library.example/a?b", "User-Agent: curl/8 (x)")
        get(port, "/ark:77777/x", 'User-Agent: "quoted"')
        with HttpClient(port) as client:
            client.send(b"HEAD /health HTTP/1.0\r\n\r\n")
            assert client.reply("HEAD").status == 200
        until(lambda: "/health" in gateway.log(), gateway.log)
        return [line for line in gateway.log().splitlines() if "GET" in line or "HEAD" in line]


def test_goaccess_and_fail2ban_read_the_combined_format(tmp_path: Path) -> None:
    require("goaccess", "fail2ban-regex")
    lines = lines_of(tmp_path, 'access_log_format = "combined"\n')
    matches = [COMBINED.fullmatch(line) for line in lines]
    assert all(matches), lines
    first, second, probe = (match.groups() for match in matches if match is not None)
    assert probe[:3] == ("HEAD /health HTTP/1.0", "200", "0")
    assert first == ("GET /ark:12345/x6np1 HTTP/1.1", "302", first[2], "https://library.example/a?b", "curl/8 (x)")
    assert second[3:] == ("-", "%22quoted%22")
    log = tmp_path / "access.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    report = tmp_path / "report.json"
    options = ("--log-format=COMBINED", "-o", report, "--no-progress")
    output("goaccess", log, *options, env={**os.environ, "TERM": "dumb"})
    general = json.loads(report.read_text())["general"]
    assert (general["valid_requests"], general["failed_requests"]) == (3, 0)
    (limited,) = re.findall(r"`failregex = ([^`]*)`", (REPOSITORY / "docs" / "operator.md").read_text("utf-8"))
    not_found = limited.replace("429", "404")
    assert "1 matched, 2 missed" in run("fail2ban-regex", log, not_found, cwd=tmp_path).output


def test_json_lines_say_what_was_answered(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "", 'log_format = "json"\n')
    first, second, health = map(json.loads, lines)
    assert (first["naan"], first["source"]) == ("12345", "natab")
    assert first["location"].startswith("https://x6.example.net:8443/")
    assert (second["naan"], second["status"], second["location"]) == ("77777", 404, "")
    assert (health["naan"], health["source"]) == ("", "")
