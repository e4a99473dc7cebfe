"""Keys: roles and states, and key folders that are refused."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from maptr.dnssec import keys as zonekeys
from maptr.dnssec.keys import Algorithm, KeySet, KeyState, Role, ZoneKey, add_key, read_keys, remove_key, set_state
from maptr.errors import SigningError


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ([], "no active KSK or CSK"),
        ([Role.ZSK], "no active KSK or CSK"),
        ([Role.KSK], "no active ZSK and no CSK"),
    ],
)
def test_keys_without_a_chain_of_trust_are_refused(keys: dict[Role, ZoneKey], chosen: list[Role], reason: str) -> None:
    with pytest.raises(SigningError, match=reason):
        KeySet(tuple(keys[role] for role in chosen))


def test_rfc4035_2_2_an_algorithm_must_sign_both_dnskey_and_zone(keys: dict[Role, ZoneKey]) -> None:
    """RFC 4035 2.2: a validator may ask for each algorithm of the DNSKEY RRset in every answer."""
    waiting = replace(keys[Role.ZSK], state=KeyState.PUBLISHED)
    with pytest.raises(SigningError, match=r"ZSK \d+ \(ecdsap256sha256, published\): every algorithm"):
        KeySet((keys[Role.CSK], waiting))
    KeySet((keys[Role.CSK], keys[Role.KSK], keys[Role.ZSK]))


def test_only_the_owner_can_read_key_files(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    path, key = add_key(folder, Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    assert path.name == f"csk-ed25519-{key.tag:05d}.active.pem"
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    (read,) = read_keys(folder)
    assert (read.path, read.key.rdata) == (path, key.rdata)
    assert set_state(folder, key.tag, KeyState.RETIRED).path.name.endswith(".retired.pem")
    assert not path.exists()
    assert remove_key(folder, key.tag).key.tag == key.tag
    assert read_keys(folder) == []


def test_a_key_file_is_written_atomically(tmp_path: Path) -> None:
    """An empty file in its name, left by kill -9, kept the zone from being signed until somebody removed it."""
    program = f"""
import os, signal
from pathlib import Path
from maptr.dnssec.keys import *
os.fdopen = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
add_key(Path({str(tmp_path / "keys")!r}), Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -signal.SIGKILL
    assert read_keys(tmp_path / "keys") == []
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    assert [file.path for file in read_keys(tmp_path / "keys")] == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_active_key_is_not_removed(tmp_path: Path) -> None:
    path, key = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    with pytest.raises(SigningError, match="retire it first"):
        remove_key(path.parent, key.tag)
    assert path.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    path.chmod(mode)
    with pytest.raises(SigningError, match=rf"\.pem: is open to others \(mode {mode:04o}\): chmod 600 it"):
        read_keys(path.parent)


def test_a_file_is_not_a_key_folder(tmp_path: Path) -> None:
    file = tmp_path / "zone"
    file.touch(0o644)
    with pytest.raises(SigningError, match="zone: is not a directory"):
        read_keys(file)


def test_a_key_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    path.parent.chmod(0o750)
    with pytest.raises(SigningError, match="keys: is open to others"):
        read_keys(path.parent)


def _spoil(path: Path, how: str) -> None:
    text = path.read_text()
    if how == "name":
        path.rename(path.with_name("key.pem"))
    elif how == "tag":
        path.rename(path.with_name("csk-ed25519-00001.active.pem"))
    elif how == "algorithm":
        path.rename(path.with_name(path.name.replace("ed25519", "ecdsap256sha256")))
    elif how == "content":
        path.write_text(text.replace("MC4", "XX4"))
    elif how == "empty":
        path.write_text("")
    elif how == "large":
        path.write_text(text + "x" * 5000)
    elif how == "public":
        lines = text.replace("PRIVATE", "PUBLIC")
        path.write_text(lines)


@pytest.mark.parametrize("how", ["name", "tag", "algorithm", "content", "empty", "large", "public"])
def test_an_error_names_a_bad_key_file_and_not_its_content(tmp_path: Path, how: str) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    secret = path.read_text().splitlines()[1]
    _spoil(path, how)
    with pytest.raises(SigningError) as caught:
        read_keys(path.parent)
    assert str(caught.value).startswith(str(path.parent) + "/")
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("algorithm", ["rsasha256", "ecdsap384sha384", "ed448"])
def test_an_algorithm_that_maptr_does_not_sign_with_is_named(tmp_path: Path, algorithm: str) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    moved = path.rename(path.with_name(path.name.replace("ed25519", algorithm)))
    with pytest.raises(SigningError, match=rf"{moved.name}: maptr signs with .* and ed25519 .*, not with {algorithm}$"):
        read_keys(path.parent)


def test_no_text_of_a_key_contains_the_private_key(tmp_path: Path) -> None:
    path, key = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    secret = path.read_text().splitlines()[1]
    for text in (repr(key), str(key), repr(read_keys(path.parent))):
        assert secret not in text
        assert "Private" not in text


def test_without_cryptography_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    monkeypatch.setattr(zonekeys, "find_spec", lambda name: None)
    for attempt in (
        lambda: read_keys(tmp_path / "keys"),
        lambda: add_key(tmp_path / "new", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE),
    ):
        with pytest.raises(SigningError, match=r"pip install 'maptr\[dnssec\]'"):
            attempt()
    assert not (tmp_path / "new").exists()
