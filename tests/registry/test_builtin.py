"""The built-in registry, and the order in which a table is found."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maptr import Client, DiscoveryFailed, registry
from maptr.registry import builtin, found
from maptr.registry.found import FoundTable
from maptr.states import Natab
from tests.support.registries import natab

REPOSITORY = Path(__file__).resolve().parents[2]
NEWEST = "naan_records_2026-07-14.json.gz"


def test_it_is_what_the_script_makes_of_the_newest_registry(real_data: Path) -> None:
    source = real_data / NEWEST
    words = [sys.executable, str(REPOSITORY / "scripts" / "registry"), str(source), "--check"]
    subprocess.run(words, check=True, cwd=REPOSITORY, timeout=600)
    whole, carried = registry.read(gzip.decompress(source.read_bytes())), builtin.state().table
    assert carried is not None
    assert sorted(whole) == list(carried)
    for key, entry in whole.items():
        mine = carried[key]
        assert [(nma.target, nma.status) for nma in mine.nmas] == [(nma.target, nma.status) for nma in entry.nmas]
        assert (mine.who.name, mine.who.acronym) == (entry.who.name, entry.who.acronym or None)
        assert mine.when == entry.when.partition("T")[0]


def test_its_table_is_that_of_its_text() -> None:
    """Records are parsed one by one, when they are needed; the reader of registries gives the same."""
    table = builtin.state().table
    assert table is not None
    read = registry.read(builtin.FILE.read_bytes())
    assert table == read
    assert [table.shoulders(naan) for naan in read.naans()] == [read.shoulders(naan) for naan in read.naans()]
    assert len(gzip.compress(builtin.FILE.read_bytes())) < 150_000


class Machine:
    """A home and a system with no table at first, and a clock."""

    def __init__(self, folder: Path, configured: str | None = None) -> None:
        self.now = 0.0
        self.pulled = folder / "data" / "maptr" / "naans"
        self.pulled.parent.mkdir(parents=True)
        self.configured, self.system = folder / "configured", folder / "natab"
        self.table = FoundTable(configured, clock=lambda: self.now, environment={"XDG_DATA_HOME": str(folder / "data")})

    def kind(self) -> str:
        self.now += 2.0
        return self.table.current().kind


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(found, "SYSTEM_TABLES", (str(tmp_path / "natab"),))
    return Machine(tmp_path, str(tmp_path / "configured"))


def test_the_first_table_that_exists_is_used(machine: Machine) -> None:
    kinds = [machine.kind()]
    for path in (machine.system, machine.pulled, machine.configured):
        path.write_bytes(natab(12345))
        kinds.append(machine.kind())
    assert kinds == ["builtin", "system", "pulled", "configured"]


def test_a_table_that_is_removed_or_damaged_keeps_answering(machine: Machine) -> None:
    machine.pulled.write_bytes(natab(12345))
    assert machine.kind() == "pulled"
    machine.pulled.unlink()
    assert (machine.kind(), machine.table.current().kind) == ("pulled", "pulled")


def test_files_are_looked_for_once_a_second(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every redirect of a gateway asks for the table."""
    looked: list[str] = []

    def exists(path: str) -> bool:
        looked.append(path)
        return False

    monkeypatch.setattr("maptr.paths.exists", exists)
    machine.table.current()
    looked.clear()
    for _ in range(100):
        assert machine.table.current().kind == "builtin"
    assert looked == []


def test_a_table_that_cannot_be_read_at_first_is_a_trouble_and_the_built_in_one_answers(machine: Machine) -> None:
    machine.pulled.write_text("nonsense")
    state = machine.table.current()
    assert (state.kind, state.trouble.partition(":")[0]) == ("builtin", str(machine.pulled))


def test_without_servers_a_client_has_the_table_of_the_machine() -> None:
    found = Client(policy="natab-only").discover("ark:12148/btv1b8449691v?info")
    assert found.url() == "https://ark.bnf.fr/ark:/12148/btv1b8449691v?info"
    assert (found.source, found.table, found.stale) == ("natab", "builtin", False)
    assert found.states is not None
    assert found.states.table is Natab.HAS
    assert found.fetched is not None
    assert time.strftime("%Y-%m-%d", time.gmtime(found.fetched)) == "2026-07-14"


def test_the_built_in_table_is_of_no_other_origin() -> None:
    client = Client(origin="ark.example", policy="natab-only")
    assert client.table.current().table is None
    with pytest.raises(DiscoveryFailed):
        client.discover("ark:12148/x")


@pytest.mark.parametrize("options", [{"nameservers": "192.0.2.1"}, {"require": "secure"}, {"policy": "dns-only"}])
def test_named_servers_and_secure_answers_have_no_table(options: dict[str, str]) -> None:
    assert "builtin" not in repr(Client(**options))  # type: ignore[arg-type]
