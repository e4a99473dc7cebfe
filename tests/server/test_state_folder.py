"""The state folder: observed serials over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr.config import ZoneConfig
from maptr.protocol.names import parse
from maptr.server import publisher, state_folder
from maptr.server.state import Served
from maptr.zone.publish import Published

HEAD = "$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"


def test_serials_continue_after_a_restart(tmp_path: Path) -> None:
    path, state = tmp_path / "z", tmp_path / "state"
    zone = ZoneConfig(parse("ark.arpa"), path, serial="increment", state=state)

    def start() -> Served:
        return publisher.start([zone], clock=lambda: 0.0)

    def serial(served: Served) -> int:
        (state,) = served.states.values()
        assert state.view is not None
        return state.view.serial

    path.write_text(HEAD.format(serial=7))
    served = start()
    for number in (8, 9):
        path.write_text(HEAD.format(serial=7) + f"a A 192.0.2.{number}\n")
        served, outcomes = publisher.publish([zone], served, clock=lambda: 0.0)
        assert [outcome.result for outcome in outcomes] == ["reloaded"]
        assert serial(served) == number
    served, outcomes = publisher.publish([zone], served, clock=lambda: 0.0)
    assert [outcome.result for outcome in outcomes] == ["unchanged"]
    assert serial(start()) == 9
    path.write_text(HEAD.format(serial=7) + "a A 192.0.2.77\n")
    assert serial(start()) == 10, "changed while nobody served"
    assert [file.name for file in state.iterdir()] == ["ark.arpa.serial"]


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"serial": -1, "digest": ""}', '{"serial": true, "digest": ""}', "\xff"]
)
def test_a_damaged_serial_file_is_ignored(tmp_path: Path, record: str) -> None:
    state_folder.write_serial(tmp_path, parse("ark.arpa"), Published(1, "x"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(record.encode("latin-1"))
    assert state_folder.read_serial(tmp_path, parse("ark.arpa")) is None


def test_the_serial_file_stays_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for name in (b"../x", b"..", b"/etc", b"a/b", b"\0"):
        state_folder.write_serial(folder, (name,), Published(1, "x"))
        assert state_folder.read_serial(folder, (name,)) == Published(1, "x")
    assert list(tmp_path.iterdir()) == [folder]
    assert len(list(folder.iterdir())) == 5
