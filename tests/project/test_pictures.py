"""The picture of the rooms shows the imports of today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    script = REPOSITORY / "scripts" / "architecture"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
