"""Programs read data, never prose: rewording messages changes no result, exit code, status, document or metric."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.support import reworded


def output_of(*options: str) -> Any:
    command = [sys.executable, "-m", reworded.__name__, *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)


def test_other_messages_change_nothing_that_programs_read() -> None:
    plain, other = output_of(), output_of("--reworded")
    assert plain["data"] == other["data"]
    assert plain["reworded"] == 0 < other["reworded"]
