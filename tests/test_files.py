"""Atomic writing: complete or unchanged files, private modes, at most one file left by a crash; and followed files."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from maptr import files
from maptr.errors import reason_of
from maptr.files import LOOK_EVERY, READ_EVERY, Followed
from maptr.protocol.names import parse
from maptr.server import state_folder
from maptr.zone.diff import Published

ORIGIN = parse("a.test.")
ZONE = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n"


def test_a_file_is_replaced_completely_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (b"one", b"a longer one", b""):
        files.write_private(path, content[:1], content[1:])
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == files.PRIVATE
    assert [*tmp_path.iterdir()] == [path]


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    files.write_private(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))  # like a full disk; Python ignores SIGXFSZ
    try:
        for write in (files.write_private, files.write_atomically):
            with pytest.raises(OSError, match="too large") as full:
                write(path, b"new one")
            assert reason_of(full.value) == f"{path}: File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        files.write_private(path, b"new one")
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_new_file_follows_the_umask_which_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two calls of umask, a file that another thread makes would be open to everybody."""
    old = os.umask(0o027)
    try:
        monkeypatch.setattr("os.umask", Mock(side_effect=AssertionError))
        files.write_atomically(tmp_path / "a", b"one")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
        (tmp_path / "a").chmod(0o600)
        flushed: list[os.stat_result] = []
        monkeypatch.setattr("os.fsync", lambda handle: flushed.append(os.fstat(handle)))
        files.write_atomically(tmp_path / "a", b"two")
        file, folder = flushed
        assert (file.st_mode & 0o777, (tmp_path / "a").stat().st_mode & 0o777) == (0o600, 0o600), "never open to others"
        assert folder.st_ino == tmp_path.stat().st_ino, "the new name survives a power failure"
    finally:
        monkeypatch.undo()
        os.umask(old)
    assert [*tmp_path.iterdir()] == [tmp_path / "a"]


def test_each_zone_has_a_unique_file_name() -> None:
    """Among them the root, a zone named root, names with escapes, and names too long for a file."""
    labels = [(), (b"root",), (b"%root",), (b"a/b",), (b"a%047b",), (b"a", b"b"), (b"a.b",), (b"..",), (b"\0\xff",)]
    labels += [(b"x" * 63,) * 3, (b"\xff" * 63,) * 3, (b"\xff" * 63, b"\xff" * 63), (b"y" * 63,) * 3 + (b"z" * 61,)]
    names = [files.name_for(origin) for origin in labels]
    assert names[:2] == ["%root", "root"]
    assert len({*names}) == len(labels)
    assert all("/" not in name and not name.startswith(".") and len(name) <= files.MAX_NAME for name in names)


def keep_serial(folder: Path, number: int) -> None:
    state_folder.write_serial(folder, ORIGIN, Published(number, "x"))


def keep_signed(folder: Path, number: int) -> None:
    state_folder.write_signed(folder, ORIGIN, ZONE, number)


@pytest.mark.parametrize("write", [keep_serial, keep_signed])
def test_crashes_leave_one_temporary_file_at_most_and_the_next_write_removes_it(
    write: Callable[[Path, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        # As kill -9 does: the file is not renamed, and nothing is removed.
        patch.setattr(Path, "replace", lambda path, target: None)
        write(folder, 1)
        write(folder, 1)
        assert len([*folder.iterdir()]) <= 1
    write(folder, 2)
    (kept,) = folder.iterdir()
    assert not kept.name.startswith(".")
    assert not kept.name.endswith(".new")


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(files.MAX_WHOLE + 1)
    with pytest.raises(OSError, match=f"Has more than {files.MAX_WHOLE} bytes") as caught:
        files.read_whole(path)
    assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        files.read_whole(tmp_path)


class Source:
    """A followed file, and the time."""

    def __init__(self, path: Path, *, always: bool = False) -> None:
        self.now = 0.0
        self.readings = 0
        self.path = path
        self.file = Followed(
            path, "", self._read, lambda last, error: f"{last}!", clock=lambda: self.now, always=always
        )

    def _read(self, last: str) -> str:
        self.readings += 1
        return self.path.read_text("utf-8")

    def after(self, seconds: float) -> str:
        self.now += seconds
        return self.file.current()


def test_a_followed_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    source = Source(path)
    assert not source.file.is_read
    assert source.after(0) == "1"
    path.write_text("22")
    assert source.after(LOOK_EVERY / 2) == "1", "its status is not looked at each time"
    assert source.after(LOOK_EVERY / 2) == "22"
    assert (source.after(READ_EVERY), source.readings) == ("22", 2)


def test_a_followed_file_that_cannot_be_read_is_read_again_after_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    source = Source(path)
    source.after(0)
    path.unlink()
    assert source.after(LOOK_EVERY) == "1!"
    assert (source.after(LOOK_EVERY), source.readings) == ("1!", 2)
    assert (source.after(READ_EVERY), source.readings) == ("1!!", 3)


def test_a_followed_file_can_be_read_every_minute(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    source = Source(path, always=True)
    source.after(0)
    assert (source.after(READ_EVERY), source.readings) == ("1", 2)


def test_a_followed_file_that_changes_while_it_is_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")

    def read(last: str) -> str:
        path.write_text("22")
        return "2"

    file = Followed(path, "", read, lambda last, error: str(error), clock=lambda: 0.0)
    assert file.current() == "the file changed while it was read"


@pytest.mark.parametrize("error", [ValueError("embedded null byte"), RecursionError("too deep"), KeyError("a\nb")])
def test_whatever_goes_wrong_with_a_followed_file_is_its_error(error: Exception, tmp_path: Path) -> None:
    """The same task follows other files."""
    (tmp_path / "file").write_text("1")

    def read(last: str) -> str:
        raise error

    file = Followed(tmp_path / "file", "", read, lambda last, error: str(error), clock=lambda: 0.0)
    assert file.current() == f"internal error: {error!r}"


def test_a_file_that_has_nothing_yet_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/kmsg says that it is a regular file."""
    path = tmp_path / "file"
    path.touch()
    with path.open("rb") as real:
        file = Mock(fileno=real.fileno, read=lambda most: None)
        monkeypatch.setattr(files, "opened", lambda path: nullcontext(file))
        with pytest.raises(BlockingIOError, match="unavailable"):
            files.read_whole(path)
