"""Keys: roles, states, files, and rejected key folders."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from maptr.dnssec import keys as zonekeys
from maptr.dnssec.keys import Algorithm, KeyFile, KeySet, KeyState, Role, ZoneKey, add_key, read_keys
from maptr.errors import SigningError, time_text
from maptr.files import write_private


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [([], "no active KSK or CSK"), ([Role.ZSK], "no active KSK or CSK"), ([Role.KSK], "no active ZSK and no CSK")],
)
def test_keys_without_a_chain_of_trust_are_refused(keys: dict[Role, ZoneKey], chosen: list[Role], reason: str) -> None:
    with pytest.raises(SigningError, match=reason):
        KeySet(tuple(keys[role] for role in chosen))


def test_rfc4035_2_2_an_algorithm_must_sign_both_dnskey_and_zone(keys: dict[Role, ZoneKey]) -> None:
    """RFC 4035 2.2: every RRset needs a signature by each algorithm of the DNSKEY RRset."""
    waiting = replace(keys[Role.ZSK], state=KeyState.PUBLISHED)
    with pytest.raises(SigningError, match=r"ZSK \d+ \(ecdsap256sha256, published\): every algorithm"):
        KeySet((keys[Role.CSK], waiting))
    KeySet((keys[Role.CSK], keys[Role.KSK], keys[Role.ZSK]))


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    """Return the file of an active CSK, the only one in its folder."""
    return add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)


def test_key_file_permissions_and_refusal_to_remove_an_active_key(file: KeyFile) -> None:
    path, key = file
    folder = path.parent
    assert path.name == f"csk-ed25519-{key.tag:05d}.active.pem"
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    (read,) = read_keys(folder)
    assert (read.path, read.key.rdata) == (path, key.rdata)
    with pytest.raises(SigningError, match="retire it first"):
        zonekeys.remove_key(folder, key.tag)
    assert zonekeys.set_state(folder, key.tag, KeyState.RETIRED).path.name.endswith(".retired.pem")
    assert not path.exists()
    assert zonekeys.remove_key(folder, key.tag).key.tag == key.tag
    assert read_keys(folder) == []


def test_a_key_file_is_written_atomically(tmp_path: Path) -> None:
    """An incomplete key file after kill -9 would prevent signing until the operator removes it."""
    program = f"""
import os, signal
from pathlib import Path
from maptr.dnssec.keys import *
os.fdopen = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
add_key(Path({str(tmp_path / "keys")!r}), Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=600).returncode == -signal.SIGKILL
    assert read_keys(tmp_path / "keys") == []
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    assert [file.path for file in read_keys(tmp_path / "keys")] == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_file_that_others_can_read_is_refused(file: KeyFile, mode: int) -> None:
    file.path.chmod(mode)
    with pytest.raises(SigningError, match=rf"\.pem: has mode {mode:04o}: others can read .*; chmod 600 it"):
        read_keys(file.path.parent)


def test_a_key_folder_that_is_a_file_or_that_others_can_read_is_refused(file: KeyFile) -> None:
    with pytest.raises(SigningError, match="pem: is not a directory"):
        read_keys(file.path)
    file.path.parent.chmod(0o750)
    with pytest.raises(SigningError, match="keys: is open to others"):
        read_keys(file.path.parent)


def test_two_files_of_one_key_are_refused(file: KeyFile) -> None:
    write_private(file.path.with_name(file.path.name.replace("csk", "ksk")), file.path.read_bytes())
    with pytest.raises(SigningError, match=f"two files have the key tag {file.key.tag}"):
        read_keys(file.path.parent)


SPOILED: dict[str, Callable[[Path, str], object]] = {
    "name": lambda path, text: path.rename(path.with_name("key.pem")),
    "BIND's": lambda path, text: path.rename(path.with_name("Kexample.+015+12345.private")),
    "tag": lambda path, text: path.rename(path.with_name("csk-ed25519-00001.active.pem")),
    "algorithm": lambda path, text: path.rename(path.with_name(path.name.replace("ed25519", "ecdsap256sha256"))),
    "content": lambda path, text: path.write_text(text.replace("MC4", "XX4")),
    "empty": lambda path, text: path.write_text(""),
    "large": lambda path, text: path.write_text(text + "x" * 5000),
    "public": lambda path, text: path.write_text(text.replace("PRIVATE", "PUBLIC")),
}


@pytest.mark.parametrize("how", SPOILED)
def test_the_error_for_a_bad_key_file_names_it_and_hides_its_content(file: KeyFile, how: str) -> None:
    text = file.path.read_text()
    SPOILED[how](file.path, text)
    with pytest.raises((SigningError, OSError)) as caught:
        read_keys(file.path.parent)
    assert str(file.path.parent) + "/" in str(caught.value)
    assert text.splitlines()[1] not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("algorithm", ["rsasha256", "ecdsap384sha384", "ed448"])
