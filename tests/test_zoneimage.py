"""Images of zones: the same zone, only for the same text, and never from what others could have written."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from maptr.errors import ConfigError
from maptr.packed import count_names
from maptr.publish import Guards
from maptr.serve import zoneimage
from maptr.serve.zoneimage import ImageFolder
from maptr.serve.zones import ZoneSource, read_checked
from maptr.signatures import signature_state
from maptr.snapshot import ZoneView

PLAIN = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\nsub IN NS ns\n"
PLAIN += 'a.b IN A 192.0.2.2\n12345 IN NAPTR 1 1 "h" "ark" "" h.test.\n12345 IN TXT "kept as lines"\n'
ODD = PLAIN + "UPPER IN TXT x ; a comment\n"
EXAMPLE = (b"example",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageFolder:
    monkeypatch.setattr(zoneimage, "MIN_TEXT", 0)
    return ImageFolder.open(tmp_path / "images")


def read(tmp_path: Path, text: str, folder: ImageFolder | None) -> ZoneView:
    """The zone as the server reads it, with its state beside the images."""
    path = tmp_path / "zone"
    path.write_text(text)
    state = None if folder is None else folder.path.parent
    return read_checked(ZoneSource(EXAMPLE, path, Guards(lint="off"), state)).view


def contents(view: ZoneView) -> object:
    nodes = {name: dict(node) for name, node in view.nodes.items()}
    return view.origin, view.serial, view.soa, view.negative_soa, view.cuts, nodes


@pytest.mark.parametrize("text", [PLAIN, ODD])
def test_an_image_is_the_zone(text: str, tmp_path: Path, folder: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = contents(read(tmp_path, text, None))
    assert contents(read(tmp_path, text, folder)) == plain
    is_kept_as_lines = b'12345 IN TXT "kept as lines"' in next(folder.path.iterdir()).read_bytes()
    assert is_kept_as_lines is (text == PLAIN)
    monkeypatch.setattr("maptr.serve.zones.read_plain", lambda *_: 1 // 0)  # nothing is parsed any more
    assert contents(read(tmp_path, text, folder)) == plain


def test_a_changed_file_is_read_anew_and_its_old_image_goes(tmp_path: Path, folder: ImageFolder) -> None:
    read(tmp_path, PLAIN, folder)
    assert read(tmp_path, PLAIN.replace("host 1 ", "host 2 "), folder).serial == 2
    assert len(list(folder.path.iterdir())) == 1
    assert read(tmp_path, PLAIN, folder).serial == 1


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 100])
def test_a_damaged_image_is_no_image(
    damage: bytes, tmp_path: Path, folder: ImageFolder, caplog: pytest.LogCaptureFixture
) -> None:
    whole = contents(read(tmp_path, PLAIN, folder))
    (image,) = folder.path.iterdir()
    octets = image.read_bytes()
    for broken in (damage, octets[:-1], octets[:50] + b"!" + octets[51:], octets + damage):
        image.write_bytes(broken)
        with caplog.at_level(logging.WARNING):
            assert contents(read(tmp_path, PLAIN, folder)) == whole
    assert "is damaged" in caplog.text
    assert image.read_bytes() == octets, "it was written again"


def test_an_image_is_of_all_the_files(tmp_path: Path, folder: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    more = tmp_path / "more"
    more.write_text("x 60 IN A 192.0.2.3\n")
    text = f"{PLAIN}$include {more}\n"
    whole = contents(read(tmp_path, text, folder))
    with monkeypatch.context() as patch:
        patch.setattr("maptr.serve.zones._read_any", lambda *_: 1 // 0)
        assert contents(read(tmp_path, text, folder)) == whole
    more.write_text("x 60 IN A 192.0.2.4\n")
    changed = contents(read(tmp_path, text, folder))
    assert changed == contents(read(tmp_path, text, None)) != whole
    more.unlink()
    with pytest.raises(FileNotFoundError):
        read(tmp_path, text, folder)


def test_a_signed_zone_has_an_image_with_its_proofs(
    tmp_path: Path, folder: ImageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = "13 2 60 20300101000000 20200101000000 1 example. AAAA"
    digest = "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"
    for signed in (
        f"@ IN NSEC a.b SOA NS\nns IN RRSIG A {signature}\na.b IN NSEC @ A\nns IN RRSIG TXT {signature}\n",
        f"@ IN NSEC3PARAM 1 0 0 -\n{digest} IN NSEC3 1 0 0 - {digest} SOA\n{digest} IN RRSIG NSEC3 {signature}\n",
    ):
        text = f"{PLAIN}{signed}Ns IN TXT UPPER ; and a comment\n"
        plain = read(tmp_path, text, None)
        assert plain.denial is not None
        read(tmp_path, text, folder)
        with monkeypatch.context() as patch:
            patch.setattr("maptr.serve.zones._read_any", lambda *_: 1 // 0)
            kept = read(tmp_path, text, folder)
        assert contents(kept) == contents(plain)
        assert (kept.denial, kept.hashed) == (plain.denial, plain.hashed)
        assert count_names(kept) == count_names(plain)
        assert signature_state(kept, 1.7e9) == signature_state(plain, 1.7e9)


def test_another_version_has_another_name(tmp_path: Path, folder: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    read(tmp_path, PLAIN, folder)
    monkeypatch.setattr(zoneimage, "VERSION", b"other")
    assert folder.read(EXAMPLE, PLAIN.encode(), "off") is None


def test_only_a_folder_of_our_own_is_trusted(tmp_path: Path, folder: ImageFolder) -> None:
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.path.chmod(0o750)
    with pytest.raises(ConfigError, match="mode 0700"):
        ImageFolder.open(folder.path)
    folder.path.chmod(0o700)
    (tmp_path / "link").symlink_to(folder.path)
    with pytest.raises(ConfigError, match="mode 0700"):
        ImageFolder.open(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file"):
        ImageFolder.open(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path, folder: ImageFolder) -> None:
    folder.path.chmod(0o500)
    assert read(tmp_path, PLAIN, folder).serial == 1


def test_a_folder_that_others_may_enter_is_not_used(
    tmp_path: Path, folder: ImageFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.path.chmod(0o755)
    assert read(tmp_path, PLAIN, folder).serial == 1
    assert not list(folder.path.iterdir())
    assert "no images of zones: " in caplog.text


def test_a_small_zone_needs_no_image(tmp_path: Path) -> None:
    read(tmp_path, PLAIN, ImageFolder(tmp_path / "images"))
    assert not (tmp_path / "images").exists()
