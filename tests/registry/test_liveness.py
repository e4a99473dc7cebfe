"""Probes: whom they reach, how politely, what is kept of them, and that they only ever change an order."""

from __future__ import annotations

import json
import socket
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from maptr import url
from maptr.cache.disk import Disk
from maptr.cache.page import render
from maptr.cache.probe_log import MAX_PROBES, ProbeLog
from maptr.cli.group import main
from maptr.discovery import Discovery
from maptr.errors import NmaError
from maptr.nma.probe import Prober
from maptr.nma.reachable import Reachable
from maptr.registry import write_json
from maptr.registry.liveness import (
    SUSPECT_AFTER,
    TRUSTED_FOR,
    Liveness,
    Probe,
    ProbeResult,
    place_in,
    place_of,
    places_of,
)
from maptr.registry.table import Entry, Nma, Table
from tests.support.caching import ARK, Clock, Rig, host, said
from tests.support.ports import free_port

PLACE = "https://a.example"


def probes(*answered: bool, place: str = PLACE, start: float = 0.0) -> list[Probe]:
    return [
        Probe(place, start + at, ProbeResult.ANSWERED if one else ProbeResult.SILENT, "" if one else f"silence {at}")
        for at, one in enumerate(answered)
    ]


def served(*names: str) -> Discovery:
    """A discovery with these hosts, in this order."""
    rig = Rig({"12345.ark.arpa.": said(*(host(f"{name}.", order) for order, name in enumerate(names)))})
    return rig.cache.discover(ARK)


@pytest.mark.parametrize(
    ("answered", "failures"), [((), 0), ((True,), 0), ((False,), 1), ((False, True), 0), ((True, False, False), 2)]
)
def test_failures_in_a_row_are_counted_from_the_last_answer_on(answered: tuple[bool, ...], failures: int) -> None:
    found = Liveness.of(PLACE, [(float(at), one, "x") for at, one in enumerate(answered)])
    assert found.failures == failures
    assert not found.is_suspect(10.0), "one or two silences say nothing"


def test_a_suspect_is_one_for_a_week() -> None:
    found = Liveness.of(PLACE, [(float(at), False, "x") for at in range(SUSPECT_AFTER)])
    assert (found.since, found.at) == (0.0, SUSPECT_AFTER - 1.0)
    assert found.is_suspect(TRUSTED_FOR)
    assert not found.is_suspect(TRUSTED_FOR + SUSPECT_AFTER)
    assert not found.is_suspect(-2 * TRUSTED_FOR), "a clock that was wrong told it"


def test_the_servers_of_a_table() -> None:
    several = Table(
        [
            Entry("1000", nmas=(Nma("https://A.example:8443/x/${content}"), Nma("http://b.example/${value}"))),
            Entry("2000", nmas=(Nma("https://a.example:8443/y"), Nma("N/A"), Nma("ftp://c.example/"))),
        ]
    )
    assert places_of(several) == ["https://a.example:8443", "http://b.example"]
    assert places_of(several, ["2000"]) == ["https://a.example:8443"]
    assert place_in("http://[2001:DB8::1]:80/x") == "http://[2001:db8::1]:80"


@given(
    st.permutations(["a.example", "b.example", "c.example"]),
    st.sets(st.sampled_from("abc")),
    st.sets(st.sampled_from("abc")),
)
def test_suspicion_changes_the_order_of_trying_and_removes_nobody(
    names: list[str], suspects: set[str], dead: set[str]
) -> None:
    asked: list[str] = []

    def probe(where: url.Url, seconds: float) -> None:
        asked.append(where.host.text)
        if where.host.text[0] in dead:
            raise NmaError("dead")

    chooser = Reachable(schemes=("https",), probe=probe, suspects=lambda where: where.host.text[0] in suspects)
    chosen = chooser(served(*names)).host
    turn = sorted(names, key=lambda name: name[0] in suspects)
    alive = [name for name in turn if name[0] not in dead]
    assert chosen == (alive[0] if alive else names[0]), "one that answers is taken, suspect or not"
    assert asked == turn[: turn.index(alive[0]) + 1 if alive else 3]


