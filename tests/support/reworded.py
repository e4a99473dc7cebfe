"""Runs maptr and prints what programs read from it, as JSON. With ``--reworded``, all of maptr's messages are changed.

A message is a text in the source with two words in a row. It gets a mark with its line number at both ends and between
any two words, so that no two are equal, and no phrase is found. Docstrings and expressions are not changed.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ZONES = Path(__file__).resolve().parents[2] / "zones"
WORDS = re.compile(r"[a-z]{3,}[,;:]? [a-z]{2,}|[a-z]{2,}[,;:]? [a-z]{3,}|: is it ")
NO_MESSAGE = re.compile(  # a media type, a program, or SQL
    "charset=|^(from|import) |(CREATE|SELECT|INSERT|DELETE|WHERE|CONFLICT|FROM) | INTEGER|PRIMARY KEY"
)
MARK = "¶"
# Modules with texts of two words that are data: names in a row, the label of a metric.
OTHER_TEXTS = ("maptr.gateway.api", "maptr.dnssec.expiry")
# The members of documents that are for display. Their presence is data.
PROSE = {"error", "reason", "reasons", "note", "notes", "message", "warnings", "title", "detail", "text", "shared"}
RECORDS = {
    "12345.ark.arpa.": ['10 0 "h" "ark" "" h.example.', '20 0 "u" "ark" "!^ark:/?1(.*)$!http://127.0.0.1/\\\\1!" .'],
    "12346.ark.arpa.": ['0 0 "" "ark" "" 12346.ark.arpa.', '0 0 "" "ark" "" 12347.ark.arpa.'],
}
ARKS = ("ark:12345/x1", "ark:12346/x1", "ark:00000/x1", "12345/x1", "ark:12345/x1 ark:12345/x2", "nonsense", "ark:1/%")


class Reworder(ast.NodeTransformer):
    """Changes a module's messages."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = ast.unparse(node.func)
        return node if function.startswith("re.") or function.endswith(".split") else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str) or not WORDS.search(node.value) or NO_MESSAGE.search(node.value):
            return node
        return ast.copy_location(ast.Constant(reworded(node.value, node.lineno)), node)


