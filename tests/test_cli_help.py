"""What every command says of itself: within a terminal's width, with exit codes, and an example that is its own."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from maptr.cli import main

COLUMNS = 80


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
