"""The programs in docs/examples: each does what it says. ``test_typing.py`` checks their types."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module, resources
from pathlib import Path
from types import ModuleType

import pytest

import maptr

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples"
README = FOLDER.parents[1] / "README.md"
REGISTRY = Path(str(resources.files("maptr.registry") / "builtin.json"))
SECONDS = 300


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """Import the view that the test names, and let it ask no DNS."""
    monkeypatch.syspath_prepend(str(FOLDER))
    view = import_module(request.param)
    monkeypatch.setattr(view, "client", maptr.Client(table="builtin", policy="natab-only"))
    return view


def run(name: str, *arguments: str, stdin: str = "") -> str:
    words = [sys.executable, "-W", "error", str(FOLDER / name), *arguments]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, encoding="utf-8", timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_links_of_dirty_rows_are_checked_and_a_regular_expression_gets_as_many_wrong_as_the_readme_says(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(run("rows.py", str(REGISTRY)), "utf-8")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    report = list(csv.DictReader(io.StringIO(run("check_links.py", str(path), "cell"))))
    assert [row["ark"] for row in report] == [row["meant"] for row in rows], (
        "one ARK in each row, the one that was meant"
    )

    compared = run("regexp.py", str(REGISTRY), stdin="".join(f"{row['cell']}\n" for row in rows)).splitlines()
    wrong = sum(made != (row["url"] or "-") for made, row in zip(compared, report, strict=True))
    (said, count) = re.findall(r"(\d+) of ([\d,]+)\s+rows", README.read_text("utf-8"))[0]
    assert (int(said), int(count.replace(",", ""))) == (wrong, len(rows))


def test_rows_that_need_a_person_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,link\n1,no link\n2,ark:/12148/b1 and ark:/13960/t1\n3,ark:99989/x1\n", "utf-8")
    report = [row.split(",") for row in run("check_links.py", str(path), "link").splitlines()]
    assert report[1][:3] == ["2", "", ""]
    assert [row[:2] for row in report[2:]] == [["3", "ark:12148/b1"], ["3", "ark:13960/t1"], ["4", "ark:99989/x1"]]
    assert report[4][2:] == ["", "no organisation has this NAAN"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pandas_column", ["3 ARKs in 4 cells", "{'12148': 2, '13960': 1}"]),
        ("sqlite_store", ["Atlas catalan", "['ark:12148/btv1b8449691v', 'ark:13960/t4wh3b18q']"]),
        ("pydantic_model", ['12148 {"ark":"ark:12148/btv1b8449691v","title":"Atlas catalan"}']),
    ],
)
def test_values_are_used_as_others_are(name: str, expected: list[str]) -> None:
    assert run(f"{name}.py").splitlines()[: len(expected)] == expected


PATHS = {
    "/https://n2t.net/ark:/12148/btv1b8449691v": (302, "https://ark.bnf.fr/ark:/12148/btv1b8449691v"),
    "/ark:12148/b1%2Fa?info": (302, "https://ark.bnf.fr/ark:/12148/b1%2Fa?info"),
    "/ark:99989/x1": (404, None),
    "/nonsense": (400, None),
}


@pytest.mark.parametrize("example", ["fastapi_view"], indirect=True)
def test_view_of_fastapi(example: ModuleType) -> None:
    from fastapi.testclient import TestClient

    with TestClient(example.app, follow_redirects=False) as http:
        answers = {path: http.get(path) for path in PATHS}
    assert {path: (one.status_code, one.headers.get("location")) for path, one in answers.items()} == PATHS


@pytest.mark.parametrize("example", ["django_view"], indirect=True)
def test_view_of_django(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import django
    from django.test import Client

    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "django_view")
    django.setup()
    answers = {path: Client().get("/", RAW_URI=path) for path in PATHS}
    found: Mapping[str, object] = {
        path: (one.status_code, one.headers.get("location")) for path, one in answers.items()
    }
    assert found == PATHS
