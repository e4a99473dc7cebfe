"""minisign: valid and damaged signatures and keys, signatures by another key, and the minisign program."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.errors import SignatureError
from maptr.registry.minisign import PublicKey, verify
from tests.support.peers import find, require
from tests.support.registries import KEY, KEY_ID, NEW, OLD, PUB, signature


def test_valid_signature_has_its_time() -> None:
    key = PublicKey.parse(PUB)
    assert key == KEY == PublicKey.parse(PUB.splitlines()[1])
    assert verify(key, OLD, signature(OLD)) == 1_700_000_000
    assert verify(key, OLD, signature(OLD, kind=b"Ed").replace("\n", "\r\n")) == 1_700_000_000
    assert verify(key, OLD, signature(OLD, "by hand")) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("1700000000", "1800000000"), "its comment was changed"),
        (lambda text: text.replace(base64.b64encode(b"ED" + KEY_ID)[:12].decode(), "RUQAAAAAAAAA"), "signed with the"),
        (lambda text: text.splitlines()[1], "expected four lines"),
        (lambda text: text + "more\n", "expected four lines"),
        (lambda text: text.replace("\n", "\n!", 1), "wrong length or algorithm"),
        (lambda text: "", "expected four lines"),
        (lambda text: signature(NEW), "of another content"),
    ],
)
def test_changed_signature_is_refused(change: Callable[[str], str], reason: str) -> None:
    with pytest.raises(SignatureError, match=reason):
        verify(KEY, OLD, change(signature(OLD)))


@pytest.mark.parametrize("text", ["", "x", "RWQ=", PUB + PUB, base64.b64encode(b"ED" + bytes(40)).decode()])
def test_invalid_key_is_refused(text: str) -> None:
    with pytest.raises(SignatureError, match="not a minisign public key"):
        PublicKey.parse(text)


@given(st.text(), st.integers(0, 300), st.sampled_from("A/=+\n \t:"))
def test_damaged_text_never_verifies_and_never_crashes(text: str, at: int, mark: str) -> None:
    good = signature(OLD)
    for tried in (text, good[:at] + mark + good[at:]):
        try:
            verify(KEY, OLD, tried)
        except SignatureError:
            continue
        assert tried.split("\n")[1].strip() == good.split("\n")[1], "only white space or the untrusted comment differs"


@pytest.mark.parametrize("options", [(), ("-l",)])
def test_signature_of_the_minisign_program_is_valid(tmp_path: Path, options: tuple[str, ...]) -> None:
    require("minisign")
    table, key, secret = tmp_path / "natab", tmp_path / "registry.pub", str(tmp_path / "secret")
    table.write_bytes(NEW)
    for arguments in (
        ("-G", "-W", "-p", str(key), "-s", secret),
        ("-S", *options, "-s", secret, "-m", str(table), "-t", "timestamp:1700000000"),
    ):
        subprocess.run([find("minisign") or "", *arguments], check=True, capture_output=True, timeout=600)
    made = Path(f"{table}.minisig").read_text()
    assert verify(PublicKey.parse(key.read_text()), NEW, made) == 1_700_000_000
    with pytest.raises(SignatureError):
        verify(PublicKey.parse(key.read_text()), OLD, made)