def test_the_error_for_an_unsupported_algorithm_names_it(file: KeyFile, algorithm: str) -> None:
    moved = file.path.rename(file.path.with_name(file.path.name.replace("ed25519", algorithm)))
    with pytest.raises(SigningError, match=rf"{moved.name}: maptr signs with .* and ed25519 .*, not with {algorithm}$"):
        read_keys(moved.parent)


def test_string_representations_do_not_contain_the_private_key(file: KeyFile) -> None:
    secret = file.path.read_text().splitlines()[1]
    for text in (repr(file.key), str(file.key), repr(read_keys(file.path.parent))):
        assert secret not in text
        assert "Private" not in text


def test_without_cryptography_an_error_names_it(file: KeyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zonekeys, "find_spec", lambda name: None)
    with pytest.raises(SigningError, match=r"pip install 'maptr\[dnssec\]'"):
        read_keys(file.path.parent)
    with pytest.raises(SigningError, match=r"pip install 'maptr\[dnssec\]'"):
        add_key(tmp_path / "new", Role.CSK, Algorithm.ED25519, KeyState.ACTIVE)
    assert not (tmp_path / "new").exists()


def test_the_first_key_of_a_role_is_active(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # an empty folder becomes a key folder
    for role, state in ((Role.ZSK, "active"), (Role.CSK, "active"), (Role.KSK, "active"), (Role.KSK, "published")):
        assert add_key(tmp_path, role, Algorithm.ED25519).key.state == state
        if role is Role.ZSK:
            assert zonekeys.key_steps(read_keys(tmp_path), 60)[0].next == "", "its KSK is still to come"


def test_a_key_becomes_active_in_the_second_that_its_step_shows(tmp_path: Path) -> None:
    add_key(tmp_path, Role.CSK, Algorithm.ED25519)
    path, key = add_key(tmp_path, Role.CSK, Algorithm.ED25519)
    os.utime(path, (5.25, 5.25))
    (at,) = [step.at for step in zonekeys.key_steps(read_keys(tmp_path), 60) if step.tag == key.tag]
    assert at == 6 + 60 + zonekeys.MARGIN
    with pytest.raises(SigningError, match=re.escape(time_text(at))):
        zonekeys.check_change(tmp_path, key.tag, KeyState.ACTIVE, at - 0.5, 60)
    zonekeys.check_change(tmp_path, key.tag, KeyState.ACTIVE, at, 60)


@pytest.mark.parametrize(
    ("role", "ds_ttl", "wait"), [("ksk", None, 60), ("ksk", 90, 90), ("ksk", 30, 60), ("zsk", 90, 60)]
)
def test_a_retired_key_stays_for_the_longest_ttl(role: str, ds_ttl: int | None, wait: int) -> None:
    """RFC 7583 3.2, 3.3: that of the zone, and for a key with a DS that of the DS."""
    files = [(f"{role}-ed25519-00001.retired.pem", 5.0), ("csk-ed25519-00002.active.pem", 1.0)]
    step = zonekeys.steps_of(files, 60, ds_ttl)[0]
    assert (step.next, step.at) == ("remove", 5 + wait + zonekeys.MARGIN)


def test_the_algorithm_of_a_ksk_and_a_zsk_changes_with_a_complete_set_of_signatures(tmp_path: Path) -> None:
    """RFC 4035 2.2. The old ZSK signs until its KSK is gone, and then goes without a wait."""
    old, new = Algorithm.ECDSAP256SHA256, Algorithm.ED25519
    for role in (Role.KSK, Role.ZSK):
        add_key(tmp_path, role, old)
    os.utime(zsk := next(tmp_path.glob("zsk-*")), (1, 1))
    ksk, zsk_tag = next(tmp_path.glob("ksk-*")).name, int(zsk.name[-16:-11])
    ksk_tag = int(ksk[-16:-11])
    states = [add_key(tmp_path, role, new).key.state for role in (Role.KSK, Role.ZSK)]
    assert states == [KeyState.PUBLISHED, KeyState.ACTIVE]
    KeySet(tuple(file.key for file in read_keys(tmp_path)))

    def step(tag: int) -> str:
        return next(step.next for step in zonekeys.key_steps(read_keys(tmp_path), 60) if step.tag == tag)

    assert step(zsk_tag) == "", "the other ZSK has another algorithm"
    with pytest.raises(SigningError, match="only active one of its algorithm"):
        zonekeys.check_change(tmp_path, zsk_tag, KeyState.RETIRED, 1e10, 60)
    with pytest.raises(SigningError, match="is in use"):
        zonekeys.remove_key(tmp_path, zsk_tag)
    zonekeys.set_state(tmp_path, ksk_tag, KeyState.RETIRED)
    assert step(zsk_tag) == ""
    zonekeys.remove_key(tmp_path, ksk_tag)
    assert step(zsk_tag) == "remove"
    zonekeys.check_change(tmp_path, zsk_tag, None, 2, 60)
    zonekeys.remove_key(tmp_path, zsk_tag)
    assert {file.key.algorithm for file in read_keys(tmp_path)} == {new}
