"""The file of a kept version: its content is read back, and damaged or forged files, or those of another version, are
not used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from maptr.config import ZoneConfig
from maptr.daemon import kept
from maptr.daemon.kept import Kept
from maptr.protocol.names import fold, parse
from maptr.zone.diff import digest
from maptr.zone.masterfile import Source
from tests.support.zones import view_of

NAME = fold(parse("ark.arpa"))
KEYS = (
    *["origin", "serial", "names", "published", "settings", "sources", "warnings", "unsigned", "signed", "key_files"],
)
TEXT = "12345 TXT one\nUPPER TXT two\na.b.c TXT three\n*.w TXT four\nd NS ns.d\nns.d A 192.0.2.9\n"


def version(serial: int = 7) -> Kept:
    sources = (Source(Path("/z/ark.arpa"), hashlib.sha256(b"z").digest()),)
    return Kept(view_of(TEXT, serial), 1e9, "settings", sources, ("odd",), 5, "head", (("k.pem", 1, 2, 3, 4),))


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    first = version()
    digest(first.view)
    kept.write(tmp_path, first)
    found = kept.read(tmp_path, NAME)
    assert found is not None
    before = version()
    assert found.view.nodes.digest == first.view.nodes.digest is not None
    assert found.view.nodes.table == before.view.nodes.table
    assert list(found.view.nodes.table) == list(before.view.nodes.table)
    assert (found.view.nodes.spelled, found.view.nodes.special) == (
        before.view.nodes.spelled,
        before.view.nodes.special,
    )
    assert found.view._replace(nodes=before.view.nodes) == before.view
    assert [getattr(found, each) for each in kept.Kept.__slots__[1:]] == [
        getattr(before, each) for each in kept.Kept.__slots__[1:]
    ]
    assert kept.path_of(tmp_path, NAME).stat().st_mode & 0o777 == 0o600


def test_a_zone_of_many_parts_is_read_again(tmp_path: Path) -> None:
    view = view_of("".join(f"{number} TXT t{number}\n" for number in range(2 * kept.NAMES)))
    kept.write(tmp_path, Kept(view, 0.0))
    found = kept.read(tmp_path, NAME)
    assert found is not None
    assert found.view.nodes.table == view.nodes.table


def test_nothing_is_kept_of_another_zone(tmp_path: Path) -> None:
    assert kept.read(tmp_path, NAME) is None
    kept.write(tmp_path, version())
    kept.path_of(tmp_path, NAME).rename(kept.path_of(tmp_path, parse("example")))
    assert kept.read(tmp_path, fold(parse("example"))) is None


def test_no_damaged_byte_and_no_cut_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept.write(tmp_path, version())
    path = kept.path_of(tmp_path, NAME)
    whole = path.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for data in (*damaged, *(whole[:at] for at in range(len(whole))), whole + b"x", whole + whole):
        path.write_bytes(data)
        assert kept.read(tmp_path, NAME) is None
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    path.write_bytes(whole)
    assert kept.read(tmp_path, NAME) is not None


def _forged(change: Callable[[dict[str, object]], object], rest: Callable[[bytes], bytes] = bytes) -> bytes:
    """The file of a version with another head or other parts, and the right checksum."""
    with TemporaryDirectory() as folder:
        kept.write(Path(folder), version())
        line, parts = kept.path_of(Path(folder), NAME).read_bytes()[len(kept.FORMAT) : -32].split(b"\n", 1)
    head = json.loads(line)
    change(head)
    data = kept.FORMAT + json.dumps(head).encode() + b"\n" + rest(parts)
    return data + hashlib.sha256(data).digest()


def _without(key: str) -> Callable[[dict[str, object]], object]:
    return lambda head: head.pop(key)


@pytest.mark.parametrize(
    "data",
    [
        *(_forged(_without(key)) for key in KEYS),
        _forged(lambda head: head.update(serial=8)),
        _forged(lambda head: head.update(names=3)),
        _forged(lambda head: head.update(sources=[1])),
        _forged(lambda head: head.update(sources=[["a", "zz"]])),
        _forged(lambda head: head.update(key_files=[[1]])),
        _forged(lambda head: head.update(warnings=5)),
        _forged(lambda head: head.update(published="x")),
        _forged(lambda head: head.update(published=float("nan"))),
        _forged(lambda head: head.update(published=1e300)),
        _forged(lambda head: None, lambda parts: b""),
        _forged(lambda head: None, lambda parts: parts[:-1]),
        _forged(lambda head: None, lambda parts: b"\xff" * 12 + parts[12:]),
        _forged(lambda head: None, lambda parts: parts[:40] + b"\xff" * 8 + parts[48:]),
        _forged(lambda head: None, lambda parts: bytes(len(parts))),
        _forged(lambda head: None, lambda parts: parts[:12] + bytes(len(parts) - 12)),
        *(kept.FORMAT + line + hashlib.sha256(kept.FORMAT + line).digest() for line in (b"[" * 200_000 + b"\n", b"")),
    ],
)
def test_a_right_checksum_over_wrong_content_is_not_used(data: bytes, tmp_path: Path) -> None:
    kept.path_of(tmp_path, NAME).write_bytes(data)
    assert kept.read(tmp_path, NAME) is None


def test_a_folder_a_pipe_or_a_dangling_link_is_not_used(tmp_path: Path) -> None:
    path = kept.path_of(tmp_path, NAME)
    makers: list[Callable[[], object]] = [
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("nowhere"),
        lambda: path.symlink_to(path),
    ]
    for make in makers:
        make()
        assert kept.read(tmp_path, NAME) is None
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


def test_a_version_fits_the_settings_and_all_files_of_its_zone(tmp_path: Path) -> None:
    file, other = tmp_path / "z", tmp_path / "i"
    zone = ZoneConfig(NAME, file)
    file.write_text("a")
    other.write_text("b")
    sources = tuple(Source(path, hashlib.sha256(path.read_bytes()).digest()) for path in (file, other))
    settings = kept.settings_of(zone)
    assert kept.fits(zone, settings, sources)
    assert not kept.fits(ZoneConfig(NAME, file, lint="refuse"), settings, sources)
    assert not kept.fits(ZoneConfig(NAME, other), settings, sources)
    assert not kept.fits(zone, settings, ())
    other.write_text("c")
    assert not kept.fits(zone, settings, sources)
    other.unlink()
    assert not kept.fits(zone, settings, sources)


def test_what_was_set_aside_is_deleted_after_thirty_days_of_a_server(tmp_path: Path) -> None:
    kept.write(tmp_path, version())
    now = 1_800_000_000.0
    assert kept.set_aside(tmp_path, [NAME], now, suffixes=(kept.SUFFIX,)) == []
    (aside,) = kept.set_aside(tmp_path, [], now, suffixes=(kept.SUFFIX,))
    assert kept.read(tmp_path, NAME) is None
    assert kept.last_set_aside(tmp_path, "ark.arpa.kept") == aside
    year = 365 * kept.DAY
    for jump in (0.0, 3600.0, year, year, 0.0, -year):  # a clock that is wrong counts days of one, and not a month
        assert kept.count_days(tmp_path, now + jump) == []
    for day in range(1, kept.AGE - 3):
        assert kept.count_days(tmp_path, now + day * kept.DAY) == [], day
        assert kept.count_days(tmp_path, now + day * kept.DAY) == []
    assert len(kept.count_days(tmp_path, now + kept.AGE * kept.DAY)) == 1
    assert kept.last_set_aside(tmp_path, "ark.arpa.kept") is None


def test_several_versions_of_one_zone_are_set_aside(tmp_path: Path) -> None:
    for serial in (1, 2, 3):
        kept.write(tmp_path, version(serial))
        kept.set_aside(tmp_path, [], 0.0, suffixes=(kept.SUFFIX,))
    assert len([*tmp_path.iterdir()]) == 3
