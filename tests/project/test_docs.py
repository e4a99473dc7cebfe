"""The documentation has the limits, defaults, exit codes and public names of the code, and the picture its imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import click
import pytest

import maptr
from maptr.ark import MAX_TEXT
from maptr.cli import output
from maptr.cli.group import main
from maptr.naptr.record import MAX_STRING
from maptr.registry.table import LOCAL, MAX_ENTRIES, MAX_NMAS, MAX_PARSED, MAX_SOURCE, MAX_TABLE
from maptr.url import MAX_URL
from maptr.walk import MAX_DEPTH, MAX_QUESTIONS
from tests.support.peers import find, require

MAN_SECTIONS = ["ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"]
REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), *sorted(REPOSITORY.glob("*.md"))]


def rows(page: str) -> dict[str, str]:
    """Return the rows of the tables with two columns of a page: first cell to second."""
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return {first.strip(): second.strip() for first, second in found}


def test_limits() -> None:
    shown = {int(number) for cell in rows("reference.md").values() if (number := cell.replace(",", "")).isdigit()}
    registry = {MAX_ENTRIES, MAX_PARSED, LOCAL * MAX_PARSED, MAX_NMAS, MAX_TABLE, MAX_SOURCE}
    assert shown == registry | {MAX_DEPTH, MAX_QUESTIONS, MAX_STRING, MAX_URL, MAX_TEXT}


def test_exit_codes() -> None:
    codes = {value for name, value in vars(output).items() if name.startswith("EXIT_")}
    assert {int(code) for code in rows("reference.md") if code.isdigit()} == codes


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_files_on_the_page_of_the_architecture_exist() -> None:
    named = re.findall(r"`([a-z_/]+(?:/|[.]py))`", (DOCS / "architecture.md").read_text("utf-8"))
    places = (REPOSITORY, REPOSITORY / "maptr")
    assert [path for path in named if not any((place / path).exists() for place in places)] == []
    assert named


def test_the_index_has_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "README.md").read_text("utf-8")))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


def test_every_public_name_is_used_in_a_program_of_the_library_page() -> None:
    """``test_readme`` runs these programs."""
    programs = re.findall(r"^```python\n(.*?)^```$", (DOCS / "library.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    nodes = chain.from_iterable(ast.walk(ast.parse(program)) for program in programs)
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert set(maptr.__all__) - used == set()


@pytest.mark.parametrize("script", ["architecture", "man"])
def test_generated_files_are_up_to_date(script: str) -> None:
    command = [sys.executable, f"scripts/{script}", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr


@pytest.mark.interop
def test_man_pages_are_well_formed() -> None:
    pages = sorted(map(str, (DOCS / "man").iterdir()))
    require("mandoc")
    done = subprocess.run([str(find("mandoc")), "-T", "lint", *pages], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("page", sorted((DOCS / "man").iterdir()), ids=lambda page: page.name)
def test_man_pages_have_the_usual_sections_and_true_examples(page: Path) -> None:
    text = page.read_text("utf-8")
    sections = re.findall(r"^\.SH (.*)$", text, re.MULTILINE)
    status = [] if page.suffix == ".5" else ["EXIT STATUS"]
    assert [one for one in sections if one in MAN_SECTIONS or one in status] == [*status, *MAN_SECTIONS]
    plain = text.partition(".SH EXAMPLES")[2].replace("\\-", "-").replace("\\e\n", "")
    for line in re.findall(r"^ +maptr (.*)$", plain, re.MULTILINE):
        words = line.split()
        command: click.Command = main
        while isinstance(command, click.Group) and (inner := command.get_command(click.Context(command), words[0])):
            command = inner
            words = words[1:]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, line
