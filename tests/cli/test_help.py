"""What every command says of itself: within a terminal's width, with exit codes, and an example that is its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from maptr.cli.group import main
from maptr.config.model import ServeConfig
from maptr.protocol.address import Address
from maptr.protocol.numbers import SERVER_PORT

COLUMNS = 80
REPOSITORY = Path(__file__).resolve().parents[2]


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, groups included."""
    yield words
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            if isinstance(command, click.Group):
                yield from commands(command, (*words, name))
            else:
                yield (*words, name)


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_help_fits_a_terminal(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"], terminal_width=COLUMNS)
    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize("words", [words for words in commands(main) if words], ids=" ".join)
def test_help_tells_the_exit_codes(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"])
    assert "Commands:" in result.stdout or (
        "Exit codes:\n    0  " in result.stdout and "\n    2  bad usage" in result.stdout
    )


def test_the_default_port_is_one_everywhere_and_not_that_of_mdns() -> None:
    assert ServeConfig().listen == (Address("127.0.0.1", SERVER_PORT),)
    for command in ("serve", "up"):
        shown = " ".join(CliRunner().invoke(main, [command, "--help"]).stdout.split())
        assert re.search(rf"\[default: (127\.0\.0\.1:)?{SERVER_PORT}\b", shown), command
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))):
        assert not re.search(r"\b5353\b", page.read_text()), page.name


def options(*words: str) -> dict[str, click.Option]:
    """The options of a command by each of their names."""
    command: click.Command = main
    with click.Context(main) as ctx:
        for word in words:
            assert isinstance(command, click.Group)
            found = command.get_command(ctx, word)
            assert found is not None
            command = found
    return {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}


COMMANDS = [words for words in commands(main) if words]
# What goes through the cache has these, by the same help but for --timeout, whose time differs.
DISCOVERY: tuple[str, ...] = (
    "--origin",
    "--trust-ad",
    "--trust-anchor",
    "--require",
    "--allow-private",
    "--table",
    "--policy",
)
DISCOVERY += ("--no-cache", "--config")
CONFIGURED = (("table", "drift"), ("table", "probe"), ("table", "pull"), ("up",), ("serve",), ("reload",), ("status",))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_one_option_has_one_name(words: tuple[str, ...]) -> None:
    assert not {"--natab", "--into", "--socket", "--jsonl", "--file"} & options(*words).keys()


@pytest.mark.parametrize("command", ["discover", "url", "bulk", "info"])
def test_what_goes_through_the_cache_has_the_same_options(command: str) -> None:
    found = options(command)
    assert {name: found[name].help for name in DISCOVERY} == {name: options("url")[name].help for name in DISCOVERY}
    assert {"--timeout", "--json"} <= found.keys()


@pytest.mark.parametrize("words", CONFIGURED, ids=" ".join)
def test_what_reads_the_configuration_takes_the_name_of_its_file(words: tuple[str, ...]) -> None:
    assert "--config" in options(*words)


@pytest.mark.parametrize(
    "words", [("table", "drift"), ("table", "pull"), ("table", "probe"), ("discover",)], ids=" ".join
)
def test_no_time_is_no_timeout(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--timeout", "0", "x"])
    assert result.exit_code == 2
    assert "--timeout" in result.stderr


@pytest.mark.parametrize("words", [("zone", "build"), ("zone", "sign"), ("serve",)], ids=" ".join)
def test_what_makes_or_checks_has_json(words: tuple[str, ...]) -> None:
    assert "--json" in options(*words)