# --- kept on disk


def test_what_is_kept_and_read_again(tmp_path: Path) -> None:
    wall = Clock(100.0)
    disk = Disk(tmp_path / "c.sqlite", wall=wall)
    log = ProbeLog(disk, wall=wall)
    assert log.all() == {}
    assert log.record([*probes(True, False, False), Probe("http://x", 0.0, ProbeResult.NOT_ASKED)])
    where = url.parse(PLACE)
    assert not log.is_suspect(where)
    assert log.record(probes(False, start=10.0))
    assert log.is_suspect(where)
    assert list(log.all()) == [PLACE] == [place_of(where)]
    assert log.all()[PLACE].note == "silence 0"
    other = ProbeLog(Disk(tmp_path / "c.sqlite", wall=wall), wall=wall)
    assert other.is_suspect(where), "another process knows it too"
    log.record(probes(*[True] * (2 * MAX_PROBES), start=100.0))
    wall.now += 61
    assert not other.is_suspect(where)
    count = disk.run(lambda connection: connection.execute("SELECT count(*) FROM probe").fetchone()[0])
    assert count == MAX_PROBES


def test_a_file_of_before_and_one_that_cannot_be_had(tmp_path: Path) -> None:
    Rig({}, path=tmp_path / "c.sqlite").cache.discover(ARK, raise_on_none=False)
    assert ProbeLog(Disk(tmp_path / "c.sqlite", wall=Clock()), wall=Clock()).record(probes(True))
    nowhere = ProbeLog(Disk(tmp_path / "none" / "c.sqlite", wall=Clock(), own=True), wall=Clock())
    assert not nowhere.record(probes(False, False, False))
    assert (nowhere.all(), nowhere.is_suspect(url.parse(PLACE))) == ({}, False)


# --- asking


class Net:
    """A network of names, and a clock that goes on when somebody sleeps."""

    def __init__(self, addresses: dict[str, list[str]], dead: tuple[str, ...] = ()) -> None:
        self.addresses, self.dead = addresses, dead
        self.clock = Clock(0.0)
        self.asked: list[tuple[str, float]] = []
        self.at_once = self.most = 0
        self._lock = threading.Lock()

    def look_up(self, host: str, port: int, seconds: float) -> list[str]:
        if host not in self.addresses:
            raise NmaError(f"{host}: no address")
        return self.addresses[host]

    def ask(self, where: url.Url, seconds: float) -> None:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.asked.append((where.host.text, self.clock()))
        with self._lock:
            self.at_once -= 1
        if where.host.text in self.dead:
            raise NmaError(f"{where.host.text}: refused")

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.clock.now += seconds

    def prober(self, **options: Any) -> Prober:
        return Prober(
            ask=self.ask,
            look_up=self.look_up,
            clock=self.clock,
            wall=Clock(7.0),
            sleep=self.sleep,
            **options,
        )


def test_names_of_one_address_are_probed_one_after_the_other_with_a_pause() -> None:
    net = Net({f"h{number}.example": ["93.184.216.34"] for number in range(5)})
    found = list(net.prober().probe([f"https://h{number}.example" for number in range(5)]))
    assert [one.outcome for one in found] == [ProbeResult.ANSWERED] * 5
    times = [at for _, at in net.asked]
    assert [later - sooner for sooner, later in pairwise(times)] == [2.0] * 4
    assert net.most == 1


def test_what_is_not_public_is_not_asked_and_is_no_failure() -> None:
    net = Net(
        {"in.example": ["192.168.1.1"], "a.example": ["93.184.216.34"], "b.example": ["93.184.216.35"]}, ("b.example",)
    )
    places = [
        "http://in.example",
        "http://127.0.0.1",
        "http://localhost",
        "https://a.example",
        "https://b.example",
        "http://none.example",
    ]
    found = {one.place: one for one in net.prober().probe(places)}
    assert [found[place].outcome for place in places] == [ProbeResult.NOT_ASKED] * 3 + [
        ProbeResult.ANSWERED,
        ProbeResult.SILENT,
        ProbeResult.SILENT,
    ]
    assert sorted(name for name, _ in net.asked) == ["a.example", "b.example"]
    assert found["http://in.example"].note == "192.168.1.1 is not a public address"
    assert found["https://b.example"].note == "b.example: refused"
    assert net.prober(allow_private=True).one("http://in.example").outcome is ProbeResult.ANSWERED
    assert net.prober().one("N/A").outcome is ProbeResult.NOT_ASKED


