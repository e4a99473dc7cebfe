"""The package: its extras, and the pages that are installed with it. ``.ci/run`` builds, installs and runs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
EXTRAS = {name: set(wants) for name, wants in PROJECT["project"]["optional-dependencies"].items()}
DEV = EXTRAS.pop("dev")
EXTRAS.pop("bench")  # programs with which scripts/bench compares maptr
EXTRAS.pop("docs")  # what scripts/api needs
_WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
SHARED = {Path(source): Path(target) for source, target in _WHEEL.get("shared-data", {}).items()}
PAGES = [Path("README.md"), Path("CHANGELOG.md"), Path("CONTRIBUTING.md")]
PAGES += sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
PICTURE = re.compile(r"!\[(?P<text>[^]]+)\]\((?P<path>[^)]+\.png)\)")
MAX_PICTURE = 100_000  # bytes; the picture is in every clone and wheel


def test_the_readme_lists_the_extras() -> None:
    assert set(EXTRAS) <= set(re.findall(r"`(\w+)`", (REPOSITORY / "README.md").read_text("utf-8")))


def test_extras_named_in_messages_and_pages_exist() -> None:
    texts = [path.read_text("utf-8") for path in (REPOSITORY / "maptr").rglob("*.py")]
    texts += [(REPOSITORY / page).read_text("utf-8") for page in PAGES]
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


@pytest.mark.parametrize("page", PAGES, ids=str)
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
