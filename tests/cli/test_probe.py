"""``maptr table probe``: its output, and the results that it keeps for ``table drift``."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest

from maptr.cache.disk import Disk
from maptr.errors import time_text
from maptr.reconcile.probes import ProbeLog
from maptr.registry import write_json
from maptr.registry.table import Entry, Nma, Table
from tests.support import command_line
from tests.support.caching import Clock
from tests.support.certificates import write_certificate
from tests.support.http_server import pages
from tests.support.ports import free_port

run = partial(command_line.run, "table")


def write_registry(path: Path, *ports: int, scheme: str = "http") -> str:
    bases = [f"{scheme}://127.0.0.1:{port}" for port in ports]
    tested = {"test_identifier": "ark:/10000/b6"}
    entries = (
        Entry(str(naan), nmas=(Nma(f"{base}/ark:/${{content}}", base),), extra=tested)
        for naan, base in enumerate(bases, 10000)
    )
    path.write_text(write_json(Table(entries)))
    return str(path)


def test_results_are_kept_and_servers_are_probed_once_an_hour(tmp_path: Path) -> None:
    dead, config = free_port(), tmp_path / "maptr.toml"
    config.write_text('[gateway]\ncontact = "arks@example.org"\n')
    with pages(lambda path: (404, {}, b"")) as server:
        file, history = write_registry(tmp_path / "naans", server.port, dead), str(tmp_path / "h.sqlite")
        options = ("probe", "--table", file, "--history", history, "--config", str(config))
        result = run(*options)
        assert (result.exit_code, result.stdout.count("not asked http://127.0.0.1:")) == (0, 2), result.output
        assert server.asked == []
        result = run(*options, "--allow-private")
        assert result.exit_code == 1, result.output
        assert result.stdout.startswith(f"failed http://127.0.0.1:{dead}: ")
        assert "2 servers: 1 answered, 1 failed, 0 not asked, 0 probed within the hour" in result.stderr
        run(*options, "--allow-private", code=0, out="", said="2 probed within the hour")
        assert server.asked == ["/ark:/10000/b6"]
    one = run(*options, "--allow-private", "--again", "10001", "--json")
    assert [(probe["outcome"], probe["fault"]) for probe in json.loads(one.stdout)["probes"]] == [
        ("failed", "unreachable")
    ]
    drift = run("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--html", str(tmp_path / "page"))
    assert f"failed http://127.0.0.1:{dead}: 2 in a row" in drift.stderr, drift.output
    document = json.loads(run("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--json").stdout)
    assert [(one["place"], one["failures"]) for one in document["silent"]] == [(f"http://127.0.0.1:{dead}", 2)]
    assert "Mapping authorities that did not answer" in (tmp_path / "page").read_text()


def test_a_history_that_cannot_be_written_is_named_before_a_server_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # as a read-only home
    with pages(lambda path: (404, {}, b"")) as server:
        file = write_registry(tmp_path / "naans", server.port)
        said = "maptr: /proc/none/maptr/cache.sqlite: cannot be written"
        run("probe", "--table", file, "--allow-private", code=8, out="", said=said)
    assert server.asked == []


def test_a_network_failure_is_not_kept(tmp_path: Path) -> None:
    history = tmp_path / "h.sqlite"
    file = write_registry(tmp_path / "naans", free_port(), free_port())
    result = run("probe", "--table", file, "--history", str(history), "--allow-private")
    assert result.exit_code == 9
    assert "perhaps because of the network of this machine; nothing was kept" in result.stderr
    assert ProbeLog(Disk(history, wall=Clock())).all() == {}


def test_a_certificate_that_ends_soon_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(tmp_path, hours=5 * 24)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    with pages(lambda path: (405, {}, b""), certificate=tmp_path) as server:
        file = write_registry(tmp_path / "naans", server.port, scheme="https")
        options = ("probe", "--table", file, "--history", str(tmp_path / "h.sqlite"), "--allow-private", "--json")
        result = run(*options)
    ends = json.loads(result.stdout)["probes"][0]["certificate_end"]
    assert 4 * 86_400 < ends - time.time() < 6 * 86_400
    assert f"certificate of https://127.0.0.1:{server.port}: until {time_text(ends)}" in result.stderr
    assert result.exit_code == 0


def test_choose_reachable_tries_servers_last_that_failed_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both accept connections, so that only the probes tell them apart."""
    monkeypatch.setattr("maptr.reconcile.probes.PAUSE", 0.0)
    file = tmp_path / "naans"
    with pages(lambda path: (503, {}, b"")) as sick, pages(lambda path: (200, {}, b"")) as well:
        nmas = tuple(Nma(f"{one.url}/ark:/${{content}}") for one in (sick, well))
        file.write_text(write_json(Table([Entry("12345", nmas=nmas)])))
        options = ("--table", str(file), "--allow-private")
        chosen = []
        for _ in range(4):
            look_up = ("url", "ark:12345/x1", "--choose", "reachable", "--policy", "natab-only", *options)
            chosen.append(command_line.run(*look_up).stdout.strip())
            run("probe", "--again", *options)
    assert chosen == [f"{sick.url}/ark:/12345/x1"] * 3 + [f"{well.url}/ark:/12345/x1"]
