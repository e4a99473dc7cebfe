"""docs/reference.md documents exactly the JSON fields that the commands print.

A section has a paragraph for the document and a list item for each object in it, which begins with the object. The
other words in backticks are fields. The objects of the first section apply to every list with their name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pytest

from maptr.ark import Ark
from maptr.daemon.pulling import KeptRecord, ServerDrift, TableStatus
from maptr.discovery import Link, Outcome, Step
from maptr.nma.describe import Description, Segment
from maptr.reconcile.probes import Liveness, Period
from maptr.registry.table import Entry, Table
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.state import left_out_status
from maptr.server.status import CatalogStatus, ZoneResult, to_json
from maptr.zone.lint import LeftOut, lint
from tests.support import command_line
from tests.support.scripted import serving, zone
from tests.support.server_process import Site

REPOSITORY = Path(__file__).resolve().parents[2]
ZONES = REPOSITORY / "zones"
PAGE = (REPOSITORY / "docs" / "reference.md").read_text("utf-8")


def fields(text: str) -> dict[str, str]:
    """Return the paths of the fields in a section, each with its mark, if it has one."""
    found: dict[str, str] = {}
    document, *objects = re.split(r"^\* ", text, flags=re.MULTILINE)
    parts = [("", document)]
    for item in objects:
        start = re.match(r"`[a-z_.\[\]]+`(?:, `[a-z_.\[\]]+`)*(?=[^`]*: )", item)
        assert start, item
        parts += [(f"{place}.", item[start.end() :]) for place in re.findall(r"`([^`]+)`", start[0])]
    for inside, part in parts:
        for names, mark in re.findall(r"`([a-z0-9_ ]+)`(†?)", part):
            found |= {inside + name: mark for name in names.split()}
    return found


SHARED = fields(PAGE.partition("### Objects of several documents\n")[2].partition("\n### ")[0])


def with_shared(own: dict[str, str]) -> dict[str, str]:
    lists = [(path, shared) for path in own for shared in SHARED if path.split(".")[-1] == shared.partition("[]")[0]]
    return own | {path + shared[shared.index("[]") :]: SHARED[shared] for path, shared in lists}


SECTIONS = {
    title: with_shared(fields(text))
    for title, text in re.findall(r"^### `maptr ([^`]+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
RECORDS = {"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']}
BY_NAME = {"status": ("queries",), "table drift": ("counts",)}  # objects whose keys are data


def documented(command: str) -> set[str]:
    """Return the paths in the section of a command, with their parents."""
    prefixes = (accumulate(path.split("."), "{}.{}".format) for path in SECTIONS[command])
    return {prefix.removesuffix("[]") for prefix in chain.from_iterable(prefixes)}


def paths_in(value: object, at: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (path := f"{at}.{name}" if at else name)
            yield from paths_in(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_in(inner, f"{at}[]")


def printed(command: str, *documents: dict[str, Any]) -> set[str]:
    data = tuple(f"{name}." for name in BY_NAME.get(command, ()))
    return {path for document in documents for path in paths_in(document) if not path.startswith(data)} - {"schema"}


def run(*words: object, text: str | None = None) -> list[dict[str, Any]]:
    result = command_line.run(*words, text=text)
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert documents, result.output
    assert {document["schema"] for document in documents} == {"maptr/1"}
    return documents


def test_lookup_commands() -> None:
    link = Link("ark.arpa.", "DS", "secure").to_dict()
    chain = Step((b"ark",), 0, Outcome.ANSWER, links=(Link("ark.arpa.", "DS", "secure"),)).to_dict()["chain"]
    assert chain == [link]
    with serving(zone(RECORDS)) as port:
        at = f"@127.0.0.1#{port}"
        discovered = run("discover", "ark:12345/x1", "ark:00000/x1", at, "--json")
        discovered[0]["trace"][0]["chain"] = chain
        from_table = run(
            "discover", "ark:12345/x1", "--table", str(ZONES / "sample.json"), "--policy", "natab-only", "--json"
        )
        urls = run("url", "ark:12345/x1", "ark:00000/x1", at, "--json")
        bulk = run("bulk", "-", at, "--json", text="ark:12345/x1\nnonsense\n")
        none = run("info", "ark:00000/x1", at, "--json")
        arks = run("ark", "ark:12345/x1", "nonsense", "--json")
    assert printed("discover", *discovered, *from_table) == documented("discover")
    assert printed("ark", *arks) == documented("ark")
    assert all(printed("url", document) == documented("url") for document in urls)
    assert all(printed("bulk", document) == documented("bulk --json") for document in bulk)
    erc = Segment("erc", (("who", "H"),))
    described = Description(Ark.parse("ark:12345/x1"), "?info", "https://h.example/", 200, segments=(erc,))
    assert printed("info", described.to_dict(), *none) == documented("info")


@pytest.mark.parametrize("command", ["discover", "url", "info"])
def test_fields_without_a_name_server(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.servers.system_servers", list)
    [document] = run(command, "ark:12345/x1", "--json")
    marked = {path for path, mark in SECTIONS[command].items() if mark} or documented(command)
    assert marked <= document.keys()


def test_table_commands(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("naa:\nwhat: 12345\nwhere: https://social.example.com\n\nnaa:\nwhat: a\nwhere: https://h.example\n")
    assert printed("table check", *run("table", "check", bad, "--json")) == documented("table check")
    into = tmp_path / "naans"
    natab = "".join(f"{naan}:\n    h.example.org  ACR\n" for naan in range(12345, 12355))
    into.write_text(natab)
    other = tmp_path / "other"
    other.write_text(natab.replace("h.", "i.", 1).replace("12350:\n    h.", "12350:\n    h!"))
    pulled = run("table", "pull", other, "--table", into, "--json")
    pulled += run("table", "pull", other, "--table", tmp_path / "new", "--json")
    assert printed("table pull", *pulled) == documented("table pull")
    with serving(zone(RECORDS)) as port:
        drifted = run("table", "drift", "--table", into, f"@127.0.0.1#{port}", "--json")
    drifted[0]["silent"] = [Liveness.of("https://h.example", [Period(1.0, 1.0, 1)]).to_dict()]
    assert printed("table drift", *drifted) == documented("table drift")
    into.write_text("12345:\n    127.0.0.1  ACR\n")
    probed = run("table", "probe", "--table", into, "--history", tmp_path / "h", "--json")
    assert printed("table probe", *probed) == documented("table probe")


def test_zone_commands(tmp_path: Path) -> None:
    old = ZONES / "ark.arpa.zone"
    new = tmp_path / "new.zone"
    new.write_text(old.read_text().replace('"h" "ark" ""', '"h" "ark" "USLC"', 1) + "added 60 IN TXT x\n")
    assert printed("zone check", *run("zone", "check", new, "--json")) == documented("zone check")
    assert printed("zone diff", *run("zone", "diff", old, new, "--json")) == documented("zone diff")
    built = run("zone", "build", ZONES / "sample.json", "-o", tmp_path / "built", "--json")
    assert printed("zone build", *built) == documented("zone build")
    command_line.run("zone", "keys", "add", tmp_path / "keys")
    listed = run("zone", "keys", "list", tmp_path / "keys", "--json")
    assert printed("zone keys list", *listed) == documented("zone keys list")
    signed = run("zone", "sign", tmp_path / "built", tmp_path / "keys", "-o", tmp_path / "signed", "--json")
    assert printed("zone sign", *signed) == documented("zone sign")
    checking = ("serve", "--check-config", "--json", "--zone")
    good = run(*checking, f"ark.arpa={old}", "--listen", "127.0.0.1:0")
    bad = run(*checking, f"ark.arpa={tmp_path / 'none'}")
    worse = run("serve", "--check-config", "--json", "--config", tmp_path / "none")
    assert [len(document["errors"]) for document in (*good, *bad, *worse)] == [0, 1, 1]
    assert printed("serve --check-config", *good, *bad, *worse) == documented("serve --check-config")
    (tmp_path / "maptr.toml").write_text(
        f"[[zone]]\nname = 'ark.arpa'\nfile = '{old}'\n[gateway]\nredirects = 'own.csv'\n"
    )
    (tmp_path / "own.csv").write_text("ark,url\n")
    good = run("gateway", "--check-config", "--json", "--config", tmp_path / "maptr.toml")
    bad = run("gateway", "--check-config", "--json", "--config", tmp_path / "none")
    assert printed("gateway --check-config", *good, *bad) == documented("gateway --check-config")


def test_status_and_reload(site: Site) -> None:
    site.configure(serve='state = "state"', extra='serial = "increment"\nnotify = ["127.0.0.1:9"]\n')
    (site.directory / "state").mkdir()
    site.start()
    assert printed("reload", *[json.loads(site.run("reload", "--json").stdout)]) == documented("reload") - {"error"}
    status: dict[str, Any] = dict(site.status())
    drift = (ServerDrift("192.0.2.1", 1.0, 1),)
    status["table"] = to_json(TableStatus("naans.json", kept=(KeptRecord("", ""),), drift=drift))
    status["catalog"] = to_json(CatalogStatus("catalog.invalid.", 1))
    status["alarms"] = status["silenced"] = [to_json(Alarm(AlarmKind.DRIFT, ""))]
    status["zones"][0]["left_out"] = to_json(left_out_status(LeftOut(lint(Table([Entry("12345")])))))
    missing = documented("status") - printed("status", status)
    assert printed("status", status) <= documented("status")
    assert missing == {path for path in documented("status") if path.startswith("zones[].signing.")}
    keys = to_json(ZoneResult("a.", "refused")).keys()
    assert keys == {path.partition(".")[2] for path in SECTIONS["reload"] if "." in path}
