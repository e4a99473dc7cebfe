"""A table of which only the NAANs asked for are made: what a cache says with it is what it says with the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maptr import registry
from maptr.ark import BETANUMERIC, MAX_NAAN, Ark
from maptr.cache import POLICIES
from maptr.cache.once import MAX_PARTS, OnceTable
from maptr.cache.watched import digest_of
from maptr.errors import ConfigError, DiscoveryError
from maptr.question import Answer
from maptr.table import Table
from tests.caching import HOME, SILENT, Rig, host, said
from tests.test_registry_natab_blocks import MIXED, NAANS, PLAIN

ZONES = Path(__file__).resolve().parent.parent / "zones"
DNS: Mapping[str, Answer] = {"answers": said(host("dns.example")), "says none": said(ttl=60), "silent": SILENT}
LIMIT = 3600.0
ASKED = sorted({naan.lower() for naan in NAANS if set(naan.lower()) <= set(BETANUMERIC) and len(naan) <= MAX_NAAN})


def heard(natab: Path | OnceTable, policy: str, dns: str, naans: list[str]) -> list[tuple[Any, ...]]:
    """All that can be seen of what a cache says of an ARK of each NAAN."""
    found: list[tuple[Any, ...]] = []
    for naan in naans:
        rig = Rig({HOME.replace("12345", naan): DNS[dns]}, natab, policy, table_limit=LIMIT)
        rig.wall.now = time.time()
        ark = Ark(naan, "x6np1wh8k")
        try:
            discovery = rig.cache.discover(ark)
        except DiscoveryError as error:
            found.append((naan, type(error), str(error)))
        else:
            facts = (discovery.source, discovery.stale, discovery.reason, discovery.fetched, discovery.to_text())
            found.append((naan, *facts[:3], None if discovery.source == "dns" else facts[3], facts[4]))
        rig.cache.close()
    return found


def same(path: Path, naans: list[str], index: Path | None = None) -> None:
    for policy in POLICIES:
        for dns in DNS:
            for naan in naans:
                # Anew each time, as in a process of its own.
                part = OnceTable(path, index=index, clock=time.monotonic)
                assert heard(part, policy, dns, [naan]) == heard(path, policy, dns, [naan]), (policy, dns, naan)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("once")


@given(text=st.one_of(PLAIN, MIXED), naan=st.sampled_from(ASKED))
@example(text="1" * 64 + ":", naan="1")
@settings(max_examples=40)
def test_any_natab_under_every_policy(folder: Path, text: str, naan: str) -> None:
    path = folder / "natab"
    path.write_bytes(text.encode())
    same(path, [naan], folder / "index")


SAMPLE = (ZONES / "sample.natab").read_bytes()
DAMAGE: dict[str, Callable[[Path], object]] = {
    "as it is": lambda path: None,
    "a pipe that nobody writes to": lambda path: pipe(path),
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "a web page": lambda path: path.write_bytes(b"<!DOCTYPE html>\n12025:\n    h.example\n"),
    "cut within a line": lambda path: path.write_bytes(SAMPLE[: len(SAMPLE) // 2]),
    "with a NUL at its end": lambda path: path.write_bytes(SAMPLE + b"\0"),
    "not UTF-8 at its end": lambda path: path.write_bytes(SAMPLE + b"# \xff\n"),
    "not UTF-8 in the first name": lambda path: path.write_bytes(b"# \xff\n" + SAMPLE),
    "YAML by its first entry": lambda path: path.write_bytes(b"12025:\n  type: naan\n12026:\n    h.example\n"),
    "ANVL behind an odd line end": lambda path: path.write_bytes(b"# x\x0cerc: y\n12025:\n    h.example\n" + SAMPLE),
    "with lines ended twice": lambda path: path.write_bytes(SAMPLE.replace(b"\n", b"\r\n")),
    "indented": lambda path: path.write_bytes(b"  " + SAMPLE.replace(b"\n", b"\n  ")),
    "without entries": lambda path: path.write_bytes(b"#--- end of data ---\n12025:\n    h.example\n"),
    "too old": lambda path: os.utime(path, (1, 1)),
    "confirmed": lambda path: note(path, time.time() - 60),
    "confirmed long ago": lambda path: note(path, 1.0),
    "JSON": lambda path: path.write_bytes((ZONES / "sample.json").read_bytes()),
    "JSON cut": lambda path: path.write_bytes((ZONES / "sample.json").read_bytes()[:3000]),
    "a NAAN twice": lambda path: path.write_bytes(SAMPLE + b"12025:\n    other.example\n"),
}


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def note(path: Path, checked: float) -> None:
    Path(f"{path}.pull").write_text(json.dumps({"sha256": digest_of(path.read_bytes()), "checked": checked}))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_in_any_state_under_every_policy(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_bytes(SAMPLE)
    DAMAGE[damage](path)
    for _ in "before", "with an index":
        same(path, ["12025", "20775", "54321"], tmp_path / "cache" / "index")


def test_a_directory_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        OnceTable(tmp_path, index=None, clock=time.monotonic)


def urls(table: OnceTable, naan: str) -> list[str]:
    entry = (table.current(naan).table or Table()).get(naan)
    return [] if entry is None else entry.urls(Ark(naan, "x1"))


def unread(*arguments: object, **options: object) -> None:
    raise AssertionError("read whole")


@pytest.mark.parametrize("name", ["sample.json", "sample.natab"])
def test_the_second_process_reads_nothing_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, index = tmp_path / name, tmp_path / "cache" / "index"
    path.write_bytes((ZONES / name).read_bytes())
    whole = registry.read(path.read_bytes())
    naans = sorted({*whole.naans()})[: MAX_PARTS - 1]
    first = OnceTable(path, index=index, clock=time.monotonic)
    for naan in naans:
        assert urls(first, naan) == whole[naan].urls(Ark(naan, "x1"))
    monkeypatch.setattr(registry, "read", unread)
    second = OnceTable(path, index=index, clock=time.monotonic)
    for naan in naans:
        assert urls(second, naan) == whole[naan].urls(Ark(naan, "x1"))
        found = second.current(naan).table
        assert found is not None
        assert [entry.key for entry in found.shoulders(naan)] == [entry.key for entry in whole.shoulders(naan)]
    assert urls(second, "54321") == []


def test_an_index_is_of_one_content_and_a_bad_one_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, index = tmp_path / "naans", tmp_path / "index"
    path.write_bytes((ZONES / "sample.json").read_bytes())
    good = urls(OnceTable(path, index=index, clock=time.monotonic), "12025")
    assert good
    whole = index.read_bytes()
    for bad in (b"", whole[:-3], whole.replace(b"maptr ", b"other ", 1), whole.replace(b"\n12025:[", b"\n12025:{")):
        index.write_bytes(bad)
        assert urls(OnceTable(path, index=index, clock=time.monotonic), "12025") == good
        assert index.read_bytes() == whole
    path.write_bytes(path.read_bytes().replace(b"ark.nlm.example", b"new.nlm.example"))
    changed = urls(OnceTable(path, index=index, clock=time.monotonic), "12025")
    assert changed != good
    assert index.read_bytes() != whole
    nowhere = path / "index"  # below a file nothing can be made
    assert urls(OnceTable(path, index=nowhere, clock=time.monotonic), "12025") == changed


def test_who_asks_for_many_naans_has_the_table_read(tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_text("".join(f"{naan}:\n    h{naan}.example\n" for naan in range(20000, 20020)))
    table = OnceTable(path, index=None, clock=time.monotonic)
    for naan in range(20000, 20020):
        assert urls(table, str(naan)) == [f"https://h{naan}.example/ark:/{naan}/x1"]
    assert len(table.current("20000").table or ()) in (1, 20)
    assert len(table.current("20019").table or ()) == 20
    assert len(table.current().table or ()) == 20


def test_a_command_that_asks_once_imports_no_reader(tmp_path: Path) -> None:
    program = (
        "import sys, atexit; atexit.register(lambda: sys.stderr.write(' '.join(sys.modules)));"
        "from maptr.cli.brief import run; run()"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "MAPTR_CACHE_NATAB": str(ZONES / "sample.natab"),
                   "MAPTR_CACHE_POLICY": "natab-first"}  # fmt: skip
    environment = {name: value for name, value in environment.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        [sys.executable, "-c", program, "url", "ark:12026/x1"],
        capture_output=True, text=True, timeout=60, env=environment, cwd=ZONES.parent,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "https://ark.loc.example.org/ark:/12026/x1\n")
    assert {"maptr.registry", "maptr.drift", "maptr.lint", "click"} & set(done.stderr.split()) == set()
