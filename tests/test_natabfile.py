"""One NAAN found in a natab file without reading it: what the reader would say, of any file, and light to import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maptr import natabfile, registry
from maptr.errors import TableError
from maptr.natabfile import NotPlainError, find, look_up
from tests.test_registry_natab_blocks import ACRONYMS, COMMENTS, HOSTS, MIXED, NAANS, PLAIN, POLICIES

SAMPLE = Path(__file__).parent.parent / "zones" / "sample.natab"


def read(path: Path, naan: str) -> list[str] | None:
    entry = registry.read(path.read_bytes(), on_bad=lambda error: None).get(naan)
    return None if entry is None else [nma.where for nma in entry.nmas]


def same(path: Path, text: str) -> None:
    path.write_bytes(f"99999:\n    z.example\n{text}".replace("\0", "").encode())
    for naan in {*NAANS, "54321", "99999"}:
        assert find(path, naan) == read(path, naan.lower()), naan
        with suppress(NotPlainError):
            assert look_up(str(path), naan)[0] == read(path, naan), naan


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("natab") / "natab"


@given(text=st.one_of(PLAIN, MIXED))
@settings(max_examples=200)
@example(text="12345:\n    h.example A\n#--- End  of\u00a0Data ---\n13030:\n    h.example\n")
@example(text="#--- end of data ---\n12345:\n    h.example\n")
@example(
    text="12345:\n    h.example A\n# the end of data is near\n    i.example\n# of data\n    data.example\n13030:\n"
)
def test_any_text(path: Path, text: str) -> None:
    same(path, text)


@pytest.mark.parametrize(
    "lines",
    [
        *(f"54321:{policy}\n    h.example" for policy in POLICIES),
        *(f"54321:\n    {host}" for host in HOSTS),
        *(f"54321:\n    h.example{acronym}\n    i.example" for acronym in ACRONYMS),
        *(f"54321:\n    h.example\n{comment}\n    i.example\n13030:\n    j.example" for comment in COMMENTS),
        *(f"{naan}:\n    h.example" for naan in NAANS),
        "# x\r54321:\n    h.example",
        *("54321:\r\n    h.example", "54321:\n\th.example", "54321:\n  ", "54321:", "54321:\n54321:\n    h.example"),
    ],
)
def test_a_line(path: Path, lines: str) -> None:
    same(path, f"13030:\n    a.example\n{lines}\n13031:\n    b.example")


@pytest.mark.parametrize("text", ["12025:\n    h.example", "\ufeff12025:\n h.example", "  12025:\n      h.example\n"])
def test_an_entry_at_the_start(path: Path, text: str) -> None:
    path.write_text(text)
    assert find(path, "12025") == ["h.example"]
    assert find(path, "12026") is None


def test_plain_entries_are_found_without_reading(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(
        "".join(f"# Org\n{n}:  http://p.example/\n    h{n}.data.example:80  ACR\n" for n in range(9000, 19000))
    )
    with monkeypatch.context() as patch:
        patch.delattr(natabfile, "_read")
        assert find(path, "9000") == ["h9000.data.example:80"]
        assert find(path, "18999") == ["h18999.data.example:80"]
        assert find(path, "19000") is None
        for naan in ("12025", "12026", "20775"):
            assert find(SAMPLE, naan) == read(SAMPLE, naan)


def test_a_file_cut_short_while_it_is_searched_kills_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("".join(f"{naan}:\n    h{naan}.example\n" for naan in range(10000, 30000)))
    chunks = natabfile._pieces  # the first chunk is searched, then the rest is gone

    def cut(octets: natabfile._File) -> Iterator[tuple[int, bytes, int]]:
        for chunk in chunks(octets):
            yield chunk
            os.truncate(path, 70_000)

    monkeypatch.setattr(natabfile, "_pieces", cut)
    assert find(path, "29000") is None
    assert find(path, "10001") == ["h10001.example"]


def test_what_is_no_natab_and_what_is_not_there(tmp_path: Path) -> None:
    for name, content in {"empty": "", "page": "<html>", "json": (SAMPLE.parent / "sample.json").read_text()}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(TableError):
            find(tmp_path / name, "12025")
    with pytest.raises(OSError):
        find(tmp_path / "nowhere", "12025")
    with pytest.raises(OSError):
        find(tmp_path, "12025")


def test_a_process_that_asks_once_imports_next_to_nothing() -> None:
    program = f"import sys, maptr.natabfile\nprint(maptr.natabfile.find({str(SAMPLE)!r}, '12025'), *sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, timeout=60,
                          cwd=SAMPLE.parent.parent)  # fmt: skip
    found, _, modules = done.stdout.partition("]")
    assert found == f"{read(SAMPLE, '12025')}"[:-1]
    assert {"re", "typing", "pathlib", "dataclasses", "maptr.registry"} & set(modules.split()) == set()
