"""``--choose`` and ``client.choose``: one of several mapping authorities, on every command that gives one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from maptr.choose import CHOOSERS
from maptr.cli.group import main
from tests.client.test_drivers import serving, zone
from tests.support.ports import free_port

NAME = "ark:12345/x1"


@pytest.fixture
def alive() -> Iterator[int]:
    """The port of a server that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def dns(alive: int) -> Iterator[str]:
    """A name server with a rule for a server that does not answer, and then one for a server that does."""
    dead = free_port()
    rules = [
        rf'0 {order} "u" "ark" "!^(.*)$!http://127.0.0.1:{port}/\\1!" .' for order, port in enumerate((dead, alive))
    ]
    with serving(zone({"12345.ark.arpa.": rules})) as port:
        yield f"@127.0.0.1#{port}"


def run(*words: str, text: str = "") -> str:
    result = CliRunner().invoke(main, words, input=text)
    assert result.exit_code == 0, result.output
    return result.stdout


def places(*words: str, text: str = "") -> list[str]:
    return [line.rpartition(NAME)[0] for line in run(*words, text=text).splitlines()]


def test_reachable_on_each_command(dns: str, alive: int, monkeypatch: pytest.MonkeyPatch) -> None:
    best = f"http://127.0.0.1:{alive}/"
    options = (dns, "--choose", "reachable", "--allow-private")
    assert places("url", NAME, *options) == [best]
    assert places("discover", "--short", NAME, *options)[0] == best
    assert best + NAME in run("bulk", *options, text=f"{NAME}\n")
    first = places("url", NAME, dns, "--allow-private")
    assert first != [best]
    monkeypatch.setenv("MAPTR_CLIENT_CHOOSE", "reachable")
    assert places("url", NAME, dns, "--allow-private") == [best]
    assert places("url", NAME, dns, "--allow-private", "--choose", "first") == first, "an option goes before"


def test_own_on_each_command(dns: str, alive: int) -> None:
    received = f"http://127.0.0.1:{alive}/own/"
    options = (dns, "--choose", "own", "--allow-private")
    assert places("url", received + NAME, *options) != [received], "DNS has that host, and says how it is asked"
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = f"http://127.0.0.1:{server.getsockname()[1]}/own/"
        assert places("url", received + NAME, *options) == [received]
        assert received + NAME in run("bulk", *options, text=f"{received}{NAME}\n")
    assert places("url", received + NAME, *options) == places("url", NAME, dns, "--allow-private"), "it is gone"


def test_a_table_s_authorities_are_chosen_from_too(alive: int, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    where = "".join(f"where: http://127.0.0.1:{port}\n" for port in (free_port(), alive))
    registry.write_text(f"erc:\n\nnaa:\nwho: Example (=) EX\nwhat: 12345\n{where}how: NP | NR | 2024 |\n")
    arguments = ("--table", str(registry), "--policy", "natab-only", "--allow-private", "--choose", "reachable")
    assert f":{alive}/" in run("url", NAME, *arguments)
    assert f":{alive}/" in run("bulk", *arguments, text=f"{NAME}\n")


def test_bulk_chooses_for_many_at_a_time_in_the_order_of_the_lines(dns: str, alive: int) -> None:
    lines = [f"ark:12345/x{number}" for number in range(200)]
    rows = run("bulk", dns, "--choose", "reachable", "--allow-private", text="\n".join(lines)).splitlines()[1:]
    assert [row.split(",")[2] for row in rows] == lines
    assert all(f"http://127.0.0.1:{alive}/" in row for row in rows)


def test_another_name_is_bad_usage() -> None:
    result = CliRunner().invoke(main, ["url", NAME, "--choose", "best"])
    assert result.exit_code == 2
    assert all(name in result.stderr for name in CHOOSERS)
