"""``maptr table probe``: its output, and the results that it keeps for ``table drift``."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from maptr.cache.disk import Disk
from maptr.reconcile.probes import ProbeLog
from maptr.registry import write_json
from maptr.registry.table import Entry, Nma, Table
from tests.support import command_line
from tests.support.caching import Clock
from tests.support.ports import free_port

run = partial(command_line.run, "table")


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def write_registry(path: Path, *ports: int) -> str:
    entries = (
        Entry(str(naan), nmas=(Nma(f"http://127.0.0.1:{port}/ark:/${{content}}", f"http://127.0.0.1:{port}"),))
        for naan, port in enumerate(ports, 10000)
    )
    path.write_text(write_json(Table(entries)))
    return str(path)


def test_results_are_kept_and_servers_are_probed_once_an_hour(tmp_path: Path, listening: int) -> None:
    dead = free_port()
    file, history = write_registry(tmp_path / "naans", listening, dead), str(tmp_path / "h.sqlite")
    options = ("probe", "--table", file, "--history", history)
    result = run(*options)
    assert (result.exit_code, result.stdout.count("not asked http://127.0.0.1:")) == (0, 2), result.output
    result = run(*options, "--allow-private")
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith(f"silent http://127.0.0.1:{dead}: ")
    assert "2 servers: 1 answered, 1 silent, 0 not asked, 0 probed within the hour" in result.stderr
    run(*options, "--allow-private", code=0, out="", said="2 probed within the hour")
    one = run(*options, "--allow-private", "--again", "10001", "--json")
    assert [probe["outcome"] for probe in json.loads(one.stdout)["probes"]] == ["silent"]
    drift = run("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--html", str(tmp_path / "page"))
    assert f"silent http://127.0.0.1:{dead}: 2 in a row" in drift.stderr, drift.output
    document = json.loads(run("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--json").stdout)
    assert [(one["place"], one["failures"]) for one in document["silent"]] == [(f"http://127.0.0.1:{dead}", 2)]
    assert "Mapping authorities that did not answer" in (tmp_path / "page").read_text()


def test_a_network_failure_is_not_kept(tmp_path: Path) -> None:
    history = tmp_path / "h.sqlite"
    file = write_registry(tmp_path / "naans", free_port(), free_port())
    result = run("probe", "--table", file, "--history", str(history), "--allow-private")
    assert result.exit_code == 9
    assert "perhaps because of the network of this machine; nothing was kept" in result.stderr
    assert ProbeLog(Disk(history, wall=Clock()), wall=Clock()).all() == {}