def reworded(text: str, line: int) -> str:
    """Return a changed message, with a mark between any two words."""
    return re.sub("^|$|(?<=[a-z]) (?=[a-z])", f" {MARK}{line} ", text)


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_bytes())
        if fullname not in OTHER_TEXTS:
            tree = ast.fix_missing_locations(Reworder().visit(tree))
        return compile(tree, self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if fullname.partition(".")[0] == "maptr" and spec is not None and spec.origin:
            spec.loader = Loader(fullname, spec.origin)
        return spec


def data_of(document: Any) -> Any:
    """A document without its prose, the times, and the ports of this run."""
    if isinstance(document, dict):
        left_out = {"elapsed", "server", "fetched", "age", "at", "serial", "loaded"}
        kept = {name: data_of(value) for name, value in document.items() if name not in left_out}
        return kept | {name: bool(kept[name]) for name in PROSE & kept.keys()}
    return [data_of(one) for one in document] if isinstance(document, list) else document


def command_lines(folder: Path, server: str) -> Iterator[list[object]]:
    """Commands with ``--json``, good and bad."""
    sample, zone = ZONES / "sample.json", ZONES / "ark.arpa.zone"
    changed, bad = folder / "changed.json", folder / "bad.zone"
    changed.write_text(sample.read_text().replace("ark.nlm.example.org", "elsewhere.example.org"))
    bad.write_text(zone.read_text().replace('"h" "ark" ""', '"h" "ark" "USLC"', 1) + "added 60 IN TXT x\nodd IN MX\n")
    for at in (server, "@127.0.0.1#9"):
        for command in ("discover", "url"):
            yield [command, *ARKS[:3], at, "--timeout", "60", "--policy", "dns-only"]
        for policy in ("dns-first", "natab-first", "natab-only"):
            yield ["discover", *ARKS[:3], at, "--timeout", "60", "--policy", policy, "--table", sample]
    yield ["discover", *ARKS, server]
    yield ["bulk", "-", server]
    yield ["ark", *ARKS]
    yield ["table", "check", sample]
    yield ["table", "check", bad]
    for table in (sample, changed):
        yield ["table", "drift", "--table", table, "--history", folder / "history", server]
    yield ["table", "pull", changed, "--table", sample]
    yield ["zone", "check", zone]
    yield ["zone", "check", bad]
    yield ["zone", "diff", zone, bad]
    yield ["serve", "--check-config", "--zone", f"ark.arpa={zone}", "--listen", "127.0.0.1:0"]
    yield ["serve", "--check-config", "--zone", f"ark.arpa={bad}"]
    yield ["status", "--control", folder / "none"]


def run_commands(folder: Path, shown: list[str]) -> Iterator[Any]:
    """The exit code and the documents of each command line. ``shown`` gets their output."""
    from tests.support.command_line import run
    from tests.support.scripted import serving, zone

    with serving(zone(RECORDS)) as port:
        for words in command_lines(folder, f"@127.0.0.1#{port}"):
            result = run(*words, "--json", text="\n".join(ARKS))
            assert result.exit_code != 10, result.output
            documents = [data_of(json.loads(line)) for line in result.stdout.splitlines()]
            yield [str(words[0]), result.exit_code, documents]
            shown.append(result.output)


def ask_gateway() -> Iterator[Any]:
    """The status of each response of a gateway, its headers for programs, and the gateway's metrics."""
    from tests.support.caching import HOME, dns_answer, host, redirect, table
    from tests.support.gateway import Gateway

    answers = {HOME: dns_answer(redirect("sub.example.")), "sub.example.": dns_answer(host("h.example."))}
    for policy in ("natab-only", "dns-first", "dns-only"):
        gateway = Gateway(table(("12346", "h.example")), answers, policy=policy)
        for ark in ARKS:
            for target in (f"/{ark}", f"/{ark}?info", f"/.info/{ark}", f"/?q={ark}", f"/api/v1/arks/{ark}"):
                response = gateway.ask(target.replace(" ", "%20"))
                names = ("location", "content-type", "cache-control", "retry-after")
                source = response.header("maptr-source").partition(";reason")[0]
                elements = re.findall("<[a-z]+[^>]* (?:class|d|href)=[^>]*", response.body.decode())
                yield [target, response.status, *map(response.header, names), source, elements]


def discover(folder: str) -> Iterator[Any]:
    """The errors and discoveries of the library."""
    import maptr
    from tests.support.scripted import serving, zone

    with serving(zone(RECORDS)) as port:
        for ark in ARKS:
            options: tuple[dict[str, Any], ...] = (
                {},
                {"settings": maptr.Settings(max_depth=0)},
                {"lifetime": 0.0},
                {"require": "secure"},
                {"table": ZONES / "sample.json", "cache": Path(folder, "answers"), "patience": 60},
            )
            for more in options:
                for origin in ("ark.arpa", "none.example"):
                    try:
                        with maptr.Client([f"127.0.0.1#{port}"], origin=origin, **more) as client:
                            found = client.discover(ark)
                    except maptr.ArkSyntaxError as error:
                        yield [type(error).__name__, error.suggestion, error.labelled]
                        break
                    except maptr.DiscoveryError as error:
                        yield type(error).__name__
                        found = error.discovery
                    yield [found.missing_origin, found.may_pass, data_of(found.to_dict())]


def read_metrics() -> Iterator[str]:
    """The metrics of a server and of a gateway, without their values."""
    from maptr.protocol.address import Address
    from tests.support.answers import snapshot_of
    from tests.support.http_gateway import gateway, get
    from tests.support.running import answering, daemon_of
    from tests.support.zones import HEAD

    here = Address("127.0.0.1", 0)
    daemon = daemon_of(snapshot_of((HEAD.format(serial=1), "ark.arpa.")), here, metrics=here)
    with answering(daemon), gateway() as site:
        for ark in ARKS:
            get(site.port, f"/{ark}".replace(" ", "%20"))
        assert daemon.metrics_bound is not None
        for port in (site.port, daemon.metrics_bound.port):
            for line in get(port, "/metrics").text.splitlines():
                if not line.startswith("#"):
                    yield re.sub('reason="[^"]*"', "", line.rpartition(" ")[0])


def main() -> None:
    if "--reworded" in sys.argv:
        sys.meta_path.insert(0, Finder())
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {f"XDG_{kind}_HOME": name for kind in ("DATA", "CACHE", "CONFIG")}
        os.environ["MAPTR_CACHE_PATIENCE"] = "60"  # however slow the machine is, DNS answers
        shown: list[str] = []
        found = [*run_commands(Path(name), shown), *ask_gateway(), *discover(name), *read_metrics()]
        document = {"data": found, "reworded": sum(MARK in text for text in shown)}
        sys.stdout.write(json.dumps(document).replace(name, "FOLDER"))


if __name__ == "__main__":
    main()
