"""All commands: suggestions for mistyped words, help texts, and options with one name everywhere."""

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
    """The words of every command and group."""
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
def test_help_names_the_exit_codes(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"])
    assert "Commands:" in result.stdout or (
        "Exit codes:\n    0  " in result.stdout and "\n    2  bad usage" in result.stdout
    )


def test_the_default_port_is_the_same_everywhere_and_not_that_of_mdns() -> None:
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
# The options of commands that look up ARKs, each with one help text.
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
def test_commands_that_look_up_arks_have_the_same_options(command: str) -> None:
    found = options(command)
    assert {name: found[name].help for name in DISCOVERY} == {name: options("url")[name].help for name in DISCOVERY}
    assert {"--timeout", "--json"} <= found.keys()


@pytest.mark.parametrize("words", CONFIGURED, ids=" ".join)
def test_commands_that_read_the_configuration_take_its_file(words: tuple[str, ...]) -> None:
    assert "--config" in options(*words)


@pytest.mark.parametrize(
    "words", [("table", "drift"), ("table", "pull"), ("table", "probe"), ("discover",)], ids=" ".join
)
def test_a_timeout_of_0_is_refused(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--timeout", "0", "x"])
    assert result.exit_code == 2
    assert "--timeout" in result.stderr


@pytest.mark.parametrize("words", [("zone", "build"), ("zone", "sign"), ("serve",)], ids=" ".join)
def test_commands_that_build_or_check_have_json(words: tuple[str, ...]) -> None:
    assert "--json" in options(*words)


# ---- mistyped words


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("discoverr",), "No such command 'discoverr'. Did you mean 'discover'?"),
        (("statu",), "No such command 'statu'. Did you mean 'status'?"),
        (("help",), "No such command 'help'. Did you mean '--help'?"),
        (("version",), "No such command 'version'. Did you mean '--version'?"),
        (("zone", "biuld"), "No such command 'biuld'. Did you mean 'build'?"),
        (("table", "help"), "No such command 'help'. Did you mean '--help'?"),
        (("zone", "keys", "ad"), "No such command 'ad'. Did you mean 'add'?"),
        (("nonsense",), "No such command 'nonsense'."),
        (("12345/x6",), "no ark: label in '12345/x6': is it 'ark:12345/x6'?"),
        (("url", "12345/x6"), "no ark: label in '12345/x6': is it 'ark:12345/x6'?"),
        (("url", "ark:1/x", "127.0.0.1#5300"), "no ark: label in '127.0.0.1#5300': is it '@127.0.0.1#5300'?"),
        (("discover", "ark:1/x", "2001:db8::1"), "no ark: label in '2001:db8::1': is it '@2001:db8::1'?"),
        (("url", "https://example.org/x6"), "no ark: label in 'https://example.org/x6'"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(words: tuple[str, ...], error: str) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"Error: {error}"


def test_a_mistyped_option_gets_a_suggestion() -> None:
    result = CliRunner().invoke(main, ["discover", "--shrt", "ark:12345/x1"])
    assert result.exit_code == 2
    assert "--short" in result.stderr.splitlines()[-1]
