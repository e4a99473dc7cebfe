"""The page's table of policies, held to the command line: what it prints, on which stream, and its exit code."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maptr.cache import POLICIES
from tests.cache.test_policy import BEGIN, END, PAGE
from tests.cli.test_through import home, run
from tests.support.peers import Maptr, free_port

__all__ = ["home"]

ZONES = Path(__file__).resolve().parents[2] / "zones"
SAMPLE = (ZONES / "sample.json").read_bytes()
ARK = {True: "ark:12025/x1", False: "ark:54321/x1"}  # one that zone and sample have, and one that neither has
STATUS = {"DNS": "found", "natab": "found", "none": "none", "not known": "unknown"}
EXIT = {"DNS": 0, "natab": 0, "none": 1, "not known": 9}


def old(path: Path) -> None:
    path.write_bytes(SAMPLE)
    os.utime(path, (1, 1))


# What the page calls it -> whether the table has the ARK, and how the table comes to be so.
NATAB: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "has it": (True, lambda path: path.write_bytes(SAMPLE)),
    "has not": (False, lambda path: path.write_bytes(SAMPLE)),
    "is missing": (True, lambda path: path.write_bytes(b"<!DOCTYPE html><p>Not a registry")),
    "is stale, has it": (True, lambda path: old(path)),
    "is stale, has not": (False, lambda path: old(path)),
}


def expected() -> dict[tuple[str, str, str], str]:
    """The cells of the page by policy, DNS and natab."""
    cells: dict[tuple[str, str, str], str] = {}
    policy, head = "", [""]
    for line in PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines():
        columns = [column.strip() for column in line.strip("|").split("|")]
        if line.startswith("**"):
            policy = line.strip("*")
        elif columns[0] == "DNS":
            head = columns
        elif line.startswith("| "):
            pairs = zip(head[1:], columns[1:], strict=True)
            cells |= {(policy, columns[0], natab.removeprefix("natab ")): cell for natab, cell in pairs}
    return cells


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server that answers, one that knows nothing, and nobody."""
    folder = tmp_path_factory.mktemp("zones")
    zone = (ZONES / "ark.arpa.zone").read_text()
    extra = '54321.ark.arpa. 300 IN NAPTR 10 10 "h" "ark" "" dns.example.\n'
    (folder / "both").write_text(zone + extra)
    (folder / "none").write_text("".join(line for line in zone.splitlines(True) if not line.startswith("12025")))
    with Maptr({"ark.arpa.": folder / "both"}) as says, Maptr({"ark.arpa.": folder / "none"}) as none:
        yield {
            "answers": f"127.0.0.1#{says.port}",
            "says none": f"127.0.0.1#{none.port}",
            "silent": f"127.0.0.1#{free_port()}",
        }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("natab", NATAB)
def test_every_combination(
    policy: str, natab: str, servers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has, make = NATAB[natab]
    path = tmp_path / "naans"
    make(path)
    monkeypatch.setenv("MAPTR_CACHE_TABLE_LIMIT", "3600")
    page = expected()
    for number, (dns, server) in enumerate(servers.items()):
        monkeypatch.setenv("MAPTR_CACHE_PATH", str(tmp_path / f"{number}.sqlite"))
        word = page[policy, dns, natab]
        done = run("url", ARK[has], "--table", str(path), "--policy", policy, f"@{server}")
        who, stale = word.removesuffix(", unasked").removesuffix(" (stale)"), "(stale)" in word
        assert done.exit_code == EXIT[who], (dns, word, done.output)
        assert bool(done.stdout.strip()) is (done.exit_code == 0), (dns, word)
        assert ("from the table" in done.stderr) is (who == "natab"), (dns, word, done.stderr)
        assert (" old, stale (" in done.stderr) is stale, (dns, word, done.stderr)
        many = run("bulk", "--table", str(path), "--policy", policy, f"@{server}", text=f"{ARK[has]}\n")
        (row,) = csv.DictReader(many.stdout.splitlines())
        assert many.exit_code == EXIT[who], (dns, word, many.output)
        assert (row["status"], row["url"]) == (STATUS[who], done.stdout.strip()), (dns, word, many.output)
        assert ("from the table" in row["note"]) is (who == "natab"), (dns, word, many.output)
        assert (" old, stale (" in row["note"]) is stale, (dns, word, many.output)
        assert ("; 0 names asked" in many.stderr) is ("unasked" in word), (dns, word, many.output)
