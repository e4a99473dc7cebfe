"""Files that commands read and write: replaced atomically, and never an input."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from maptr.cli import options, output
from tests.support.command_line import run
from tests.support.waiting import PATIENCE


def test_a_loop_of_links_gives_exit_code_8(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("link")
    sample = str(Path(__file__).resolve().parents[2] / "zones" / "sample.json")
    run("zone", "build", sample, "-o", link / "zone", code=output.EXIT_UNREADABLE)


@pytest.mark.parametrize("kind", ["fifo", "descriptor"])
def test_a_pipe_is_written_to_and_not_replaced(kind: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    read: list[str] = []
    if kind == "fifo":
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
        reader.start()
        options.write(pipe, "new")
        reader.join(PATIENCE)
        assert (read, pipe.is_fifo()) == (["new"], True)
        return
    if not Path("/dev/fd").exists():
        pytest.skip("no /dev/fd here")
    reading, writing = os.pipe()
    options.write(Path(f"/dev/fd/{writing}"), "new")
    os.close(writing)
    with os.fdopen(reading) as end:
        assert end.read() == "new"


@pytest.mark.parametrize("command", [["table", "check"], ["zone", "build"], ["zone", "check"]])
def test_an_endless_input_gives_exit_code_8(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "MAX_BYTES", 1000)
    result = run(*command, "-", text="#" * 1001, code=output.EXIT_UNREADABLE)
    assert result.stderr == "maptr: <stdin>: longer than 1000 bytes\n"


def test_only_opening_a_file_decides_whether_it_is_readable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "zone").write_text("ark.arpa. 60 IN SOA a. b. 1 2 3 4 5\nark.arpa. 60 IN NS a.\n")
    monkeypatch.setattr("os.access", lambda *_: False)  # as it is for a user who may not read the file
    assert run("zone", "check", tmp_path / "zone").exit_code == 0
