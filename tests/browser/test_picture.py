"""``scripts/picture``, which takes the README's picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.browser import BROWSERS, MISSING
from tests.support.peers import find, skip_or_fail

ROOT = Path(__file__).resolve().parents[2]


def test_the_picture_shows_the_page_and_its_colours(tmp_path: Path) -> None:
    if not any(map(find, BROWSERS)):
        skip_or_fail(MISSING)
    path = tmp_path / "search.png"
    subprocess.run([sys.executable, ROOT / "scripts" / "picture", path], check=True, timeout=600)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(data[16:20], "big") == 1000, "pixels wide, IHDR"
    assert 10_000 < len(data) < 100_000, "with text and figures on it"
