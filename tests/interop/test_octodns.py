"""The zone in octoDNS, as docs/admin.md reads it: each NAPTR record is in its YAML, and makes the same URL."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import dns.rdatatype
import dns.zone
import pytest
import yaml

from tests.support.command_line import run
from tests.support.peers import output

pytestmark = pytest.mark.interop
DOCS = Path(__file__).resolve().parents[2] / "docs"
ZONES = DOCS.parent / "zones"


def test_the_yaml_has_every_rule_of_the_zone(tmp_path: Path) -> None:
    page = (DOCS / "admin.md").read_text()
    (config,) = re.findall(r"^```yaml octodns.yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "octodns.yaml").write_text(config)
    (tmp_path / "octodns").mkdir()
    file = tmp_path / "octodns" / "ark.arpa.zone"
    run("zone", "build", ZONES / "sample.json", "-o", file, "--ns", "ns1=192.0.2.1", code=0)
    dump = Path(sys.executable).with_name("octodns-dump")
    words = ["--config-file", "octodns.yaml", "--output-dir", "octodns", "--lenient", "ark.arpa.", "zonefile"]
    output(str(dump), *words, cwd=tmp_path)
    found = set()
    for name, records in yaml.safe_load((tmp_path / "octodns" / "ark.arpa.yaml").read_text()).items():
        for record in records if isinstance(records, list) else [records]:
            for value in record.get("values") or [record["value"]] if record["type"] == "NAPTR" else ():
                rank = value["order"], value["preference"], value["flags"].lower(), value["service"]
                found.add((name, *rank, value["regexp"], value["replacement"]))
    zone = dns.zone.from_file(str(file), relativize=True)
    meant = set()
    rdata: Any
    for name, _, rdata in zone.iterate_rdatas(dns.rdatatype.NAPTR):
        rank = rdata.order, rdata.preference, rdata.flags.decode().lower(), rdata.service.decode()
        regexp = rdata.regexp.decode().replace("\\", "\\\\")
        meant.add((name.to_text(), *rank, regexp, rdata.replacement.to_text()))
    assert found == meant
    assert len(found) > 20
