"""Accidents to the registry: to the pulled content, and to its file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.accidents.outcome import accident
from tests.accidents.sites import MAIN, NAANS, MaptrSite
from tests.support.http_server import http_server, sends
from tests.support.waiting import PATIENCE


def registry(naans: Iterable[int] = NAANS, *, date: str = "2026-11-01T00:00:00+00:00") -> bytes:
    """A registry in the official format."""
    records = [
        {
            "what": str(naan),
            "where": f"https://h{naan}.example.org",
            "target": {"url": f"https://h{naan}.example.org/ark:/${{content}}", "http_code": 302},
            "when": "2020-01-01T00:00:00+00:00",
            "who": {"name": f"Library {naan}", "name_native": None, "acronym": f"L{naan}"},
            "rtype": "PublicNAAN",
        }
        for naan in naans
    ]
    return json.dumps({"metadata": {"version": "1.0", "updated": date}, "data": records}).encode()


REPOSITORY = Path(__file__).resolve().parents[2]


class TableSite(MaptrSite):
    """A server that pulls the registry and builds its zone from it; the neighbour is a zone file."""

    def __init__(self) -> None:
        super().__init__()
        self.files[MAIN].unlink()
        self.source = self.folder / "source.json"
        self.source.write_bytes(registry())
        self.url = str(self.source)
        self.table = self.folder / "naans"

    def configure(self) -> None:
        self.sections = f'[table]\nfile = "{self.table}"\nurl = "{self.url}"\nevery = "1h"\n'
        super().configure()
        text = self.config.read_text()
        built = f'file = "{self.files[MAIN]}"\n'
        self.config.write_text(text.replace(built, f'{built}table = "{self.table}"\nns = ["ns=192.0.2.1"]\n'))

    def pull(self) -> None:
        self.run("control", "pull", "--control", self.control)
        self.settle()

    def publish(self, content: bytes) -> None:
        self.source.write_bytes(content)
        self.pull()


def table(_: str) -> TableSite:
    return TableSite()


NOT_PULLED = "keeps table and zone, alarm `table-not-pulled`"


@accident("the source of the registry is empty", site=table, kind="registry", does=NOT_PULLED, in_ci=True)
def pull_empty(site: TableSite) -> None:
    site.publish(b"")


@accident("the source is cut in the middle", site=table, kind="registry", does=NOT_PULLED)
def pull_cut(site: TableSite) -> None:
    site.publish(registry()[:2000])


@accident("the source has one record left", site=table, kind="registry", does=NOT_PULLED)
def pull_one_record(site: TableSite) -> None:
    site.publish(registry(NAANS[:1]))


@accident("the source lost 40 % of its records", site=table, kind="registry", does=NOT_PULLED)
def pull_smaller(site: TableSite) -> None:
    site.publish(registry(NAANS[:12]))


@accident("the source is an HTML page with status 200", site=table, kind="registry", does=NOT_PULLED)
def pull_html(site: TableSite) -> None:
    with http_server(sends(b"<!doctype html><html><body>Maintenance</body></html>", Content_Type="text/html")) as url:
        site.url = url
        site.restart()
        site.pull()


@accident("the source is down at a restart, and remains down", site=table, kind="registry", does=NOT_PULLED)
def pull_down(site: TableSite) -> None:
    site.source.unlink()
    site.restart()
    site.pull()


@accident(
    "the registry's date goes backwards (last year's mirror)",
    site=table,
    kind="registry",
    does=NOT_PULLED + ", until `--force`",
)
def pull_date_back(site: TableSite) -> None:
    site.publish(registry([*NAANS[:18]], date="2025-01-01T00:00:00+00:00"))


@accident(
    "the registry's records are nested 60,000 deep",
    site=table,
    kind="hostile bytes",
    does=NOT_PULLED,
)
def pull_deep(site: TableSite) -> None:
    site.publish(b'{"data": ' + b"[" * 60000 + b"]" * 60000 + b"}")


@accident(
    "the table's file is deleted, and the source is down; restart",
    site=table,
    kind="registry",
    does="serves the kept version of the zone, alarm",
)
def table_deleted_restart(site: TableSite) -> None:
    site.source.unlink()
    site.stop()
    for path in site.folder.glob("naans*"):
        path.unlink()
    site.launch()


@accident(
    "the table's file is damaged; restart while the source is down",
    site=table,
    kind="registry",
    does="serves the kept version of the zone, alarm",
)
def table_damaged_restart(site: TableSite) -> None:
    site.source.unlink()
    site.stop()
    site.table.write_bytes(b"\0" * 4096)
    site.launch()


@accident(
    "table, zone file and source are all gone; restart",
    site=table,
    kind="registry",
    does="serves the kept version of the zone, alarm",
)
def table_and_zone_deleted_restart(site: TableSite) -> None:
    site.source.unlink()
    site.stop()
    for path in (*site.folder.glob("naans*"), *site.folder.glob("ark.arpa.zone*")):
        path.unlink()
    site.launch()


@accident(
    "the server's own address for NOTIFY is not on the machine yet (VRRP: this is the spare machine)",
    site=table,
    kind="network",
    does="serves, alarm `source`; retries, and never sends from another address",
)
def source_missing(site: TableSite) -> None:
    site.extra = '[serve.secondaries]\nsource = ["192.0.2.77"]\n'
    site.restart()
    site.publish(registry([*NAANS, 10020]))


class Desk:
    """A user's computer with the built-in table and the commands."""

    def __init__(self) -> None:
        self.site = TableSite()
        self.folder = self.site.folder
        self.said: list[str] = []
        self.package = REPOSITORY
        self.source_file: Path | None = None

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.site.__exit__()

    def maptr(self, *words: object, package: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
        homes = {f"XDG_{name}_HOME": str(self.folder / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
        return subprocess.run(
            [sys.executable, "-m", "maptr", *map(str, words)],
            cwd=package,
            env={**os.environ, **homes},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def lost(self) -> Mapping[str, list[str]]:
        known = ["12148", "13030", "20775", "88435", "67531"]
        words = ("--policy", "natab-only", *(("--table", self.source_file) if self.source_file else ()))
        found = {naan: self.maptr("url", f"ark:{naan}/x1", *words, package=self.package) for naan in known}
        return {"the commands": [naan for naan, done in found.items() if not done.stdout.startswith("http")]}

    def alarms(self) -> list[str]:
        return self.said


def desk(_: str) -> Desk:
    return Desk()


@accident(
    "the first `maptr table pull small.json --apply`, with three records",
    site=desk,
    kind="registry",
    does="compares it with the built-in table and refuses it, code 1",
)
def first_pull_small(site: Desk) -> None:
    small = site.folder / "small.json"
    small.write_bytes(registry(NAANS[:3]))
    done = site.maptr("table", "pull", small, "--apply")
    if done.returncode:
        site.said.append(" ".join(done.stderr.split())[-200:])


@accident(
    "a user's pulled table is damaged",
    site=desk,
    kind="registry",
    does="uses the built-in table and says so",
)
def own_table_damaged(site: Desk) -> None:
    folder = site.folder / "data" / "maptr"
    folder.mkdir(parents=True)
    (folder / "naans").write_bytes(b"\0" * 4096)
    site.said.append(" ".join(site.maptr("url", "ark:12148/x1", "--policy", "natab-only").stderr.split())[-200:])
    site.said = [text for text in site.said if text]


@accident(
    "the built-in registry is missing from the installation",
    site=desk,
    kind="damage",
    does="says so, without a traceback; a named table and DNS still work",
)
def built_in_missing(site: Desk) -> list[str]:
    shutil.copytree(REPOSITORY / "maptr", site.folder / "installed" / "maptr")
    (site.folder / "installed" / "maptr" / "registry" / "builtin.json").unlink()
    site.source_file = site.folder / "named.json"
    site.source_file.write_bytes(registry([12148, 13030, 20775, 88435, 67531]))
    site.package = site.folder / "installed"
    done = site.maptr("url", "ark:12148/x1", "--policy", "natab-only", package=site.package)
    site.said.append(" ".join(done.stderr.split())[-200:])
    return ["a traceback"] if "Traceback" in done.stderr else []
