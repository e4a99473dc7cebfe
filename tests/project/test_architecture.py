"""Rules that lint does not check: no global state, no unused dependency, few imports at start, sound patterns.

The order of the packages, the purity of some and the banned calls are in ``pyproject.toml`` (import-linter, ruff).
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli

import maptr

PACKAGE = Path(__file__).resolve().parents[2] / "maptr"
MUTABLE = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}

# Imported only by commands that need them (dns.resolver alone takes 70 ms).
HEAVY = (
    *("aiohttp", "asyncio", "dns.message", "dns.name", "dns.resolver", "dnslib", "jinja2", "prometheus_client"),
    "ssl",
)
COMMAND = "from maptr.cli.group import main\ntry:\n    main({})\nexcept SystemExit:\n    pass"


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def global_state(tree: ast.Module) -> Iterator[str]:
    """Collections at module level that are not named as constants."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if name != name.upper() and not name.startswith("__") and _is_mutable(value):
            yield name


def _is_mutable(value: ast.expr) -> bool:
    match value:
        case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in MUTABLE
        case _:
            return False


def test_library_code_keeps_no_state(trees: dict[Path, ast.Module]) -> None:
    assert {path: found for path, tree in trees.items() if (found := [*global_state(tree)])} == {}


def imported(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Yield the dotted names that modules import, also in functions and for type checkers."""
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module


def test_every_dependency_is_imported(trees: dict[Path, ast.Module]) -> None:
    project = tomli.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [texts for name, texts in project["optional-dependencies"].items() if name not in ("bench", "dev", "docs")]
    wanted = {re.split(r"[^\w-]", text)[0] for texts in (project["dependencies"], *extras) for text in texts}
    imports = {"dnspython": "dns", "PyYAML": "yaml", "crawler-user-agents": "crawleruseragents"}
    packages = {imports.get(name, name.replace("-", "_")) for name in wanted}
    assert packages - {name.partition(".")[0] for name in imported(trees.values())} == set()


@pytest.mark.parametrize(
    "code",
    [
        "import maptr",
        COMMAND.format(["url", "--timeout", "0.1", "ark:12345/x1", "@127.0.0.1#9"]),
        COMMAND.format(["--help"]),
    ],
    ids=["import", "query", "help"],
)
def test_a_start_loads_nothing_heavy(code: str) -> None:
    program = f"{code}\nimport json, sys\nprint('\\n' + json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


# ---- values

MANY_ATTRIBUTES, MANY_PARAMETERS = 12, 8


def classes(trees: dict[Path, ast.Module]) -> list[tuple[Path, ast.ClassDef]]:
    return [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def state_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that methods set. The fields of a frozen value are not state."""
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


# The classes and constructors with more. Each may lose some; a further one is a reason to look for a value in between.
MUCH_STATE = {
    "cache/disk.py: Disk": 16,
    "cache/engine.py: Engine": 14,
    "cache/store.py: Replay": 15,
    "client.py: Client": 14,
    "gateway/links/checker.py: LinkChecker": 14,
    "gateway/metrics.py: Metrics": 16,
    "gateway/redirects/importing.py: Staged": 15,
    "gateway/redirects/store.py: ObjectStore": 21,
    "gateway/server.py: HttpServer": 15,
    "gateway/service.py: Service": 15,
    "gateway/statistics.py: Statistics": 13,
    "registry/pull.py: _Puller": 14,
    "resolver/connections.py: TcpConnection": 13,
    "resolver/multiplexer.py: Multiplexer": 13,
    "resolver/resolver.py: Resolver": 13,
    "server/daemon.py: Daemon": 15,
    "server/reloader.py: Reloader": 17,
    "walk.py: Walk": 19,
    "zone/masterfile.py: MasterFileReader": 15,
}
MANY_OPTIONS = {
    "client.py: Client.__init__": 18,
    "discovery.py: Step.__init__": 14,
    "discovery.py: Candidate.__init__": 14,
    "discovery.py: Discovery.__init__": 19,
    "gateway/server.py: HttpServer.__init__": 9,
    "resolver/resolver.py: Resolver.__init__": 10,
}


def test_a_class_with_much_state_is_known(trees: dict[Path, ast.Module]) -> None:
    """Attributes that cannot be said in one breath are several values."""
    found = {f"{path.relative_to(PACKAGE)}: {node.name}": len({*state_of(node)}) for path, node in classes(trees)}
    assert {name: count for name, count in found.items() if count > MUCH_STATE.get(name, MANY_ATTRIBUTES)} == {}


def test_a_function_with_many_parameters_is_known(trees: dict[Path, ast.Module]) -> None:
    """Too many are a value without a name. Commands, which are decorated, have a parameter for each option."""
    owners = {method: node for _, node in classes(trees) for method in node.body}
    found: dict[str, int] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
                    owner, of = owners.get(node), node.args
                    count = len([*of.posonlyargs, *of.args, *of.kwonlyargs]) - (owner is not None)
                    name = f"{path.relative_to(PACKAGE)}: {f'{owner.name}.' if owner is not None else ''}{node.name}"
                    found[name] = count
    assert {name: count for name, count in found.items() if count > MANY_OPTIONS.get(name, MANY_PARAMETERS)} == {}


def test_a_class_has_a_name_of_its_own(trees: dict[Path, ast.Module]) -> None:
    assert [name for name, count in Counter(node.name for _, node in classes(trees)).items() if count > 1] == []


# ---- regular expressions


parse = re._parser.parse  # type: ignore[attr-defined] # the parser of ``re``, which has no public name
OF_ONE_CHARACTER = {"IN", "LITERAL", "NOT_LITERAL", "ANY", "CATEGORY"}


def patterns() -> Iterator[tuple[str, str]]:
    """Yield each name of a module that holds a compiled pattern, or a text that may be one, with the pattern."""
    for module in pkgutil.walk_packages(maptr.__path__, "maptr."):
        if not module.name.endswith(("__main__", "hook-maptr")):
            for name, value in vars(importlib.import_module(module.name)).items():
                text = value.pattern if isinstance(value, re.Pattern) else value
                if name.isupper() and isinstance(text, str | bytes):
                    yield f"{module.name}.{name}", text if isinstance(text, str) else text.decode("latin-1")


def possessive_groups(parsed: Any) -> Iterator[object]:
    """Yield what is repeated possessively, and is more than one character."""
    for operator, value in parsed:
        if str(operator) == "POSSESSIVE_REPEAT" and not (
            len(value[2]) == 1 and str(value[2][0][0]) in OF_ONE_CHARACTER
        ):
            yield value[2]
        for part in value if isinstance(value, tuple | list) else [value]:
            for each in part if isinstance(part, list) else [part]:
                if hasattr(each, "pattern") or hasattr(each, "data"):
                    yield from possessive_groups(each)


def test_no_group_is_repeated_possessively() -> None:
    """Python 3.11.0 to 3.11.4 match such a group wrongly (CPython issue 106052); an atomic group is right in all."""
    assert [*possessive_groups(parse("a(?:b(?:cc|d)*+)?"))]
    assert not [*possessive_groups(parse("a(?>(?:bb|c)*)[d]*+"))]
    found = {}
    for name, pattern in patterns():
        try:
            found[name] = [*possessive_groups(parse(pattern))]
        except (re.error, RecursionError, OverflowError):
            continue
    assert "maptr.ark._IN_PROSE" in found
    assert not {name for name, groups in found.items() if groups}
