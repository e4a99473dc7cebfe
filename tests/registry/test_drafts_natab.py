"""natab as the drafts print it: read as its script reads it, written again, and found by DNS."""

from __future__ import annotations

import subprocess
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest

from maptr import Ark, registry
from maptr.discovery import Outcome
from maptr.errors import TableError
from maptr.walk import Answer, Walk
from maptr.zone import rules
from tests.support.peers import find

VECTORS = tomllib.loads((Path(__file__).resolve().parents[1] / "vectors" / "drafts.toml").read_text("utf-8"))["natab"]

# The script of the 2002 draft, section 13.
SCRIPT = r"my $naa = shift; while (<>) { next if (! /^$naa:/); while (<>) { last if (! /^[#\s]./); "
SCRIPT += r'print "$1\n" if (/^\s+(\S+)/); } }'


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_each_entry_is_read_as_printed(vector: dict[str, Any]) -> None:
    bad: list[TableError] = []
    table = registry.read(vector["text"], on_bad=bad.append)
    assert [error.line for error in bad] == vector["bad"]
    assert table.metadata == vector["metadata"]
    assert list(table) == list(vector["entry"])
    for naan, said in vector["entry"].items():
        entry = table[naan]
        assert (entry.who.name, entry.policy.url) == (said["name"], said["policy"])
        assert [nma.where for nma in entry.nmas] == said["hosts"]
        assert [nma.acronym for nma in entry.nmas] == said["acronyms"]
        assert entry.urls(Ark.parse(f"ark:{naan}/x1")) == said["urls"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_nothing_is_lost_when_it_is_written(vector: dict[str, Any]) -> None:
    table = registry.read(vector["text"])
    text, losses = registry.write_natab(table)
    assert losses == []
    assert registry.read(text) == table
    assert registry.read(text).metadata == table.metadata
    assert registry.read(registry.write_json(table)) == table


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_dns_says_what_the_table_says(vector: dict[str, Any]) -> None:
    """Also to a client that knows h records only."""
    table = registry.read(vector["text"])
    for naan, said in vector["entry"].items():
        made = rules.records(table[naan])
        for kept in (made, [rule for rule in made if rule.flags == b"h"]):
            walk = Walk(Ark.parse(f"ark:{naan}/x1"))
            walk.tell(walk.next()[0], Answer(Outcome.ANSWER, tuple(kept), 60))
            urls = [url.replace("/ark:/", "/ark:") for url in walk.result().urls()]
            assert urls == [url.replace("/ark:/", "/ark:") for url in said["urls"]]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_the_draft_s_own_script_prints_the_same_hosts(vector: dict[str, Any], tmp_path: Path) -> None:
    if not find("perl"):
        pytest.skip("no perl")
    path = tmp_path / "natab"
    path.write_text(textwrap.dedent(vector["text"]))
    for naan, said in vector["entry"].items():
        done = subprocess.run(["perl", "-e", SCRIPT, naan, path], capture_output=True, text=True, check=True)
        assert done.stdout.split() == said["hosts"]
