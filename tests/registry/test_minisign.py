"""Signatures of minisign: made by the real one where it is installed, and by its format everywhere."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from maptr.cli.group import main
from maptr.errors import SignatureError
from maptr.registry.followed_file import pull_file, read_pull_file
from maptr.registry.minisign import PublicKey, verify
from tests.registry.test_pull import NEW, OLD, http, natab, sends
from tests.support.peers import find

NUMBER = bytes(range(8))
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEY = PublicKey(NUMBER, PRIVATE.public_key().public_bytes_raw())
PUB = "untrusted comment: minisign public key\n" + base64.b64encode(b"Ed" + NUMBER + KEY.key).decode() + "\n"


def signature(content: bytes, comment: str = "timestamp:1700000000\tfile:naans", *, kind: bytes = b"ED") -> str:
    """As ``minisign -S`` writes it."""
    made = PRIVATE.sign(hashlib.blake2b(content).digest() if kind == b"ED" else content)
    lines = ["untrusted comment: x", base64.b64encode(kind + NUMBER + made).decode(), f"trusted comment: {comment}"]
    return "\n".join([*lines, base64.b64encode(PRIVATE.sign(made + comment.encode())).decode()]) + "\n"


def test_a_signature_says_when_it_was_made() -> None:
    key = PublicKey.parse(PUB)
    assert key == KEY == PublicKey.parse(PUB.splitlines()[1])
    assert verify(key, OLD, signature(OLD)).at == 1_700_000_000
    assert verify(key, OLD, signature(OLD, kind=b"Ed").replace("\n", "\r\n")).at == 1_700_000_000
    assert verify(key, OLD, signature(OLD, "by hand")).at is None


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (lambda text: text.replace("1700000000", "1800000000"), "its comment was changed"),
        (
            lambda text: text.replace(base64.b64encode(b"ED" + NUMBER)[:12].decode(), "RUQAAAAAAAAA"),
            "signed with the key",
        ),
        (lambda text: text.splitlines()[1], "expected four lines"),
        (lambda text: text + "more\n", "expected four lines"),
        (lambda text: text.replace("\n", "\n!", 1), "wrong length or algorithm"),
        (lambda text: "", "expected four lines"),
    ],
)
def test_what_is_no_signature_of_it_is_told(change: object, because: str) -> None:
    assert callable(change)
    with pytest.raises(SignatureError, match=because):
        verify(KEY, OLD, change(signature(OLD)))
    with pytest.raises(SignatureError, match="of another content"):
        verify(KEY, NEW, signature(OLD))


@pytest.mark.parametrize("text", ["", "x", "RWQ=", PUB + PUB, base64.b64encode(b"ED" + bytes(40)).decode()])
def test_what_is_no_key_is_told(text: str) -> None:
    with pytest.raises(SignatureError, match="not a minisign public key"):
        PublicKey.parse(text)


@given(st.text(), st.integers(0, 300), st.sampled_from("A/=+\n \t:"))
def test_no_text_is_a_signature_by_chance_and_none_is_a_crash(text: str, at: int, mark: str) -> None:
    good = signature(OLD)
    for tried in (text, good[:at] + mark + good[at:]):
        try:
            verify(KEY, OLD, tried)
        except SignatureError:
            continue
        assert tried.split("\n")[1].strip() == good.split("\n")[1], "only the untrusted comment, or space, may differ"


def pull(target: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["table", "pull", *arguments, "--table", str(target), "--apply"])


def test_only_what_is_signed_is_pulled(tmp_path: Path) -> None:
    target, key = tmp_path / "natab", tmp_path / "registry.pub"
    target.write_bytes(OLD)
    key.write_text(PUB)
    files = {"/naans": NEW, "/naans.minisig": signature(NEW).encode()}

    def serve(request: object) -> None:
        path = getattr(request, "path", "")
        sends(files.get(path, b""), 200 if path in files else 404)(request)  # type: ignore[arg-type]

    with http(serve) as url:
        result = pull(target, url, "--public-key", str(key))
        assert (result.exit_code, target.read_bytes()) == (8, OLD), "nothing says when what is there was signed"
        assert f"{target}.pull is missing, which says when" in result.stderr
        assert pull(target, url, "--public-key", str(key), "--force").exit_code == 0
        assert target.read_bytes() == NEW
        pull_file(target).unlink()
        assert pull(target, url, "--public-key", str(key)).exit_code == 0, "the same again is no older"
        assert read_pull_file(target)["signed"] == 1_700_000_000
        files["/naans"] = evil = natab(*range(10000, 10012))
        result = pull(target, url, "--public-key", str(key))
        assert result.exit_code == 8
        assert "the signature is not valid: it is of another content" in result.stderr
        files["/other"] = signature(evil, "timestamp:1600000000").encode()
        other = url.replace("/naans", "/other")
        result = pull(target, url, "--public-key", str(key), "--signature", other)
        assert "signed earlier than the current table" in result.stderr, "a good old one, sent again"
        files["/other"] = signature(evil, "no time").encode()
        result = pull(target, url, "--public-key", str(key), "--signature", other)
        assert "its signature has no time" in result.stderr, "nor one of which nobody knows when it was good"
        assert target.read_bytes() == NEW
        del files["/naans.minisig"]
        assert "the server answers 404" in pull(target, url, "--public-key", str(key)).stderr
        assert target.read_bytes() == NEW
        assert pull(target, url, "--public-key", str(key), "--signature", other, "--force").exit_code == 0
        assert target.read_bytes() == evil
    assert pull(target, str(target), "--public-key", str(tmp_path / "none")).exit_code == 8
    key.write_text("no key")
    assert "not a minisign public key" in pull(target, str(target), "--public-key", str(key)).stderr


@pytest.mark.skipif(find("minisign") is None, reason="minisign is not installed: only its format is tested")
@pytest.mark.parametrize("options", [(), ("-l",)])
def test_the_real_minisign_is_believed(tmp_path: Path, options: tuple[str, ...]) -> None:
    table, key = tmp_path / "natab", tmp_path / "registry.pub"
    table.write_bytes(NEW)
    program = find("minisign") or ""
    for arguments in (
        ("-G", "-W", "-p", str(key), "-s", str(tmp_path / "secret")),
        ("-S", *options, "-s", str(tmp_path / "secret"), "-m", str(table), "-t", "timestamp:1700000000"),
    ):
        subprocess.run([program, *arguments], check=True, capture_output=True, timeout=60)
    target = tmp_path / "pulled"
    result = pull(target, str(table), "--public-key", str(key))
    assert result.exit_code == 0, result.output
    assert target.read_bytes() == NEW
    table.write_bytes(OLD)
    assert pull(target, str(table), "--public-key", str(key)).exit_code == 8
