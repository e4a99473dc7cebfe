"""The state folder: stored serials."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr.config import ZoneConfig
from maptr.protocol.names import parse
from maptr.server import state_folder
from maptr.zone.diff import Published
from tests.support.zone_site import ZoneSite


def test_serials_continue_after_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    site = ZoneSite(ZoneConfig(parse("ark.arpa"), tmp_path / "z", serial="increment", state=state), now=0.0)

    def write(more: str = "") -> None:
        site.zone.file.write_text(f"$TTL 60\n@ SOA ns host 7 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n{more}")

    write()
    site.start()
    for number in (8, 9):
        write(f"a A 192.0.2.{number}\n")
        assert (site.reload().result, site.serial) == ("reloaded", number)
    assert site.reload().result == "unchanged"
    site.start()
    assert site.serial == 9
    write("a A 192.0.2.77\n")
    site.start()
    assert site.serial == 10, "changed while no server ran"
    assert [file.name for file in state.iterdir()] == ["ark.arpa.serial"]


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"serial": -1, "digest": ""}', '{"serial": true, "digest": ""}', "\xff"]
)
def test_a_damaged_serial_file_is_ignored(tmp_path: Path, record: str) -> None:
    state_folder.write_serial(tmp_path, parse("ark.arpa"), Published(1, "x"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(record.encode("latin-1"))
    assert state_folder.read_serial(tmp_path, parse("ark.arpa")) is None
