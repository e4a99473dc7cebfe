"""A table that follows its file: changes that cause a reread, and rejected files."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from maptr.files import read_whole
from maptr.registry.followed_file import WatchedTable, pull_file

TEXT = "".join(f"{naan}:\n    h{naan}.example.org  ACR\n" for naan in range(10000, 10100)) + "#--- end of data ---\n"


def test_a_file_that_changes_while_it_is_read_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "natab"
    path.write_text(TEXT)

    def read(path: Path, *most: int) -> bytes:
        content = read_whole(path, *most)
        path.write_text(TEXT * 2)
        return content

    monkeypatch.setattr("maptr.registry.followed_file.read_whole", read)
    state = WatchedTable(path, clock=time.monotonic).current()
    assert (state.table, state.trouble) == (None, "the file changed while it was read")


def test_a_pipe_is_not_a_table_which_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "natab")
    watched = WatchedTable(tmp_path / "natab", clock=time.monotonic)
    for state in [watched.refresh() for _ in range(3)]:
        assert (state.table, state.trouble) == (None, "Is not a regular file")
    assert caplog.messages == [f"{tmp_path}/natab: Is not a regular file; there is no table"]


def test_a_pipe_in_place_of_the_note_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "natab").write_text(TEXT)
    os.mkfifo(tmp_path / "natab.pull")
    assert WatchedTable(tmp_path / "natab", clock=time.monotonic).current().table


def test_an_unchanged_table_is_not_parsed_again(tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_text(TEXT)
    watched = WatchedTable(path, clock=time.monotonic)
    first = watched.refresh().table
    os.utime(path, (1, 1))
    assert watched.refresh().table is first
    path.write_text(TEXT.replace("h10000", "i10000"))
    os.utime(path, (1, 1))  # older than the table that was read, but different
    assert watched.refresh().table != first


def test_the_same_bad_records_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "natab"
    watched = WatchedTable(path, clock=time.monotonic)
    bad = "12345:\n    -\n"
    for above in (bad, f"# moved by a line\n{bad}", "", bad, f"{bad}23456:\n    -\n"):
        path.write_text(above + TEXT)
        watched.refresh()
    assert [line.partition(" bad")[0].rpartition(" ")[2] for line in caplog.messages] == ["1", "1", "2"]


@pytest.mark.parametrize("checked", ["1e999", "-1e999", "NaN", "1e18", "-1", '"2026"', "null"])
def test_pull_note_with_an_invalid_time_is_ignored(tmp_path: Path, checked: str) -> None:
    path = tmp_path / "natab"
    path.write_text(TEXT)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    pull_file(path).write_text(f'{{"sha256": "{digest}", "checked": {checked}}}')
    assert WatchedTable(path, clock=time.monotonic).current().fetched == path.stat().st_mtime_ns / 1e9
