"""Warnings about a world-readable configuration with a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr.config import load
from tests.support.command_line import run

KEY = '[[key]]\nname = "k"\nsecret = "AAAA"\n'
COOKIES = f'[serve.cookies]\nsecret = "{"0" * 32}"\n'


@pytest.mark.parametrize(
    ("text", "mode", "key"),
    [
        (KEY, 0o644, ":3: key.secret"),
        (KEY + COOKIES, 0o604, ":3: key.secret"),
        (COOKIES, 0o666, ":2: serve.cookies.secret"),
        (KEY, 0o640, ""),
        (KEY, 0o600, ""),
        ('[[key]]\nname = "k"\nsecret_file = "secret"\n', 0o644, ""),
        ("[serve]\n", 0o644, ""),
    ],
)
def test_the_warning_has_file_and_mode(text: str, mode: int, key: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("AAAA")
    (tmp_path / "secret").chmod(0o600)
    file = tmp_path / "maptr.toml"
    file.write_text(text)
    file.chmod(mode)
    said = f"{file}{key}: has mode {mode:04o}: everybody on this machine can read the secret in it; chmod "
    found = [str(each) for each in load(file).open_secrets()]
    assert [each.startswith(said) for each in found] == ([True] if key else [])


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_a_check_warns_and_goes_on(command: str, tmp_path: Path) -> None:
    zone = tmp_path / "example.zone"
    zone.write_text("$ORIGIN example.\n@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n")
    file = tmp_path / "maptr.toml"
    file.write_text(f'{KEY}[[zone]]\nname = "example."\nfile = "{zone}"\ntransfer = ["key:k"]\n')
    file.chmod(0o644)
    result = run(command, "--check-config", "--config", str(file))
    assert (
        f"{file}:3: key.secret: has mode 0644: everybody on this machine can read the secret in it; chmod 640 it"
        in (" ".join(result.stderr.split()))
    )