def test_a_bug_in_asking_is_raised_and_stops_the_rest() -> None:
    net = Net({"a.example": ["93.184.216.34"]})

    def broken(host: str, port: int, seconds: float) -> list[str]:
        raise ZeroDivisionError("a bug")

    net.look_up = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        list(net.prober().probe([PLACE]))


# --- the command


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["table", *arguments])


@pytest.fixture
def listening() -> object:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def registry(path: Path, *ports: int) -> str:
    entries = (
        Entry(str(naan), nmas=(Nma(f"http://127.0.0.1:{port}/ark:/${{content}}", f"http://127.0.0.1:{port}"),))
        for naan, port in enumerate(ports, 10000)
    )
    path.write_text(write_json(Table(entries)))
    return str(path)


def test_the_command_keeps_what_it_finds_and_asks_no_sooner_than_in_an_hour(tmp_path: Path, listening: int) -> None:
    dead = free_port()
    file, history = registry(tmp_path / "naans", listening, dead), str(tmp_path / "h.sqlite")
    options = ("probe", "--table", file, "--history", history)
    result = run(*options)
    assert (result.exit_code, result.stdout.count("not asked http://127.0.0.1:")) == (0, 2), result.output
    result = run(*options, "--allow-private")
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith(f"silent http://127.0.0.1:{dead}: ")
    assert "2 servers: 1 answered, 1 silent, 0 not asked, 0 probed within the hour" in result.stderr
    again = run(*options, "--allow-private")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "2 probed within the hour" in again.stderr
    one = run(*options, "--allow-private", "--again", "10001", "--json")
    assert [probe["outcome"] for probe in json.loads(one.stdout)["probes"]] == ["silent"]
    drift = run("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--html", str(tmp_path / "page"))
    assert f"silent http://127.0.0.1:{dead}: 2 in a row" in drift.stderr, drift.output
    document = json.loads(run("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--json").stdout)
    assert [(one["place"], one["failures"]) for one in document["silent"]] == [(f"http://127.0.0.1:{dead}", 2)]
    assert "Mapping authorities that did not answer" in (tmp_path / "page").read_text()


def test_a_network_that_is_gone_is_nobody_s_failure(tmp_path: Path) -> None:
    history = tmp_path / "h.sqlite"
    file = registry(tmp_path / "naans", free_port(), free_port())
    result = run("probe", "--table", file, "--history", str(history), "--allow-private")
    assert result.exit_code == 9
    assert "it may be this machine's network; nothing was kept" in result.stderr
    assert ProbeLog(Disk(history, wall=Clock()), wall=Clock()).all() == {}


def test_mistakes_are_told(tmp_path: Path) -> None:
    file = registry(tmp_path / "naans", 1)
    assert run("probe").exit_code == 2
    assert run("probe", "--table", file, "NO/NAAN!").exit_code == 2
    assert run("probe", "--table", str(tmp_path / "none")).exit_code == 8
    assert run("probe", "--table", file, "--history", str(tmp_path / "no" / "h"), "--allow-private").exit_code == 8
    assert run("probe", "--table", file, "--history", str(tmp_path)).exit_code == 2


def test_the_page_says_nothing_of_liveness_where_nothing_is_known() -> None:
    assert "did not answer" not in render([], table="t", asked="s", origin="o")
    silent = Liveness("https://<b>.example", 1.0, failures=1, since=1.0, note="<silence>")
    assert "<code>https://&lt;b&gt;.example</code> once: &lt;silence&gt;" in render(
        [], table="t", asked="s", origin="o", silent=[silent]
    )
