"""The date of a table's data: its source, the choice between tables, and wrong clocks."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from maptr.registry import builtin, dates, found
from maptr.registry.followed_file import OFFICIAL, WatchedTable, pull_file
from maptr.registry.found import FoundTable
from tests.support.registries import natab

YEAR = 365 * 86_400.0
NOW = dates.parse("2026-11-29T12:00:00+00:00") or 0.0


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-07-14", "2026-07-14"),
        ("2026-07-14T01:00:00+02:00", "2026-07-13"),
        ("2001.03.08", "2001-03-08"),
        ("20010308", "2001-03-08"),
        ("2001", "2001-01-01"),
        ("2001-13-08", None),
        ("2001-02-31", None),
        ("0000", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("soon", None),
        ("", None),
        ("9" * 10_000, None),
        (2001, None),
        (None, None),
    ],
)
def test_a_date_is_read_as_the_registries_write_it(text: object, day: str | None) -> None:
    read = dates.parse(text)
    assert (None if read is None else dates.day(read)) == day


def record(naan: int, when: str = "") -> dict[str, object]:
    return {"what": str(naan), "when": when, "target": {"url": "https://h.nlm.nih.gov/${content}"}}


def write(path: Path, metadata: dict[str, str], *whens: str, source: str = "", checked: float = NOW) -> None:
    """Write a table as a pull from the source does."""
    content = json.dumps({"metadata": metadata, "data": [record(10000 + n, when) for n, when in enumerate(whens)]})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    if source:
        note = {"source": source, "sha256": hashlib.sha256(content.encode()).hexdigest(), "checked": checked}
        pull_file(path).write_text(json.dumps(note))


@pytest.mark.parametrize(
    ("metadata", "whens", "day"),
    [
        ({"updated": "2024-11-07T16:48:32+00:00", "created_date": "2020-01-01"}, ["2025-01-01"], "2024-11-07"),
        ({"modified_date": "2099-01-01", "created_date": "2024-01-01"}, ["2025-01-01"], "2024-01-01"),
        ({"version": "1"}, ["2001.03.08", "2025-02-03T00:00:00+00:00", "2099-01-01", "never"], "2025-02-03"),
        ({"updated": "2099-01-01"}, ["2099-01-01"], "2026-11-01"),
        ({}, ["", ""], "2026-11-01"),
    ],
)
def test_the_date_is_that_of_the_metadata_else_of_the_newest_record_else_of_the_file(
    metadata: dict[str, str], whens: list[str], day: str, tmp_path: Path
) -> None:
    path = tmp_path / "naans"
    write(path, metadata, *whens)
    written = dates.parse("2026-11-01") or 0.0
    os.utime(path, (written, written))
    state = WatchedTable(path, clock=time.monotonic, wall=lambda: NOW).current()
    assert dates.day(state.date) == day


def test_a_natab_has_the_date_of_its_file_and_one_from_the_future_has_none(tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_bytes(natab(10000))
    os.utime(path, (NOW, NOW))
    assert WatchedTable(path, clock=time.monotonic, wall=lambda: NOW + 9).current().date == NOW
    os.utime(path, (NOW + 9 * YEAR, NOW + 9 * YEAR))
    assert WatchedTable(path, clock=time.monotonic, wall=lambda: NOW).current().date is None


OLDER, NEWER, FUTURE = {"updated": "2024-11-07"}, {"updated": "2026-11-20"}, {"updated": "2099-01-01"}


@pytest.mark.parametrize("skew", [-YEAR, 0.0, YEAR])
@pytest.mark.parametrize(
    ("metadata", "source", "kind"),
    [
        (OLDER, OFFICIAL, "builtin"),
        (NEWER, OFFICIAL, "pulled"),
        (FUTURE, OFFICIAL, "builtin"),
        (OLDER, "builtin", "builtin"),
        (OLDER, "https://mirror.example/naans", "pulled"),
        (OLDER, "", "pulled"),
    ],
)
def test_of_the_official_registry_and_the_built_in_one_the_newer_data_win_whatever_the_clock_says(
    metadata: dict[str, str], source: str, kind: str, skew: float, tmp_path: Path
) -> None:
    write(tmp_path / "maptr" / "naans", metadata, "2003-01-01", source=source)
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    table = FoundTable(clock=time.monotonic, environment=environment, wall=lambda: NOW + skew)
    state = table.current()
    assert (state.kind, table.location.kind) == (kind, kind)
    if kind == "builtin":
        assert (state.date, state.table) == (builtin.date(), builtin.state().table)
    no_origin = FoundTable(clock=time.monotonic, environment=environment, built_in=False)
    assert no_origin.current().table is not None, "the built-in table is of ark.arpa only"


def test_tables_of_the_system_keep_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "natab"
    write(system, OLDER, "2003-01-01")
    monkeypatch.setattr(found, "SYSTEM_TABLES", (str(system),))
    table = FoundTable(clock=time.monotonic, environment={"XDG_DATA_HOME": str(tmp_path / "none")})
    assert (table.current().kind, dates.day(table.current().date)) == ("system", "2024-11-07")
