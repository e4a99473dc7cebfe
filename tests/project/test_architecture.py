"""Rules that lint does not check: pure modules, no printing, no global state, few imports at start.

The order of the rooms is in ``pyproject.toml`` (import-linter).
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli

PACKAGE = Path(__file__).resolve().parents[2] / "maptr"

PURE = ("ark", "choose", "discovery", "errors", "text", "url", "walk", "protocol", "naptr", "answer", "transfer")

IMPURE_CALLS = frozenset({"open", "input", "breakpoint"})
CLOCKS = frozenset({"now", "today", "utcnow"})  # of datetime and date: the time is an argument

# Imported only by commands that need them (dns.resolver alone takes 70 ms).
HEAVY = ("aiohttp", "asyncio", "dns.message", "dns.name", "dns.resolver", "dnslib", "prometheus_client", "rich", "ssl")


class Module:
    """One source file of the package, parsed."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name  # dotted, below the package: "registry.anvl"; empty for the package itself
        self.tree = ast.parse(source)

    @property
    def room(self) -> str:
        """The room, or the module's own name at the top of the package."""
        return self.name.partition(".")[0]

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and dotted name of each import, wherever it stands; those for the type checker too."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Import():
                    yield from ((node.lineno, alias.name) for alias in node.names)
                case ast.ImportFrom(level=0, module=str(module)):
                    yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
                case ast.ImportFrom():
                    yield node.lineno, "maptr.relative import"


def modules() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found.append(Module(name, path.read_text(encoding="utf-8")))
    return found


def impurities(module: Module) -> Iterator[str]:
    """Calls that read a file or a clock."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"{module.name}:{node.lineno} calls {name}()"
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="datetime" | "date") | ast.Attribute())) if (
                name in CLOCKS
            ):
                yield f"{module.name}:{node.lineno} reads the clock"


def prints(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield f"{module.name}:{node.lineno} prints; cli/output.py is where maptr writes"
            case ast.Call(func=ast.Attribute(attr="basicConfig")) if module.room != "cli":
                yield f"{module.name}:{node.lineno} configures logging, which is the program's to do"


def global_state(module: Module) -> Iterator[str]:
    """``global`` statements, and collections at module level that are not named as constants."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"{module.name}:{node.lineno} has a global statement"
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if name != name.upper() and not name.startswith("__") and _is_mutable(value):
            yield f"{module.name}:{node.lineno} keeps state in {name}"


def _is_mutable(value: ast.expr) -> bool:
    match value:
        case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
        case _:
            return False


ALL = modules()


def test_pure_modules_read_no_file_and_no_clock() -> None:
    assert [found for module in ALL if module.room in PURE for found in impurities(module)] == []


def test_library_code_neither_prints_nor_keeps_state() -> None:
    assert [found for module in ALL for found in (*prints(module), *global_state(module))] == []


def test_every_dependency_is_imported() -> None:
    project = tomli.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [texts for name, texts in project["optional-dependencies"].items() if name != "dev"]
    wanted = {re.split(r"[^\w-]", text)[0] for texts in (project["dependencies"], *extras) for text in texts}
    packages = {"dns" if name == "dnspython" else name.replace("-", "_") for name in wanted}
    imported = {name.partition(".")[0] for module in ALL for _, name in module.imports()}
    assert packages - imported == set()


def loaded_after(code: str) -> set[str]:
    """The heavy modules that a fresh interpreter has loaded after running the code."""
    program = f"{code}\nimport json, sys\nprint('\\n' + json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_maptr_loads_nothing_heavy() -> None:
    assert loaded_after("import maptr") == set()


def test_querying_a_server_loads_nothing_heavy() -> None:
    arguments = ["url", "--timeout", "0.1", "ark:12345/x1", "@127.0.0.1#9"]
    code = f"from maptr.cli.group import main\ntry:\n    main({arguments})\nexcept SystemExit:\n    pass"
    assert loaded_after(code) == set()


def test_help_loads_nothing_heavy() -> None:
    code = "from maptr.cli.group import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_after(code) == set()


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (impurities, "def f(path):\n    return open(path)"),
        (impurities, "from datetime import date\nx = date.today()"),
        (impurities, "import datetime\nx = datetime.datetime.now()"),
        (prints, "def f():\n    print(1)"),
        (prints, "import logging\nlogging.basicConfig()"),
        (global_state, "cache = {}"),
        (global_state, "def f():\n    global n\n    n = 1"),
        (global_state, "from collections import deque\nrecent: deque[int] = deque()"),
    ],
)
def test_violations_are_found(check: object, source: str) -> None:
    assert callable(check)
    assert list(check(Module("walk", source)))


@pytest.mark.parametrize(
    "source",
    [
        "TABLE = {1: 2}\n_NAMES: list[str] = []\n__all__ = ['f']",
        "import dns.name\nfrom dnslib import DNSRecord\nimport re, datetime",
    ],
)
def test_allowed_code_is_accepted(source: str) -> None:
    module = Module("walk", source)
    assert [*impurities(module), *prints(module), *global_state(module)] == []
