"""The documentation has the code's limits, defaults, exit codes and public names, and the picture has its imports."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import pydoc
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import chain
from pathlib import Path

import click
import pytest

import maptr
from maptr.answer.respond import respond
from maptr.ark import MAX_TEXT
from maptr.cli import output
from maptr.cli.group import main
from maptr.naptr.record import MAX_STRING
from maptr.registry.table import LOCAL, MAX_ENTRIES, MAX_NMAS, MAX_PARSED, MAX_SOURCE, MAX_TABLE
from maptr.server.settings import RELOADED
from maptr.url import MAX_URL
from maptr.walk import MAX_DEPTH, MAX_QUESTIONS
from tests.support.hostile import hostile
from tests.support.peers import find, require
from tests.support.signers import signed_zone
from tests.support.zones import snapshot_of_zones

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


def test_settings_that_a_reload_changes() -> None:
    (said,) = re.findall(r"^\*\*A reload\*\*(.*?)\. If", (DOCS / "configuration.md").read_text("utf-8"), re.M | re.S)
    assert {*re.findall(r"\w+", said)} >= RELOADED


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
    listed = {name for cell in rows("library.md").values() for name in re.findall(r"`(\w+)`", cell)}
    assert set(maptr.__all__) - used - (listed & (TYPES | PARTS)) == set()


PUBLIC_MODULES = ("maptr", "maptr.registry", "maptr.plugins", "maptr.testing")
SOURCES = [path for path in (*PAGES, *DOCS.rglob("*")) if path.suffix in (".md", ".py", ".toml", ".yml", ".yaml", "")]


def programs(path: Path) -> list[str]:
    text = path.read_text("utf-8") if path.is_file() else ""
    if path.suffix == ".md":
        return re.findall(r"^ *```(?:python|sh|console)[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [text]


@pytest.mark.parametrize("page", sorted({*SOURCES}), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_all_code_of_the_pages_imports_public_names_only(page: Path) -> None:
    imported: list[tuple[str, str]] = []
    for program in programs(page):
        for module, names in re.findall(r"\bfrom (maptr[.\w]*) import (\([^)]*\)|[^\n;#]+)", program):
            imported += [(module, name) for name in re.findall(r"(\w+)(?: as \w+)?(?:,|\s|$)", names.strip("()"))]
        imported += [(module, "") for module in re.findall(r"\bimport (maptr[.\w]*)", program)]
    for module, name in imported:
        assert module in PUBLIC_MODULES, (page.name, module, name)
        known = {*import_module(module).__all__, "", *(one.removeprefix("maptr.") for one in PUBLIC_MODULES)}
        assert name in known, (page.name, module, name)


def test_pages_import_something() -> None:
    assert any("from maptr" in program for page in SOURCES for program in programs(page))


@pytest.mark.parametrize("script", ["architecture", "man", "signatures"])
def test_generated_files_are_up_to_date(script: str) -> None:
    command = [sys.executable, f"scripts/{script}", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=REPOSITORY)
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


# ---- examples in docstrings


PACKAGE = Path(maptr.__file__).parent
MODULES = sorted(
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = import_module(name)
    zone, key = signed_zone("ark.arpa.", '12345 NAPTR 0 0 "h" "ark" "" ark.example.org.')
    snapshot = snapshot_of_zones(zone)

    def answer(query: bytes, transport: str) -> list[bytes]:
        reply = respond(query, snapshot)
        return [reply] if reply is not None else []

    with hostile(answer) as server:
        public = {name: getattr(maptr, name) for name in maptr.__all__}
        given = {"asyncio": asyncio, "server": server.name, "host": server.host, "port": server.port, "key": key}
        globs = {**vars(module), **public, **given}
        result = doctest.testmod(module, globs=globs, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0


# ---- help(maptr)


PACKAGES = sorted(".".join(file.parent.relative_to(PACKAGE.parent).parts) for file in PACKAGE.rglob("*/__init__.py"))
PUBLIC = {name: getattr(maptr, name) for name in maptr.__all__}
# Names of types, for annotations.
TYPES = {"Chooser", "Hyphens", "Policy", "Profile", "Scope", "StepHook", "TrustAnchors"}
# A program gets them with a result, or from one method of a client; or they are for annotations only.
PARTS = {"Description", "Drift", "Limit", "NmaError", "Outcome", "PullFailed", "Reading", "Step", "Verdict"}
PARTS |= {"Dns", "ExtendedError", "Fault", "Kind", "Link", "Naptr", "Natab", "NoEventLoop", "PastVerdict", "Pull"}
PARTS |= {
    "CallOptions",
    "ClientOptions",
    "Segment",
    "SharedNaan",
    "SourcePolicy",
    "States",
    "StreamOptions",
    "TableRecord",
}
WITHOUT_ERRORS = {"Entry", "Nma", "Settings", "at_random", "sticky", "weighted"}


def test_help_lists_public_names_first_and_marks_inner_modules() -> None:
    text = pydoc.plain(pydoc.render_doc(maptr))
    description, contents = text[: text.index("PACKAGE CONTENTS")], text[text.index("PACKAGE CONTENTS") :]
    assert [name for name in maptr.__all__ if not re.search(rf"\b{name}\b", description)] == []
    for name, value in PUBLIC.items():
        if name in TYPES:
            continue
        head = rf"class {name}\(" if isinstance(value, type) else rf"    (async )?{name}\("
        assert re.search(head, contents)


@pytest.mark.parametrize("name", PACKAGES)
def test_each_room_is_marked_as_inner(name: str) -> None:
    text = import_module(name).__doc__ or ""
    headline, _, rest = text.partition("\n")
    assert headline.endswith((".", ":")) or rest.strip()
    assert "Internal: " in rest


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - TYPES))
def test_each_public_name_has_a_headline_its_errors_and_an_example(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    assert text == inspect.cleandoc(value.__doc__ or ""), "inherited"
    assert re.match(r".+[.:](\s|$)", text)
    if name in PARTS:
        return
    assert any(test.examples for test in doctest.DocTestFinder(recurse=False).find(value, name))
    is_error = isinstance(value, type) and issubclass(value, Exception)
    assert is_error or name in WITHOUT_ERRORS or re.search("[Rr]aise|errors", text)


# ---- the package


PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
EXTRAS = {name: set(wants) for name, wants in PROJECT["project"]["optional-dependencies"].items()}
DEV = EXTRAS.pop("dev")
EXTRAS.pop("bench")  # programs with which scripts/bench compares maptr
EXTRAS.pop("docs")  # what scripts/api needs
_WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
SHARED = {Path(source): Path(target) for source, target in _WHEEL.get("shared-data", {}).items()}
INSTALLED = [Path("README.md"), Path("CHANGELOG.md"), Path("CONTRIBUTING.md")]
INSTALLED += sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
PICTURE = re.compile(r"!\[(?P<text>[^]]+)\]\((?P<path>[^)]+\.png)\)")
MAX_PICTURE = 100_000  # bytes; the picture is in every clone and wheel


def test_the_readme_lists_the_extras() -> None:
    assert set(EXTRAS) <= set(re.findall(r"`(\w+)`", (REPOSITORY / "README.md").read_text("utf-8")))


def test_extras_named_in_messages_and_pages_exist() -> None:
    texts = [path.read_text("utf-8") for path in (REPOSITORY / "maptr").rglob("*.py")]
    texts += [(REPOSITORY / page).read_text("utf-8") for page in INSTALLED]
    wanted = {extra for text in texts for extra in re.findall(r"maptr\[(\w+)\]", text)}
    assert wanted <= set(EXTRAS)
    assert wanted >= {"dnssec", "doh", "gateway", "metrics"}


def test_all_contains_every_extra() -> None:
    named = re.fullmatch(r"maptr\[(.*)\]", *EXTRAS["all"])
    assert named is not None
    assert set(named[1].split(",")) == set(EXTRAS) - {"all"}


def test_dev_contains_what_every_extra_needs() -> None:
    """For this reason, scripts/bootstrap installs no other extra."""
    needed = {want for name, wants in EXTRAS.items() if name != "all" for want in wants}
    features = {"dnspython[dnssec,doh]>=2.9": {"dnspython[dnssec]>=2.9", "dnspython[doh]>=2.9"}}
    assert needed <= DEV.union(*(features.get(want, {want}) for want in DEV))


@pytest.mark.parametrize("page", INSTALLED, ids=str)
def test_linked_pages_are_installed(page: Path) -> None:
    assert _installed(page) == Path("share/doc/maptr") / page
    for target in LINK.findall((REPOSITORY / page).read_text("utf-8")):
        path = (REPOSITORY / page.parent / target).resolve().relative_to(REPOSITORY)
        assert _installed(path) == Path("share/doc/maptr") / path, target


def test_the_readme_picture_is_small_and_has_alternative_text() -> None:
    (picture,) = PICTURE.finditer((REPOSITORY / "README.md").read_text("utf-8"))
    data = (REPOSITORY / picture["path"]).read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) < MAX_PICTURE
    assert len(picture["text"].split()) > 5


def _installed(path: Path) -> Path | None:
    """Return the path at which the wheel installs a file that is not a module; None if it does not."""
    for source, target in SHARED.items():
        if path.is_relative_to(source):
            return target / path.relative_to(source)
    return None
