"""``-`` is standard input wherever a command reads a file once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run_process

ZONES = Path(__file__).resolve().parents[2] / "zones"
TABLE, ZONE = ZONES / "sample.natab", ZONES / "ark.arpa.zone"
REDIRECTS = "ark,url\nark:12345/x1,https://o.example.org/1\nx,https://o.example.org/2\n"
ANCHOR = f"ark.arpa. IN DS 1 13 2 {'00' * 32}\n"
ARK = "ark:12345/x1"
URL = "https://ark.example.org/ark:/12345/x1"


@pytest.mark.parametrize(
    ("words", "file", "code", "said"),
    [
        (["table", "check", "-"], TABLE, 0, "13 NAANs"),
        (["table", "convert", "-", "--to", "natab"], TABLE, 0, "12345"),
        (["table", "export", "-", "--format", "nginx"], TABLE, 0, "12345"),
        (["table", "drift", "--table", "-", "@127.0.0.1#9", "12345"], TABLE, 9, "1 unknown"),
        (["table", "pull", "-", "--table", "new"], TABLE, 1, "13 to add"),
        (["zone", "build", "-"], TABLE, 0, "12345 IN NAPTR"),
        (["zone", "build", str(TABLE), "--include", "-"], ZONES / "delegations.zone", 0, "IN NS"),
        (["zone", "check", "-"], ZONE, 0, "0 errors"),
        (["zone", "diff", "-", str(ZONE)], ZONE, 0, ""),
        (["zone", "diff", str(ZONE), "-"], ZONE, 0, ""),
        (["zone", "diff", "-", "-"], ZONE, 2, "only one of OLD and NEW"),
        (["zone", "diff", str(ZONE), "-"], TABLE, 8, "<stdin>:"),
        (["table", "pull", "-", "--apply", "--every", "60"], TABLE, 2, "--every cannot read standard input again"),
        (["url", "--table", "-", "--policy", "natab-only", ARK], TABLE, 0, URL),
        (["discover", "--table", "-", "--policy", "natab-only", ARK], TABLE, 0, URL),
        (["url", "--table", "-", "--policy", "natab-only", ARK], ZONE, 8, "<stdin>:"),
        (["ark", "-"], None, 0, ARK),
        (["bulk", "-", "@127.0.0.1#9", "--table", str(TABLE), "--policy", "natab-only"], None, 0, URL),
        (["url", "--trust-anchor", "-", "--table", str(TABLE), "--policy", "natab-only", ARK], ANCHOR, 0, URL),
        (["url", "--trust-anchor", "-", ARK], ZONE, 2, "<stdin>: trust anchors cannot be read: "),
        (["bulk", "--table", "-"], TABLE, 2, "only one of FILE, --table and --trust-anchor"),
        (["bulk", "--trust-anchor", "-"], ANCHOR, 2, "only one of FILE, --table and --trust-anchor"),
        (["redirects", "check", "-"], REDIRECTS, 1, "<stdin>:3: no ark: label in 'x'"),
        (["redirects", "check", "-"], ZONE, 8, "<stdin>:1: the first line has no column ark"),
        (["redirects", "import", "-", "-o", "new.sqlite"], REDIRECTS, 1, "<stdin>:3: "),
        (["redirects", "export", "-"], REDIRECTS, 1, "<stdin>:3: "),
        (["table", "export", str(TABLE), "--format", "nginx", "--redirects", "-"], REDIRECTS, 1, "<stdin>:3: "),
        (["table", "export", "-", "--format", "nginx", "--redirects", "-"], TABLE, 2, "only one of SOURCE"),
        (["gateway", "--table", "-"], TABLE, 8, "-: No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_dash_is_standard_input(
    words: list[str], file: Path | str | None, code: int, said: str, tmp_path: Path
) -> None:
    text = f"{ARK}\n" if file is None else file if isinstance(file, str) else file.read_text("utf-8")
    done = run_process(*words, input=text, cwd=tmp_path)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
